//! The arrays of files of tensors without a manifest: each tensor that any file has, under the layout that the user gives it. Which shape the
//! whole has follows from its parts, and all that is said twice must agree.

use crate::array::Array;
use crate::element::called;
use crate::layouts::Layouts;
use crate::set::{Shard, check_ranks, find_tensors, shape_words};
use crate::tensors::{Tensor, Tensors};
use reshard::axis::Deal;
use reshard::distribution::Pattern;
use reshard::error::counted;
use reshard::grid::{Grid, MAX_DIMS};
use reshard::{Error, ErrorKind, Layout, MemoryOrder, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The tensors of some files, with their parts. Without layouts there is one file, which has all of each.
pub fn tensors_of(
    path: &Path,
    shards: &[Shard],
    headers: &[Tensors],
    layouts: &Layouts,
) -> Result<Vec<Array>> {
    let mut by_name: BTreeMap<&str, Vec<(&Shard, &Tensor)>> = BTreeMap::new();
    for (shard, header) in shards.iter().zip(headers) {
        for tensor in header.tensors() {
            by_name.entry(&tensor.name).or_default().push((shard, tensor));
        }
    }
    if by_name.is_empty() {
        let name = shards.first().map_or("", |shard| &shard.name[..]);
        return Err(Error::new(ErrorKind::Mismatch, format!("{} has no tensors", path.join(name).display())));
    }
    let mut arrays = by_name
        .iter()
        .map(|(name, parts)| array(path, shards, name, parts, layouts))
        .collect::<Result<Vec<Array>>>()?;
    if !layouts.is_empty() {
        layouts.check_used(arrays.iter().map(|array| (array.name(), array.layout.distribution().dims())))?;
    }
    find_tensors(path, shards, headers, &mut arrays)?;
    arrays.sort_by(|one, other| one.place().cmp(&other.place()));
    Ok(arrays)
}

/// A tensor without its parts: its layout, and what they say of it.
fn array(
    path: &Path,
    shards: &[Shard],
    name: &str,
    parts: &[(&Shard, &Tensor)],
    layouts: &Layouts,
) -> Result<Array> {
    let wrong = |shard: &Shard, why: String| {
        Error::new(ErrorKind::Mismatch, format!("{} {why}", path.join(&shard.name).display()))
    };
    let (first_shard, first) = parts[0];
    let scalar = first.shape.is_empty();
    let dims = first.shape.len().max(1);
    if dims > MAX_DIMS {
        return Err(wrong(
            first_shard,
            format!(
                "has {} with {dims} dimensions, and arrays of up to {MAX_DIMS} are read; reshape it",
                called(name)
            ),
        ));
    }
    let whole;
    let pattern = if layouts.is_empty() {
        whole = Pattern::new(Grid::new(&vec![1; dims])?, vec![Deal::Whole; dims], vec![0; dims])?;
        &whole
    } else {
        let (pattern, order) = layouts.of(name, dims)?;
        if order == Some(MemoryOrder::ColMajor) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "memory=col was given for {}, and in safetensors files the last index runs fastest",
                    called(name)
                ),
            ));
        }
        pattern
    };
    if pattern.grid().dims() != dims {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "{} has {}, and its layout {pattern} has {}",
                called(name),
                counted(dims, "dimension"),
                pattern.grid().dims()
            ),
        ));
    }
    check_ranks(path, shards, name, pattern.grid(), parts.iter().map(|(shard, _)| shard.rank))?;
    let mut shapes = Vec::with_capacity(parts.len());
    for (shard, tensor) in parts {
        if tensor.shape.len() != first.shape.len() || tensor.element != first.element {
            return Err(wrong(
                shard,
                format!(
                    "has {} with the shape {} and the type {}, and {} has it with {} and {}",
                    called(name),
                    shape_words(&tensor.shape),
                    tensor.element,
                    path.join(&first_shard.name).display(),
                    shape_words(&first.shape),
                    first.element
                ),
            ));
        }
        shapes.push((shard.rank, if scalar { &[1][..] } else { &tensor.shape }));
    }
    let shape = if scalar { vec![1] } else { shape_of(pattern, &shapes)? };
    let distribution = pattern.over(&shape).map_err(|error| {
        Error::new(error.kind(), format!("the layout of {} does not fit its parts: {error}", called(name)))
    })?;
    let mut array = Array::new(Layout::new(distribution, MemoryOrder::RowMajor), first.element);
    (array.name, array.scalar) = (name.to_string(), scalar);
    array.check_number()?;
    Ok(array)
}

/// The shape of an array by those of its parts, which have as many dimensions as its layout.
pub fn shape_of(pattern: &Pattern, parts: &[(u64, &[u64])]) -> Result<Vec<u64>> {
    let grid = pattern.grid();
    let mut lengths: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); grid.dims()];
    for (rank, shape) in parts {
        let coords = grid.coords(*rank).unwrap_or_default();
        for ((lengths, coord), &length) in lengths.iter_mut().zip(coords).zip(*shape) {
            lengths.entry(coord).or_insert(length);
        }
    }
    let sum = |(lengths, deal): (&BTreeMap<u64, u64>, &Deal)| {
        // Every process has the whole of a dimension that is not distributed.
        let distinct = if *deal == Deal::Whole { 1 } else { lengths.len() };
        lengths.values().take(distinct).try_fold(0_u64, |sum, &length| sum.checked_add(length))
    };
    let shape: Option<Vec<u64>> = lengths.iter().zip(pattern.deals()).map(sum).collect();
    shape.ok_or_else(|| Error::new(ErrorKind::TooLarge, "the files claim an array longer than 2^64 elements"))
}
