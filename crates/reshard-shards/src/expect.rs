//! The tensors that a set must have, with their types and whole shapes: the header of a safetensors file, or a list as JSON.
//!
//! The parts of a tensor fit together along any of its dimensions, so only somebody else can say which whole is right: the file that
//! a model was cut from, or its configuration.

use crate::element::{element_from_safetensors, shown};
use crate::few::few;
use crate::set::{ShardSet, read_tensors};
use reshard::notation::print_shape;
use reshard::{ElementType, Error, ErrorKind, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The longest list, as the longest header of a safetensors file.
const MAX_LIST_BYTES: u64 = 100_000_000;

/// Differences that an error names; the others are counted.
const NAMED_DIFFERENCES: usize = 3;

/// The tensors that a set must have: names, types and whole shapes.
///
/// ```
/// use reshard_shards::Expected;
/// let list = r#"[{"name": "up", "type": "bf16", "shape": [4, 6]}]"#;
/// assert_eq!(Expected::from_json(list.as_bytes())?.len(), 1);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub(crate) tensors: BTreeMap<String, (ElementType, Vec<u64>)>,
}

#[derive(Deserialize)]
struct ExpectedForm {
    name: String,
    #[serde(rename = "type", alias = "dtype")]
    element: String,
    #[serde(deserialize_with = "few")]
    shape: Vec<u64>,
}

/// A list of tensors, or what `reshard show --json` prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum ListForm {
    Tensors(Vec<ExpectedForm>),
    Set { tensors: Vec<ExpectedForm> },
}

impl Expected {
    /// Reads a file: the header of one whose name ends in `.safetensors`, else a list as JSON.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |kind, why: String| Error::new(kind, format!("{}: {why}", path.display()));
        let unread = |error: std::io::Error| failed(ErrorKind::External, format!("cannot be read: {error}"));
        let file = File::open(path).map_err(unread)?;
        let bytes = file.metadata().map_err(unread)?.len();
        let expected = if path.extension().is_some_and(|ending| ending == "safetensors") {
            read_tensors(&file, bytes).and_then(|(header, _)| {
                let tensors = header.tensors().iter();
                Self::new(tensors.map(|tensor| (tensor.name.clone(), tensor.element, tensor.shape.clone())))
            })
        } else {
            let mut list = Vec::new();
            file.take(MAX_LIST_BYTES + 1).read_to_end(&mut list).map_err(unread)?;
            Self::from_json(&list)
        };
        expected.map_err(|error| failed(error.kind(), error.to_string()))
    }

    /// A list as JSON: `[{"name": "up", "type": "bf16", "shape": [4, 6]}, ...]`, or the answer of `reshard show --json`. Types are our
    /// names or those of safetensors.
    pub fn from_json(list: &[u8]) -> Result<Self> {
        if list.len() as u64 > MAX_LIST_BYTES {
            return Err(wrong(&format!("has more than {MAX_LIST_BYTES} bytes")));
        }
        let form: ListForm = serde_json::from_slice(list).map_err(|_| {
            wrong(r#"is none; write [{"name": "up", "type": "bf16", "shape": [4, 6]}, ...], or name a file that ends in .safetensors"#)
        })?;
        let (ListForm::Tensors(tensors) | ListForm::Set { tensors }) = form;
        let tensor = |form: ExpectedForm| {
            let element = form.element.parse().or_else(|_| element_from_safetensors(&form.element))?;
            Ok((form.name, element, form.shape))
        };
        Self::new(tensors.into_iter().map(tensor).collect::<Result<Vec<_>>>()?)
    }

    fn new(tensors: impl IntoIterator<Item = (String, ElementType, Vec<u64>)>) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for (name, element, shape) in tensors {
            if let Some(before) = by_name.insert(name.clone(), (element, shape)) {
                let before = print_shape(&before.1);
                return Err(wrong(&format!("has the tensor '{}' twice, once as {before}", shown(&name))));
            }
        }
        Ok(Self { tensors: by_name })
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Fails unless a set has exactly these tensors, with these types and whole shapes.
    pub fn check(&self, set: &ShardSet) -> Result<()> {
        let mut differences = Vec::new();
        let words = |element: ElementType, shape: &[u64]| match shape {
            [] => format!("{element} without dimensions"),
            shape => format!("{element} {}", print_shape(shape)),
        };
        for array in set.arrays() {
            let shape = if array.scalar { Vec::new() } else { array.layout().distribution().shape() };
            let is = words(array.element(), &shape);
            match self.tensors.get(array.name()) {
                Some((element, wanted)) if *element == array.element() && *wanted == shape => {}
                Some((element, wanted)) => {
                    differences.push(format!("{} is {is}, not {}", array.called(), words(*element, wanted)));
                }
                None => differences.push(format!("{} is {is}, and is not expected", array.called())),
            }
        }
        for name in self.tensors.keys().filter(|name| set.array(name).is_err()) {
            differences.push(format!("the tensor '{}' is missing", shown(name)));
        }
        if differences.is_empty() {
            return Ok(());
        }
        let more = match differences.len().saturating_sub(NAMED_DIFFERENCES) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        differences.truncate(NAMED_DIFFERENCES);
        Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "the source is not what is expected: {}{more}; give each tensor the layout under which it was written",
                differences.join("; ")
            ),
        ))
    }
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Mismatch, format!("the list of expected tensors {why}"))
}
