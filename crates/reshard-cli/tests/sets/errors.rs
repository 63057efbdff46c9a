//! The system says no at each of the program's calls: there is no room, no quota, a fault of the disk; or it was interrupted, or did half of what
//! it was asked for. The program never ends well with a bad result, and what can be continued is.

use crate::folder::{Folder, MODEL, Outcome, tracer};
use reshard_testkit::{Random, full_sweep};
use std::collections::BTreeMap;
use std::path::Path;

const NO_ROOM: &str = "28";
const NO_QUOTA: &str = "122";
const DISK_FAULT: &str = "5";
const INTERRUPTED: &str = "4";
/// Not a number: the call does half.
const SHORT: &str = "short";

const CASES: [(&str, &str); 7] = [
    ("--shape 40x30 --layout 2x2/8x8", "source new --to 3x1/7x9 --box-bytes 3000"),
    (
        "--shape 40x30 --layout 3x1/7x9 --type f32",
        "source new --to 2x2/5x5 --transpose --box-bytes 2000 --threads 1",
    ),
    ("--shape 33x21 --layout 2x2/4x4 --type i16", "source new --to 1x3/5x7|memory=row --format raw"),
    (
        "--shape 20x30 --layout 2x1/8x8",
        "source/rank_{rank:04}.npy new --from 2x1/8x8 --to 3x1/7x9 --box-bytes 3000",
    ),
    ("--shape 20x30 --layout 2x1/8x8", "source whole.npy --to 1x1/20x30 --box-bytes 3000"),
    ("--shape 20x30 --layout 2x1/8x8", "source new --to 3x1/7x9 --no-checksums"),
    (
        MODEL,
        "source/tp{rank}.safetensors new --from *.down=(*,|block)|on|1x2 --from (block,|*)|on|2x1 --from (*)|on|2 \
         --to (*,|block)|on|1x3 --to (*)|on|3 --box-bytes 1000",
    ),
];

/// What a command gave where nothing went wrong.
struct Case<'t> {
    tracer: &'t Path,
    folder: Folder,
    command: String,
    resume: &'static str,
    /// What is written: a set, or one file.
    new: &'static str,
    source: Option<BTreeMap<String, Vec<u8>>>,
    expected: BTreeMap<String, Vec<u8>>,
    calls: Vec<String>,
}

impl<'t> Case<'t> {
    fn new(tracer: &'t Path, folder: Folder, command: &str, new: &'static str, resume: &'static str) -> Self {
        let command = command.to_string();
        let calls = folder.calls(tracer, "all", &command);
        let (source, expected) = (folder.files("source"), folder.files(new).unwrap());
        let case = Self { tracer, folder, command, resume, new, source, expected, calls };
        case.verify();
        case.folder.remove(new);
        case
    }

    /// Of one file nothing is known but its bytes.
    fn verify(&self) {
        if self.new == "new" {
            self.folder.good("verify new");
        }
    }

    fn all(tracer: &'t Path) -> Vec<Self> {
        let mut cases = Vec::new();
        for (number, (make, convert)) in CASES.iter().enumerate() {
            let folder = Folder::new(&format!("errors-{number}"));
            folder.source(make);
            let new = convert.split(' ').nth(1).unwrap();
            cases.push(Self::new(tracer, folder, &format!("convert {convert}"), new, " --resume"));
        }
        let make = "make new --shape 40x30 --layout 2x2/8x8";
        cases.push(Self::new(tracer, Folder::new("errors-make"), make, "new", ""));
        cases
    }

    fn fails_at(&self, what: &str, at: &str) {
        let Self { folder, command, new, .. } = self;
        let outcome = folder.fault(self.tracer, what, at, "all", command);
        assert!(folder.files("source") == self.source, "{outcome}");
        let there = folder.files(new).is_some_and(|mut files| {
            files.remove(".journal");
            assert!(files == self.expected, "{outcome}");
            true
        });
        match what {
            INTERRUPTED | SHORT => assert!(outcome.code == 0 && there, "{outcome}"),
            _ if outcome.code == 0 => assert!(there, "{outcome}"),
            _ => self.continued(&outcome, there),
        }
        assert_eq!(folder.partial(), Vec::<std::path::PathBuf>::new(), "{outcome}");
        folder.remove(new);
    }

    /// After a failure the next run, which nothing disturbs, gives what it must.
    fn continued(&self, outcome: &Outcome, there: bool) {
        outcome.refused(1, "");
        if there {
            assert!(outcome.said.contains("is complete"), "{outcome}");
            let traces = self.folder.path("new/.journal").exists() || !self.folder.partial().is_empty();
            if self.resume.is_empty() || !traces {
                return self.verify();
            }
        }
        let again = self.folder.run(&format!("{}{}", self.command, self.resume));
        match there && self.new != "new" && again.code != 0 {
            true => again.refused(1, "exists already"),
            false => assert_eq!(again.code, 0, "{again}, after {outcome}"),
        }
        assert!(self.folder.files(self.new).unwrap() == self.expected, "{outcome}");
    }
}

#[test]
fn calls_that_fail_leave_nothing_bad() {
    let Some(tracer) = tracer() else { return };
    let mut random = Random::new(3);
    let mut points = 0;
    for case in Case::all(tracer) {
        let count = case.calls.len();
        assert!(count > 30, "{count} calls");
        // A file system that never does more than half.
        case.fails_at(SHORT, "1+");
        for what in [NO_ROOM, NO_QUOTA, DISK_FAULT, INTERRUPTED, SHORT] {
            // Other threads may come first, so that a number is not always the same call.
            let step = if full_sweep() { 1 } else { 36 };
            let mut at = random.within(1, step) as usize;
            while at <= count {
                case.fails_at(what, &at.to_string());
                points += 1;
                at += step as usize;
            }
        }
    }
    println!("{points} calls failed");
}

/// The calls by which a set gets its name, and those on which all others stand, one by one.
#[test]
fn calls_that_fail_are_named() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("errors-named");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    let convert = "convert source new --to 3x1/7x9 --box-bytes 3000";
    let last = folder.calls(tracer, "renameat", convert).len().to_string();
    folder.remove("new");
    for (what, at, calls, expected) in [
        (NO_ROOM, "1+", "pwrite64", "make room, then continue with --resume"),
        (NO_QUOTA, "3", "pwrite64", "make room, then continue with --resume"),
        (NO_ROOM, "1", "mkdirat", "nothing can be written beside it"),
        (NO_ROOM, "2", "write", ".journal cannot be written"),
        (DISK_FAULT, "1", "fsync", "cannot be made durable"),
        (DISK_FAULT, "1", "fdatasync", ".journal cannot be written"),
        (DISK_FAULT, "1", "renameat", ".journal cannot be written"),
        (DISK_FAULT, &last, "renameat", "reshard.json cannot be written"),
        (DISK_FAULT, "1", "renameat2", "cannot be given its name"),
        (DISK_FAULT, "1", "flock", "cannot be locked"),
        (DISK_FAULT, "1", "ftruncate", "rank_0000.npy cannot be written"),
        (DISK_FAULT, "5", "pread64", "cannot be read"),
        (DISK_FAULT, "1", "unlinkat", "new is complete"),
    ] {
        folder.fault(tracer, what, at, calls, convert).refused(1, expected);
        let complete = expected == "new is complete";
        assert_eq!(folder.path("new").exists(), complete, "{calls}");
        // What is complete is verified; the rest is continued.
        folder.good(if complete { "verify new" } else { "verify source" });
        folder.good(&format!("{convert} --resume"));
        folder.good("verify new");
        assert_eq!(folder.files("new").unwrap().len(), 4, "{calls}");
        folder.remove("new");
    }
}

/// Directories are listed again if a signal interrupts that: of what is left out, nobody would know.
#[test]
fn lists_that_are_interrupted_are_whole() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("errors-lists");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    let convert = "convert source new --to 3x1/7x9";
    let lists = folder.calls(tracer, "getdents64", convert).len();
    folder.remove("new");
    for at in 1..=lists {
        let outcome = folder.fault(tracer, INTERRUPTED, &at.to_string(), "getdents64", convert);
        assert_eq!(outcome.code, 0, "{outcome}");
        folder.good("verify new");
        assert!(!folder.path("new/.journal").exists(), "{outcome}");
        folder.remove("new");
    }
}

/// A file system that cannot rename without replacing.
#[test]
fn sets_get_their_name_where_none_can_be_reserved() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("errors-rename");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    // Invalid argument, not implemented, not supported.
    for errno in ["22", "38", "95"] {
        let convert = "convert source new --to 3x1/7x9";
        let outcome = folder.fault(tracer, errno, "1+", "renameat2", convert);
        assert_eq!(outcome.code, 0, "{outcome}");
        folder.good("verify new");
        folder.fault(tracer, errno, "1+", "renameat2", convert).refused(1, "exists already");
        folder.remove("new");
    }
}

/// A file system that cannot rename without replacing, and a file that appears just before the destination gets its name: it is not replaced. A run
/// that is killed then leaves what can be continued.
#[test]
fn what_appears_at_the_last_moment_is_not_replaced() {
    let Some(tracer) = tracer() else { return };
    for (new, to, calls) in [("new", "3x1/7x9", "renameat"), ("whole.npy", "1x1/40x30", "renameat,linkat")] {
        let folder = Folder::new("errors-appears");
        folder.good("make source --shape 40x30 --layout 2x2/8x8");
        let convert = format!("convert source {new} --to {to}");
        folder.good(&convert);
        let expected = folder.files(new);
        folder.remove(new);
        // The last of these calls gives the name: the others are those of the journal and of the manifest.
        let put = format!("put={}", folder.path(new).display());
        let undisturbed = folder.fault(tracer, &put, "99", calls, &convert);
        assert_eq!(undisturbed.code, 0, "{undisturbed}");
        assert!(folder.files(new) == expected, "{undisturbed}");
        folder.remove(new);
        folder.fault(tracer, &put, "3", calls, &convert).refused(1, "exists already, and did not");
        assert_eq!(folder.bytes_of(new), b"precious");
        std::fs::remove_file(folder.path(new)).unwrap();
        folder.good(&format!("{convert} --resume"));
        assert!(folder.files(new) == expected && folder.partial().is_empty());
        folder.remove(new);
        // Killed after each of the calls that follow, as a file has two names for a moment.
        let calls = "renameat,linkat,unlinkat,fsync";
        for at in 1..20 {
            let outcome = folder.fault(tracer, "put=kill", &at.to_string(), calls, &convert);
            if outcome.code == 0 {
                assert!(at > 5, "{outcome}");
                break;
            }
            assert_eq!(outcome.code, crate::folder::KILLED, "{outcome}");
            let there = folder.files(new).map(|mut files| {
                files.remove(".journal");
                files
            });
            assert!(there.is_none() || there == expected, "{outcome}");
            let resumed = folder.run(&format!("{convert} --resume"));
            if there.is_some() && new != "new" && resumed.code != 0 {
                // Of a file that has its name, no more than an empty directory was left.
                resumed.refused(1, "exists already");
            } else {
                assert_eq!(resumed.code, 0, "{resumed}, after {outcome}");
            }
            assert!(folder.files(new) == expected && folder.partial().is_empty(), "{outcome}");
            folder.remove(new);
        }
    }
}

/// A file system that has no locks, or none for directories: whoever makes the staging directory has it.
#[test]
fn sets_are_written_where_there_are_no_locks() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("errors-locks");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    let convert = "convert source new --to 3x1/7x9 --box-bytes 3000";
    let resume = format!("{convert} --resume");
    // Not implemented, not supported.
    for errno in ["38", "95"] {
        let without_locks = |command: &str| folder.fault(tracer, errno, "1+", "flock", command);
        assert_eq!(without_locks(convert).code, 0, "{}", without_locks(convert));
        folder.good("verify new");
        folder.remove("new");
        // Begun by a run that was killed, or that is still writing: nobody can tell.
        let killed = folder.fault(tracer, "kill", "40", "changing", convert);
        assert_eq!(killed.code, crate::folder::KILLED, "{killed}");
        for command in [convert, "make new --shape 9 --layout 2/3"] {
            without_locks(command).refused(1, "has no locks that say whether a process is writing it");
        }
        assert_eq!(without_locks(&resume).code, 0, "{}", without_locks(&resume));
        folder.good("verify new");
        folder.remove("new");
    }
}

/// A file system that cannot make the names in a directory durable.
#[test]
fn sets_are_written_where_directories_are_not_flushed() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("errors-flush");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    let convert = "convert source new --to 3x1/7x9";
    let calls = folder.calls(tracer, "fsync,renameat,renameat2", convert);
    folder.remove("new");
    let named = calls.iter().rposition(|call| call.starts_with("renameat ")).unwrap();
    let ends: Vec<&str> = calls[named..].iter().map(|call| call.split(' ').next().unwrap()).collect();
    assert_eq!(ends, ["renameat", "fsync", "renameat2", "fsync"]);
    for at in [named + 2, named + 4] {
        let outcome = folder.fault(tracer, "22", &at.to_string(), "fsync,renameat,renameat2", convert);
        assert_eq!(outcome.code, 0, "{outcome}");
        folder.good("verify new");
        folder.remove("new");
    }
    // Of a file it is no answer.
    folder.fault(tracer, "22", "1", "fsync", convert).refused(1, "cannot be made durable");
}

/// A file system that is unmounted with its test.
struct Mounted(Folder);

impl Mounted {
    /// One in memory with so much room; none, with a sentence, where that is not possible.
    fn new(name: &str, size: &str) -> Option<Self> {
        let folder = Folder::new(name);
        std::fs::create_dir(folder.path("small")).unwrap();
        let options = format!("size={size}");
        let mounted = folder.run_by(&["mount", "-t", "tmpfs", "-o", &options, "tmpfs", "small"], "");
        if mounted.code != 0 {
            println!(
                "nothing can be mounted here, so a full disk is not tested: {}",
                mounted.said.trim_end()
            );
            return None;
        }
        Some(Self(folder))
    }

    fn remount(&self, options: &str) {
        let mounted = self.0.run_by(&["mount", "-o", &format!("remount,{options}"), "small"], "");
        assert_eq!(mounted.code, 0, "{mounted}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.run_by(&["umount", "small"], "");
    }
}

#[test]
fn a_full_disk_and_one_that_is_only_read() {
    let Some(mounted) = Mounted::new("errors-full", "1m") else { return };
    let folder = &mounted.0;
    folder.good("make source --shape 500x400 --layout 2x2/8x8");
    let convert = "convert source small/new --to 3x1/7x9 --box-bytes 100000";
    folder.run(convert).refused(1, "make room, then continue with --resume");
    folder.run(convert).refused(1, "continue it with --resume, or remove it");
    folder.run(&format!("{convert} --resume")).refused(1, "make room, then continue with --resume");
    assert!(!folder.path("small/new").exists());
    mounted.remount("size=4m");
    folder.good(&format!("{convert} --resume"));
    folder.good("verify small/new");
    std::fs::remove_dir_all(folder.path("small/new")).unwrap();
    mounted.remount("size=1m");
    // What is made needs no continuing: nothing of it is left to fill the disk.
    let make = "make small/new --shape 500x400 --layout 2x2/8x8";
    folder.run(make).refused(1, "make room, then begin again");
    assert_eq!(folder.path("small").read_dir().unwrap().count(), 0);
    mounted.remount("ro");
    for command in [convert, make] {
        folder.run(command).refused(1, "Read-only file system");
    }
    mounted.remount("rw,size=4m");
    folder.good(make);
}
