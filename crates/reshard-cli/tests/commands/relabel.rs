//! `reshard relabel` as scripts use it: stable keys, layouts that can be given back to the program, one sentence for
//! every mistake.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn reshard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reshard")).args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = reshard(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat())).unwrap()
}

#[test]
fn it_prints_the_promised_keys() {
    let flags = ["relabel", "--from", "2x4/8x8", "--to", "2x4/8x8 rank-order=col", "--shape", "64x64"];
    let expected = concat!(
        r#"{"schema":1,"shape":[64,64],"from":"2x4/8x8","to":"2x4/8x8 rank-order=col","#,
        r#""relabelled":"2x4/8x8 rank-order=col ranks=0,4,1,5,2,6,3,7","ranks":[0,4,1,5,2,6,3,7],"#,
        r#""kept_before":1024,"kept_after":4096,"moved_before":3072,"moved_after":0,"total_elems":4096}"#,
        "\n"
    );
    assert_eq!(text(&[&flags[..], &["--json"]].concat()), expected);
    let shown = text(&flags);
    assert!(shown.contains("New ranks in the grid's order: 0 4 1 5 2 6 3 7\n"), "{shown}");
    assert!(shown.contains("As a layout: 2x4/8x8 rank-order=col ranks=0,4,1,5,2,6,3,7\n"), "{shown}");
    assert!(shown.contains("Before: 1024 stay, 3072 move\nAfter: 4096 stay, 0 move\n"), "{shown}");
}

#[test]
fn the_layout_it_prints_keeps_what_it_promised() {
    for (from, to, shape) in [
        ("16/3", "16/5", None),
        ("12/5", "20/4 first=3", Some("977")),
        ("(cuts(5@1,9@0,7@2)) on 3", "3/7", Some("21")),
        ("2x3/4x5", "(block, cyclic(3)) on 3x2", Some("31x47")),
    ] {
        let shape: Vec<&str> = shape.map_or(Vec::new(), |shape| vec!["--shape", shape]);
        let found = json(&[&["relabel", "--from", from, "--to", to][..], &shape].concat());
        let plan = |to: &str| json(&[&["plan", "--from", from, "--to", to][..], &shape].concat());
        assert_eq!(plan(to)["local_elems"], found["kept_before"], "{from} to {to}");
        let again = plan(found["relabelled"].as_str().unwrap());
        assert_eq!(again["local_elems"], found["kept_after"], "{from} to {to}");
        assert_eq!(again["total_elems"], found["total_elems"], "{from} to {to}");
        let number = |key: &str| found[key].as_u64().unwrap();
        assert!(number("kept_after") > number("kept_before"), "{from} to {to}");
        assert_eq!(number("kept_after") + number("moved_after"), number("total_elems"));
        assert_eq!(number("kept_before") + number("moved_before"), number("total_elems"));
    }
}

#[test]
fn the_ranks_of_both_can_be_asked_for() {
    let flags = ["relabel", "--from", "4/8", "--to", "4/8 first=1 ranks=4..8"];
    assert_eq!(json(&flags)["moved_after"], 32);
    let both = json(&[&flags[..], &["--among", "both"]].concat());
    assert_eq!(both["moved_after"], 0);
    assert_eq!(both["ranks"], serde_json::json!([3, 0, 1, 2]));
    let said = text(&flags);
    assert!(said.contains("No other ranks keep more: 0 stay, 32 move"), "{said}");
}

#[test]
fn many_ranks_are_summed_up_on_the_screen() {
    let flags = ["relabel", "--from", "100000/8", "--to", "100000/25"];
    let shown = text(&flags);
    assert!(shown.contains("100000 new ranks; --json lists them"), "{shown}");
    assert_eq!(json(&flags)["ranks"].as_array().unwrap().len(), 100_000);
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let with = |from: &'static str, to: &'static str, more: &[&'static str]| {
        [&["relabel", "--from", from, "--to", to][..], more].concat()
    };
    for (arguments, says) in [
        (vec!["relabel"], "--from"),
        (vec!["relabel", "--from", "2/3"], "--to"),
        (with("2;3", "2/5", &[]), "--from: in \"2;3\" at character 2"),
        (with("2/3", "2/", &[]), "--to: in \"2/\" at its end"),
        (with("2/3", "2x2/5x5", &[]), "the source has 1 dimension and the destination 2"),
        (with("2/3", "2/5", &["--shape", "3y"]), "--shape: in \"3y\" at character 2"),
        (with("2/3", "2/5", &["--shape", "3x3"]), "2 dimensions"),
        (with("2/3", "2/5", &["--among", "source"]), "--among: ranks among \"source\""),
        (with("2/3", "2/5", &["--among"]), "--among"),
        (with("(block) on 4", "4/2", &[]), "--shape"),
        (with("5000/1", "5000/2", &["--shape", "10001"]), "4096 positions"),
        (with("99999999999/1", "3/3", &["--shape", "10"]), "too much for an exact assignment"),
    ] {
        let output = reshard(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        assert!(message.starts_with("error: "), "{arguments:?}: {message}");
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
}

#[test]
fn help_is_an_answer() {
    let said = text(&["relabel", "--help"]);
    assert!(said.contains("--among"), "{said}");
}
