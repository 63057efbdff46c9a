//! `reshard advise`: the advice by value, as text and as JSON, and one sentence for every mistake.

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
fn one_trial_is_shown_at_another_size() {
    assert_eq!(
        text(&["advise", "--trial", "512:0.024,0.006,0.001", "--size", "4096"]),
        "Size 4096, 1 run, predicted from 1 trial\n\
         stay: 12.29 s\n\
         move: 3.136 s, of these 64.00 ms of redistribution\n\
         Move: redistributing saves 74 %\n\
         At this size it pays from 1 run on\n\
         For 1 run it pays from size 29 on\n"
    );
}

#[test]
fn without_a_size_the_trial_itself_is_judged() {
    let shown = text(&["advise", "--trial", "1000:0.5,0.4,0.25", "--runs", "2"]);
    assert!(shown.starts_with("Size 1000, 2 runs, predicted from 1 trial\n"), "{shown}");
    assert!(
        shown.contains("Too close to tell: redistributing takes 5 % longer, less than the margin\n"),
        "{shown}"
    );
    assert!(shown.contains("At this size it pays from 3 runs on\n"), "{shown}");
    let shown = text(&["advise", "--trial", "1000:0.4,0.5,0.1"]);
    assert!(shown.contains("Stay: redistributing takes 50 % longer\n"), "{shown}");
    assert!(shown.contains("it never pays: the computation is not faster there\n"), "{shown}");
    assert!(shown.ends_with("For 1 run it pays at no large size\n"), "{shown}");
}

#[test]
fn two_trials_say_how_much_grows_as_the_data_do() {
    // here = n^3 + 2 n^2, there = n^2, to redistribute 4 n^2.
    let found =
        json(&["advise", "--trial", "2:16,4,16", "--trial", "3:45,9,36", "--size", "10", "--runs", "3"]);
    assert_eq!(
        found,
        serde_json::json!({
            "schema": 1,
            "trials": [
                {"size": 2.0, "here": 16.0, "there": 4.0, "redistribution": 16.0},
                {"size": 3.0, "here": 45.0, "there": 9.0, "redistribution": 36.0}
            ],
            "size": 10.0,
            "runs": 3,
            "margin": 0.1,
            "verdict": "move",
            "stay_seconds": 3600.0,
            "move_seconds": 700.0,
            "redistribution_seconds": 400.0,
            "gain_percent": found["gain_percent"],
            "pays_from_runs": 1,
            "pays_from_size": 1
        })
    );
    assert!((found["gain_percent"].as_f64().unwrap() - 80.555_555).abs() < 1e-4);
    let small = json(&["advise", "--trial", "2:16,4,16", "--trial", "3:45,9,36", "--size", "1"]);
    assert_eq!((small["verdict"].as_str(), small["pays_from_size"].as_u64()), (Some("stay"), Some(4)));
}

#[test]
fn the_margin_and_the_growth_can_be_set() {
    let flags = ["advise", "--trial", "10:1,0.9,0.05", "--margin"];
    assert_eq!(json(&[&flags[..], &["0.1"]].concat())["verdict"], "close");
    assert_eq!(json(&[&flags[..], &["0.01"]].concat())["verdict"], "move");
    let grown = json(&["advise", "--trial", "10:1,0.5,0.25", "--size", "20", "--work", "2", "--data", "1"]);
    assert_eq!(
        (grown["stay_seconds"].as_f64(), grown["redistribution_seconds"].as_f64()),
        (Some(4.0), Some(0.5))
    );
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let trial =
        |trial: &'static str, more: &[&'static str]| [&["advise", "--trial", trial][..], more].concat();
    for (arguments, says) in [
        (vec!["advise"], "--trial"),
        (trial("512", &[]), "--trial: \"512\" was given; it takes a size and three times"),
        (trial("512:1,2", &[]), "SIZE:HERE,THERE,REDISTRIBUTION"),
        (trial("512:1,2,3,4", &[]), "such as 512:0.024,0.006,0.001"),
        (trial("512:1,x,3", &[]), "\"512:1,x,3\" was given"),
        (trial("0:1,2,3", &[]), "--trial: a trial was given size 0; it must be from 1 to 2^62"),
        (trial("512:1,-2,3", &[]), "-2 seconds in the other layout; it must be from 0 to 1e9 seconds"),
        (trial("512:inf,2,3", &[]), "inf seconds in the present layout"),
        (trial("512:1,2,3", &["--trial", "512:1,2,3"]), "two trials of size 512 were given"),
        (trial("512:1,2,3", &["--size", "-4"]), "a size from 1 to 2^62"),
        (trial("512:1,2,3", &["--size", "NaN"]), "size NaN"),
        (trial("512:1,2,3", &["--runs", "0"]), "0 runs of size 512; there must be at least 1 run"),
        (trial("512:1,2,3", &["--margin", "-1"]), "the margin was given as -1; it must be from 0 to 100"),
        (trial("512:1,2,3", &["--work", "2"]), "work was given as size^2 and data as size^2"),
        (trial("512:1,2,3", &["--size", "large"]), "--size"),
    ] {
        let output = reshard(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        assert!(message.starts_with("error: ") && message.contains(says), "{arguments:?}: {message}");
    }
}
