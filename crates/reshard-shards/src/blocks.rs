//! The CRC-32C of each block of a file, of runs of bytes that come in any order. CRCs are linear: that of a block is the XOR of those of its
//! runs, each moved to its place as if all other bytes were zero. So what is read or written in runs is checked by the very bytes that were,
//! and no byte is read twice.

use crate::processes::Processes;
use reshard::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::LazyLock;

/// The polynomial of CRC-32C; the highest bit is the coefficient of 1.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^8, by which a CRC is multiplied for each zero byte that follows.
const ZERO_BYTE: u32 = 1 << 23;

/// Numbers below 2^31 have three digits of this many bits, nearly.
const DIGIT_BITS: u32 = 10;

/// x^(8 n) for each digit of n.
static POWERS: LazyLock<[Vec<u32>; 3]> = LazyLock::new(|| {
    let mut step = ZERO_BYTE;
    std::array::from_fn(|_| {
        let mut powers = vec![1 << 31];
        for _ in 0..1 << DIGIT_BITS {
            powers.push(product(powers[powers.len() - 1], step));
        }
        step = powers[1 << DIGIT_BITS];
        powers
    })
});

/// Blocks that all processes tell each other of at a time, each of 8 bytes.
const MERGED_BLOCKS: usize = 1 << 17;

/// The product of two polynomials, modulo that of the CRC.
fn product(one: u32, mut other: u32) -> u32 {
    let mut sum = 0;
    for bit in (0..32).rev() {
        sum ^= other & (one >> bit & 1).wrapping_neg();
        other = other >> 1 ^ POLYNOMIAL & (other & 1).wrapping_neg();
    }
    sum
}

/// What a CRC is multiplied by for so many zero bytes, at most 2^30.
fn zeros(bytes: u64) -> u32 {
    let digit = |number: u32| POWERS[number as usize][(bytes >> (DIGIT_BITS * number)) as usize & 1023];
    match bytes {
        0..1024 => digit(0),
        1024..1_048_576 => product(digit(0), digit(1)),
        // The highest digit may be 1024.
        _ => product(product(digit(0), digit(1)), POWERS[2][(bytes >> (2 * DIGIT_BITS)) as usize & 2047]),
    }
}

/// The CRC of bytes after others, without the inversion at both ends that would make it not linear.
fn after(crc: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!crc, bytes)
}

/// What has come of a block.
#[derive(Clone, Copy, Default)]
pub struct Block {
    crc: u32,
    bytes: u32,
}

/// The CRCs of the blocks of a file, as far as runs of it have come.
pub struct BlockSums {
    bytes: u64,
    block_bits: u32,
    blocks: Vec<Block>,
    /// Runs of one block, ascending, that are not among the blocks yet, and where the last one ends.
    last: Block,
    end: u64,
    /// The last gap between two runs, and the factor for so many zero bytes: most gaps are equal.
    gap: (u64, u32),
}

impl BlockSums {
    /// Of a file of which nothing has come; blocks have a power of two bytes.
    pub fn new(bytes: u64, block_bytes: u64) -> Result<Self> {
        let mut blocks = Vec::new();
        let count = bytes.div_ceil(block_bytes.max(1));
        let room = usize::try_from(count).map_err(|_| ()).and_then(|count| {
            blocks.try_reserve_exact(count).map_err(|_| ())?;
            blocks.resize(count, Block::default());
            Ok(())
        });
        room.map_err(|()| {
            Error::new(ErrorKind::Memory, format!("memory for {count} checksums of a file cannot be had"))
        })?;
        let last = Block::default();
        Ok(Self { bytes, block_bits: block_bytes.trailing_zeros(), blocks, last, end: 0, gap: (0, 1 << 31) })
    }

    /// The bytes of a block.
    fn range(&self, block: usize) -> Range<u64> {
        let start = (block as u64) << self.block_bits;
        start..(start + (1 << self.block_bits)).min(self.bytes)
    }

    /// Takes a run of bytes that has not come before; fastest if runs ascend. An error with the bytes of a block that is whole by it and has
    /// another checksum than `known` says, if that says any.
    pub fn add(
        &mut self,
        mut at: u64,
        mut bytes: &[u8],
        known: &[u32],
    ) -> std::result::Result<(), Range<u64>> {
        while !bytes.is_empty() {
            let block = (at >> self.block_bits) as usize;
            let range = self.range(block);
            if self.last.bytes > 0 && (at < self.end || self.end <= range.start) {
                self.settle();
            }
            if self.last.bytes > 0 && at > self.end {
                if self.gap.0 != at - self.end {
                    self.gap = (at - self.end, zeros(at - self.end));
                }
                self.last.crc = product(self.last.crc, self.gap.1);
            }
            let room = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            if now.is_empty() {
                // Beyond the end of the file, where no block is.
                return Err(at..at + bytes.len() as u64);
            }
            self.last.crc = after(self.last.crc, now);
            self.last.bytes += now.len() as u32;
            self.end = at + now.len() as u64;
            let come = u64::from(self.blocks[block].bytes) + u64::from(self.last.bytes);
            if come == range.end - range.start {
                self.settle();
                if known.get(block).is_some_and(|&known| self.crc(block) != Some(known)) {
                    return Err(range);
                }
            }
            (at, bytes) = (self.end, rest);
        }
        Ok(())
    }

    /// Puts the runs that came last into their block.
    fn settle(&mut self) {
        let Block { crc, bytes } = std::mem::take(&mut self.last);
        if bytes > 0 {
            let number = ((self.end - 1) >> self.block_bits) as usize;
            let rest = self.range(number).end - self.end;
            let block = &mut self.blocks[number];
            block.crc ^= product(crc, zeros(rest));
            block.bytes = block.bytes.saturating_add(bytes);
        }
    }

    /// The CRC of a block, if each of its bytes has come once.
    fn crc(&self, block: usize) -> Option<u32> {
        let (range, Block { crc, bytes }) = (self.range(block), self.blocks[block]);
        let length = range.end - range.start;
        (u64::from(bytes) == length).then(|| !(crc ^ product(u32::MAX, zeros(length))))
    }

    /// The bytes of the first block that has not come as a whole, or has another checksum than is known.
    pub fn difference(&mut self, known: &[u32]) -> Option<Range<u64>> {
        self.settle();
        let differs = |&block: &usize| self.crc(block).is_none_or(|crc| known.get(block) != Some(&crc));
        (0..self.blocks.len()).find(differs).map(|block| self.range(block))
    }

    /// The blocks of the beginning of a file, to be taken later.
    pub fn of_start(bytes: u64, block_bytes: u64, start: &[u8]) -> Result<Vec<Block>> {
        let mut sums = Self::new(bytes, block_bytes)?;
        let _ = sums.add(0, start, &[]);
        sums.settle();
        sums.blocks.truncate(start.len().div_ceil(block_bytes.max(1) as usize));
        Ok(sums.blocks)
    }

    /// Takes the blocks of the beginning.
    pub fn add_start(&mut self, start: &[Block]) {
        for (block, add) in self.blocks.iter_mut().zip(start) {
            *block = block.and(*add);
        }
    }

    /// Adds up what has come to all processes, each of which has the same files. Collective.
    pub fn merge(processes: &Processes, all: Vec<&mut Self>) -> Result<()> {
        if processes.count() == 1 {
            return Ok(());
        }
        let mut blocks = Vec::new();
        for sums in all {
            sums.settle();
            blocks.extend(sums.blocks.iter_mut());
        }
        for some in blocks.chunks_mut((MERGED_BLOCKS / processes.count()).max(1024)) {
            let mine = some.iter().flat_map(|block| [block.crc.to_le_bytes(), block.bytes.to_le_bytes()]);
            let texts = processes.gather(mine.flatten().collect())?;
            some.iter_mut().for_each(|block| **block = Block::default());
            for text in texts {
                for (block, told) in some.iter_mut().zip(text.chunks_exact(8)) {
                    let [crc, bytes] = [0, 4].map(|at| {
                        told[at..at + 4].iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
                    });
                    **block = block.and(Block { crc, bytes });
                }
            }
        }
        Ok(())
    }
}

impl Block {
    /// Of the bytes of both.
    fn and(self, other: Self) -> Self {
        Self { crc: self.crc ^ other.crc, bytes: self.bytes.saturating_add(other.bytes) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::checksum::crc32c;
    use reshard_testkit::Random;

    #[test]
    fn zero_bytes_are_a_factor() {
        for bytes in [0, 1, 2, 1023, 1024, 1025, 4096, 1 << 20, (1 << 20) + 1, 3 << 20, (1 << 22) - 1] {
            let found = product(after(0, b"123"), zeros(bytes));
            assert_eq!(found, after(after(0, b"123"), &vec![0; bytes as usize]), "{bytes}");
        }
        let square = |power: u32| product(power, power);
        assert_eq!(zeros(1 << 30), (0..30).fold(ZERO_BYTE, |power, _| square(power)));
        assert_eq!(zeros(1 << 29), (0..29).fold(ZERO_BYTE, |power, _| square(power)));
    }

    /// Cut anywhere, in any order: the same checksums as of all bytes in theirs.
    #[test]
    fn runs_in_any_order_have_the_checksums_of_their_blocks() {
        let mut random = Random::new(21);
        for case in 0..400 {
            let block = 1 << random.within(0, 9);
            let bytes: Vec<u8> = (0..random.within(0, 3000)).map(|_| random.within(0, 255) as u8).collect();
            let known: Vec<u32> = bytes.chunks(block as usize).map(crc32c).collect();
            let (mut runs, mut at) = (Vec::new(), 0);
            while at < bytes.len() {
                let most = 1 << random.within(0, 11);
                let end = (at + random.within(1, most) as usize).min(bytes.len());
                runs.push(at..end);
                at = end;
            }
            if case % 3 > 0 {
                // Every other run first, as rows of a box; or any order.
                let (even, odd): (Vec<_>, Vec<_>) =
                    runs.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
                runs = even.into_iter().chain(odd).map(|(_, run)| run).collect();
                for _ in 0..if case % 3 == 2 { 2 * runs.len() } else { 0 } {
                    let last = runs.len() as u64 - 1;
                    runs.swap(random.within(0, last) as usize, random.within(0, last) as usize);
                }
            }
            let all = |bytes: &[u8], runs: &[Range<usize>], early: bool| {
                let mut sums = BlockSums::new(bytes.len() as u64, block).unwrap();
                for run in runs {
                    sums.add(run.start as u64, &bytes[run.clone()], if early { &known } else { &[] })?;
                }
                sums.difference(&known).map_or(Ok(()), Err)
            };
            let early = random.one_in(2);
            assert_eq!(all(&bytes, &runs, early), Ok(()), "{block} {runs:?}");
            if bytes.is_empty() {
                continue;
            }
            // One bit flipped, one run missing.
            let (mut flipped, bit) = (bytes.clone(), random.within(0, 8 * bytes.len() as u64 - 1));
            flipped[bit as usize / 8] ^= 1 << (bit % 8);
            let wrong = all(&flipped, &runs, early).unwrap_err();
            assert!(wrong.contains(&(bit / 8)), "{wrong:?} {bit}");
            let left_out = runs.swap_remove(random.within(0, runs.len() as u64 - 1) as usize);
            let wrong = all(&bytes, &runs, early).unwrap_err();
            assert!(wrong.start < left_out.end as u64 && wrong.end > left_out.start as u64, "{wrong:?}");
            let start = BlockSums::of_start(bytes.len() as u64, block, &bytes[..bytes.len() / 2]).unwrap();
            let mut sums = BlockSums::new(bytes.len() as u64, block).unwrap();
            sums.add_start(&start);
            sums.add(bytes.len() as u64 / 2, &bytes[bytes.len() / 2..], &known).unwrap();
            assert_eq!(sums.difference(&known), None);
            assert!(sums.add(bytes.len() as u64, b"x", &[]).is_err());
        }
    }
}
