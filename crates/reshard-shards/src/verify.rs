//! Whether a set is what was written: all bytes against their checksums, and every element of sets whose elements are known.

use crate::boxes::{Boxes, Files};
use crate::checksum::Sums;
use crate::made::Elements;
use crate::parallel::for_each;
use crate::set::{KnownSums, Shard, ShardSet};
use reshard::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

const CHUNK_BYTES: u64 = 1 << 20;
const BOX_BYTES: u64 = 32 << 20;

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
}

impl ShardSet {
    /// Reads all of it. An error says what is wrong first, and where.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<Verified> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        for_each(threads, self.shards.iter().collect(), |shard: &Shard| {
            let Some(sums) = &shard.sums else { return Ok(()) };
            self.check_sums(shard, sums)?;
            files.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(shard.bytes, Ordering::Relaxed);
            Ok(())
        })?;
        let elements = match &self.made {
            Some(_) => self.check_elements(threads, &mut progress)?,
            None => 0,
        };
        Ok(Verified { files: files.into_inner(), bytes: bytes.into_inner(), elements })
    }

    fn check_sums(&self, shard: &Shard, sums: &KnownSums) -> Result<()> {
        let mut found = Sums::new(sums.block_bytes);
        let mut chunk = vec![0; CHUNK_BYTES as usize];
        let mut at = 0;
        while at < shard.bytes {
            let chunk = &mut chunk[..CHUNK_BYTES.min(shard.bytes - at) as usize];
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

    fn check_elements(&self, threads: usize, progress: &mut impl FnMut(u64, u64)) -> Result<u64> {
        let Some(made) = &self.made else { return Ok(0) };
        let (distribution, elem) = (self.layout.distribution(), self.element.bytes());
        let shape = distribution.shape();
        let elements = Elements::new(made, &shape, self.element);
        let files = Files::of(&self.layout, None);
        let boxes = Boxes::new(&shape, elem, BOX_BYTES, &files, &files);
        let (mut done, count) = (0, AtomicU64::new(0));
        for number in 0..boxes.count() {
            let region = boxes.region(number);
            for_each(threads, self.shards.iter().collect(), |shard: &Shard| {
                let place = self.region(shard, &region)?;
                let (mut found, mut expected) =
                    (vec![0; place.bytes() as usize], vec![0; place.bytes() as usize]);
                place
                    .read(&shard.file, &mut found)
                    .map_err(|error| self.failed(shard, "cannot be read", &error))?;
                let local = distribution.local_region(shard.rank, &region)?;
                elements.fill(&self.layout, shard.rank, &local, &mut expected)?;
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
            done += elem * region.iter().map(|range| range.end - range.start).product::<u64>();
            progress(done, self.bytes());
        }
        Ok(count.into_inner())
    }
}
