//! One dimension of an array, distributed over processes. All arithmetic on the ownership of indices is here.
//!
//! A [`Deal`] is the rule as it is written (`cyclic(64)`, `block`, ...); an [`Axis`] is the rule applied to a
//! length and a number of processes. It converts indices:
//!
//! | from | to | method | cyclic kinds | cuts |
//! |---|---|---|---|---|
//! | global | process | [`Axis::owner`] | O(1) | O(log pieces) |
//! | global | process, local | [`Axis::local_from_global`] | O(1) | O(log pieces) |
//! | process, local | global | [`Axis::global_from_local`] | O(1) | O(log pieces) |
//! | process | number of elements ("numroc") | [`Axis::local_len`] | O(1) | O(log pieces) |
//! | process | its blocks as global ranges | [`Axis::blocks`] | O(1) each | O(1) each |
//! | global | owner and global end of the block around it | [`Axis::block_at`] | O(1) | O(log pieces) |
//!
//! *Global* counts elements of the whole dimension, *local* those of one process in ascending global order;
//! a *process* is a coordinate on the grid dimension, not yet a rank. Everything counts from 0. Lengths reach
//! [`MAX_LEN`], so any sum of two indices fits in 64 bits; the only product that might not, block times
//! processes, saturates at 2^63, which is longer than any axis and so means "happens once".
//!
//! A *replicated* axis, `*` on several processes, is whole on each of them: local indices are global ones, and where one
//! owner is asked for, it is process 0, the first of the copies.

pub(crate) mod cuts;

use crate::error::{Error, Result};
use cuts::Cuts;
use std::ops::Range;
use std::sync::Arc;

/// The longest axis, and the most elements of an array: 2^62.
pub const MAX_LEN: u64 = 1 << 62;

/// A length that no index reaches, 2^63; strides saturate here.
const NEVER: u64 = 1 << 63;

/// The rule by which one dimension is distributed: HPF's rules, and explicit cuts.
///
/// ```
/// use reshard_plan::{Axis, Deal};
/// // Ten elements on three processes.
/// let owners = |deal: Deal| -> reshard_plan::Result<Vec<u64>> {
///     let axis = Axis::new(10, 3, &deal, 0)?;
///     Ok((0..10).filter_map(|index| axis.owner(index)).collect())
/// };
/// assert_eq!(owners(Deal::Block)?, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
/// assert_eq!(owners(Deal::Cyclic(2))?, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1]);
/// assert_eq!(owners(Deal::GenBlock(vec![1, 7, 2]))?, [0, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Deal {
    /// HPF `BLOCK`: one block of `ceil(len / processes)` for each process.
    Block,
    /// HPF `CYCLIC(k)`: blocks of `k`, distributed round-robin. `CYCLIC` is `Cyclic(1)`.
    Cyclic(u64),
    /// HPF `GEN_BLOCK(sizes)`: one contiguous part for each process, sizes given.
    GenBlock(Vec<u64>),
    /// Explicit cuts: pieces in global order, each with its owner.
    Cuts(Vec<Piece>),
    /// HPF `*`: not distributed. On a grid dimension of several processes it is replicated: each of them has all of it.
    Whole,
}

/// One piece of an explicitly cut axis: a number of consecutive elements, and their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Elements in the piece.
    pub len: u64,
    /// The process that owns the piece.
    pub owner: u64,
}

/// One dimension: its length and who owns which part of it.
///
/// ```
/// use reshard_plan::Axis;
/// let axis = Axis::block_cyclic(10, 3, 2, 0)?; // 10 elements, 3 processes, blocks of 2: 0011220011
/// assert_eq!(axis.owner(7), Some(0));
/// assert_eq!(axis.local_from_global(7), Some((0, 3)));
/// assert_eq!(axis.global_from_local(0, 3), Some(7));
/// assert_eq!(axis.local_len(2), 2);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    len: u64,
    procs: u64,
    kind: AxisKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AxisKind {
    Cyclic {
        block: u64,
        first: u64,
    },
    Cuts(Arc<Cuts>),
    /// The whole axis on each of several processes.
    Copies,
}

impl Axis {
    /// Applies a rule to a length and a number of processes. `first` is the process that owns the first
    /// block (ScaLAPACK's RSRC); rules that name their owners refuse any other than 0.
    pub fn new(len: u64, procs: u64, deal: &Deal, first: u64) -> Result<Self> {
        check_len(len)?;
        check_procs(procs, first)?;
        let cyclic = |block| Ok(AxisKind::Cyclic { block, first });
        let kind = match deal {
            Deal::Block => cyclic(len.div_ceil(procs).max(1)),
            Deal::Cyclic(block) => cyclic(check_block(*block)?),
            Deal::Whole if first > 0 => Err(Error::mismatch(format!(
                "first process {first} was given for an axis that is kept whole (*), on every one of its processes; \
                 leave it at 0"
            ))),
            Deal::Whole if procs > 1 => Ok(AxisKind::Copies),
            Deal::Whole => cyclic(len.max(1)),
            Deal::GenBlock(_) | Deal::Cuts(_) if first > 0 => Err(Error::mismatch(format!(
                "first process {first} was given for an axis whose owners are listed one by one; \
                 leave it at 0 and order the sizes or owners instead"
            ))),
            Deal::GenBlock(sizes) => {
                if sizes.len() as u64 != procs {
                    return Err(Error::mismatch(format!(
                        "gen_block lists {} sizes for {procs} processes; give one size for each process",
                        sizes.len()
                    )));
                }
                let owned = (0..).zip(sizes).map(|(owner, &len)| Piece { len, owner });
                Ok(AxisKind::Cuts(Arc::new(Cuts::new(&checked(len, procs, owned)?))))
            }
            Deal::Cuts(pieces) => {
                Ok(AxisKind::Cuts(Arc::new(Cuts::new(&checked(len, procs, pieces.iter().copied())?))))
            }
        }?;
        Ok(Self { len, procs, kind })
    }

    /// `len` elements in blocks of `block`, distributed round-robin over `procs` processes from `first` on.
    pub fn block_cyclic(len: u64, procs: u64, block: u64, first: u64) -> Result<Self> {
        Self::new(len, procs, &Deal::Cyclic(block), first)
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of processes, with or without elements.
    pub fn procs(&self) -> u64 {
        self.procs
    }

    /// True if every process, of more than one, has all elements: `*` on several processes.
    pub fn is_replicated(&self) -> bool {
        matches!(self.kind, AxisKind::Copies)
    }

    /// Number of processes that have each element: all of them if the axis is replicated, and otherwise 1.
    pub fn copies(&self) -> u64 {
        if self.is_replicated() { self.procs } else { 1 }
    }

    /// Number of different parts: of a replicated axis one, however many processes have it.
    pub(crate) fn parts(&self) -> u64 {
        if self.is_replicated() { 1 } else { self.procs }
    }

    /// The number of a process's part, which is the process itself unless the axis is replicated.
    pub(crate) fn part_of(&self, process: u64) -> u64 {
        if self.is_replicated() { 0 } else { process }
    }

    /// The processes that have a part: one, or all of a replicated axis.
    pub(crate) fn holders(&self, part: u64) -> Range<u64> {
        if self.is_replicated() { 0..self.procs } else { part..part + 1 }
    }

    /// Block size and first process of a block-cyclic axis; `None` for explicit cuts and replicated axes.
    pub fn cyclic_parameters(&self) -> Option<(u64, u64)> {
        match self.kind {
            AxisKind::Cyclic { block, first } => Some((block, first)),
            AxisKind::Cuts(_) | AxisKind::Copies => None,
        }
    }

    /// The rule of this axis: `Axis::new(len, procs, &deal, first)` gives an equal axis.
    pub fn deal(&self) -> (Deal, u64) {
        match &self.kind {
            AxisKind::Cyclic { block, first } => (Deal::Cyclic(*block), *first),
            AxisKind::Copies => (Deal::Whole, 0),
            AxisKind::Cuts(cuts) => {
                let pieces = cuts.pieces();
                let in_order = pieces.windows(2).all(|pair| pair[0].owner < pair[1].owner);
                // `gen_block` is the shorter form only if it lists about as many sizes as there are pieces.
                let deal = if in_order && self.procs <= 2 * pieces.len() as u64 + 8 {
                    Deal::GenBlock((0..self.procs).map(|process| cuts.local_len(process)).collect())
                } else if pieces.is_empty() {
                    Deal::Cuts(vec![Piece { len: 0, owner: 0 }])
                } else {
                    let piece = |cut: &cuts::Cut| Piece { len: cut.end - cut.start, owner: cut.owner };
                    Deal::Cuts(pieces.iter().map(piece).collect())
                };
                (deal, 0)
            }
        }
    }

    /// The process that owns a global index, the first of them if the axis is replicated; `None` past the end.
    pub fn owner(&self, global: u64) -> Option<u64> {
        (global < self.len).then(|| match &self.kind {
            AxisKind::Copies => 0,
            AxisKind::Cyclic { .. } => self.cycle().owner(global),
            AxisKind::Cuts(cuts) => cuts.at(global).owner,
        })
    }

    /// The owner of a global index, and its local index there; `None` past the end.
    pub fn local_from_global(&self, global: u64) -> Option<(u64, u64)> {
        (global < self.len).then(|| match &self.kind {
            AxisKind::Copies => (0, global),
            AxisKind::Cyclic { .. } => {
                let cycle = self.cycle();
                (cycle.owner(global), (global / cycle.stride) * cycle.block + global % cycle.block)
            }
            AxisKind::Cuts(cuts) => {
                let cut = cuts.at(global);
                (cut.owner, cut.local + (global - cut.start))
            }
        })
    }

    /// The local index of a global index that `owner` is known to own: fewer divisions than finding the owner, too.
    pub(crate) fn local_index_at(&self, owner: u64, global: u64) -> u64 {
        match &self.kind {
            AxisKind::Copies => global,
            AxisKind::Cyclic { .. } => {
                let cycle = self.cycle();
                // The owner's block begins at or before `global`: neither product is more than it.
                (global / cycle.stride) * cycle.block + global % cycle.stride
                    - cycle.turn(owner) * cycle.block
            }
            AxisKind::Cuts(cuts) => {
                let cut = cuts.at(global);
                cut.local + (global - cut.start)
            }
        }
    }

    /// The global index of a process's local index; `None` if the process has no such element.
    pub fn global_from_local(&self, process: u64, local: u64) -> Option<u64> {
        match &self.kind {
            AxisKind::Copies => (local < self.local_len(process)).then_some(local),
            AxisKind::Cyclic { .. } => (local < self.local_len(process)).then(|| {
                let cycle = self.cycle();
                let start = cycle.turn(process) * cycle.block;
                (local / cycle.block) * cycle.stride + start + local % cycle.block
            }),
            AxisKind::Cuts(cuts) => cuts.global_from_local(process, local),
        }
    }

    /// Number of elements a process owns (ScaLAPACK's `numroc`); 0 for a process that does not exist.
    pub fn local_len(&self, process: u64) -> u64 {
        if process >= self.procs {
            return 0;
        }
        match &self.kind {
            AxisKind::Copies => self.len,
            AxisKind::Cyclic { .. } => {
                let cycle = self.cycle();
                let before = cycle.turn(process).saturating_mul(cycle.block);
                let (rounds, rest) = (self.len / cycle.stride, self.len % cycle.stride);
                rounds * cycle.block + rest.saturating_sub(before).min(cycle.block)
            }
            AxisKind::Cuts(cuts) => cuts.local_len(process),
        }
    }

    /// The most elements any process owns.
    pub fn max_local_len(&self) -> u64 {
        match &self.kind {
            AxisKind::Cyclic { first, .. } => self.local_len(*first),
            AxisKind::Copies => self.len,
            AxisKind::Cuts(cuts) => {
                cuts.pieces().iter().map(|cut| cut.local + (cut.end - cut.start)).max().unwrap_or(0)
            }
        }
    }

    /// The blocks of a process as global ranges, in ascending order, from the first that ends after
    /// `from`. A process that owns the whole axis has one block.
    pub fn blocks(&self, process: u64, from: u64) -> Blocks<'_> {
        match &self.kind {
            AxisKind::Cyclic { .. } | AxisKind::Copies => {
                let cycle = self.cycle();
                let part = self.part_of(process);
                let start = if process < self.procs { cycle.block_after(part, from) } else { NEVER };
                Blocks(Rest::Cyclic { start, block: cycle.block, stride: cycle.stride, len: self.len })
            }
            AxisKind::Cuts(cuts) => {
                let of = cuts.of(process);
                let skip = of.partition_point(|&i| cuts.pieces()[i].end <= from);
                Blocks(Rest::Cuts { cuts, indices: &of[skip..] })
            }
        }
    }

    /// The number of a process's elements before a global index: the local index of the first one from there on.
    pub(crate) fn elems_before(&self, process: u64, global: u64) -> u64 {
        let next = self.blocks(process, global).next();
        let local = next.and_then(|block| self.local_from_global(block.start.max(global)));
        local.map_or_else(|| self.local_len(process), |(_, local)| local)
    }

    /// The owner of a global index, and the global end of the owner's stretch around it; `None` past the end.
    pub fn block_at(&self, global: u64) -> Option<(u64, u64)> {
        (global < self.len).then(|| match &self.kind {
            AxisKind::Copies => (0, self.len),
            AxisKind::Cyclic { .. } => {
                let cycle = self.cycle();
                (cycle.owner(global), (global - global % cycle.block + cycle.block).min(self.len))
            }
            AxisKind::Cuts(cuts) => {
                let cut = cuts.at(global);
                (cut.owner, cut.end)
            }
        })
    }

    /// Number of pieces into which explicit cuts divide the axis; 0 for any other.
    pub(crate) fn pieces(&self) -> usize {
        match &self.kind {
            AxisKind::Cyclic { .. } | AxisKind::Copies => 0,
            AxisKind::Cuts(cuts) => cuts.pieces().len(),
        }
    }

    /// True if the axis is distributed round-robin in equal blocks.
    pub fn is_cyclic(&self) -> bool {
        matches!(self.kind, AxisKind::Cyclic { .. })
    }

    /// True if the axis has the arithmetic of [`cycle`](Self::cycle): any but explicit cuts.
    pub(crate) fn has_cycle(&self) -> bool {
        !matches!(self.kind, AxisKind::Cuts(_))
    }

    /// The cyclic arithmetic of this axis. Where one process owns everything, the block is the whole axis,
    /// whatever was given, so that stretches are as long as they can be. A replicated axis has that of one of its copies, as
    /// its only process. Not for explicit cuts.
    pub(crate) fn cycle(&self) -> Cycle {
        let (block, first) = match self.kind {
            AxisKind::Cyclic { block, first } => (block, first),
            AxisKind::Copies => (self.len, 0),
            AxisKind::Cuts(_) => unreachable!("cycle() of explicit cuts"),
        };
        let procs = self.parts();
        let block = if procs == 1 { self.len.max(1) } else { block };
        Cycle { block, procs, first, stride: block.saturating_mul(procs).min(NEVER) }
    }
}

/// The parameters of a block-cyclic axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub block: u64,
    pub procs: u64,
    pub first: u64,
    /// Distance from one block of a process to its next: block times processes, at most 2^63.
    pub stride: u64,
}

impl Cycle {
    pub fn owner(&self, global: u64) -> u64 {
        (global / self.block + self.first) % self.procs
    }

    /// The turn of a process in each round: 0 for the first process.
    pub fn turn(&self, process: u64) -> u64 {
        if process >= self.first { process - self.first } else { process + self.procs - self.first }
    }

    /// Start of the first block of a process that ends after `from`; 2^63 or more if it is beyond any axis.
    pub fn block_after(&self, process: u64, from: u64) -> u64 {
        let start = self.turn(process).saturating_mul(self.block).min(NEVER);
        let end = start.saturating_add(self.block);
        if from < end { start } else { start + ((from - end) / self.stride + 1) * self.stride }
    }
}

/// The blocks of one process, from [`Axis::blocks`].
#[derive(Clone, Debug)]
pub struct Blocks<'a>(Rest<'a>);

#[derive(Clone, Debug)]
enum Rest<'a> {
    Cyclic { start: u64, block: u64, stride: u64, len: u64 },
    Cuts { cuts: &'a Cuts, indices: &'a [usize] },
}

impl Iterator for Blocks<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        match &mut self.0 {
            Rest::Cyclic { start, block, stride, len } => {
                let found = (*start < *len).then(|| *start..(*start + (*block).min(*len - *start)))?;
                *start += *stride;
                Some(found)
            }
            Rest::Cuts { cuts, indices } => {
                let (&first, rest) = indices.split_first()?;
                *indices = rest;
                let cut = cuts.pieces()[first];
                Some(cut.start..cut.end)
            }
        }
    }
}

/// Least common multiple; `None` if it is more than `limit`.
pub(crate) fn lcm_upto(a: u64, b: u64, limit: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b).filter(|&lcm| lcm <= limit)
}

/// Greatest common divisor by Euclid, of numbers that are not negative; `gcd(a, 0) = a`.
pub(crate) fn gcd<N: Copy + PartialEq + std::ops::Rem<Output = N> + From<u8>>(a: N, b: N) -> N {
    let (mut a, mut b) = (a, b);
    while b != N::from(0) {
        (a, b) = (b, a % b);
    }
    a
}

/// The inverse of `a` modulo `m`, which must be coprime; 0 modulo 1.
pub(crate) fn inverse(a: u64, m: u64) -> u64 {
    let (mut r0, mut r1) = (i128::from(m), i128::from(a));
    let (mut t0, mut t1) = (0_i128, 1_i128);
    while r1 != 0 {
        let quotient = r0 / r1;
        (r0, r1) = (r1, r0 - quotient * r1);
        (t0, t1) = (t1, t0 - quotient * t1);
    }
    t0.rem_euclid(i128::from(m)) as u64
}

pub(crate) fn check_len(len: u64) -> Result<u64> {
    if len > MAX_LEN {
        return Err(Error::too_large(format!(
            "a length of {len} was given; at most 2^62 = {MAX_LEN} is possible"
        )));
    }
    Ok(len)
}

fn check_block(block: u64) -> Result<u64> {
    match block {
        0 => Err(Error::out_of_range("a block size of 0 was given; blocks hold at least 1 element")),
        1..=MAX_LEN => Ok(block),
        _ => Err(Error::too_large(format!(
            "a block size of {block} was given; at most 2^62 = {MAX_LEN} is possible"
        ))),
    }
}

fn check_procs(procs: u64, first: u64) -> Result<()> {
    if procs == 0 {
        return Err(Error::out_of_range("a grid dimension of 0 processes was given; it needs at least 1"));
    }
    if procs > MAX_LEN {
        return Err(Error::too_large(format!("{procs} processes were given; at most 2^62 are possible")));
    }
    if first >= procs {
        return Err(Error::out_of_range(format!(
            "first process {first} was given for {procs} processes; it must lie between 0 and {}",
            procs - 1
        )));
    }
    Ok(())
}

/// Checks that pieces add up to `len` and belong to existing processes.
fn checked(len: u64, procs: u64, pieces: impl Iterator<Item = Piece> + Clone) -> Result<Vec<Piece>> {
    if let Some(piece) = pieces.clone().find(|piece| piece.owner >= procs) {
        return Err(Error::out_of_range(format!(
            "a piece belongs to process {}, but there are {procs} processes, numbered from 0",
            piece.owner
        )));
    }
    let sum = pieces.clone().try_fold(0_u64, |sum, piece| sum.checked_add(piece.len));
    match sum {
        Some(sum) if sum == len => Ok(pieces.collect()),
        Some(sum) => Err(Error::mismatch(format!(
            "the sizes given add up to {sum}, but the axis has {len} elements; they must cover it exactly"
        ))),
        None => Err(Error::too_large("the sizes given add up to more than 64 bits can hold")),
    }
}
