//! Small arrays, for ranks that have agreed on everything already: lists of copies, made by each rank for itself.
//!
//! An engine agrees before it moves anything, shares memory and compiles routes, and even a plan is for arrays of any size: for a small
//! array that moves once or twice that takes longer than all else. Here each axis is walked block by block. What a rank
//! sends is packed into one buffer, all for the first rank first, and what it receives is unpacked; how the buffers travel is up
//! to the caller.

#![allow(unsafe_code)]

use reshard_plan::{Error, ErrorKind, Layout, Move, Result, Sides, Triangle, memory};
use std::ops::Range;

/// One rank's side of a move.
#[doc(hidden)]
pub struct SmallMove {
    /// For each rank, where what it is sent begins in the buffer; and where the buffer ends.
    at: Vec<usize>,
    /// What is packed, in the order of the buffer.
    sends: Vec<Copies>,
    /// What is unpacked: from which rank, how many bytes, and the copies.
    receives: Vec<(usize, usize, Copies)>,
    /// What this rank keeps.
    own: Option<Copies>,
    /// Bytes that this rank's source part and its destination part span in memory.
    spans: [usize; 2],
}

/// Adjacent elements of an axis with one owner on each side, and their first local index on both.
struct Segment {
    /// The first one's index in the window.
    at: u64,
    len: u64,
    owners: [u64; 2],
    local: [u64; 2],
}

/// Walks an axis, the source being here.
fn segments(sides: &Sides<'_>) -> Option<Vec<Segment>> {
    let both = [sides.here(), sides.there()];
    let (mut all, mut at) = (Vec::new(), 0);
    while at < sides.extent() {
        let mut segment = Segment { at, len: sides.extent() - at, owners: [0; 2], local: [0; 2] };
        for (k, side) in both.iter().enumerate() {
            let global = side.offset + at;
            (segment.owners[k], segment.local[k]) = side.axis.local_from_global(global)?;
            let (_, end) = side.axis.block_at(global)?;
            segment.len = segment.len.min(end - global);
        }
        at += segment.len;
        all.push(segment);
    }
    Some(all)
}

/// Runs of bytes, repeated at some offsets; of a triangle each run by itself.
#[derive(Default)]
struct Copies {
    /// Offset in the source, offset in the destination, bytes.
    runs: Vec<[usize; 3]>,
    offsets: Vec<[usize; 2]>,
}

impl Copies {
    /// The elements of one source that belong to one destination: a list of segments for each axis of the destination, with the strides
    /// of the axis on both sides.
    fn new(axes: &[(Vec<&Segment>, [u64; 2])], elem: u64, triangle: Option<Triangle>) -> Self {
        let bytes = |elems: u64| elems.wrapping_mul(elem) as usize;
        let offset = |segment: &Segment, k: u64, strides: [u64; 2]| {
            let of = |side: usize| bytes((segment.local[side] + k).wrapping_mul(strides[side]));
            [of(0), of(1)]
        };
        if let (Some(triangle), [rows, columns]) = (triangle, axes) {
            let mut runs = Vec::new();
            for (column, k) in columns.0.iter().flat_map(|&column| (0..column.len).map(move |k| (column, k)))
            {
                let at_column = offset(column, k, columns.1);
                for row in &rows.0 {
                    let inside = rows_inside(triangle, column.at + k, row.at..row.at + row.len);
                    let steps = if rows.1 == [1, 1] { 1 } else { inside.end - inside.start };
                    let len = (inside.end - inside.start).checked_div(steps).unwrap_or(0);
                    for step in 0..steps {
                        let [from, to] = offset(row, inside.start - row.at + step * len, rows.1);
                        runs.push([
                            from.wrapping_add(at_column[0]),
                            to.wrapping_add(at_column[1]),
                            bytes(len),
                        ]);
                    }
                }
            }
            runs.retain(|[_, _, bytes]| *bytes > 0);
            return Self { runs: joined(runs), offsets: vec![[0; 2]] };
        }
        let (mut runs, mut offsets) = (vec![[0, 0, elem as usize]], vec![[0; 2]]);
        for (dim, (list, strides)) in axes.iter().enumerate().rev() {
            if dim == 0 && *strides == [1, 1] {
                let run = |segment: &&Segment| {
                    let [from, to] = offset(segment, 0, *strides);
                    [from, to, bytes(segment.len)]
                };
                runs = list.iter().map(run).collect();
                continue;
            }
            let positions = || list.iter().flat_map(|&segment| (0..segment.len).map(move |k| (segment, k)));
            let each = |&[from, to]: &[usize; 2]| -> Vec<[usize; 2]> {
                let beyond = positions().map(|(segment, k)| offset(segment, k, *strides));
                beyond.map(|beyond| [from.wrapping_add(beyond[0]), to.wrapping_add(beyond[1])]).collect()
            };
            offsets = offsets.iter().flat_map(each).collect();
        }
        if let [[from, to, bytes]] = runs[..] {
            // Whole columns may follow each other on both sides.
            let each = |&[f, t]: &[usize; 2]| [f.wrapping_add(from), t.wrapping_add(to), bytes];
            return Self { runs: joined(offsets.iter().map(each).collect()), offsets: vec![[0; 2]] };
        }
        Self { runs, offsets }
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
            Some(last) if (last[0] + last[2], last[1] + last[2]) == (from, to) => last[2] += bytes,
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
    /// Prepares a move, in which each of `ranks` ranks has at most one part on each side, for one of them.
    pub fn new(moving: &Move, rank: usize, ranks: usize) -> Result<Self> {
        let problem = moving.problem();
        let strange = || Error::new(ErrorKind::OutOfRange, "a window leaves its array".to_string());
        let axes = problem.axes();
        if moving.triangle().is_some() && axes != [0, 1] {
            let message = "a triangle that is transposed is no small move".to_string();
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let all: Vec<Vec<Segment>> = axes
            .iter()
            .map(|&dim| segments(&problem.sides(dim)))
            .collect::<Option<_>>()
            .ok_or_else(strange)?;
        let (from, to) = (problem.from().grid(), problem.to().grid());
        // By axis of the destination.
        let coords = |source: u64| -> Option<Vec<u64>> {
            let coords = from.coords(source)?;
            Some(axes.iter().map(|&dim| coords[dim]).collect())
        };
        let own = [coords(rank as u64), to.coords(rank as u64)];
        let copies = |pair: [&[u64]; 2], ranks: [u64; 2]| -> Result<Copies> {
            let (from_strides, to_strides) =
                (moving.from().strides(ranks[0])?, moving.to().strides(ranks[1])?);
            let lists = all.iter().enumerate().map(|(dim, list)| {
                let ours = |segment: &&Segment| segment.owners == [pair[0][dim], pair[1][dim]];
                (list.iter().filter(ours).collect(), [from_strides[axes[dim]], to_strides[dim]])
            });
            let lists: Vec<(Vec<&Segment>, [u64; 2])> = lists.collect();
            Ok(Copies::new(&lists, moving.elem_bytes(), moving.triangle()))
        };
        let (mut sends, mut receives, mut kept) = (Vec::new(), Vec::new(), None);
        for side in [0, 1] {
            let Some(mine) = &own[side] else { continue };
            // The other owners of this rank's segments, axis by axis, and all combinations of them.
            let mut others: Vec<Vec<u64>> = vec![Vec::new()];
            for (list, &mine) in all.iter().zip(mine) {
                let of_mine = list.iter().filter(|segment| segment.owners[side] == mine);
                let mut owners: Vec<u64> = of_mine.map(|segment| segment.owners[1 - side]).collect();
                owners.sort_unstable();
                owners.dedup();
                let longer = |before: &Vec<u64>| -> Vec<Vec<u64>> {
                    owners.iter().map(|&owner| [&before[..], &[owner]].concat()).collect()
                };
                others = others.iter().flat_map(longer).collect();
            }
            for other in others {
                if side == 0 {
                    let target = to.rank(&other).ok_or_else(strange)?;
                    let copies = copies([mine, &other], [rank as u64, target])?;
                    match target == rank as u64 {
                        true => kept = Some(copies),
                        false => sends.push((target as usize, copies)),
                    }
                    continue;
                }
                let mut source = vec![0; other.len()];
                axes.iter().zip(&other).for_each(|(&dim, &coord)| source[dim] = coord);
                let source = from.rank(&source).ok_or_else(strange)?;
                if source != rank as u64 {
                    let copies = copies([&other, mine], [source, rank as u64])?;
                    receives.push((source as usize, copies.bytes(), copies));
                }
            }
        }
        let mut at = vec![0; ranks + 1];
        sends.sort_by_key(|(rank, _)| *rank);
        for (rank, copies) in &sends {
            *at.get_mut(rank + 1).ok_or_else(strange)? = copies.bytes();
        }
        (0..ranks).for_each(|rank| at[rank + 1] += at[rank]);
        let sends = sends.into_iter().map(|(_, copies)| copies).collect();
        let elem = moving.elem_bytes();
        let span = |layout: &Layout, is_in: bool| {
            is_in
                .then(|| layout.span(rank as u64))
                .transpose()
                .map(|span| span.unwrap_or(0).saturating_mul(elem) as usize)
        };
        let spans = [span(moving.from(), own[0].is_some())?, span(moving.to(), own[1].is_some())?];
        Ok(Self { at, sends, receives, own: kept, spans })
    }

    /// For each rank, where what it is sent begins in the buffer; and where the buffer ends.
    pub fn send_at(&self) -> &[usize] {
        &self.at
    }

    /// The ranks that send something, and how many bytes.
    pub fn receives(&self) -> impl Iterator<Item = (usize, usize)> {
        self.receives.iter().map(|&(rank, bytes, _)| (rank, bytes))
    }

    /// Packs what this rank sends. Fails if `into` is too short.
    ///
    /// # Safety
    /// `from` is this rank's source part, as large as its layout says, and nobody writes to it; none is needed where there is no part.
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

    /// Unpacks what this rank receives, and copies what it keeps. `sent` gives the bytes of each rank that sends something; it is told
    /// how many they are. The parts may overlap. If it fails, nothing is written.
    ///
    /// # Safety
    /// As for [`SmallMove::pack`], and the same for the destination part, to which nobody else has access; what `sent` gives is nothing
    /// of them.
    pub unsafe fn unpack<'a>(
        &self,
        from: *const u8,
        to: *mut u8,
        sent: impl Fn(usize, usize) -> Option<&'a [u8]>,
    ) -> Result<()> {
        let all =
            || self.receives.iter().map(|(rank, bytes, copies)| (*rank, sent(*rank, *bytes), *bytes, copies));
        if let Some((rank, ..)) =
            all().find(|(_, sent, bytes, _)| sent.is_none_or(|sent| sent.len() != *bytes))
        {
            let message = format!("rank {rank} has not sent what was expected");
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        // What this rank keeps is read before anything is written, if the parts overlap.
        let overlap = from.addr() < to.addr() + self.spans[1] && to.addr() < from.addr() + self.spans[0];
        let mut source = Vec::new();
        let from = match overlap && self.own.is_some() {
            true => {
                memory::reserve(
                    &mut source,
                    self.spans[0],
                    "a copy of a source that its destination overlaps",
                )?;
                // SAFETY: the caller vouches for the part; there is room for it.
                unsafe { std::ptr::copy_nonoverlapping(from, source.as_mut_ptr(), self.spans[0]) };
                source.as_ptr()
            }
            false => from,
        };
        for (_, sent, bytes, copies) in all() {
            let Some(sent) = sent.filter(|sent| sent.len() == bytes) else { continue };
            let mut next = sent.as_ptr();
            // SAFETY: as in `pack`, with the destination.
            copies.each(|_, offset, bytes| unsafe {
                copy(next, to.add(offset), bytes);
                next = next.add(bytes);
            });
        }
        if let Some(own) = &self.own {
            // SAFETY: as above; a source that the destination overlaps was copied.
            own.each(|source, target, bytes| unsafe { copy(from.add(source), to.add(target), bytes) });
        }
        Ok(())
    }
}
