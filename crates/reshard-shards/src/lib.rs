//! Shard sets: a distributed array, or the tensors of a model, as a directory with one file for each rank and a manifest, `reshard.json`, that
//! says what they are.
//!
//! [`ShardSet::open`] opens one, [`convert`] writes it anew under another layout, in as much memory as one gives it, and
//! [`ShardSet::verify`] checks every byte. A new set is absent or complete, whatever happens while it is written.
//!
//! ```
//! use reshard_shards::{ConvertOptions, Format, ShardSet, convert, make};
//! # let folder = std::env::temp_dir().join(format!("reshard-shards-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # let (old, new) = (folder.join("old"), folder.join("new"));
//! make(&old, &"4x4/8x8 of 100x120".parse()?, "f64".parse()?, Format::Npy, 0, |_, _| {})?; // a set to try things with
//! convert(&ShardSet::open(&old)?, &new, &"3x3/10x10 of 100x120".parse()?, &ConvertOptions::default(), |_, _| {})?;
//! assert_eq!(ShardSet::open(&new)?.verify(|_, _| {})?.elements, 12_000);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), reshard::Error>(())
//! ```
//!
//! The formats are here for themselves, too: the headers of `.npy` ([`Npy`]) and safetensors files ([`Tensors`]), the manifest
//! ([`Manifest`]) and its checksums ([`Sums`]), names of files ([`NamePattern`]) and how they are opened ([`Directory`]). Whatever is
//! read may come from a stranger: every claim is checked before anything is believed or allocated, and what is refused is refused with
//! one sentence.

#![forbid(unsafe_code)]

mod access;
mod array;
mod blocks;
mod boxes;
mod checked;
mod checksum;
#[cfg(feature = "mpi")]
pub mod collective;
mod confined;
mod contents;
mod convert;
mod create;
mod doubts;
mod element;
mod expect;
mod few;
#[doc(hidden)]
pub mod fuzzing;
mod import;
mod import_tensors;
mod journal;
mod layouts;
mod load;
mod made;
mod manifest;
mod names;
mod npy;
mod one_array;
mod options;
mod output;
mod parallel;
mod processes;
mod region;
mod resumed;
mod save;
mod selection;
mod set;
mod slab;
mod staging;
mod tensors;
mod verify;

pub use array::Array;
pub use checksum::{Digest, Sums, crc32c};
pub use confined::Directory;
pub use convert::{convert, convert_arrays, outlook};
pub use create::make;
pub use doubts::name_in_layers;
pub use element::{element_from_npy, element_from_safetensors, npy_descr, safetensors_name, same_in_npy};
pub use expect::Expected;
pub use import::Import;
pub use layouts::Layouts;
pub use load::Loaded;
pub use manifest::{Format, MANIFEST_NAME, Made, Manifest, ManifestArray, ShardFile, check_name};
pub use names::NamePattern;
pub use npy::Npy;
pub use options::{ConvertOptions, Converted};
pub use save::{save, save_bytes};
pub use set::ShardSet;
pub use tensors::{Tensor, Tensors};
pub use verify::Verified;
