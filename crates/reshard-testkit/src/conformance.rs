//! One suite for every engine: random redistributions, judged by value.
//!
//! Each byte of a source element is a function of the element's global index, so the right destination is known without
//! moving anything. Padding, elements outside the window and a margin around every part are filled with canaries, which
//! must survive. Parts begin at any address.
//!
//! [`Case`] is one array, [`Several`] are some that move together, [`Scaled`] is one of numbers that are scaled on the way.
//! Where every rank is a process of its own, all draw the same cases and each looks at its own part with `check_rank`.

mod scaled;
mod several;

pub use scaled::{C64, C128, Element, Scaled, ScaledParts};
pub use several::{Several, Slices};

use crate::dealer::taken_copies;
use crate::random::{Random, random_deal};
use reshard_plan::{
    Distribution, Grid, Layout, MAX_DIMS, MemoryOrder, Move, Pattern, Plan, RankOrder, Triangle, Window,
};
use std::ops::Range;

/// Bytes of canaries before and after every part.
const MARGIN: usize = 64;

/// A redistribution to be judged.
#[derive(Clone, Debug)]
pub struct Case {
    /// What moves.
    pub moving: Move,
    /// By how many bytes source and destination parts are out of line, each below 64.
    pub skew: [usize; 2],
    /// Makes the values of this case differ from others'.
    pub salt: u64,
    /// Where the source is replicated, its copies are equal, as those of users are; otherwise they differ, so that one sees which of
    /// them was taken.
    pub equal_copies: bool,
}

/// What random cases may be like.
#[derive(Clone, Debug)]
pub struct Kinds {
    /// Dimensions.
    pub dims: Range<usize>,
    /// The most elements of a window, about.
    pub elems: u64,
    /// The most processes along a dimension.
    pub procs: u64,
    /// Bytes of an element.
    pub elem_bytes: Range<u64>,
    /// Now and then a transposition, a triangle, strides of its own.
    pub all_sorts: bool,
    /// Now and then strides of a rank's own, which no other has.
    pub own_strides: bool,
    /// If given, only ranks below this one.
    pub ranks: Option<u64>,
    /// A dimension of the source or of the destination is replicated, at least; otherwise now and then one is. There must be more ranks than one.
    pub replicated: bool,
}

impl Default for Kinds {
    fn default() -> Self {
        Self {
            dims: 1..5,
            elems: 1500,
            procs: 4,
            elem_bytes: 1..33,
            all_sorts: true,
            own_strides: false,
            ranks: None,
            replicated: false,
        }
    }
}

impl Case {
    /// Some redistribution.
    pub fn random(random: &mut Random, kinds: &Kinds) -> Self {
        loop {
            let case = Self::any(random, kinds);
            let sides = [case.moving.from(), case.moving.to()];
            if !kinds.replicated
                || kinds.ranks == Some(1)
                || sides.iter().any(|side| side.distribution().is_replicated())
            {
                return case;
            }
        }
    }

    fn any(random: &mut Random, kinds: &Kinds) -> Self {
        let dims = random.within(kinds.dims.start as u64, kinds.dims.end as u64 - 1) as usize;
        let side = (kinds.elems as f64).powf(1.0 / dims as f64).ceil() as u64;
        let shape: Vec<u64> =
            (0..dims).map(|_| random.within(0, 2 * side).min(random.within(1, 2 * side))).collect();
        let mut axes: Vec<usize> = (0..dims).collect();
        if kinds.all_sorts && random.one_in(3) {
            (1..dims).for_each(|k| axes.swap(k, random.within(0, k as u64) as usize));
        }
        let windowed = random.one_in(2);
        let mut side = |shape: &[u64]| {
            let at: Vec<u64> = shape.iter().map(|_| if windowed { random.within(0, 5) } else { 0 }).collect();
            let whole: Vec<u64> = shape
                .iter()
                .zip(&at)
                .map(|(extent, at)| at + extent + if windowed { random.within(0, 5) } else { 0 })
                .collect();
            (random_layout(random, &whole, kinds), at)
        };
        let (from, from_at) = side(&shape);
        let to_shape: Vec<u64> = axes.iter().map(|&dim| shape[dim]).collect();
        let (to, to_at) = side(&to_shape);
        let window = Window::of(&shape).from(&from_at).to(&to_at).permuted(&axes);
        let moving = Move::windowed::<f64>(from, to, window).expect("the window fits");
        Self::of(random, moving, kinds)
    }

    /// An array with the elements and distributions of this one and other memory: it can share its messages with this one.
    pub fn alike(&self, random: &mut Random, kinds: &Kinds) -> Self {
        let mut side = |layout: &Layout| random_addresses(random, layout.distribution().clone(), kinds);
        let (from, to) = (side(self.moving.from()), side(self.moving.to()));
        let moving = Move::windowed::<f64>(from, to, self.window()).expect("the window fits, as before");
        Self::of(random, moving, kinds)
    }

    /// Elements of some size, perhaps only a triangle of them.
    fn of(random: &mut Random, moving: Move, kinds: &Kinds) -> Self {
        let elem = match random.within(0, 3) {
            0 => random.within(kinds.elem_bytes.start, kinds.elem_bytes.end - 1),
            1 => 4.clamp(kinds.elem_bytes.start, kinds.elem_bytes.end - 1),
            2 => 16.clamp(kinds.elem_bytes.start, kinds.elem_bytes.end - 1),
            _ => 8.clamp(kinds.elem_bytes.start, kinds.elem_bytes.end - 1),
        };
        let mut moving = moving.of_bytes(elem).expect("some bytes");
        if kinds.all_sorts && moving.problem().shape().len() == 2 && random.one_in(5) {
            let usual =
                [Triangle::UPPER, Triangle::LOWER, Triangle::STRICTLY_UPPER, Triangle::STRICTLY_LOWER];
            let part = usual[random.within(0, 3) as usize];
            // Any other diagonal, too, also one outside of the matrix.
            let far = random.within(0, 24) as i64 - 12;
            let part = match random.within(0, 3) {
                0 => Triangle::upper(far),
                1 => Triangle::lower(far),
                _ => part,
            };
            moving = moving.only(part).expect("a matrix");
        }
        let skew = [random.within(0, 63) as usize, random.within(0, 63) as usize];
        let skew = if random.one_in(2) { skew } else { [0, 0] };
        Self { moving, skew, salt: random.bits(), equal_copies: false }
    }

    fn window(&self) -> Window {
        let problem = self.moving.problem();
        let window = Window::of(problem.shape()).from(problem.from_offset()).to(problem.to_offset());
        window.permuted(problem.axes())
    }

    /// What a rank knows that is a process of its own: of the strides, its own alone. Those of others are tight here, which
    /// they need not be.
    pub fn seen_by(&self, rank: u64) -> Move {
        let side = |layout: &Layout| {
            let known = Layout::new(layout.distribution().clone(), layout.order());
            match layout.strides(rank) {
                Ok(strides) => known.with_strides_of(rank, &strides).expect("strides that were good before"),
                Err(_) => known,
            }
        };
        let (from, to) = (side(self.moving.from()), side(self.moving.to()));
        let moving =
            Move::windowed::<f64>(from, to, self.window()).and_then(|m| m.of_bytes(self.moving.elem_bytes()));
        let moving = moving.expect("the window fits, as before");
        match self.moving.triangle() {
            Some(triangle) => moving.only(triangle).expect("a matrix, as before"),
            None => moving,
        }
    }

    /// All ranks on either side, ascending.
    pub fn ranks(&self) -> Vec<u64> {
        let of = |layout: &Layout| layout.distribution().grid().sorted_ranks();
        let mut ranks = [of(self.moving.from()), of(self.moving.to())].concat();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Runs a redistribution and looks at every byte of every part. `run` gets the plan, the source parts and the destination
    /// parts, both by ascending rank, as bytes.
    ///
    /// # Panics
    /// If a byte is not what it must be; the message names the case.
    pub fn judge(&self, run: impl FnOnce(&Plan, &[&[u8]], &mut [&mut [u8]])) {
        let plan = Plan::new(vec![self.moving.clone()]).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let mut parts = self.parts();
        self.with_slices(&mut parts, |from, to| run(&plan, from, to));
        self.check(&parts);
    }

    /// Memory for all parts, filled.
    pub fn parts(&self) -> Parts {
        let elem = self.moving.elem_bytes();
        let room = |layout: &Layout, skew: usize| -> Vec<Vec<u8>> {
            let ranks = layout.distribution().grid().sorted_ranks();
            let bytes = |rank| (layout.span(rank).expect("a rank of the grid") * elem) as usize;
            ranks.into_iter().map(|rank| canaries(rank, MARGIN + skew + bytes(rank) + MARGIN)).collect()
        };
        let mut from = room(self.moving.from(), self.skew[0]);
        let to = room(self.moving.to(), self.skew[1]);
        let ranks = self.moving.from().distribution().grid().sorted_ranks();
        for (part, rank) in from.iter_mut().zip(ranks) {
            let copy = self.copy_of(rank);
            for_each_element(self.moving.from(), rank, |address, global| {
                let at = MARGIN + self.skew[0] + (address * elem) as usize;
                let value = (0..elem).map(|byte| self.value(copy, global, byte));
                part[at..at + elem as usize].iter_mut().zip(value).for_each(|(place, value)| *place = value);
            });
        }
        Parts { from, to }
    }

    /// Lends the parts as slices, without their margins.
    pub fn with_slices<R>(&self, parts: &mut Parts, run: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R) -> R {
        let (from, mut to) = self.slices(parts);
        run(&from, &mut to)
    }

    /// Source and destination parts as slices, without their margins.
    pub fn slices<'a>(&self, parts: &'a mut Parts) -> (Vec<&'a [u8]>, Vec<&'a mut [u8]>) {
        let inside = |part: &[u8], skew: usize| MARGIN + skew..part.len() - MARGIN;
        let from = parts.from.iter().map(|part| &part[inside(part, self.skew[0])]);
        let to = parts.to.iter_mut().map(|part| {
            let range = inside(part, self.skew[1]);
            &mut part[range]
        });
        (from.collect(), to.collect())
    }

    /// Looks at every byte of every destination part.
    ///
    /// # Panics
    /// If one is not what it must be.
    pub fn check(&self, parts: &Parts) {
        for rank in self.moving.to().distribution().grid().sorted_ranks() {
            self.check_rank(parts, rank);
        }
    }

    /// Looks at every byte of one rank's destination part, if it has one.
    ///
    /// # Panics
    /// If one is not what it must be.
    pub fn check_rank(&self, parts: &Parts, rank: u64) {
        let elem = self.moving.elem_bytes();
        let ranks = self.moving.to().distribution().grid().sorted_ranks();
        for (part, rank) in parts.to.iter().zip(ranks).filter(|(_, other)| *other == rank) {
            let mut expected = canaries(rank, part.len());
            let copy = self.copy_taken_by(rank);
            self.for_each_arrival(rank, |address, source| {
                let at = MARGIN + self.skew[1] + (address * elem) as usize;
                for byte in 0..elem {
                    expected[at + byte as usize] = self.value(copy, source, byte);
                }
            });
            if let Some(at) = (0..part.len()).find(|&at| part[at] != expected[at]) {
                panic!(
                    "rank {rank}: byte {at} of {} is {:#04x} and must be {:#04x}: {self:?}",
                    part.len(),
                    part[at],
                    expected[at]
                );
            }
        }
    }

    /// Calls `each(address, global index in the source)` for every element that a rank receives.
    fn for_each_arrival(&self, rank: u64, mut each: impl FnMut(u64, &[u64])) {
        let problem = self.moving.problem();
        for_each_element(self.moving.to(), rank, |address, global| {
            let mut source = [0; MAX_DIMS];
            let mut window = [0; MAX_DIMS];
            for (dim, &from_dim) in problem.axes().iter().enumerate() {
                let Some(index) = global[dim].checked_sub(problem.to_offset()[dim]) else { return };
                if index >= problem.shape()[from_dim] {
                    return;
                }
                window[from_dim] = index;
                source[from_dim] = problem.from_offset()[from_dim] + index;
            }
            if self.moving.triangle().is_none_or(|part| part.contains(window[0], window[1])) {
                each(address, &source[..global.len()]);
            }
        });
    }

    /// A number for the copy that a rank of the source has; 0 if there is only one, or all are equal.
    fn copy_of(&self, rank: u64) -> u64 {
        let from = self.moving.from().distribution();
        let coords = from.coords(rank).expect("a rank of the grid");
        let copied = from.axes().iter().zip(coords).filter(|(axis, _)| axis.copies() > 1);
        self.number_of(copied.map(|(_, coord)| coord))
    }

    /// The number of the copy that a rank of the destination takes.
    fn copy_taken_by(&self, rank: u64) -> u64 {
        let (from, to) = (self.moving.from().distribution(), self.moving.to().distribution());
        if !from.is_replicated() {
            return 0;
        }
        let taken = taken_copies(from, to, self.moving.problem().axes());
        self.number_of(taken[&rank].iter().flatten().copied())
    }

    fn number_of(&self, copy: impl Iterator<Item = u64>) -> u64 {
        if self.equal_copies { 0 } else { copy.fold(0, |at, coord| 64 * at + coord) }
    }

    /// A byte of an element of a copy of the source array.
    fn value(&self, copy: u64, global: &[u64], byte: u64) -> u8 {
        let mixed = global.iter().chain([&(byte / 8)]).fold(self.salt.wrapping_add(copy), |mixed, &index| {
            let mixed = (mixed ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        });
        (mixed >> (8 * (byte % 8))) as u8
    }
}

/// All parts of a case, with their margins.
#[derive(Clone)]
pub struct Parts {
    from: Vec<Vec<u8>>,
    to: Vec<Vec<u8>>,
}

fn canaries(rank: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(31) ^ rank ^ 0xa5) as u8).collect()
}

/// Calls `each(address, global index)` for every element of a rank's part.
fn for_each_element(layout: &Layout, rank: u64, mut each: impl FnMut(u64, &[u64])) {
    let distribution = layout.distribution();
    let shape = distribution.local_shape(rank).expect("a rank of the grid");
    if shape.contains(&0) {
        return;
    }
    let coords = distribution.coords(rank).expect("a rank of the grid");
    let strides = layout.strides(rank).expect("a rank of the grid");
    let globals: Vec<Vec<u64>> = (0..shape.len())
        .map(|dim| {
            let axis = &distribution.axes()[dim];
            let global = |local| axis.global_from_local(coords[dim], local).expect("a local index");
            (0..shape[dim]).map(global).collect()
        })
        .collect();
    let mut local = vec![0; shape.len()];
    let mut global = vec![0; shape.len()];
    loop {
        for dim in 0..shape.len() {
            global[dim] = globals[dim][local[dim] as usize];
        }
        each(local.iter().zip(&strides).map(|(index, stride)| index * stride).sum(), &global);
        let Some(dim) = (0..shape.len()).rev().find(|&dim| local[dim] + 1 < shape[dim]) else { return };
        local[dim] += 1;
        local[dim + 1..].fill(0);
    }
}

/// Some layout of an array of this shape.
fn random_layout(random: &mut Random, shape: &[u64], kinds: &Kinds) -> Layout {
    let mut procs: Vec<u64> =
        shape.iter().map(|_| random.within(1, kinds.procs).min(random.within(1, kinds.procs))).collect();
    if let Some(ranks) = kinds.ranks {
        // Fewer along some axis, until there are ranks enough.
        let mut dim = 0;
        while procs.iter().product::<u64>() > ranks.max(1) {
            procs[dim] = (procs[dim] - 1).max(1);
            dim = (dim + 1) % procs.len();
        }
    }
    let size = procs.iter().product();
    let mut grid = Grid::new(&procs).expect("a small grid");
    if random.one_in(3) {
        grid = grid.with_order(RankOrder::ColMajor);
    }
    if random.one_in(4) {
        let mut ranks: Vec<u64> = match kinds.ranks {
            Some(ranks) => (0..ranks.max(1)).collect(),
            None => (0..size).map(|rank| 2 * rank + 1).collect(),
        };
        (1..ranks.len()).for_each(|k| ranks.swap(k, random.within(0, k as u64) as usize));
        grid = grid.with_ranks(&ranks[..size as usize]).expect("ranks that differ");
    } else if random.one_in(4) {
        let most = kinds.ranks.map_or(9, |ranks| ranks.max(1) - size);
        grid = grid.with_first_rank(random.within(0, most)).expect("a small rank");
    }
    let dealt: Vec<_> =
        shape.iter().zip(&procs).map(|(&len, &procs)| random_deal(random, len, procs)).collect();
    let (deals, first) = dealt.into_iter().unzip();
    let pattern = Pattern::new(grid, deals, first).expect("rules that fit the grid");
    let distribution = pattern.over(shape).expect("rules that fit the shape");
    random_addresses(random, distribution, kinds)
}

/// Some addresses for what is dealt out.
fn random_addresses(random: &mut Random, distribution: Distribution, kinds: &Kinds) -> Layout {
    let order = if random.one_in(2) { MemoryOrder::ColMajor } else { MemoryOrder::RowMajor };
    let layout = Layout::new(distribution, order);
    let most: Vec<u64> = layout.distribution().axes().iter().map(reshard_plan::Axis::max_local_len).collect();
    let layout = match random.within(0, if kinds.all_sorts { 5 } else { 2 }) {
        3 => {
            let padded: Vec<u64> = most.iter().map(|&len| len + random.within(0, 3)).collect();
            layout.with_allocated(&padded).expect("large enough")
        }
        4 => {
            let mut dims: Vec<usize> = (0..most.len()).collect();
            (1..dims.len()).for_each(|k| dims.swap(k, random.within(0, k as u64) as usize));
            let first = random.within(1, 3);
            layout
                .with_strides(&stepped(random, &most, &dims, first))
                .expect("strides that step over each other")
        }
        _ => layout,
    };
    if !kinds.own_strides || random.one_in(3) {
        return layout;
    }
    let ranks = layout.distribution().grid().sorted_ranks();
    ranks.into_iter().fold(layout, |layout, rank| {
        if random.one_in(3) {
            return layout;
        }
        let shape = layout.distribution().local_shape(rank).expect("a rank of the grid");
        // A leading dimension of its own; seldom, axes in another order.
        let mut dims: Vec<usize> = (0..shape.len()).collect();
        if order == MemoryOrder::RowMajor {
            dims.reverse();
        }
        if random.one_in(4) {
            (1..dims.len()).for_each(|k| dims.swap(k, random.within(0, k as u64) as usize));
        }
        let first = if random.one_in(4) { random.within(1, 3) } else { 1 };
        let strides = stepped(random, &shape, &dims, first);
        layout.with_strides_of(rank, &strides).expect("strides that step over each other")
    })
}

/// Strides in an order of the axes, from the fastest on, perhaps with holes.
fn stepped(random: &mut Random, shape: &[u64], dims: &[usize], first: u64) -> Vec<u64> {
    let mut strides = vec![0; shape.len()];
    let mut stride = first;
    for &dim in dims {
        strides[dim] = stride;
        stride = stride * shape[dim].max(1) + random.within(0, 2);
    }
    strides
}
