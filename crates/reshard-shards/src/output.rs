//! The files of a set while they are written, with their checksums.

use crate::array::{Array, Part};
use crate::blocks::BlockSums;
use crate::checksum::{Sums, append_crc, crc32c};
use crate::contents::{Contents, lay_out};
use crate::manifest::{Format, Manifest, ManifestArray, ShardFile};
use crate::names::NamePattern;
use crate::parallel::{chunk_bytes, for_each};
use crate::processes::Processes;
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
    /// Of what is written, as it is in memory.
    sums: BlockSums,
    /// Elements that were written one after the other, in bytes.
    appended: u64,
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
            let sums = BlockSums::new(if checked { bytes } else { 0 }, block_bytes)?;
            output.files.push(OutputFile { rank, name, file, header, bytes, sums, appended: 0 });
        }
        Ok(output)
    }

    pub fn files(&self) -> &[OutputFile] {
        &self.files
    }

    /// Writes a box of all parts of an array, unless an earlier run has. Returns in how many runs, and a checksum of it if `summed`.
    #[allow(clippy::too_many_arguments)]
    pub fn write(
        &mut self,
        staging: &Staging,
        threads: usize,
        number: usize,
        region: &[Range<u64>],
        boxes: &[&mut [u8]],
        is_written: bool,
        summed: bool,
    ) -> Result<(u64, u32)> {
        let Self { arrays, files, checked, .. } = self;
        let (writes, array) = (AtomicU64::new(0), &arrays[number]);
        let mut crcs = vec![0; array.parts.len()];
        // Both ascend by rank, and all ranks are hosted.
        let mut files = files.iter_mut();
        let all = array.parts.iter().zip(boxes).zip(&mut crcs).filter_map(|((part, bytes), crc)| {
            Some((files.find(|one| one.rank == part.rank)?, part, bytes, crc))
        });
        type Item<'i> = (&'i mut OutputFile, &'i Part, &'i &'i mut [u8], &'i mut u32);
        for_each(threads, all.collect(), |(one, part, bytes, crc): Item<'_>| {
            let place = array.region(part, region)?;
            if summed {
                *crc = crc32c(bytes);
            }
            for (at, piece) in place.pieces(bytes) {
                one.put(staging, at, piece, *checked, is_written)?;
            }
            writes.fetch_add(if is_written { 0 } else { place.runs() }, Ordering::Relaxed);
            Ok(())
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
        for piece in bytes.chunks(CHUNK_BYTES) {
            let at = one.header.len() as u64 + one.appended;
            one.put(staging, at, piece, self.checked, false)?;
            one.appended += piece.len() as u64;
        }
        Ok(())
    }

    /// Adds up what all processes have written, each some boxes of the same files. Collective.
    pub fn merge(&mut self, processes: &Processes) -> Result<()> {
        BlockSums::merge(processes, self.files.iter_mut().map(|one| &mut one.sums).collect())
    }

    /// Makes all durable.
    pub fn sync_all(&self, staging: &Staging, threads: usize) -> Result<()> {
        for_each(threads, self.files.iter().collect(), |one: &OutputFile| {
            one.file.sync_all().map_err(|error| staging.failed(&one.name, "cannot be made durable", &error))
        })
    }

    /// What all processes have written whole: a line for each file in `share`. Each is read once, and must be what was written, block by
    /// block as it was in memory. Adds the bytes that are read.
    pub fn finish(
        &mut self,
        staging: &Staging,
        threads: usize,
        share: Range<u64>,
        reread: &mut u64,
    ) -> Result<Vec<u8>> {
        let (block_bytes, mine) =
            (self.block_bytes, &mut self.files[share.start as usize..share.end as usize]);
        if !self.checked {
            let line = |one: &OutputFile| format!("{} {NO_DIGEST}  {}\n", one.bytes, one.name);
            return Ok(mine.iter().map(line).collect::<String>().into_bytes());
        }
        *reread += mine.iter().map(|one| one.bytes).sum::<u64>();
        let chunk = chunk_bytes(threads.min(mine.len()), CHUNK_BYTES);
        let mut lines = vec![String::new(); mine.len()];
        let all = mine.iter_mut().zip(&mut lines).collect();
        for_each(threads, all, |(one, line): (&mut OutputFile, &mut String)| {
            *line = one.line(staging, block_bytes, chunk)?;
            Ok(())
        })?;
        Ok(lines.concat().into_bytes())
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
    /// Sums up some bytes, and writes them unless an earlier run has.
    fn put(
        &mut self,
        staging: &Staging,
        at: u64,
        bytes: &[u8],
        checked: bool,
        is_written: bool,
    ) -> Result<()> {
        if checked {
            let added = self.sums.add(at, bytes, &[]);
            added.map_err(|place| self.differs(staging, &place))?;
        }
        if is_written {
            return Ok(());
        }
        let written = self.file.write_all_at(bytes, at);
        written.map_err(|error| staging.failed(&self.name, "cannot be written", &error))
    }

    /// Reads all of it. Returns what is said of it: its length, its checksums and its name.
    fn line(&mut self, staging: &Staging, block_bytes: u64, chunk: usize) -> Result<String> {
        let (mut sums, mut memory, mut at) = (Sums::new(block_bytes), vec![0; chunk], 0);
        while at < self.bytes {
            let some = &mut memory[..(chunk as u64).min(self.bytes - at) as usize];
            let read = self.file.read_exact_at(some, at);
            read.map_err(|error| staging.failed(&self.name, "cannot be read", &error))?;
            sums.update(some);
            at += some.len() as u64;
        }
        let (bytes, blake3, crcs) = sums.finish();
        let header = self.sums.add(0, &self.header, &[]).err();
        if let Some(place) = header.or_else(|| self.sums.difference(&crcs)) {
            return Err(self.differs(staging, &place));
        }
        let crcs: Vec<String> = crcs.iter().map(|crc| format!("{crc:x}")).collect();
        Ok(format!("{bytes} {blake3} {} {}\n", crcs.join(","), self.name))
    }

    fn differs(&self, staging: &Staging, place: &Range<u64>) -> Error {
        Error::new(
            ErrorKind::Failed,
            format!(
                "{} is not what was written into it: its bytes {} to {}, read once more, have another checksum than in memory; the disk \
                 or another program changed them, and nothing is made of it; begin again",
                staging.path().join(&self.name).display(),
                place.start,
                place.end.saturating_sub(1)
            ),
        )
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
