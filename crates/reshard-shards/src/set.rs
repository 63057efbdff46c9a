//! A set that can be read: its layout, and an open file for each rank whose header and length were checked.

use crate::checksum::Digest;
use crate::confined::Directory;
use crate::manifest::{Format, Made, Manifest};
use crate::npy::Npy;
use crate::region::Region;
use reshard::{ElementType, Error, ErrorKind, Layout, Result};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes in which most headers are.
const FIRST_BYTES: usize = 4096;

/// A set of files, one for each rank of a layout.
pub struct ShardSet {
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) element: ElementType,
    /// By ascending rank.
    pub(crate) shards: Vec<Shard>,
    pub(crate) made: Option<Made>,
    /// What changes if anything of it does.
    pub(crate) identity: String,
    /// All files in its directory are of it.
    pub(crate) owns_directory: bool,
}

/// The part of one rank.
pub(crate) struct Shard {
    pub rank: u64,
    pub name: String,
    pub file: File,
    /// Where the elements begin.
    pub data_start: u64,
    pub bytes: u64,
    pub sums: Option<KnownSums>,
}

/// What the bytes of a file must be.
pub(crate) struct KnownSums {
    pub blake3: Digest,
    pub block_bytes: u64,
    pub crc32c: Vec<u32>,
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
        let layout = manifest.layout()?;
        let mut shards = Vec::with_capacity(manifest.files.len());
        for (position, rank) in layout.distribution().grid().sorted_ranks().into_iter().enumerate() {
            let listed = &manifest.files[position];
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
            let data_start = match manifest.format {
                Format::Raw => 0,
                Format::Npy => {
                    let npy = read_npy(&file, length).map_err(|error| in_file(path, &listed.name, &error))?;
                    manifest.check_npy(position, &npy).map_err(|error| within(path, &error))?;
                    npy.data_start()
                }
            };
            let sums = listed.blake3.map(|blake3| KnownSums {
                blake3,
                block_bytes: manifest.block_bytes,
                crc32c: listed.crc32c.clone(),
            });
            shards.push(Shard { rank, name: listed.name.clone(), file, data_start, bytes: length, sums });
        }
        let mut identity = Manifest::checksum(&text)?.to_string();
        if shards.iter().any(|shard| shard.sums.is_none()) {
            identity = format!("{identity} {}", stamped(path, &shards)?);
        }
        Ok(Self {
            path: path.into(),
            layout,
            element: manifest.element,
            shards,
            made: manifest.made,
            identity,
            owns_directory: true,
        })
    }

    /// How the array is distributed over the files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The names of the files, by ascending rank.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().map(|shard| &shard.name[..])
    }

    /// Set if the elements are a function of their index.
    pub fn made(&self) -> Option<&Made> {
        self.made.as_ref()
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.layout.distribution().elems() * self.element.bytes()
    }

    /// A box of a rank's part in its file.
    pub(crate) fn region(&self, shard: &Shard, region: &[Range<u64>]) -> Result<Region> {
        let distribution = self.layout.distribution();
        let local = distribution.local_region(shard.rank, region)?;
        let shape = distribution.local_shape(shard.rank)?;
        Ok(Region::new(&shape, self.layout.order(), &local, self.element.bytes(), shard.data_start))
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

    /// When each file was last written, and how long it is.
    pub(crate) fn stamps(&self) -> Result<Vec<(SystemTime, u64)>> {
        let stamp = |shard: &Shard| {
            let metadata = shard.file.metadata();
            let stamp = metadata.and_then(|metadata| Ok((metadata.modified()?, metadata.len())));
            stamp.map_err(|error| self.failed(shard, "cannot be read", &error))
        };
        self.shards.iter().map(stamp).collect()
    }

    /// Fails if a file was written since.
    pub(crate) fn is_unchanged_since(&self, stamps: &[(SystemTime, u64)]) -> Result<()> {
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

/// What changes if a file is written anew: without checksums, what the file system says of each must do.
pub(crate) fn stamped(path: &Path, shards: &[Shard]) -> Result<String> {
    let mut text = String::new();
    for shard in shards {
        let known = shard.file.metadata();
        let known = known.map_err(|error| external(path, &shard.name, "cannot be looked at", &error))?;
        let (seconds, nanoseconds, number) = (known.mtime(), known.mtime_nsec(), known.ino());
        text.push_str(&format!("{} {} {seconds} {nanoseconds} {number}\n", shard.name, shard.bytes));
    }
    Ok(format!("files {}", Digest::of(text.as_bytes())))
}

/// Reads the header of a `.npy` file.
pub(crate) fn read_npy(file: &File, length: u64) -> Result<Npy> {
    let mut first = Vec::new();
    for most in [FIRST_BYTES, Npy::MAX_HEADER_BYTES] {
        first.resize(most.min(usize::try_from(length).unwrap_or(usize::MAX)), 0);
        let read = file.read_exact_at(&mut first, 0);
        read.map_err(|error| Error::new(ErrorKind::External, format!("its header cannot be read: {error}")))?;
        if Npy::header_bytes(&first).is_none_or(|bytes| bytes <= first.len()) {
            break;
        }
    }
    Npy::read(&first, length)
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
