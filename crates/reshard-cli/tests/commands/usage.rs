//! The program as scripts use it: stable JSON, exit codes, one sentence for every mistake, and never a panic.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn reshard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reshard")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = reshard(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The complaint about wrong usage: exit code 2, nothing on standard output, one line on standard error.
fn complaint(arguments: &[&str]) -> String {
    let output = reshard(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    message
}

#[test]
fn plan_prints_the_promised_keys() {
    let output = reshard(&["plan", "--shape", "240", "--from", "16/3", "--to", "16/5", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let begin = r#"{"schema":1,"shape":[240],"from":"16/3","to":"16/5","period":[240],"messages":[{"from":0,"to":0,"elems":3},"#;
    assert!(text.starts_with(begin), "{text}");
    assert!(text.ends_with("],\"total_elems\":240,\"local_elems\":16}\n"), "{text}");
    // Without a shape: one period, the same answer.
    assert_eq!(
        String::from_utf8(reshard(&["plan", "--from", "16/3", "--to", "16/5", "--json"]).stdout).unwrap(),
        text
    );
}

#[test]
fn all_methods_print_the_same() {
    let plan = |method| {
        let flags =
            ["--from", "2x3/4x5", "--to", "3x2/7x2 first=1x1", "--shape", "50x41", "--method", method];
        json(&[&["plan", "--json"][..], &flags].concat())
    };
    let naive = plan("naive");
    assert_eq!(naive["total_elems"], 50 * 41);
    for method in ["classical", "falls", "scan", "aspen"] {
        assert_eq!(plan(method), naive);
    }
}

#[test]
fn one_rank_is_what_all_say_of_it() {
    let flags = ["plan", "--from", "2x2/3x4", "--to", "4x1/5x5 ranks=2..6", "--shape", "30x29", "--json"];
    let all = json(&flags);
    let involves = |message: &&serde_json::Value| message["from"] == 3 || message["to"] == 3;
    let mut expected: Vec<_> = all["messages"].as_array().unwrap().iter().filter(involves).cloned().collect();
    let one = json(&[&flags[..], &["--rank", "3"]].concat());
    let mut found = one["messages"].as_array().unwrap().clone();
    let key = |message: &serde_json::Value| (message["from"].as_u64(), message["to"].as_u64());
    expected.sort_by_key(key);
    found.sort_by_key(key);
    assert_eq!(found, expected);
    assert_eq!(one["rank"], 3);
    let sum: u64 = found.iter().map(|message| message["elems"].as_u64().unwrap()).sum();
    assert_eq!(one["total_elems"], sum);
    // The runs it sends, axis by axis, multiply to what it holds.
    let held = |axis: &serde_json::Value| -> u64 {
        let extent = axis["extent"].as_u64().unwrap();
        let period = axis["period"].as_u64().unwrap();
        let number = |run: &serde_json::Value, key: &str| run[key].as_u64().unwrap();
        let mut held = 0;
        for base in (0..extent).step_by(period as usize) {
            for run in axis["runs"].as_array().unwrap() {
                for k in 0..number(run, "count") {
                    let start = base + number(run, "start") + k * number(run, "stride");
                    held += (start + number(run, "len")).min(extent).saturating_sub(start);
                }
            }
        }
        held
    };
    assert_eq!(one["sends"].as_array().unwrap().iter().map(held).product::<u64>(), 15 * 13);
    // A rank of the destination only.
    let receiver = json(&[&flags[..], &["--rank", "5"]].concat());
    assert_eq!(receiver["sends"].as_array().unwrap().len(), 0);
    assert_eq!(receiver["receives"].as_array().unwrap().len(), 2);
}

#[test]
fn windows_and_permutations_are_understood() {
    let plan = |more: &[&str]| {
        json(
            &[&["plan", "--json", "--from", "2x2/3x3", "--to", "2x2/4x4", "--shape", "20x30"], more].concat(),
        )
    };
    assert_eq!(plan(&["--transpose"])["total_elems"], 600);
    assert_eq!(plan(&["--permute", "1,0"]), plan(&["--transpose"]));
    assert_eq!(plan(&["--window", "5x6", "--from-at", "3,4", "--to-at", "1,2"])["total_elems"], 30);
    let windowed = plan(&["--from-at", "3,4", "--to-shape", "17x26"]);
    assert_eq!(windowed["total_elems"], 17 * 26);
    assert_eq!(windowed["from_shape"], serde_json::json!([20, 30]));
    assert_eq!(windowed["from_at"], serde_json::json!([3, 4]));
    assert!(plan(&[]).get("from_at").is_none());
}

#[test]
fn layout_explains() {
    let layout = json(&["layout", "2x3/4x4", "--shape", "18x20", "--element", "9,11", "--json"]);
    assert_eq!(layout["layout"], "2x3/4x4");
    assert_eq!(layout["elems"], 360);
    assert_eq!(layout["ranks"].as_array().unwrap().len(), 6);
    assert_eq!(layout["ranks"][5]["shape"], serde_json::json!([8, 4]));
    let element = serde_json::json!({"index": [9, 11], "rank": 2, "coords": [0, 2], "local": [5, 3]});
    assert_eq!(layout["element"], element);
    let text =
        String::from_utf8(reshard(&["layout", "2x3/4x4", "--shape", "18x20", "--element", "9,11"]).stdout);
    let text = text.unwrap();
    assert!(text.contains("Element (9, 11) is on rank 2 at (0, 2), as its element (5, 3)"), "{text}");
    assert!(text.contains(" 3  4  5  3  4"), "{text}");
    assert!(!text.contains('\x1b'), "colour without a terminal");
    for layout in ["16/3", "(block, *, cyclic) on 2x1x3", "(gen_block(1,0,5)) on 3", "(cuts(3@1,4@0)) on 2"] {
        let shape = if layout.starts_with("(block") { &["--shape", "6x2x9"][..] } else { &[] };
        assert!(reshard(&[&["layout", layout], shape].concat()).status.success(), "{layout}");
    }
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let from_to = |from: &'static str, to: &'static str| vec!["plan", "--from", from, "--to", to];
    let with = |flags: &[&'static str]| [&from_to("2/3", "2/5")[..], flags].concat();
    for (arguments, says) in [
        (vec![], "no command was given"),
        (vec!["plam"], "`reshard --help` lists the commands"),
        (vec!["plan"], "--from"),
        (vec!["plan", "--from", "16/3"], "--to"),
        (with(&["--shpae", "3"]), "--shape"),
        (with(&["--shpae", "3"]), "`reshard plan --help` lists its flags"),
        (from_to("2/3 memory=row", "2/5"), "does not matter here"),
        (with(&["--shape"]), "--shape"),
        (with(&["--shape", "3y"]), "--shape: in \"3y\" at character 2"),
        (with(&["--shape", "-3"]), "--shape: in \"-3\" at character 1"),
        (from_to("-4/3", "2/5"), "--from: in \"-4/3\" at character 1"),
        (with(&["--shape", "3x3"]), "--shape: \"3x3\" has 2 dimensions"),
        (with(&["--shape", "4611686018427387905"]), "2^62"),
        (with(&["--rank", "x"]), "x"),
        (with(&["--rank", "-1"]), "-1"),
        (with(&["--rank", "2"]), "neither the source nor the destination"),
        (with(&["--method", "quick"]), "naive, classical, falls, scan, aspen"),
        (with(&["--window", "31"]), "make the window smaller"),
        (with(&["--window", "18446744073709551615", "--from-at", "3"]), "make the window smaller"),
        (with(&["--shape", "30", "--permute", "1"]), "--permute: [1] is not a permutation"),
        (with(&["--shape", "30", "--permute", "0,1"]), "--permute: \"0,1\" has 2 dimensions"),
        (with(&["--from-at", "3,3"]), "--from-at: \"3,3\" has 2 dimensions"),
        (with(&["--window", "3x3"]), "--window: \"3x3\" has 2 dimensions"),
        (with(&["--transpose"]), "--shape"),
        (with(&["--transpose", "--permute", "0"]), "cannot be used with"),
        (from_to("16/", "16/5"), "--from: in \"16/\" at its end"),
        (from_to("16/3", "16;5"), "--to: in \"16;5\" at character 3"),
        (from_to("16/0", "16/5"), "at least 1"),
        (from_to("0/3", "16/5"), "at least 1"),
        (from_to("16/3", "4x4/5x5"), "the source has 1 dimension and the destination 2"),
        (from_to("(block) on 4", "4/2"), "--shape"),
        (from_to("(*) on 4 first=1", "4/2"), "kept whole"),
        (
            vec!["relabel", "--from", "(*) on 4", "--to", "4/2"],
            "which copy a rank takes depends on its label",
        ),
        (from_to("4611686018427387904/4611686018427387904", "3/3"), "2^62"),
        (from_to("4611686018427387904/1", "3/3"), "--shape"),
        (from_to("99999999999/1", "3/3"), "--rank"),
        (
            from_to("16/3 of 240", "16/5"),
            "--from: unexpected \"of\" in \"16/3 of 240\"; give the shape with --shape",
        ),
        (
            vec!["plan", "--from", "1x1x1/1x1x1", "--to", "3000x3000x3000/1x1x1", "--rank", "0"],
            "more than 10000000 others",
        ),
        (
            vec!["plan", "--from", "100000/1", "--to", "100000/1", "--shape", "100000", "--method", "scan"],
            "use aspen",
        ),
        (vec!["plan", "--from", "3001x3001/1x1", "--to", "20001x20001/1x1"], "--rank"),
        (from_to("100000/1", "99999/1"), "--rank"),
        (from_to("(gen_block(1,2)) on 2", "(gen_block(1,1)) on 2"), "add up to 2"),
        (vec!["layout"], "LAYOUT"),
        (vec!["layout", "2/3", "--element", "6"], "does not lie in the array"),
        (vec!["layout", "2/3", "--element", "0,0"], "2 indices were given, but the array has 1 dimension;"),
        (vec!["layout", "2/3 of 6", "--shape", "6"], "say it once"),
        (vec!["layout", "2/3 of 6x6"], "2 dimensions"),
        (vec!["layout", "2/3", "--rank", "2"], "not part of the grid"),
        (vec!["layout", "99999999/3"], "--rank"),
        (vec!["layout", "(block) on 3"], "--shape"),
        (
            vec![
                "plan",
                "--from",
                "2/1",
                "--to",
                "2/3",
                "--shape",
                "4611686018427387904",
                "--method",
                "classical",
            ],
            "use aspen",
        ),
    ] {
        let message = complaint(&arguments);
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
}

#[test]
fn huge_arrays_are_planned_at_once() {
    let huge = "4611686018427387904";
    let plan = json(&["plan", "--from", "3/7", "--to", "(block) on 5", "--shape", huge, "--json"]);
    assert_eq!(plan["total_elems"], 1_u64 << 62);
    // A window of ten elements is quick by any method, however long the array.
    for method in ["naive", "classical", "falls", "scan", "aspen"] {
        let flags = ["--from", "2/1", "--to", "3/1", "--window", "10", "--shape", huge, "--method", method];
        assert_eq!(json(&[&["plan", "--json"][..], &flags].concat())["total_elems"], 10);
    }
    // Only processes that own something count, on either side.
    for (from, to) in
        [("20000000/1", "2/1"), ("2/1", "20000000/1"), ("(cuts(10@7)) on 4611686018427387904", "2/1")]
    {
        let plan = json(&["plan", "--from", from, "--to", to, "--shape", "10", "--json"]);
        assert_eq!(plan["total_elems"], 10, "{from} to {to}");
    }
    let irregular = "(gen_block(10000000000,10000000000)) on 2";
    for (from, to) in [(irregular, "3/1"), ("3/1", irregular)] {
        let plan = json(&["plan", "--from", from, "--to", to, "--shape", "20000000000", "--json"]);
        assert_eq!(plan["total_elems"], 20_000_000_000_u64, "{from} to {to}");
    }
    let long_blocks = ["--from", "2/1000000000", "--to", "20000000/1", "--shape", "100"];
    assert_eq!(json(&[&["plan", "--json"][..], &long_blocks].concat())["total_elems"], 100);
    let owner = json(&["layout", "2000000/1", "--shape", "5000000", "--element", "77", "--json"]);
    assert_eq!(owner["element"]["rank"], 77);
    let far = json(&[
        "plan",
        "--from",
        "1000000000000/7",
        "--to",
        "5/3",
        "--shape",
        huge,
        "--rank",
        "999",
        "--json",
    ]);
    assert_eq!(far["messages"].as_array().unwrap().len(), 5);
}

/// With `--json` errors are objects, too; people still get their sentence.
#[test]
fn errors_are_answered_in_json() {
    for (arguments, code, kind, position) in [
        (vec!["plan", "--from", "16;3", "--to", "16/5", "--json"], 2, "notation", Some(2)),
        (vec!["plan", "--from", "16/3", "--to", "4x4/5x5", "--json"], 2, "usage", None),
        (vec!["schedule", "--json", "--from", "2/3", "--to", "2/5", "--rank", "2"], 2, "usage", None),
        (vec!["layout", "2/3", "--element", "6", "--json"], 2, "out-of-range", None),
        (vec!["plan", "--json", "--shpae"], 2, "usage", None),
        (
            vec!["explain", "--from", "2/3", "--to", "2/5", "--svg", "/nowhere/a.svg", "--json"],
            2,
            "usage",
            None,
        ),
    ] {
        let output = reshard(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["schema"], 1);
        assert_eq!(answer["error"]["kind"], kind, "{answer}");
        assert_eq!(answer["error"]["position"].as_u64(), position, "{answer}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("error: {}\n", answer["error"]["message"].as_str().unwrap()));
    }
}

#[test]
fn flags_of_strategies_that_were_not_chosen_are_refused() {
    let with = |command: &'static str, flags: &[&'static str]| {
        [&[command, "--from", "16/3", "--to", "16/5"], flags].concat()
    };
    for (arguments, says) in [
        (with("schedule", &["--alpha", "5"]), "--alpha is for min-cost only"),
        (with("schedule", &["--beta", "5"]), "--beta is for min-cost only"),
        (with("schedule", &["--steps", "5"]), "--steps is for min-cost only"),
        (with("schedule", &["--in-flight", "4"]), "--in-flight is for eager only"),
        (with("simulate", &["--in-flight", "9"]), "--in-flight is for eager only"),
        (with("simulate", &["--barrier-cost", "1e-3"]), "add that"),
    ] {
        let message = complaint(&arguments);
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
    for arguments in [
        with("schedule", &["--alpha", "5", "--strategy", "min-cost"]),
        with("schedule", &["--alpha", "5", "--in-flight", "3", "--compare"]),
        with("simulate", &["--in-flight", "9", "--strategy", "eager"]),
        with("simulate", &["--barrier-cost", "1e-3", "--barriers"]),
    ] {
        assert!(reshard(&arguments).status.success(), "{arguments:?}");
    }
}

#[test]
fn drawings_go_to_standard_output_if_that_is_asked_for() {
    let drawn = |arguments: &[&str]| String::from_utf8(reshard(arguments).stdout).unwrap();
    for text in [
        drawn(&["explain", "--from", "4/3", "--to", "4/5", "--svg", "-"]),
        drawn(&["ring", "--loads", "1,2,3,1", "--targets", "4,1,1,1", "--svg", "-"]),
    ] {
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
    }
    assert!(!std::path::Path::new("-").exists());
    let both = ["ring", "--loads", "1,2", "--targets", "2,1", "--svg", "-", "--json"];
    assert_eq!(reshard(&both).status.code(), Some(2));
}

/// What needs no other rank is answered by one.
#[test]
fn ranks_of_a_job_do_not_repeat_each_other() {
    let as_rank = |rank: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reshard"));
        command.env("OMPI_COMM_WORLD_RANK", rank).env("OMPI_COMM_WORLD_SIZE", "2");
        command.args(["plan", "--from", "16/3", "--to", "16/5"]).output().unwrap()
    };
    assert!(!as_rank("0").stdout.is_empty());
    let other = as_rank("1");
    assert!(other.status.success() && other.stdout.is_empty() && other.stderr.is_empty());
}

#[cfg(unix)]
#[test]
fn arguments_that_are_no_text_get_a_sentence() {
    use std::os::unix::ffi::OsStrExt;
    let wrong = std::ffi::OsStr::from_bytes(b"\xff");
    let output = Command::new(env!("CARGO_BIN_EXE_reshard")).arg(wrong).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: ") && !said.contains("panicked"), "{said}");
}

#[test]
fn help_and_version_are_answers() {
    for flag in ["--help", "--version", "plan --help", "layout --help"] {
        let output = reshard(&flag.split(' ').collect::<Vec<_>>());
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(), "{flag}");
    }
}

/// What a command draws on a terminal that is so wide, without colours; none if there is no `script` to make one.
fn on_a_terminal(columns: u32, arguments: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_reshard");
    let output = Command::new("script")
        .args([
            "-qc",
            &format!("stty cols {columns} rows 50; '{program}' {arguments} --color never"),
            "/dev/null",
        ])
        .output()
        .ok()?;
    Some(String::from_utf8(output.stdout).unwrap().replace('\r', ""))
}

#[test]
fn pictures_on_a_terminal_are_no_wider_than_it() {
    for arguments in [
        "layout 4x8/64x64 --shape 8192x8192",
        "layout 32/3 --shape 960",
        "layout 2x2x30/1x1x1 --shape 8x8x900",
        "plan 16/3 16/5",
        "schedule 16/3 16/5",
        "simulate 16/3 16/5",
        "simulate 16/3 16/5 --compare",
        "ring --loads 90,1,7,0,100 --targets 4,4,4,86,100",
    ] {
        for columns in [58, 70, 200] {
            let Some(text) = on_a_terminal(columns, arguments) else { return };
            // Sentences may be longer: the terminal breaks them.
            let is_drawn = |line: &&str| {
                let words = line.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
                line.contains('|') || (!line.contains(": ") && words.count() < 3)
            };
            let drawn: Vec<&str> = text.lines().filter(is_drawn).collect();
            assert!(drawn.len() > 1, "{arguments}: {text}");
            let widest = drawn.iter().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns as usize, "{arguments} on {columns} columns: {widest}\n{text}");
        }
    }
}

#[test]
fn colour_is_as_it_is_asked_for() {
    let layout = |flags: &[&str]| {
        String::from_utf8(reshard(&[&["layout", "2x2/3x3"], flags].concat()).stdout).unwrap().contains('\x1b')
    };
    assert!(!layout(&[]) && layout(&["--color", "always"]) && !layout(&["--color", "never"]));
}

#[test]
fn what_people_type_is_understood() {
    let plan = |arguments: &[&str]| json(&[&["plan", "--json"], arguments].concat());
    let usual = plan(&["--from", "4x4/64x64", "--to", "2x8/50x30", "--shape", "8192x8192"]);
    for arguments in [
        &["4x4/64x64", "2x8/50x30", "--shape", "8192x8192"][..],
        &["4*4/64*64", "2\u{d7}8/50\u{d7}30", "--shape", "8_192,8Ki"],
        &["4x4/64x64", "2x8/50x30", "--shape", "8Ki*8192"],
    ] {
        assert_eq!(plan(arguments), usual, "{arguments:?}");
    }
    let run =
        |name: &str| json(&["run", "2/3", "2/5", "--shape", "30", "--repeat", "1", "--type", name, "--json"]);
    for (name, is) in [("double", "f64"), ("Float32", "f32"), ("int32_t", "i32"), ("12", "12")] {
        assert_eq!(run(name)["type"], is);
    }
    let simulated =
        |alpha: &str| json(&["simulate", "2/3", "2/5", "--alpha", alpha, "--json"])["makespan"].clone();
    assert_eq!(simulated("3us"), simulated("3e-6"));
}

#[test]
fn completions_and_pages_know_every_command() {
    let help = String::from_utf8(reshard(&["--help"]).stdout).unwrap();
    let commands: Vec<&str> = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 15 && commands.contains(&"doctor"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let text = String::from_utf8(reshard(&["completions", shell]).stdout).unwrap();
        assert!(commands.iter().all(|command| text.contains(command)), "{shell}");
    }
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let _ = std::fs::remove_dir_all(&dir);
    assert!(reshard(&["man", "--dir", dir.to_str().unwrap()]).status.success());
    for command in commands {
        let page = std::fs::read_to_string(dir.join(format!("reshard-{command}.1")));
        assert!(command == "help" || page.unwrap().contains(".SH NAME"), "{command}");
        let printed = reshard(&["man", command]);
        assert!(printed.status.success() && !printed.stdout.is_empty(), "{command}");
    }
    // The short help is shorter than the long one, which has examples.
    let [short, long] =
        ["-h", "--help"].map(|flag| String::from_utf8(reshard(&["plan", flag]).stdout).unwrap());
    assert!(
        short.len() < long.len() && long.contains("Examples:") && !short.contains("Examples:"),
        "{short}\n{long}"
    );
}
