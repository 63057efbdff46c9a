//! The text of a manifest: JSON for people and programs, one line for each file, with a checksum of its own bytes in the last line.
//!
//! ```text
//! {
//!   "version": 1,
//!   "shape": [6],
//!   "element": "f64",
//!   "layout": "2/3",
//!   "order": "Fortran",
//!   "format": "npy",
//!   "block_bytes": 1048576,
//!   "made": {"seed":7,"axes":[0]},                    left out where nothing is known of the elements
//!   "files": [
//!     {"name":"rank_0000.npy","bytes":152,"blake3":"...","crc32c":"0123abcd..."},
//!     {"name":"rank_0001.npy","bytes":152,"blake3":"...","crc32c":"0123abcd..."}
//!   ],
//!   "checksum": "..."
//! }
//! ```
//!
//! Of files with tensors the version is 2, and in the place of shape, element, layout, order and made is a list with a line for each array:
//!
//! ```text
//!   "arrays": [
//!     {"name":"up.weight","shape":[8,6],"element":"bf16","layout":"2x1/4x6","order":"C"},
//!     {"name":"norm.weight","shape":[6],"element":"bf16","layout":"(*) on 2","order":"C"}
//!   ],
//! ```
//!
//! `crc32c` has eight digits for each block; a set that was written without checksums has no `blake3` and an empty `crc32c`. The checksum is BLAKE3 of all bytes before its first digit, and what follows its last one
//! is fixed, so no bit can change unnoticed: `head -c -68 reshard.json | b3sum` prints it. Digits are lower case. The first line is
//! fixed up to the version, so that later versions may have another checksum and still be told from damaged files.

use super::{Format, Made, Manifest, ManifestArray, ShardFile};
use crate::checksum::{Digest, hex_value};
use crate::element::{called, shown};
use crate::few::few;
use reshard::error::counted;
use reshard::{ElementType, Error, ErrorKind, MemoryOrder, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Write;

const BEGIN: &str = "{\n  \"version\": ";
const CHECKSUM: &[u8] = b"\n  \"checksum\": \"";
const END: &[u8] = b"\"\n}\n";
const DIGITS: usize = 64;

/// The longest layout: half a million ranks listed one by one are shorter.
const MAX_LAYOUT_BYTES: usize = 4 << 20;

/// Version 1: one array.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneForm {
    version: u64,
    #[serde(deserialize_with = "few")]
    shape: Vec<u64>,
    element: ElementType,
    layout: String,
    order: OrderForm,
    format: Format,
    block_bytes: u64,
    #[serde(default)]
    made: Option<Made>,
    files: Vec<FileForm>,
    checksum: Digest,
}

/// Version 2: arrays with names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManyForm {
    version: u64,
    format: Format,
    block_bytes: u64,
    arrays: Vec<ArrayForm>,
    files: Vec<FileForm>,
    checksum: Digest,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayForm {
    name: String,
    #[serde(deserialize_with = "few")]
    shape: Vec<u64>,
    element: ElementType,
    layout: String,
    order: OrderForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<Made>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum OrderForm {
    C,
    Fortran,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    name: String,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blake3: Option<Digest>,
    #[serde(serialize_with = "write_crcs", deserialize_with = "read_crcs")]
    crc32c: Vec<u32>,
}

pub fn order_name(order: MemoryOrder) -> &'static str {
    match order {
        MemoryOrder::RowMajor => "C",
        MemoryOrder::ColMajor => "Fortran",
    }
}

fn write_crcs<S: Serializer>(crcs: &[u32], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut text = String::with_capacity(8 * crcs.len());
    for crc in crcs {
        write!(text, "{crc:08x}").map_err(serde::ser::Error::custom)?;
    }
    serializer.serialize_str(&text)
}

fn read_crcs<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let (crcs, []) = text.as_bytes().as_chunks::<8>() else {
        return Err(D::Error::custom("CRCs have eight digits each, and the text of some has another length"));
    };
    let value = |digits: &[u8; 8]| {
        digits.iter().try_fold(0_u32, |value, &digit| Some(value << 4 | u32::from(hex_value(digit)?)))
    };
    crcs.iter()
        .map(value)
        .collect::<Option<_>>()
        .ok_or_else(|| D::Error::custom("CRCs have lower-case hexadecimal digits, and some have others"))
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Mismatch, format!("the manifest {why}"))
}

/// The version, from the first line alone.
fn version(text: &[u8]) -> Result<u64> {
    let digits = text.strip_prefix(BEGIN.as_bytes()).unwrap_or_default();
    let length = digits.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&digits[..length]).ok().and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| wrong("does not begin as one does: it is none, or damaged"))
}

/// The checksum at the end, if it fits.
pub fn checksum(text: &[u8]) -> Result<Digest> {
    let digits = text.strip_suffix(END).and_then(|rest| rest.split_last_chunk::<DIGITS>());
    let Some((before, digits)) = digits.filter(|(before, _)| before.ends_with(CHECKSUM)) else {
        return Err(wrong("does not end with a checksum: it is cut off or damaged"));
    };
    let found = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<Digest>().ok());
    match found {
        Some(found) if found == Digest::of(before) => Ok(found),
        _ => Err(wrong(
            "is damaged or was changed: its checksum does not fit; take it from where the set was written",
        )),
    }
}

pub fn read(text: &[u8]) -> Result<Manifest> {
    if text.len() as u64 > Manifest::MAX_BYTES {
        return Err(too_long(text.len() as u64));
    }
    let version = version(text)?;
    if version > Manifest::VERSION {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the manifest has version {version}; this version of reshard reads {}: take a newer one",
                Manifest::VERSION
            ),
        ));
    }
    let checksum = checksum(text)?;
    let (said, format, block_bytes, arrays, files) = if version < Manifest::VERSION {
        let form: OneForm = parsed(text)?;
        let OneForm { shape, element, layout, order, format, made, .. } = form;
        let array = ArrayForm { name: String::new(), shape, element, layout, order, made };
        ((form.version, form.checksum), format, form.block_bytes, vec![array], form.files)
    } else {
        let form: ManyForm = parsed(text)?;
        ((form.version, form.checksum), form.format, form.block_bytes, form.arrays, form.files)
    };
    if said != (version, checksum) || version == 0 {
        return Err(wrong("says its version or its checksum twice, or has version 0; it is none of ours"));
    }
    if (version == Manifest::VERSION) != (format == Format::Safetensors) {
        return Err(wrong(&format!(
            "has version {version} and the format {}; it is none of ours",
            format.name()
        )));
    }
    let file = |FileForm { name, bytes, blake3, crc32c }| ShardFile { name, bytes, blake3, crc32c };
    Ok(Manifest {
        arrays: arrays.into_iter().map(ArrayForm::array).collect::<Result<_>>()?,
        format,
        block_bytes,
        files: files.into_iter().map(file).collect(),
    })
}

fn parsed<'t, T: Deserialize<'t>>(text: &'t [u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| wrong(&format!("cannot be read: {}", shortened(&error.to_string()))))
}

impl ArrayForm {
    fn of(array: &ManifestArray) -> Self {
        let order = match array.order {
            MemoryOrder::RowMajor => OrderForm::C,
            MemoryOrder::ColMajor => OrderForm::Fortran,
        };
        let ManifestArray { name, shape, element, layout, made, .. } = array.clone();
        Self { name, shape, element, layout: layout.to_string(), order, made }
    }

    fn array(self) -> Result<ManifestArray> {
        let Self { name, shape, element, layout, order, made } = self;
        if layout.len() > MAX_LAYOUT_BYTES {
            return Err(wrong(&format!(
                "has a layout of {}; it is none of ours",
                counted(layout.len(), "byte")
            )));
        }
        let layout = layout.parse().map_err(|error: Error| {
            let of = if name.is_empty() { String::new() } else { format!(" for {}", called(&name)) };
            Error::new(error.kind(), format!("the layout of the manifest{of} cannot be read: {error}"))
        })?;
        let order = match order {
            OrderForm::C => MemoryOrder::RowMajor,
            OrderForm::Fortran => MemoryOrder::ColMajor,
        };
        Ok(ManifestArray { name, shape, element, layout, order, made })
    }
}

/// An error of the JSON reader may repeat a long text of a stranger.
fn shortened(sentence: &str) -> String {
    match sentence.rfind(" at line ") {
        Some(at) => format!("{}{}", shown(&sentence[..at]), shown(&sentence[at..])),
        None => shown(sentence),
    }
}

fn too_long(bytes: u64) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "the manifest has {bytes} bytes; at most {} are read, which is enough for half a million ranks: take fewer ranks, or \
             larger blocks of CRCs",
            Manifest::MAX_BYTES
        ),
    )
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| wrong(&format!("cannot be written: {error}")))
}

pub fn write(manifest: &Manifest) -> Result<Vec<u8>> {
    let version = if manifest.format == Format::Safetensors { Manifest::VERSION } else { 1 };
    let mut text = format!("{BEGIN}{version}");
    let mut line = |key: &str, value: &str| {
        text.push_str(",\n  \"");
        text.push_str(key);
        text.push_str("\": ");
        text.push_str(value);
    };
    let one = manifest.arrays.first().filter(|_| version == 1).map(ArrayForm::of);
    if let Some(array) = &one {
        line("shape", &json(&array.shape)?);
        line("element", &json(&array.element)?);
        line("layout", &json(&array.layout)?);
        line("order", &json(&array.order)?);
    }
    line("format", &json(&manifest.format)?);
    line("block_bytes", &json(&manifest.block_bytes)?);
    if let Some(made) = one.as_ref().and_then(|array| array.made.as_ref()) {
        line("made", &json(made)?);
    }
    if one.is_none() {
        let lines = manifest.arrays.iter().map(|array| json(&ArrayForm::of(array)));
        line("arrays", &format!("[\n    {}\n  ]", lines.collect::<Result<Vec<_>>>()?.join(",\n    ")));
    }
    line("files", "[");
    for (at, ShardFile { name, bytes, blake3, crc32c }) in manifest.files.iter().enumerate() {
        let form = FileForm { name: name.clone(), bytes: *bytes, blake3: *blake3, crc32c: crc32c.clone() };
        text.push_str(if at == 0 { "\n    " } else { ",\n    " });
        text.push_str(&json(&form)?);
    }
    let mut text = text.into_bytes();
    text.extend_from_slice(b"\n  ],");
    text.extend_from_slice(CHECKSUM);
    let digits = Digest::of(&text).to_string();
    text.extend_from_slice(digits.as_bytes());
    text.extend_from_slice(END);
    check_length(text.len() as u64)?;
    Ok(text)
}

/// Fails if a text of so many bytes would not be read.
pub fn check_length(bytes: u64) -> Result<()> {
    if bytes > Manifest::MAX_BYTES { Err(too_long(bytes)) } else { Ok(()) }
}

/// Bytes of the text once these files are listed, with checksums or without; `manifest` has none.
pub fn length<'f>(
    manifest: &Manifest,
    files: impl Iterator<Item = (&'f str, u64)>,
    checked: bool,
) -> Result<u64> {
    let mut length = write(manifest)?.len() as u64;
    let blake3 = checked.then(|| Digest::of(&[]));
    for (at, (name, bytes)) in files.enumerate() {
        let form = FileForm { name: name.into(), bytes, blake3, crc32c: Vec::new() };
        let blocks = if checked { bytes.div_ceil(manifest.block_bytes) } else { 0 };
        let between = if at == 0 { "\n    " } else { ",\n    " };
        let line = (between.len() + json(&form)?.len()) as u64 + 8 * blocks;
        length = length.saturating_add(line);
    }
    Ok(length)
}
