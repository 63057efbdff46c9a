//! Disks that lie once: `flips.c`, a preloaded library, flips one random bit in one random call that reads or writes a file of a source or of a
//! destination. A conversion of a set with checksums ends well only with the elements that an undisturbed one writes, and a bit that was flipped
//! in the source is named with its file. The program maps no files into its memory, so calls are all there is.

use crate::folder::{Folder, KILLED, Outcome, PROGRAM, tracer};
use reshard_testkit::{Random, full_sweep};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const LAUNCHERS: [&[&str]; 2] =
    [&["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], &["mpirun.mpich"]];

/// Flips by one process, and by ranks of a job, which take longer to start.
fn wanted() -> (usize, usize) {
    if full_sweep() { (1800, 200) } else { (60, 10) }
}

/// The library of a test; none, with a sentence, where there is no compiler.
fn library(test: &str) -> Option<PathBuf> {
    let name = format!("flips-{test}-{}.so", std::process::id());
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&library);
    let compiled =
        compile.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sets/flips.c")).arg("-ldl").status();
    if compiled.is_ok_and(|status| status.success()) {
        return Some(library);
    }
    assert!(std::env::var_os("RESHARD_NEEDS_COMPILERS").is_none(), "flips.c cannot be compiled");
    println!("no C compiler is here: what happens when a disk lies is not tested");
    None
}

/// A set, what is made of it, and by whom.
struct Case<'l> {
    library: &'l Path,
    folder: Folder,
    convert: String,
    /// The launcher, and which of three ranks has the library; none for one process.
    launcher: Option<(&'static [&'static str], usize)>,
    expected: BTreeMap<String, Vec<u8>>,
}

impl<'l> Case<'l> {
    fn new(
        library: &'l Path,
        launcher: Option<(&'static [&'static str], usize)>,
        random: &mut Random,
    ) -> Self {
        let folder = Folder::new(if launcher.is_some() { "flips-ranks" } else { "flips" });
        let one_of =
            |random: &mut Random, all: &[&'static str]| all[random.within(0, all.len() as u64 - 1) as usize];
        let dims = random.within(1, 3);
        // Some of the files have several blocks of checksums.
        let most = if random.one_in(6) { [300_000, 700, 80] } else { [900, 60, 15] }[dims as usize - 1];
        let lengths = |random: &mut Random, least, most| -> Vec<u64> {
            (0..dims).map(|_| random.within(least, most)).collect()
        };
        let by_x = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let shape = lengths(random, most / 2, most);
        let layout = |random: &mut Random| {
            let grid = by_x(&lengths(random, 1, 3));
            format!(
                "{grid}/{}|memory={}",
                by_x(&lengths(random, 1, most / 3)),
                one_of(random, &["row", "col"])
            )
        };
        let transpose = if random.one_in(3) { " --transpose" } else { "" };
        // Layouts name no shape, and grids of the transposed array have as many dimensions.
        let (from, to) = (layout(random), layout(random));
        let format = one_of(random, &["npy", "npy", "raw"]);
        let element = one_of(random, &["f64", "f32", "u8", "c128", "bytes(3)"]);
        folder.good(&format!(
            "make source --shape {} --layout {from} --format {format} --type {element} --seed {}",
            by_x(&shape),
            random.within(0, 1000)
        ));
        let boxes = match random.within(0, 2) {
            0 => String::new(),
            _ => format!(" --box-bytes {}", random.within(500, 20_000) * most / 60),
        };
        let format = one_of(random, &["npy", "raw"]);
        let convert = format!("convert source new --to {to} --format {format}{transpose}{boxes}");
        folder.good(&convert);
        folder.good("verify new");
        let expected = folder.files("new").unwrap();
        folder.remove("new");
        Self { library, folder, convert, launcher, expected }
    }

    /// The conversion with one bit flipped. Returns its outcome, and what the library says.
    fn flipped(&self, at: u64, bit: u64) -> (Outcome, String) {
        let Self { folder, launcher, .. } = self;
        let log = folder.path("log");
        let _ = std::fs::remove_file(&log);
        let with = [
            "env".to_string(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FLIP_FOLDER={}/", folder.0.display()),
            format!("FLIP_AT={at}"),
            format!("FLIP_BIT={bit}"),
            format!("FLIP_LOG={}", log.display()),
        ];
        let mut by: Vec<String> = ["timeout", "1200"].map(String::from).to_vec();
        match launcher {
            None => by.extend(with),
            Some((launcher, rank)) => {
                by.extend(launcher.iter().map(ToString::to_string));
                let words = self.convert.split_whitespace().map(|word| word.replace('|', " "));
                for other in 0..3 {
                    by.extend((other > 0).then(|| ":".into()));
                    by.extend(["-n".into(), "1".into()]);
                    by.extend(with.iter().filter(|_| other == *rank).cloned());
                    by.push(PROGRAM.into());
                    by.extend(words.clone().filter(|_| other < 2));
                }
            }
        }
        if launcher.is_none() {
            by.push(PROGRAM.into());
        }
        // The last rank gets its words as any command does.
        let by: Vec<&str> = by.iter().map(String::as_str).collect();
        let outcome = folder.run_by(&by, &self.convert);
        (outcome, std::fs::read_to_string(&log).unwrap_or_default())
    }

    /// Returns whether the flip was noticed.
    fn one(&self, random: &mut Random, calls: u64) -> bool {
        let (at, bit) = (random.within(1, calls), random.bits());
        let (outcome, log) = self.flipped(at, bit);
        let when = format!("{} by {:?}, call {at} of {calls}: {log}, {outcome}", self.convert, self.launcher);
        let flip = log.lines().find(|line| line.starts_with("read") || line.starts_with("write"));
        let words: Vec<&str> = flip.unwrap_or_default().split(' ').collect();
        let found = self.folder.files("new");
        if outcome.code == 0 {
            assert!(found.is_some_and(|found| found == self.expected), "{when}");
            if let [what, offset, _, byte, path] = words[..]
                && path.contains("/source/")
            {
                // Headers are read with some of what follows them, which is read again when it is moved, and so is a header that seems longer.
                let again = log.lines().last().is_some_and(|line| line != format!("count {calls} 0 0 -"));
                let header = header_bytes(&std::fs::read(path).unwrap(), path);
                let place = offset.parse::<u64>().unwrap() + byte.parse::<u64>().unwrap();
                assert!(
                    what == "read" && offset == "0" && place < 4096 && (place >= header || again),
                    "{when}"
                );
            }
        } else {
            // A panic, and a program that hung until it was ended.
            assert!(found.is_none() && ![101, 124, 137].contains(&outcome.code), "{when}");
            assert!(self.launcher.is_some() || outcome.is_refused(1, ""), "{when}");
            if let [_, _, _, _, path] = words[..]
                && path.contains("/source/")
            {
                let name = path.rsplit('/').next().unwrap();
                let named = outcome.said.contains(name)
                    || name == "reshard.json" && outcome.said.contains("manifest");
                assert!(named, "{when}");
            }
        }
        self.folder.remove("new");
        outcome.code != 0
    }
}

/// Where the elements of a file begin.
fn header_bytes(file: &[u8], path: &str) -> u64 {
    match path.ends_with(".npy") {
        true => 10 + u64::from(u16::from_le_bytes([file[8], file[9]])),
        false => 0,
    }
}

fn flips(launchers: &[Option<&'static [&'static str]>], wanted: usize, each: usize, seed: u64) {
    let Some(library) = library(&seed.to_string()) else { return };
    let mut random = Random::new(seed);
    let (mut noticed, mut done) = (0, 0);
    while done < wanted {
        let launcher = launchers[done / each % launchers.len()].map(|by| (by, random.within(0, 2) as usize));
        let case = Case::new(&library, launcher, &mut random);
        let (outcome, log) = case.flipped(0, 0);
        assert_eq!(outcome.code, 0, "{outcome}");
        assert!(case.folder.files("new").unwrap() == case.expected, "{outcome}");
        case.folder.remove("new");
        let calls: u64 = log.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(calls > 3, "{log}");
        for _ in 0..each.min(wanted - done) {
            noticed += usize::from(case.one(&mut random, calls));
            done += 1;
        }
    }
    let _ = std::fs::remove_file(library);
    println!("{noticed} of {done} flips were noticed, the others changed nothing");
    assert!(2 * noticed > done, "{noticed} of {done}");
}

#[test]
fn bits_that_a_disk_flips_once_are_noticed() {
    flips(&[None], wanted().0, 10, 17);
}

/// What is made goes the same way to its files.
#[test]
fn bits_that_a_disk_flips_while_a_set_is_made_are_noticed() {
    let Some(library) = library("make") else { return };
    let mut random = Random::new(19);
    let mut noticed = 0;
    for make in ["--layout 2x2/8x8", "--layout 3x2/7x300|memory=row --format raw --type f32"] {
        let folder = Folder::new("flips-make");
        let convert = format!("make new --shape 400x300 {make} --seed 3");
        folder.good(&convert);
        let expected = folder.files("new").unwrap();
        folder.remove("new");
        let case = Case { library: &library, folder, convert, launcher: None, expected };
        let (_, log) = case.flipped(0, 0);
        case.folder.remove("new");
        let calls = log.split(' ').nth(1).unwrap().parse().unwrap();
        for _ in 0..if full_sweep() { 100 } else { 10 } {
            noticed += usize::from(case.one(&mut random, calls));
        }
    }
    let _ = std::fs::remove_file(library);
    println!("{noticed} flips were noticed");
    assert!(noticed > 5, "{noticed}");
}

/// A disk lies to a run that is killed, and no more to the one that continues it: what the first has moved, and not checked to the end, is not taken.
#[test]
fn what_an_interrupted_run_has_moved_is_checked_by_the_next() {
    let Some(tracer) = tracer() else { return };
    let folder = Folder::new("flips-resumed");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    for convert in [
        "convert source new --to 3x1/7x9 --box-bytes 800",
        "convert source new --to 3x1/7x9|memory=row --box-bytes 800",
    ] {
        folder.good(convert);
        let expected = folder.files("new").unwrap();
        folder.remove("new");
        let calls = folder.calls(tracer, "changing", convert).len();
        folder.remove("new");
        let file = folder.path("source/rank_0000.npy");
        let good = std::fs::read(&file).unwrap();
        let (mut refused, mut continued) = (0, 0);
        for at in (20..calls - 10).step_by(7) {
            let mut bad = good.clone();
            bad[128 + 9] ^= 4;
            std::fs::write(&file, bad).unwrap();
            let killed = folder.fault(tracer, "kill", &at.to_string(), "changing", convert);
            std::fs::write(&file, &good).unwrap();
            if killed.code == KILLED {
                let resumed = folder.run(&format!("{convert} --resume"));
                if resumed.code == 0 {
                    assert!(folder.files("new").unwrap() == expected, "{resumed}, after {killed}");
                    continued += 1;
                } else {
                    resumed.refused(1, "is not what was written into it");
                    assert!(!folder.path("new").exists());
                    refused += 1;
                }
            }
            folder.remove("new");
        }
        // Before the journal has a box nothing was moved.
        println!("{refused} runs were refused, {continued} continued");
        assert!(refused > 3, "{refused} refused, {continued} continued");
    }
}

#[test]
fn bits_that_the_disk_of_a_rank_flips_once_are_noticed() {
    let is_here = |launcher: &&&[&str]| Command::new(launcher[0]).arg("--version").output().is_ok();
    let launchers: Vec<_> = LAUNCHERS.iter().filter(is_here).map(|launcher| Some(*launcher)).collect();
    if launchers.is_empty() {
        println!("no MPI is here: disks of ranks that lie are not tested");
        return;
    }
    flips(&launchers, wanted().1, 5, 18);
}
