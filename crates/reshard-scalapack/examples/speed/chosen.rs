//! The cases of the literature, and small ones: again, in new contexts, and of new shapes.

use crate::host::Host;
use crate::matrix::{Matrix, Side, call};
use crate::{REPETITIONS, checked, context_of_all, median, timed};
use reshard_mpi::mpi::Reduce;

/// A grid, its blocks.
type Layout = ([usize; 2], [usize; 2]);

/// On four processes: name, side of the matrix, source, destination, calls in a row.
const CASES: [(&str, usize, Layout, Layout, u32); 9] = [
    ("i", 4096, ([2, 2], [64, 64]), ([1, 4], [32, 32]), 1),
    ("ii", 4096, ([1, 2], [256, 256]), ([2, 1], [128, 128]), 1),
    ("iii", 4096, ([2, 2], [64, 64]), ([1, 4], [50, 30]), 1),
    ("iv", 4096, ([2, 2], [64, 64]), ([3, 1], [100, 100]), 1),
    ("v", 4096, ([2, 2], [8, 8]), ([4, 1], [5, 7]), 1),
    ("vi", 4096, ([2, 2], [1, 1]), ([1, 4], [2, 2]), 1),
    ("vii", 4096, ([2, 2], [64, 64]), ([2, 2], [1024, 1024]), 1),
    ("256 x 256", 256, ([2, 2], [64, 64]), ([1, 4], [32, 32]), 20),
    ("25 x 25", 25, ([1, 2], [13, 13]), ([2, 2], [5, 5]), 50),
];

const ROUTINE: &str = "Cpdgemr2d";

/// On the first ranks.
fn side((grid, block): Layout) -> Side {
    Side { grid, block, source: [0, 0], ranks: (0..grid[0] * grid[1]).collect() }
}

/// All cases, or one, as JSON.
pub fn run(host: &Host, only: Option<&str>) -> String {
    let context = context_of_all(host);
    let mut lines = Vec::new();
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    for (name, len, from, to, calls) in CASES.into_iter().filter(|(name, ..)| wanted(name)) {
        let sides = [side(from), side(to)];
        let matrices = |len: usize| sides.each_ref().map(|side| Matrix::new(host, [len, len], 8, side));
        let mut pair = matrices(len);
        checked(host, name, ROUTINE, &mut pair, context);
        let mut times = [vec![], vec![], vec![]];
        for _ in 0..REPETITIONS {
            for (ours, times) in [true, false].into_iter().zip(&mut times) {
                times.push(timed(host, calls, || call(host, ours, ROUTINE, &mut pair, context)));
            }
            let mut words = [0_u64; 8];
            let reduce = || host.world().all_reduce(&mut words, Reduce::Max).unwrap();
            times[2].push(timed(host, calls, reduce));
        }
        let [ours, theirs, reduction] = times.map(median);
        lines.push(format!(
            "{{\"case\":\"{name}\",\"ours\":{ours:e},\"scalapack\":{theirs:e},\"allreduce\":{reduction:e}}}"
        ));
        // In new contexts, all of them made anew for each call.
        let mut times = [vec![], vec![]];
        for _ in 0..REPETITIONS {
            for (ours, times) in [true, false].into_iter().zip(&mut times) {
                pair.iter_mut().for_each(|matrix| matrix.renew(host));
                let fresh = context_of_all(host);
                times.push(timed(host, 1, || call(host, ours, ROUTINE, &mut pair, fresh)));
                host.destroy(fresh);
            }
        }
        let [ours, theirs] = times.map(median);
        lines.push(format!(
            "{{\"case\":\"{name}, new contexts\",\"ours\":{ours:e},\"scalapack\":{theirs:e}}}"
        ));
        pair.into_iter().for_each(|matrix| matrix.destroy(host));
        // A shape that was never there before.
        let mut times = [vec![], vec![]];
        for k in 0..REPETITIONS {
            let mut pair = matrices(len - len / 50 - k);
            for (ours, times) in [true, false].into_iter().zip(&mut times) {
                times.push(timed(host, 1, || call(host, ours, ROUTINE, &mut pair, context)));
            }
            pair.into_iter().for_each(|matrix| matrix.destroy(host));
        }
        let [ours, theirs] = times.map(median);
        lines.push(format!("{{\"case\":\"{name}, new shape\",\"ours\":{ours:e},\"scalapack\":{theirs:e}}}"));
    }
    format!("[{}]", lines.join(","))
}
