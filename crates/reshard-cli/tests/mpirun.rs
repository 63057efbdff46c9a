//! The program under the launchers of this machine: every process a rank, one answer with the promised keys, one complaint.

#![allow(clippy::unwrap_used)]

use reshard::engine::Level;
use reshard_testkit::full_sweep;
use serde_json::Value;
use std::process::{Command, Output};

/// A launcher, what it needs to be told, and the MPI it belongs to.
struct Launcher {
    program: &'static str,
    flags: &'static [&'static str],
    family: &'static str,
}

const LAUNCHERS: [Launcher; 2] = [
    Launcher {
        program: "mpirun.openmpi",
        flags: &["--allow-run-as-root", "--oversubscribe"],
        family: "Open MPI",
    },
    Launcher { program: "mpirun.mpich", flags: &[], family: "MPICH" },
];

impl Launcher {
    fn launch(&self, ranks: usize, arguments: &[&str]) -> Output {
        self.command(ranks, arguments).output().unwrap()
    }

    fn command(&self, ranks: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.flags).args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_reshard")]);
        command.args(arguments);
        command
    }

    /// The answer of ranks with these levels, one for each rank: a job of several programs, each with an environment.
    fn json_at_levels(&self, levels: &[&str], arguments: &[&str]) -> Value {
        let mut command = Command::new(self.program);
        command.args(self.flags);
        for (rank, level) in levels.iter().enumerate() {
            command.args((rank > 0).then_some(":")).args(["-n", "1", "env"]);
            command.arg(format!("RESHARD_LEVEL={level}")).arg(env!("CARGO_BIN_EXE_reshard"));
            command.args(arguments).arg("--json");
        }
        let output = command.output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {levels:?}: {arguments:?}: {talk}", self.program);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn json(&self, ranks: usize, arguments: &[&str]) -> Value {
        let output = self.launch(ranks, &[arguments, &["--json"]].concat());
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {arguments:?}: {talk}", self.program);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Every rank finds the mistake, and the launcher ends all of them when the first fails: it is said all the same, once.
    fn complains(&self, ranks: usize, arguments: &[&str], says: &str) {
        let output = self.launch(ranks, arguments);
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {talk}");
        let said: Vec<&str> = talk.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(matches!(said[..], [only] if only.contains(says)), "{}: {arguments:?}: {talk}", self.program);
    }
}

/// Those that are here.
fn launchers() -> Vec<Launcher> {
    let is_here = |launcher: &Launcher| Command::new(launcher.program).arg("--version").output().is_ok();
    let here: Vec<Launcher> = LAUNCHERS.into_iter().filter(is_here).collect();
    assert!(
        !here.is_empty() || std::env::var_os("RESHARD_NEEDS_MPI").is_none(),
        "no MPI is installed, and it must be tested here"
    );
    here
}

#[test]
fn run_moves_the_array_between_processes() {
    let array = ["run", "--shape", "60x50", "--from", "2x2/8x8", "--to", "3x1/5x7", "--repeat", "2"];
    for launcher in launchers() {
        for (flags, mover) in [
            (&[][..], "private"),
            (&["--mover", "shared"], "shared"),
            (&["--mover", "shared-source"], "shared-source"),
            (&["--mover", "messages"], "messages"),
            (&["--mover", "alltoallw"], "alltoallw"),
        ] {
            let answer = launcher.json(5, &[&array[..], flags].concat());
            assert_eq!((&answer["engine"], &answer["mover"]), (&"mpi".into(), &mover.into()), "{answer}");
            assert_eq!((&answer["verified"], &answer["bytes"]), (&true.into(), &(60 * 50 * 8).into()));
            assert!(answer["mpi"].as_str().unwrap().starts_with(launcher.family), "{answer}");
            for seconds in [&answer["run_seconds"], &answer["copy_seconds"]] {
                assert!(
                    seconds["median"].as_f64() >= seconds["best"].as_f64()
                        && seconds["best"].as_f64() > Some(0.0)
                );
            }
        }
    }
}

/// Each mover with another level of this processor on each rank.
#[test]
fn ranks_of_any_levels_run_together() {
    let array = ["run", "--shape", "90x80", "--from", "2x2/3x5", "--to", "4x1/5x2", "--repeat", "1"];
    let available = Level::available();
    let name = |number: usize| available[number % available.len()].name();
    for launcher in launchers() {
        for (number, mover) in
            ["private", "shared", "shared-source", "messages", "mixed", "alltoallv"].into_iter().enumerate()
        {
            let kind = [&["--permute", "1,0"][..], &["--type", "u8"]][number % 2];
            let flags = [&array[..], &["--mover", mover], kind].concat();
            let levels: Vec<&str> = (number..number + 4).map(name).collect();
            let answer = launcher.json_at_levels(&levels, &flags);
            assert_eq!((&answer["verified"], &answer["level"]), (&true.into(), &levels[0].into()));
        }
        let bench = ["bench", "--shape", "90x80", "--from", "2x2/3x5", "--to", "4x1/5x2", "--repeat", "1"];
        let answer = launcher.json_at_levels(&["portable"; 4], &bench);
        assert_eq!(answer["level"], "portable");
    }
}

#[test]
fn an_unknown_level_is_said_once() {
    let run = ["run", "--shape", "90x80", "--from", "2x2/3x5", "--to", "4x1/5x2"];
    for launcher in launchers() {
        for arguments in [&run[..], &["bench", "--case", "i"]] {
            let output = launcher.command(4, arguments).env("RESHARD_LEVEL", "sse2").output().unwrap();
            let talk = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {talk}");
            let said: Vec<&str> = talk.lines().filter(|line| line.starts_with("error: ")).collect();
            let says = "RESHARD_LEVEL: there is no instruction set level `sse2`";
            assert!(matches!(said[..], [only] if only.contains(says)), "{}: {talk}", launcher.program);
        }
    }
}

/// With a rank that has nothing of the source, and one that has nothing at all.
#[test]
fn bench_verifies_and_measures_every_way() {
    let usual = [
        "memcpy",
        "stream",
        "alltoallv",
        "alltoallw",
        "reshard-shared",
        "reshard-private",
        "reshard-messages",
    ];
    let others = "optimal,stepwise,min-cost,split,async,eager,caterpillar,pipelined-caterpillar,reshard-mixed,reshard-shared-source,reshard-private-once";
    for launcher in launchers() {
        let names = |ranks: usize, flags: &[&str]| {
            let answer = launcher.json(ranks, &[&["bench", "--repeat", "2"], flags].concat());
            assert_eq!(answer["ranks"], ranks, "{answer}");
            assert!(answer["mpi"].as_str().unwrap().starts_with(launcher.family), "{answer}");
            let rows = answer["rows"].as_array().unwrap().clone();
            let right = |row: &Value| {
                row["median"].as_f64() >= row["best"].as_f64() && row["best"].as_f64() > Some(0.0)
            };
            assert!(rows.iter().all(right), "{answer}");
            rows.iter().map(|row| row["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        let mut all = names(3, &["--case", "ii", "--shape", "256x256"]);
        // If its library is here.
        all.retain(|name| name != "scalapack");
        assert_eq!(all, usual);
        let mut all =
            names(2, &["--shape", "70x30", "--from", "1x2/7x3", "--to", "2x1/5x5", "--only", others]);
        all.sort_unstable();
        let mut expected: Vec<&str> = others.split(',').chain(["memcpy"]).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
    }
}

/// Every method is verified with elements of any size, memory orders and permutations; ScaLAPACK moves doubles, column-major, as
/// they are.
#[test]
fn bench_takes_types_orders_and_permutations() {
    let array = ["bench", "--shape", "60x35", "--from", "2x1/7x3", "--to", "1x2/5x4", "--repeat", "1"];
    let methods =
        "alltoallv,alltoallw,reshard-shared,reshard-private,reshard-messages,reshard-shared-source,scalapack";
    let array = [&array[..], &["--only", methods]].concat();
    for launcher in launchers() {
        let answer = |flags: &[&str]| launcher.json(2, &[&array[..], flags].concat());
        let has_scalapack = |answer: &Value| {
            let rows = answer["rows"].as_array().unwrap();
            assert!(rows.len() >= 7, "{answer}");
            rows.iter().any(|row| row["name"] == "scalapack")
        };
        let plain = answer(&[]);
        let keys = ["type", "order", "to_order", "permute"].map(|key| plain[key].clone());
        assert_eq!(keys, ["f64".into(), "col".into(), "col".into(), Value::from(vec![0, 1])]);
        let is_installed = has_scalapack(&plain);
        for (kind, bytes) in
            [("u8", 1), ("u16", 2), ("f32", 4), ("f64", 8), ("c64", 8), ("c128", 16), ("12", 12)]
        {
            let answer = answer(&["--type", kind]);
            assert_eq!((&answer["type"], &answer["bytes"]), (&kind.into(), &(60 * 35 * bytes).into()));
            assert_eq!(has_scalapack(&answer), is_installed && kind == "f64", "{answer}");
        }
        let orders = answer(&["--order", "row", "--to-order", "col", "--type", "f32"]);
        assert_eq!((&orders["order"], &orders["to_order"]), (&"row".into(), &"col".into()));
        let turned = answer(&["--permute", "1,0", "--order", "row", "--type", "u8"]);
        assert_eq!((&turned["permute"], &turned["to_order"]), (&vec![1, 0].into(), &"row".into()));
        for flags in [&["--permute", "1,0"][..], &["--order", "row"]] {
            assert!(!has_scalapack(&answer(flags)), "{flags:?}");
        }
        for (flags, says) in [
            (["--type", "f99"], "--type: the type \"f99\" is not known"),
            (["--order", "up"], "--order: the order \"up\" is not known"),
            (["--permute", "1,1"], "--permute: [1, 1] is not a permutation"),
        ] {
            launcher.complains(2, &[&array[..], &flags].concat(), says);
        }
    }
}

#[test]
fn bench_says_what_is_wrong_once() {
    // Ranks, flags, and what is said. All ways but memcpy need the four ranks of the case, ScaLAPACK's library, too.
    let mistakes: [(usize, &[&str], &str); 3] = [
        (4, &["--only", "fast"], "there is no method \"fast\""),
        (2, &[], "start 4 processes"),
        (2, &["--only", "scalapack"], "start 4 processes"),
    ];
    for launcher in launchers() {
        for (ranks, flags, says) in
            mistakes.iter().cycle().take(if full_sweep() { 4 } else { 2 } * mistakes.len())
        {
            launcher.complains(*ranks, &[&["bench", "--case", "i"], *flags].concat(), says);
        }
    }
}

#[test]
fn ring_passes_items_on_between_processes() {
    let ring = ["ring", "--run", "--loads", "9,0,3", "--targets", "3,5,4", "--ordered"];
    for launcher in launchers() {
        let answer = launcher.json(4, &ring);
        assert_eq!(
            (&answer["engine"], &answer["verified"], &answer["bytes"]),
            (&"mpi".into(), &true.into(), &56.into())
        );
        assert!(answer["mpi"].as_str().unwrap().starts_with(launcher.family), "{answer}");
        assert!(answer["scratch_bytes"].as_u64().unwrap() > 0);
        // One process too few, and too little memory for message buffers.
        let few = "the ring has 3 processes, but the communicator has 2 ranks; start 3";
        launcher.complains(2, &ring, few);
        launcher.complains(3, &[&ring[..], &["--memory", "3"]].concat(), "--memory: ");
    }
}

/// What ranks convert together is what one process converts, byte by byte, and what is wrong is said once.
#[test]
fn convert_is_shared_by_the_ranks() {
    let folder = std::env::temp_dir().join(format!("reshard-mpirun-convert-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_string();
    let alone = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_reshard")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let made = path("made");
    alone(&["make", &made, "--shape", "1500x1700", "--layout", "4x4/16x16"]);
    alone(&["convert", &made, &path("expected"), "--to", "3x3/10x10"]);
    for (number, launcher) in launchers().into_iter().enumerate() {
        let new = path(&format!("new{number}"));
        // Boxes of 4 MiB: each rank has some.
        let answer = launcher.json(3, &["convert", &made, &new, "--to", "3x3/10x10", "--memory", "16MiB"]);
        assert_eq!(
            (&answer["bytes"], &answer["done"]),
            (&(1500 * 1700 * 8).into(), &true.into()),
            "{answer}"
        );
        assert!(answer["boxes"].as_u64().unwrap() >= 1, "{answer}");
        alone(&["verify", &new]);
        for rank in 0..9 {
            let file = |set: &str| std::fs::read(format!("{set}/rank_{rank:04}.npy")).unwrap();
            assert!(file(&new) == file(&path("expected")), "rank {rank}");
        }
        launcher.complains(3, &["convert", &made, &new, "--to", "3x3/10x10"], "exists already");
        launcher.complains(
            3,
            &["convert", &path("absent"), &path("x"), "--to", "3x3/10x10"],
            "cannot be opened",
        );
        launcher.complains(3, &["convert", &made, &path("x"), "--to", "3x3/10y10"], "--to");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
