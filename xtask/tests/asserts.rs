//! An assertion on a text shows the text: one that fails on a machine far away says nothing otherwise.

#![allow(clippy::unwrap_used)]

mod tree;

use std::fs;
use tree::{root, sources};

/// The arguments of a macro whose opening parenthesis was read, and the rest; strings and characters are read as such.
fn arguments(code: &str) -> Vec<String> {
    let (mut depth, mut all, mut last) = (1, Vec::new(), String::new());
    let mut letters = code.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                last.push(letter);
                while let Some(letter) = letters.next() {
                    last.push(letter);
                    match letter {
                        '\\' => last.extend(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 1 => {
                all.push(std::mem::take(&mut last));
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
        last.push(letter);
    }
    all.push(last);
    all.retain(|argument| !argument.trim().is_empty());
    all
}

/// The assertions on a text that do not show it.
fn silent(code: &str) -> Vec<String> {
    let looks = |condition: &str| {
        let calls = [".contains(", ".starts_with(", ".ends_with("];
        calls.iter().flat_map(|call| condition.split(call).skip(1)).any(|argument| {
            let argument = argument.trim_start().trim_start_matches('&');
            argument.starts_with('"') || argument.starts_with("format!(")
        })
    };
    let conditions = code.split("assert!(").skip(1).map(arguments).filter(|all| all.len() == 1);
    let conditions = conditions.map(|all| all[0].split_whitespace().collect::<Vec<_>>().join(" "));
    // The text in a variant has no name outside of it.
    conditions.filter(|condition| looks(condition) && !condition.starts_with("matches!(")).collect()
}

#[test]
fn every_assertion_on_a_text_shows_it() {
    let mut found = Vec::new();
    for folder in ["crates", "examples", "benchmarks", "python", "fuzz", "xtask/src"] {
        for path in sources(&root().join(folder)) {
            let all = silent(&fs::read_to_string(&path).unwrap());
            found.extend(all.into_iter().map(|condition| format!("{}: {condition}", path.display())));
        }
    }
    assert!(
        found.is_empty(),
        "give these the text as a message, as in assert!(said.contains(..), \"{{said}}\"): {found:#?}"
    );
}

#[test]
fn the_test_sees_silent_assertions() {
    let code = r#"
        assert!(said.contains("a, b)"));
        assert!(x && y().to_string()
            .starts_with(&format!("{z}")));
        assert!(said.ends_with("a"), "{said}");
        assert!(list.contains(&3));
        assert!(matches!(x, Y(why) if why.contains("z")));
    "#;
    assert_eq!(
        silent(code),
        ["said.contains(\"a, b)\")", "x && y().to_string() .starts_with(&format!(\"{z}\"))"]
    );
}
