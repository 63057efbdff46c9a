//! A conversion that ranks of MPI share, of which one is killed before a call by which it changes something: between what all have agreed on and the
//! renaming, too. The destination is absent or complete, and the next run, of other ranks or of one process, gives what an undisturbed one
//! gives.

use crate::folder::{Folder, MODEL, PROGRAM, tracer};
use reshard_testkit::{Random, full_sweep};
use std::collections::BTreeMap;
use std::process::Command;

type Files = BTreeMap<String, Vec<u8>>;

pub const LAUNCHERS: [&[&str]; 2] =
    [&["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], &["mpirun.mpich"]];

/// Which ranks are killed at which calls. Only rank 0 gives files their names.
const CALLS: [(usize, &str); 8] = [
    (0, "pwrite64"),
    (0, "fdatasync"),
    (0, "fsync"),
    (0, "renameat"),
    (0, "renameat2"),
    (0, "unlinkat"),
    (1, "pwrite64"),
    (1, "fsync,fdatasync"),
];

/// What is made, and what is made of it.
const CASES: [(&str, &str); 2] = [
    ("--shape 40x30 --layout 2x2/8x8", "convert source new --to 3x1/7x9 --box-bytes 1600"),
    (
        MODEL,
        "convert source/tp{rank}.safetensors new --from *.down=(*,|block)|on|1x2 --from (block,|*)|on|2x1 --from (*)|on|2 \
         --to (*,|block)|on|1x3 --to (*)|on|3 --box-bytes 500",
    ),
];

/// A command by three ranks, one of them under the tracer.
fn traced(launcher: &[&str], rank: usize, tracer: [&str; 5], command: &str) -> Vec<String> {
    let words = || command.split_whitespace().map(|word| word.replace('|', " "));
    let mut by: Vec<String> = ["timeout", "1200"].iter().chain(launcher).map(|word| (*word).into()).collect();
    for other in 0..3 {
        by.extend((other > 0).then(|| ":".into()));
        by.extend(["-n".into(), "1".into()]);
        by.extend(tracer.iter().filter(|_| other == rank).map(|word| (*word).into()));
        by.push(PROGRAM.into());
        by.extend(words());
    }
    by
}

fn run(folder: &Folder, by: &[String]) -> Option<i32> {
    let mut program = Command::new(&by[0]);
    program.args(&by[1..]).current_dir(&folder.0).env_remove("LD_LIBRARY_PATH");
    program.output().unwrap().status.code()
}

#[test]
fn ranks_that_are_killed_leave_what_can_be_continued() {
    let Some(tracer) = tracer() else { return };
    let tracer = tracer.to_str().unwrap();
    let mut random = Random::new(4);
    let points: usize = CASES.iter().map(|(make, convert)| killed(tracer, make, convert, &mut random)).sum();
    println!("ranks were killed {points} times");
}

/// A conversion whose ranks are killed. Returns how often.
fn killed(tracer: &str, make: &str, convert: &str, random: &mut Random) -> usize {
    let folder = Folder::new("ranks");
    folder.source(make);
    folder.good(convert);
    let (source, expected) = (folder.files("source").unwrap(), folder.files("new").unwrap());
    folder.remove("new");
    let is_here = |launcher: &&&[&str]| Command::new(launcher[0]).arg("--version").output().is_ok();
    let mut points = 0;
    for launcher in LAUNCHERS.iter().filter(is_here) {
        for (rank, calls) in CALLS {
            let log = folder.path("log");
            let count = traced(launcher, rank, [tracer, "count", "0", calls, log.to_str().unwrap()], convert);
            assert_eq!(run(&folder, &count), Some(0), "{count:?}");
            // As several ranks compute checksums and boxes in another order, not even the journal is left.
            assert!(folder.files("new").unwrap() == expected, "{count:?}");
            folder.remove("new");
            let all = std::fs::read_to_string(&log).unwrap().lines().count() as u64;
            std::fs::remove_file(&log).unwrap();
            assert!(all > 0, "rank {rank} makes no calls of {calls}");
            let chosen: Vec<u64> = match full_sweep() {
                true => (1..=all).collect(),
                false => vec![random.within(1, all)],
            };
            for at in chosen {
                let when = format!("{launcher:?}: rank {rank} killed at call {at} of {calls}");
                let kill = traced(launcher, rank, [tracer, "kill", &at.to_string(), calls, "-"], convert);
                assert_ne!(run(&folder, &kill), Some(0), "{when}");
                points += 1;
                continued(&folder, launcher, convert, (&source, &expected), &when, random.one_in(2));
            }
        }
    }
    points
}

/// The next run gives what it must: by ranks again, or by one process.
fn continued(
    folder: &Folder,
    launcher: &[&str],
    convert: &str,
    (source, expected): (&Files, &Files),
    when: &str,
    together: bool,
) {
    let set = || {
        let mut files = folder.files("new")?;
        files.retain(|name, _| !name.starts_with(".journal"));
        Some(files)
    };
    if let Some(files) = set() {
        assert!(files == *expected, "{when}");
        folder.good("verify new");
    }
    let done = folder.files("new").is_some_and(|files| files == *expected);
    let resume = format!("{convert} --resume");
    match (done, together) {
        (true, _) => folder.run(&resume).refused(1, "exists already"),
        (false, false) => folder.good(&resume),
        (false, true) => {
            let mut by: Vec<String> =
                ["timeout", "1200"].iter().chain(launcher).map(|word| (*word).into()).collect();
            by.extend(["-n".into(), "3".into(), PROGRAM.into()]);
            by.extend(resume.split_whitespace().map(|word| word.replace('|', " ")));
            assert_eq!(run(folder, &by), Some(0), "{when}");
        }
    }
    assert_eq!(folder.partial(), Vec::<std::path::PathBuf>::new(), "{when}");
    assert!(folder.files("new").unwrap() == *expected, "{when}");
    assert!(folder.files("source").unwrap() == *source, "{when}");
    folder.remove("new");
}
