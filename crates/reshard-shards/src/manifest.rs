//! The manifest of a set, `reshard.json`: what the array is, how it is distributed, and which file is which rank's part.
//!
//! It is written last, so a directory without one is no set; and it is the word of a stranger until everything in it was checked
//! against everything else: the number of files and their lengths against shape, type and layout, names against all ways out of the
//! directory. The text, and its own checksum, are in `text.rs`.

mod text;

use crate::checksum::Digest;
use crate::element::{called, safetensors_name, same_in_npy, shown};
use crate::few::few;
use crate::npy::Npy;
use crate::tensors::{LENGTH_BYTES, MAX_HEADER_BYTES, METADATA};
use reshard::axis::MAX_LEN;
use reshard::distribution::{Distribution, Pattern};
use reshard::error::counted;
use reshard::notation::print_shape;
use reshard::{ElementType, Error, ErrorKind, Layout, MemoryOrder, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// The name of the manifest in the directory of its set.
pub const MANIFEST_NAME: &str = "reshard.json";

/// Blocks of CRCs have at least 4 KiB, so that CRCs take little room, and at most 1 GiB, so that they say where a fault is.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 1 << 12..=1 << 30;
/// The CRCs of a set, 8 digits each, should not take more.
const CRC_TEXT_BYTES: u64 = 16 << 20;
/// Parts of all arrays on all ranks: thousands of tensors on thousands of ranks, which take some hundred megabytes to list.
const MAX_PARTS: u64 = 1 << 22;
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
    /// Safetensors: a header and the parts of any number of arrays, each with its name and its layout.
    Safetensors,
}

impl Format {
    /// How its files are named if nothing else is said.
    pub fn default_names(self) -> &'static str {
        match self {
            Self::Npy => "rank_{rank:04}.npy",
            Self::Raw => "rank_{rank:04}.bin",
            Self::Safetensors => "rank_{rank:04}.safetensors",
        }
    }

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Raw => "raw",
            Self::Safetensors => "safetensors",
        }
    }

    /// Bytes that the header of a file may have.
    fn header_bytes(self) -> std::ops::RangeInclusive<u64> {
        match self {
            Self::Npy => Npy::MIN_HEADER_BYTES..=Npy::MAX_HEADER_BYTES as u64,
            Self::Raw => 0..=0,
            Self::Safetensors => LENGTH_BYTES as u64 + 2..=LENGTH_BYTES as u64 + MAX_HEADER_BYTES,
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
    #[serde(deserialize_with = "few")]
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

/// What is said of an array of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestArray {
    /// Its name in the files of tensors; empty in others, which have one array.
    pub name: String,
    /// The shape of the whole array. Empty for a number, which is laid out like an array of one element.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub element: ElementType,
    /// The layout, without the shape.
    pub layout: Pattern,
    /// Which index of a part runs fastest in its file.
    pub order: MemoryOrder,
    /// Set if all elements are a function of their index.
    pub made: Option<Made>,
}

/// What is in a set.
///
/// ```
/// use reshard::MemoryOrder;
/// use reshard_shards::{Format, Manifest, ManifestArray, Npy, ShardFile, Sums};
/// let element = "f64".parse()?;
/// let mut files = Vec::new();
/// for rank in 0..2 {
///     let mut sums = Sums::new(1 << 20);
///     sums.update(&Npy::new(element, true, vec![3])?.write());
///     sums.update(&[0; 24]);
///     let (bytes, blake3, crc32c) = sums.finish();
///     files.push(ShardFile { name: format!("rank_{rank:04}.npy"), bytes, blake3: Some(blake3), crc32c });
/// }
/// let array = ManifestArray {
///     name: String::new(),
///     shape: vec![6],
///     element,
///     layout: "2/3".parse()?,
///     order: MemoryOrder::ColMajor,
///     made: None,
/// };
/// let manifest = Manifest { arrays: vec![array], format: Format::Npy, block_bytes: 1 << 20, files };
/// let text = manifest.write()?;
/// assert_eq!(Manifest::read(&text)?, manifest);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// One without a name, or any number of tensors with different names.
    pub arrays: Vec<ManifestArray>,
    /// What the files are.
    pub format: Format,
    /// Bytes of a block of [`ShardFile::crc32c`]: a power of two from 4 KiB to 1 GiB.
    pub block_bytes: u64,
    /// A file for each rank that has a part of any array, by ascending rank.
    pub files: Vec<ShardFile>,
}

impl Manifest {
    /// The newest version that is read, and written for files of tensors; sets of one array have version 1.
    pub const VERSION: u64 = 2;

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

    /// Fails if the text would be too long once these files, names and lengths, are listed, with checksums or without.
    pub(crate) fn check_room<'f>(
        &self,
        files: impl Iterator<Item = (&'f str, u64)>,
        checked: bool,
    ) -> Result<()> {
        text::check_length(text::length(self, files, checked)?)
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

    /// The ranks that have a part of any array, ascending, and how many bytes each has.
    pub fn ranks(&self) -> Result<Vec<(u64, u64)>> {
        let (mut ranks, mut parts) = (BTreeMap::new(), 0_u64);
        for array in &self.arrays {
            let distribution = array.distribution()?;
            array.check_bytes(distribution.elems())?;
            let size = distribution.grid().size();
            parts = parts.saturating_add(size);
            let of_one = self.format != Format::Safetensors;
            if size > self.files.len() as u64 || of_one && size != self.files.len() as u64 {
                return Err(wrong(&format!(
                    "lists {}, but its layout{} has {}; there must be one for each",
                    counted(self.files.len(), "file"),
                    if of_one { String::new() } else { format!(" of {}", called(&array.name)) },
                    counted(size, "rank")
                )));
            }
            check_parts([parts])?;
            for rank in distribution.grid().sorted_ranks() {
                let bytes = array.check_bytes(distribution.local_elems(rank)?)?;
                let all: &mut u64 = ranks.entry(rank).or_default();
                *all = all.saturating_add(bytes);
            }
        }
        Ok(ranks.into_iter().collect())
    }

    /// All that must fit together.
    fn check(&self) -> Result<()> {
        if !self.block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&self.block_bytes) {
            return Err(wrong(&format!(
                "has blocks of {} bytes; a power of two from 4096 to 2^30 is expected",
                self.block_bytes
            )));
        }
        self.check_arrays()?;
        let ranks = self.ranks()?;
        if ranks.len() != self.files.len() {
            return Err(wrong(&format!(
                "lists {}, but its layouts have {}; there must be one for each",
                counted(self.files.len(), "file"),
                counted(ranks.len(), "rank")
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
        for (file, (_, data_bytes)) in self.files.iter().zip(ranks) {
            self.check_length(file, data_bytes)?;
            // Copies of replicated elements count, too.
            total = total.saturating_add(file.bytes);
        }
        if total > MAX_LEN {
            return Err(wrong("lists files of more than 2^62 bytes in all, the most that are possible"));
        }
        self.arrays.iter().try_for_each(ManifestArray::check_made)
    }

    /// Arrays have names in files of tensors, and there only.
    fn check_arrays(&self) -> Result<()> {
        if self.format != Format::Safetensors {
            return match &self.arrays[..] {
                [array] if array.name.is_empty() && !array.shape.is_empty() => Ok(()),
                [array] if array.name.is_empty() => Err(wrong("has an array without dimensions")),
                _ => Err(wrong(
                    "must have one array, without a name, unless its files are of the format safetensors",
                )),
            };
        }
        if self.arrays.is_empty() {
            return Err(wrong("has no arrays"));
        }
        let mut names = HashSet::new();
        for array in &self.arrays {
            if array.name == METADATA || !names.insert(&array.name) {
                return Err(wrong(&format!("has {} twice, or one called {METADATA}", called(&array.name))));
            }
            if array.order != MemoryOrder::RowMajor {
                return Err(wrong(&format!(
                    "says that {} is in Fortran order; in safetensors files all are in C order",
                    called(&array.name)
                )));
            }
            safetensors_name(array.element)?;
        }
        Ok(())
    }

    fn check_length(&self, file: &ShardFile, data_bytes: u64) -> Result<()> {
        let headers = self.format.header_bytes();
        let name = shown(&file.name);
        let lengths = data_bytes.saturating_add(*headers.start())..=data_bytes.saturating_add(*headers.end());
        if !lengths.contains(&file.bytes) {
            return Err(wrong(&format!(
                "says that the file '{name}' has {} bytes; its part has {data_bytes}{}",
                file.bytes,
                if self.format == Format::Raw { "" } else { ", and a header is short" }
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
}

impl ManifestArray {
    /// Which rank has which elements.
    pub fn distribution(&self) -> Result<Distribution> {
        self.layout.over(if self.shape.is_empty() { &[1] } else { &self.shape })
    }

    /// Which rank has which elements, and where in its part, in elements from the first one on.
    pub fn layout(&self) -> Result<Layout> {
        Ok(Layout::new(self.distribution()?, self.order))
    }

    /// Checks the header of a file, in which must be the part of a rank of the array: type, shape and order. `layout` is that of the array, which
    /// is worked out once for all files.
    pub fn check_npy(&self, layout: &Layout, rank: u64, file: &ShardFile, npy: &Npy) -> Result<()> {
        let wrong = |what: &str, found: &str, expected: &str| {
            let name = shown(&file.name);
            Err(Error::new(
                ErrorKind::Mismatch,
                format!("the file '{name}' has the {what} {found}, but its manifest says {expected}"),
            ))
        };
        let shape = layout.distribution().local_shape(rank)?;
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

/// Fails if arrays with so many ranks each have too many parts in all.
pub(crate) fn check_parts(sizes: impl IntoIterator<Item = u64>) -> Result<()> {
    let parts = sizes.into_iter().fold(0, u64::saturating_add);
    match parts <= MAX_PARTS {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::TooLarge,
            format!("the set would have {parts} parts on all its ranks; at most {MAX_PARTS} are possible"),
        )),
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
