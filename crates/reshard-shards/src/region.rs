//! A box of a part in its file: runs of bytes, as long as its order allows, read and written at their places.

use reshard::MemoryOrder;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes that are read or written at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A box of a part, as equal runs of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where the first run begins.
    start: u64,
    run_bytes: u64,
    /// How often, and how far apart, from the fastest on.
    repeats: Vec<(u64, u64)>,
}

impl Region {
    /// The box `ranges` of a part of this shape, whose elements of `elem` bytes begin at byte `data_start` of the file.
    pub fn new(shape: &[u64], order: MemoryOrder, ranges: &[Range<u64>], elem: u64, data_start: u64) -> Self {
        let mut dims: Vec<usize> = (0..shape.len()).collect();
        if order == MemoryOrder::RowMajor {
            dims.reverse();
        }
        let (mut start, mut stride, mut run_bytes) = (data_start, elem, elem);
        let mut repeats: Vec<(u64, u64)> = Vec::new();
        for dim in dims {
            let count = ranges[dim].end - ranges[dim].start;
            start += ranges[dim].start * stride;
            match repeats.last_mut() {
                // What follows without a gap is one run.
                None if run_bytes == stride => run_bytes *= count,
                Some((repeated, step)) if *repeated * *step == stride => *repeated *= count,
                _ => repeats.push((count, stride)),
            }
            stride *= shape[dim];
        }
        repeats.retain(|&(count, _)| count != 1);
        Self { start, run_bytes, repeats }
    }

    /// All bytes of it.
    pub fn bytes(&self) -> u64 {
        self.run_bytes * self.runs()
    }

    /// How many runs there are.
    pub fn runs(&self) -> u64 {
        self.repeats.iter().map(|&(count, _)| count).product()
    }

    /// Where each run begins, ascending.
    fn starts(&self) -> impl Iterator<Item = u64> {
        (0..self.runs()).map(|number| {
            let mut rest = number;
            self.repeats.iter().fold(self.start, |at, &(count, step)| {
                let index = rest % count;
                rest /= count;
                at + index * step
            })
        })
    }

    /// Some memory in the pieces that are read or written at a time, each with its place in the file, ascending: runs, or parts of long ones,
    /// which the caches have.
    pub fn pieces_mut<'m>(&'m self, memory: &'m mut [u8]) -> impl Iterator<Item = (u64, &'m mut [u8])> {
        let runs = memory.chunks_exact_mut((self.run_bytes as usize).max(1));
        runs.zip(self.starts()).flat_map(|(run, start)| {
            let pieces = run.chunks_mut(PIECE_BYTES).enumerate();
            pieces.map(move |(number, piece)| (start + (number * PIECE_BYTES) as u64, piece))
        })
    }

    /// Memory in pieces as [`pieces_mut`](Self::pieces_mut).
    pub fn pieces<'m>(&'m self, memory: &'m [u8]) -> impl Iterator<Item = (u64, &'m [u8])> {
        let runs = memory.chunks_exact((self.run_bytes as usize).max(1));
        runs.zip(self.starts()).flat_map(|(run, start)| {
            let pieces = run.chunks(PIECE_BYTES).enumerate();
            pieces.map(move |(number, piece)| (start + (number * PIECE_BYTES) as u64, piece))
        })
    }

    /// Reads it, run after run.
    pub fn read(&self, file: &File, into: &mut [u8]) -> io::Result<()> {
        self.pieces_mut(into).try_for_each(|(at, piece)| file.read_exact_at(piece, at))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use reshard_testkit::Random;

    /// Offsets of all bytes of a box, one by one.
    fn offsets(shape: &[u64], order: MemoryOrder, ranges: &[Range<u64>], elem: u64, start: u64) -> Vec<u64> {
        let mut found = Vec::new();
        for number in 0..shape.iter().product() {
            let (mut rest, mut inside) = (number, true);
            let mut dims: Vec<usize> = (0..shape.len()).collect();
            if order == MemoryOrder::RowMajor {
                dims.reverse();
            }
            for dim in dims {
                inside &= ranges[dim].contains(&(rest % shape[dim]));
                rest /= shape[dim];
            }
            if inside {
                found.extend((0..elem).map(|byte| start + number * elem + byte));
            }
        }
        found
    }

    #[test]
    fn runs_are_the_bytes_of_the_box() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let dims = random.within(0, 4);
            let shape: Vec<u64> = (0..dims).map(|_| random.within(1, 5)).collect();
            let range = |&length: &u64, random: &mut Random| {
                let (one, other) = (random.within(0, length), random.within(0, length));
                if random.within(0, 2) == 0 { 0..length } else { one.min(other)..one.max(other) }
            };
            let ranges: Vec<Range<u64>> = shape.iter().map(|length| range(length, &mut random)).collect();
            let order = [MemoryOrder::RowMajor, MemoryOrder::ColMajor][random.within(0, 1) as usize];
            let (elem, start) = (random.within(1, 9), random.within(0, 200));
            let region = Region::new(&shape, order, &ranges, elem, start);
            let expected = offsets(&shape, order, &ranges, elem, start);
            assert_eq!(region.bytes(), expected.len() as u64, "{shape:?} {ranges:?}");
            if region.bytes() == 0 {
                continue;
            }
            let found: Vec<u64> = region.starts().flat_map(|at| at..at + region.run_bytes).collect();
            assert_eq!(found, expected, "{shape:?} {ranges:?} {order:?}");
            let gaps = expected.windows(2).filter(|pair| pair[1] != pair[0] + 1).count() as u64;
            assert_eq!(region.runs(), gaps + 1, "{shape:?} {ranges:?} {order:?}");
        }
    }
}
