//! Whether a set is what was written: all bytes against their checksums, and every element of sets whose elements are known.

use crate::array::{Array, Part};
use crate::boxes::{Boxes, Files};
use crate::checksum::Sums;
use crate::made::Elements;
use crate::parallel::{chunk_bytes, for_each};
use crate::set::{KnownSums, Shard, ShardSet};
use crate::slab::Slab;
use reshard::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

const CHUNK_BYTES: usize = 1 << 20;
const BOX_BYTES: u64 = 32 << 20;
/// One thread looks at smaller arrays.
const SMALL_BYTES: u64 = 256 << 10;

/// What was found in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Files, and their bytes, whose checksums are right; those without are not counted.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// Elements that were compared with what they must be.
    pub elements: u64,
    /// Replicated arrays, whose copies are equal.
    pub replicated: u64,
}

impl ShardSet {
    /// Reads all of it. An error says what is wrong first, and where.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<Verified> {
        self.verify_all(&mut progress)
    }

    fn verify_all(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
        let threads = threads();
        let (files, bytes) = self.check_files()?;
        let (mut elements, mut replicated, mut done) = (0, 0, 0);
        for array in &self.arrays {
            let firsts = array.first_copies()?;
            if array.made.is_some() || !firsts.is_empty() {
                let mut told = |bytes| progress(done + bytes, self.bytes());
                elements += self.check_elements(array, &firsts, threads, &mut told)?;
            }
            done += array.bytes();
            replicated += u64::from(!firsts.is_empty());
        }
        Ok(Verified { files, bytes, elements, replicated })
    }

    /// Checks the checksums of all files. Returns how many have some, and how many bytes these have.
    pub(crate) fn check_files(&self) -> Result<(u64, u64)> {
        let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let threads = threads().min(self.shards.len());
        for_each(threads, self.shards.iter().collect(), |shard: &Shard| {
            let Some(sums) = &shard.sums else { return Ok(()) };
            self.check_sums(shard, sums, chunk_bytes(threads, CHUNK_BYTES))?;
            files.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(shard.bytes, Ordering::Relaxed);
            Ok(())
        })?;
        Ok((files.into_inner(), bytes.into_inner()))
    }

    fn check_sums(&self, shard: &Shard, sums: &KnownSums, most: usize) -> Result<()> {
        let mut found = Sums::new(sums.block_bytes);
        let mut chunk = vec![0; most];
        let mut at = 0;
        while at < shard.bytes {
            let chunk = &mut chunk[..(most as u64).min(shard.bytes - at) as usize];
            shard
                .file
                .read_exact_at(chunk, at)
                .map_err(|error| self.failed(shard, "cannot be read", &error))?;
            found.update(chunk);
            at += chunk.len() as u64;
        }
        let (_, blake3, crc32c) = found.finish();
        if (blake3, &crc32c) == (sums.blake3, &sums.crc32c) {
            return Ok(());
        }
        let block = crc32c.iter().zip(&sums.crc32c).position(|(found, known)| found != known);
        let place = block.map_or(String::new(), |block| {
            let start = block as u64 * sums.block_bytes;
            format!(", in its bytes {start} to {}", (start + sums.block_bytes).min(shard.bytes) - 1)
        });
        Err(Error::new(
            ErrorKind::Failed,
            format!(
                "{} is not what was written{place}: its checksums differ",
                self.path.join(&shard.name).display()
            ),
        ))
    }

    /// Checks that copies are equal, and elements what they must be if that is known; returns how many of them.
    fn check_elements(
        &self,
        array: &Array,
        firsts: &[usize],
        threads: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        // To begin a thread takes longer than to look at a small tensor.
        let threads = if array.bytes() < SMALL_BYTES { 1 } else { threads };
        let (distribution, elem) = (array.layout.distribution(), array.element.bytes());
        let shape = distribution.shape();
        let elements = array.made.as_ref().map(|made| Elements::new(made, &shape, array.element));
        let files = Files::of(&array.layout, None);
        let boxes = Boxes::new(&shape, elem, BOX_BYTES / distribution.copies(), &files, &files);
        let (mut done, count, mut slab) = (0, AtomicU64::new(0), Slab::default());
        for number in 0..boxes.count() {
            let region = boxes.region(number);
            let lengths = array.parts.iter().map(|part| Ok(array.region(part, &region)?.bytes()));
            let mut read = slab.cut(&lengths.collect::<Result<Vec<_>>>()?)?;
            let all = array.parts.iter().zip(&mut read).collect();
            for_each(threads, all, |(part, found): (&Part, &mut &mut [u8])| {
                let shard = self.shard(part);
                let place = array.region(part, &region)?;
                place
                    .read(&shard.file, found)
                    .map_err(|error| self.failed(shard, "cannot be read", &error))?;
                let Some(elements) = &elements else { return Ok(()) };
                let mut expected = vec![0; found.len()];
                let local = distribution.local_region(part.rank, &region)?;
                elements.fill(&array.layout, part.rank, &local, &mut expected)?;
                count.fetch_add(place.bytes() / elem, Ordering::Relaxed);
                match found.iter().zip(&expected).position(|(found, expected)| found != expected) {
                    None => Ok(()),
                    Some(byte) => Err(Error::new(
                        ErrorKind::Failed,
                        format!(
                            "{} has a wrong element: number {} of the box {region:?} is not what it was made as",
                            self.path.join(&shard.name).display(),
                            byte as u64 / elem
                        ),
                    )),
                }
            })?;
            self.check_copies(array, firsts, &read)?;
            done += elem * region.iter().map(|range| range.end - range.start).product::<u64>();
            progress(done);
        }
        Ok(count.into_inner())
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
