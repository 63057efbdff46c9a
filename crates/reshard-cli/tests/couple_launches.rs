//! `reshard couple --via mpi --meet FILE`: two launches that MPI joins, in either order; what it needs, and one sentence, in time, when that
//! is not there or the other side is absent or killed.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LAUNCHER: &str = "mpirun.openmpi";

/// A file that no other test has.
fn place(end: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("reshard-launches-{}-{number}.{end}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// The server that joins launches of Open MPI 4. It ends with this.
struct Server {
    child: Child,
    file: PathBuf,
}

impl Server {
    /// None where Open MPI 4 is not here.
    fn start() -> Option<Self> {
        let version = Command::new(LAUNCHER).arg("--version").output();
        let version = version.map_or(String::new(), |it| String::from_utf8_lossy(&it.stdout).into_owned());
        // Later ones join launches in other ways.
        if !version.contains(") 4.") {
            return None;
        }
        let file = place("server");
        let begun = Command::new("ompi-server")
            .args(["--no-daemonize", "-r", file.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = begun else {
            assert!(std::env::var_os("RESHARD_NEEDS_MPI").is_none(), "no ompi-server is here");
            return None;
        };
        let (server, began) = (Self { child, file }, Instant::now());
        while !std::fs::read_to_string(&server.file).is_ok_and(|text| text.ends_with('\n')) {
            assert!(began.elapsed() < Duration::from_secs(300), "ompi-server does not say where it is");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    fn flags(&self) -> Vec<String> {
        vec!["--ompi-server".into(), format!("file:{}", self.file.display())]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// One side: 0 is the producer.
fn start(side: usize, flags: &[String], meet: &Path, steps: &str, deadline: &str) -> Child {
    let (role, ranks, layout) = [("produce", "4", "2x2/64x64"), ("consume", "3", "3x1/50x50")][side];
    let mut command = Command::new(LAUNCHER);
    command.args(["--allow-run-as-root", "--oversubscribe"]).args(flags).args(["-n", ranks]);
    command.arg(env!("CARGO_BIN_EXE_reshard")).args(["couple", role, "--via", "mpi", "--json"]);
    command.args(["--name", "t", "--shape", "500x300", "--layout", layout, "--steps", steps]);
    command.args(["--deadline", deadline, "--meet"]).arg(meet);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The sentence of a side that failed.
fn sentence(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<&str> = talk.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(said.len(), 1, "{talk}");
    said[0].to_string()
}

/// Nothing is left beside the meeting file.
fn nothing_is_left(meet: &Path) {
    for end in ["", ".knock", ".answer"] {
        let file = format!("{}{end}", meet.display());
        assert!(!Path::new(&file).exists(), "{file} is left");
    }
}

#[test]
fn two_launches_in_either_order() {
    let Some(server) = Server::start() else { return };
    for first in [0, 1] {
        let meet = place("meet");
        let begin = |side| start(side, &server.flags(), &meet, "100", "60s");
        let one = begin(first);
        std::thread::sleep(Duration::from_millis(700));
        let other = begin(1 - first);
        for (side, child) in [(first, one), (1 - first, other)] {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            let role = ["producer", "consumer"][side];
            assert_eq!((answer["role"].as_str(), answer["via"].as_str()), (Some(role), Some("mpi")));
            assert_eq!((answer["steps"].as_u64(), answer["verified"].as_bool()), (Some(100), Some(true)));
        }
        nothing_is_left(&meet);
    }
}

/// Nobody waits for a server that was not named, or is not there.
#[test]
fn without_the_server_both_say_so_at_once() {
    let Some(server) = Server::start() else { return };
    let gone = place("server");
    std::fs::copy(&server.file, &gone).unwrap();
    drop(server);
    let named = vec!["--ompi-server".to_string(), format!("file:{}", gone.display())];
    for (flags, expected) in [(Vec::new(), "was launched without"), (named, "none answers at")] {
        for side in [0, 1] {
            let (meet, began) = (place("meet"), Instant::now());
            let output = start(side, &flags, &meet, "3", "900s").wait_with_output().unwrap();
            let said = sentence(&output);
            assert!(said.contains(expected) && said.contains("ompi-server --no-daemonize"), "{said}");
            // Long before the deadline.
            assert!(began.elapsed() < Duration::from_secs(600), "{:?}", began.elapsed());
            nothing_is_left(&meet);
        }
    }
    std::fs::remove_file(&gone).unwrap();
}

#[test]
fn who_is_alone_says_so() {
    let Some(server) = Server::start() else { return };
    for (side, expected) in [(0, "no consumer came within 1 s"), (1, "no producer wrote the meeting file")] {
        let meet = place("meet");
        let output = start(side, &server.flags(), &meet, "3", "1s").wait_with_output().unwrap();
        let said = sentence(&output);
        assert!(said.contains(expected), "{said}");
        nothing_is_left(&meet);
    }
}

/// The first process that another started.
fn first_child(of: u32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

/// Either launch loses a rank or its launcher: the other says so within the deadline and two seconds, and ends.
#[test]
#[cfg(target_os = "linux")]
fn a_launch_that_is_killed_is_noticed() {
    const DEADLINE: Duration = Duration::from_secs(4);
    let Some(server) = Server::start() else { return };
    for (victim, launcher) in [(0, false), (1, false), (1, true)] {
        let meet = place("meet");
        let mut sides = [0, 1].map(|side| Some(start(side, &server.flags(), &meet, "1000000", "4s")));
        let [mut victim, mut survivor] = [victim, 1 - victim].map(|side: usize| sides[side].take().unwrap());
        let began = Instant::now();
        let waits = |there: bool| {
            while meet.exists() != there && began.elapsed() < Duration::from_secs(300) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // It is there until they are joined.
        waits(true);
        waits(false);
        std::thread::sleep(Duration::from_secs(1));
        let killed = if launcher { victim.id() as i32 } else { first_child(victim.id()) };
        // SAFETY: a process that this test started, or that started it, and nobody has waited for.
        #[allow(unsafe_code)]
        unsafe {
            libc::kill(killed, libc::SIGKILL)
        };
        let began = Instant::now();
        let lines = BufReader::new(survivor.stderr.take().unwrap()).split(b'\n').map_while(Result::ok);
        let mut lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        let said = lines.find(|line| line.starts_with("error: ")).unwrap_or_default();
        let took = began.elapsed();
        assert!(
            ["is gone", "was not put within", "waited 4 s for what rank"]
                .iter()
                .any(|part| said.contains(part)),
            "{said}"
        );
        assert!(took < 100 * DEADLINE, "{took:?}, {said}");
        lines.for_each(drop);
        assert_eq!(survivor.wait().unwrap().code(), Some(1));
        assert!(began.elapsed() < 100 * DEADLINE, "{:?}", began.elapsed());
        assert!(!victim.wait().unwrap().success());
        nothing_is_left(&meet);
    }
}
