//! Random parameter sets, and what each must do: element by element, from the definition.

use crate::Int;
use reshard_testkit::Random;

/// Bytes behind a part that nobody must touch.
const MARGIN: usize = 64;

/// A process grid: its ranks of the world, row by row.
#[derive(Clone, Debug)]
pub struct GridCase {
    pub rows: usize,
    pub columns: usize,
    pub ranks: Vec<usize>,
}

impl GridCase {
    /// Some of these ranks in some order.
    fn random(random: &mut Random, among: &[usize]) -> Self {
        let rows = random.within(1, among.len() as u64) as usize;
        let columns = random.within(1, (among.len() / rows) as u64) as usize;
        let mut ranks = among.to_vec();
        shuffle(random, &mut ranks);
        ranks.truncate(rows * columns);
        Self { rows, columns, ranks }
    }

    fn place(&self, rank: usize) -> Option<[usize; 2]> {
        let at = self.ranks.iter().position(|&other| other == rank)?;
        Some([at / self.columns, at % self.columns])
    }
}

pub fn shuffle(random: &mut Random, ranks: &mut [usize]) {
    (1..ranks.len()).for_each(|k| ranks.swap(k, random.within(0, k as u64) as usize));
}

/// One matrix of a case.
#[derive(Clone, Debug)]
pub struct SideCase {
    pub grid: GridCase,
    pub shape: [usize; 2],
    pub block: [usize; 2],
    pub source: [usize; 2],
    /// The first element of the window, from 0.
    pub first: [usize; 2],
    /// Rows of memory beyond those of a part, by rank.
    gaps: Vec<usize>,
}

/// A parameter set.
#[derive(Clone, Debug)]
pub struct Case {
    pub letter: char,
    pub elem: usize,
    pub letters: Option<[u8; 2]>,
    pub window: [usize; 2],
    pub sides: [SideCase; 2],
    /// All processes that call.
    pub global: GridCase,
    /// The form without a context: all processes call.
    pub of_all: bool,
    /// Both matrices are one array.
    pub in_place: bool,
    pub salt: u64,
}

/// A process's part of a matrix.
pub struct Part {
    pub bytes: Vec<u8>,
}

impl SideCase {
    fn random(random: &mut Random, ranks: usize, window: [usize; 2], grid: GridCase) -> Self {
        let first = window.map(|_| random.within(0, 9) as usize);
        let shape = [0, 1].map(|dim| first[dim] + window[dim] + random.within(0, 9) as usize);
        let block = shape.map(|len| random.within(1, 1 + random.clone().any_size(len as u64 + 3)) as usize);
        let source = [random.within(0, grid.rows as u64 - 1), random.within(0, grid.columns as u64 - 1)]
            .map(|k| k as usize);
        let gaps =
            (0..ranks).map(|_| if random.one_in(2) { 0 } else { random.within(0, 5) as usize }).collect();
        Self { grid, shape, block, source, first, gaps }
    }

    /// The global indices along a dimension that a process of the grid has, in order.
    fn owned(&self, dim: usize, place: usize) -> Vec<usize> {
        let processes = [self.grid.rows, self.grid.columns][dim];
        let owner = |index: usize| (index / self.block[dim] + self.source[dim]) % processes;
        (0..self.shape[dim]).filter(|&index| owner(index) == place).collect()
    }

    /// The local parts of a rank: for each element its address and its global index.
    fn elements(&self, rank: usize) -> Vec<(usize, [usize; 2])> {
        let Some([row, column]) = self.grid.place(rank) else { return Vec::new() };
        let (rows, columns) = (self.owned(0, row), self.owned(1, column));
        let leading = self.leading(rank);
        let each = |(at, &column): (usize, &usize)| {
            rows.iter()
                .enumerate()
                .map(move |(local, &row)| (at * leading + local, [row, column]))
                .collect::<Vec<_>>()
        };
        columns.iter().enumerate().flat_map(each).collect()
    }

    /// The leading dimension of a rank of the grid.
    fn leading(&self, rank: usize) -> usize {
        let Some([row, _]) = self.grid.place(rank) else { return 1 };
        (self.owned(0, row).len() + self.gaps[rank]).max(1)
    }

    /// The descriptor of a rank; of one outside of the grid it is nonsense.
    pub fn descriptor(&self, context: Int, rank: usize) -> [Int; 9] {
        let int = |number: usize| number as Int;
        let ([m, n], [mb, nb], [row, column]) = (self.shape, self.block, self.source);
        match self.grid.place(rank) {
            // Unset, as callers leave it.
            None => [-77, -1, -1, -5, 0, 0, 99, -3, 0],
            Some(_) => {
                [1, context, int(m), int(n), int(mb), int(nb), int(row), int(column), int(self.leading(rank))]
            }
        }
    }

    /// The memory of a rank, every byte another.
    pub fn part(&self, rank: usize, elem: usize, salt: u64) -> Part {
        let leading = self.leading(rank);
        let columns = self.grid.place(rank).map_or(0, |[_, column]| self.owned(1, column).len());
        let bytes = (0..leading * columns * elem + MARGIN)
            .map(|at| mixed(at as u64, salt, rank as u64) as u8)
            .collect();
        Part { bytes }
    }
}

/// Some number.
fn mixed(one: u64, two: u64, three: u64) -> u64 {
    let mut random = Random::new(one ^ two.rotate_left(23) ^ three.rotate_left(47));
    random.bits()
}

impl Case {
    /// A parameter set for so many processes.
    pub fn random(random: &mut Random, ranks: usize) -> Self {
        let (letter, elem) =
            [('i', size_of::<Int>()), ('s', 4), ('d', 8), ('c', 8), ('z', 16)][random.within(0, 4) as usize];
        let letters = random.one_in(3).then(|| {
            let letter = |random: &mut Random, letters: &[u8]| {
                letters[random.within(0, letters.len() as u64 - 1) as usize]
            };
            [letter(random, b"UuLl"), letter(random, b"UuNn")]
        });
        let all: Vec<usize> = (0..ranks).collect();
        let grids = [GridCase::random(random, &all), GridCase::random(random, &all)];
        let mut window = [0, 0].map(|_| random.within(1, 1 + random.clone().any_size(50)) as usize);
        if random.one_in(20) {
            window[random.within(0, 1) as usize] = 0;
        }
        let of_all = random.one_in(6);
        // All that are in a grid, and some others.
        let mut members: Vec<usize> = all
            .iter()
            .copied()
            .filter(|rank| of_all || random.one_in(2) || grids.iter().any(|grid| grid.ranks.contains(rank)))
            .collect();
        shuffle(random, &mut members);
        let rows: Vec<usize> =
            (1..=members.len()).filter(|rows| members.len().is_multiple_of(*rows)).collect();
        let rows = rows[random.within(0, rows.len() as u64 - 1) as usize];
        let global = GridCase { rows, columns: members.len() / rows, ranks: members };
        let mut sides = grids.map(|grid| SideCase::random(random, ranks, window, grid));
        let in_place = random.one_in(12);
        if in_place {
            sides[1] = sides[0].clone();
            // The window fits at either place.
            sides[1].first =
                [0, 1].map(|dim| random.within(0, (sides[0].shape[dim] - window[dim]) as u64) as usize);
        }
        Self { letter, elem, letters, window, sides, global, of_all, in_place, salt: random.bits() }
    }

    /// A parameter set of doubles that only these processes call, in this order.
    pub fn of_group(random: &mut Random, ranks: usize, group: &[usize]) -> Self {
        let window = [random.within(1, 20), random.within(1, 20)].map(|len| len as usize);
        let sides = [0, 1].map(|_| {
            let grid = GridCase::random(random, group);
            SideCase::random(random, ranks, window, grid)
        });
        let global = GridCase { rows: 1, columns: group.len(), ranks: group.to_vec() };
        let salt = random.bits();
        Self {
            letter: 'd',
            elem: 8,
            letters: None,
            window,
            sides,
            global,
            of_all: false,
            in_place: false,
            salt,
        }
    }

    /// The name of the routine: of C, or of Fortran.
    pub fn name(&self, of_c: bool) -> String {
        let kind = if self.letters.is_some() { "tr" } else { "ge" };
        let all = if self.of_all { "o" } else { "" };
        match of_c {
            true => format!("Cp{}{kind}mr2d{all}", self.letter),
            false => format!("p{}{kind}mr2d{all}_", self.letter),
        }
    }

    /// The bytes of an element of A.
    fn value(&self, [row, column]: [usize; 2], into: &mut [u8]) {
        for (k, eight) in into.chunks_mut(8).enumerate() {
            let number = mixed((row as u64) << 32 | column as u64, self.salt, k as u64 + 1);
            eight.copy_from_slice(&number.to_ne_bytes()[..eight.len()]);
        }
    }

    /// This process's parts before the call; only one if both matrices are one array.
    pub fn before(&self, rank: usize) -> (Part, Option<Part>) {
        let mut a = self.sides[0].part(rank, self.elem, self.salt);
        for (at, global) in self.sides[0].elements(rank) {
            let at = at * self.elem;
            self.value(global, &mut a.bytes[at..at + self.elem]);
        }
        let b = (!self.in_place).then(|| self.sides[1].part(rank, self.elem, !self.salt));
        (a, b)
    }

    /// Whether an element of the window moves, by the definition of the reference.
    fn moves(&self, [i, j]: [usize; 2]) -> bool {
        let [m, n] = self.window.map(|len| len as i64);
        let (i, j) = (i as i64, j as i64);
        match self.letters.map(|letters| letters.map(|letter| letter.eq_ignore_ascii_case(&b'U'))) {
            None => true,
            Some([true, unit]) => i + i64::from(unit) <= j + (m - n).max(0),
            Some([false, unit]) => i - i64::from(unit) >= j - (n - m).max(0),
        }
    }

    /// What the memory of B must be after the call.
    pub fn expected(&self, rank: usize) -> Vec<u8> {
        let (a, b) = self.before(rank);
        let mut expected = b.unwrap_or(a).bytes;
        let [from, to] = &self.sides;
        for (at, global) in to.elements(rank) {
            let inside = [0, 1].map(|dim| global[dim].wrapping_sub(to.first[dim]));
            if inside[0] < self.window[0] && inside[1] < self.window[1] && self.moves(inside) {
                let source = [0, 1].map(|dim| from.first[dim] + inside[dim]);
                let at = at * self.elem;
                self.value(source, &mut expected[at..at + self.elem]);
            }
        }
        expected
    }
}
