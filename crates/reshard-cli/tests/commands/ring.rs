//! `reshard ring` as scripts use it: the promised keys, programs that work when replayed from the JSON alone, one sentence
//! for every mistake.

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
    serde_json::from_str(&text(&[&["ring"], arguments, &["--json"]].concat())).unwrap()
}

#[test]
fn it_prints_the_promised_keys() {
    let flags = ["ring", "--loads", "1,2,3,1", "--targets", "4,1,1,1"];
    let printed = text(&[&flags[..], &["--json"]].concat());
    assert!(printed.starts_with(r#"{"schema":1,"loads":[1,2,3,1],"targets":[4,1,1,1],"direction":"bi","ordered":false,"makespan":3,"lower_bound":3,"optimal":true,"#), "{printed}");
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(answer["net_flow"].as_array().unwrap().len(), 4);
    let first = &answer["transfers"][0];
    assert_eq!(
        *first,
        serde_json::json!({"from": 1, "to": 0, "items": 2, "start": 1, "end": 3, "side": "left"})
    );
    let shown = text(&flags);
    assert!(shown.starts_with("Ring of 4 processes, 7 items, both directions\n0: 1 -> 4 |...|\n"), "{shown}");
    assert!(shown.contains("process 1 sends 2 to 0\n"), "{shown}");
    assert!(shown.contains("makespan 3, optimal"), "{shown}");
    assert!(!shown.contains('\x1b'), "colour without a terminal");
}

#[test]
fn transfers_add_up_to_the_targets() {
    for (more, makespan) in [
        (vec![], 9),
        (vec!["--direction", "uni"], 11),
        (vec!["--ordered"], 9),
        (vec!["--right", "5,2,1,3,4", "--left", "2"], 21),
    ] {
        let flags = [&["--loads", "10,1,2,9,3", "--targets", "1,5,9,1,9"][..], &more].concat();
        let answer = json(&flags);
        let mut held = [10, 1, 2, 9, 3];
        let mut latest = 0;
        for transfer in answer["transfers"].as_array().unwrap() {
            let number = |key: &str| transfer[key].as_i64().unwrap();
            held[number("from") as usize] -= number("items");
            held[number("to") as usize] += number("items");
            latest = latest.max(number("end"));
        }
        assert_eq!(held, [1, 5, 9, 1, 9], "{more:?}");
        assert_eq!((latest, &answer["makespan"]), (makespan, &makespan.into()), "{more:?}");
        if more.contains(&"--ordered") {
            assert_eq!(answer["net_flow"], serde_json::json!([9, 5, -2, 6, 0]));
        }
    }
}

#[test]
fn costs_may_be_fractions_and_times_are_exact() {
    let flags = ["--loads", "4,1", "--targets", "1,4", "--direction", "uni", "--right"];
    let makespan = |right: &'static str| json(&[&flags[..], &[right]].concat())["makespan"].clone();
    assert_eq!(makespan("2,1"), 6);
    assert_eq!(makespan("4/3,7"), 4);
    assert_eq!(makespan("1/2,1/3"), 1.5);
    assert_eq!(makespan("0.1"), 0.3);
    assert_eq!(makespan("5/9,1"), "5/3");
    let shown = text(&[&["ring"], &flags[..], &["1/2"]].concat());
    assert!(shown.contains("makespan 3/2, optimal"), "{shown}");
}

#[test]
fn what_is_not_known_is_null() {
    // System 6 says 70; nobody has proven more, or found less than 73.
    let answer = json(&[
        "--loads",
        "10,1,11,1,1,1",
        "--targets",
        "1,20,1,1,1,1",
        "--right",
        "3,3,7,7,10,10",
        "--left",
        "10,10,7,10,10,7",
    ]);
    let number = |key: &str| answer[key].as_u64().unwrap();
    assert!(number("lower_bound") <= number("makespan"));
    let known = number("lower_bound") == number("makespan");
    assert_eq!(answer["optimal"], if known { true.into() } else { serde_json::Value::Null });
    // Many short steps are not all put into words.
    let shown = text(&[
        "ring",
        "--loads",
        "1,1,1,8000",
        "--targets",
        "8000,1,1,1",
        "--right",
        "5",
        "--left",
        "3,3,5,3",
    ]);
    assert!(shown.contains(" more, in turns\n") && shown.lines().all(|line| line.len() < 200), "{shown}");
    assert!(shown.contains("% above the optimum; nothing is faster than "), "{shown}");
    // The counterexample that the search solves.
    let flags = ["--loads", "1,1,1,8", "--targets", "8,1,1,1", "--right", "5", "--left", "3,3,5,3"];
    let answer = json(&flags);
    assert_eq!(
        (&answer["makespan"], &answer["lower_bound"], &answer["optimal"]),
        (&27.into(), &27.into(), &true.into())
    );
}

#[test]
fn lists_can_be_in_files_and_rings_large() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (loads, targets) = (folder.join("ring-loads"), folder.join("ring-targets"));
    let many = |odd: u64, even: u64| {
        let numbers = (0..100_000).map(|k| if k % 2 == 1 { odd } else { even }.to_string());
        numbers.collect::<Vec<_>>().join("\n")
    };
    std::fs::write(&loads, many(1_000_000, 1)).unwrap();
    std::fs::write(&targets, many(500_000, 500_001)).unwrap();
    let at = |path: &std::path::Path| format!("@{}", path.display());
    let answer = json(&["--loads", &at(&loads), "--targets", &at(&targets)]);
    assert_eq!((&answer["makespan"], &answer["optimal"]), (&500_000.into(), &true.into()));
    let shown = text(&["ring", "--loads", &at(&loads), "--targets", &at(&targets)]);
    assert!(shown.contains("... and 99976 processes more"), "{shown}");
}

#[test]
fn the_drawing_has_a_bar_for_each_item() {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ring.svg");
    let flags = ["ring", "--loads", "1,2,3,1", "--targets", "4,1,1,1", "--svg", path.to_str().unwrap()];
    let said = text(&flags);
    assert!(said.contains("drawn to"), "{said}");
    let drawing = std::fs::read_to_string(&path).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"), "{drawing}");
    // Every item is a bar of its own; the arrow of a link says how many go over it.
    let items = drawing.matches("<title>process 1 to process 0: 2 items from 1 to 3</title>").count();
    assert_eq!(items, 2, "{drawing}");
    assert_eq!(drawing.matches("<title>process 1 to process 0: 2 items</title>").count(), 1);
    assert_eq!(drawing.matches("<title>process 3: 1 item now, 1 wanted</title>").count(), 1);
    let output = reshard(&[&flags[..6], &["/nowhere/at/all.svg"]].concat());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let with = |loads: &'static str, targets: &'static str, more: &[&'static str]| {
        [&["ring", "--loads", loads, "--targets", targets][..], more].concat()
    };
    let huge = "4000000000000000000";
    for (arguments, says) in [
        (vec!["ring"], "--loads"),
        (vec!["ring", "--loads", "1"], "--targets"),
        (with("1,-2", "1,1", &[]), "--loads: \"-2\" was given; expected a whole number of items"),
        (with("-1", "1", &[]), "--loads: \"-1\""),
        (with("1,x", "1,1", &[]), "--loads: \"x\""),
        (with("1,,2", "1,1", &[]), "--loads: \"\""),
        (with("1,2", "1,-1", &[]), "--targets: \"-1\""),
        (with("1,2", "1,1", &[]), "add up to 3 and the targets to 2"),
        (with("1,2", "1,1,1", &[]), "2 loads but 3 targets"),
        (with("", "", &[]), "a ring of 0 processes"),
        (
            with("1,2", "2,1", &["--right", "0,1"]),
            "--right: \"0\" was given; a cost is a number greater than 0",
        ),
        (with("1,2", "2,1", &["--right", "1,-1"]), "--right: \"-1\""),
        (with("1,2", "2,1", &["--left", "1/0,1"]), "--left: \"1/0\""),
        (with("1,2", "2,1", &["--left", "1,2,3"]), "--left: 2 loads but 3 costs to the left"),
        (with("1,2", "2,1", &["--right", ""]), "--right: 2 loads but 0 costs"),
        (with("99999999999999999999", "1", &[]), "2^62"),
        (with("9223372036854775807,2", "2,9223372036854775807", &[]), "at most 2^62 items"),
        (with("4000000000000000000,2", "2,4000000000000000000", &["--right", "9"]), "2^62 units of time"),
        (with(huge, huge, &["--right", "18446744073709551615", "--left", "1/18446744073709551615"]), "2^64"),
        (with("1,2", "2,1", &["--direction", "up"]), "--direction: \"up\""),
        (with("1,2", "2,1", &["--direction", "uni", "--left", "1"]), "--left is the cost"),
        (with("1,2", "2,1", &["--direction", "uni", "--ordered"]), "use both directions"),
        (with("@/nowhere", "2,1", &[]), "--loads: /nowhere cannot be read"),
        (with("1,2", "2,1", &["--engine", "threads"]), "--engine says how items are moved; add --run"),
        (with("1,2", "2,1", &["--item-bytes", "4"]), "--item-bytes says how items are moved; add --run"),
        (with("1,2", "2,1", &["--memory", "4"]), "--memory says how items are moved; add --run"),
        (with("1,2", "2,1", &["--run", "--engine", "trains"]), "the engine \"trains\" is not known"),
        (
            with("1,2", "2,1", &["--run", "--engine", "threads", "--mpi", "mpich"]),
            "--mpi is for the engine mpi",
        ),
        (with("1,2", "2,1", &["--run", "--item-bytes", "0"]), "--item-bytes: 0 was given"),
        (with("1,2", "2,1", &["--run", "--item-bytes", "-1"]), "--item-bytes"),
        (with("200,100", "100,200", &["--run", "--item-bytes", "1"]), "tell 256 apart, and the ring has 300"),
        (with("1,2", "2,1", &["--run", "--memory", "much"]), "--memory: \"much\" is not an amount"),
        (
            with("1,2", "2,1", &["--run", "--engine", "messages", "--memory", "7"]),
            "--memory: 7 bytes were given for the message buffers of all processes together; this ring needs at least 8 bytes",
        ),
        (with("1,2", "2,1", &["--run", "--item-bytes", "9000000000000"]), "the items take"),
        (with("1,2", "2,1", &["--run", "--item-bytes", "18446744073709551615"]), "do not fit in any memory"),
    ] {
        let output = reshard(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        assert!(message.starts_with("error: "), "{arguments:?}: {message}");
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
    let said = text(&["ring", "--help"]);
    assert!(said.contains("--ordered"), "{said}");
}

/// The items are really moved and looked at, whatever engine moves them.
#[test]
fn a_ring_is_run_and_verified() {
    let rings = [
        vec!["--loads", "10,1,2,9,3", "--targets", "1,5,9,1,9"],
        vec!["--loads", "10,1,2,9,3", "--targets", "1,5,9,1,9", "--ordered"],
        vec!["--loads", "10,1,2,9,3", "--targets", "1,5,9,1,9", "--direction", "uni", "--right", "5,2,1,3,4"],
        vec!["--loads", "5000,0,0", "--targets", "0,0,5000", "--ordered"],
        vec!["--loads", "7", "--targets", "7"],
        vec!["--loads", "0,0", "--targets", "0,0"],
    ];
    for ring in &rings {
        for engine in ["threads", "messages"] {
            for item_bytes in [2_u64, 8, 1_000] {
                let bytes = item_bytes.to_string();
                let answer =
                    json(&[&ring[..], &["--run", "--engine", engine, "--item-bytes", &bytes]].concat());
                let hops: i64 =
                    answer["net_flow"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap().abs()).sum();
                assert_eq!(
                    (&answer["engine"], &answer["verified"], &answer["bytes"]),
                    (&engine.into(), &true.into(), &(hops as u64 * item_bytes).into()),
                    "{ring:?}"
                );
                assert!(answer["run_seconds"].as_f64().unwrap() >= 0.0);
                let scratch = answer["scratch_bytes"].as_u64().unwrap();
                assert_eq!(scratch > 0, engine == "messages" && hops > 0, "{ring:?}");
                assert!(answer.get("mpi").is_none() && answer["makespan"].is_u64());
            }
        }
    }
    let shown = text(&[&["ring", "--run"], &rings[1][..]].concat());
    assert!(shown.contains("makespan 9, optimal"), "{shown}");
    assert!(
        shown.contains(" over links in ") && shown.contains(", engine threads, scratch 0 bytes\n"),
        "{shown}"
    );
    assert!(shown.ends_with("all 25 items verified, in order\n"), "{shown}");
    let limited = ["--run", "--engine", "messages", "--memory", "100B"];
    let answer = json(&[&rings[0][..], &limited].concat());
    assert!(answer["scratch_bytes"].as_u64().unwrap() <= 100);
}
