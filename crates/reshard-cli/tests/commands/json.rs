//! The page about JSON names every key that a command prints, nested ones too.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn every_key_is_on_the_page() {
    let page = include_str!("../../../../docs/json.md");
    for command in [
        "plan --from 4/3 --to 2/5 --rank 1",
        "plan --from 2x2/3x3 --to 2x1/2x2 --shape 8x8 --window 4x4 --from-at 1,1",
        "layout 2x2/3x3 --element 1,1",
        "layout (*,block);on;2x2 --shape 4x6 --element 1,1",
        "plan --from 2x2/3x3 --to (*,block);on;2x2 --shape 4x6 --rank 1",
        "schedule --from 2/3 --to 2/5",
        "schedule --from 2/3 --to 2/5 --strategy min-cost",
        "schedule --from 2/3 --to 2/5 --rank 0",
        "schedule --from 2/3 --to 2/5 --compare",
        "relabel --from 2/3 --to 2/5",
        "simulate --from 2/3 --to 2/5",
        "simulate 2/3 2/5 --compare",
        "doctor",
        "simulate --from 20000/8 --to 20000/25",
        "ring --loads 1,2 --targets 2,1 --run",
        "run --shape 30 --from 2/3 --to 2/5 --repeat 1",
        "run --shape 30 --from 2/3 --to 2/5 --engine messages --repeat 1",
        "advise --trial 512:0.024,0.006,0.001",
        "plan --from 2;3 --to 2/5",
    ] {
        // A semicolon is a space inside of an argument, or, in a layout of blocks, a mistake.
        let spaced =
            |word: &str| if word.starts_with('(') { word.replace(';', " ") } else { word.to_string() };
        let arguments = command.split(' ').map(spaced).chain(["--json".to_string()]);
        let output = Command::new(env!("CARGO_BIN_EXE_reshard")).args(arguments).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let section = command.split(' ').next().unwrap();
        let at = page.find(&format!("## `{section}`")).unwrap();
        let own = page[at + 3..].split("\n## ").next().unwrap();
        let common = page.split("\n## `layout`").next().unwrap();
        let mut found = BTreeSet::new();
        keys(&answer, &mut found);
        for key in found {
            let named = format!("`{key}`");
            assert!(
                own.contains(&named) || common.contains(&named),
                "{command}: {key} is not on docs/json.md"
            );
        }
    }
}
