//! The program is killed before each of the calls by which it changes something. Whenever that is, the destination is absent or complete, the
//! source is as it was, and the next run gives what an undisturbed one gives, byte by byte.

use crate::folder::{Folder, KILLED, MODEL, tracer};
use reshard_testkit::{Random, full_sweep};
use std::collections::BTreeMap;
use std::path::Path;

/// What is made, and what is made of it: a set is converted to another, files without a manifest are, or all of it becomes one file.
const CASES: [(&str, &str); 18] = [
    ("--shape 40x30 --layout 2x2/8x8", "source new --to 3x1/7x9 --box-bytes 800"),
    ("--shape 40x30 --layout 2x2/8x8", "source new --to 3x1/7x9"),
    ("--shape 40x30 --layout 3x1/7x9 --type f32", "source new --to 2x2/5x5 --transpose --box-bytes 400"),
    (
        "--shape 40x30 --layout 2x1/8x8 --format raw",
        "source new --to 1x3/7x9 --format raw --box-bytes 900 --threads 1",
    ),
    ("--shape 33x21 --layout 2x2/4x4 --type i16", "source new --to 2x2/5x7|memory=row --box-bytes 160"),
    ("--shape 200 --layout 4/3 --type u8", "source new --to 3/10 --box-bytes 20"),
    ("--shape 9x8x7 --layout 2x1x2/2x3x4", "source new --to 1x2x2/5x4x3 --box-bytes 600"),
    ("--shape 40x30 --layout 2x2/8x8", "source new --to 1x1/40x30 --names whole.npy --box-bytes 1000"),
    ("--shape 0x5 --layout 2x2/4x4", "source new --to 3x1/4x4"),
    (
        "--shape 25x16 --layout 1x4/5x5 --type bytes(3)",
        "source new --to 2x1/9x9 --format raw --transpose --box-bytes 100",
    ),
    ("--shape 3x3 --layout 2x2/8x8", "source new --to 2x2/1x1 --box-bytes 24"),
    ("--shape 40x30 --layout 2x2/8x8|memory=row --type c64", "source new --to 4x1/6x6 --box-bytes 900"),
    (
        "--shape 40x30 --layout 2x2/8x8",
        "source/rank_{rank:04}.npy new --from 2x2/8x8 --to 3x1/7x9 --box-bytes 1000",
    ),
    (
        "--shape 40x30 --layout 2x2/8x8 --format raw --type f32",
        "source/rank_{rank:04}.bin new --from 2x2/8x8 --shape 40x30 --type f32 --to 1x3/7x9 --box-bytes 1000 --no-checksums",
    ),
    ("--shape 40x30 --layout 2x2/8x8", "source whole.npy --to 1x1/40x30 --box-bytes 1000"),
    ("--shape 40x30 --layout 2x2/8x8", "source new --to 3x1/7x9 --box-bytes 1000 --no-checksums"),
    (
        MODEL,
        "source/tp{rank}.safetensors new --from *.down=(*,|block)|on|1x2 --from (block,|*)|on|2x1 --from (*)|on|2 \
         --to *.down=(*,|block)|on|1x4 --to (block,|*)|on|4x1 --to (*)|on|4 --box-bytes 300",
    ),
    (
        "--shape 40x30 --layout 2x2/8x8 --format safetensors",
        "source new --to 4x1/5x5 --transpose --box-bytes 1000",
    ),
];

/// Points at which programs are killed, over all cases.
fn wanted() -> usize {
    if full_sweep() { 2200 } else { 100 }
}

/// So many of the numbers from 1 to `count`, spread evenly, not always the same ones.
fn spread(count: usize, wanted: usize, random: &mut Random) -> Vec<usize> {
    let wanted = wanted.clamp(1, count.max(1));
    let place = |at: usize, random: &mut Random| {
        let (from, to) = (at * count / wanted, (at + 1) * count / wanted);
        random.within(from as u64 + 1, to as u64) as usize
    };
    (0..wanted).map(|at| place(at, random)).collect()
}

#[test]
fn conversions_that_are_killed_are_continued() {
    let Some(tracer) = tracer() else { return };
    let cases: Vec<Case<'_>> = CASES.iter().map(|(make, convert)| Case::new(tracer, make, convert)).collect();
    let all: usize = cases.iter().map(|case| case.calls).sum();
    let mut random = Random::new(1);
    let mut points = 0;
    // More than there are: all of them more than once, and what happens after that differs.
    let rounds = wanted().div_ceil(all);
    for case in (0..rounds).flat_map(|_| &cases) {
        for at in spread(case.calls, wanted() * case.calls / all / rounds, &mut random) {
            case.killed_at(at, &mut random);
            points += 1;
        }
    }
    println!("conversions were killed {points} times, at {all} points");
    assert!(points * 10 >= wanted() * 8, "{points} of {all}");
}

/// A conversion, and what it gives if nothing happens.
struct Case<'t> {
    tracer: &'t Path,
    folder: Folder,
    convert: String,
    /// What is written: a set, or one file, of which nothing is known but its bytes.
    new: &'static str,
    source: BTreeMap<String, Vec<u8>>,
    expected: BTreeMap<String, Vec<u8>>,
    /// Calls that change something.
    calls: usize,
}

impl<'t> Case<'t> {
    fn new(tracer: &'t Path, make: &str, convert: &'static str) -> Self {
        let folder = Folder::new(&format!("crashes-{}", convert.len() * 1000 + make.len()));
        folder.source(make);
        let new = convert.split(' ').nth(1).unwrap();
        let convert = format!("convert {convert}");
        let calls = folder.calls(tracer, "changing", &convert).len();
        let (source, expected) = (folder.files("source").unwrap(), folder.files(new).unwrap());
        let case = Self { tracer, folder, convert, new, source, expected, calls };
        case.absent_or_complete("undisturbed");
        case.folder.remove(new);
        assert!(calls > 20, "{}: {calls} calls", case.convert);
        case
    }

    fn killed_at(&self, at: usize, random: &mut Random) {
        let Self { folder, convert, new, .. } = self;
        let killed = folder.fault(self.tracer, "kill", &at.to_string(), "changing", convert);
        // Which thread comes when may change how many calls there are by a few.
        assert!(killed.code == KILLED || at + 3 > self.calls, "{killed}");
        self.absent_or_complete(&killed.command);
        let resume = format!("{convert} --resume");
        match random.within(0, 3) {
            0 => {
                let again = random.within(1, 30).to_string();
                folder.fault(self.tracer, "kill", &again, "changing", &resume);
                self.absent_or_complete(&killed.command);
            }
            1 if !folder.partial().is_empty() => {
                let named = folder.path(new).exists();
                let again = folder.run(convert);
                if again.code != 0 {
                    let expected =
                        if named { "exists already" } else { "continue it with --resume, or remove it" };
                    again.refused(1, expected);
                }
            }
            _ => {}
        }
        // What is complete and has its name, without a trace of the run, cannot be continued.
        let done = folder.files(new).is_some_and(|files| files == self.expected);
        let traces = !folder.partial().is_empty();
        let resumed = folder.run(&resume);
        match done {
            true if traces && resumed.code == 0 => {}
            true => resumed.refused(1, "exists already"),
            false => assert_eq!(resumed.code, 0, "{resumed}, after {}", killed.command),
        }
        assert_eq!(folder.partial(), Vec::<std::path::PathBuf>::new(), "{}", killed.command);
        assert!(folder.files(new).unwrap() == self.expected, "{}", killed.command);
        assert!(folder.files("source").unwrap() == self.source, "{}", killed.command);
        folder.remove(new);
    }

    fn absent_or_complete(&self, when: &str) {
        assert!(self.folder.files("source").unwrap() == self.source, "{when}");
        let Some(mut files) = self.folder.files(self.new) else { return };
        files.remove(".journal");
        assert!(files == self.expected, "{when}");
        if self.new == "new" {
            self.folder.good("verify new");
        }
    }
}

#[test]
fn makes_that_are_killed_are_made_anew() {
    let Some(tracer) = tracer() else { return };
    let mut random = Random::new(2);
    let cases = [
        "make new --shape 40x30 --layout 2x2/8x8 --seed 3",
        "make new --shape 40x30 --layout 3x1/7x9 --format raw --type i16",
        "make new --shape 200 --layout 5/7 --type c128",
        "make new --shape 0x4 --layout 2x1/8x8",
    ];
    let mut points = 0;
    for (number, make) in cases.iter().enumerate() {
        let folder = Folder::new(&format!("makes-{number}"));
        let calls = folder.calls(tracer, "changing", make).len();
        let expected = folder.files("new").unwrap();
        folder.remove("new");
        for at in spread(calls, wanted() / 10, &mut random) {
            let killed = folder.fault(tracer, "kill", &at.to_string(), "changing", make);
            points += 1;
            let complete = folder.files("new");
            if let Some(mut files) = complete.clone() {
                files.remove(".journal");
                assert!(files == expected, "{}", killed.command);
                folder.run(make).refused(1, "exists already");
                folder.good("verify new");
            } else {
                folder.good(make);
                assert!(folder.files("new").unwrap() == expected, "{}", killed.command);
            }
            assert_eq!(folder.partial(), Vec::<std::path::PathBuf>::new(), "{}", killed.command);
            folder.remove("new");
        }
    }
    println!("{points} points at which a set was killed while it was made");
}

/// A source that is damaged leaves nothing to be continued. Killed while it removes what there is, it leaves files that no journal knows: the next
/// run, whose files have other names, takes none of them along.
#[test]
fn runs_that_are_killed_while_they_give_up_leave_nothing() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("giving-up");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    let next = "convert source new --to 1x1/40x30 --names whole.npy";
    folder.good(next);
    let expected = folder.files("new").unwrap();
    folder.remove("new");
    let file = folder.path("source/rank_0003.npy");
    let good = std::fs::read(&file).unwrap();
    let convert = "convert source new --to 3x1/7x9 --names part{rank}.npy";
    let damage = |damaged: bool| {
        let mut bytes = good.clone();
        *bytes.last_mut().unwrap() ^= u8::from(damaged);
        std::fs::write(&file, bytes).unwrap();
    };
    damage(true);
    folder.run(convert).refused(1, "rank_0003.npy");
    let removed = folder.calls(tracer, "unlinkat", convert).len();
    assert_eq!(removed, 3 + 1 + 1, "files, journal, directory");
    let mut left = 0;
    for at in 1..=removed {
        damage(true);
        let killed = folder.fault(tracer, "kill", &at.to_string(), "unlinkat", convert);
        assert_eq!(killed.code, KILLED, "{killed}");
        damage(false);
        left += usize::from(folder.run(next).code == 0 && folder.files("new").unwrap() == expected);
        if !folder.path("new").exists() {
            folder.run(next).refused(1, "continue it with --resume, or remove it");
        }
        folder.remove("new");
    }
    assert!(left > 0, "the journal is never removed first");
}

/// What another program, or another run, left behind is continued only if it is the same run.
#[test]
fn only_the_same_run_is_continued() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("same-run");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    let convert = "convert source new --to 3x1/7x9 --box-bytes 800";
    let killed = folder.fault(tracer, "kill", "60", "changing", convert);
    assert_eq!(killed.code, KILLED, "{killed}");
    folder.run("convert source new --to 3x1/7x8 --box-bytes 800 --resume").refused(1, "was another");
    folder.run("convert source new --to 3x1/7x9 --box-bytes 3000 --resume").refused(1, "was another");
    folder.run("make new --shape 4x4 --layout 2x2/2x2").refused(1, "left");
    folder.good(&format!("{convert} --resume"));
    folder.good("verify new");
    // A file that is gone, or short, was not written by anybody.
    folder.remove("new");
    for damage in ["remove", "cut"] {
        let killed = folder.fault(tracer, "kill", "60", "changing", convert);
        assert_eq!(killed.code, KILLED, "{killed}");
        let file = folder.path(".new.reshard-partial/rank_0001.npy");
        match damage {
            "remove" => std::fs::remove_file(&file).unwrap(),
            _ => std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(1000).unwrap(),
        }
        folder.run(&format!("{convert} --resume")).refused(1, "rank_0001.npy");
        assert!(!folder.path("new").exists());
        folder.remove("new");
    }
    // Before a journal says that boxes are durable, files and their names are.
    let calls = folder.calls(tracer, "changing", convert);
    let lines: Vec<usize> = (0..calls.len()).filter(|&at| calls[at].starts_with("write ")).collect();
    let before = &calls[lines[0]..lines[1]];
    let synced = |name: &str| before.iter().filter(|call| call.starts_with(name)).count();
    assert_eq!((synced("fdatasync"), synced("fsync")), (1 + 3, 1), "{before:?}");
    // Before the set gets its name, the names of its files are durable.
    let named = calls.iter().position(|call| call.starts_with("renameat2")).unwrap();
    let manifest = calls[..named].iter().rposition(|call| call.starts_with("renameat ")).unwrap();
    let between = &calls[manifest..named];
    assert!(between.iter().any(|call| call.starts_with("fsync")), "{between:?}");
}
