//! The files of a set while they are written, with their checksums.

use crate::array::{Array, Part};
use crate::checksum::{Sums, append_crc, crc32c};
use crate::contents::{Contents, lay_out};
use crate::manifest::{Format, Manifest, ManifestArray, ShardFile};
use crate::names::NamePattern;
use crate::parallel::{chunk_bytes, for_each};
use crate::region::Region;
use crate::slab::Slab;
use crate::staging::Staging;
use reshard::grid::Grid;
use reshard::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are read for their checksums, or written and summed up, at a time: the caches have them.
const CHUNK_BYTES: usize = 256 << 10;

/// Stands for the checksum that a file does not have.
const NO_DIGEST: &str = "-";

/// What is to be written.
pub struct Wanted<'w> {
    /// Without parts. In the order in which they are written.
    pub arrays: Vec<Array>,
    pub format: Format,
    /// The names of the files.
    pub pattern: &'w str,
    /// For the headers of files of tensors.
    pub words: &'w BTreeMap<String, String>,
    /// Checksums are worked out.
    pub checked: bool,
}

/// The files of a set that is written.
pub struct Output {
    arrays: Vec<Array>,
    format: Format,
    block_bytes: u64,
    /// Checksums are worked out.
    checked: bool,
    files: Vec<OutputFile>,
}

/// The file of one rank.
pub struct OutputFile {
    rank: u64,
    name: String,
    file: File,
    header: Vec<u8>,
    /// The whole file.
    bytes: u64,
    /// Of the bytes up to some place, while they are written in order.
    sums: Sums,
    summed: u64,
}

impl Output {
    /// Opens the files of all ranks, new or as an earlier run has left them.
    pub fn new(staging: &Staging, wanted: Wanted<'_>, new: bool) -> Result<Self> {
        Self::of_ranks(staging, wanted, new, |_| true)
    }

    /// Opens the files of some ranks, as `new` those of all.
    pub fn of_ranks(
        staging: &Staging,
        wanted: Wanted<'_>,
        new: bool,
        hosted: impl Fn(u64) -> bool,
    ) -> Result<Self> {
        let Wanted { mut arrays, format, pattern, words, checked } = wanted;
        let contents = lay_out(format, &mut arrays, words)?;
        let pattern: NamePattern = pattern.parse()?;
        let names = match &arrays[..] {
            [array] => pattern.names(array.layout().distribution().grid())?,
            _ => {
                let ranks: Vec<u64> = contents.iter().map(|one| one.rank).collect();
                pattern.names(&Grid::new(&[ranks.len() as u64])?.with_ranks(&ranks)?)?
            }
        };
        // Headers and copies have CRCs, too.
        let total = contents.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        let block_bytes = Manifest::block_bytes_for(total);
        let mut output = Self { arrays, format, block_bytes, checked, files: Vec::new() };
        let listed = contents.iter().zip(&names).map(|(one, name)| (&name[..], one.bytes));
        output.manifest().check_room(listed, checked)?;
        let ranks = contents.into_iter().zip(names);
        for (Contents { rank, header, bytes }, name) in ranks.filter(|(one, _)| hosted(one.rank)) {
            let file = staging.open(&name, new)?;
            if !new {
                check_length(staging, &name, &file, bytes)?;
            }
            let begun = file.set_len(bytes).and_then(|()| file.write_all_at(&header, 0));
            begun.map_err(|error| staging.failed(&name, "cannot be written", &error))?;
            output.files.push(OutputFile {
                rank,
                name,
                file,
                header,
                bytes,
                sums: Sums::new(block_bytes),
                summed: 0,
            });
        }
        Ok(output)
    }

    pub fn files(&self) -> &[OutputFile] {
        &self.files
    }

    /// Writes a box of all parts of an array. Returns in how many runs, and a checksum of it if `summed`.
    #[allow(clippy::too_many_arguments)]
    pub fn write(
        &mut self,
        staging: &Staging,
        threads: usize,
        number: usize,
        region: &[Range<u64>],
        boxes: &[&mut [u8]],
        in_order: bool,
        summed: bool,
    ) -> Result<(u64, u32)> {
        let Self { arrays, files, .. } = self;
        let (writes, array) = (AtomicU64::new(0), &arrays[number]);
        let mut crcs = vec![0; array.parts.len()];
        let chunk = chunk_bytes(threads.min(files.len()), CHUNK_BYTES);
        // Both ascend by rank, and all ranks are hosted.
        let mut files = files.iter_mut();
        let all = array.parts.iter().zip(boxes).zip(&mut crcs).filter_map(|((part, bytes), crc)| {
            Some((files.find(|one| one.rank == part.rank)?, part, bytes, crc))
        });
        type Item<'i> = (&'i mut OutputFile, &'i Part, &'i &'i mut [u8], &'i mut u32);
        for_each(threads, all.collect(), |(one, part, bytes, crc): Item<'_>| {
            let place = array.region(part, region)?;
            writes.fetch_add(place.runs(), Ordering::Relaxed);
            if summed {
                *crc = crc32c(bytes);
            }
            let Some(run) = place.only_run().filter(|run| in_order && run.start < run.end) else {
                let written = place.write(&one.file, bytes);
                return written.map_err(|error| staging.failed(&one.name, "cannot be written", &error));
            };
            // The header, and what an earlier run has written.
            one.sum_up_to(staging, run.start, chunk)?;
            one.write_next(staging, bytes)
        })?;
        Ok((writes.into_inner(), crcs.into_iter().fold(0, append_crc)))
    }

    /// The checksum of a box that an earlier run has written.
    pub fn crc_of_box(
        &self,
        staging: &Staging,
        threads: usize,
        number: usize,
        region: &[Range<u64>],
        slab: &mut Slab,
    ) -> Result<u32> {
        let array = &self.arrays[number];
        let places = array.parts.iter().map(|part| array.region(part, region)).collect::<Result<Vec<_>>>()?;
        let memory = slab.cut(&places.iter().map(Region::bytes).collect::<Vec<_>>())?;
        let mut crcs = vec![0; places.len()];
        let all = array.parts.iter().zip(&places).zip(memory).zip(&mut crcs).collect();
        type Item<'i> = (((&'i Part, &'i Region), &'i mut [u8]), &'i mut u32);
        for_each(threads, all, |(((part, place), bytes), crc): Item<'_>| {
            let one = &self.files[part.file];
            let read = place.read(&one.file, bytes);
            read.map_err(|error| staging.failed(&one.name, "cannot be read", &error))?;
            *crc = crc32c(bytes);
            Ok(())
        })?;
        Ok(crcs.into_iter().fold(0, append_crc))
    }

    /// Makes what was written durable.
    pub fn sync(&self, staging: &Staging, threads: usize) -> Result<()> {
        for_each(threads, self.files.iter().collect(), |one: &OutputFile| {
            one.file.sync_data().map_err(|error| staging.failed(&one.name, "cannot be made durable", &error))
        })?;
        staging.sync()
    }

    /// The next elements of the part of the only rank, tight and in the order of its file.
    pub fn append(&mut self, staging: &Staging, bytes: &[u8]) -> Result<()> {
        let Some(one) = self.files.first_mut() else { return Ok(()) };
        one.sum_up_to(staging, one.header.len() as u64, CHUNK_BYTES)?;
        one.write_next(staging, bytes)
    }

    /// Makes all durable.
    pub fn sync_all(&self, staging: &Staging, threads: usize) -> Result<()> {
        for_each(threads, self.files.iter().collect(), |one: &OutputFile| {
            one.file.sync_all().map_err(|error| staging.failed(&one.name, "cannot be made durable", &error))
        })
    }

    /// What all processes have written whole: a line for each file in `share`. Adds the bytes that are read for their checksums alone.
    pub fn finish(
        &mut self,
        staging: &Staging,
        threads: usize,
        share: Range<u64>,
        reread: &mut u64,
    ) -> Result<Vec<u8>> {
        let mine = &mut self.files[share.start as usize..share.end as usize];
        if !self.checked {
            let line = |one: &OutputFile| format!("{} {NO_DIGEST}  {}\n", one.bytes, one.name);
            return Ok(mine.iter().map(line).collect::<String>().into_bytes());
        }
        *reread += mine.iter().map(|one| one.bytes - one.summed).sum::<u64>();
        let chunk = chunk_bytes(threads.min(mine.len()), CHUNK_BYTES);
        for_each(threads, mine.iter_mut().collect(), |one: &mut OutputFile| {
            one.sum_up_to(staging, one.bytes, chunk)
        })?;
        let mut text = String::new();
        for one in mine {
            let (bytes, blake3, crcs) =
                std::mem::replace(&mut one.sums, Sums::new(self.block_bytes)).finish();
            if bytes != one.bytes {
                return Err(Error::new(
                    ErrorKind::Failed,
                    format!("the file {} was not summed up whole", one.name),
                ));
            }
            let crcs: Vec<String> = crcs.iter().map(|crc| format!("{crc:x}")).collect();
            text.push_str(&format!("{bytes} {blake3} {} {}\n", crcs.join(","), one.name));
        }
        Ok(text.into_bytes())
    }

    /// The files that all processes say they have finished, by ascending rank.
    pub fn files_of(texts: &[Vec<u8>]) -> Result<Vec<ShardFile>> {
        let file = |line: &str| {
            let mut words = line.splitn(4, ' ');
            let (bytes, blake3, crcs, name) = (words.next()?, words.next()?, words.next()?, words.next()?);
            let blake3 = if blake3 == NO_DIGEST { None } else { Some(blake3.parse().ok()?) };
            let crcs = crcs.split(',').filter(|crc| !crc.is_empty());
            let crc32c = crcs.map(|crc| u32::from_str_radix(crc, 16).ok()).collect::<Option<_>>()?;
            Some(ShardFile { name: name.into(), bytes: bytes.parse().ok()?, blake3, crc32c })
        };
        let texts: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
        let files: Option<_> = texts.iter().flat_map(|text| text.lines()).map(file).collect();
        files.ok_or_else(|| {
            Error::new(ErrorKind::Failed, "what another process said of its files cannot be read")
        })
    }

    /// What is said of the arrays and the files, but the list of files.
    pub fn manifest(&self) -> Manifest {
        let said = |array: &Array| {
            let distribution = array.layout.distribution();
            ManifestArray {
                name: array.name.clone(),
                shape: if array.scalar { Vec::new() } else { distribution.shape() },
                element: array.element,
                layout: distribution.pattern(),
                order: array.layout.order(),
                made: array.made.clone(),
            }
        };
        Manifest {
            arrays: self.arrays.iter().map(said).collect(),
            format: self.format,
            block_bytes: self.block_bytes,
            files: Vec::new(),
        }
    }
}

impl OutputFile {
    /// Writes the bytes that follow those that were summed up, and sums them up.
    fn write_next(&mut self, staging: &Staging, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let written = self.file.write_all_at(chunk, self.summed);
            written.map_err(|error| staging.failed(&self.name, "cannot be written", &error))?;
            self.sums.update(chunk);
            self.summed += chunk.len() as u64;
        }
        Ok(())
    }

    /// Reads what has not been summed up, up to some place, so many bytes at a time.
    fn sum_up_to(&mut self, staging: &Staging, end: u64, chunk: usize) -> Result<()> {
        let mut memory = Vec::new();
        while self.summed < end {
            let length = usize::try_from(end - self.summed).unwrap_or(chunk).min(chunk);
            memory.resize(length, 0);
            let read = self.file.read_exact_at(&mut memory, self.summed);
            read.map_err(|error| staging.failed(&self.name, "cannot be read", &error))?;
            self.sums.update(&memory);
            self.summed += length as u64;
        }
        Ok(())
    }
}

/// What an earlier run has written has its whole length since before the first box: a shorter file lost something.
fn check_length(staging: &Staging, name: &str, file: &File, bytes: u64) -> Result<()> {
    let metadata = file.metadata().map_err(|error| staging.failed(name, "cannot be read", &error))?;
    match metadata.len() == bytes {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "{} has {} bytes, and the run that is to be continued gave it {bytes}; remove the directory, and begin again",
                staging.path().join(name).display(),
                metadata.len()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of files of this layout, none of which is made.
    fn output(layout: &str, checked: bool) -> Result<Output> {
        let path = std::env::temp_dir().join(format!("reshard-output-{}", std::process::id()));
        let staging = Staging::begin_anew(&path, "make ")?;
        let arrays = vec![Array::new(layout.parse()?, "f64".parse()?)];
        let words = BTreeMap::new();
        let wanted = Wanted { arrays, format: Format::Raw, pattern: "{rank}", words: &words, checked };
        let output = Output::of_ranks(&staging, wanted, true, |_| false);
        staging.discard();
        output
    }

    #[test]
    fn copies_have_checksums_and_manifests_an_end() {
        let elems = 1_u64 << 37;
        // 2^52 bytes in all, with 2^22 CRCs in the manifest; of fewer bytes in a block there would be 2^32.
        let found = output(&format!("(*) on 4096 of {elems}"), true).unwrap();
        assert_eq!(found.manifest().block_bytes, 1 << 30);
        let error = output(&format!("(*) on 65536 of {elems}"), true).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("the manifest has"), "{error}");
        output(&format!("(*) on 65536 of {elems}"), false).unwrap();
    }
}
