//! Small matrices: lists of copies, made by each process for itself.
//!
//! An engine agrees before it moves anything, shares memory and compiles routes, and even a plan is for arrays of any size: for a small
//! matrix that moves once or twice that takes longer than all else. Here each axis is walked block by block. What a process sends
//! is packed into one buffer, all for the first process first, and what it receives is unpacked.

#![allow(unsafe_code)]

use crate::agreement::{AgreedCall, AgreedSide};
use reshard_mpi::mpi::PrivateComm;
use reshard_plan::{Axis, Error, ErrorKind, Result, Triangle, memory};
use std::ops::Range;

/// One process's side of a call.
pub struct SmallMove {
    /// For each process, where what it is sent begins in the buffer; and where the buffer ends.
    at: Vec<usize>,
    /// What is packed, in the order of the buffer.
    sends: Vec<Copies>,
    /// What is unpacked: from which process, how many bytes, and the copies.
    receives: Vec<(usize, usize, Copies)>,
    /// What this process keeps.
    own: Option<Copies>,
    /// Bytes that this process's parts of A and of B reach over at most.
    spans: [usize; 2],
}

/// Adjacent rows or columns with one owner on each side, and the first one's local index on both.
#[derive(Clone, Copy)]
struct Segment {
    /// The first one's index in the window.
    at: u64,
    len: u64,
    owners: [u64; 2],
    local: [u64; 2],
}

/// The axes of a matrix.
fn axes(side: &AgreedSide) -> Result<[Axis; 2]> {
    let axis =
        |dim: usize| Axis::block_cyclic(side.shape[dim], side.grid[dim], side.block[dim], side.source[dim]);
    Ok([axis(0)?, axis(1)?])
}

/// Walks the rows (0) or the columns (1) of a window.
fn segments(axes: &[[Axis; 2]; 2], call: &AgreedCall, dim: usize) -> Option<Vec<Segment>> {
    let extent = [call.rows, call.columns][dim];
    let (mut all, mut at) = (Vec::new(), 0);
    while at < extent {
        let mut segment = Segment { at, len: extent - at, owners: [0; 2], local: [0; 2] };
        for (k, side) in call.sides.iter().enumerate() {
            let (axis, global) = (&axes[k][dim], side.first[dim] + at);
            (segment.owners[k], segment.local[k]) = axis.local_from_global(global)?;
            segment.len = segment.len.min(axis.block_at(global)?.1 - global);
        }
        at += segment.len;
        all.push(segment);
    }
    Some(all)
}

/// Runs of bytes, repeated at some offsets.
#[derive(Default)]
struct Copies {
    /// Offset in the source, offset in the destination, bytes.
    runs: Vec<[usize; 3]>,
    offsets: Vec<[usize; 2]>,
}

impl Copies {
    /// The elements of one process of A that belong to one of B: these rows of these columns. Of the leading dimensions that of the other
    /// process has no effect on what is packed, or unpacked, nor on its order.
    fn new(lists: [&[Segment]; 2], leading: [u64; 2], elem: u64, triangle: Option<Triangle>) -> Self {
        let bytes = |elems: u64| elems.wrapping_mul(elem) as usize;
        let [rows, columns] = lists;
        let columns = || columns.iter().flat_map(|column| (0..column.len).map(move |k| (column, k)));
        let of_column = |column: &Segment, k: u64| {
            [0, 1].map(|side| bytes((column.local[side] + k).wrapping_mul(leading[side])))
        };
        if let Some(triangle) = triangle {
            let mut runs = Vec::new();
            for (column, k) in columns() {
                let [from, to] = of_column(column, k);
                for row in rows {
                    let inside = rows_inside(triangle, column.at + k, row.at..row.at + row.len);
                    let beyond = inside.start - row.at;
                    let [row_from, row_to] = row.local.map(|local| bytes(local + beyond));
                    if !inside.is_empty() {
                        let len = bytes(inside.end - inside.start);
                        runs.push([from.wrapping_add(row_from), to.wrapping_add(row_to), len]);
                    }
                }
            }
            return Self { runs: joined(runs), offsets: vec![[0; 2]] };
        }
        let run = |row: &Segment| [bytes(row.local[0]), bytes(row.local[1]), bytes(row.len)];
        if let [row] = rows {
            // Whole columns may follow each other on both sides.
            let [from, to, bytes] = run(row);
            let each = |(column, k): (&Segment, u64)| {
                let offsets = of_column(column, k);
                [offsets[0].wrapping_add(from), offsets[1].wrapping_add(to), bytes]
            };
            return Self { runs: joined(columns().map(each).collect()), offsets: vec![[0; 2]] };
        }
        let offsets = columns().map(|(column, k)| of_column(column, k)).collect();
        Self { runs: rows.iter().map(run).collect(), offsets }
    }

    fn bytes(&self) -> usize {
        self.offsets.len() * self.runs.iter().map(|[_, _, bytes]| bytes).sum::<usize>()
    }

    /// Calls `each` with where each run is in the source and in the destination, and its bytes.
    #[inline]
    fn each(&self, mut each: impl FnMut(usize, usize, usize)) {
        for [from, to] in &self.offsets {
            for [run_from, run_to, bytes] in &self.runs {
                each(from.wrapping_add(*run_from), to.wrapping_add(*run_to), *bytes);
            }
        }
    }
}

/// The rows of a range that a triangle has in a column.
fn rows_inside(triangle: Triangle, column: u64, rows: Range<u64>) -> Range<u64> {
    let diagonal = i128::from(column) - i128::from(triangle.diagonal());
    let clipped = |row: i128| row.clamp(i128::from(rows.start), i128::from(rows.end)) as u64;
    match triangle.is_upper() {
        true => rows.start..clipped(diagonal + 1),
        false => clipped(diagonal)..rows.end,
    }
}

/// Runs that follow each other on both sides as one.
fn joined(runs: Vec<[usize; 3]>) -> Vec<[usize; 3]> {
    let mut joined: Vec<[usize; 3]> = Vec::with_capacity(runs.len());
    for [from, to, bytes] in runs {
        match joined.last_mut() {
            Some(last) if [0, 1].map(|side| last[side].wrapping_add(last[2])) == [from, to] => {
                last[2] += bytes;
            }
            _ => joined.push([from, to, bytes]),
        }
    }
    joined
}

/// Copies `bytes` bytes; the lengths of single elements without a call.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    /// # Safety
    /// As for [`copy`].
    #[inline]
    unsafe fn one<T>(from: *const u8, to: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) }
    }
    // SAFETY: promised by the caller.
    unsafe {
        match bytes {
            4 => one::<u32>(from, to),
            8 => one::<u64>(from, to),
            16 => one::<[u64; 2]>(from, to),
            bytes => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

impl SmallMove {
    /// Prepares a call on which all of `ranks` processes agree, for one of them.
    pub fn new(call: &AgreedCall, elem: u64, rank: usize, ranks: usize) -> Result<Self> {
        let strange = || Error::new(ErrorKind::OutOfRange, "a window leaves its matrix".to_string());
        let [a, b] = &call.sides;
        let axes = [axes(a)?, axes(b)?];
        let lists =
            [segments(&axes, call, 0).ok_or_else(strange)?, segments(&axes, call, 1).ok_or_else(strange)?];
        let triangle = call.routine.shape.triangle(call.rows, call.columns);
        let places =
            call.sides.each_ref().map(|side| side.ranks.iter().position(|&other| other == rank as u64));
        let leading = [0, 1].map(|k| places[k].map_or(1, |place| call.sides[k].leading[place]));
        let (mut sends, mut receives, mut own) = (Vec::new(), Vec::new(), None);
        for (side, other) in [(0, b), (1, a)] {
            let Some(place) = places[side] else { continue };
            let columns = call.sides[side].grid[1];
            let mine = [place as u64 / columns, place as u64 % columns];
            // This process's segments by their other owner, ascending, of which there may be many.
            let by_owner = |dim: usize| {
                let list = lists[dim].iter().filter(|segment| segment.owners[side] == mine[dim]);
                let mut list: Vec<Segment> = list.copied().collect();
                list.sort_by_key(|segment| segment.owners[1 - side]);
                list
            };
            let [rows, columns] = [by_owner(0), by_owner(1)];
            let same = |one: &Segment, two: &Segment| one.owners == two.owners;
            for rows in rows.chunk_by(same) {
                for columns in columns.chunk_by(same) {
                    let place = rows[0].owners[1 - side] * other.grid[1] + columns[0].owners[1 - side];
                    let peer = other.ranks.get(place as usize).copied().ok_or_else(strange)? as usize;
                    if side == 1 && peer == rank {
                        continue;
                    }
                    let copies = Copies::new([rows, columns], leading, elem, triangle);
                    match (side, peer == rank) {
                        (0, true) => own = Some(copies),
                        (0, false) => sends.push((peer, copies)),
                        _ => receives.push((peer, copies.bytes(), copies)),
                    }
                }
            }
        }
        let mut at = vec![0; ranks + 1];
        sends.sort_by_key(|(peer, _)| *peer);
        for (peer, copies) in &sends {
            *at.get_mut(peer + 1).ok_or_else(strange)? = copies.bytes();
        }
        (0..ranks).for_each(|rank| at[rank + 1] += at[rank]);
        let sends = sends.into_iter().map(|(_, copies)| copies).collect();
        let span = |k: usize| {
            let [rows, columns] = [0, 1].map(|dim| axes[k][dim].max_local_len());
            let elems = if rows == 0 { 0 } else { leading[k].saturating_mul(columns) };
            places[k].map_or(0, |_| elems.saturating_mul(elem) as usize)
        };
        Ok(Self { at, sends, receives, own, spans: [span(0), span(1)] })
    }

    /// For each process, where what it is sent begins in the buffer; and where the buffer ends.
    pub fn send_at(&self) -> &[usize] {
        &self.at
    }

    /// Packs what this process sends. Fails if `into` is too short.
    ///
    /// # Safety
    /// `from` is this process's part of A, as large as the call says, and nobody writes to it; anything where it has none.
    pub unsafe fn pack(&self, from: *const u8, into: &mut [u8]) -> Result<()> {
        let bytes = self.at.last().copied().unwrap_or(0);
        if into.len() < bytes {
            let message = format!("{bytes} bytes are to be packed into {}", into.len());
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        let mut next = into.as_mut_ptr();
        for copies in &self.sends {
            // SAFETY: all offsets are those of elements of the part, for which the caller vouches; there is room for the sum of all that
            // is packed.
            copies.each(|offset, _, bytes| unsafe {
                copy(from.add(offset), next, bytes);
                next = next.add(bytes);
            });
        }
        Ok(())
    }

    /// Unpacks what this process receives, and copies what it keeps. `sent` gives the bytes of each process that sends something; it is
    /// told how many they are. The parts may overlap. If it fails, nothing is written.
    ///
    /// # Safety
    /// As for [`SmallMove::pack`], and the same for the part of B, to which nobody else has access; what `sent` gives is nothing of them.
    pub unsafe fn unpack<'a>(
        &self,
        from: *const u8,
        to: *mut u8,
        sent: impl Fn(usize, usize) -> Option<&'a [u8]>,
    ) -> Result<()> {
        let all =
            || self.receives.iter().map(|(peer, bytes, copies)| (*peer, sent(*peer, *bytes), *bytes, copies));
        if let Some((peer, ..)) =
            all().find(|(_, sent, bytes, _)| sent.is_none_or(|sent| sent.len() != *bytes))
        {
            let message = format!("rank {peer} has not sent what was expected");
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        // What this process keeps is set aside before anything is written, if the parts overlap.
        let overlap = from.addr() < to.addr().saturating_add(self.spans[1])
            && to.addr() < from.addr().saturating_add(self.spans[0]);
        let mut aside: Vec<u8> = Vec::new();
        if let Some(own) = self.own.as_ref().filter(|_| overlap) {
            aside = memory::zeroed(own.bytes(), "what a process keeps of overlapping parts")?;
            let mut next = aside.as_mut_ptr();
            // SAFETY: as in `pack`.
            own.each(|offset, _, bytes| unsafe {
                copy(from.add(offset), next, bytes);
                next = next.add(bytes);
            });
        }
        for (_, sent, bytes, copies) in all() {
            let Some(sent) = sent.filter(|sent| sent.len() == bytes) else { continue };
            let mut next = sent.as_ptr();
            // SAFETY: as in `pack`, with the part of B.
            copies.each(|_, offset, bytes| unsafe {
                copy(next, to.add(offset), bytes);
                next = next.add(bytes);
            });
        }
        let Some(own) = &self.own else { return Ok(()) };
        let mut next = aside.as_ptr();
        // SAFETY: as above; parts that overlap are not copied from.
        own.each(|source, target, bytes| unsafe {
            if overlap {
                copy(next, to.add(target), bytes);
                next = next.add(bytes);
            } else {
                copy(from.add(source), to.add(target), bytes);
            }
        });
        Ok(())
    }
}

/// A small move in one `MPI_Alltoallv`, where processes have no memory in common.
pub struct OneCollective {
    small: SmallMove,
    /// Bytes to and from each process, and their offsets in the buffers.
    counts: [Vec<i32>; 2],
    at: [Vec<i32>; 2],
    buffers: [Vec<u8>; 2],
}

impl OneCollective {
    /// Prepares it, for so many processes. Fails for more than 2^31 bytes.
    pub fn new(small: SmallMove, ranks: usize) -> Result<Self> {
        let too_long = |_| {
            let message = "one collective moves less than 2^31 bytes of a rank".to_string();
            Error::new(ErrorKind::Unsupported, message)
        };
        let mut received = vec![0; ranks];
        small.receives.iter().for_each(|&(peer, bytes, _)| received[peer] = bytes);
        let sent: Vec<usize> = small.at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let int = |list: Vec<usize>| {
            list.into_iter().map(i32::try_from).collect::<std::result::Result<Vec<i32>, _>>()
        };
        let before = |counts: &[usize]| {
            let offsets = counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count)));
            offsets.collect::<Vec<usize>>()
        };
        // At least one byte each: MPI rejects equal addresses of the two buffers as aliasing.
        let buffers = [&sent, &received].map(|counts| vec![0; counts.iter().sum::<usize>() + 1]);
        let at = [int(before(&sent)).map_err(too_long)?, int(before(&received)).map_err(too_long)?];
        let counts = [int(sent).map_err(too_long)?, int(received).map_err(too_long)?];
        Ok(Self { small, counts, at, buffers })
    }

    /// Moves the data. Collective over `comm`.
    ///
    /// # Safety
    /// As for [`SmallMove::unpack`].
    pub unsafe fn run(&mut self, comm: &PrivateComm, from: *const u8, to: *mut u8) -> Result<()> {
        let Self { small, counts, at, buffers: [send, receive] } = self;
        // SAFETY: promised by the caller; the counts and offsets are those of the buffers.
        unsafe {
            small.pack(from, send)?;
            comm.all_to_all_v(send.as_ptr(), &counts[0], &at[0], receive.as_mut_ptr(), &counts[1], &at[1])?;
            small.unpack(from, to, |rank, bytes| receive.get(at[1][rank] as usize..)?.get(..bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routine::{Element, Routine, Shape};
    use reshard_testkit::Random;

    /// Bytes of an element.
    const ELEM: usize = 8;

    /// A side on some of the processes, with leading dimensions of their own.
    fn side(random: &mut Random, ranks: usize, window: [u64; 2]) -> AgreedSide {
        let mut number = |least: u64, most: u64| random.within(least, most);
        let rows = number(1, ranks as u64);
        let grid = [rows, number(1, ranks as u64 / rows)];
        let turn = number(0, ranks as u64 - 1);
        let of_grid: Vec<u64> = (0..grid[0] * grid[1]).map(|place| (place + turn) % ranks as u64).collect();
        let first = [number(0, 6), number(0, 6)];
        let shape = [0, 1].map(|dim| first[dim] + window[dim] + number(0, 3));
        AgreedSide {
            grid,
            leading: of_grid.iter().map(|_| shape[0] + number(0, 2)).collect(),
            ranks: of_grid,
            shape,
            block: [number(1, 7), number(1, 7)],
            source: [number(0, grid[0] - 1), number(0, grid[1] - 1)],
            first,
        }
    }

    /// The process and the place in its part of an element, as the reference defines them.
    fn place(side: &AgreedSide, index: [u64; 2]) -> (usize, usize) {
        let (mut coords, mut local) = ([0; 2], [0; 2]);
        for dim in [0, 1] {
            let (block, processes) = (side.block[dim], side.grid[dim]);
            coords[dim] = (index[dim] / block + side.source[dim]) % processes;
            local[dim] = index[dim] / (block * processes) * block + index[dim] % block;
        }
        let at = (coords[0] * side.grid[1] + coords[1]) as usize;
        (side.ranks[at] as usize, (local[1] * side.leading[at] + local[0]) as usize)
    }

    #[test]
    fn every_element_of_every_process_is_where_it_belongs() {
        let mut random = Random::new(23);
        for number in 0..400 {
            let ranks = random.within(1, 6) as usize;
            let window = [random.within(1, 20), random.within(1, 20)];
            let shape = match random.within(0, 2) {
                0 => Shape::Trapezoid { upper: random.one_in(2), unit: random.one_in(2) },
                _ => Shape::General,
            };
            let routine = Routine { element: Element::Double, shape, of_all: false };
            let sides = [side(&mut random, ranks, window), side(&mut random, ranks, window)];
            let call = AgreedCall { routine, rows: window[0], columns: window[1], sides };
            // Longer than any part; all its bytes have a meaning.
            let part = |rank: usize, salt: u64| -> Vec<u64> {
                (0..1200).map(|at| (salt << 40) + ((rank as u64) << 20) + at).collect()
            };
            let a: Vec<Vec<u64>> = (0..ranks).map(|rank| part(rank, 1)).collect();
            let mut b: Vec<Vec<u64>> = (0..ranks).map(|rank| part(rank, 2)).collect();
            let (mut expected, mut writes) = (b.clone(), vec![Vec::new(); ranks]);
            let triangle = shape.triangle(window[0], window[1]);
            for (i, j) in (0..window[0]).flat_map(|i| (0..window[1]).map(move |j| (i, j))) {
                if triangle.is_none_or(|triangle| triangle.contains(i, j)) {
                    let [from, to] =
                        call.sides.each_ref().map(|side| place(side, [side.first[0] + i, side.first[1] + j]));
                    expected[to.0][to.1] = a[from.0][from.1];
                    writes[to.0].push((to.1, a[from.0][from.1]));
                }
            }
            let moves: Vec<SmallMove> =
                (0..ranks).map(|rank| SmallMove::new(&call, ELEM as u64, rank, ranks).unwrap()).collect();
            let sent: Vec<Vec<u8>> = (0..ranks)
                .map(|rank| {
                    let mut buffer = vec![0; *moves[rank].send_at().last().unwrap()];
                    // SAFETY: the part is longer than any that the call describes.
                    unsafe { moves[rank].pack(a[rank].as_ptr().cast(), &mut buffer) }.unwrap();
                    buffer
                })
                .collect();
            for rank in 0..ranks {
                let of = |peer: usize, bytes: usize| {
                    let at = moves[peer].send_at()[rank];
                    assert_eq!(moves[peer].send_at()[rank + 1] - at, bytes);
                    Some(&sent[peer][at..at + bytes])
                };
                let (from, to) = (a[rank].as_ptr().cast(), b[rank].as_mut_ptr().cast());
                // SAFETY: as above.
                unsafe { moves[rank].unpack(from, to, of) }.unwrap();
                assert_eq!(b[rank], expected[rank], "set {number}, rank {rank}: {call:?}");
                // B begins within A, or A within B.
                let mut arena = [a[rank].clone(), part(rank, 3)].concat();
                let behind = random.within(0, 40) as usize;
                let starts = if random.one_in(2) { [0, behind] } else { [behind, 0] };
                arena.copy_within(..1200, starts[0]);
                let mut afterwards = arena.clone();
                writes[rank].iter().for_each(|&(at, value)| afterwards[starts[1] + at] = value);
                let base = arena.as_mut_ptr();
                // SAFETY: as above; both parts are within the arena.
                unsafe { moves[rank].unpack(base.add(starts[0]).cast(), base.add(starts[1]).cast(), of) }
                    .unwrap();
                assert_eq!(arena, afterwards, "set {number}, rank {rank}, {starts:?}: {call:?}");
            }
        }
    }

    #[test]
    fn what_was_not_sent_is_an_error_and_nothing_is_written() {
        let mut random = Random::new(5);
        let sides = [0, 1].map(|k| AgreedSide {
            ranks: vec![k],
            ..AgreedSide { grid: [1, 1], leading: vec![20], ..side(&mut random, 1, [5, 6]) }
        });
        let routine = Routine { element: Element::Double, shape: Shape::General, of_all: false };
        let call = AgreedCall { routine, rows: 5, columns: 6, sides };
        let small = SmallMove::new(&call, ELEM as u64, 1, 2).unwrap();
        let mut to = vec![7_u64; 1200];
        for sent in [None, Some(&[0_u8; 8][..])] {
            // SAFETY: the part is longer than the one that the call describes.
            let outcome = unsafe { small.unpack(std::ptr::null(), to.as_mut_ptr().cast(), |_, _| sent) };
            assert!(outcome.is_err() && to.iter().all(|&word| word == 7));
        }
    }
}
