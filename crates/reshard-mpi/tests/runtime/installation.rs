//! The MPIs of this machine, and launches with a time limit. Two tests use it, each some of it.

#![allow(dead_code)]

use reshard_testkit::full_sweep;
use reshard_testkit::hosts::Hosts;
use reshard_testkit::parts::Part;
use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A launch that takes longer hangs, on the slowest machine; whole sweeps take their time.
fn time_limit() -> Duration {
    Duration::from_secs(if full_sweep() { 3600 } else { 1200 })
}

/// The number of ranks that are threads of this process, if they are to be.
pub const THREADS: &str = "RESHARD_MPI_TEST_THREADS";

/// One launcher with one library.
#[derive(Clone, Debug)]
pub struct Installation {
    launcher: PathBuf,
    /// As its version begins.
    pub family: &'static str,
    /// What the program is told to load; nothing if it is to find out.
    pub choice: String,
    /// Whether it belongs to the system, and is found by name.
    pub system: bool,
}

/// No MPI at all: every rank is a thread of one process, which `env` starts.
pub fn threads() -> Installation {
    Installation { launcher: "env".into(), family: "threads", choice: "no MPI".into(), system: false }
}

/// All there are: those of the system under each of their names, and those in `target/mpi`, by path.
pub fn all() -> Vec<Installation> {
    let mut found = Vec::new();
    let mut add = |launcher: &Path, family, choice: &str, system| {
        found.push(Installation {
            launcher: launcher.to_path_buf(),
            family,
            choice: choice.to_string(),
            system,
        });
    };
    let first = |names: &[&str]| names.iter().find_map(|name| on_path(name));
    if let Some(launcher) = first(&["mpirun.openmpi"]).or_else(|| plain("Open MPI")) {
        add(&launcher, "Open MPI", "openmpi", true);
        add(&launcher, "Open MPI", "", false);
    }
    if let Some(launcher) = first(&["mpirun.mpich", "mpiexec.hydra"]).or_else(|| plain("HYDRA")) {
        add(&launcher, "MPICH", "mpich", true);
        add(&launcher, "MPICH", "", false);
    }
    let fetched = [
        ("openmpi", "Open MPI", "libmpi.so.40"),
        ("mpich", "MPICH", "libmpi.so.12"),
        ("mpich", "MPICH", "libmpi_abi.so.1"),
        ("impi-rt", "Intel MPI", "libmpi.so.12"),
        ("impi-rt", "Intel MPI", "libmpi_abi.so.1"),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpi");
    for (name, family, library) in fetched {
        let launcher = folder.join(name).join("bin/mpirun");
        let library = folder.join(name).join("lib").join(library);
        if launcher.exists() && library.exists() {
            add(&launcher, family, &library.canonicalize().unwrap().to_string_lossy(), false);
        }
    }
    found
}

/// One installation of Open MPI and one of MPICH, those of the system if there are such: the others differ in how they are found. None where
/// there is none, unless the environment says that they must be tested.
pub fn one_of_each() -> Vec<Installation> {
    let mut installations = all();
    installations.retain(|installation| ["Open MPI", "MPICH"].contains(&installation.family));
    installations.dedup_by_key(|installation| installation.family);
    assert!(
        !installations.is_empty() || std::env::var_os("RESHARD_NEEDS_MPI").is_none(),
        "no MPI is installed, and it must be tested here"
    );
    installations
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())
}

/// `mpirun`, if it is of this family.
fn plain(family: &str) -> Option<PathBuf> {
    let launcher = on_path("mpirun")?;
    let output = Command::new(&launcher).arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).contains(family).then_some(launcher)
}

/// A test on an installation: `openmpi::rings`, or `openmpi (by search)::rings` where the program is to find the library.
pub fn part<'a>(installation: &'a Installation, name: &str, run: fn(&Installation)) -> Part<'a> {
    let Installation { family, choice, .. } = installation;
    let how = match choice.rsplit('/').next().unwrap_or_default() {
        "" => " (by search)".to_string(),
        file if choice.contains('/') => format!(" ({file})"),
        _ => String::new(),
    };
    let run = move || {
        println!("{installation}");
        run(installation);
    };
    (format!("{}{how}::{name}", family.to_lowercase().replace(' ', "")), Box::new(run))
}

/// What a launch came to.
pub struct Outcome {
    what: String,
    /// Nothing if the time was over.
    status: Option<ExitStatus>,
    text: String,
    took: Duration,
}

impl Installation {
    /// This installation's launcher with another library.
    pub fn choosing(&self, choice: &str) -> Self {
        Self { choice: choice.to_string(), ..self.clone() }
    }

    /// True if ranks are processes, connected by MPI.
    pub fn has_mpi(&self) -> bool {
        self.family != "threads"
    }

    /// Starts this program with a part to play, and waits for it, but not for ever.
    pub fn launch(&self, part: &str, ranks: usize) -> Outcome {
        self.play(self.launcher(ranks), part, ranks)
    }

    /// This installation with more arguments for the launcher.
    pub fn launch_with(&self, words: &[&str], part: &str, ranks: usize) -> Outcome {
        let mut command = self.launcher(ranks);
        command.args(words);
        self.play(command, part, ranks)
    }

    fn launcher(&self, ranks: usize) -> Command {
        let mut command = Command::new(&self.launcher);
        match self.family {
            "threads" => command.arg(format!("{THREADS}={ranks}")),
            "Open MPI" => command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]),
            _ => command.args(["-n", &ranks.to_string()]),
        };
        command
    }

    /// This installation with every rank in a PID namespace of its own, where it cannot see the others; nothing if that cannot be
    /// had.
    pub fn launch_hidden(&self, part: &str, ranks: usize) -> Option<Outcome> {
        let hide = ["--pid", "--fork", "--mount-proc"];
        let works = Command::new("setarch")
            .args(["-R", "unshare"])
            .args(hide)
            .arg("true")
            .stderr(Stdio::null())
            .status();
        if !works.is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = self.launcher(ranks);
        // Neither can MPI reach the others' memory there.
        for (name, value) in [("OMPI_MCA_btl", "tcp,self"), ("OMPI_MCA_pml", "ob1"), ("UCX_TLS", "tcp,self")]
        {
            command.env(name, value);
        }
        // Processes that are alike to the last address, too: only a random number tells whose memory is whose.
        command.args(["setarch", "-R", "unshare"]).args(hide);
        Some(self.play(command, part, ranks))
    }

    /// This installation on several simulated hosts, with a number of ranks on each.
    pub fn launch_on(&self, hosts: &Hosts, ranks: &[usize], part: &str) -> Outcome {
        self.play(hosts.launch(&self.launcher, self.family, ranks), part, ranks.iter().sum())
    }

    fn play(&self, mut command: Command, part: &str, ranks: usize) -> Outcome {
        command.arg(std::env::current_exe().unwrap());
        command.env(super::PART, part).env("RESHARD_MPI", &self.choice);
        // Intel's libraries come without the network's; shared memory needs none.
        command.env("I_MPI_FABRICS", "shm");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let begin = Instant::now();
        let mut child = command.spawn().unwrap();
        let readers = [reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap())];
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if begin.elapsed() > time_limit() => break None,
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let took = begin.elapsed();
        if status.is_none() {
            // The group that was made for it, by its number.
            Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status().unwrap();
            child.wait().unwrap();
        }
        let text = readers.map(|reader| reader.join().unwrap()).concat();
        println!("  {part} with {ranks}: {:.2} s", took.as_secs_f64());
        Outcome { what: format!("{self}: {part} with {ranks} ranks"), status, text, took }
    }
}

fn reader(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Outcome {
    /// All ranks played their part to the end.
    pub fn succeeded(&self, ranks: usize) {
        assert!(self.status.is_some_and(|status| status.success()), "{self}");
        for rank in 0..ranks {
            assert!(self.text.contains(&format!("[{rank}/{ranks} done]")), "rank {rank} is missing: {self}");
        }
    }

    /// It ended by itself, with a failure that says all this.
    pub fn failed(&self, says: &[&str]) {
        assert!(self.status.is_some_and(|status| !status.success()), "{self}");
        let text = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in says {
            assert!(text.contains(word), "does not say {word:?}: {self}");
        }
    }

    /// Prints the lines that have a word.
    pub fn show(&self, word: &str) {
        self.text.lines().filter(|line| line.contains(word)).for_each(|line| println!("  {}", line.trim()));
    }

    pub fn never_says(&self, word: &str) {
        assert!(!self.text.contains(word), "says {word:?}: {self}");
    }

    pub fn took_less_than(&self, limit: Duration) {
        assert!(self.took < limit, "took longer than {limit:?}: {self}");
    }
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choice = if self.choice.is_empty() { "whatever fits" } else { &self.choice };
        write!(f, "{} with {choice}", self.launcher.display())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.status.map_or_else(|| "ran out of time".to_string(), |status| status.to_string());
        write!(f, "{}: {end} after {:.1} s\n{}", self.what, self.took.as_secs_f64(), self.text)
    }
}
