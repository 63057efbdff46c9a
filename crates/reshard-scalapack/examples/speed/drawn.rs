//! Cases that nobody chose: routine, shape, grids and blocks are drawn by a seed.

use crate::host::Host;
use crate::matrix::{Matrix, Side, call};
use crate::{PROCESSES, REPETITIONS, checked, context_of_all, median, timed};
use reshard_testkit::Random;

/// Rows and columns of a matrix, each.
const LENS: [usize; 2] = [8, 2048];

/// So long at least is what is timed, of as many calls in a row as that takes, up to a limit.
const SECONDS: f64 = 2e-3;
const MAX_CALLS: f64 = 50.0;

/// The routines, by their letter, and the bytes of an element.
const TYPES: [(char, usize); 5] = [('i', 4), ('s', 4), ('d', 8), ('c', 8), ('z', 16)];

struct Drawn {
    letter: char,
    elem: usize,
    shape: [usize; 2],
    sides: [Side; 2],
}

/// A number from `least` to `most` whose logarithm is uniform.
fn log_uniform(random: &mut Random, least: usize, most: usize) -> usize {
    let fraction = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    let (least, most) = (least as f64, most as f64 + 1.0);
    (least * (most / least).powf(fraction)) as usize
}

impl Drawn {
    fn new(random: &mut Random) -> Self {
        let (letter, elem) = TYPES[random.within(0, TYPES.len() as u64 - 1) as usize];
        let shape = [0, 1].map(|_| log_uniform(random, LENS[0], LENS[1]));
        let sides = [0, 1].map(|_| side(random, shape));
        Self { letter, elem, shape, sides }
    }
}

/// A grid of one to all processes, whichever and in whatever order, and blocks of one row or column to all of them.
fn side(random: &mut Random, shape: [usize; 2]) -> Side {
    let mut below = |count: usize| random.within(0, count as u64 - 1) as usize;
    let processes = 1 + below(PROCESSES);
    let divisors: Vec<usize> = (1..=processes).filter(|&rows| processes.is_multiple_of(rows)).collect();
    let rows = divisors[below(divisors.len())];
    let grid = [rows, processes / rows];
    let mut ranks: Vec<usize> = (0..PROCESSES).collect();
    (1..PROCESSES).for_each(|k| ranks.swap(k, below(k + 1)));
    ranks.truncate(processes);
    let source = grid.map(below);
    let block = shape.map(|len| log_uniform(random, 1, len));
    Side { grid, block, source, ranks }
}

impl std::fmt::Display for Drawn {
    /// In the notation of layouts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { letter, shape: [m, n], sides, .. } = self;
        let side = |Side { grid, block, source, ranks }: &Side| {
            let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            let [grid, block, source] =
                [grid, block, source].map(|[rows, columns]| format!("{rows}x{columns}"));
            format!("{grid}/{block} first={source} ranks={}", ranks.join(","))
        };
        write!(f, "p{letter}gemr2d {m} x {n}, {} to {}", side(&sides[0]), side(&sides[1]))
    }
}

/// So many cases, or one of them by its number, as JSON: seconds of a call of a known shape, and how many times faster ours are.
pub fn run(host: &Host, seed: u64, count: usize, only: Option<usize>) -> String {
    let context = context_of_all(host);
    let mut random = Random::new(seed);
    let (mut lines, mut gains) = (Vec::new(), Vec::new());
    for number in 0..count {
        let drawn = Drawn::new(&mut random);
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let name = drawn.to_string();
        let routine = format!("Cp{}gemr2d", drawn.letter);
        let mut pair = drawn.sides.each_ref().map(|side| Matrix::new(host, drawn.shape, drawn.elem, side));
        checked(host, &name, &routine, &mut pair, context);
        // All processes have the same times, and so the same number of calls.
        let mut time =
            |ours: bool, calls: u32| timed(host, calls, || call(host, ours, &routine, &mut pair, context));
        let once = time(true, 1).min(time(false, 1));
        let calls = (SECONDS / once).ceil().clamp(1.0, MAX_CALLS) as u32;
        let mut times = [vec![], vec![]];
        for _ in 0..REPETITIONS {
            for (ours, times) in [true, false].into_iter().zip(&mut times) {
                times.push(time(ours, calls));
            }
        }
        let [ours, theirs] = times.map(median);
        lines.push(format!("{{\"case\":\"{name}\",\"ours\":{ours:e},\"scalapack\":{theirs:e}}}"));
        gains.push((theirs / ours, name));
        pair.into_iter().for_each(|matrix| matrix.destroy(host));
    }
    gains.sort_by(|one, two| one.0.total_cmp(&two.0));
    let mean = (gains.iter().map(|(gain, _)| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
    let (worst, worst_case) = gains.first().expect("a case was drawn");
    let (fifth, _) = gains[gains.len() - 1 - gains.len() * 95 / 100];
    format!(
        "{{\"seed\":{seed},\"rows\":[{}],\"geometric_mean\":{mean:.3},\"percentile_5\":{fifth:.3},\"worst\":{worst:.3},\
         \"worst_case\":\"{worst_case}\"}}",
        lines.join(",")
    )
}
