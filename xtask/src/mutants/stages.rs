//! The tests that a bug is tried with, each stage one command.

use super::{FOLDER, TREE};
use crate::mpi;
use crate::tools::{Ended, cargo};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The compiler is never that slow.
pub const COMPILED: Duration = Duration::from_secs(3 * 60 * 60);

/// The packages with models for loom.
pub const MODELLED: [&str; 2] = ["reshard-kernel", "reshard-mpi"];

/// One run of tests.
pub struct Stage {
    arguments: Vec<String>,
    flags: &'static str,
    round: String,
}

impl Stage {
    pub fn new(round: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { arguments, flags: "", round: round.into() }
    }

    /// The verdict, and the test that gives it; nothing if all tests pass. The limit is for the tests, after all was compiled.
    pub fn run(self, log: &Path, limit: Duration) -> Result<Option<(String, String)>, String> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let build = fs::canonicalize(FOLDER).map_err(|error| format!("{FOLDER}: {error}"))?.join("build");
        let step = |arguments: &[&str]| {
            let variables = [("RUSTFLAGS", self.flags), ("RESHARD_SEED", &self.round[..])];
            let step = cargo(arguments).folder(TREE).env(mpi::NEEDED, "1");
            let step = step.env("CARGO_TARGET_DIR", &build.to_string_lossy());
            let given = variables.into_iter().filter(|(_, value)| !value.is_empty());
            given.fold(step, |step, (name, value)| step.env(name, value))
        };
        if let ["test", rest @ ..] = &arguments[..] {
            match step(&[&["test", "--no-run"], rest].concat()).within(COMPILED, log)? {
                Ended::Well => {}
                _ => return Ok(Some(("broken".into(), "it does not compile".into()))),
            }
        }
        let ended = step(&arguments).within(limit, log)?;
        let said = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        Ok(match ended {
            Ended::Well => None,
            Ended::Late => Some(("caught".into(), "hanging".into())),
            Ended::Badly if said.contains("error: could not compile") => {
                Some(("broken".into(), "it does not compile".into()))
            }
            Ended::Badly => Some(("caught".into(), failing(&said))),
        })
    }
}

/// All tests but the one that sees that the text of the bug is not there any more.
pub fn workspace(round: &str) -> [Stage; 2] {
    let set = ["test", "--locked", "--package", "xtask", "--", "--skip", "every_bug_fits_its_file"];
    let others = ["test", "--locked", "--all-features", "--workspace", "--exclude", "xtask"];
    [Stage::new(round, &others), Stage::new(round, &set)]
}

pub fn python(round: &str) -> Stage {
    Stage::new(round, &["run", "--quiet", "--package", "xtask", "--", "test", "--again", "python"])
}

/// Models are built by themselves, as their flag builds everything anew.
pub fn models(round: &str) -> impl Iterator<Item = Stage> {
    let packages = MODELLED.map(|package| ["--package", package]);
    let place = ["--profile", "loom", "--target-dir", "../build/loom"];
    let test = [&["test", "--locked", "--lib"], packages.as_flattened(), &place, &["loom"]].concat();
    std::iter::once(Stage { flags: "--cfg loom", ..Stage::new(round, &test) })
}

/// The first test that fails, in Rust or in Python, or what else went wrong.
pub fn failing(said: &str) -> String {
    let by = |is: fn(&str) -> bool| said.lines().find(|line| is(line)).map(|line| line.trim().to_string());
    let test = by(|line| line.starts_with("test ") && line.ends_with("FAILED"));
    let test = test.or_else(|| by(|line| line.starts_with("FAILED ")));
    let found = test.or_else(|| by(|line| line.starts_with("error"))).unwrap_or_else(|| "its exit".into());
    let found = found.strip_prefix("test ").unwrap_or(&found);
    found.trim_end_matches(" ... FAILED").replace('\t', " ").chars().take(120).collect()
}
