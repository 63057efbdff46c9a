//! The page as people use it: what its script looks up and simulates is compared with the program's own answers (in Node.js), and the whole
//! page is driven in a headless Chromium. `reshard serve` is asked for what it must refuse.
//!
//! Without Node.js or a browser the tests are left out with a sentence, unless RESHARD_NEEDS_BROWSER is set, as `cargo xtask test` does where it
//! can install them.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod serving;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_reshard");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// True if a test needs something that is not here and may be left out.
fn left_out(here: bool, what: &str) -> bool {
    if here {
        return false;
    }
    assert!(std::env::var_os("RESHARD_NEEDS_BROWSER").is_none(), "{what} is needed, and not here");
    println!("{what} is not here: nothing was tried");
    true
}

fn works(command: &str, arguments: &[&str]) -> bool {
    Command::new(command).args(arguments).output().is_ok_and(|output| output.status.success())
}

fn script(name: &str, arguments: &[&str]) -> Output {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(name);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&folder).unwrap();
    Command::new("node")
        .arg(path)
        .args(arguments)
        .env("RESHARD", PROGRAM)
        .env("RESHARD_ROOT", root())
        .current_dir(folder)
        .output()
        .unwrap()
}

fn passed(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    println!("{out}");
}

#[test]
fn the_script_says_what_the_program_says() {
    if left_out(works("node", &["--version"]), "Node.js") {
        return;
    }
    let full = if std::env::var_os("RESHARD_FULL").is_some() { "400" } else { "24" };
    passed(&script("agree.mjs", &[full]));
}

#[test]
fn the_page_is_driven_in_a_browser() {
    let driver = "require(process.env.RESHARD_ROOT + '/target/browser/node_modules/playwright-core')";
    let here = works("chromium", &["--version"])
        && Command::new("node")
            .args(["-e", driver])
            .env("RESHARD_ROOT", root())
            .output()
            .is_ok_and(|output| output.status.success());
    if left_out(here, "Chromium or playwright-core") {
        return;
    }
    passed(&script("drive.mjs", &[]));
}
