//! Planted bugs: each bug of `xtask/mutants.txt` is put into a copy of the sources, whose tests must fail. What escapes is something that no test
//! looks at.
//!
//! All of it is below `target/mutants`: the copy, what is built of it, a log of the last tests of each bug, and the results, where a bug that was tried with the
//! same sources is not tried again.

mod stages;
#[cfg(test)]
mod tests;

use crate::copied;
use crate::mpi;
use crate::planted::{self, Bug};
use crate::tools::{Outcome, say};
use stages::{COMPILED, MODELLED, MODELS, TOOLS, WORKSPACE};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SET: &str = "xtask/mutants.txt";
const FOLDER: &str = "target/mutants";
const TREE: &str = "target/mutants/tree";
const RESULTS: &str = "target/mutants/results";

/// Tests that take longer than this hang, or than twice what they take without a bug, where that is more.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// How names of runs without any bug begin: where tests fail by themselves, every bug would look caught.
const NONE: &str = "- ";

/// One line of the results.
struct Tried {
    name: String,
    hash: String,
    round: String,
    verdict: String,
    by: String,
    seconds: u64,
}

impl Tried {
    fn line(&self) -> String {
        let Self { name, hash, round, verdict, by, seconds } = self;
        format!("{name}\t{hash}\t{round}\t{verdict}\t{by}\t{seconds}\n")
    }

    fn of(line: &str) -> Option<Self> {
        let words: Vec<String> = line.split('\t').map(String::from).collect();
        let [name, hash, round, verdict, by, seconds] = <[String; 6]>::try_from(words).ok()?;
        Some(Self { name, hash, round, verdict, by, seconds: seconds.parse().ok()? })
    }
}

/// `cargo xtask mutants [NAME] [--seeds N]`.
pub fn run(arguments: &[&str]) -> Outcome {
    let (named, seeds) = match arguments {
        [] => (None, None),
        ["--seeds", seeds] => (None, Some(*seeds)),
        [name] => (Some(*name), None),
        [name, "--seeds", seeds] => (Some(*name), Some(*seeds)),
        _ => return Err("give no more than the name of a bug and --seeds with a number".into()),
    };
    // Without seeds there is one round, with the tests' own.
    let rounds = match seeds.map(str::parse::<u64>) {
        None => vec![String::new()],
        Some(Ok(seeds)) if seeds > 0 => (1..=seeds).map(|seed| seed.to_string()).collect(),
        Some(_) => return Err("--seeds takes a number of rounds, at least 1".into()),
    };
    let mut bugs = planted::bugs(&fs::read_to_string(SET).map_err(|error| format!("{SET}: {error}"))?)?;
    bugs.retain(|bug| named.is_none_or(|name| name == bug.name));
    if bugs.is_empty() {
        return Err(format!("{SET} has no bug of this name; its names follow ==, as in `grep ^== {SET}`"));
    }
    mpi::ready()?;
    let mut table = Vec::new();
    for bug in &bugs {
        let sources = copied::refresh(TREE)?;
        for round in &rounds {
            sound(&bug.package, sources, round)?;
        }
        // A bug stays planted from round to round, so that it is compiled once.
        for round in &rounds {
            let attempt = || try_bug(bug, sources, round);
            table.push(once(&bug.name, hash_of(&(sources, bug)), round, attempt)?);
        }
    }
    copied::refresh(TREE)?;
    report(&table)
}

/// The limit for the tests of a kind; an error if they fail without any bug, which is then not planted.
fn sound(kind: &str, sources: u64, round: &str) -> Result<Duration, String> {
    let name = format!("{NONE}{kind}");
    let log = log_of(&name);
    let tried = once(&name, hash_of(&sources), round, || {
        let failed = stages::of(kind, round).run(&log, COMPILED)?;
        Ok(failed.unwrap_or_else(|| ("passed".into(), String::new())))
    })?;
    match tried.verdict == "passed" {
        true => Ok(LIMIT.max(Duration::from_secs(2 * tried.seconds))),
        false => Err(format!(
            "tests fail without any bug ({}): see {}; the line of {name} in {RESULTS} is to be removed before they are tried again",
            tried.by,
            log.display()
        )),
    }
}

/// Plants a bug and runs the tests from the nearest to all of them until one fails.
fn try_bug(bug: &Bug, sources: u64, round: &str) -> Result<(String, String), String> {
    let place = Path::new(TREE).join(&bug.file);
    let failed = |error: std::io::Error| format!("{}: {error}", place.display());
    let clean = fs::read_to_string(&bug.file).map_err(|error| format!("{}: {error}", bug.file))?;
    let planted = bug.planted_in(&clean)?;
    // What is the same keeps its time, so that it is not compiled again.
    let put = |text: &String| match fs::read_to_string(&place).is_ok_and(|known| known == *text) {
        true => Ok(()),
        false => fs::write(&place, text).map_err(failed),
    };
    let log = log_of(&bug.name);
    // The test that caught it before comes first.
    if let Some(test) = caught_by(bug) {
        let limit = sound(&bug.package, sources, round)?;
        put(&planted)?;
        if let Some(caught) = stages::of_package(round, &bug.package, Some(&test)).run(&log, limit)? {
            return Ok(caught);
        }
    }
    let modelled = MODELLED.contains(&&bug.package[..]);
    let kinds = [Some(&bug.package[..]), modelled.then_some(MODELS), Some(WORKSPACE), Some(TOOLS)];
    for kind in kinds.into_iter().flatten() {
        if known(&format!("{NONE}{kind}"), hash_of(&sources), round).is_none() {
            put(&clean)?;
        }
        let limit = sound(kind, sources, round)?;
        put(&planted)?;
        if let Some(caught) = stages::of(kind, round).run(&log, limit)? {
            return Ok(caught);
        }
    }
    Ok(("escaped".into(), "nothing".into()))
}

/// The test that caught a bug the last time, if it is one that can be run alone.
fn caught_by(bug: &Bug) -> Option<String> {
    let results = fs::read_to_string(RESULTS).unwrap_or_default();
    let mut tried = results.lines().rev().filter_map(Tried::of);
    let last = tried.find(|tried| tried.name == bug.name && tried.verdict == "caught")?;
    (bug.package != stages::PYTHON && !last.by.contains(' ')).then_some(last.by)
}

/// The result for a hash, if there is one.
fn known(name: &str, hash: u64, round: &str) -> Option<Tried> {
    let hash = format!("{hash:016x}");
    let results = fs::read_to_string(RESULTS).unwrap_or_default();
    let fits = |tried: &Tried| tried.name == name && tried.hash == hash && tried.round == round;
    results.lines().filter_map(Tried::of).find(fits)
}

/// The result for a hash: that of before, or that of an attempt, which is kept.
fn once(
    name: &str,
    hash: u64,
    round: &str,
    attempt: impl FnOnce() -> Result<(String, String), String>,
) -> Result<Tried, String> {
    let seed = if round.is_empty() { String::new() } else { format!(" with seed {round}") };
    if let Some(tried) = known(name, hash, round) {
        if !name.starts_with(NONE) {
            say(&format!("{name}{seed} is skipped: {} by {} before", tried.verdict, tried.by));
        }
        return Ok(tried);
    }
    say(&match name.strip_prefix(NONE) {
        Some(kind) => format!("tests of {kind} without any bug{seed}"),
        None => format!("{name}{seed}"),
    });
    let begin = Instant::now();
    let (verdict, by) = attempt()?;
    let (name, hash, round) = (name.to_string(), format!("{hash:016x}"), round.to_string());
    let seconds = begin.elapsed().as_secs();
    let tried = Tried { name, hash, round, verdict, by, seconds };
    say(&format!("{} by {} in {seconds} s", tried.verdict, tried.by));
    let file = fs::OpenOptions::new().create(true).append(true).open(RESULTS);
    let kept = file.and_then(|mut file| file.write_all(tried.line().as_bytes()));
    kept.map_err(|error| format!("{RESULTS}: {error}"))?;
    Ok(tried)
}

/// Prints what became of all bugs; an error if one escaped or does not compile.
fn report(table: &[Tried]) -> Outcome {
    for Tried { name, round, verdict, by, seconds, .. } in table {
        println!("    {name:<48} {round:>3} {verdict:<8} {seconds:>6} s  {by}");
    }
    let of = |verdict: &str| table.iter().filter(|tried| tried.verdict == verdict).count();
    let (caught, escaped, broken) = (of("caught"), of("escaped"), of("broken"));
    say(&format!("{caught} caught, {escaped} escaped, {broken} do not compile"));
    if caught == table.len() { Ok(()) } else { Err(format!("not every bug is caught: see {RESULTS}")) }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn log_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("log-{}", name.replace([' ', ':', '/'], "-")))
}
