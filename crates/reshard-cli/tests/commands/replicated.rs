//! Layouts with replicated dimensions on the command line: every command takes them, or says why not.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::Command;

/// The words of a command; a layout is one word.
fn reshard(words: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_reshard")).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn text(words: &[&str]) -> String {
    let (code, out, errors) = reshard(words);
    assert_eq!((code, errors.as_str()), (0, ""), "{words:?}");
    out
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&text(&[words, &["--json"]].concat())).unwrap()
}

#[test]
fn every_element_of_every_copy_is_verified() {
    let pairs = [
        ("(*, block) on 2x2", "(block, *) on 2x2"),
        // A destination larger than the source, and the other way round.
        ("2x2/8x8", "(*, *) on 2x3"),
        ("(*, *) on 2x3", "2x2/8x8 ranks=4..8"),
        ("(block, *) on 2x2 ranks=3,1,2,0", "(cyclic(7), *) on 3x2 rank-order=col memory=row"),
    ];
    for (from, to) in pairs {
        for engine in ["threads", "messages"] {
            let words = [
                "run", "--shape", "100x100", "--from", from, "--to", to, "--engine", engine, "--repeat", "2",
            ];
            let copies = if to.contains("(*, *)") { 6 } else { 1 + u64::from(to.contains('*')) };
            let shown = text(&words);
            assert!(shown.contains(&format!("all {} elements verified\n", copies * 10_000)), "{shown}");
            let answer = json(&words);
            assert_eq!((&answer["verified"], &answer["bytes"]), (&true.into(), &(80_000 * copies).into()));
            let part = ["--window", "40x30", "--from-at", "5,6", "--to-at", "50,60", "--transpose"];
            let shown = text(&[&words[..], &part].concat());
            assert!(
                shown.contains(&format!("all {} elements verified, and all others", copies * 1_200)),
                "{shown}"
            );
        }
    }
}

#[test]
fn plans_say_who_gets_which_copy() {
    let same = json(&["plan", "--shape", "100", "--from", "(*) on 4", "--to", "4/25"]);
    assert_eq!((&same["total_elems"], &same["local_elems"]), (&100.into(), &100.into()));
    let others = ["plan", "--shape", "100", "--from", "(*) on 4", "--to", "(*) on 2 ranks=4..6"];
    let messages = json(&others)["messages"].clone();
    assert_eq!(messages.to_string(), r#"[{"elems":100,"from":0,"to":4},{"elems":100,"from":1,"to":5}]"#);
    let words = ["plan", "--shape", "100", "--from", "2/50", "--to", "(*) on 3", "--rank", "1"];
    let shown = text(&words);
    assert!(shown.contains("Rank 1 sends to (rank:elements) 0:50 1:50 2:50"), "{shown}");
    assert!(shown.contains("    processes 0 to 2 each: 50..100"), "{shown}");
    let run = &json(&words)["sends"][0]["runs"][0];
    assert_eq!(
        (&run["peer"], &run["peers"], &run["start"], &run["len"]),
        (&0.into(), &3.into(), &50.into(), &50.into())
    );
    // A receiver has one copy to do with, its own.
    let words = ["plan", "--shape", "100", "--from", "(*) on 3", "--to", "(*) on 3", "--rank", "1"];
    let answer = json(&words);
    assert_eq!(
        (&answer["receives"][0]["runs"][0]["peer"], &answer["messages"][0]["from"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn layouts_are_shown_with_all_their_copies() {
    let shown = text(&["layout", "(*, block) on 2x3", "--shape", "4x6", "--element", "1,4"]);
    assert!(
        shown.starts_with("(*, block) on 2x3 of 4x6: 6 ranks, 24 elements\nEach element is on 2 ranks\n"),
        "{shown}"
    );
    assert!(shown.contains("Element (1, 4) is on the ranks 2 5, as their element (1, 0)"), "{shown}");
    assert!(shown.contains("Who owns each block (of several copies, the first):"), "{shown}");
    let element = &json(&["layout", "(*, block) on 2x3", "--shape", "4x6", "--element", "1,4"])["element"];
    assert_eq!((&element["rank"], element["copies"].to_string()), (&2.into(), "[2,5]".to_string()));
}

#[test]
fn schedules_simulations_and_drawings_take_them() {
    let moved = ["--shape", "60x60", "--from", "(*, block) on 2x2", "--to", "(block, *) on 3x2 ranks=2..8"];
    for strategy in ["optimal", "min-cost", "stepwise", "greedy", "split", "async", "caterpillar", "eager"] {
        let scheduled = json(&[&["schedule", "--strategy", strategy][..], &moved].concat());
        assert!(
            scheduled["steps"].as_array().is_some_and(|steps| !steps.is_empty()),
            "{strategy}: {scheduled}"
        );
    }
    for strategy in ["classes", "walker-otto"] {
        let (code, _, message) = reshard(&[&["schedule", "--strategy", strategy][..], &moved].concat());
        assert_eq!((code, message.lines().count()), (2, 1), "{message}");
        assert!(message.contains("use the strategy optimal"), "{message}");
    }
    let said = text(&[&["schedule", "--rank", "3"][..], &moved].concat());
    assert!(said.contains("step"), "{said}");
    let said = text(&[&["schedule", "--compare"][..], &moved].concat());
    assert!(said.contains("optimal"), "{said}");
    let said = text(&[&["simulate"][..], &moved].concat());
    assert!(said.contains("message"), "{said}");
    let drawing = std::env::temp_dir().join(format!("reshard-replicated-{}.svg", std::process::id()));
    let svg = drawing.to_str().unwrap();
    let said = text(&[&["explain", "--svg", svg][..], &moved].concat());
    assert!(said.contains("drawn to"), "{said}");
    let said = std::fs::read_to_string(&drawing).unwrap();
    assert!(said.contains("</svg>"), "{said}");
    std::fs::remove_file(drawing).unwrap();
}
