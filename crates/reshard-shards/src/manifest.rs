//! The manifest of a set, `reshard.json`: what the array is, how it is distributed, and which file is which rank's part.
//!
//! It is written last, so a directory without one is no set; and it is the word of a stranger until everything in it was checked
//! against everything else: the number of files and their lengths against shape, type and layout, names against all ways out of the
//! directory. The text, and its own checksum, are in `text.rs`.

mod text;

pub(crate) use text::few;

use crate::checksum::Digest;
use crate::element::{same_in_npy, shown};
use crate::npy::Npy;
use reshard::axis::MAX_LEN;
use reshard::distribution::{Distribution, Pattern};
use reshard::error::counted;
use reshard::notation::print_shape;
use reshard::{ElementType, Error, ErrorKind, Layout, MemoryOrder, Result};
use serde::{Deserialize, Serialize};

/// The name of the manifest in the directory of its set.
pub const MANIFEST_NAME: &str = "reshard.json";

/// Blocks of CRCs have at least 4 KiB, so that CRCs take little room, and at most 1 GiB, so that they say where a fault is.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 1 << 12..=1 << 30;
/// The CRCs of a set, 8 digits each, should not take more.
const CRC_TEXT_BYTES: u64 = 16 << 20;
/// The longest name of a file in Linux.
const MAX_NAME_BYTES: usize = 255;

/// What the files of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `.npy`: a header and the elements of the part.
    Npy,
    /// Nothing but the elements of the part.
    Raw,
}

impl Format {
    /// How its files are named if nothing else is said.
    pub fn default_names(self) -> &'static str {
        match self {
            Self::Npy => "rank_{rank:04}.npy",
            Self::Raw => "rank_{rank:04}.bin",
        }
    }
}

/// Where the elements are known without any file: each is a function of its index, so every one can be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Of the function.
    pub seed: u64,
    /// Dimension `d` of this array was dimension `axes[d]` of the one that was made: transposes keep what is known.
    #[serde(deserialize_with = "text::few")]
    pub axes: Vec<usize>,
}

/// One file of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardFile {
    /// Its name in the directory of the set.
    pub name: String,
    /// Its length, header and all.
    pub bytes: u64,
    /// BLAKE3 of all its bytes; none if the set was written without checksums.
    pub blake3: Option<Digest>,
    /// CRC-32C of each block of its bytes; the last may be shorter. Empty without checksums.
    pub crc32c: Vec<u32>,
}

/// What is in a set.
///
/// ```
/// use reshard::MemoryOrder;
/// use reshard_shards::{Format, Manifest, Npy, ShardFile, Sums};
/// let element = "f64".parse()?;
/// let mut files = Vec::new();
/// for rank in 0..2 {
///     let mut sums = Sums::new(1 << 20);
///     sums.update(&Npy::new(element, true, vec![3])?.write());
///     sums.update(&[0; 24]);
///     let (bytes, blake3, crc32c) = sums.finish();
///     files.push(ShardFile { name: format!("rank_{rank:04}.npy"), bytes, blake3: Some(blake3), crc32c });
/// }
/// let manifest = Manifest {
///     shape: vec![6],
///     element,
///     layout: "2/3".parse()?,
///     order: MemoryOrder::ColMajor,
///     format: Format::Npy,
///     block_bytes: 1 << 20,
///     made: None,
///     files,
/// };
/// let text = manifest.write()?;
/// assert_eq!(Manifest::read(&text)?, manifest);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The shape of the whole array.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub element: ElementType,
    /// The layout, without the shape.
    pub layout: Pattern,
    /// Which index of a part runs fastest in its file.
    pub order: MemoryOrder,
    /// What the files are.
    pub format: Format,
    /// Bytes of a block of [`ShardFile::crc32c`]: a power of two from 4 KiB to 1 GiB.
    pub block_bytes: u64,
    /// Set if all elements are a function of their index.
    pub made: Option<Made>,
    /// A file for each rank, by ascending rank.
    pub files: Vec<ShardFile>,
}

impl Manifest {
    /// The version that is written, and the newest that is read.
    pub const VERSION: u64 = 1;

    /// Longer manifests are refused: half a million ranks, or CRCs of a hundred terabytes, need less, and a reader has memory for it.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// Reads a manifest, all of it, and checks everything that can be checked without the files.
    pub fn read(text: &[u8]) -> Result<Self> {
        let manifest = text::read(text)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The text of the manifest, if it passes all checks of a reader.
    pub fn write(&self) -> Result<Vec<u8>> {
        self.check()?;
        text::write(self)
    }

    /// The manifest's own checksum, if it fits: a name for the set and every byte in it.
    pub fn checksum(text: &[u8]) -> Result<Digest> {
        text::checksum(text)
    }

    /// Bytes of a block of CRCs for a set of this size: 1 MiB up to 2 TiB, then more, so that the manifest stays short.
    pub fn block_bytes_for(total_bytes: u64) -> u64 {
        let least = total_bytes.div_ceil(CRC_TEXT_BYTES / 8).max(1 << 20);
        least.checked_next_power_of_two().map_or(*BLOCK_BYTES.end(), |block| block.min(*BLOCK_BYTES.end()))
    }

    /// Which rank has which elements.
    pub fn distribution(&self) -> Result<Distribution> {
        self.layout.over(&self.shape)
    }

    /// Which rank has which elements, and where in its file, in elements from the first one on.
    pub fn layout(&self) -> Result<Layout> {
        Ok(Layout::new(self.distribution()?, self.order))
    }

    /// Checks the header of a file of the set, at this position of the list of files: type, shape and order must be those of the part.
    pub fn check_npy(&self, position: usize, npy: &Npy) -> Result<()> {
        let distribution = self.distribution()?;
        let ranks = distribution.grid().sorted_ranks();
        let (Some(file), Some(&rank)) = (self.files.get(position), ranks.get(position)) else {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("file {position} was asked for; the set has {}", counted(self.files.len(), "file")),
            ));
        };
        let wrong = |what: &str, found: &str, expected: &str| {
            let name = shown(&file.name);
            Err(Error::new(
                ErrorKind::Mismatch,
                format!("the file '{name}' has the {what} {found}, but its manifest says {expected}"),
            ))
        };
        let shape = distribution.local_shape(rank)?;
        if npy.shape() != shape {
            return wrong("shape", &shown(&print_shape(npy.shape())), &print_shape(&shape));
        }
        if !same_in_npy(npy.element(), self.element) {
            return wrong("type", &npy.element().to_string(), &self.element.to_string());
        }
        // With one long dimension at most, both orders are the same, and NumPy then says C.
        let orders_differ = shape.iter().filter(|&&length| length > 1).count() > 1 && !shape.contains(&0);
        if npy.order() != self.order && orders_differ {
            return wrong("order", text::order_name(npy.order()), text::order_name(self.order));
        }
        if npy.file_bytes() != file.bytes {
            return wrong("length", &npy.file_bytes().to_string(), &file.bytes.to_string());
        }
        Ok(())
    }

    /// All that must fit together.
    fn check(&self) -> Result<()> {
        if !self.block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&self.block_bytes) {
            return Err(wrong(&format!(
                "has blocks of {} bytes; a power of two from 4096 to 2^30 is expected",
                self.block_bytes
            )));
        }
        let distribution = self.distribution()?;
        self.check_bytes(distribution.elems())?;
        let ranks = distribution.grid().size();
        if ranks != self.files.len() as u64 {
            return Err(wrong(&format!(
                "lists {}, but its layout has {}; there must be one for each",
                counted(self.files.len(), "file"),
                counted(ranks, "rank")
            )));
        }
        self.files.iter().try_for_each(|file| check_name(&file.name))?;
        let mut names: Vec<&str> = self.files.iter().map(|file| &file.name[..]).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(wrong(&format!(
                "lists the file '{}' twice; each rank has one of its own",
                shown(twice[0])
            )));
        }
        let mut total = 0_u64;
        for (file, rank) in self.files.iter().zip(distribution.grid().sorted_ranks()) {
            let elems = distribution.local_elems(rank)?;
            self.check_length(file, self.check_bytes(elems)?)?;
            // Copies of replicated elements count, too.
            total = total.saturating_add(file.bytes);
        }
        if total > MAX_LEN {
            return Err(wrong("lists files of more than 2^62 bytes in all, the most that are possible"));
        }
        self.check_made()
    }

    fn check_bytes(&self, elems: u64) -> Result<u64> {
        let bytes = elems.checked_mul(self.element.bytes()).filter(|&bytes| bytes <= MAX_LEN);
        bytes.ok_or_else(|| {
            Error::new(
                ErrorKind::TooLarge,
                format!(
                    "{elems} elements of type {} are more than 2^62 bytes, the most that are possible",
                    self.element
                ),
            )
        })
    }

    fn check_length(&self, file: &ShardFile, data_bytes: u64) -> Result<()> {
        let longest_header = match self.format {
            Format::Raw => 0,
            Format::Npy => Npy::MAX_HEADER_BYTES as u64,
        };
        let shortest_header = if self.format == Format::Npy { Npy::MIN_HEADER_BYTES } else { 0 };
        let name = shown(&file.name);
        if !(data_bytes + shortest_header..=data_bytes + longest_header).contains(&file.bytes) {
            return Err(wrong(&format!(
                "says that the file '{name}' has {} bytes; its part has {data_bytes}{}",
                file.bytes,
                if self.format == Format::Npy { ", and a header is short" } else { "" }
            )));
        }
        let blocks = if file.blake3.is_some() { file.bytes.div_ceil(self.block_bytes) } else { 0 };
        if file.crc32c.len() as u64 != blocks {
            return Err(wrong(&format!(
                "has {} of the file '{name}', which has {} of {} bytes",
                counted(file.crc32c.len(), "CRC"),
                counted(blocks, "block"),
                self.block_bytes
            )));
        }
        Ok(())
    }

    fn check_made(&self) -> Result<()> {
        let Some(made) = &self.made else { return Ok(()) };
        let mut axes = made.axes.clone();
        axes.sort_unstable();
        match axes.into_iter().eq(0..self.shape.len()) {
            true => Ok(()),
            false => Err(wrong(&format!(
                "says that its array was made with the axes {:?}; an order of all {} is expected",
                made.axes,
                counted(self.shape.len(), "dimension")
            ))),
        }
    }
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Mismatch, format!("the manifest {why}"))
}

/// Fails unless this is the name of a file in the directory of a set, and of no other place: one component, not hidden, not the
/// manifest, no control characters, at most 255 bytes.
pub fn check_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_NAME_BYTES {
        "is longer than 255 bytes"
    } else if name.contains(['/', '\\']) {
        "has a slash: files of a set are in its directory, not elsewhere"
    } else if name.starts_with('.') {
        "begins with a dot"
    } else if name.chars().any(char::is_control) {
        "has a control character"
    } else if name.eq_ignore_ascii_case(MANIFEST_NAME) {
        "is that of the manifest"
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::Mismatch,
        format!("the file name '{}' {why}; take one such as rank_0000.npy", shown(name)),
    ))
}

#[cfg(test)]
mod tests;
