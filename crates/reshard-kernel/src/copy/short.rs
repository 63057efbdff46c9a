//! Copies rounds of short pieces by their tables: see [`ShortPieces`].

use crate::route::{MoveTable, ROW_LIMITS, ShortMove, ShortPieces, Tables};
use crate::simd::{Vector, compose, prefetch};
use crate::store::Sink;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Distance in bytes between the lines that are read and those that are prefetched, if that is not done by rounds.
const AHEAD_BYTES: usize = 2048;

/// Distance in bytes between the lines that a transpose collects and those that are prefetched: about as much as a section
/// takes from one peer.
const COLLECTED_AHEAD_BYTES: usize = 512;

/// Working memory for short pieces.
pub struct ShortScratch {
    /// The address of each origin.
    origins: Vec<*const u8>,
    /// Sources are prefetched that many positions ahead in the same row; 0 if they are in the caches or rows ahead are.
    pub(super) ahead: u64,
    /// A section in the order of the destination, on its way to a sink.
    section: Vec<SectionLine>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct SectionLine(#[allow(dead_code)] [u8; 64]);

impl ShortScratch {
    /// Allocates scratch for loops of at most `origins` origins, 0 if no loop has short pieces.
    pub fn new(origins: usize) -> Self {
        let lines = if origins > 0 { ROW_LIMITS.section_bytes / size_of::<SectionLine>() } else { 0 };
        Self {
            origins: vec![std::ptr::null(); origins],
            ahead: 0,
            section: vec![SectionLine([0; 64]); lines],
        }
    }

    /// Returns the bytes of that scratch.
    pub fn bytes(origins: usize) -> u64 {
        match origins {
            0 => 0,
            _ => (origins * size_of::<*const u8>() + ROW_LIMITS.section_bytes) as u64,
        }
    }
}

impl ShortPieces {
    /// True if a sink can take these pieces: scattered ones are not pushed but stored.
    #[inline(always)]
    pub fn suits<V: Vector, S: Sink<V>>(&self) -> bool {
        self.contiguous || S::COPIES_BITS
    }

    /// Copies whole batches of rounds of a row to the row at `to`, at least one. Prefetches
    /// them in the row at `ahead_bases`, if that is not empty, or further in this one.
    ///
    /// # Safety
    /// The contract of [`Sink`], which suits; `bases[peer]` is the start of the row in the part of that peer, which has all
    /// elements of these rounds; there is one base for each peer of the route of this loop. The scratch was made for it.
    #[inline(always)]
    pub unsafe fn copy_rounds<V: Vector, S: Sink<V>>(
        &self,
        bases: [&[*const u8]; 2],
        to: *mut u8,
        rounds: Range<u64>,
        scratch: &mut ShortScratch,
        sink: &mut S,
    ) {
        let mut round = rounds.start;
        while round < rounds.end {
            // The last batch begins earlier where rounds are left that fill none: what was copied already is copied again.
            let start = round.min(rounds.end - self.rounds);
            let done = (round - start) as usize * self.to[1];
            // SAFETY: by the caller's contract, for whole rounds.
            unsafe {
                self.locate(bases, start, scratch);
                self.copy_sections::<V, S>(0..self.sections.len(), to, start, done, scratch, sink);
            }
            round = start + self.rounds;
        }
    }

    /// Finds the addresses of the origins in a batch that begins with a round.
    ///
    /// # Safety
    /// As for [`ShortPieces::copy_rounds`].
    // Not inlined into kernels: compiled for their levels, the loop would be made of gathers.
    #[inline(never)]
    pub unsafe fn locate(
        &self,
        [bases, ahead_bases]: [&[*const u8]; 2],
        round: u64,
        scratch: &mut ShortScratch,
    ) {
        let ahead_rounds = (scratch.ahead / self.elems) as usize;
        for (address, origin) in scratch.origins.iter_mut().zip(&self.origins) {
            let offset = origin.first + round as usize * origin.step;
            // SAFETY: there is a base for each peer of the route.
            *address = unsafe { bases.get_unchecked(origin.peer) }.wrapping_add(offset);
            let ahead = match ahead_bases.get(origin.peer) {
                Some(next) => next.wrapping_add(offset),
                None if ahead_rounds > 0 => address.wrapping_add(ahead_rounds * origin.step),
                None => continue,
            };
            origin
                .prefetched
                .iter()
                .for_each(|&[skipped, bytes]| prefetch(ahead.wrapping_add(skipped), bytes));
        }
    }

    /// Collects a section of the batch that begins with a round, at `to`.
    ///
    /// # Safety
    /// As for [`ShortPieces::copy_rounds`], for a loop that is contiguous in the destination; `to` is aligned to lines and has
    /// room for whole lines.
    // Not inlined into kernels: compiled for their levels, the loop would be made of gathers.
    #[inline(never)]
    pub unsafe fn collect(
        &self,
        bases: &[*const u8],
        round: u64,
        section: usize,
        scratch: &mut ShortScratch,
        to: *mut u8,
    ) {
        for &number in &self.sections[section].origins {
            let origin = &self.origins[number as usize];
            let offset = origin.first + round as usize * origin.step;
            scratch.origins[number as usize] = bases[origin.peer].wrapping_add(offset);
        }
        // SAFETY: by the caller's contract.
        unsafe {
            match &self.sections[section].how {
                Tables::Lines(lines) => {
                    let lane_and_ahead = [self.lane, COLLECTED_AHEAD_BYTES];
                    compose(lines, lane_and_ahead, &self.shuffles, &scratch.origins, to, usize::MAX);
                }
                Tables::Moves(tables) => copy_tables(tables, &scratch.origins, to),
            }
        }
    }

    /// Copies some sections of the batch that begins with a round, whose origins were located; of the first section not the
    /// `done` first bytes.
    ///
    /// # Safety
    /// As for [`ShortPieces::copy_rounds`], for the elements of these sections.
    #[inline(always)]
    pub unsafe fn copy_sections<V: Vector, S: Sink<V>>(
        &self,
        sections: Range<usize>,
        to: *mut u8,
        round: u64,
        done: usize,
        scratch: &mut ShortScratch,
        sink: &mut S,
    ) {
        let ShortScratch { origins, ahead, section: buffer } = scratch;
        // Rounds that are long are not prefetched as such.
        let ahead = if *ahead > 0 && *ahead < self.elems { AHEAD_BYTES } else { 0 };
        let buffer: *mut u8 = buffer.as_mut_ptr().cast();
        let batch = to.wrapping_add(self.to[0] + round as usize * self.to[1]);
        let sections = &self.sections[sections];
        if let (true, Some(first)) = (self.contiguous, sections.first()) {
            // SAFETY: the place of the first section in the destination.
            unsafe {
                sink.open(batch.wrapping_add(first.at as usize * first.bytes / first.elems as usize + done));
            };
        }
        let mut done = done;
        for section in sections {
            // SAFETY: windows and moves read bytes of the section's pieces, which the sources have. What is contiguous in the
            // destination goes there at once, where the sink says so, or through the buffer, which has room for a section and
            // is aligned to lines. What was copied already is then copied again.
            unsafe {
                let place = if self.contiguous { sink.reserve(section.bytes - done) } else { None };
                let (to, bytes) = match place {
                    Some(place) => (place.wrapping_sub(done), section.bytes),
                    None if self.contiguous => (buffer, usize::MAX),
                    None => (batch, 0),
                };
                match &section.how {
                    Tables::Lines(lines) => {
                        compose(lines, [self.lane, ahead], &self.shuffles, origins, to, bytes);
                    }
                    Tables::Moves(tables) => copy_tables(tables, origins, to),
                }
                if self.contiguous && place.is_none() {
                    sink.push(buffer.add(done), section.bytes - done);
                }
            }
            done = 0;
        }
    }
}

/// Makes all moves of some tables.
///
/// # Safety
/// The moves' bytes are readable behind the address of their origin, and writable behind `to`; the two do not overlap.
unsafe fn copy_tables(tables: &[MoveTable], origins: &[*const u8], to: *mut u8) {
    for MoveTable { width, twice, moves } in tables {
        // SAFETY: by the caller's contract; the width is one of these.
        unsafe {
            match (width, twice) {
                (1, _) => copy_moves::<1, false>(moves, origins, to),
                (2, false) => copy_moves::<2, false>(moves, origins, to),
                (2, true) => copy_moves::<2, true>(moves, origins, to),
                (4, false) => copy_moves::<4, false>(moves, origins, to),
                (4, true) => copy_moves::<4, true>(moves, origins, to),
                (8, false) => copy_moves::<8, false>(moves, origins, to),
                (8, true) => copy_moves::<8, true>(moves, origins, to),
                (16, false) => copy_moves::<16, false>(moves, origins, to),
                (16, true) => copy_moves::<16, true>(moves, origins, to),
                (32, false) => copy_moves::<32, false>(moves, origins, to),
                (32, true) => copy_moves::<32, true>(moves, origins, to),
                (_, false) => copy_moves::<64, false>(moves, origins, to),
                (_, true) => copy_moves::<64, true>(moves, origins, to),
            }
        }
    }
}

/// Makes moves of `WIDTH` bytes, twice for each piece if so.
///
/// # Safety
/// As for [`copy_tables`].
#[inline(always)]
unsafe fn copy_moves<const WIDTH: usize, const TWICE: bool>(
    moves: &[ShortMove],
    origins: &[*const u8],
    to: *mut u8,
) {
    for one in moves {
        // SAFETY: the origin is one of those the table was made with; the rest is the caller's contract.
        unsafe {
            let from = origins.get_unchecked(one.origin as usize).add(one.from as usize);
            let to = to.add(one.to as usize);
            let head = from.cast::<[MaybeUninit<u8>; WIDTH]>().read();
            if TWICE {
                let tail = from.add(one.second as usize).cast::<[MaybeUninit<u8>; WIDTH]>().read();
                to.add(one.second as usize).cast::<[MaybeUninit<u8>; WIDTH]>().write(tail);
            }
            to.cast::<[MaybeUninit<u8>; WIDTH]>().write(head);
        }
    }
}
