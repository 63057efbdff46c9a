//! Speed over random layouts: how far a redistribution is from a plain copy, and between processes from `MPI_Alltoallw`.
//!
//! The program `reshard` does the measuring. In one process `reshard run` moves each drawn array in turns with a `memcpy` and
//! a streaming copy of as many bytes; between processes `reshard bench` runs all methods in turns in one job. Both verify every
//! element. The same seeds draw the same layouts on any machine, so two builds or two machines can be compared.

mod draw;

use crate::answer::{Answer, launcher};
use crate::chart::{Dots, Scatter};
use crate::machine::{Failure, Machine, keep};
use crate::stats::{Stats, stats};
use draw::Drawn;
use reshard_testkit::Random;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::process::Command;

/// Types by name, with their bytes.
const TYPES: [(&str, u64); 5] = [("u8", 1), ("u16", 2), ("f32", 4), ("f64", 8), ("c128", 16)];

/// Timed runs of each layout.
const REPETITIONS: u64 = 9;

/// The most ranks of a grid in one process.
const RANKS_IN_ONE_PROCESS: u64 = 16;

/// Layouts listed as the worst of a type.
const WORST: usize = 5;

const USAGE: &str = "--seed takes numbers such as 1,2,3, --count and --ranks numbers from 1, --bytes a number from 65536, --types \
                     some of u8,u16,f32,f64,c128";

#[derive(Serialize)]
struct Options {
    seeds: Vec<u64>,
    /// Layouts for each seed and type.
    count: u64,
    /// Bytes of an array, about.
    bytes: u64,
    types: Vec<(&'static str, u64)>,
    /// Processes; in one process without it.
    ranks: Option<u64>,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, Failure> {
        let mut options =
            Self { seeds: vec![1, 2, 3], count: 100, bytes: 256 << 20, types: TYPES.to_vec(), ranks: None };
        let mut words = arguments.iter();
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} has no value; {USAGE}"))?;
            let wrong = || format!("{flag} {value} cannot be read; {USAGE}");
            let number = || value.parse::<u64>().ok().filter(|&number| number > 0);
            match flag.as_str() {
                "--seed" => {
                    let seeds: Result<_, _> = value.split(',').map(str::parse).collect();
                    options.seeds = seeds.map_err(|_| wrong())?;
                }
                "--count" => options.count = number().ok_or_else(wrong)?,
                "--bytes" => options.bytes = number().filter(|&bytes| bytes >= 1 << 16).ok_or_else(wrong)?,
                "--ranks" => options.ranks = Some(number().ok_or_else(wrong)?),
                "--types" => {
                    let known = |name: &str| TYPES.into_iter().find(|(known, _)| *known == name);
                    let types: Option<_> = value.split(',').map(known).collect();
                    options.types = types.ok_or_else(wrong)?;
                }
                _ => return Err(format!("there is no flag {flag}; {USAGE}").into()),
            }
        }
        Ok(options)
    }

    /// The command that repeats the measurement.
    fn command(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let types: Vec<&str> = self.types.iter().map(|(name, _)| *name).collect();
        let ranks = self.ranks.map_or(String::new(), |ranks| format!(" --ranks {ranks}"));
        format!(
            "cargo xtask bench space --seed {} --count {} --bytes {} --types {}{ranks}",
            seeds.join(","),
            self.count,
            self.bytes,
            types.join(",")
        )
    }
}

/// One layout, measured.
#[derive(Serialize)]
struct Case {
    seed: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    drawn: Drawn,
    /// Different source cache lines of a destination cache line, on average.
    source_lines: f64,
    /// Seconds, medians: ours, a plain copy, and between processes `MPI_Alltoallw`.
    run: f64,
    copy: f64,
    alltoallw: Option<f64>,
    /// Ours over a plain copy: less is better.
    ratio: f64,
    /// `MPI_Alltoallw` over ours: more is better.
    gain: Option<f64>,
}

#[derive(Serialize)]
struct Summary {
    #[serde(rename = "type")]
    kind: &'static str,
    /// All layouts or those with the same order of axes on both sides.
    of: &'static str,
    ratio: Option<Stats>,
    gain: Option<Stats>,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: String,
    machine: Machine,
    repetitions: u64,
    options: Options,
    summaries: Vec<Summary>,
    cases: Vec<Case>,
}

/// The keys of `reshard run --json` that are used here.
#[derive(Deserialize)]
struct RunAnswer {
    run_seconds: Seconds,
    copy_seconds: Seconds,
    verified: bool,
}

#[derive(Deserialize)]
struct Seconds {
    median: f64,
}

/// `program` is `reshard`, built for speed.
pub fn run(program: &str, arguments: &[String]) -> Result<(), Failure> {
    let options = Options::read(arguments)?;
    let mut cases = Vec::new();
    for &(kind, elem_bytes) in &options.types {
        for &seed in &options.seeds {
            // Each type has layouts of its own, whichever other types are measured.
            let mut random = Random::new(seed ^ elem_bytes << 32);
            for number in 1..=options.count {
                let elems = options.bytes as f64 / elem_bytes as f64;
                let drawn = Drawn::new(&mut random, elems, options.ranks.unwrap_or(RANKS_IN_ONE_PROCESS));
                let case = measure(program, &options, seed, (kind, elem_bytes), drawn)?;
                eprintln!("{kind}, seed {seed}, {number} of {}: {:.2}", options.count, case.ratio);
                cases.push(case);
            }
        }
    }
    let mut summaries = Vec::new();
    for &(kind, _) in &options.types {
        for (of, only_same) in [("all", false), ("same order of axes", true)] {
            let chosen = || {
                cases.iter().filter(|case| case.kind == kind && (!only_same || case.drawn.is_same_order()))
            };
            let ratio = stats(chosen().map(|case| case.ratio).collect(), false);
            let gain = stats(chosen().filter_map(|case| case.gain).collect(), true);
            summaries.push(Summary { kind, of, ratio, gain });
        }
    }
    let name = if options.ranks.is_some() { "space-mpi" } else { "space" };
    let (command, machine) = (options.command(), Machine::here());
    let results =
        Results { benchmark: name, command, machine, repetitions: REPETITIONS, options, summaries, cases };
    keep(name, &results, &report(&results)?)?;
    std::fs::write(format!("docs/{name}-speed.svg"), chart(&results).svg())?;
    Ok(())
}

/// Measures one layout, and counts its source lines.
fn measure(
    program: &str,
    options: &Options,
    seed: u64,
    (kind, elem_bytes): (&'static str, u64),
    drawn: Drawn,
) -> Result<Case, Failure> {
    let flags = drawn.flags(kind);
    let repeat = ["--repeat", &REPETITIONS.to_string(), "--json"].map(String::from);
    let (run, copy, alltoallw) = match options.ranks {
        None => {
            let output = Command::new(program).arg("run").args(&flags).args(&repeat).output()?;
            if !output.status.success() {
                let talk = String::from_utf8_lossy(&output.stderr);
                return Err(format!("reshard run {}: {talk}", quoted(&flags)).into());
            }
            let answer: RunAnswer = serde_json::from_slice(&output.stdout)?;
            if !answer.verified {
                return Err(format!("reshard run {}: not verified", quoted(&flags)).into());
            }
            (answer.run_seconds.median, answer.copy_seconds.median, None)
        }
        Some(ranks) => {
            let mut command = Command::new(launcher()?);
            command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string(), program]);
            command.args(["bench", "--only", "reshard-private,alltoallw"]).args(&flags).args(&repeat);
            let answer = Answer::of(&mut command)
                .map_err(|talk| format!("reshard bench {}: {talk}", quoted(&flags)))?;
            (answer.median("reshard-private"), answer.median("memcpy"), Some(answer.median("alltoallw")))
        }
    };
    let source_lines = drawn.source_lines(elem_bytes)?;
    let (ratio, gain) = (run / copy, alltoallw.map(|theirs| theirs / run));
    Ok(Case { seed, kind, drawn, source_lines, run, copy, alltoallw, ratio, gain })
}

/// Flags as one types them in a shell.
fn quoted(flags: &[String]) -> String {
    let quote = |flag: &String| match flag.contains([' ', '(', '*']) {
        true => format!("'{flag}'"),
        false => flag.clone(),
    };
    flags.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn report(results: &Results) -> Result<String, Failure> {
    let Results { options, machine, .. } = results;
    let mut text = String::from("# Speed over random layouts\n\n");
    let seeds: Vec<String> = options.seeds.iter().map(u64::to_string).collect();
    writeln!(
        text,
        "Layouts drawn by {} {} ({} for each seed and element size, about {} MiB): one to four dimensions, sides 0.7 to 1.4\n\
         times those of a cube, grids of all ranks, all but one or half of them, axes cyclic with blocks of 1 to 511 (their logarithms\n\
         uniform), block or gen_block, some with permuted axes, some from row- to column-major.",
        if seeds.len() == 1 { "seed" } else { "seeds" },
        seeds.join(", "),
        options.count,
        options.bytes >> 20
    )?;
    match options.ranks {
        None => writeln!(
            text,
            "Engine threads, {RANKS_IN_ONE_PROCESS} ranks in one process, one thread on each core. Times are medians of {} runs, in turns with a\n\
             `memcpy` and a streaming copy of as many bytes on the same memory; the ratio is to the faster of the two.",
            results.repetitions
        )?,
        Some(ranks) => writeln!(
            text,
            "{ranks} processes, the mover `private`, arrays as the system's allocator gives them. Times are medians of {} runs in which\n\
             `memcpy`, `MPI_Alltoallw` and ours take turns in one job.",
            results.repetitions
        )?,
    }
    writeln!(
        text,
        "Every element was verified.\n\n\
         Machine: {machine}. Reproduce with\n\n```sh\n{}\n```\n\nRaw numbers in `benchmarks/results/{}.json`.\n",
        results.command, results.benchmark
    )?;
    text.push_str("## Times a plain copy\n\n");
    table(&mut text, results, |summary| summary.ratio.as_ref())?;
    if options.ranks.is_some() {
        text.push_str("\n## Times faster than MPI_Alltoallw\n\n");
        table(&mut text, results, |summary| summary.gain.as_ref())?;
    }
    writeln!(
        text,
        "\nPercentiles go from good to bad: 95 of 100 layouts are at least as good as the 95th.\n\n\
         ![A dot for each layout: ratio by source lines](%.svg)\n\n\
         The number of source lines is the number of different cache lines of the sources that the bytes of one cache line of a\n\
         destination come from, on average over a sample.\n\n## The worst"
    )?;
    let text_of =
        |cases: &mut Vec<&Case>, value: &dyn Fn(&Case) -> f64, text: &mut String| -> std::fmt::Result {
            cases.sort_by(|a, b| value(b).total_cmp(&value(a)));
            for case in cases.iter().take(WORST) {
                let command =
                    if options.ranks.is_some() { "bench --only reshard-private,alltoallw" } else { "run" };
                let gain = case.gain.map_or(String::new(), |gain| format!(", Alltoallw / ours {gain:.2}"));
                writeln!(
                    text,
                    "- {:.2}{gain}, {:.1} source lines: `reshard {command} {}`",
                    case.ratio,
                    case.source_lines,
                    quoted(&case.drawn.flags(case.kind))
                )?;
            }
            Ok(())
        };
    for &(kind, _) in &options.types {
        let of_type = || results.cases.iter().filter(|case| case.kind == kind).collect::<Vec<_>>();
        writeln!(text, "\n{kind}, against a plain copy:\n")?;
        text_of(&mut of_type(), &|case| case.ratio, &mut text)?;
        if options.ranks.is_some() {
            writeln!(text, "\n{kind}, against `MPI_Alltoallw`:\n")?;
            text_of(&mut of_type(), &|case| -case.gain.unwrap_or(f64::NAN), &mut text)?;
        }
    }
    Ok(text.replace("(%.svg)", &format!("({}-speed.svg)", results.benchmark)))
}

fn table(
    text: &mut String,
    results: &Results,
    stats: impl Fn(&Summary) -> Option<&Stats>,
) -> std::fmt::Result {
    text.push_str("| type | layouts | number | geometric mean | median | 95th | 99th | worst |\n|---|---|---|---|---|---|---|---|\n");
    for summary in &results.summaries {
        let Some(stats) = stats(summary) else { continue };
        writeln!(
            text,
            "| {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
            summary.kind,
            summary.of,
            stats.cases,
            stats.geometric_mean,
            stats.median,
            stats.percentile_95,
            stats.percentile_99,
            stats.worst
        )?;
    }
    Ok(())
}

fn chart(results: &Results) -> Scatter {
    let dots = |kind: &'static str| {
        let of_type = results.cases.iter().filter(move |case| case.kind == kind);
        Dots {
            name: kind.to_string(),
            points: of_type.map(|case| (case.source_lines.max(1.0), case.ratio)).collect(),
        }
    };
    Scatter {
        title: format!("Time over that of a plain copy, a dot for each layout ({})", results.machine.cpu),
        groups: results.options.types.iter().map(|&(kind, _)| dots(kind)).collect(),
        x_label: "different source lines of a destination line".to_string(),
        y_label: "times a plain copy".to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn options_are_read_and_repeat_themselves() {
        let read = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(String::from).collect();
            Options::read(&words).map(|options| options.command()).map_err(|error| error.to_string())
        };
        let usual =
            "cargo xtask bench space --seed 1,2,3 --count 100 --bytes 268435456 --types u8,u16,f32,f64,c128";
        assert_eq!(read("").unwrap(), usual);
        let other = "--seed 7 --count 3 --bytes 4194304 --types u8,c128 --ranks 4";
        assert_eq!(read(other).unwrap(), format!("cargo xtask bench space {other}"));
        for wrong in ["--seed x", "--count 0", "--bytes 9", "--types f16", "--count", "--speed 1"] {
            assert!(read(wrong).unwrap_err().contains("--seed takes numbers"), "{wrong}");
        }
    }
}
