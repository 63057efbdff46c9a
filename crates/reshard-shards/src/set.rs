//! A set that can be read: its arrays, and an open file for each rank whose header and length were checked.

use crate::access::Modes;
use crate::array::{Array, Part};
use crate::blocks::{Block, BlockSums};
use crate::checksum::Digest;
use crate::confined::Directory;
use crate::element::{called, shown};
use crate::manifest::{Format, Made, Manifest, ManifestArray};
use crate::npy::Npy;
use crate::tensors::Tensors;
use reshard::error::counted;
use reshard::grid::Grid;
use reshard::notation::print_shape;
use reshard::{ElementType, Error, ErrorKind, Layout, Result};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes in which most headers are.
const FIRST_BYTES: usize = 4096;

/// A set of files, one for each rank, with an array or several.
pub struct ShardSet {
    pub(crate) path: PathBuf,
    /// At least one, as their parts follow each other in files of tensors.
    pub(crate) arrays: Vec<Array>,
    /// By ascending rank.
    pub(crate) shards: Vec<Shard>,
    /// Words in the headers of all files of tensors.
    pub(crate) words: BTreeMap<String, String>,
    /// What changes if anything of it does.
    pub(crate) identity: String,
    /// All files in its directory are of it.
    pub(crate) owns_directory: bool,
    /// The modes that sets made of it get.
    pub(crate) modes: Modes,
    /// Parts are read in whole blocks of checksums.
    pub(crate) whole_blocks: bool,
}

/// The file of one rank.
pub(crate) struct Shard {
    pub rank: u64,
    pub name: String,
    pub file: File,
    /// Where its header ends.
    pub header_bytes: u64,
    pub bytes: u64,
    pub sums: Option<KnownSums>,
}

/// What the bytes of a file must be.
pub(crate) struct KnownSums {
    pub blake3: Digest,
    pub block_bytes: u64,
    pub crc32c: Vec<u32>,
    /// Of its header, as it was read.
    pub header: Vec<Block>,
}

impl ShardSet {
    /// Opens a directory with a manifest. The lengths and headers of all files are checked, their elements when they are read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let directory = Directory::open(path)?;
        let text = directory.read_manifest().map_err(|error| {
            Error::new(error.kind(), format!("{} is no set of shards: {error}", path.display()))
        })?;
        let manifest = Manifest::read(&text).map_err(|error| within(path, &error))?;
        let ranks = manifest.ranks()?;
        let layouts = manifest.arrays.iter().map(ManifestArray::layout).collect::<Result<Vec<_>>>()?;
        let (mut shards, mut headers) = (Vec::with_capacity(ranks.len()), Vec::new());
        for ((rank, _), listed) in ranks.into_iter().zip(&manifest.files) {
            let (file, length) = directory.open_file(&listed.name)?;
            if length != listed.bytes {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    format!(
                        "{} has {length} bytes, and the manifest says {}; it was cut off or changed",
                        path.join(&listed.name).display(),
                        listed.bytes
                    ),
                ));
            }
            let in_file = |error: Error| in_file(path, &listed.name, &error);
            let header = match manifest.format {
                Format::Raw => Vec::new(),
                Format::Npy => {
                    let (npy, header) = read_npy(&file, length).map_err(in_file)?;
                    for (array, layout) in manifest.arrays.iter().zip(&layouts) {
                        array.check_npy(layout, rank, listed, &npy).map_err(|error| within(path, &error))?;
                    }
                    header
                }
                Format::Safetensors => {
                    let (tensors, header) = read_tensors(&file, length).map_err(in_file)?;
                    headers.push(tensors);
                    header
                }
            };
            let block_bytes = manifest.block_bytes;
            let known = |blake3| -> Result<KnownSums> {
                let start = BlockSums::of_start(length, block_bytes, &header)?;
                Ok(KnownSums { blake3, block_bytes, crc32c: listed.crc32c.clone(), header: start })
            };
            let sums = listed.blake3.map(known).transpose()?;
            let header_bytes = header.len() as u64;
            shards.push(Shard { rank, name: listed.name.clone(), file, header_bytes, bytes: length, sums });
        }
        let mut identity = Manifest::checksum(&text)?.to_string();
        if shards.iter().any(|shard| shard.sums.is_none()) {
            identity = format!("{identity} {}", stamped(path, &shards)?);
        }
        let mut arrays = Vec::with_capacity(layouts.len());
        for (listed, layout) in manifest.arrays.into_iter().zip(layouts) {
            let mut array = Array::new(layout, listed.element);
            (array.name, array.scalar, array.made) = (listed.name, listed.shape.is_empty(), listed.made);
            array.check_number().map_err(|error| within(path, &error))?;
            arrays.push(array);
        }
        if manifest.format == Format::Safetensors {
            find_tensors(path, &shards, &headers, &mut arrays)?;
        } else {
            for array in &mut arrays {
                let parts = shards.iter().enumerate();
                let part = |(file, shard): (usize, &Shard)| Part {
                    rank: shard.rank,
                    file,
                    start: shard.header_bytes,
                };
                array.parts = parts.map(part).collect();
            }
        }
        arrays.sort_by(|one, other| one.place().cmp(&other.place()));
        let words = common_words(&headers);
        let modes = Modes::of(path, &directory, shards.iter().map(|shard| &shard.file))?;
        Ok(Self {
            path: path.into(),
            arrays,
            shards,
            words,
            identity,
            owns_directory: true,
            modes,
            whole_blocks: false,
        })
    }

    /// Makes [`load_as`](Self::load_as) and its like read whole blocks of checksums, so that every byte of files that have checksums is checked:
    /// up to two blocks (1 MiB each, in most sets) more for each place at which something is read.
    #[must_use]
    pub fn with_whole_blocks(self, whole_blocks: bool) -> Self {
        Self { whole_blocks, ..self }
    }

    /// Its arrays: one, or in files of tensors any number, larger elements first, then by name.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The array of this name.
    pub fn array(&self, name: &str) -> Result<&Array> {
        self.arrays.iter().find(|array| array.name == name).ok_or_else(|| {
            let found = format!("{} has no tensor '{}'", self.path.display(), shown(name));
            Error::new(ErrorKind::Mismatch, found)
        })
    }

    /// Its array, if it has one alone.
    pub(crate) fn only(&self) -> Result<&Array> {
        match &self.arrays[..] {
            [array] => Ok(array),
            arrays => Err(Error::new(
                ErrorKind::Mismatch,
                format!("{} has {}; say which", self.path.display(), counted(arrays.len(), "array")),
            )),
        }
    }

    /// How the array is distributed over the files; of several arrays, the first.
    pub fn layout(&self) -> &Layout {
        &self.arrays[0].layout
    }

    /// Type of the elements; of several arrays, those of the first.
    pub fn element(&self) -> ElementType {
        self.arrays[0].element
    }

    /// The names of the files, by ascending rank.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().map(|shard| &shard.name[..])
    }

    /// The ranks that have a file, ascending.
    pub fn ranks(&self) -> impl Iterator<Item = u64> {
        self.shards.iter().map(|shard| shard.rank)
    }

    /// Set if the elements are a function of their index; of several arrays, those of the first.
    pub fn made(&self) -> Option<&Made> {
        self.arrays[0].made.as_ref()
    }

    /// Bytes of all elements of all arrays, copies not counted.
    pub fn bytes(&self) -> u64 {
        self.arrays.iter().map(Array::bytes).sum()
    }

    /// The file of a part.
    pub(crate) fn shard(&self, part: &Part) -> &Shard {
        &self.shards[part.file]
    }

    /// Fails if a box of an array, as its parts were read, differs between parts that are copies of each other. `firsts` are those of
    /// [`Array::first_copies`].
    pub(crate) fn check_copies(&self, array: &Array, firsts: &[usize], read: &[&mut [u8]]) -> Result<()> {
        let differs = |&(number, &first): &(usize, &usize)| read[number] != read[first];
        let Some((number, &first)) = firsts.iter().enumerate().find(differs) else { return Ok(()) };
        let name = |number: usize| self.path.join(&self.shard(&array.parts[number]).name);
        Err(Error::new(
            ErrorKind::Failed,
            format!(
                "{} is replicated, but its copies in {} and {} differ; nothing is made of it",
                array.called(),
                name(first).display(),
                name(number).display()
            ),
        ))
    }

    /// Fails if a destination lies in it, or is it.
    pub(crate) fn check_outside(&self, destination: &Path) -> Result<()> {
        if !self.owns_directory {
            return Ok(());
        }
        let parent =
            destination.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (Ok(parent), Ok(from)) = (parent.canonicalize(), self.path.canonicalize()) else { return Ok(()) };
        let whole = destination.file_name().map_or_else(|| parent.clone(), |name| parent.join(name));
        match whole.starts_with(&from) {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the destination {} lies in the source {}; give one beside it",
                    destination.display(),
                    self.path.display()
                ),
            )),
        }
    }

    /// The error for bytes of a file whose checksum is another one.
    pub(crate) fn not_what_was_written(&self, shard: &Shard, bytes: Range<u64>) -> Error {
        Error::new(
            ErrorKind::Failed,
            format!(
                "{} is not what was written: its bytes {} to {} have another checksum than the manifest says; nothing is made of it",
                self.path.join(&shard.name).display(),
                bytes.start,
                bytes.end - 1
            ),
        )
    }

    /// What changes if a file is written.
    pub(crate) fn stamps(&self) -> Result<Vec<Stamp>> {
        self.shards.iter().map(|shard| Stamp::of(&self.path, shard)).collect()
    }

    /// Fails if a file was written since.
    pub(crate) fn is_unchanged_since(&self, stamps: &[Stamp]) -> Result<()> {
        let now = self.stamps()?;
        match self.shards.iter().zip(now.iter().zip(stamps)).find(|(_, (now, before))| now != before) {
            None => Ok(()),
            Some((shard, _)) => Err(Error::new(
                ErrorKind::Failed,
                format!(
                    "{} was written by another program while it was read; nothing is made of it",
                    self.path.join(&shard.name).display()
                ),
            )),
        }
    }

    /// What went wrong with a file of it.
    pub(crate) fn failed(&self, shard: &Shard, what: &str, error: &std::io::Error) -> Error {
        external(&self.path, &shard.name, what, error)
    }
}

/// What the file system says of a file, and what changes if it is written.
#[derive(PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    /// Seconds and nanoseconds: when it was last written, which every program can set as it likes.
    written: (i64, i64),
    /// When anything of it was last changed, which no program can set; also a new name or mode, so it counts only where there are no
    /// checksums.
    changed: Option<(i64, i64)>,
    number: u64,
}

impl Stamp {
    fn of(path: &Path, shard: &Shard) -> Result<Self> {
        let known = shard.file.metadata();
        let known = known.map_err(|error| external(path, &shard.name, "cannot be looked at", &error))?;
        Ok(Self {
            bytes: known.len(),
            written: (known.mtime(), known.mtime_nsec()),
            changed: shard.sums.is_none().then(|| (known.ctime(), known.ctime_nsec())),
            number: known.ino(),
        })
    }
}

/// What changes if a file is written anew: without checksums, what the file system says of each must do.
pub(crate) fn stamped(path: &Path, shards: &[Shard]) -> Result<String> {
    let mut text = String::new();
    for shard in shards {
        let Stamp { bytes, written, changed, number } = Stamp::of(path, shard)?;
        text.push_str(&format!("{} {bytes} {written:?} {changed:?} {number}\n", shard.name));
    }
    Ok(format!("files {}", Digest::of(text.as_bytes())))
}

/// Reads the header of a `.npy` file. Returns its bytes as well.
pub(crate) fn read_npy(file: &File, length: u64) -> Result<(Npy, Vec<u8>)> {
    let mut first = Vec::new();
    for most in [FIRST_BYTES, Npy::MAX_HEADER_BYTES] {
        first.resize(most.min(usize::try_from(length).unwrap_or(usize::MAX)), 0);
        let read = file.read_exact_at(&mut first, 0);
        read.map_err(|error| Error::new(ErrorKind::External, format!("its header cannot be read: {error}")))?;
        if Npy::header_bytes(&first).is_none_or(|bytes| bytes <= first.len()) {
            break;
        }
    }
    let npy = Npy::read(&first, length)?;
    first.truncate(npy.data_start() as usize);
    Ok((npy, first))
}

/// Reads the header of a safetensors file. Returns its bytes as well.
pub(crate) fn read_tensors(file: &File, length: u64) -> Result<(Tensors, Vec<u8>)> {
    let mut first = Vec::new();
    let mut wanted = FIRST_BYTES as u64;
    loop {
        first.resize(usize::try_from(wanted.min(length)).unwrap_or(usize::MAX), 0);
        let read = file.read_exact_at(&mut first, 0);
        read.map_err(|error| Error::new(ErrorKind::External, format!("its header cannot be read: {error}")))?;
        // At most 100 MB, and no longer than the file.
        wanted = Tensors::header_bytes(&first, length)?;
        if wanted <= first.len() as u64 {
            let tensors = Tensors::read(&first, length)?;
            first.truncate(tensors.data_start() as usize);
            return Ok((tensors, first));
        }
    }
}

/// Tells arrays where in the files their parts are. Each file must have just the tensors of which its rank has a part, with shape and type.
pub(crate) fn find_tensors(
    path: &Path,
    shards: &[Shard],
    headers: &[Tensors],
    arrays: &mut [Array],
) -> Result<()> {
    let wrong = |shard: &Shard, why: String| {
        Err(Error::new(ErrorKind::Mismatch, format!("{} {why}", path.join(&shard.name).display())))
    };
    let numbers: HashMap<String, usize> =
        arrays.iter().enumerate().map(|(number, array)| (array.name.clone(), number)).collect();
    for (file, (shard, header)) in shards.iter().zip(headers).enumerate() {
        for tensor in header.tensors() {
            let array = numbers.get(&tensor.name).map(|&number| &mut arrays[number]);
            let Some(array) = array.filter(|array| array.layout.distribution().grid().contains(shard.rank))
            else {
                return wrong(
                    shard,
                    format!(
                        "has {}, of which rank {} has no part by its layout",
                        called(&tensor.name),
                        shard.rank
                    ),
                );
            };
            let shape = array.part_shape(shard.rank)?;
            if (&tensor.shape, tensor.element) != (&shape, array.element) {
                return wrong(
                    shard,
                    format!(
                        "has {} with the shape {} and the type {}, and the part of rank {} under {} has {} and {}",
                        array.called(),
                        shape_words(&tensor.shape),
                        tensor.element,
                        shard.rank,
                        array.layout,
                        shape_words(&shape),
                        array.element
                    ),
                );
            }
            array.parts.push(Part { rank: shard.rank, file, start: tensor.start });
        }
    }
    for array in arrays {
        let ranks = array.parts.iter().map(|part| part.rank);
        check_ranks(path, shards, &array.name, array.layout.distribution().grid(), ranks)?;
    }
    Ok(())
}

/// Fails unless a tensor is in the files of just the ranks of its layout. `found` ascends.
pub(crate) fn check_ranks(
    path: &Path,
    shards: &[Shard],
    name: &str,
    grid: &Grid,
    found: impl Iterator<Item = u64>,
) -> Result<()> {
    let found: Vec<u64> = found.collect();
    let wanted = grid.sorted_ranks();
    let differs = |(wanted, found): &(&u64, Option<&u64>)| Some(*wanted) != *found;
    let missing = wanted.iter().zip(found.iter().map(Some).chain(std::iter::repeat(None))).find(differs);
    let (rank, what) = match (missing, found.get(wanted.len())) {
        (None, None) => return Ok(()),
        (Some((&rank, found)), _) if found.is_none_or(|&found| found > rank) => (rank, "lacks"),
        (Some((_, Some(&rank))), _) | (_, Some(&rank)) => (rank, "has"),
        (Some((&rank, None)), None) => (rank, "lacks"),
    };
    let part = if what == "has" { "no part" } else { "a part" };
    let file = shards.iter().find(|shard| shard.rank == rank).map(|shard| path.join(&shard.name));
    let file =
        file.map_or_else(|| format!("the set of {}", path.display()), |file| file.display().to_string());
    Err(Error::new(
        ErrorKind::Mismatch,
        format!("{file} {what} {}, of which rank {rank} has {part} by its layout", called(name)),
    ))
}

/// A shape as errors show it.
pub(crate) fn shape_words(shape: &[u64]) -> String {
    if shape.is_empty() { "of a number".into() } else { shown(&print_shape(shape)) }
}

/// What the headers of all files say alike.
pub(crate) fn common_words(headers: &[Tensors]) -> BTreeMap<String, String> {
    let mut words = headers.first().map(|first| first.metadata().clone()).unwrap_or_default();
    words.retain(|key, value| headers.iter().all(|header| header.metadata().get(key) == Some(value)));
    words
}

fn external(path: &Path, name: &str, what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::External, format!("{} {what}: {error}", path.join(name).display()))
}

fn within(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(crate) fn in_file(path: &Path, name: &str, error: &Error) -> Error {
    within(&path.join(name), error)
}
