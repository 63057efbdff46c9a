//! The code map of ARCHITECTURE.md, enforced: which room may use which, and what is absent from each.
//!
//! The map is in fenced blocks: `planner-arrows`, `kernel-arrows`, `ring-arrows`, `mpi-arrows`, `couple-arrows` and `crate-arrows`.
//! A line `room: other others` allows just those; a room may only name rooms listed above it, so the map has no circles.

#![allow(clippy::unwrap_used)]

mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tree::{root, sources};

/// Room -> rooms it may use, from the block with this title.
fn code_map(title: &str) -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let fence = format!("```{title}\n");
    let begin =
        text.find(&fence).unwrap_or_else(|| panic!("ARCHITECTURE.md has no block {title}")) + fence.len();
    let block = &text[begin..begin + text[begin..].find("```").unwrap()];
    let mut map = BTreeMap::new();
    for line in block.lines() {
        let (room, uses) = line.split_once(':').unwrap_or_else(|| panic!("not `room: others`: {line}"));
        let uses: Vec<String> = uses.split_whitespace().map(String::from).collect();
        for used in &uses {
            assert!(map.contains_key(used), "{room} may only use rooms listed above it, and {used} is not");
        }
        assert_eq!(map.insert(room.to_string(), uses), None, "{room} is listed twice");
    }
    map
}

/// A file's code: comments, and with them the examples, may point wherever they like.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The rooms named after `root` (`crate::`, or `super::` often enough to leave the room), in `use` lines and elsewhere,
/// one by one or in braces.
fn rooms_used(code: &str, root: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut rooms = Vec::new();
    for (at, marker) in code.match_indices(root) {
        // `$crate::` and `some_crate::` are other paths.
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + marker.len()..];
        match rest.strip_prefix('{') {
            None => rooms.push(name(rest)),
            Some(list) => {
                // Only the first level of braces names rooms.
                let mut depth = 0;
                let mut item = String::new();
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => rooms.push(name(std::mem::take(&mut item).trim())),
                        _ => item.push(c),
                    }
                }
                rooms.push(name(item.trim()));
            }
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

#[test]
fn rooms_of_the_planner_use_only_what_the_code_map_allows() {
    check_rooms("planner-arrows", "crates/reshard-plan/src");
}

#[test]
fn rooms_of_the_kernel_use_only_what_the_code_map_allows() {
    check_rooms("kernel-arrows", "crates/reshard-kernel/src");
}

#[test]
fn rooms_of_the_mpi_engine_use_only_what_the_code_map_allows() {
    check_rooms("mpi-arrows", "crates/reshard-mpi/src");
}

#[test]
fn rooms_of_couplings_use_only_what_the_code_map_allows() {
    check_rooms("couple-arrows", "crates/reshard-couple/src");
}

#[test]
fn rooms_of_rings_use_only_what_the_code_map_allows() {
    check_rooms("ring-arrows", "crates/reshard-ring/src");
}

/// The modules beside each other in a folder, and the files of each with their depth below the folder.
fn modules(folder: &Path) -> BTreeMap<String, Vec<(PathBuf, usize)>> {
    let mut modules: BTreeMap<String, Vec<(PathBuf, usize)>> = BTreeMap::new();
    for path in sources(folder).into_iter().filter(|path| !is_test(path)) {
        let inside = path.strip_prefix(folder).unwrap().to_path_buf();
        let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let depth = inside.components().count() - usize::from(inside.ends_with("mod.rs"));
        if !["mod.rs", "lib.rs", "main.rs"].contains(&first.as_str()) {
            modules.entry(first.trim_end_matches(".rs").to_string()).or_default().push((path, depth));
        }
    }
    modules
}

/// Modules beside each other that use each other in a circle; nothing if there are none.
fn circle(folder: &Path, path: &str) -> Vec<String> {
    let modules = modules(folder);
    let uses = |files: &Vec<(PathBuf, usize)>| -> Vec<String> {
        let all = files.iter().flat_map(|(file, depth)| {
            let code = code(file);
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_string();
            [rooms_used(&code, path), rooms_used(&code, &"super::".repeat(*depth))].concat()
        });
        all.collect()
    };
    let mut left: BTreeMap<&String, Vec<String>> =
        modules.iter().map(|(name, files)| (name, uses(files))).collect();
    // Whoever uses nobody that is left is in no circle.
    loop {
        let names: Vec<String> = left.keys().map(ToString::to_string).collect();
        let before = left.len();
        left.retain(|name, uses| uses.iter().any(|used| used != *name && names.contains(used)));
        if left.len() == before {
            return names;
        }
    }
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let packages = fs::read_dir(root().join("crates")).unwrap().map(|package| package.unwrap().path());
    for package in packages.chain([root().join("python")]) {
        let source = package.join("src");
        let mut folders = vec![(source, "crate::".to_string())];
        while let Some((folder, path)) = folders.pop() {
            let found = circle(&folder, &path);
            assert!(found.is_empty(), "{}: {found:?} use each other in a circle", folder.display());
            let inner = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            folders.extend(inner.filter(|inner| inner.is_dir()).map(|inner| {
                let name = inner.file_name().unwrap().to_string_lossy().into_owned();
                (inner, format!("{path}{name}::"))
            }));
        }
    }
}

/// Tests may use whatever they test with.
fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.ends_with("loom_models.rs")
}

fn check_rooms(title: &str, folder: &str) {
    let map = code_map(title);
    let folder = root().join(folder);
    let mut seen = Vec::new();
    for path in sources(&folder).into_iter().filter(|path| !is_test(path)) {
        let inside = path.strip_prefix(&folder).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let room = first.trim_end_matches(".rs").to_string();
        if room == "lib" {
            continue;
        }
        let allowed = map.get(&room).unwrap_or_else(|| panic!("{room} is not on the code map"));
        let code = code(&path);
        let mut used = rooms_used(&code, "crate::");
        // A room of one file leaves itself by one `super`, a file inside a room by two.
        let inner = inside.components().count() > 1 && !inside.ends_with("mod.rs");
        let by_super = rooms_used(&code, if inner { "super::super::" } else { "super::" });
        used.extend(by_super.into_iter().filter(|name| map.contains_key(name)));
        for used in used {
            assert!(
                used == room || allowed.contains(&used),
                "{} uses {used}: an arrow not on the map",
                inside.display()
            );
        }
        seen.push(room);
    }
    assert!(map.keys().all(|room| seen.contains(room)), "the code map lists a room that is gone");
}

#[test]
fn crates_depend_only_as_the_code_map_allows() {
    let map = code_map("crate-arrows");
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root().join("crates")).unwrap().map(|e| e.unwrap().path()).collect();
    folders.extend(["benchmarks", "examples", "python", "xtask", "fuzz"].map(|folder| root().join(folder)));
    for folder in folders {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = "))
            .unwrap()
            .trim_matches('"')
            .to_string();
        let allowed = map.get(&name).unwrap_or_else(|| panic!("{name} is not on the code map"));
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let dependency = match section.strip_prefix("[dependencies.") {
                Some(table) => table.trim_end_matches(']'),
                None if section == "[dependencies]" => line.split(['.', ' ', '=']).next().unwrap_or_default(),
                None => "",
            };
            if dependency.starts_with("reshard") {
                assert!(allowed.iter().any(|crate_| crate_ == dependency), "{name} depends on {dependency}");
            }
        }
    }
}

#[test]
fn the_planners_are_pure() {
    let [planner, rings] =
        ["crates/reshard-plan/src", "crates/reshard-ring/src/solve"].map(|folder| root().join(folder));
    for path in [sources(&planner), sources(&rings)].concat() {
        let code = code(&path);
        for absent in [
            "std::io",
            "std::fs",
            "std::env",
            "std::net",
            "std::thread",
            "std::process",
            "std::time",
            "print!",
            "println!",
            "static mut",
        ] {
            assert!(!code.contains(absent), "{} uses {absent}: a planner does no such thing", path.display());
        }
    }
    let manifest = fs::read_to_string(root().join("crates/reshard-plan/Cargo.toml")).unwrap();
    let after = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let dependencies = after.split("\n[").next().unwrap_or_default().lines().filter(|line| !line.is_empty());
    for dependency in dependencies {
        assert!(
            dependency.contains("optional = true"),
            "the planner needs nothing but the standard library: {dependency}"
        );
    }
}

#[test]
fn the_test_sees_arrows_wherever_they_stand() {
    assert_eq!(rooms_used("use crate::axis::{Axis, Deal};", "crate::"), ["axis"]);
    assert_eq!(
        rooms_used("use crate::{axis::{Axis, Deal}, grid, error::Error};", "crate::"),
        ["axis", "grid", "error"]
    );
    assert_eq!(rooms_used("fn f() -> crate::traffic::Traffic { $crate::nothing() }", "crate::"), ["traffic"]);
    assert_eq!(rooms_used("use super::traffic::Message;", "super::"), ["traffic"]);
}

/// The names of types defined in a file: associated types, which name another type, are not among them.
fn types(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines().filter(|line| !line.starts_with(' ')) {
        let words: Vec<&str> =
            line.split([' ', '<', '(', ':', ';', '{']).filter(|word| !word.is_empty()).collect();
        let keyword =
            words.iter().position(|word| ["struct", "enum", "trait", "type", "union"].contains(word));
        let plain = ["pub", "unsafe", "crate)", "super)", "pub(crate)", "pub(super)", "crate", "super", "in"];
        if let Some(at) = keyword.filter(|&at| words[..at].iter().all(|word| plain.contains(word))) {
            names.extend(words.get(at + 1).map(ToString::to_string));
        }
    }
    names
}

/// One word means one thing: no type name is defined twice in a crate. Tests and models may repeat names.
#[test]
fn no_crate_has_two_types_of_one_name() {
    let mut twice = Vec::new();
    for package in fs::read_dir(root().join("crates")).unwrap() {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let source = package.unwrap().path().join("src");
        for path in sources(&source).into_iter().filter(|path| !is_test(path)) {
            for name in types(&code(&path)) {
                let inside = path.strip_prefix(root()).unwrap().display().to_string();
                places.entry(name).or_default().push(inside);
            }
        }
        twice.extend(places.into_iter().filter(|(_, places)| places.len() > 1));
    }
    assert!(twice.is_empty(), "defined twice: {twice:#?}");
}

#[test]
fn the_test_sees_types_wherever_they_are_defined() {
    let code = "pub(crate) struct A<T> {\n    type Item = u8;\n}\npub enum B {\nunsafe trait C: Copy {\nstruct D(u8);\ntype E = u8;";
    assert_eq!(types(code), ["A", "B", "C", "D", "E"]);
}

/// Every file that the code map names is there: the names after the two spaces of a folder's line, in any folder.
#[test]
fn the_code_map_names_files_that_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = text.split("## Code map").nth(1).unwrap().split("```").nth(1).unwrap();
    let all: Vec<PathBuf> = ["crates", "benchmarks", "examples", "fuzz", "python", "xtask"]
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .collect();
    let words = map.split(|c: char| c.is_whitespace() || "(),;:".contains(c));
    for word in words.filter(|word| word.ends_with(".rs")) {
        assert!(
            all.iter().any(|path| path.ends_with(word)),
            "{word} is on the code map, but not in the tree"
        );
    }
}

/// The names in the first column of the table of nouns.
fn nouns() -> Vec<String> {
    let text = std::fs::read_to_string(tree::root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let names = rows.filter_map(|row| row.split(" | ").next().map(String::from));
    names
        .flat_map(|names| names.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>())
        .collect()
}

/// A stranger learns a noun by an example: every one of the table has one in its documentation.
#[test]
fn every_noun_has_an_example() {
    let nouns = nouns();
    assert!(nouns.len() > 25 && nouns.contains(&"Redistribution".to_string()), "{nouns:?}");
    let mut without: Vec<&String> = nouns.iter().collect();
    for path in tree::sources(&tree::root().join("crates")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let defines = |noun: &str| {
                ["struct", "enum", "trait"].iter().any(|kind| {
                    line.strip_prefix(&format!("pub {kind} {noun}"))
                        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
                })
            };
            let above =
                lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
            if above.into_iter().any(|line| line.contains("```")) {
                without.retain(|noun| !defines(noun));
            }
        }
    }
    assert!(without.is_empty(), "no example in the documentation of {without:?}");
}
