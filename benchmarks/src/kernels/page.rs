//! The page about kernels: tables of what was measured, beside what the paper says, and a picture.

use super::advice::{Record, records};
use super::{Answer, Results, Times};
use crate::chart::{Chart, Line};
use crate::machine::Failure;
use std::fmt::Write as _;

/// Best grid and block of the paper's Table 1, sixteen processes of an Intel Paragon and of a Cray T3D.
const PAPER: [(&str, &str, &str); 3] = [
    ("multiply", "4 x 4, 64", "4 x 4, 64"),
    ("LU", "1 x 16, 8", "1 x 16, 16"),
    ("solve", "16 x 1, 64", "16 x 1, 64"),
];

pub fn page(results: &Results) -> Result<String, Failure> {
    let first = results.sizes.first().ok_or("no sizes")?;
    let mut text = String::from("# Kernels in the layout that suits them\n\n");
    writeln!(
        text,
        "Prylli and Tourancheau (section 6 of *Efficient block cyclic data redistribution*) ran three kernels of ScaLAPACK in all layouts of\n\
         16 processes: none is best for all three, and moving matrices to the best one and back gained up to 80 %. This is their\n\
         experiment with the ScaLAPACK and the processors of today: {} processes, all their grids, square blocks of 4 to 256, matrices of\n\
         doubles; multiply is `pdgemm`, LU `pdgetrf`, solve `pdgetrs` with a quarter as many right-hand sides as rows. Every result is\n\
         checked: products by a vector, factors and solutions element by element, redistributions bit by bit.\n\n\
         Machine: {}; {}; {}.\n\
         All processes are on it, and there are more of them than cores. Times are from the first process's start to the last one's end;\n\
         medians of 3 launches of 3 runs each for 512 and 1024, of 3 runs for 2048, and one run for 4096. Reproduce with `{}`; raw numbers in\n\
         `benchmarks/results/kernels.json`. The program is [examples/kernels](../examples/kernels).\n",
        first.ranks, results.machine, first.blas, first.mpi, results.command
    )?;
    text.push_str(
        "![Times of all layouts, and with redistribution, by the size of the matrix](kernels.svg)\n\n",
    );
    table_1(&mut text, results)?;
    one_kernel(&mut text, results)?;
    chain(&mut text, results)?;
    beside_the_paper(&mut text, results)?;
    redistributions(&mut text, results)?;
    advisor(&mut text, &records(&results.sizes)?)?;
    Ok(text)
}

/// The paper's Table 1.
fn table_1(text: &mut String, results: &Results) -> Result<(), Failure> {
    text.push_str("## The best layouts\n\nGrid and block, as in the paper's Table 1:\n\n| |");
    for answer in &results.sizes {
        write!(text, " {} |", answer.size)?;
    }
    text.push_str(" Paragon, 1024 | T3D, 1024 |\n|---|");
    text.push_str(&"---|".repeat(results.sizes.len() + 2));
    text.push('\n');
    for (number, (name, paragon, t3d)) in PAPER.into_iter().enumerate() {
        write!(text, "| {name} |")?;
        for answer in &results.sizes {
            write!(text, " {} |", named(&answer.layouts[answer.best(number)]))?;
        }
        writeln!(text, " {paragon} | {t3d} |")?;
    }
    text.push('\n');
    Ok(())
}

/// `2x2/64x64` as the paper writes it.
fn named(layout: &str) -> String {
    let (grid, block) = layout.split_once('/').unwrap_or((layout, ""));
    format!("{}, {}", grid.replace('x', " x "), block.split('x').next().unwrap_or_default())
}

fn one_kernel(text: &mut String, results: &Results) -> Result<(), Failure> {
    text.push_str(
        "## One kernel: there and back\n\n\
         Milliseconds in the best and the worst layout; from every layout to the best, there, and back, the best and the worst of these with\n\
         plans that are kept. The gain is what redistributing saves of the time in a layout, measured in turns with it; how many layouts gain, and\n\
         how many lose more than a tenth. In brackets the first time, with the planning of all redistributions.\n\n\
         | kernel | size | best | worst | moved: best | worst | largest gain | largest loss | layouts that gain | that lose a tenth |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (number, (name, ..)) in PAPER.into_iter().enumerate() {
        for answer in &results.sizes {
            let (again, first) = (Gains::again(answer, number), Gains::first(answer, number));
            let (best, worst) = span(answer.stay(number).iter().copied());
            let (moved, moved_worst) = span(answer.with_and_without.moved[number].iter().copied());
            writeln!(
                text,
                "| {name} | {} | {} | {} | {} | {} | {:.0} % ({:.0}) | {:.0} % ({:.0}) | {} of {} ({}) | {} ({}) |",
                answer.size,
                milliseconds(best),
                milliseconds(worst),
                milliseconds(moved),
                milliseconds(moved_worst),
                again.largest,
                first.largest,
                -again.least,
                -first.least,
                again.gaining,
                answer.layouts.len(),
                first.gaining,
                again.losing,
                first.losing,
            )?;
        }
    }
    text.push('\n');
    Ok(())
}

/// What redistributing saves, in per cent: the most, the least, in how many layouts it saves anything and in how many it costs a tenth.
struct Gains {
    largest: f64,
    least: f64,
    gaining: usize,
    losing: usize,
}

impl Gains {
    fn of(stay: &[f64], moved: impl Iterator<Item = f64>) -> Self {
        let gains: Vec<f64> =
            stay.iter().zip(moved).map(|(stay, moved)| 100.0 * (1.0 - moved / stay)).collect();
        let (least, largest) = span(gains.iter().copied());
        let count = |is: fn(&f64) -> bool| gains.iter().filter(|gain| is(gain)).count();
        Self { largest, least, gaining: count(|gain| *gain > 0.0), losing: count(|gain| *gain < -10.0) }
    }

    fn again(answer: &Answer, kernel: usize) -> Self {
        Self::of(answer.stay(kernel), answer.with_and_without.moved[kernel].iter().copied())
    }

    fn first(answer: &Answer, kernel: usize) -> Self {
        Self::of(answer.stay(kernel), (0..answer.layouts.len()).map(|here| answer.moved_first(kernel, here)))
    }
}

fn chain(text: &mut String, results: &Results) -> Result<(), Failure> {
    text.push_str(
        "## All three in a row\n\n\
         A B is factored, and systems with it are solved; milliseconds. Stay: all three in one layout (the sum of the kernels' times). Six: every\n\
         kernel in its best layout, six redistributions from a layout and back to it, with kept plans. Optimised: without those at the beginning and the end, two are left.\n\n\
         | size | stay: best layout | worst | six: best | worst | optimised | six / best layout | six saves of the worst | optimised saves of the best | of the worst |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for answer in &results.sizes {
        let (best, worst) = span((0..answer.layouts.len()).map(|at| answer.chain_stay(at)));
        let (six, six_worst) = span(answer.with_and_without.chain.iter().copied());
        let optimised = answer.with_and_without.optimised_chain;
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.2} to {:.2} | {:.0} % | {:.0} % | {:.0} % |",
            answer.size,
            milliseconds(best),
            milliseconds(worst),
            milliseconds(six),
            milliseconds(six_worst),
            milliseconds(optimised),
            six / best,
            six_worst / best,
            100.0 * (1.0 - six_worst / worst),
            100.0 * (1.0 - optimised / best),
            100.0 * (1.0 - optimised / worst),
        )?;
    }
    text.push('\n');
    Ok(())
}

fn beside_the_paper(text: &mut String, results: &Results) -> Result<(), Failure> {
    let largest = |number: usize| {
        let gains = results.sizes.iter().map(|answer| (Gains::again(answer, number).largest, answer.size));
        gains.fold((f64::MIN, 0), |most, gain| if gain.0 > most.0 { gain } else { most })
    };
    let [(multiply, multiply_at), (lu, lu_at), (solve, solve_at)] = [0, 1, 2].map(largest);
    let chains =
        || results.sizes.iter().flat_map(|answer| (0..answer.layouts.len()).map(move |at| (answer, at)));
    let gaining =
        chains().filter(|(answer, at)| answer.with_and_without.chain[*at] < answer.chain_stay(*at)).count();
    writeln!(
        text,
        "## Beside the paper\n\n\
         The paper has gains of up to 80 %, LU up to twice and solves up to five times as slow in bad layouts, and says that for the chain\n\
         redistributing is better from all layouts, and for one kernel from all but the best. Here the largest gains are {multiply:.0} % for multiply\n\
         (at {multiply_at}), {lu:.0} % for LU (at {lu_at}) and {solve:.0} % for solve (at {solve_at}); the chain with six redistributions is faster than\n\
         staying from {gaining} of {} layouts and sizes.\n",
        chains().count()
    )?;
    Ok(())
}

fn redistributions(text: &mut String, results: &Results) -> Result<(), Failure> {
    text.push_str(
        "## What the redistributions take\n\n\
         One redistribution of the matrix between two of the layouts, all pairs, milliseconds: with a kept plan least, median and most, and the\n\
         median and most of the first time. The last columns: what a kernel takes with its redistributions, measured in one, divided by the sum\n\
         of its parts, measured apart (geometric mean over layouts): the sum that the advisor predicts.\n\n\
         | size | least | median | most | first: median | most | multiply / parts | LU / parts | solve / parts |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for answer in &results.sizes {
        let pairs = || {
            let all = answer.redistributions.square.iter().enumerate();
            all.flat_map(|(from, row)| row.iter().enumerate().filter(move |(to, _)| *to != from))
                .map(|(_, times)| times)
        };
        let middle =
            |time: fn(&Times) -> f64| crate::machine::median(pairs().map(time).collect()).unwrap_or(f64::NAN);
        let (least, most) = span(pairs().map(|times| times.again));
        let (_, first_most) = span(pairs().map(|times| times.first));
        let together = |number: usize| {
            let (stay, moved) = (answer.stay(number), &answer.with_and_without.moved[number]);
            let best = answer.best(number);
            let others = (0..stay.len()).filter(|&at| at != best);
            let ratio = |at: usize| {
                let parts = stay[best] + answer.redistribution(number, at, best, |times| times.again);
                (moved[at] / parts).ln()
            };
            let logs: Vec<f64> = others.map(ratio).collect();
            (logs.iter().sum::<f64>() / logs.len() as f64).exp()
        };
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} |",
            answer.size,
            milliseconds(least),
            milliseconds(middle(|times| times.again)),
            milliseconds(most),
            milliseconds(middle(|times| times.first)),
            milliseconds(first_most),
            together(0),
            together(1),
            together(2),
        )?;
    }
    text.push('\n');
    Ok(())
}

fn advisor(text: &mut String, records: &[Record]) -> Result<(), Failure> {
    text.push_str(
        "## The advisor\n\n\
         `reshard advise` and `reshard::advise::Advisor` predict from small trials whether moving to another layout and back pays. Asked about all\n\
         pairs of layouts and all three kernels, from trials of smaller sizes, with the margin of a tenth: how often it said what, how\n\
         many of its moves and stays were right, and the time over that of the better choice, in the mean of all questions: with the advice (`close`\n\
         is taken as stay), with always staying, with always moving; the worst single answer.\n\n\
         | trials | predicted | move | stay | close | right | with advice | always stay | always move | worst answer |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for record in records {
        let trials: Vec<String> = record.trials.iter().map(ToString::to_string).collect();
        let said = record.moves + record.stays;
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.1} % | {:.1} % | {:.0} % | {:.0} % | {:.0} % |",
            trials.join(", "),
            record.size,
            record.moves,
            record.stays,
            record.close,
            100.0 * record.right as f64 / said.max(1) as f64,
            100.0 * record.advised,
            100.0 * record.always_stay,
            100.0 * record.always_move,
            100.0 * record.worst
        )?;
    }
    text.push_str(
        "\nA kernel with its redistributions is judged here by the sum of its parts; the table before says how far that is from a run in one.\n",
    );
    Ok(())
}

/// Times of all layouts as multiples of the best one's, by size.
pub fn chart(results: &Results) -> Chart {
    let panel = |name: &str, stay: &dyn Fn(&Answer, usize) -> f64, moved: &dyn Fn(&Answer, usize) -> f64| {
        let layouts = |answer: &Answer| 0..answer.layouts.len();
        let best = |answer: &Answer| span(layouts(answer).map(|at| stay(answer, at))).0;
        let mut lines = Vec::new();
        for grid in ["1x4", "2x2", "4x1"] {
            let mut points = Vec::new();
            for answer in &results.sizes {
                let of_grid = layouts(answer).filter(|&at| answer.layouts[at].starts_with(grid));
                points.extend(of_grid.map(|at| (answer.size as f64, stay(answer, at) / best(answer))));
            }
            lines.push(Line { name: format!("layouts of {grid}"), points, joined: false });
        }
        let ends = |answer: &Answer| span(layouts(answer).map(|at| moved(answer, at)));
        let line = |name: &str, time: &dyn Fn(&Answer) -> f64| Line {
            name: name.to_string(),
            points: results
                .sizes
                .iter()
                .map(|answer| (answer.size as f64, time(answer) / best(answer)))
                .collect(),
            joined: true,
        };
        lines.push(line("redistributed, best", &|answer| ends(answer).0));
        lines.push(line("redistributed, worst", &|answer| ends(answer).1));
        if name == "all three" {
            lines.push(line("optimised", &|answer| answer.with_and_without.optimised_chain));
        }
        (name.to_string(), lines)
    };
    let mut panels = Vec::new();
    for (number, (name, ..)) in PAPER.into_iter().enumerate() {
        panels.push(panel(name, &|answer, at| answer.stay(number)[at], &|answer, at| {
            answer.with_and_without.moved[number][at]
        }));
    }
    panels.push(panel("all three", &Answer::chain_stay, &|answer, at| answer.with_and_without.chain[at]));
    Chart {
        title: "Times as multiples of the best layout's: every layout, and with redistribution to the best and back".to_string(),
        panels,
        x_label: "rows of the matrix".to_string(),
        y_label: "time / time in the best layout".to_string(),
    }
}

/// The least and the most.
fn span(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold((f64::MAX, f64::MIN), |(least, most), number| (least.min(number), most.max(number)))
}

/// With three digits.
fn milliseconds(seconds: f64) -> String {
    match seconds * 1e3 {
        time if time < 10.0 => format!("{time:.2}"),
        time if time < 100.0 => format!("{time:.1}"),
        time => format!("{time:.0}"),
    }
}
