//! Running commands, and installing the ones that are missing.

use std::env;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Done, or a sentence that says what failed.
pub type Outcome = Result<(), String>;

/// Announces a step.
pub fn say(step: &str) {
    println!("==> {step}");
}

/// Works from the root of the repository, wherever cargo was called.
pub fn enter_repository() -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no folder above it")?;
    env::set_current_dir(root).map_err(|error| format!("cannot enter {}: {error}", root.display()))
}

/// What every build for tests is of: one set of features, so that nothing is compiled twice.
pub const WORKSPACE: [&str; 3] = ["--workspace", "--all-features", "--locked"];

/// Builds the libraries that C, Fortran and Python load, as the tests are built.
pub fn build_libraries() -> Outcome {
    cargo(&[&["build", "--lib", "--tests"], &WORKSPACE[..]].concat()).run()
}

/// A program or a library that was built for tests.
pub fn built(name: &str) -> String {
    let target = env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    format!("{target}/debug/{name}")
}

/// A command to run; its failure is an error.
pub struct Step(Command);

/// How a command ended that had a time limit.
pub enum Ended {
    Well,
    Badly,
    Late,
}

/// The cargo that runs us.
pub fn cargo(arguments: &[&str]) -> Step {
    program(&env::var("CARGO").unwrap_or_else(|_| "cargo".to_string()), arguments)
}

pub fn program(name: &str, arguments: &[&str]) -> Step {
    let mut command = Command::new(name);
    command.args(arguments);
    Step(command)
}

impl Step {
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    pub fn folder(mut self, folder: &str) -> Self {
        self.0.current_dir(folder);
        self
    }

    pub fn run(mut self) -> Outcome {
        let status = self.0.status().map_err(|error| format!("{:?} cannot be run: {error}", self.0))?;
        if status.success() { Ok(()) } else { Err(format!("{:?} failed", self.0)) }
    }

    /// What the command writes to standard error.
    pub fn talk(mut self) -> Result<String, String> {
        let output = self.0.output().map_err(|error| format!("{:?} cannot be run: {error}", self.0))?;
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(talk) } else { Err(format!("{:?} failed: {talk}", self.0)) }
    }

    /// What the command writes to standard output; it talks to ours.
    pub fn answer(mut self) -> Result<String, String> {
        let output = self.0.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{:?} cannot be run: {error}", self.0))?;
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(answer) } else { Err(format!("{:?} failed", self.0)) }
    }

    /// What the command writes to standard output, if it succeeds.
    pub fn says(mut self) -> Option<String> {
        let output = self.0.stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command in a process group of its own, all of which is ended where it takes longer than the limit, or as soon as its output, which goes
    /// to a file, is enough.
    pub fn within(
        mut self,
        limit: Duration,
        log: &Path,
        enough: impl Fn(&str) -> bool,
    ) -> Result<Ended, String> {
        let failed = |error| format!("{}: {error}", log.display());
        let file = File::create(log).map_err(failed)?;
        let same = file.try_clone().map_err(failed)?;
        self.0.stdin(Stdio::null()).stdout(file).stderr(same).process_group(0);
        let begin = Instant::now();
        let mut child = self.0.spawn().map_err(|error| format!("{:?} cannot be run: {error}", self.0))?;
        let group = format!("-{}", child.id());
        let is_enough = || enough(&String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()));
        let ended = loop {
            match child.try_wait().map_err(|error| format!("{:?}: {error}", self.0))? {
                Some(status) if status.success() => return Ok(Ended::Well),
                Some(_) => return Ok(Ended::Badly),
                None if begin.elapsed() > limit => break Ended::Late,
                None if is_enough() => break Ended::Badly,
                None => sleep(Duration::from_millis(200)),
            }
        };
        // Launchers of MPI end their ranks, which have other groups, if they are asked.
        program("kill", &["-TERM", "--", &group]).works();
        let begin = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && begin.elapsed() < Duration::from_secs(5) {
            sleep(Duration::from_millis(50));
        }
        program("kill", &["-KILL", "--", &group]).works();
        child.wait().map_err(|error| format!("{:?}: {error}", self.0))?;
        Ok(ended)
    }

    pub fn works(mut self) -> bool {
        let status = self.0.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }
}

/// Makes sure of a Rust component. False if it is missing and cannot be had: its check is then left out, except in
/// continuous integration, where leaving a check out would be a lie.
pub fn rust_component(name: &str, check: &[&str]) -> Result<bool, String> {
    if cargo(check).works() {
        return Ok(true);
    }
    say(&format!("{name} is missing: installing it with rustup"));
    if program("rustup", &["component", "add", name]).works() && cargo(check).works() {
        return Ok(true);
    }
    if env::var_os("CI").is_some() {
        return Err(format!("{name} is missing and rustup cannot install it; install it and try again"));
    }
    say(&format!("{name} cannot be installed here: its check is left out"));
    Ok(false)
}

/// Makes sure of a system program. False if it is missing and cannot be had.
pub fn system_program(name: &str, package: &str) -> bool {
    if program(name, &["--version"]).works() {
        return true;
    }
    say(&format!("{name} is missing: installing the package {package} with apt-get"));
    install(package) && program(name, &["--version"]).works()
}

/// Installs a package of Debian.
pub fn install(package: &str) -> bool {
    let apt =
        |arguments: &[&str]| program("apt-get", arguments).env("DEBIAN_FRONTEND", "noninteractive").works();
    let installed =
        apt(&["install", "-y", package]) || (apt(&["update"]) && apt(&["install", "-y", package]));
    if !installed {
        say(&format!("{package} cannot be installed here; as root on Debian: apt-get install {package}"));
    }
    installed
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_well_or_badly_or_is_ended_with_all_that_it_began() {
        let log = env::temp_dir().join(format!("reshard-xtask-{}", std::process::id()));
        let shell = |line: &str, limit: Duration| {
            program("sh", &["-c", line]).within(limit, &log, |said| said.contains("enough")).unwrap()
        };
        let long = Duration::from_secs(60);
        assert!(matches!(shell("echo said; echo too >&2", long), Ended::Well));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "said\ntoo\n");
        assert!(matches!(shell("exit 3", long), Ended::Badly));
        assert!(matches!(shell("echo enough; sleep 50", long), Ended::Badly));
        let line = "sleep 50 & echo $!; wait";
        assert!(matches!(shell(line, Duration::from_millis(500)), Ended::Late));
        let child = std::fs::read_to_string(&log).unwrap();
        // Where nobody waits for it, it stays as a zombie.
        let state = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
        std::fs::remove_file(&log).unwrap();
    }
}
