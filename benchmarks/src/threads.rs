//! How fast the embedded engine moves data, as a ratio to a plain copy of the same bytes.
//!
//! The cases of the ScaLAPACK literature and of coupled codes, doubles, column-major. In every repetition each case runs
//! next to a `memcpy` and a streaming copy of as many bytes by as many threads, on the same memory; the ratio is the
//! median of the case over the lower of the two medians. All elements are checked once.

use crate::machine::{Failure, Machine, keep, median};
use reshard::engine::{PlainCopy, Threads};
use reshard::memory::Memory;
use reshard::{Layout, MemoryOrder, Move, Plan, Redistribution, Window};
use reshard_plan::Distribution;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

const REPETITIONS: usize = 15;
const THREADS: usize = 2;

struct Case {
    name: &'static str,
    shape: Vec<u64>,
    from: &'static str,
    to: &'static str,
    transposed: bool,
    /// What we must reach.
    target: f64,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for n in [4096, 8192] {
        let mut square = |name, from, to, transposed, target| {
            cases.push(Case { name, shape: vec![n, n], from, to, transposed, target });
        };
        square("i", "2x2/64x64", "1x4/32x32", false, 1.0);
        square("ii", "1x2/256x256", "2x1/128x128", false, 1.15);
        square("iii", "4x4/64x64", "2x8/50x30", false, 1.15);
        square("iv", "4x4/64x64", "3x3/100x100", false, 1.15);
        square("v", "2x2/8x8", "4x1/5x7", false, 2.0);
        square("vi", "2x2/1x1", "1x4/2x2", false, 1.7);
        square("vii", "2x2/64x64", "2x2/1024x1024", false, 1.0);
        square("ii transposed", "1x2/256x256", "2x1/128x128", true, 1.5);
    }
    cases.push(Case {
        name: "3-D",
        shape: vec![256; 3],
        from: "2x2x2/16x16x16",
        to: "4x2x1/10x30x7",
        transposed: false,
        target: 1.6,
    });
    cases.push(Case {
        name: "viii",
        shape: vec![256; 2],
        from: "2x2/64x64",
        to: "1x4/32x32",
        transposed: false,
        target: 2.0,
    });
    cases
}

#[derive(Serialize)]
struct Row {
    case: &'static str,
    shape: String,
    from: &'static str,
    to: &'static str,
    /// Milliseconds, medians.
    reshard: f64,
    memcpy: f64,
    stream: f64,
    ratio: f64,
    target: f64,
    /// Microseconds to plan and to prepare the engine.
    planning: f64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    threads: usize,
    repetitions: usize,
    rows: Vec<Row>,
}

/// `only` names one case; all without it.
pub fn run(only: Option<&str>) -> Result<(), Failure> {
    let cases: Vec<Case> =
        cases().into_iter().filter(|case| only.is_none_or(|only| case.name == only)).collect();
    let mut prepared = cases.iter().map(prepare).collect::<Result<Vec<_>, Failure>>()?;
    let most = prepared.iter().map(|one| one.elems).max().ok_or("no such case")?;
    let (mut source, mut target) = (Memory::<f64>::zeroed(most)?, Memory::<f64>::zeroed(most)?);
    let mut copy = PlainCopy::new(THREADS)?;
    for (case, one) in cases.iter().zip(&mut prepared) {
        verify(case, one, &mut source, &mut target)?;
    }
    let mut times: Vec<[Vec<f64>; 3]> = cases.iter().map(|_| Default::default()).collect();
    for repetition in 0..REPETITIONS {
        eprintln!("repetition {} of {REPETITIONS}", repetition + 1);
        for (one, times) in prepared.iter_mut().zip(&mut times) {
            let (source, target) = (&source[..one.elems], &mut target[..one.elems]);
            // Small arrays are measured warm, as they are used.
            let rounds = (1 << 22) / one.elems + 1;
            let mut timed = |kind: usize, run: &mut dyn FnMut(&mut [f64]) -> Result<(), Failure>| {
                for _ in 0..rounds {
                    let begin = Instant::now();
                    run(target)?;
                    times[kind].push(begin.elapsed().as_secs_f64() * 1e3);
                }
                Ok::<(), Failure>(())
            };
            let from = parts(source, &one.from_spans);
            timed(0, &mut |target| {
                let mut to = parts_mut(target, &one.to_spans);
                let begin = Instant::now();
                one.redistribution.run(&from, &mut to)?;
                std::hint::black_box(begin);
                Ok(())
            })?;
            for (kind, streams) in [(1, false), (2, true)] {
                timed(kind, &mut |target| {
                    let (from, to) = (bytemuck::cast_slice(source), bytemuck::cast_slice_mut(target));
                    Ok(copy.run(from, to, streams)?)
                })?;
            }
        }
    }
    let rows: Vec<Row> = cases
        .iter()
        .zip(&prepared)
        .zip(times)
        .map(|((case, one), times)| {
            let [reshard, memcpy, stream] = times.map(|times| median(times).unwrap_or(f64::NAN));
            let ratio = reshard / memcpy.min(stream);
            Row {
                case: case.name,
                shape: case.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x"),
                from: case.from,
                to: case.to,
                reshard,
                memcpy,
                stream,
                ratio,
                target: case.target,
                planning: one.planning * 1e6,
            }
        })
        .collect();
    let results = Results {
        benchmark: "threads",
        command: "cargo xtask bench threads",
        machine: Machine::here(),
        threads: THREADS,
        repetitions: REPETITIONS,
        rows,
    };
    let text = report(&results)?;
    if only.is_some() {
        println!("{text}");
        return Ok(());
    }
    keep("threads", &results, &text)
}

struct Prepared {
    redistribution: Redistribution,
    from_spans: Vec<usize>,
    to_spans: Vec<usize>,
    elems: usize,
    planning: f64,
}

fn prepare(case: &Case) -> Result<Prepared, Failure> {
    let shape = case.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let layout = |text: &str| -> Result<Layout, Failure> {
        Ok(Layout::new(format!("{text} of {shape}").parse::<Distribution>()?, MemoryOrder::ColMajor))
    };
    let (from, to) = (layout(case.from)?, layout(case.to)?);
    let begin = Instant::now();
    let mut window = Window::of(&case.shape);
    if case.transposed {
        window = window.permuted(&[1, 0]);
    }
    let plan = Plan::new(vec![Move::windowed::<f64>(from, to, window)?])?;
    let array = &plan.arrays()[0];
    let from_spans: Vec<usize> = array.sources().iter().map(|part| part.span as usize).collect();
    let to_spans: Vec<usize> = array.targets().iter().map(|part| part.span as usize).collect();
    let redistribution = Redistribution::with(Threads::new(Arc::new(plan), Some(THREADS))?);
    let planning = begin.elapsed().as_secs_f64();
    let elems = case.shape.iter().product::<u64>() as usize;
    Ok(Prepared { redistribution, from_spans, to_spans, elems, planning })
}

fn parts<'a>(whole: &'a [f64], spans: &[usize]) -> Vec<&'a [f64]> {
    let mut rest = whole;
    let mut next = |&span: &usize| {
        let (part, after) = rest.split_at(span);
        rest = after;
        part
    };
    spans.iter().map(&mut next).collect()
}

fn parts_mut<'a>(whole: &'a mut [f64], spans: &[usize]) -> Vec<&'a mut [f64]> {
    let mut rest = whole;
    let mut parts = Vec::with_capacity(spans.len());
    for &span in spans {
        let (part, after) = rest.split_at_mut(span);
        parts.push(part);
        rest = after;
    }
    parts
}

/// Moves an array whose elements are their own global indices, and looks at all of them.
fn verify(case: &Case, one: &mut Prepared, source: &mut [f64], target: &mut [f64]) -> Result<(), Failure> {
    target.fill(-1.0);
    let plan = one.redistribution.plan().clone();
    let wanted = plan.arrays()[0].wanted();
    let index = |global: &[u64]| global.iter().rev().fold(0, |at, &g| at * case.shape[0] + g) as f64;
    let mut rest = &mut source[..one.elems];
    for part in plan.arrays()[0].sources() {
        let (here, after) = rest.split_at_mut(part.span as usize);
        for_each(wanted.from(), part.rank, |at, global| {
            here[at] = index(global);
            Ok(())
        })?;
        rest = after;
    }
    let from = parts(&source[..one.elems], &one.from_spans);
    one.redistribution.run(&from, &mut parts_mut(&mut target[..one.elems], &one.to_spans))?;
    let mut rest = &target[..one.elems];
    for part in plan.arrays()[0].targets() {
        let (here, after) = rest.split_at(part.span as usize);
        for_each(wanted.to(), part.rank, |at, global| {
            let mut expected = global.to_vec();
            if case.transposed {
                expected.reverse();
            }
            match here[at] == index(&expected) {
                true => Ok(()),
                false => Err(format!("case {}: element {global:?} is wrong", case.name).into()),
            }
        })?;
        rest = after;
    }
    Ok(())
}

/// Calls `each(address, global index)` for every element of a rank's part.
fn for_each(
    layout: &Layout,
    rank: u64,
    mut each: impl FnMut(usize, &[u64]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let distribution = layout.distribution();
    let (shape, strides) = (distribution.local_shape(rank)?, layout.strides(rank)?);
    let coords = distribution.coords(rank)?;
    let elems: u64 = shape.iter().product();
    let mut global = vec![0; shape.len()];
    for number in 0..elems {
        let (mut rest, mut at) = (number, 0);
        for dim in 0..shape.len() {
            let local = rest % shape[dim];
            rest /= shape[dim];
            at += local * strides[dim];
            global[dim] =
                distribution.axes()[dim].global_from_local(coords[dim], local).ok_or("not a local index")?;
        }
        each(at as usize, &global)?;
    }
    Ok(())
}

fn report(results: &Results) -> Result<String, std::fmt::Error> {
    let mut text = String::from("# Speed of the embedded engine\n\n");
    writeln!(
        text,
        "Doubles, column-major, {} threads; milliseconds, medians of {} repetitions in which every case runs beside a `memcpy`\n\
         and a streaming copy of as many bytes on the same memory (huge pages, warm). The ratio is to the faster of the two.\n\
         Every element of every case was checked.\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/threads.json`.\n",
        results.threads, results.repetitions, results.machine, results.command
    )?;
    text.push_str("| case | array | from | to | reshard | memcpy | stream | ratio | goal |\n|---|---|---|---|---|---|---|---|---|\n");
    for row in &results.rows {
        writeln!(
            text,
            "| {} | {} | {} | {} | {:.3} | {:.3} | {:.3} | {:.2} | {} |",
            row.case, row.shape, row.from, row.to, row.reshard, row.memcpy, row.stream, row.ratio, row.target
        )?;
    }
    let slowest = results.rows.iter().map(|row| row.planning).fold(0.0, f64::max);
    writeln!(
        text,
        "\nPlanning, for all ranks together and the threads started: at most {slowest:.0} microseconds."
    )?;
    Ok(text)
}
