//! Bytes of a file checked against its checksums while they are read, each block of them once it is whole.

use crate::parallel::chunk_bytes;
use crate::set::{KnownSums, Shard, ShardSet};
use reshard::Result;
use std::os::unix::fs::FileExt;

/// Bytes that few threads read at a time where nobody else wants them.
const CHUNK_BYTES: usize = 1 << 20;

/// How far a file was checked.
pub struct Checked {
    bytes: u64,
    /// Of the bytes since the last block ended.
    crc: u32,
    /// That are read at a time.
    chunk_bytes: usize,
}

impl Checked {
    /// Nothing yet, by one of so many threads.
    pub fn new(threads: usize) -> Self {
        Self { bytes: 0, crc: 0, chunk_bytes: chunk_bytes(threads, CHUNK_BYTES) }
    }

    /// The next bytes of a file. An error at the end of each block that is not what it was.
    pub fn update(&mut self, set: &ShardSet, shard: &Shard, mut bytes: &[u8]) -> Result<()> {
        let Some(sums) = &shard.sums else { return Ok(()) };
        while !bytes.is_empty() {
            let room = sums.block_bytes - self.bytes % sums.block_bytes;
            let (now, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.crc = ::crc32c::crc32c_append(self.crc, now);
            self.bytes += now.len() as u64;
            bytes = rest;
            if self.bytes.is_multiple_of(sums.block_bytes) || self.bytes == shard.bytes {
                self.end_block(set, shard, sums)?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self, set: &ShardSet, shard: &Shard, sums: &KnownSums) -> Result<()> {
        let block = (self.bytes - 1) / sums.block_bytes;
        let found = std::mem::take(&mut self.crc);
        match sums.crc32c.get(usize::try_from(block).unwrap_or(usize::MAX)) {
            Some(&known) if known == found => Ok(()),
            _ => Err(set.not_what_was_written(shard, block * sums.block_bytes..self.bytes)),
        }
    }

    /// Goes on at a byte of the file: what was begun is checked to the end of its block, and what is before `start` in its own is read.
    pub fn go_on_at(&mut self, set: &ShardSet, shard: &Shard, start: u64) -> Result<()> {
        let Some(sums) = &shard.sums else { return Ok(()) };
        let block = start - start % sums.block_bytes;
        if block > self.bytes || start < self.bytes {
            self.finish(set, shard)?;
            self.bytes = block;
        }
        self.read_to(set, shard, start)
    }

    /// Checks what was begun to the end of its block.
    pub fn finish(&mut self, set: &ShardSet, shard: &Shard) -> Result<()> {
        let Some(sums) = &shard.sums else { return Ok(()) };
        self.read_to(set, shard, self.bytes.next_multiple_of(sums.block_bytes).min(shard.bytes))
    }

    /// Reads the bytes up to some place, for their checksums alone.
    fn read_to(&mut self, set: &ShardSet, shard: &Shard, end: u64) -> Result<()> {
        if shard.sums.is_none() || end <= self.bytes {
            return Ok(());
        }
        let mut memory =
            vec![0; self.chunk_bytes.min(usize::try_from(end - self.bytes).unwrap_or(CHUNK_BYTES))];
        while self.bytes < end {
            let length = memory.len().min(usize::try_from(end - self.bytes).unwrap_or(usize::MAX));
            let chunk = &mut memory[..length];
            shard
                .file
                .read_exact_at(chunk, self.bytes)
                .map_err(|error| set.failed(shard, "cannot be read", &error))?;
            self.update(set, shard, chunk)?;
        }
        Ok(())
    }
}
