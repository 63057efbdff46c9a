//! `reshard couple`: two processes that start in either order, with and without a launcher; the promised keys; one sentence when the
//! other side is wrong, absent, killed or stopped.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A meeting file that no other test has.
fn meeting() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path: PathBuf =
        std::env::temp_dir().join(format!("reshard-couple-{}-{number}.meet", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path.to_str().unwrap().into()
}

fn start(launcher: &[&str], arguments: &[&str]) -> Child {
    let program = env!("CARGO_BIN_EXE_reshard");
    let mut command = match launcher {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command.arg("couple").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn answer(output: &Output) -> Value {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The sentence of a side that failed.
fn sentence(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<&str> = talk.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(said.len(), 1, "{talk}");
    said[0].to_string()
}

/// Both sides, launched each in its way, either first.
fn coupled(
    launchers: [&[&str]; 2],
    layouts: [&str; 2],
    shape: &str,
    steps: u64,
    consumer_first: bool,
    via: &str,
) -> [Value; 2] {
    let (meet, count) = (meeting(), steps.to_string());
    let side = |side: usize| {
        let role = ["produce", "consume"][side];
        let words =
            ["--name", "t", "--shape", shape, "--layout", layouts[side], "--steps", &count, "--meet", &meet];
        let last = ["--via", via, "--deadline", "60s", "--json"];
        start(launchers[side], &[&[role], &words[..], &last].concat())
    };
    let mut children = [side(usize::from(consumer_first)), side(usize::from(!consumer_first))];
    if consumer_first {
        children.reverse();
    }
    let answers = children.map(|child| answer(&child.wait_with_output().unwrap()));
    let carrier = if via == "auto" { "shared memory" } else { via };
    for (answer, role) in answers.iter().zip(["producer", "consumer"]) {
        assert_eq!((answer["role"].as_str(), answer["steps"].as_u64()), (Some(role), Some(steps)));
        assert_eq!((answer["name"].as_str(), answer["via"].as_str()), (Some("t"), Some(carrier)));
        assert_eq!(answer["verified"], Value::Bool(true));
        let elements: u64 = shape.split('x').map(|one| one.parse::<u64>().unwrap()).product();
        assert_eq!(answer["bytes"].as_u64(), Some(8 * elements * steps));
        assert!(answer["setup_seconds"].as_f64().unwrap() > 0.0);
        assert!(answer["step_seconds"]["best"].as_f64() <= answer["step_seconds"]["median"].as_f64());
    }
    assert!(!std::path::Path::new(&meet).exists(), "the producer removes its file");
    answers
}

#[test]
fn two_processes_that_host_all_their_ranks() {
    coupled([&[], &[]], ["2x2/64x64", "3x1/50x50"], "500x300", 100, false, "tcp");
    coupled([&[], &[]], ["2x2/64x64", "3x1/50x50"], "500x300", 100, false, "auto");
    coupled([&[], &[]], ["4x4/8x8", "3x3/5x7 memory=row"], "100x120", 10, true, "auto");
    coupled([&[], &[]], ["1/1000", "8/3"], "1000", 10, true, "tcp");
    coupled([&[], &[]], ["2x2x2/3x4x5", "1x3x1/9x2x11"], "20x30x25", 10, false, "auto");
}

/// The launchers that are here.
fn launchers() -> Vec<&'static [&'static str]> {
    let all: [&[&str]; 2] =
        [&["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"], &["mpirun.mpich", "-n"]];
    let here = |launcher: &&&[&str]| {
        Command::new(launcher[0]).arg("--version").output().is_ok_and(|it| it.status.success())
    };
    let found: Vec<&[&str]> = all.iter().filter(here).copied().collect();
    assert!(!found.is_empty() || std::env::var_os("RESHARD_NEEDS_MPI").is_none(), "no launcher is here");
    found
}

#[test]
fn jobs_of_mpi_and_jobs_without() {
    for launcher in launchers() {
        let of = |ranks: &'static str| [launcher, &[ranks]].concat();
        for via in ["tcp", "auto"] {
            coupled([&of("4"), &of("3")], ["2x2/64x64", "3x1/50x50"], "500x300", 100, false, via);
        }
        coupled([&of("2"), &[]], ["2x1/7x9", "4x2/5x5"], "60x50", 10, true, "auto");
        coupled([&[], &of("2")], ["4x2/5x5", "2x1/7x9"], "60x50", 10, false, "tcp");
    }
}

/// Both sides in one launch: MPI carries the data.
#[test]
fn programs_of_one_launch() {
    for launcher in launchers() {
        let side = |role, layout| {
            [
                "couple", role, "--name", "t", "--shape", "500x300", "--steps", "100", "--json", "--layout",
                layout,
            ]
        };
        // Each program has a file for its answer: launchers mix what two of them say, in the middle of lines.
        let files = [meeting(), meeting()];
        let into = |file: usize| ["sh", "-c", "file=$1; shift; exec \"$@\" >> \"$file\"", "sh", &files[file]];
        let program = env!("CARGO_BIN_EXE_reshard");
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).arg("4").args(into(0)).arg(program).args(side("produce", "2x2/64x64"));
        command.args([":", "-n", "3"]).args(into(1)).arg(program).args(side("consume", "3x1/50x50"));
        let output = command.output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{launcher:?}: {talk}");
        let answers = files.map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::remove_file(&file).unwrap();
            // An MPI may have something to say there, too.
            let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {text}"))
        });
        for (answer, role) in answers.iter().zip(["producer", "consumer"]) {
            assert_eq!((answer["role"].as_str(), answer["via"].as_str()), (Some(role), Some("mpi")));
            assert_eq!((answer["steps"].as_u64(), answer["verified"].as_bool()), (Some(100), Some(true)));
        }
    }
}

#[test]
fn what_does_not_fit_is_said_by_both() {
    let meet = meeting();
    let words = |layout, shape| {
        ["--shape", shape, "--layout", layout, "--steps", "3", "--meet", &meet, "--deadline", "3s"]
            .map(String::from)
    };
    let run = |role: &str, words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        start(&[], &[&[role], &words[..]].concat())
    };
    let producer = run("produce", &words("2/3", "100"));
    let consumer = run("consume", &words("3/4", "101"));
    let said = sentence(&consumer.wait_with_output().unwrap());
    assert!(said.contains("the producer refused") && said.contains("101"), "{said}");
    let said = sentence(&producer.wait_with_output().unwrap());
    assert!(
        said.contains("no consumer came within 3 s; the last that came was refused") && said.contains("101"),
        "{said}"
    );
}

#[test]
fn who_is_alone_says_so_and_wrong_flags_are_wrong_usage() {
    let meet = meeting();
    let job = ["--shape", "100", "--layout", "2/3", "--steps", "3"];
    let alone = [&job[..], &["--meet", &meet, "--deadline", "300ms"]].concat();
    for (role, expected) in
        [("produce", "no consumer came within 0.3 s"), ("consume", "no producer wrote the meeting file")]
    {
        let said = sentence(&start(&[], &[&[role], &alone[..]].concat()).wait_with_output().unwrap());
        assert!(said.contains(expected), "{said}");
    }
    let wrong: [(&[&str], &str); 8] = [
        (&[], "--meet FILE"),
        (&["--at", "localhost:1"], "RESHARD_SECRET"),
        (&["--meet", "x", "--deadline", "soon"], "soon"),
        (&["--meet", "x", "--type", "quadruple"], "'quadruple'"),
        (&["--meet", "x", "--via", "pigeons"], "pigeons"),
        (&["--meet", "x", "--depth", "3"], "--depth was given to a producer"),
        (&["--meet", "x", "--connections", "3"], "--connections was given to a producer"),
        (&["--meet", "x", "--bind", "everywhere"], "everywhere"),
    ];
    for (flags, expected) in wrong {
        let output = start(&[], &[&["produce"], &job[..], flags].concat()).wait_with_output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {talk}");
        assert!(talk.contains(expected) && talk.lines().count() == 1, "{flags:?}: {talk}");
    }
}

/// Either side is killed or stopped at some moment: the other says so within the deadline and two seconds.
#[test]
fn a_partner_that_is_killed_or_stopped_is_noticed() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    let trials = if std::env::var_os("RESHARD_FULL").is_some() { 50 } else { 8 };
    for trial in 0..trials {
        let meet = meeting();
        let words = |layout| {
            [
                "--shape",
                "400x300",
                "--layout",
                layout,
                "--steps",
                "1000000",
                "--meet",
                &meet,
                "--deadline",
                "2s",
            ]
        };
        let producer = start(&[], &[&["produce"], &words("2x2/16x16")[..]].concat());
        let consumer = start(&[], &[&["consume"], &words("3x1/10x10")[..]].concat());
        let [victim, survivor] = if trial % 2 == 0 { [producer, consumer] } else { [consumer, producer] };
        std::thread::sleep(Duration::from_millis(100 + random(600)));
        let signal = if trial % 4 < 2 { libc::SIGKILL } else { libc::SIGSTOP };
        // SAFETY: a process that this test started and has not waited for.
        #[allow(unsafe_code)]
        unsafe {
            libc::kill(victim.id() as i32, signal)
        };
        let began = Instant::now();
        let said = sentence(&survivor.wait_with_output().unwrap());
        let took = began.elapsed();
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            libc::kill(victim.id() as i32, libc::SIGKILL)
        };
        victim.wait_with_output().unwrap();
        assert!(took < 100 * DEADLINE, "trial {trial}: {took:?}, {said}");
        let known = [
            "is gone",
            "took no step",
            "was not put within",
            "waited 2 s",
            "did not answer",
            "no producer",
            "no consumer",
        ];
        assert!(known.iter().any(|part| said.contains(part)), "trial {trial}: {said}");
        let _ = std::fs::remove_file(&meet);
    }
}

/// A producer that a signal ends takes its meeting file with it, and ends as the signal ends any program.
#[test]
fn a_signal_leaves_no_meeting_file() {
    use std::os::unix::process::ExitStatusExt;
    for (name, number) in [("-TERM", 15), ("-INT", 2), ("-HUP", 1)] {
        let meet = meeting();
        let words =
            ["produce", "--name", "t", "--shape", "12", "--layout", "1/3", "--steps", "2", "--meet", &meet];
        // Tests that run in the background may ignore SIGINT, which their children inherit.
        let mut child = start(&["env", "--default-signal"], &[&words[..], &["--deadline", "300s"]].concat());
        let since = Instant::now();
        while !std::path::Path::new(&meet).exists() {
            assert!(since.elapsed() < Duration::from_secs(120), "no meeting file comes");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        assert!(!std::path::Path::new(&meet).exists(), "it stays behind after {name}");
    }
}
