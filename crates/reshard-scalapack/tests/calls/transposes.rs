//! p?tran, p?tranu and p?tranc by their definition, element by element, and beside the PBLAS' own.
//!
//! Factors and elements are small whole numbers, so that every sum and product is exact, whoever computes it.

use crate::Int;
use crate::host::{Host, TransposeCall, last_error};
use reshard_mpi::mpi::Reduce;
use reshard_testkit::Random;

/// A matrix on a grid of all processes, of which a window takes part.
#[derive(Clone, Debug)]
struct Side {
    shape: [usize; 2],
    block: [usize; 2],
    source: [usize; 2],
    first: [usize; 2],
    /// Rows of memory beyond those of the part.
    gap: usize,
}

#[derive(Clone, Debug)]
struct Case {
    grid: [usize; 2],
    /// Rows and columns of C's window.
    window: [usize; 2],
    sides: [Side; 2],
    /// The letter of the type, and whether A is conjugated.
    letter: char,
    conjugated: bool,
    /// Real and imaginary part of alpha and beta.
    factors: [[i64; 2]; 2],
}

impl Case {
    fn random(random: &mut Random, size: usize) -> Self {
        let mut within = |least: u64, most: u64| random.within(least, most) as usize;
        let rows = (1..=size).filter(|rows| size.is_multiple_of(*rows)).nth(within(0, 3)).unwrap_or(1);
        let grid = [rows, size / rows];
        let window = [within(1, 40), within(1, 40)];
        let letter = ['s', 'd', 'c', 'z'][within(0, 3)];
        let complex = matches!(letter, 'c' | 'z');
        let mut factor = || {
            let part = |k: usize| k as i64 - 2;
            match within(0, 4) {
                0 => [0, 0],
                1 => [1, 0],
                _ => [part(within(0, 4)), if complex { part(within(0, 4)) } else { 0 }],
            }
        };
        let factors = [factor(), factor()];
        let mut side = |window: [usize; 2]| {
            let first = [within(0, 5), within(0, 5)];
            Side {
                shape: [0, 1].map(|dim| first[dim] + window[dim] + within(0, 4)),
                block: [within(1, 9), within(1, 9)],
                source: [within(0, grid[0] as u64 - 1), within(0, grid[1] as u64 - 1)],
                first,
                gap: within(0, 2),
            }
        };
        let sides = [side([window[1], window[0]]), side(window)];
        Self { grid, window, sides, letter, conjugated: complex && within(0, 1) == 1, factors }
    }

    fn name(&self) -> String {
        let kind = match (self.letter, self.conjugated) {
            (_, true) => "tranc",
            ('c' | 'z', false) => "tranu",
            _ => "tran",
        };
        format!("p{}{kind}_", self.letter)
    }

    /// The element of a side: real and imaginary part.
    fn element(&self, side: usize, row: usize, column: usize) -> [i64; 2] {
        let number = (row * 31 + column * 17 + side * 7) as i64;
        [number % 100, if matches!(self.letter, 'c' | 'z') { number % 37 - 18 } else { 0 }]
    }

    /// What C is afterwards.
    fn expected(&self, row: usize, column: usize) -> [i64; 2] {
        let old = self.element(1, row, column);
        let [from, to] = self.sides.each_ref().map(|side| side.first);
        let inside = |dim: usize, index: usize| (to[dim]..to[dim] + self.window[dim]).contains(&index);
        if !inside(0, row) || !inside(1, column) {
            return old;
        }
        let mut of_a = self.element(0, from[0] + column - to[1], from[1] + row - to[0]);
        if self.conjugated {
            of_a[1] = -of_a[1];
        }
        let times = |[a, b]: [i64; 2], [c, d]: [i64; 2]| [a * c - b * d, a * d + b * c];
        let (new, kept) = (times(self.factors[0], of_a), times(self.factors[1], old));
        [new[0] + kept[0], new[1] + kept[1]]
    }

    /// The indices of a process along a dimension.
    fn indices(&self, side: usize, dim: usize, place: usize) -> Vec<usize> {
        let Side { shape, block, source, .. } = &self.sides[side];
        let owner = |index: &usize| (index / block[dim] + source[dim]) % self.grid[dim] == place;
        (0..shape[dim]).filter(owner).collect()
    }

    fn bytes(&self, [real, imaginary]: [i64; 2]) -> Vec<u8> {
        match self.letter {
            's' => (real as f32).to_ne_bytes().to_vec(),
            'd' => (real as f64).to_ne_bytes().to_vec(),
            'c' => [real as f32, imaginary as f32].map(f32::to_ne_bytes).concat(),
            _ => [real as f64, imaginary as f64].map(f64::to_ne_bytes).concat(),
        }
    }

    /// A process's part of a side, with gaps of ones, and its leading dimension.
    fn part(
        &self,
        side: usize,
        place: [usize; 2],
        value: impl Fn(usize, usize) -> [i64; 2],
    ) -> (Vec<u8>, usize) {
        let [rows, columns] = [0, 1].map(|dim| self.indices(side, dim, place[dim]));
        let leading = (rows.len() + self.sides[side].gap).max(1);
        let mut bytes = Vec::new();
        for &column in &columns {
            rows.iter().for_each(|&row| bytes.extend(self.bytes(value(row, column))));
            (rows.len()..leading).for_each(|_| bytes.extend(self.bytes([-1, -1])));
        }
        (bytes, leading)
    }
}

/// Minus zero is zero.
fn value(bytes: &[u8], letter: char) -> Vec<f64> {
    match letter {
        's' | 'c' => {
            bytes.chunks(4).map(|four| f64::from(f32::from_ne_bytes(four.try_into().unwrap()))).collect()
        }
        _ => bytes.chunks(8).map(|eight| f64::from_ne_bytes(eight.try_into().unwrap())).collect(),
    }
}

/// Random calls, by value.
pub fn sets(host: &Host, seed: u64, count: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let mut random = Random::new(seed);
    let (mut equal, mut reference_wrong) = (0, 0);
    for number in 0..count {
        let case = Case::random(&mut random, size);
        let context = host.context(case.grid[0], case.grid[1], &(0..size).collect::<Vec<_>>());
        let place = [rank / case.grid[1], rank % case.grid[1]];
        let (expected, _) = case.part(1, place, |row, column| case.expected(row, column));
        for ours in [true, true, false] {
            let found = call(host, ours, &case, context, place, |descriptor| descriptor);
            let same = value(&found, case.letter) == value(&expected, case.letter);
            if ours {
                assert_eq!(last_error(), None, "{case:?}");
                assert!(same, "set {number} on rank {rank}: {case:?}");
                continue;
            }
            let mut wrong = [u64::from(!same)];
            host.world().all_reduce(&mut wrong, Reduce::Max).unwrap();
            equal += 1 - wrong[0];
            reference_wrong += wrong[0];
        }
        host.destroy(context);
    }
    if rank == 0 {
        println!(
            "  transposes: {count} right, {equal} equal to the PBLAS', which were wrong in {reference_wrong}"
        );
    }
}

/// Calls a routine; returns the memory of C.
fn call(
    host: &Host,
    ours: bool,
    case: &Case,
    context: Int,
    place: [usize; 2],
    change: impl Fn([Int; 9]) -> [Int; 9],
) -> Vec<u8> {
    let int = |number: usize| number as Int;
    let [(mut a, lead_a), (mut c, lead_c)] =
        [0, 1].map(|side| case.part(side, place, |row, column| case.element(side, row, column)));
    if case.factors[0] == [0, 0] {
        // Not read then.
        a.fill(0xff);
    }
    // Something to point to.
    a.resize(a.len().max(16), 0);
    let bytes = c.len();
    c.resize(bytes.max(16), 0);
    let descriptor = |side: &Side, lead: usize| {
        let [m, n] = side.shape.map(int);
        let ([mb, nb], [rsrc, csrc]) = (side.block.map(int), side.source.map(int));
        change([1, context, m, n, mb, nb, rsrc, csrc, int(lead)])
    };
    let [from, to] = &case.sides;
    let call = TransposeCall {
        m: int(case.window[0]),
        n: int(case.window[1]),
        alpha: &case.bytes(case.factors[0]),
        a: a.as_mut_ptr(),
        ia: int(from.first[0]) + 1,
        ja: int(from.first[1]) + 1,
        desca: &descriptor(from, lead_a),
        beta: &case.bytes(case.factors[1]),
        c: c.as_mut_ptr(),
        ic: int(to.first[0]) + 1,
        jc: int(to.first[1]) + 1,
        descc: &descriptor(to, lead_c),
    };
    host.transpose(ours, &case.name(), &call);
    c.truncate(bytes);
    c
}

/// What is beyond goes to the PBLAS: a matrix of which every process row has a copy. What is wrong is an error.
pub fn others(host: &Host) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let context = host.context(size, 1, &(0..size).collect::<Vec<_>>());
    let side = Side { shape: [6, 6], block: [6, 6], source: [0, 0], first: [0, 0], gap: 0 };
    let case = Case {
        grid: [1, 1],
        window: [6, 6],
        sides: [side.clone(), side],
        letter: 'd',
        conjugated: false,
        factors: [[2, 0], [1, 0]],
    };
    let (expected, _) = case.part(1, [0, 0], |row, column| case.expected(row, column));
    let everywhere = |mut descriptor: [Int; 9]| {
        descriptor[6] = -1;
        descriptor
    };
    // So that the processes know each other. The first one has all of it.
    let place = [usize::from(rank != 0), 0];
    let whole = Case { grid: [size, 1], ..case.clone() };
    call(host, true, &whole, context, place, |descriptor| descriptor);
    assert_eq!(last_error(), None);
    let found = call(host, true, &case, context, [0, 0], everywhere);
    assert_eq!((last_error(), found), (None, expected));
    // One rank has a block of 0.
    let wrong = |mut descriptor: [Int; 9]| {
        if rank == 1 {
            descriptor[4] = 0;
        }
        descriptor
    };
    let before = case.part(1, [0, 0], |row, column| case.element(1, row, column)).0;
    let found = call(host, true, &case, context, [0, 0], wrong);
    let said = last_error().unwrap_or_default();
    assert!(
        said.starts_with("pdtran: rank 1: entry 5 (MB) of argument 7 (DESCA) is 0")
            && said.ends_with("C is as it was"),
        "{said}"
    );
    assert_eq!(found, before);
    // One rank has another alpha.
    let mut other = case.clone();
    other.factors[0][0] += rank as i64;
    call(host, true, &other, context, [0, 0], |descriptor| descriptor);
    let said = last_error().unwrap_or_default();
    assert!(
        said.contains("pdtran with ALPHA = 2 and BETA = 1 on rank 0 and pdtran with ALPHA = 3"),
        "{said}"
    );
    host.destroy(context);
}
