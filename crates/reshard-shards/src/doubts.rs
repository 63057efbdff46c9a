//! Rules that are probably wrong: a rule that no tensor needs, and a tensor that a catch-all cuts along the wrong axis.
//!
//! Files that a program wrote for each rank say the shapes of their parts, not along which axis the parts follow each other. A wrong axis
//! gives a whole of another shape, which looks like any other; but the shapes of a model repeat, and a wrong one stands alone.

use crate::array::Array;
use crate::element::shown;
use crate::layouts::Layouts;
use crate::set::ShardSet;
use reshard::axis::Deal;
use reshard::error::counted;
use reshard::notation::print_shape;
use std::collections::{BTreeMap, BTreeSet};

/// The name of a tensor with `*` for each number between dots: equal for the same tensor of other layers.
pub fn name_in_layers(name: &str) -> String {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    name.split('.').map(|word| if is_number(word) { "*" } else { word }).collect::<Vec<_>>().join(".")
}

impl Layouts {
    /// A sentence for each layout that is that of no tensor of the set.
    pub fn unused(&self, set: &ShardSet) -> Vec<String> {
        let arrays = set.arrays().iter().map(|array| (array.name(), array.layout().distribution().dims()));
        let unused = self.unused_rules(arrays).unwrap_or_default();
        unused.into_iter().map(|rule| format!("'{rule}' is the layout of no tensor")).collect()
    }

    /// A sentence for each tensor that a layout for all tensors probably cuts along the wrong axis: its whole has a shape that no
    /// tensor of another name has, and cut along another axis a shape that one of them has, or the transpose of it. The tensors are
    /// those of files without a manifest, imported with these layouts; the same tensor of other layers counts as one.
    pub fn doubts(&self, set: &ShardSet) -> Vec<String> {
        let mut names: BTreeMap<Vec<u64>, BTreeSet<String>> = BTreeMap::new();
        let mut layers: BTreeMap<(String, Vec<u64>), Vec<&Array>> = BTreeMap::new();
        for array in set.arrays() {
            let (name, shape) = (name_in_layers(array.name()), array.layout().distribution().shape());
            names.entry(shape.clone()).or_default().insert(name.clone());
            layers.entry((name, shape)).or_default().push(array);
        }
        let is_rare = |(name, shape): &&(String, Vec<u64>)| {
            let by_name = self.name_pattern(layers[&(name.clone(), shape.clone())][0].name(), shape.len());
            names[shape].len() == 1 && by_name.is_ok_and(|pattern| pattern.is_none())
        };
        let rare: Vec<&(String, Vec<u64>)> = layers.keys().filter(is_rare).collect();
        let mut doubts: BTreeMap<&str, String> = BTreeMap::new();
        for transposed in [false, true] {
            // A name in doubt already is no example for others.
            let found = rare.iter().filter(|(name, _)| !doubts.contains_key(&name[..])).filter_map(|&key| {
                let arrays = &layers[key];
                other_cuts(arrays[0]).into_iter().find_map(|cut| {
                    let mut shape = cut.shape.clone();
                    if transposed {
                        shape.reverse();
                    }
                    let mut others = names.get(&shape)?.iter();
                    let like = others.find(|like| **like != key.0 && !doubts.contains_key(&like[..]))?;
                    Some((&key.0[..], self.sentence(&key.0, arrays, &cut, like)))
                })
            });
            let found: Vec<(&str, String)> = found.collect();
            doubts.extend(found);
        }
        doubts.into_values().collect()
    }

    fn sentence(&self, name: &str, arrays: &[&Array], cut: &Cut, like: &str) -> String {
        let distribution = arrays[0].layout().distribution();
        let given = self.of(arrays[0].name(), distribution.dims()).map(|(pattern, _)| pattern.to_string());
        let count = match arrays.len() {
            1 => String::new(),
            count => format!(" ({})", counted(count, "tensor")),
        };
        let words: Vec<&str> = name.rsplitn(3, '.').collect();
        let form = if let [last, before, _] = words[..] { format!("*.{before}.{last}") } else { name.into() };
        let dims = 0..cut.shape.len();
        let deals: Vec<&str> =
            dims.clone().map(|axis| if axis == cut.axis { "block" } else { "*" }).collect();
        let grid: Vec<u64> = dims.map(|axis| if axis == cut.axis { cut.parts } else { 1 }).collect();
        format!(
            "'{}' is the layout of all tensors that are not named, and makes '{}'{count} {}, a shape that no other tensor has; cut along \
             dimension {} it is {}, a shape that '{}' has, perhaps transposed; if it is cut so, name it, as in '{}=({}) on {}'",
            given.unwrap_or_default(),
            shown_long(name),
            print_shape(&distribution.shape()),
            cut.axis,
            print_shape(&cut.shape),
            shown_long(like),
            shown_long(&form),
            deals.join(", "),
            print_shape(&grid),
        )
    }
}

/// The whole of an array whose parts follow each other along another axis.
struct Cut {
    axis: usize,
    parts: u64,
    shape: Vec<u64>,
}

/// The array cut along each other axis; nothing if it is cut along several axes, or into parts of unequal length.
fn other_cuts(array: &Array) -> Vec<Cut> {
    let distribution = array.layout().distribution();
    let (shape, pattern) = (distribution.shape(), distribution.pattern());
    let is_cut = |&axis: &usize| pattern.grid().extents()[axis] > 1 && pattern.deals()[axis] != Deal::Whole;
    let cut: Vec<usize> = (0..shape.len()).filter(is_cut).collect();
    let [cut] = cut[..] else { return Vec::new() };
    let parts = pattern.grid().extents()[cut];
    if shape[cut] == 0 || !shape[cut].is_multiple_of(parts) {
        return Vec::new();
    }
    let other = |axis: usize| {
        let mut shape = shape.clone();
        shape[cut] /= parts;
        shape[axis] = shape[axis].checked_mul(parts)?;
        Some(Cut { axis, parts, shape })
    };
    (0..shape.len()).filter(|&axis| axis != cut).filter_map(other).collect()
}

/// A name of a tensor; only one far longer than the names of models is cut.
fn shown_long(name: &str) -> String {
    const MAX_CHARS: usize = 80;
    match name.chars().nth(MAX_CHARS) {
        None => name.chars().flat_map(char::escape_debug).collect(),
        Some(_) => shown(name),
    }
}
