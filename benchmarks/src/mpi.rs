//! How fast arrays move between processes, beside what people use today.
//!
//! The program `reshard bench` does the measuring, under `mpirun`, all ways in turns; this collects its answers. The case
//! names are those of the literature; the goals are ratios to `memcpy` and to the two rivals.

use crate::answer::{Answer, launcher};
use crate::machine::{Failure, Machine, keep};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::Command;

/// Case, ranks, shape.
const CASES: [(&str, usize, &str); 12] = [
    ("i", 4, "4096x4096"),
    ("ii", 2, "4096x4096"),
    ("iii", 16, "4096x4096"),
    ("iv", 16, "4096x4096"),
    ("v", 4, "4096x4096"),
    ("vi", 4, "4096x4096"),
    ("vii", 4, "4096x4096"),
    ("viii", 4, "256x256"),
    ("i", 4, "8192x8192"),
    ("ii", 2, "8192x8192"),
    ("iii", 16, "8192x8192"),
    ("iv", 16, "8192x8192"),
];

/// So often each way runs on the small array, in each of so many launches: which ranks share a processor is the luck of one.
const SMALL: u64 = 301;
const LAUNCHES: usize = 9;

/// Arrays that fit into the caches, which other ways would push out of them: each way runs once more before it is measured.
const WARM: [&str; 2] = ["--warm", "1"];

/// The launcher of another MPI, and what is compared there.
const MPICH: &str = "mpirun.mpich";
const MPICH_WAYS: &str = "memcpy,alltoallw,reshard-shared,reshard-private";

/// Those whose geometric mean counts for private arrays.
const LARGE_BLOCKS: [&str; 5] = ["i", "ii", "iii", "iv", "vii"];

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    cases: Vec<Answer>,
    /// The small array again, as whoever moves it again and again finds it: in the caches.
    warm: Answer,
    /// The large blocks again, with all arrays on huge pages.
    huge: Vec<Answer>,
    /// And with MPICH; none where it is not installed.
    mpich: Vec<Answer>,
}

/// `program` is `reshard`, built for speed.
pub fn run(program: &str) -> Result<(), Failure> {
    let launched = |launcher: &mut Command, (case, ranks, shape): (&str, usize, &str), more: &[&str]| {
        eprintln!("case {case}, {shape}, {ranks} ranks {}", more.join(" "));
        let command = launcher.args(["-n", &ranks.to_string(), program]);
        command.args(["bench", "--case", case, "--shape", shape, "--json"]).args(more);
        if shape == "256x256" {
            // Some fifty microseconds each: a few would say little.
            return Answer::of_launches(command.args(["--repeat", &SMALL.to_string()]), LAUNCHES);
        }
        Answer::of(command)
    };
    let measured = |case: (&str, usize, &str), more: &[&str]| {
        launched(Command::new(launcher()?).args(["--allow-run-as-root", "--oversubscribe"]), case, more)
    };
    let cases = CASES.map(|case| measured(case, &[])).into_iter().collect::<Result<_, Failure>>()?;
    let warm = measured(("viii", 4, "256x256"), &WARM)?;
    let large = || CASES.into_iter().filter(|(case, _, shape)| is_large(case, shape));
    let huge = large().map(|case| measured(case, &["--huge"])).collect::<Result<_, Failure>>()?;
    let with_mpich = |case| launched(&mut Command::new(MPICH), case, &["--only", MPICH_WAYS]);
    let mpich = match Command::new(MPICH).arg("--version").output() {
        Ok(_) => large().map(with_mpich).collect::<Result<_, Failure>>()?,
        Err(_) => Vec::new(),
    };
    let (benchmark, command) = ("mpi", "cargo xtask bench mpi");
    let results = Results { benchmark, command, machine: Machine::here(), cases, warm, huge, mpich };
    let text = report(&results)?;
    keep("mpi", &results, &text)
}

fn report(results: &Results) -> Result<String, Failure> {
    let first = results.cases.first().ok_or("no cases")?;
    let mut text = String::from("# Speed between processes\n\n");
    writeln!(
        text,
        "Doubles, column-major, {}, all ranks on one machine of {}; makespans in milliseconds (last end minus first start),\n\
         medians of {} repetitions (of the small array {SMALL} in each of {LAUNCHES} launches) in which all ways take turns, each\n\
         on arrays of its own, so that none finds in the caches what another left there. `memcpy` is every rank copying its\n\
         share at once, `stream` the same with streaming stores. Shared: source and destination lie in memory that reshard\n\
         allocated, on huge pages where the system grants them, and any rank copies. All others: anybody's arrays, as the\n\
         system's allocator gives them. Every way was verified,\n\
         element by element.\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/mpi.json`.\n",
        first.mpi, results.machine.cpu, first.repetitions, results.machine, results.command
    )?;
    text.push_str(
        "| case | array | ranks | memcpy | stream | Alltoallv | Alltoallw | ScaLAPACK | shared | private | messages |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for case in &results.cases {
        write!(text, "| {}: {} to {} | {} | {} |", case.case, case.from, case.to, case.shape, case.ranks)?;
        for name in [
            "memcpy",
            "stream",
            "alltoallv",
            "alltoallw",
            "scalapack",
            "reshard-shared",
            "reshard-private",
            "reshard-messages",
        ] {
            write!(text, " {} |", shown(case.median(name) * 1e3))?;
        }
        text.push('\n');
    }
    text.push_str(
        "\nThe same as ratios: to `memcpy` (less is better), and how many times faster than the rivals.\n\n\
         | case | array | shared / memcpy | Alltoallw / shared | ScaLAPACK / shared | private / memcpy | Alltoallw / private | ScaLAPACK / private |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    ratios(&mut text, &results.cases, &["reshard-shared", "reshard-private"])?;
    let large = || results.cases.iter().filter(|case| is_large(&case.case, &case.shape));
    let mean = |one: &str, other: &str| mean(large(), one, other);
    writeln!(
        text,
        "\nPrivate arrays, geometric means over cases {} of 4096 x 4096: {:.2} memcpy (goal 1.6), {:.2} times faster than\n\
         Alltoallw (goal 2), {:.2} times faster than ScaLAPACK (goal 5). Shared arrays: {:.2} memcpy, {:.2} times faster than\n\
         Alltoallw (goal 2.8), {:.2} times faster than ScaLAPACK (goal 8).",
        LARGE_BLOCKS.join(", "),
        mean("reshard-private", "memcpy"),
        mean("alltoallw", "reshard-private"),
        mean("scalapack", "reshard-private"),
        mean("reshard-shared", "memcpy"),
        mean("alltoallw", "reshard-shared"),
        mean("scalapack", "reshard-shared"),
    )?;
    in_caches(&mut text, &results.warm)?;
    huge_pages(&mut text, &results.huge)?;
    other_mpi(&mut text, &results.mpich)?;
    Ok(text)
}

/// What changes when a way finds in the caches what it left there.
fn in_caches(text: &mut String, case: &Answer) -> Result<(), Failure> {
    writeln!(
        text,
        "\n## The small array, again and again\n\n\
         Above, all other ways have been there since a way last touched its arrays, as in a program that moves them now and then.\n\
         In one that does so step after step, they are still in the caches. So here each way runs once more before it is measured\n\
         (`reshard bench --warm 1`), the rivals, too. Microseconds: memcpy {:.1}, Alltoallw {:.1}, ScaLAPACK {:.1}, shared {:.1}, private\n\
         {:.1}.\n\n\
         | case | array | shared / memcpy | Alltoallw / shared | ScaLAPACK / shared | private / memcpy | Alltoallw / private | ScaLAPACK / private |\n\
         |---|---|---|---|---|---|---|---|",
        case.median("memcpy") * 1e6,
        case.median("alltoallw") * 1e6,
        case.median("scalapack") * 1e6,
        case.median("reshard-shared") * 1e6,
        case.median("reshard-private") * 1e6,
    )?;
    ratios(text, std::slice::from_ref(case), &["reshard-shared", "reshard-private"])
}

/// What changes when everybody's arrays lie on huge pages.
fn huge_pages(text: &mut String, cases: &[Answer]) -> Result<(), Failure> {
    text.push_str(
        "\n## With huge pages for everybody\n\n\
         Where the system puts large arrays on huge pages by itself (`always` in `/sys/kernel/mm/transparent_hugepage/enabled`, as\n\
         many clusters have it) or they were put there (`reshard::memory::use_huge_pages`, `reshard bench --huge`), less of the time goes\n\
         into finding pages.\n\n\
         | case | array | private / memcpy | Alltoallw / private | ScaLAPACK / private |\n|---|---|---|---|---|\n",
    );
    ratios(text, cases, &["reshard-private"])?;
    writeln!(
        text,
        "\nGeometric means: {:.2} memcpy, {:.2} times faster than Alltoallw, {:.2} times faster than ScaLAPACK.",
        mean(cases.iter(), "reshard-private", "memcpy"),
        mean(cases.iter(), "alltoallw", "reshard-private"),
        mean(cases.iter(), "scalapack", "reshard-private"),
    )?;
    Ok(())
}

/// The same job under another MPI: our own ways hardly use it, the rival is its own.
fn other_mpi(text: &mut String, cases: &[Answer]) -> Result<(), Failure> {
    let Some(first) = cases.first() else { return Ok(()) };
    writeln!(
        text,
        "\n## With {}\n\n\
         Ranks that wait do not give way to others there, so where they outnumber processors (all cases but ii, on this machine)\n\
         its Alltoallw mostly waits: only case ii compares the two ways of moving.\n\n\
         | case | array | shared / memcpy | Alltoallw / shared | private / memcpy | Alltoallw / private |\n\
         |---|---|---|---|---|---|",
        first.mpi
    )?;
    for case in cases {
        write!(text, "| {} | {} |", case.case, case.shape)?;
        for ours in ["reshard-shared", "reshard-private"] {
            for (one, other) in [(ours, "memcpy"), ("alltoallw", ours)] {
                write!(text, " {} |", shown(case.ratio(one, other)))?;
            }
        }
        text.push('\n');
    }
    Ok(())
}

/// A line for each case: of each of our ways the ratio to `memcpy` and how many times faster than the rivals it is.
fn ratios(text: &mut String, cases: &[Answer], ways: &[&str]) -> Result<(), Failure> {
    for case in cases {
        write!(text, "| {} | {} |", case.case, case.shape)?;
        for &ours in ways {
            for (one, other) in [(ours, "memcpy"), ("alltoallw", ours), ("scalapack", ours)] {
                write!(text, " {} |", shown(case.ratio(one, other)))?;
            }
        }
        text.push('\n');
    }
    Ok(())
}

/// Whether a case counts for the geometric mean.
fn is_large(case: &str, shape: &str) -> bool {
    LARGE_BLOCKS.contains(&case) && shape == "4096x4096"
}

/// The geometric mean of ratios.
fn mean<'a>(cases: impl Iterator<Item = &'a Answer>, one: &str, other: &str) -> f64 {
    let logs: Vec<f64> = cases.map(|case| case.ratio(one, other).ln()).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

fn shown(number: f64) -> String {
    match number {
        number if number.is_nan() => "-".to_string(),
        number if number < 1.0 => format!("{number:.3}"),
        number => format!("{number:.2}"),
    }
}
