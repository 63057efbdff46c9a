//! Sets of files: converting one beside copying it (`cp -r`, made durable where the files are on a disk) and beside what people write with NumPy,
//! in turns; and the most memory that a conversion has.
//!
//! Files are in the caches of the system: what is compared is work, not disks. NumPy is left out where Python has none.

use crate::machine::{Failure, Machine, keep, median};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TURNS: usize = 5;

/// Shape, layouts before and after, and the limit of memory.
const CASES: [(&str, &str, &str, &str); 4] = [
    ("16384x32768", "4x4/64x64", "3x3/100x100", "256MiB"),
    ("16384x32768", "4x4/64x64", "3x3/100x100", "2GiB"),
    ("16384x32768", "4x4/8x8", "3x3/5x7", "256MiB"),
    ("16384x32768", "1x16/16384x2048", "9x1/1821x32768", "256MiB"),
];

/// The case that NumPy is timed with.
const OF_NUMPY: usize = 0;

#[derive(Serialize)]
struct Converted {
    place: String,
    shape: &'static str,
    from: &'static str,
    to: &'static str,
    memory: &'static str,
    bytes: u64,
    /// Median seconds.
    copied: f64,
    converted: f64,
    /// Without checksums of either side.
    unchecked: f64,
    numpy: Option<f64>,
    /// The most anonymous and shared memory of the conversion, in bytes, looked at every 2 ms.
    peak: u64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    conversions: Vec<Converted>,
}

/// `program` is `reshard`; the folders are where sets are made.
pub fn run(program: &str, folders: &[String]) -> Result<(), Failure> {
    let mut conversions = Vec::new();
    for folder in folders {
        let base = Path::new(folder).join(format!("reshard-bench-files-{}", std::process::id()));
        std::fs::create_dir_all(&base)?;
        let all = (0..CASES.len()).map(|case| convert(program, &base, folder, case));
        let all = all.collect::<Result<Vec<_>, Failure>>();
        std::fs::remove_dir_all(&base)?;
        conversions.extend(all?);
    }
    let results = Results {
        benchmark: "files",
        command: "cargo xtask bench files",
        machine: Machine::here(),
        conversions,
    };
    keep("files", &results, &report(&results)?)
}

fn convert(program: &str, base: &Path, place: &str, case: usize) -> Result<Converted, Failure> {
    let (shape, from, to, memory) = CASES[case];
    eprintln!("{place}: {from} to {to} in {memory}");
    let (source, destination) = (base.join("source"), base.join("destination"));
    let durable = !is_memory(place)?;
    done(Command::new(program).arg("make").arg(&source).args(["--shape", shape, "--layout", from]))?;
    let bytes: u64 =
        source.read_dir()?.map(|entry| Ok(entry?.metadata()?.len())).sum::<std::io::Result<u64>>()?;
    let command = |more: &[&str]| {
        let mut command = Command::new(program);
        command
            .arg("convert")
            .args([&source, &destination])
            .args(["--to", to, "--memory", memory])
            .args(more);
        command
    };
    let numpy = (case == OF_NUMPY && has_numpy()).then(|| {
        let mut command = Command::new(python());
        command.arg("benchmarks/src/files_numpy.py").args([&source, &destination]).args([shape, from, to]);
        command
    });
    let copy = || {
        let mut command = Command::new("cp");
        command.arg("-r").args([&source, &destination]);
        command
    };
    let mut rivals: Vec<(Command, bool)> =
        vec![(copy(), durable), (command(&[]), false), (command(&["--no-checksums"]), false)];
    rivals.extend(numpy.map(|command| (command, durable)));
    let mut times: Vec<Vec<f64>> = rivals.iter().map(|_| Vec::new()).collect();
    for turn in 0..=TURNS {
        for ((command, sync), times) in rivals.iter_mut().zip(&mut times) {
            let began = Instant::now();
            done(command)?;
            if *sync {
                make_durable(&destination)?;
            }
            // The first turn brings files into the caches.
            if turn > 0 {
                times.push(began.elapsed().as_secs_f64());
            }
            std::fs::remove_dir_all(&destination)?;
        }
    }
    let peak = peak_of(command(&[]))?;
    std::fs::remove_dir_all(&destination)?;
    std::fs::remove_dir_all(&source)?;
    let mut medians = times.into_iter().map(|times| median(times).unwrap_or(f64::NAN));
    let mut next = || medians.next().unwrap_or(f64::NAN);
    let (copied, converted, unchecked) = (next(), next(), next());
    let numpy = (rivals.len() > 3).then(next);
    Ok(Converted {
        place: place.into(),
        shape,
        from,
        to,
        memory,
        bytes,
        copied,
        converted,
        unchecked,
        numpy,
        peak,
    })
}

fn done(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}").into()) }
}

/// The Python below `target/` in which tests have NumPy, or the system's.
fn python() -> &'static str {
    const OURS: &str = "target/python/bin/python";
    if Path::new(OURS).exists() { OURS } else { "python3" }
}

fn has_numpy() -> bool {
    let python = Command::new(python()).args(["-c", "import numpy"]).stderr(Stdio::null()).status();
    python.is_ok_and(|status| status.success())
}

/// True of a file system that is memory, where nothing can be made durable.
fn is_memory(place: &str) -> Result<bool, Failure> {
    let said = Command::new("stat").args(["--file-system", "--format=%T", place]).output()?;
    Ok(String::from_utf8_lossy(&said.stdout).trim() == "tmpfs")
}

/// As a conversion does it: all files, then their directories.
fn make_durable(directory: &Path) -> Result<(), Failure> {
    let files: Vec<PathBuf> =
        directory.read_dir()?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    for file in files.iter().map(PathBuf::as_path).chain([directory, directory.parent().unwrap_or(directory)])
    {
        std::fs::File::open(file)?.sync_all()?;
    }
    Ok(())
}

/// The most anonymous and shared memory of a process.
fn peak_of(mut command: Command) -> Result<u64, Failure> {
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let kilobytes = |key: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        peak = peak.max(1024 * (kilobytes("RssAnon:") + kilobytes("RssShmem:")));
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(peak) } else { Err(format!("it ended with {status}").into()) };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn report(results: &Results) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    writeln!(text, "# Converting sets of files\n")?;
    writeln!(
        text,
        "Written by `cargo xtask bench files`. {}. Doubles, {TURNS} turns, medians; files in the caches of the system. What is copied is the \
         set, by `cp -r`, and made durable unless the files are in memory (tmpfs). NumPy is `benchmarks/src/files_numpy.py`: memory maps, some \
         whole columns at a time. Memory is anonymous and shared memory at its peak, looked at every 2 ms.\n",
        results.machine
    )?;
    writeln!(
        text,
        "| place | shape | from | to | limit | copied, s | converted, s | of copied | without checksums | NumPy of converted | memory, MiB |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|")?;
    for one in &results.conversions {
        let numpy = one.numpy.map_or(String::new(), |numpy| format!("{:.1}", numpy / one.converted));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {numpy} | {:.0} |",
            one.place,
            one.shape,
            one.from,
            one.to,
            one.memory,
            one.copied,
            one.converted,
            one.converted / one.copied,
            one.unchecked / one.copied,
            one.peak as f64 / (1 << 20) as f64
        )?;
    }
    Ok(text)
}
