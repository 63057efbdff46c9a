//! The public names of each library, kept in `docs/api/` so that a change is seen in review: this test compares.
//!
//! Sources are read as text: what `lib.rs` makes public (`pub mod`, `pub use`), the items with these names, and the signatures of
//! their public methods. `#[doc(hidden)]` leaves an item out. After a change that is meant, `RESHARD_API=write cargo test -p xtask`
//! writes the files anew.

#![allow(clippy::unwrap_used)]

mod tree;

use std::collections::BTreeSet;
use std::fs;
use tree::{root, sources};

const LIBRARIES: [&str; 7] = [
    "reshard-plan",
    "reshard",
    "reshard-ring",
    "reshard-mpi",
    "reshard-couple",
    "reshard-shards",
    "reshard-draw",
];

/// Statements of a file: signatures and declarations on one line each, with their indentation, comments and bodies left out.
/// Those after `#[doc(hidden)]` are marked.
fn statements(text: &str) -> Vec<(usize, bool, String)> {
    let mut found = Vec::new();
    let (mut hidden, mut open) = (false, None::<(usize, String)>);
    for line in text.lines() {
        let words = line.trim();
        if words.starts_with("//") || words.is_empty() {
            continue;
        }
        if words.starts_with("#[") {
            hidden |= words.contains("doc(hidden)")
                || words.contains("cfg(test)")
                || words.contains("cfg(doctest)");
            continue;
        }
        let (indent, statement) = match open.take() {
            Some((indent, begun)) => (indent, format!("{begun} {words}")),
            None => (line.len() - line.trim_start().len(), words.to_string()),
        };
        if statement.starts_with("pub")
            && !statement.contains(['{', ';'])
            && !statement.ends_with([',', '}', ')'])
        {
            open = Some((indent, statement));
            continue;
        }
        if (statement.starts_with("pub fn")
            || statement.starts_with("pub unsafe fn")
            || statement.starts_with("pub use"))
            && !statement.contains(';')
            && (statement.starts_with("pub use") || !statement.ends_with('{'))
        {
            open = Some((indent, statement));
            continue;
        }
        found.push((indent, hidden, statement));
        hidden = false;
    }
    found
}

/// The name of an item that a statement declares.
fn declared(statement: &str) -> Option<String> {
    let words: Vec<&str> =
        statement.split([' ', '<', '(', ':', ';', '{', '=']).filter(|word| !word.is_empty()).collect();
    let at = words
        .iter()
        .position(|word| ["struct", "enum", "trait", "fn", "const", "type", "mod"].contains(word))?;
    let is_public = words[..at].iter().all(|word| ["pub", "unsafe", "const"].contains(word))
        && words.first() == Some(&"pub");
    // `pub const fn` declares a function.
    let at = if words.get(at + 1) == Some(&"fn") { at + 1 } else { at };
    words.get(at + 1).filter(|_| is_public).map(ToString::to_string)
}

/// Names that a `pub use` of this crate or of another makes public.
fn used(statement: &str) -> Vec<String> {
    let Some(list) = statement.strip_prefix("pub use ") else { return Vec::new() };
    let list = list.trim_end_matches(';');
    let names = match list.split_once('{') {
        Some((_, names)) => names.trim_end_matches('}').split(',').map(str::trim).collect(),
        None => vec![list.rsplit("::").next().unwrap_or_default()],
    };
    names.into_iter().filter(|name| !name.is_empty()).map(String::from).collect()
}

/// One line for each public name, and for each public method of a type with such a name.
fn api(library: &str) -> String {
    let source = root().join("crates").join(library).join("src");
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut modules = vec![source.join("lib.rs")];
    while let Some(module) = modules.pop() {
        let text = fs::read_to_string(&module).unwrap();
        let folder = module.with_extension("");
        for (indent, hidden, statement) in statements(&text) {
            let inline = indent == 4 && statement.starts_with("pub use");
            if hidden || (indent > 0 && !inline) {
                continue;
            }
            names.extend(used(&statement));
            if let Some(name) = declared(&statement) {
                let beside = if module.ends_with("lib.rs") || module.ends_with("mod.rs") {
                    module.parent().unwrap()
                } else {
                    &folder
                };
                let files = [beside.join(format!("{name}.rs")), beside.join(&name).join("mod.rs")];
                modules.extend(
                    files.into_iter().filter(|file| statement.starts_with("pub mod") && file.exists()),
                );
                names.insert(name);
            }
        }
    }
    let mut lines: BTreeSet<String> = names.iter().cloned().collect();
    for path in sources(&source) {
        let mut of: Option<String> = None;
        for (indent, hidden, statement) in statements(&fs::read_to_string(&path).unwrap()) {
            if indent == 0 && statement.starts_with("impl") {
                let of_type = statement.rsplit(" for ").next().unwrap_or_default();
                let of_type = if statement.contains(" for ") { "" } else { of_type };
                let generics = of_type.strip_prefix("impl").unwrap_or_default();
                let generics = if generics.starts_with('<') {
                    generics.split_once("> ").map_or("", |(_, rest)| rest)
                } else {
                    generics
                };
                let name = generics.trim().split(['<', ' ', '{']).next().unwrap_or_default().to_string();
                of = Some(name).filter(|name| names.contains(name));
            } else if indent == 0 {
                of = None;
            }
            let signature = statement.trim_end_matches('{').trim_end();
            if let (Some(of), 4, false, true) = (&of, indent, hidden, statement.starts_with("pub ")) {
                lines.insert(format!("{of}::{}", signature.trim_start_matches("pub ")));
            }
        }
    }
    lines.into_iter().collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_public_api_is_the_one_that_was_reviewed() {
    for library in LIBRARIES {
        let file = root().join("docs/api").join(format!("{library}.txt"));
        let found = api(library);
        if std::env::var_os("RESHARD_API").is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &found).unwrap();
        }
        let kept = fs::read_to_string(&file).unwrap_or_default();
        let added: Vec<&str> = found.lines().filter(|line| !kept.lines().any(|kept| kept == *line)).collect();
        let gone: Vec<&str> =
            kept.lines().filter(|line| !found.lines().any(|found| found == *line)).collect();
        assert!(
            added.is_empty() && gone.is_empty(),
            "the public API of {library} changed; if that is meant, RESHARD_API=write cargo test -p xtask --test api\n\
             added: {added:#?}\ngone: {gone:#?}"
        );
    }
}

#[test]
fn the_test_sees_what_is_public() {
    let text = "pub use a::{B,\n    C};\n#[doc(hidden)]\npub fn d() {\npub fn e(\n    f: u8,\n) -> u8 {\nfn g() {\npub const fn h() {";
    let all = statements(text);
    let public: Vec<&str> =
        all.iter().filter(|(_, hidden, _)| !hidden).map(|(.., text)| text.as_str()).collect();
    assert_eq!(used(public[0]), ["B", "C"]);
    let names: Vec<String> = public[1..].iter().filter_map(|text| declared(text)).collect();
    assert_eq!(names, ["e", "h"]);
}
