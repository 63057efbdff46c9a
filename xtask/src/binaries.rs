//! Runs the programs of tests that cargo has built: one for each processor at a time and one more, each of its tests after the other, so that the
//! duration of every test is known. A program that passed before is not run again if nothing changed that it depends on.

use crate::tools::{self, Outcome, cargo, program, say};
use std::collections::VecDeque;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The variable that random cases depend on.
pub const SEED: &str = "RESHARD_SEED";

/// The folder of what is known of the programs that passed.
const PASSED: &str = "target/passed";

/// Tests that are listed in the end, the slowest first.
const LISTED: usize = 12;

/// Programs that run are named again and again, so that one that hangs is known.
const REMINDER: Duration = Duration::from_secs(180);

/// All output of a program that ended so long ago was read.
const AFTER_THE_END: Duration = Duration::from_secs(2);

/// Packages whose tests take longest: they begin first, where no earlier run says how long each takes.
const LONGEST_FIRST: [&str; 7] = [
    "reshard-mpi",
    "reshard-scalapack-lp64",
    "reshard",
    "reshard-scalapack",
    "reshard-cli",
    "reshard-couple",
    "reshard-shards",
];

/// Programs whose tests take minutes: each test is run by itself, so that all processors have something to do to the end.
const CUT: [&str; 2] = ["reshard-mpi engine", "reshard conformance"];

/// The package whose tests look at all sources, or build other programs of them.
const LOOKS_AT_ALL: &str = "xtask";

/// Packages whose tests load a library that cargo does not name with them.
const LOADS: [(&str, &str); 1] = [("reshard-scalapack-lp64", "libreshard_scalapack.so")];

/// Programs that some tests need, and how each says its version.
const TOOLS: [(&str, &str); 9] = [
    ("mpirun", "--version"),
    ("mpirun.openmpi", "--version"),
    ("mpirun.mpich", "--version"),
    ("ip", "-V"),
    ("tc", "-V"),
    ("unshare", "--version"),
    ("setpriv", "--version"),
    ("cc", "--version"),
    ("id", "-u"),
];

/// What an option of the command line says of programs that passed before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// They are not run if nothing changed.
    Skip,
    /// They are run.
    RunAgain,
}

/// A program of tests, or one test of it.
#[derive(Clone)]
struct Binary {
    /// Its package and its own name.
    name: String,
    package: String,
    folder: PathBuf,
    path: PathBuf,
    /// The only test of it that is to be run.
    only: Option<String>,
    /// Of the program and of all that it depends on.
    hash: u64,
}

/// What came of a program.
struct Ran {
    name: String,
    passed: bool,
    output: String,
    tests: Vec<Test>,
    took: Duration,
}

/// A test, and whether it passed; one that was ignored is none.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    took: Duration,
    name: String,
    passed: bool,
}

/// Builds the tests that `arguments` of `cargo test` choose and runs those that `filter` names. `kind` tells programs of one name apart that
/// are built in several ways.
pub fn run(
    kind: &str,
    arguments: &[&str],
    filter: &[&str],
    environment: &[(&str, &str)],
    passed: Passed,
) -> Outcome {
    let began = Instant::now();
    let binaries = built(kind, arguments, environment)?;
    let built = began.elapsed();
    let (skipped, wanted): (Vec<_>, Vec<_>) =
        binaries.into_iter().partition(|binary| passed == Passed::Skip && has_passed(binary));
    let ran = run_all(sorted(wanted), filter, environment);
    println!("    random cases are those of {SEED}={}", seed());
    let tests: Vec<&Test> = ran.iter().flat_map(|ran| &ran.tests).collect();
    // A program counts as a test if it lists none, or failed and does not say in which.
    let passed_tests = tests.iter().filter(|test| test.passed).count();
    let alone =
        |ran: &&Ran| if ran.passed { ran.tests.is_empty() } else { ran.tests.iter().all(|test| test.passed) };
    let (passed, failed): (Vec<&Ran>, Vec<&Ran>) = ran.iter().filter(alone).partition(|ran| ran.passed);
    let counts = [passed_tests + passed.len(), tests.len() - passed_tests + failed.len()];
    report(&ran, tests);
    let failed: Vec<&str> = ran.iter().filter(|ran| !ran.passed).map(|ran| &ran.name[..]).collect();
    println!(
        "    built in {:.0} s, run in {:.0} s; {} programs of tests run, {} skipped, as they passed before (--again runs them)",
        built.as_secs_f64(),
        (began.elapsed() - built).as_secs_f64(),
        ran.len(),
        skipped.len()
    );
    println!("{} passed, {} failed", counts[0], counts[1]);
    if failed.is_empty() { Ok(()) } else { Err(format!("tests failed in {}", failed.join(", "))) }
}

/// True if something named `name`, which depends on what `hash` is of, passed here before.
pub fn is_kept(name: &str, hash: u64) -> bool {
    fs::read_to_string(kept(name)).is_ok_and(|text| text.split(' ').next() == Some(&format!("{hash:016x}")))
}

/// Keeps that it passed.
pub fn keep(name: &str, hash: u64, took: Duration) {
    // Without it everything is run again.
    let _ = fs::create_dir_all(PASSED);
    let _ = fs::write(kept(name), format!("{hash:016x} {}", took.as_millis()));
}

fn kept(name: &str) -> PathBuf {
    Path::new(PASSED).join(name.replace(['/', ' '], "-"))
}

fn has_passed(binary: &Binary) -> bool {
    is_kept(&binary.name, binary.hash)
}

/// How long a program took when it passed.
fn last_time(name: &str) -> Option<u64> {
    fs::read_to_string(kept(name)).ok()?.split(' ').nth(1)?.trim().parse().ok()
}

/// Those that take longest first.
fn sorted(mut binaries: Vec<Binary>) -> Vec<Binary> {
    let place = |binary: &Binary| {
        LONGEST_FIRST.iter().position(|name| *name == binary.package).unwrap_or(LONGEST_FIRST.len())
    };
    binaries.sort_by_cached_key(|binary| match last_time(&binary.name) {
        Some(time) => (0, u64::MAX - time),
        None => (1, place(binary) as u64),
    });
    binaries
}

/// Builds tests. Returns their programs.
fn built(kind: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Vec<Binary>, String> {
    let build = [&["test", "--no-run", "--message-format=json-render-diagnostics"], arguments].concat();
    let mut step = cargo(&build);
    for (name, value) in environment {
        step = step.env(name, value);
    }
    let messages = step.answer()?;
    let artifacts: Vec<&str> =
        messages.lines().filter(|line| line.contains("\"reason\":\"compiler-artifact\"")).collect();
    let data = hash_of_data(|path| !path.ends_with(".rs"));
    let mut binaries = Vec::new();
    for line in &artifacts {
        let (Some(manifest), Some(path)) = (text(line, "manifest_path"), text(line, "executable")) else {
            continue;
        };
        let Some(folder) = Path::new(manifest).parent().filter(|_| is_test(line)) else { continue };
        let package = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
        let looks_at_all = package == LOOKS_AT_ALL;
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(data);
        hash_file(&mut hasher, Path::new(path));
        // Programs and libraries that it may start or load: those of its package.
        for other in
            artifacts.iter().filter(|line| looks_at_all || text(line, "manifest_path") == Some(manifest))
        {
            for path in products(other) {
                hash_file(&mut hasher, Path::new(path));
            }
        }
        for (_, library) in LOADS.iter().filter(|(by, _)| *by == package) {
            hash_file(&mut hasher, Path::new(&tools::built(library)));
        }
        if looks_at_all {
            hasher.write_u64(hash_of_data(|_| true));
        }
        for (name, value) in environment {
            hasher.write(format!("{name}={value}").as_bytes());
        }
        let target = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let target = target.rsplit_once('-').map_or(target, |(name, _)| name);
        let name = format!("{kind}{package} {target}");
        // The tests inside of a library and of a program may have one name.
        let name = if binaries.iter().any(|other: &Binary| other.name == name) {
            format!("{name} (program)")
        } else {
            name
        };
        let (folder, path, hash) = (folder.into(), path.into(), hasher.finish());
        let binary = Binary { name, package, folder, path, only: None, hash };
        match CUT.contains(&&binary.name[..]) {
            true => binaries.extend(cut(&binary)?),
            false => binaries.push(binary),
        }
    }
    match binaries.is_empty() {
        true => Err(format!("cargo {} built no tests", build.join(" "))),
        false => Ok(binaries),
    }
}

/// Each test of a program by itself.
fn cut(binary: &Binary) -> Result<Vec<Binary>, String> {
    let listed = program(&binary.path.to_string_lossy(), &["--list"]).answer()?;
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let alone = |test: &str| Binary {
        name: format!("{} {test}", binary.name),
        only: Some(test.to_string()),
        ..binary.clone()
    };
    Ok(tests.map(alone).collect())
}

/// The text of a key in a line of cargo's messages.
fn text<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let rest = line.split_once(&format!("\"{key}\":\""))?.1;
    rest.split('"').next()
}

/// The programs and shared libraries that a message of cargo names and that are not tests.
fn products(line: &str) -> Vec<&str> {
    let files = line.split_once("\"filenames\":[").and_then(|(_, rest)| rest.split(']').next()).unwrap_or("");
    let files = files.split(',').map(|file| file.trim_matches('"')).filter(|file| file.ends_with(".so"));
    files.chain(text(line, "executable").filter(|_| !is_test(line))).collect()
}

/// True if a message of cargo is of a program of tests.
fn is_test(line: &str) -> bool {
    line.split_once("\"profile\":{").is_some_and(|(_, profile)| {
        profile.split('}').next().is_some_and(|profile| profile.contains("\"test\":true"))
    })
}

/// A hash of the files that git tracks, or would, and that `chosen` takes; of the variables that tests know, and of the tools that some need.
pub fn hash_of_data(chosen: impl Fn(&str) -> bool) -> u64 {
    let files = program("git", &["ls-files", "--cached", "--others", "--exclude-standard"]).says();
    let mut hasher = DefaultHasher::new();
    // Where git does not know them, nothing is like it was.
    let files = files.unwrap_or_else(|| {
        hasher.write(format!("{:?}", SystemTime::now()).as_bytes());
        String::new()
    });
    for path in files.lines().filter(|path| chosen(path)) {
        hasher.write(path.as_bytes());
        hash_file(&mut hasher, Path::new(path));
    }
    let mut known: Vec<_> =
        env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RESHARD_")).collect();
    known.sort();
    hasher.write(format!("{known:?}").as_bytes());
    // Tests that lack a tool leave something out.
    for (tool, version) in TOOLS {
        hasher.write(format!("{tool}{:?}", program(tool, &[version]).says()).as_bytes());
    }
    hasher.finish()
}

/// Adds the bytes of a file to a hash.
pub fn hash_file(hasher: &mut DefaultHasher, path: &Path) {
    hasher.write(&fs::read(path).unwrap_or_default());
    hasher.write_u8(0xff);
}

fn run_all(binaries: Vec<Binary>, filter: &[&str], environment: &[(&str, &str)]) -> Vec<Ran> {
    // One more than there are processors, as tests between processes wait much of their time.
    let at_once = 1 + thread::available_parallelism().map_or(1, usize::from);
    let left = Mutex::new(VecDeque::from(binaries));
    let running = Mutex::new(Vec::<String>::new());
    let (send, ended) = channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (send, left, running) = (send.clone(), &left, &running);
            scope.spawn(move || {
                loop {
                    let Some(binary) = locked(left).pop_front() else { return };
                    locked(running).push(binary.name.clone());
                    let ran = run_one(&binary, filter, environment);
                    locked(running).retain(|name| *name != binary.name);
                    if ran.passed {
                        keep(&ran.name, binary.hash, ran.took);
                    }
                    if send.send(ran).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut all = Vec::new();
        loop {
            match ended.recv_timeout(REMINDER) {
                Ok(ran) => {
                    let word = if ran.passed { "passed" } else { "FAILED" };
                    let tests = format!("{} tests", ran.tests.len());
                    println!("    {:<40} {word} {tests:>10} {:>8.1} s", ran.name, ran.took.as_secs_f64());
                    if !ran.passed {
                        println!("{}", ran.output);
                    }
                    all.push(ran);
                }
                Err(RecvTimeoutError::Timeout) => {
                    say(&format!("still running: {}", locked(&running).join(", ")));
                }
                Err(RecvTimeoutError::Disconnected) => return all,
            }
        }
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the tests of a program one after the other.
fn run_one(binary: &Binary, filter: &[&str], environment: &[(&str, &str)]) -> Ran {
    let began = Instant::now();
    let failed = |output: String| {
        let (name, took) = (binary.name.clone(), began.elapsed());
        Ran { name, passed: false, output, tests: Vec::new(), took }
    };
    let mut command = Command::new(&binary.path);
    match &binary.only {
        Some(test) => command.args(["--exact", test]),
        None => command.args(filter),
    };
    command.arg("--test-threads=1").current_dir(&binary.folder);
    command.env("CARGO_MANIFEST_DIR", &binary.folder).env(SEED, seed()).envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(format!("{} cannot be run: {error}", binary.path.display())),
    };
    let (send, lines) = channel();
    for pipe in [child.stdout.take().map(boxed), child.stderr.take().map(boxed)].into_iter().flatten() {
        let send = send.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if send.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
    }
    drop(send);
    let (mut output, mut tests, mut before) = (String::new(), Vec::new(), began);
    // Processes that a test has left may hold the pipes for ever, and write.
    let mut ended = None;
    loop {
        let line = lines.recv_timeout(AFTER_THE_END);
        if ended.is_none() && child.try_wait().is_ok_and(|status| status.is_some()) {
            ended = Some(Instant::now());
        }
        let (at, line) = match line {
            Ok((at, _)) if ended.is_some_and(|end| at > end + AFTER_THE_END) => break,
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if ended.is_some() => break,
            Err(RecvTimeoutError::Timeout) => continue,
        };
        if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let name = match binary.only {
                Some(_) => binary.name.clone(),
                None => format!("{} {name}", binary.name),
            };
            let took = at - before;
            if !end.starts_with("ignored") {
                // What a test's own processes write may stand between its name and the word that it passed.
                tests.push(Test { took, name, passed: !end.ends_with("FAILED") });
            }
            before = at;
        }
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait();
    let passed = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    if let (false, Ok(status)) = (passed, &status) {
        output.push_str(&format!("{} ended with {status}\n", binary.path.display()));
    }
    Ran { name: binary.name.clone(), passed, output, tests, took: began.elapsed() }
}

fn boxed(pipe: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(pipe)
}

/// The slowest tests.
fn report(ran: &[Ran], mut tests: Vec<&Test>) {
    if ran.is_empty() {
        return;
    }
    tests.sort_by(|one, other| other.cmp(one));
    println!("    the slowest tests:");
    for test in tests.iter().take(LISTED) {
        println!("    {:>8.1} s  {}", test.took.as_secs_f64(), test.name);
    }
}

/// The seed of all random cases: the variable's, or one that changes with the commit. Tests that passed with another seed have passed.
pub fn seed() -> String {
    static CHOSEN: OnceLock<String> = OnceLock::new();
    let of_commit = || {
        let commit = program("git", &["rev-parse", "HEAD"]).says()?;
        u64::from_str_radix(commit.get(..8)?, 16).ok()
    };
    let chosen = || env::var(SEED).unwrap_or_else(|_| of_commit().unwrap_or(1).to_string());
    CHOSEN.get_or_init(chosen).clone()
}

/// All are run in continuous integration.
pub fn unless_ci(passed: Passed) -> Passed {
    if env::var_os("CI").is_some() { Passed::RunAgain } else { passed }
}
