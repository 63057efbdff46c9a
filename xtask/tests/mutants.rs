//! The set of planted bugs fits the sources: `cargo xtask mutants` needs hours, and should not find out then that a line was rewritten.

#![allow(clippy::unwrap_used)]

#[path = "../src/planted.rs"]
mod planted;
mod tree;

use planted::{Bug, bugs};
use std::collections::BTreeSet;
use std::fs;
use tree::root;

fn set() -> Vec<Bug> {
    bugs(&fs::read_to_string(root().join("xtask/mutants.txt")).unwrap()).unwrap()
}

#[test]
fn every_bug_fits_its_file() {
    let wrong: Vec<String> = set()
        .iter()
        .filter_map(|bug| match fs::read_to_string(root().join(&bug.file)) {
            Ok(text) => bug.planted_in(&text).err(),
            Err(error) => Some(format!("{}: {}: {error}", bug.name, bug.file)),
        })
        .collect();
    assert!(wrong.is_empty(), "write these anew in xtask/mutants.txt: {wrong:#?}");
}

#[test]
fn names_are_unique_and_crates_exist() {
    let set = set();
    assert!(set.len() >= 60, "{}", set.len());
    let names: BTreeSet<&str> = set.iter().map(|bug| &bug.name[..]).collect();
    assert_eq!(names.len(), set.len(), "a name is there twice");
    let manifests = fs::read_dir(root().join("crates")).unwrap().map(|folder| folder.unwrap().path());
    let manifests = manifests.chain([root().join("python")]).map(|folder| folder.join("Cargo.toml"));
    let packages: Vec<String> = manifests
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            text.split("name = \"").nth(1).unwrap().split('"').next().unwrap().to_string()
        })
        .collect();
    for bug in &set {
        let letters =
            |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        assert!(letters(&bug.name) && !bug.name.starts_with('-'), "{} is no name", bug.name);
        assert!(packages.contains(&bug.package), "{}: there is no crate {}", bug.name, bug.package);
    }
}

/// Where bugs have to be: each begins the path of the file of some.
const AREAS: [(&str, &str); 14] = [
    (
        "crates/reshard-plan/src/",
        "axis overlap/aspen overlap/falls overlap/scan overlap/run classes quotient schedule/closed_form schedule/core relabel \
         transportation copies notation layout overlap/mod triangle track simulate cost",
    ),
    (
        "crates/reshard-kernel/src/",
        "copy/rows copy/short copy/turned copy/pieces copy/elements copy/cursor simd/compose store staged exchange tasks \
         memory/checks sync/mailbox",
    ),
    ("crates/reshard/src/", "redistribution engine"),
    ("crates/reshard-ring/src/", "solve/check solve engine"),
    (
        "crates/reshard-mpi/src/",
        "mover/word mover/gather mover/private/queue mover/private/trial mover/shared/progress mover/cma/offers agree tree registry \
         communicator ffi/kept engine/running",
    ),
    ("crates/reshard-couple/src/", "greeting secret frame state arrivals slots terms bounds"),
    (
        "crates/reshard-shards/src/",
        "checksum journal resumed staging boxes region manifest npy tensors names selection layouts doubts",
    ),
    ("crates/reshard-scalapack/src/", "arguments small cache agreement"),
    ("crates/reshard-capi/src/", "border options arrays"),
    ("crates/reshard-cli/src/", "args words"),
    ("crates/reshard-draw/src/", "words scale"),
    ("python/src/", "memory numbers"),
    ("python/package/reshard/", "_parts _foreign"),
    ("", "crates python"),
];

#[test]
fn there_is_a_bug_in_every_area() {
    let set = set();
    for (folder, areas) in AREAS {
        for area in areas.split_whitespace() {
            let path = format!("{folder}{area}");
            assert!(set.iter().any(|bug| bug.file.starts_with(&path)), "no bug is planted in {path}");
        }
    }
}

#[test]
fn entries_are_read_and_mistakes_are_named() {
    let text =
        "About.\n\n== one\ncrate c\nfile f.rs\n- a\n-   b\n+ c\n\n== two\ncrate c\nfile g.rs\n- x\n+ y\n";
    let all = bugs(text).unwrap();
    assert_eq!((all.len(), &all[0].search[..], &all[0].replace[..]), (2, "a\n  b", "c"));
    assert_eq!(all[0].planted_in("let a\n  b;").unwrap(), "let c;");
    let said = all[1].planted_in("x x").unwrap_err();
    assert_eq!(said, "two: the text to search is 2 times in g.rs");
    for (body, why) in [
        ("file f.rs\n- a\n+ b", "a line `crate ...` is missing"),
        ("crate c\nfile f.rs\n- a\n+ a", "nothing is replaced"),
        ("crate c\nfile f.rs\n- a", "nothing is replaced"),
        ("crate c\nfile f.rs\n- a\n+ b\n- c", "begins neither"),
        ("crate c\nfile f.rs\na", "begins neither"),
    ] {
        let said = bugs(&format!("\n== one\n{body}\n")).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}
