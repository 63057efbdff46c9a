//! The header of a safetensors file: which tensors it has, of which types and shapes, and where.
//!
//! The crate `safetensors` checks a header only with the whole file in memory, and takes the last of two tensors of one name; here the
//! first bytes and the length of the file suffice, and everything must be said once. A file is eight bytes with the length of the
//! header, the header (JSON, perhaps with spaces after it), and the tensors one after the other without gaps.

use crate::element::{array_bytes, element_from_safetensors, safetensors_name, shown};
use crate::few::few;
use reshard::axis::MAX_LEN;
use reshard::{ElementType, Error, ErrorKind, Result};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// The longest header, as in the format.
pub(crate) const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of the length in front.
pub(crate) const LENGTH_BYTES: usize = 8;
/// The key of words about the file.
pub(crate) const METADATA: &str = "__metadata__";

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// Type of its elements.
    pub element: ElementType,
    /// Its shape; the last index runs fastest.
    pub shape: Vec<u64>,
    /// Where it begins, from the first byte of the file on.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
}

/// What the header of a safetensors file says.
///
/// ```
/// use reshard_shards::Tensors;
/// let tensors = Tensors::new(vec![("w".into(), "bf16".parse()?, vec![2, 3])], Default::default())?;
/// let header = tensors.write()?;
/// assert_eq!(tensors.file_bytes(), header.len() as u64 + 12);
/// assert_eq!(Tensors::read(&header, tensors.file_bytes())?, tensors);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensors {
    tensors: Vec<Tensor>,
    metadata: BTreeMap<String, String>,
    data_start: u64,
}

impl Tensors {
    /// A file with these tensors (name, type, shape) and words about it. Larger elements come first, so that all are aligned.
    pub fn new(
        mut wanted: Vec<(String, ElementType, Vec<u64>)>,
        metadata: BTreeMap<String, String>,
    ) -> Result<Self> {
        wanted.sort_by(|one, other| (other.1.bytes(), &one.0).cmp(&(one.1.bytes(), &other.0)));
        let mut names = HashSet::new();
        let mut tensors = Vec::new();
        let mut start = 0;
        for (name, element, shape) in &wanted {
            if name == METADATA || !names.insert(name) {
                return Err(wrong(&format!(
                    "was to have the tensor '{}' twice, or one called {METADATA}",
                    shown(name)
                )));
            }
            safetensors_name(*element)?;
            let bytes = bytes_of(name, *element, shape)?;
            tensors.push(Tensor {
                name: name.clone(),
                element: *element,
                shape: shape.clone(),
                start,
                bytes,
            });
            start = end_of(start, bytes)?;
        }
        let mut all = Self { tensors, metadata, data_start: 0 };
        let header_bytes = all.write()?.len() as u64;
        end_of(start, header_bytes)?;
        all.data_start = header_bytes;
        all.tensors.iter_mut().for_each(|tensor| tensor.start += header_bytes);
        Ok(all)
    }

    /// The tensors, in the order in which they are in the file.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Words about the file, by key.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Bytes before the first tensor.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.tensors.last().map_or(self.data_start, |last| last.start + last.bytes)
    }

    /// How many bytes from the first one on [`Tensors::read`] needs, as the first eight say; checked against the length of the file.
    pub fn header_bytes(first: &[u8], file_bytes: u64) -> Result<u64> {
        let Some(length) = first.first_chunk::<LENGTH_BYTES>() else {
            return Err(wrong("is cut off: the file has not even 8 bytes"));
        };
        let length = u64::from_le_bytes(*length);
        if length > MAX_HEADER_BYTES {
            return Err(wrong(&format!(
                "claims to have {length} bytes; at most {MAX_HEADER_BYTES} are possible, so this may be no safetensors file"
            )));
        }
        let bytes = length + LENGTH_BYTES as u64;
        if bytes > file_bytes {
            return Err(wrong(&format!("claims to have {length} bytes, but the file has {file_bytes}")));
        }
        Ok(bytes)
    }

    /// Reads a header from the first bytes of a file. The tensors must fill the rest of it exactly.
    pub fn read(first: &[u8], file_bytes: u64) -> Result<Self> {
        let data_start = Self::header_bytes(first, file_bytes)?;
        let header = usize::try_from(data_start).ok().and_then(|end| first.get(LENGTH_BYTES..end));
        let Some(header) = header else { return Err(wrong("is cut off: more of the file must be read")) };
        if header.first() != Some(&b'{') {
            return Err(wrong("does not begin with '{': this is no safetensors file"));
        }
        let HeaderForm { tensors, metadata } = serde_json::from_slice(header)
            .map_err(|error| wrong(&format!("cannot be read: {}", shown(&error.to_string()))))?;
        let mut tensors = tensors
            .into_iter()
            .map(|(name, form)| form.tensor(name, data_start))
            .collect::<Result<Vec<_>>>()?;
        // Empty ones come before those that begin at the same place.
        tensors.sort_by(|one, other| {
            (one.start, one.bytes, &one.name).cmp(&(other.start, other.bytes, &other.name))
        });
        let mut end = data_start;
        for tensor in &tensors {
            if tensor.start != end {
                let what = if tensor.start < end { "overlaps another" } else { "has a gap before it" };
                return Err(wrong(&format!(
                    "says that the tensor '{}' begins at byte {}, where it {what}; {end} is expected",
                    shown(&tensor.name),
                    tensor.start
                )));
            }
            end = end_of(end, tensor.bytes)?;
        }
        if end != file_bytes {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the safetensors file has {file_bytes} bytes, but header and tensors make {end}; it is {}",
                    if file_bytes < end { "cut off" } else { "longer than it says, which is not accepted" }
                ),
            ));
        }
        Ok(Self { tensors, metadata, data_start })
    }

    /// The header, padded with spaces to a multiple of 8.
    pub fn write(&self) -> Result<Vec<u8>> {
        let mut text = String::from("{");
        if !self.metadata.is_empty() {
            text.push_str(&format!("{}:{}", json(&METADATA)?, json(&self.metadata)?));
        }
        for Tensor { name, element, shape, start, bytes } in &self.tensors {
            let start = start - self.data_start;
            let form = TensorForm {
                dtype: safetensors_name(*element)?.into(),
                shape: shape.clone(),
                data_offsets: [start, start + bytes],
            };
            let comma = if text.len() > 1 { "," } else { "" };
            text.push_str(&format!("{comma}{}:{}", json(name)?, json(&form)?));
        }
        text.push('}');
        text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
        if text.len() as u64 > MAX_HEADER_BYTES {
            return Err(wrong(&format!(
                "would have {} bytes; at most {MAX_HEADER_BYTES} are possible",
                text.len()
            )));
        }
        Ok([&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorForm {
    dtype: String,
    #[serde(deserialize_with = "few")]
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl TensorForm {
    fn tensor(self, name: String, data_start: u64) -> Result<Tensor> {
        let element = element_from_safetensors(&self.dtype)?;
        let bytes = bytes_of(&name, element, &self.shape)?;
        let [start, end] = self.data_offsets;
        if end.checked_sub(start) != Some(bytes) {
            return Err(wrong(&format!(
                "says that the tensor '{}' is at bytes {start} to {end}; its shape and type make {bytes} bytes",
                shown(&name)
            )));
        }
        Ok(Tensor { name, element, shape: self.shape, start: end_of(start, data_start)?, bytes })
    }
}

/// A header as it is read: every key once.
struct HeaderForm {
    tensors: Vec<(String, TensorForm)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for HeaderForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = HeaderForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<HeaderForm, A::Error> {
                let mut form = HeaderForm { tensors: Vec::new(), metadata: BTreeMap::new() };
                let mut seen = HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if !seen.insert(key.clone()) {
                        return Err(A::Error::custom("a name is there twice"));
                    }
                    if key == METADATA {
                        form.metadata = map.next_value::<Words>()?.0;
                    } else {
                        form.tensors.push((key, map.next_value()?));
                    }
                }
                Ok(form)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// Words by key, every key once.
struct Words(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("texts by key")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Words, A::Error> {
                let mut words = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if words.insert(key, value).is_some() {
                        return Err(A::Error::custom("a key is there twice"));
                    }
                }
                Ok(Words(words))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Mismatch, format!("the safetensors header {why}"))
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| wrong(&format!("cannot be written: {error}")))
}

fn end_of(start: u64, bytes: u64) -> Result<u64> {
    start
        .checked_add(bytes)
        .filter(|&end| end <= MAX_LEN)
        .ok_or_else(|| Error::new(ErrorKind::TooLarge, "the safetensors header claims more than 2^62 bytes"))
}

fn bytes_of(name: &str, element: ElementType, shape: &[u64]) -> Result<u64> {
    array_bytes(element, shape).ok_or_else(|| {
        Error::new(
            ErrorKind::TooLarge,
            format!("the safetensors header claims more than 2^62 bytes for the tensor '{}'", shown(name)),
        )
    })
}

#[cfg(test)]
mod tests;
