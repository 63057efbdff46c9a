//! `reshard.h` is what cbindgen writes from the sources of `reshard-capi` today; and it compiles as C99 and as C++, with and without
//! mpi.h, before it and after it. After a change that is meant, `RESHARD_API=write cargo test -p xtask --test header` writes it anew.

#![allow(clippy::unwrap_used)]

mod tree;

use std::fs;
use std::path::PathBuf;
use tree::root;

fn kept() -> PathBuf {
    root().join("crates/reshard-capi/include/reshard.h")
}

/// The header of the sources as they are.
fn written() -> String {
    let folder = root().join("crates/reshard-capi");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let library = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
    // In the order in which a reader wants them.
    let files =
        ["border", "layout", "index", "plan", "arrays", "engine", "run", "ring", "publisher", "subscriber"];
    assert!(files.iter().all(|file| library.contains(&format!("mod {file};"))), "{files:?} {library}");
    let builder = files.iter().fold(cbindgen::Builder::new().with_config(config), |builder, file| {
        builder.with_src(folder.join("src").join(format!("{file}.rs")))
    });
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap().replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    without_safety(&text)
}

/// A reader of C knows what a pointer is: the paragraphs that Rust wants about it are left out.
fn without_safety(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut leaving_out = false;
    for line in text.lines() {
        let comment = line.trim_start().starts_with("//");
        if line.trim() == "// # Safety" {
            leaving_out = true;
            while lines.last().is_some_and(|last| last.trim() == "//") {
                lines.pop();
            }
        }
        leaving_out &= comment;
        if !leaving_out {
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_header_is_that_of_the_sources() {
    let written = written();
    if std::env::var_os("RESHARD_API").is_some() {
        fs::create_dir_all(kept().parent().unwrap()).unwrap();
        fs::write(kept(), &written).unwrap();
    }
    let kept = fs::read_to_string(kept()).unwrap_or_default();
    assert!(
        kept == written,
        "reshard.h is not what the sources say; RESHARD_API=write cargo test -p xtask --test header writes it anew"
    );
}
