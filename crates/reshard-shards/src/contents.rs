//! What the files of a new set hold: their headers, and where in which file each part of which array is. Files of tensors have the parts of
//! all arrays that their rank has any of.

use crate::array::{Array, Part};
use crate::element::safetensors_name;
use crate::manifest::{Format, check_parts};
use crate::npy::Npy;
use crate::tensors::Tensors;
use reshard::{ElementType, Error, ErrorKind, Layout, MemoryOrder, Result};
use std::collections::{BTreeMap, HashMap};

/// The name of the only array of a set where it had none and needs one.
pub const ONLY_NAME: &str = "array";

/// The array of a set that has one alone, with the name that it needs.
pub fn only(format: Format, layout: &Layout, element: ElementType) -> Array {
    let mut array = Array::new(layout.clone(), element);
    if format == Format::Safetensors {
        array.name = ONLY_NAME.into();
    }
    array
}

/// What the file of a rank holds.
pub struct Contents {
    pub rank: u64,
    pub header: Vec<u8>,
    /// The whole file.
    pub bytes: u64,
}

/// What the files hold, by ascending rank, with some words about them; the arrays are told where their parts are.
pub fn lay_out(
    format: Format,
    arrays: &mut [Array],
    words: &BTreeMap<String, String>,
) -> Result<Vec<Contents>> {
    // Refused before the ranks are listed, if they are too many.
    check_parts(arrays.iter().map(|array| array.layout.distribution().grid().size()))?;
    match (format, arrays) {
        (Format::Safetensors, arrays) => lay_out_tensors(arrays, words),
        (_, [array]) => lay_out_one(format, array),
        (_, arrays) => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "the set has {} arrays, and files of the format {} hold one; write safetensors files",
                arrays.len(),
                format.name()
            ),
        )),
    }
}

fn lay_out_one(format: Format, array: &mut Array) -> Result<Vec<Contents>> {
    let distribution = array.layout.distribution();
    let fortran = array.layout.order() == MemoryOrder::ColMajor;
    let (mut files, mut parts) = (Vec::new(), Vec::new());
    for rank in distribution.grid().sorted_ranks() {
        let header = match format {
            Format::Npy => Npy::new(array.element, fortran, array.part_shape(rank)?)?.write(),
            _ => Vec::new(),
        };
        parts.push(Part { rank, file: files.len(), start: header.len() as u64 });
        let bytes = header.len() as u64 + distribution.local_elems(rank)? * array.element.bytes();
        files.push(Contents { rank, header, bytes });
    }
    array.parts = parts;
    Ok(files)
}

fn lay_out_tensors(arrays: &mut [Array], words: &BTreeMap<String, String>) -> Result<Vec<Contents>> {
    let mut wanted: BTreeMap<u64, Vec<(String, ElementType, Vec<u64>)>> = BTreeMap::new();
    let mut numbers = HashMap::new();
    for (number, array) in arrays.iter_mut().enumerate() {
        if array.layout.order() != MemoryOrder::RowMajor {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{} was to be written with its first index running fastest, and in safetensors files the last one does; give memory=row",
                    array.called()
                ),
            ));
        }
        safetensors_name(array.element)?;
        array.check_number()?;
        array.parts.clear();
        numbers.insert(array.name.clone(), number);
        for rank in array.layout.distribution().grid().sorted_ranks() {
            let tensor = (array.name.clone(), array.element, array.part_shape(rank)?);
            wanted.entry(rank).or_default().push(tensor);
        }
    }
    let mut files = Vec::new();
    for (rank, wanted) in wanted {
        let tensors = Tensors::new(wanted, words.clone())?;
        for tensor in tensors.tensors() {
            if let Some(&number) = numbers.get(&tensor.name) {
                arrays[number].parts.push(Part { rank, file: files.len(), start: tensor.start });
            }
        }
        files.push(Contents { rank, header: tensors.write()?, bytes: tensors.file_bytes() });
    }
    Ok(files)
}
