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
            let rest = rest.split(|word| *word == "--").next().unwrap_or_default();
            match step(&[&["test", "--no-run"], rest].concat()).within(COMPILED, log, |_| false)? {
                Ended::Well => {}
                _ => return Ok(Some(("broken".into(), "it does not compile".into()))),
            }
        }
        // What follows the first failure is of no interest.
        let ended = step(&arguments).within(limit, log, |said| failed_test(said).is_some())?;
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

/// The tests of a package, or the one of them that has a name. Examples in the documentation are left to the whole workspace.
pub fn of_package(round: &str, package: &str, test: Option<&str>) -> Stage {
    let all = ["test", "--locked", "--all-features", "--tests", "--package", package];
    let only = test.map_or(Vec::new(), |test| vec!["--", "--exact", test]);
    Stage::new(round, &[&all[..], &only].concat())
}

/// The package whose tests are in Python.
pub const PYTHON: &str = "reshard-python";

/// Kinds of tests beside those of one package: models for loom; all packages but the tools; the tools.
pub const MODELS: &str = "models";
pub const WORKSPACE: &str = "workspace";
pub const TOOLS: &str = "tools";

/// All tests of a kind, which is the name of a package or one of the above.
pub fn of(kind: &str, round: &str) -> Stage {
    match kind {
        PYTHON => {
            Stage::new(round, &["run", "--quiet", "--package", "xtask", "--", "test", "--again", "python"])
        }
        MODELS => {
            // By themselves, as their flag builds everything anew.
            let packages = MODELLED.map(|package| ["--package", package]);
            let place = ["--profile", "loom", "--target-dir", "../build/loom"];
            let test = [&["test", "--locked", "--lib"], packages.as_flattened(), &place, &["loom"]].concat();
            Stage { flags: "--cfg loom", ..Stage::new(round, &test) }
        }
        WORKSPACE => {
            Stage::new(round, &["test", "--locked", "--all-features", "--workspace", "--exclude", "xtask"])
        }
        // All but the test that sees that the text of the bug is not there any more.
        TOOLS => Stage::new(
            round,
            &["test", "--locked", "--package", "xtask", "--", "--skip", "every_bug_fits_its_file"],
        ),
        package => of_package(round, package, None),
    }
}

/// The first test that fails, in Rust or in Python.
fn failed_test(said: &str) -> Option<&str> {
    let test = |line: &'_ str| line.starts_with("test ") && line.ends_with(" ... FAILED");
    said.lines().find(|line| test(line)).or_else(|| said.lines().find(|line| line.starts_with("FAILED ")))
}

/// The first test that fails, or what else went wrong.
pub fn failing(said: &str) -> String {
    let error = || said.lines().find(|line| line.starts_with("error"));
    let found = failed_test(said).or_else(error).map_or("its exit", str::trim);
    let found = found.strip_prefix("test ").unwrap_or(found);
    found.trim_end_matches(" ... FAILED").replace('\t', " ").chars().take(120).collect()
}
