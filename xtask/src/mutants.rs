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
use stages::{COMPILED, MODELLED, Stage, models, python, workspace};
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

/// The name of the run without any bug: where the tests fail by themselves, every bug would look caught.
const NONE: &str = "-";

/// The package whose tests are in Python.
const PYTHON: &str = "reshard-python";

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
    for round in &rounds {
        for bug in &bugs {
            let sources = copied::refresh(TREE)?;
            let limit = sound(sources, round)?;
            let attempt = || try_bug(bug, round, limit);
            table.push(once(&bug.name, hash_of(&(sources, bug)), round, attempt)?);
        }
    }
    report(&table)
}

/// The limit for all tests; an error if they fail without any bug.
fn sound(sources: u64, round: &str) -> Result<Duration, String> {
    let tried = once(NONE, hash_of(&sources), round, || {
        let log = log_of(NONE);
        let stages = models(round).chain([python(round)]).chain(workspace(round));
        let mut failed = stages.map(|stage| stage.run(&log, COMPILED)).filter_map(Result::transpose);
        failed.next().unwrap_or_else(|| Ok(("passed".into(), String::new())))
    })?;
    match tried.verdict == "passed" {
        true => Ok(LIMIT.max(Duration::from_secs(2 * tried.seconds))),
        false => Err(format!(
            "the tests fail without any bug ({}): see {}; the line of {NONE} in {RESULTS} is to be removed before they are tried again",
            tried.by,
            log_of(NONE).display()
        )),
    }
}

/// Plants a bug, runs the tests from the nearest to all of them until some fail, and takes it out.
fn try_bug(bug: &Bug, round: &str, limit: Duration) -> Result<(String, String), String> {
    let place = Path::new(TREE).join(&bug.file);
    let failed = |error: std::io::Error| format!("{}: {error}", place.display());
    let before = fs::read_to_string(&place).map_err(failed)?;
    fs::write(&place, bug.planted_in(&before)?).map_err(failed)?;
    let mut stages = match &bug.package[..] {
        PYTHON => vec![python(round)],
        package => vec![Stage::new(round, &["test", "--locked", "--all-features", "--package", package])],
    };
    stages.extend(models(round).filter(|_| MODELLED.contains(&&bug.package[..])));
    stages.extend(workspace(round));
    let log = log_of(&bug.name);
    let limits = std::iter::once(LIMIT).chain(std::iter::repeat(limit));
    let mut caught = stages
        .into_iter()
        .zip(limits)
        .map(|(stage, limit)| stage.run(&log, limit))
        .filter_map(Result::transpose);
    let caught = caught.next().unwrap_or_else(|| Ok(("escaped".into(), "nothing".into())));
    fs::write(&place, before).map_err(failed)?;
    caught
}

/// The result for a hash: that of before, or that of an attempt, which is kept.
fn once(
    name: &str,
    hash: u64,
    round: &str,
    attempt: impl FnOnce() -> Result<(String, String), String>,
) -> Result<Tried, String> {
    let hash = format!("{hash:016x}");
    let results = fs::read_to_string(RESULTS).unwrap_or_default();
    let known = |tried: &Tried| tried.name == name && tried.hash == hash && tried.round == round;
    let seed = if round.is_empty() { String::new() } else { format!(" with seed {round}") };
    if let Some(tried) = results.lines().filter_map(Tried::of).find(known) {
        if name != NONE {
            say(&format!("{name}{seed} is skipped: {} by {} before", tried.verdict, tried.by));
        }
        return Ok(tried);
    }
    say(&if name == NONE { format!("tests without any bug{seed}") } else { format!("{name}{seed}") });
    let begin = Instant::now();
    let (verdict, by) = attempt()?;
    let (name, round, seconds) = (name.to_string(), round.to_string(), begin.elapsed().as_secs());
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
    Path::new(FOLDER).join(format!("log{}{name}", if name == NONE { "" } else { "-" }))
}
