//! Too little memory is one sentence and exit code 1, whatever the command was about to do: never a signal, never a backtrace.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use reshard_testkit::{Random, full_sweep};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Limits on address space, in KiB beyond what the program needs to start: from nothing to enough for most.
const BEYOND: [u64; 14] =
    [0, 200, 400, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 25_000, 60_000, 120_000, 300_000];

/// The least limit under which the program plans next to nothing.
fn start() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(|| {
        let starts = |kib: &u64| limited(*kib, &["plan", "--from", "1/1", "--to", "1/1"]).status.success();
        let steps: Vec<u64> = (4_000..400_000).step_by(200).collect();
        steps[steps.partition_point(|kib| !starts(kib))]
    })
}

fn limited(kib: u64, arguments: &[&str]) -> Output {
    // The words stay words: nothing in them is for the shell to read.
    let script = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
    let program = env!("CARGO_BIN_EXE_reshard");
    Command::new("sh").args(["-c", &script, program]).args(arguments).output().unwrap()
}

/// What is wrong with an answer, if anything.
fn fault(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let wrong = |what: &str| Some(format!("{what} ({}): {said}", output.status));
    match output.status.code() {
        Some(0) => None,
        Some(1) if said.lines().count() != 1 => wrong("not one sentence"),
        Some(1) if !said.starts_with("error: ") => wrong("not an error of ours"),
        // The C library ends a process by itself that has no memory for the first words of a thread.
        None if said.starts_with("Fatal glibc error") => None,
        // Threads have stacks, of which the system says no more than that they cannot be had.
        Some(1) if said.contains("could not be started") => None,
        Some(1) if !said.contains(" bytes") => wrong("it does not say how many bytes"),
        Some(1) if !said.contains(" for ") && !said.contains(" while ") => wrong("it does not say what for"),
        Some(1) => None,
        _ => wrong("neither done nor refused"),
    }
}

/// Runs a command under all limits; how often it was refused.
fn judge(arguments: &[&str]) -> usize {
    let mut refused = 0;
    // A third of them, others at each commit.
    let turn = Random::new(1).within(0, 2) as usize;
    let limits = BEYOND.iter().enumerate().filter(|(at, _)| full_sweep() || at % 3 == turn);
    for kib in limits.map(|(_, more)| start() + more) {
        let output = limited(kib, arguments);
        if let Some(fault) = fault(&output) {
            panic!("under {kib} KiB, {arguments:?}: {fault}");
        }
        refused += usize::from(output.status.code() == Some(1));
    }
    refused
}

/// A redistribution with 90 000 messages, in parts of a period: nothing can be done by formula.
const MANY: [&str; 6] = ["--from", "300/1", "--to", "300/301", "--shape", "90307"];

fn with<'a>(command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [command, more].concat()
}

#[test]
fn plans_are_refused_in_a_sentence() {
    assert!(judge(&with(&["plan", "--json"], &["--from", "1000/1", "--to", "1000/1000"])) > 0);
    assert!(judge(&with(&["plan"], &MANY)) > 0);
}

#[test]
fn schedules_are_refused_in_a_sentence() {
    for strategy in ["optimal", "greedy", "stepwise", "min-cost", "split", "async", "caterpillar", "eager"] {
        let size: &[&str] = match strategy {
            "greedy" | "stepwise" => &["--from", "160/1", "--to", "160/160", "--shape", "25700"],
            "min-cost" => &["--from", "85/1", "--to", "85/85", "--shape", "7230"],
            "split" => &["--from", "100/1", "--to", "100/101", "--shape", "10107"],
            "async" => &["--from", "100/1", "--to", "100/101", "--shape", "10107"],
            _ => &["--from", "1000/1", "--to", "(block) on 1000", "--shape", "1000000"],
        };
        assert!(judge(&with(&["schedule", "--json", "--strategy", strategy], size)) > 0, "{strategy}");
    }
}

#[test]
fn simulations_are_refused_in_a_sentence() {
    assert!(judge(&with(&["simulate"], &MANY)) > 0);
    assert!(judge(&with(&["simulate", "--json", "--strategy", "eager"], &MANY)) > 0);
    assert!(judge(&with(&["simulate", "--barriers"], &MANY)) > 0);
    let small = ["--from", "100/1", "--to", "100/101", "--shape", "10107"];
    assert!(judge(&with(&["simulate", "--network", "torus"], &small)) > 0);
    assert!(judge(&with(&["simulate"], &["--from", "1000000/8", "--to", "1000000/25"])) > 0);
}

#[test]
fn drawings_are_refused_in_a_sentence() {
    let file = std::env::temp_dir().join(format!("reshard-memory-{}.svg", std::process::id()));
    let small = ["--from", "200/1", "--to", "200/201", "--shape", "40207"];
    let refused = judge(&with(&["explain", "--svg", file.to_str().unwrap()], &small));
    std::fs::remove_file(&file).ok();
    assert!(refused > 0);
}

#[test]
fn relabellings_are_refused_in_a_sentence() {
    let many = ["--from", "32x32/3x5", "--to", "32x32/7x2 rank-order=col", "--shape", "1420x1400"];
    assert!(judge(&with(&["relabel"], &many)) > 0);
    assert!(judge(&["relabel", "--json", "--from", "1000000/8", "--to", "1000000/25"]) > 0);
}

#[test]
fn rings_are_refused_in_a_sentence() {
    let file = std::env::temp_dir().join(format!("reshard-memory-{}.txt", std::process::id()));
    let loads: Vec<String> = (0..400_000).map(|rank| (rank % 7).to_string()).collect();
    std::fs::write(&file, loads.join(" ")).unwrap();
    let targets = std::env::temp_dir().join(format!("reshard-memory-{}-to.txt", std::process::id()));
    let turned: Vec<&str> = loads.iter().rev().map(String::as_str).collect();
    std::fs::write(&targets, turned.join(" ")).unwrap();
    let (from, to) = (format!("@{}", file.display()), format!("@{}", targets.display()));
    let refused = judge(&["ring", "--loads", &from, "--targets", &to, "--json"]);
    std::fs::remove_file(&file).ok();
    std::fs::remove_file(&targets).ok();
    assert!(refused > 0);
    let loads: Vec<String> = (0..40).map(|rank| (rank % 5 * 20_000).to_string()).collect();
    let loads = loads.join(",");
    let targets: Vec<&str> = loads.rsplit(',').collect();
    let run = ["ring", "--run", "--loads", &loads, "--targets", &targets.join(",")];
    // Not with a thread for each rank: what the standard library needs to begin one is beyond us.
    assert!(judge(&with(&run, &["--engine", "threads"])) > 0);
}

#[test]
fn runs_are_refused_in_a_sentence() {
    let move_ = ["run", "--repeat", "1", "--from", "4x4/64x64", "--to", "2x8/50x30", "--shape", "1024x1024"];
    // With few threads: what the standard library needs to begin one is beyond us.
    assert!(judge(&with(&move_, &["--engine", "threads", "--threads", "1"])) > 0);
}
