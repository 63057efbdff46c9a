//! A folder in which the program runs, and the tracer that lets its calls of the system go wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program that is tested.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_reshard");

/// A source that `make` does not make.
pub const MODEL: &str = "a model";

/// Exit code of a program that was killed.
pub const KILLED: i32 = 137;

/// A folder of one test, which is removed with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        // In memory, if possible: making files durable takes a disk longer than all the rest.
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = base.join(format!("reshard-sets-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs the program, for a minute at most.
    pub fn run(&self, command: &str) -> Outcome {
        self.run_by(&["timeout", "1200", PROGRAM], command)
    }

    /// Runs the program by another one. `|` stands for a space inside of a word.
    pub fn run_by(&self, by: &[&str], command: &str) -> Outcome {
        let mut program = Command::new(by[0]);
        let words = command.split_whitespace().map(|word| word.replace('|', " "));
        program.args(&by[1..]).args(words).current_dir(&self.0);
        // Cargo sets it for programs that need libraries of its own, and the loader would look for all there.
        program.env_remove("LD_LIBRARY_PATH");
        Outcome::of(command, &program.output().unwrap())
    }

    /// Runs the program, which must succeed.
    pub fn good(&self, command: &str) {
        let outcome = self.run(command);
        assert_eq!(outcome.code, 0, "{outcome}");
    }

    /// Makes what is converted: by `make`, or the files of a model.
    pub fn source(&self, what: &str) {
        match what {
            MODEL => crate::tensors::write_model(&self.path("source"), 2),
            flags => self.good(&format!("make source {flags} --seed 5")),
        }
    }

    /// Runs the program with a fault: see faults.c.
    pub fn fault(&self, tracer: &Path, what: &str, at: &str, calls: &str, command: &str) -> Outcome {
        let mut outcome = self
            .run_by(&["timeout", "1200", tracer.to_str().unwrap(), what, at, calls, "-", PROGRAM], command);
        outcome.command = format!("{command} ({what} at call {at} of {calls})");
        outcome
    }

    /// The calls that a command makes, one in a line.
    pub fn calls(&self, tracer: &Path, calls: &str, command: &str) -> Vec<String> {
        let log = self.0.with_extension("log");
        let by = [
            "timeout",
            "1200",
            tracer.to_str().unwrap(),
            "count",
            "0",
            calls,
            log.to_str().unwrap(),
            PROGRAM,
        ];
        self.run_by(&by, command);
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(log).unwrap();
        text.lines().map(String::from).collect()
    }

    /// Directories of runs that have not come to their end.
    pub fn partial(&self) -> Vec<PathBuf> {
        let entries = self.0.read_dir().unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_string_lossy().ends_with(".reshard-partial")).collect()
    }

    pub fn remove(&self, name: &str) {
        for path in [self.path(name), self.path(&format!(".{name}.reshard-partial"))] {
            let removed =
                if path.is_file() { std::fs::remove_file(&path) } else { std::fs::remove_dir_all(&path) };
            assert!(removed.is_ok() || !path.exists(), "{removed:?}");
        }
    }

    /// The bytes of a file.
    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// All files of a directory, by name, or the one that it is itself; none if it is not there.
    pub fn files(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        if self.path(name).is_file() {
            return Some(BTreeMap::from([(name.into(), self.bytes_of(name))]));
        }
        let entries = self.path(name).read_dir().ok()?.map(|entry| entry.unwrap());
        let file = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        };
        Some(entries.map(file).collect())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the program answered.
pub struct Outcome {
    pub command: String,
    pub code: i32,
    pub said: String,
}

impl Outcome {
    fn of(command: &str, output: &Output) -> Self {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { command: command.into(), code: output.status.code().unwrap_or(-1), said }
    }

    /// It must have said in one sentence why it failed.
    pub fn refused(&self, code: i32, expected: &str) {
        assert!(self.is_refused(code, expected), "{self}, not {expected:?}");
    }

    /// True if it said in one sentence why it failed.
    pub fn is_refused(&self, code: i32, expected: &str) -> bool {
        let sentence = self.said.starts_with("error: ") && self.said.lines().count() == 1;
        let clean = !self.said.trim_end().chars().any(char::is_control) && self.said.len() < 1000;
        self.code == code && sentence && clean && self.said.contains(expected)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: exit code {}, {}", self.command, self.code, self.said.trim_end())
    }
}

/// The tracer; none, with a sentence, where it cannot be had.
pub fn tracer() -> Option<&'static Path> {
    static TRACER: OnceLock<Option<PathBuf>> = OnceLock::new();
    TRACER.get_or_init(compiled).as_deref()
}

fn compiled() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let tracer = folder.join(format!("faults-{}", std::process::id()));
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&tracer);
    let compiled = compile.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sets/faults.c")).status();
    if !compiled.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("RESHARD_NEEDS_COMPILERS").is_none(), "faults.c cannot be compiled");
        println!("no C compiler is here: what happens when calls of the system go wrong is not tested");
        return None;
    }
    // It need not outlive the tests, and nothing runs at their end: so it is kept under one name.
    let kept = folder.join("faults");
    std::fs::rename(&tracer, &kept).unwrap();
    let tried = Command::new(&kept).args(["7", "0", "all", "-", "/bin/true"]).output().unwrap();
    if tried.status.code() != Some(0) {
        let said = String::from_utf8_lossy(&tried.stderr);
        println!("no process can trace another here, so calls of the system cannot go wrong: {said}");
        return None;
    }
    Some(kept)
}
