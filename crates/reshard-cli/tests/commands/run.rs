//! `reshard run` as scripts use it: whatever is asked is moved and verified, keys are stable, and mistakes get a sentence.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output};

fn run(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reshard")).arg("run").args(flags).output().unwrap()
}

/// The text of a run that must succeed without talk.
fn text(flags: &[&str]) -> String {
    let output = run(flags);
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(flags: &[&str]) -> Value {
    let text = text(&[flags, &["--json"]].concat());
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A short matrix and few repetitions.
const MATRIX: [&str; 8] =
    ["--shape", "60x70", "--from", "2x3/8x5", "--to", "3x2/7x4 ranks=2..8", "--repeat", "3"];

fn matrix(flags: &[&str]) -> Value {
    json(&[&MATRIX, flags].concat())
}

/// The complaint: exit code 2, nothing on standard output, one line on standard error.
fn complaint(flags: &[&str]) -> String {
    let output = run(flags);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{flags:?}: {message}");
    assert!(output.stdout.is_empty(), "{flags:?}");
    assert_eq!(message.lines().count(), 1, "{flags:?}: {message}");
    assert!(message.starts_with("error: "), "{flags:?}: {message}");
    message
}

/// A run with `RESHARD_LEVEL` set to this.
fn at_level(level: &str, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reshard"));
    command.env("RESHARD_LEVEL", level).arg("run").args(MATRIX).args(flags).output().unwrap()
}

/// Every level of this processor verifies, with both engines; one that it lacks, or nobody has, is a sentence.
#[test]
fn the_environment_chooses_the_level() {
    let unknown = at_level("avx1024", &[]);
    assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(2), 0));
    let talk = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(
        talk,
        "error: RESHARD_LEVEL: there is no instruction set level `avx1024`; choose one of portable, avx2, avx512, avx512vbmi\n"
    );
    let best = matrix(&[])["level"].as_str().unwrap().to_string();
    let mut available = Vec::new();
    for level in ["portable", "avx2", "avx512", "avx512vbmi"] {
        for engine in ["threads", "messages"] {
            let output = at_level(level, &["--engine", engine, "--json"]);
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            match output.status.code() {
                Some(0) => {
                    assert_eq!((&answer["level"], &answer["verified"]), (&level.into(), &true.into()));
                    available.push(level);
                }
                code => {
                    let message = answer["error"]["message"].as_str().unwrap();
                    assert_eq!((code, &answer["error"]["kind"]), (Some(2), &"unsupported".into()));
                    let lacks = format!("RESHARD_LEVEL: the instruction set level `{level}` was given");
                    assert!(message.starts_with(&lacks), "{message}");
                }
            }
        }
    }
    assert_eq!((available.first(), available.last()), (Some(&"portable"), Some(&best.as_str())));
    let empty = at_level("", &["--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&empty.stdout).unwrap()["level"], best);
}

/// The keys at the top, in the order they were printed: values are numbers, words, and objects without objects.
fn keys(text: &str) -> Vec<String> {
    let (mut depth, mut keys) = (0, Vec::new());
    let mut words = text.split('"');
    while let (Some(between), word) = (words.next(), words.next()) {
        for c in between.chars() {
            depth += i32::from(c == '{') - i32::from(c == '}');
        }
        let begins = between.ends_with(['{', ',']);
        if let Some(word) = word.filter(|_| begins && depth == 1) {
            keys.push(word.to_string());
        }
    }
    keys
}

#[test]
fn json_has_the_promised_keys_in_order() {
    let promised = [
        "schema",
        "from",
        "to",
        "shape",
        "type",
        "engine",
        "level",
        "ranks",
        "bytes",
        "plan_seconds",
        "run_seconds",
        "copy_seconds",
        "ratio",
        "scratch_bytes",
        "verified",
    ];
    let threads = text(&[&MATRIX[..], &["--json"]].concat());
    assert_eq!(keys(&threads), promised);
    let messages = text(&[&MATRIX[..], &["--json", "--engine", "messages"]].concat());
    assert_eq!(keys(&messages), [&promised[..], &["strategy", "steps", "messages"]].concat());
    for (text, engine) in [(threads, "threads"), (messages, "messages")] {
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["engine"], engine);
        assert_eq!(answer["ranks"], 8);
        assert_eq!(answer["bytes"], 60 * 70 * 8);
        assert_eq!(answer["verified"], true);
        assert!(answer["scratch_bytes"].is_u64() && answer["plan_seconds"].is_f64(), "{text}");
        for times in [&answer["run_seconds"], &answer["copy_seconds"]] {
            let (best, median) = (times["best"].as_f64().unwrap(), times["median"].as_f64().unwrap());
            assert!(0.0 < best && best <= median, "{text}");
            assert_eq!(times.as_object().unwrap().len(), 2);
        }
        let median = |key: &str| answer[key]["median"].as_f64().unwrap();
        let ratio = answer["ratio"].as_f64().unwrap();
        assert!((ratio - median("run_seconds") / median("copy_seconds")).abs() <= 1e-9 * ratio, "{text}");
    }
}

#[test]
fn all_types_orders_and_windows_are_moved_by_both_engines() {
    let sizes =
        [("i8", 1), ("u16", 2), ("f32", 4), ("u64", 8), ("c64", 8), ("c128", 16), ("12", 12), ("1", 1)];
    for engine in ["threads", "messages"] {
        for (kind, bytes) in sizes {
            let answer = matrix(&["--engine", engine, "--type", kind]);
            assert_eq!(answer["bytes"], 60 * 70 * bytes, "{kind}");
        }
        let window = ["--window", "13x20", "--from-at", "31,4", "--to-at", "9,40"];
        let turned = ["--transpose", "--to-order", "row", "--type", "f32"];
        let turned_window = [&window[..4], &["--to-at", "40,9", "--transpose", "--type", "3"]].concat();
        for (flags, elems) in [
            (&["--order", "row"][..], 4200 * 8),
            (&["--order", "row", "--to-order", "col"], 4200 * 8),
            (&turned, 4200 * 4),
            (&window, 260 * 8),
            (&turned_window, 260 * 3),
            (&["--to-shape", "80x90", "--to-at", "3,5"], 4200 * 8),
        ] {
            let answer = matrix(&[flags, &["--engine", engine]].concat());
            assert_eq!((&answer["bytes"], &answer["verified"]), (&elems.into(), &true.into()), "{flags:?}");
        }
        let others = [
            ["100", "3/7", "(gen_block(10,20,70)) on 3"],
            ["9x8x7", "2x1x2/2x3x2", "1x3x1/2x2x2 rank-order=col"],
            ["1", "4/2", "3/1"],
            ["0x5", "2x2/1x1", "1x2/3x3"],
        ];
        for [shape, from, to] in others {
            let flags = ["--shape", shape, "--from", from, "--to", to, "--repeat", "1", "--engine", engine];
            assert_eq!(json(&flags)["verified"], true, "{flags:?}");
        }
    }
}

#[test]
fn strategies_are_followed() {
    for strategy in ["optimal", "greedy", "async", "min-cost"] {
        let answer = matrix(&["--engine", "messages", "--strategy", strategy]);
        assert_eq!(answer["strategy"], strategy);
        let (steps, messages) = (answer["steps"].as_u64().unwrap(), answer["messages"].as_u64().unwrap());
        // All 6 x 6 pairs, without those of one rank with itself.
        assert!((1..=36).contains(&steps) && messages == 36 - 4, "{answer}");
    }
}

#[test]
fn memory_is_a_promise() {
    fn messages(memory: &str) -> Vec<&str> {
        [&MATRIX[..], &["--engine", "messages", "--memory", memory]].concat()
    }
    let message = complaint(&messages("1"));
    let (_, number) = message.split_once("needs at least ").unwrap();
    let least = number.split(' ').next().unwrap();
    assert!(message.contains("--memory: 1 bytes were given"), "{message}");
    let answer = json(&messages(least));
    assert_eq!(answer["scratch_bytes"].to_string(), least);
    let less = (least.parse::<u64>().unwrap() - 1).to_string();
    let said = complaint(&messages(&less));
    assert!(said.contains(&format!("needs at least {least} bytes")), "{said}");
    for enough in ["64MiB", "1gb", "70000 KB", "900000B"] {
        assert!(json(&messages(enough))["scratch_bytes"].as_u64().unwrap() <= 1_000_000_000, "{enough}");
    }
    // Threads need what they need.
    let transposed = [&MATRIX[..], &["--transpose", "--threads", "2"]].concat();
    let scratch = json(&transposed)["scratch_bytes"].as_u64().unwrap();
    let enough = scratch.to_string();
    assert_eq!(json(&[&transposed[..], &["--memory", &enough]].concat())["scratch_bytes"], scratch);
    if scratch > 0 {
        let less = (scratch - 1).to_string();
        let message = complaint(&[&transposed[..], &["--memory", &less]].concat());
        assert!(message.contains(&format!("needs at least {scratch} bytes")), "{message}");
    }
}

#[test]
fn people_get_four_lines() {
    let shown = text(&[&MATRIX[..], &["--threads", "1", "--type", "c128"]].concat());
    let lines: Vec<&str> = shown.lines().collect();
    let begin =
        "Redistributed 60x70 c128 (65.6 KiB) from 2x3/8x5 to 3x2/7x4 ranks=2..8 on 8 ranks, engine threads";
    assert_eq!(lines[0], format!("{begin} (1 thread)"));
    assert!(lines[1].starts_with("planned in ") && lines[1].contains(", scratch "), "{shown}");
    assert!(lines[2].starts_with("moved in ") && lines[2].contains(" GB/s; a plain copy takes "), "{shown}");
    assert_eq!(lines[3], "all 4200 elements verified");
    assert!(lines.len() == 4 && !shown.contains(['\x1b', '\r']), "{shown}");
    let shown = text(&[&MATRIX[..], &["--engine", "messages", "--type", "12", "--window", "6x7"]].concat());
    assert!(shown.starts_with("Redistributed 6x7 elements of 12 bytes (504 bytes) from "), "{shown}");
    assert!(shown.contains("engine messages (strategy optimal, "), "{shown}");
    let end = "all 42 elements verified, and all others of the destination are as they were\n";
    assert!(shown.ends_with(end), "{shown}");
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let with = |flags: &[&'static str]| [&MATRIX[..6], flags].concat();
    for (flags, says) in [
        (vec!["--from", "2/3", "--to", "2/5"], "the shape of the array is missing; give it with --shape"),
        (vec!["--shape", "5", "--from", "2/3"], "--to"),
        (with(&["--type", "f65"]), "--type: the type \"f65\" is not known; choose one of i8, u8"),
        (with(&["--type", "0"]), "--type: elements of 0 bytes"),
        (with(&["--type", "1048577"]), "at most 2^20"),
        (with(&["--type", "-1"]), "-1"),
        (with(&["--memory", "64Q"]), "--memory: \"64Q\" is not an amount of memory"),
        (with(&["--memory", "1.5MiB"]), "--memory: \"1.5MiB\" is not an amount"),
        (with(&["--memory", "MiB"]), "such as 64MiB"),
        (with(&["--memory", ""]), "such as 64MiB"),
        (with(&["--memory", "99999999999999GiB"]), "below 2^64"),
        (
            with(&["--engine", "fast"]),
            "--engine: the engine \"fast\" is not known; choose threads, messages or mpi",
        ),
        (with(&["--engine", "messages", "--threads", "2"]), "every rank is a thread"),
        (with(&["--strategy", "greedy"]), "add --engine messages"),
        (with(&["--engine", "messages", "--strategy", "quick"]), "--strategy: the strategy \"quick\""),
        (with(&["--threads", "0"]), "--threads: 0 was given"),
        (with(&["--threads", "4000000000"]), "from 1 to 4096"),
        (with(&["--repeat", "0"]), "--repeat: 0 was given; take a number from 1"),
        (with(&["--repeat", "many"]), "many"),
        (with(&["--order", "diagonal"]), "--order: the order \"diagonal\" is not known; choose row or col"),
        (with(&["--to-order", "R"]), "--to-order: the order \"R\""),
        (with(&["--window", "61x2"]), "make the window smaller"),
        (vec!["--shape", "10", "--from", "99999999999/1", "--to", "4/8"], "at most 65536"),
        (
            vec!["--shape", "20000", "--from", "5000/1", "--to", "1/1", "--engine", "messages"],
            "at most 4096 are started",
        ),
    ] {
        let message = complaint(&flags);
        assert!(message.contains(says), "{flags:?}: {message}");
    }
}
