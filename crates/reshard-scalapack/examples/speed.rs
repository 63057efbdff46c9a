//! Our routines beside ScaLAPACK's, in turns, called as C calls them: under `mpirun -n 4`, as `cargo xtask bench scalapack` does. Writes
//! one line of JSON. The name of a case leaves out the others.

#![allow(unsafe_code, missing_docs, clippy::unwrap_used, clippy::print_stdout)]

#[allow(dead_code)]
#[path = "../tests/calls/host.rs"]
mod host;

use host::{Call, Host};
use reshard_mpi::mpi::Reduce;
use std::ffi::c_int;
use std::time::Instant;

/// One side: the grid, the block.
type Side = ([usize; 2], [usize; 2]);

/// The cases of the literature, on four processes: name, side of the matrix, source, destination, calls in a row.
const CASES: [(&str, usize, Side, Side, u32); 9] = [
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

/// Integers of the host program.
pub type Int = i32;

const REPETITIONS: usize = 15;

/// A matrix on a grid, and this process's part.
struct Matrix {
    context: c_int,
    descriptor: [c_int; 9],
    part: Vec<f64>,
}

impl Matrix {
    fn new(host: &Host, side: usize, (grid, block): Side) -> Self {
        let rank = host.world().rank();
        let context = host.context(grid[0], grid[1], &(0..grid[0] * grid[1]).collect::<Vec<_>>());
        let place = [rank / grid[1], rank % grid[1]];
        let local =
            |dim: usize| (0..side).filter(|index| index / block[dim] % grid[dim] == place[dim]).count();
        let [rows, columns] = if rank < grid[0] * grid[1] { [local(0), local(1)] } else { [0, 0] };
        let int = |number: usize| number as c_int;
        let part = (0..rows.max(1) * columns.max(1)).map(|at| (rank << 32 | at) as f64).collect();
        let descriptor =
            [1, context, int(side), int(side), int(block[0]), int(block[1]), 0, 0, int(rows.max(1))];
        Self { context, descriptor, part }
    }

    /// The matrix in a new context of the same grid.
    fn renewed(mut self, host: &Host, grid: [usize; 2]) -> Self {
        host.destroy(self.context);
        self.context = host.context(grid[0], grid[1], &(0..grid[0] * grid[1]).collect::<Vec<_>>());
        self.descriptor[1] = self.context;
        self
    }
}

fn call(host: &Host, ours: bool, side: usize, [a, b]: &mut [Matrix; 2], context: c_int) {
    let call = Call {
        letters: None,
        m: side as c_int,
        n: side as c_int,
        a: a.part.as_mut_ptr().cast(),
        ia: 1,
        ja: 1,
        desca: &a.descriptor,
        b: b.part.as_mut_ptr().cast(),
        ib: 1,
        jb: 1,
        descb: &b.descriptor,
        context: Some(context),
    };
    host.call(ours, "Cpdgemr2d", &call);
}

/// Seconds of one of so many calls in a row, of the slowest process.
fn timed(host: &Host, calls: u32, mut one: impl FnMut()) -> f64 {
    host.world().barrier().unwrap();
    let began = Instant::now();
    (0..calls).for_each(|_| one());
    let mut nanoseconds = [began.elapsed().as_nanos() as u64];
    host.world().all_reduce(&mut nanoseconds, Reduce::Max).unwrap();
    nanoseconds[0] as f64 * 1e-9 / f64::from(calls)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let host = Host::new(false);
    let size = host.world().size();
    assert_eq!(size, 4, "start it with four processes");
    let all: Vec<usize> = (0..size).collect();
    let context = host.context(1, size, &all);
    let mut lines = Vec::new();
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    for (name, side, from, to, calls) in CASES.into_iter().filter(|(name, ..)| wanted(name)) {
        let mut matrices = [Matrix::new(&host, side, from), Matrix::new(&host, side, to)];
        // The first of ours plans, and more try ways: untimed.
        for _ in 0..12 {
            call(&host, true, side, &mut matrices, context);
        }
        let ours = matrices[1].part.clone();
        matrices[1].part.fill(-1.0);
        call(&host, false, side, &mut matrices, context);
        assert!(
            to.0[0] * to.0[1] <= host.world().rank() || ours == matrices[1].part,
            "case {name} is moved as ScaLAPACK moves it"
        );
        let mut times = [vec![], vec![], vec![]];
        for _ in 0..REPETITIONS {
            for (ours, times) in [true, false].into_iter().zip(&mut times) {
                times.push(timed(&host, calls, || call(&host, ours, side, &mut matrices, context)));
            }
            let mut words = [0_u64; 8];
            let reduce = || host.world().all_reduce(&mut words, Reduce::Max).unwrap();
            times[2].push(timed(&host, calls, reduce));
        }
        let [ours, theirs, reduction] = times.map(median);
        lines.push(format!(
            "{{\"case\":\"{name}\",\"ours\":{ours:e},\"scalapack\":{theirs:e},\"allreduce\":{reduction:e}}}"
        ));
        // In new contexts, all of them made anew for each call.
        let mut times = [vec![], vec![]];
        for _ in 0..REPETITIONS {
            for (ours, times) in [true, false].into_iter().zip(&mut times) {
                let [a, b] = matrices;
                matrices = [a.renewed(&host, from.0), b.renewed(&host, to.0)];
                let fresh = host.context(1, size, &all);
                times.push(timed(&host, 1, || call(&host, ours, side, &mut matrices, fresh)));
                host.destroy(fresh);
            }
        }
        let [ours, theirs] = times.map(median);
        lines.push(format!(
            "{{\"case\":\"{name}, new contexts\",\"ours\":{ours:e},\"scalapack\":{theirs:e}}}"
        ));
        matrices.iter().for_each(|matrix| host.destroy(matrix.context));
        // A shape that was never there before.
        let mut times = [vec![], vec![]];
        for k in 0..REPETITIONS {
            let shape = side - side / 50 - k;
            let mut matrices = [Matrix::new(&host, shape, from), Matrix::new(&host, shape, to)];
            for (ours, times) in [true, false].into_iter().zip(&mut times) {
                times.push(timed(&host, 1, || call(&host, ours, shape, &mut matrices, context)));
            }
            matrices.iter().for_each(|matrix| host.destroy(matrix.context));
        }
        let [ours, theirs] = times.map(median);
        lines.push(format!("{{\"case\":\"{name}, new shape\",\"ours\":{ours:e},\"scalapack\":{theirs:e}}}"));
    }
    if host.world().rank() == 0 {
        println!("[{}]", lines.join(","));
    }
    host.end();
}
