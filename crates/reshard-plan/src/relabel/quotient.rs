//! One block-cyclic dimension over whole periods: the best relabelling from the small graph of classes.
//!
//! All pairs of one class exchange equally much, and what a pair can be depends on the types of its ends alone
//! (see [`Quotient`]). Averaging any relabelling over the processes of a type keeps its
//! volume, so the best one is a transportation problem between types: `x` of the copies of a sender type keep
//! what they have for that receiver type, in the class with the longest messages between the two. Its size does
//! not depend on the number of processes; only writing the answer does. Senders of a group get their receivers in
//! order, so the answer is a formula once `x` is known.

use super::{Among, Labelling, Relabel, Volume};
use crate::classes::Classes;
use crate::error::Result;
use crate::grid::Grid;
use crate::memory;
use crate::quotient::Quotient;
use crate::transportation::cheapest;
use std::collections::HashSet;

/// The most ranks of a result.
const MAX_RANKS: u64 = 1 << 24;

/// The most classes, or pairs of types, of the quotient graph; with more it is not small.
const MAX_CLASSES: u128 = 1 << 22;

/// The best relabelling; `None` if the problem is of another kind.
pub(super) fn find(request: &Relabel<'_>, given: &Grid) -> Result<Option<Labelling>> {
    let [(problem, bytes)] = request.arrays[..] else { return Ok(None) };
    let source = problem.from().grid();
    if request.cost.is_some() || source.dims() != 1 || source.size().max(given.size()) > MAX_RANKS {
        return Ok(None);
    }
    let sides = problem.sides(0);
    let (Some(classes), Ok(Some(small))) = (Classes::new(&sides), Quotient::new(&sides)) else {
        return Ok(None);
    };
    let extent = u128::from(problem.elems());
    let pairs_of_types = u128::from(small.row_types()) * u128::from(small.column_types());
    if extent == 0 || extent % classes.period() != 0 || classes.count().max(pairs_of_types) > MAX_CLASSES {
        return Ok(None);
    }
    let sources_in =
        |grid: &Grid| source.size() <= grid.size() && source.ranks().all(|rank| grid.contains(rank));
    if request.among == Among::Destination && !sources_in(given) {
        return Ok(None);
    }

    let periods = extent / classes.period();
    let count = classes.count() as usize;
    let volumes = (0..count).map(|class| classes.volume(class as u128) * periods);
    let volumes: Vec<u128> = memory::listed(volumes, "the lengths of all classes")?;
    let kept = |labels: &[u64]| -> u128 {
        let pairs = labels.iter().zip(0..).filter_map(|(&label, receiver)| {
            // In one dimension the coordinate of a rank is its position.
            classes.class(source.coords(label)?[0], receiver)
        });
        pairs.map(|class| volumes[class as usize]).sum()
    };
    // The given ranks, their labels, and a hash set of those taken: at worst half full, with a byte for each slot.
    memory::check(u128::from(given.size()) * (8 + 16 + 8 + 4 * 9), "the ranks of the destination")?;
    let mut ranks: Vec<u64> = memory::with_room(given.size() as usize, "the ranks of the destination")?;
    ranks.extend(given.ranks());
    let volume = |labels: &[u64]| {
        let kept = kept(labels);
        Volume::plain(kept, extent - kept, bytes)
    };
    let before = volume(&ranks);
    let labels = complete(request, given, place(&small, &volumes, source, given)?);
    let after = volume(&labels);
    // Of equally good labellings, the given one.
    let found = if after.kept_bytes > before.kept_bytes {
        Labelling { labels, before, after }
    } else {
        Labelling { labels: ranks, before, after: before }
    };
    Ok(Some(found))
}

/// Assigns source ranks to destination positions so that most elements stay; `None` where no source rank helps.
fn place(small: &Quotient, volumes: &[u128], source: &Grid, given: &Grid) -> Result<Vec<Option<u64>>> {
    let (row_types, col_types) = (small.row_types() as usize, small.column_types() as usize);
    // The class with the longest messages between two types; of several, the first.
    let mut best: Vec<Option<usize>> =
        memory::filled(None, row_types * col_types, "the pairs of types of ranks")?;
    for (class, &volume) in volumes.iter().enumerate() {
        let best = &mut best[class % row_types * col_types + class % col_types];
        if best.is_none_or(|best| volumes[best] < volume) {
            *best = Some(class);
        }
    }
    let (rows, cols) = (vec![small.row_copies(); row_types], vec![small.column_copies(); col_types]);
    // The smaller side is shipped whole: a pair that keeps nothing costs no more than none.
    let by_rows = small.row_copies() * small.row_types() <= small.column_copies() * small.column_types();
    let class_at = |near: usize, far: usize| {
        let (row, col) = if by_rows { (near, far) } else { (far, near) };
        best[row * col_types + col]
    };
    let most = volumes.iter().copied().max().unwrap_or(0);
    let mut fill = |near: usize, costs: &mut [u128]| {
        for (far, cost) in costs.iter_mut().enumerate() {
            *cost = most - class_at(near, far).map_or(0, |class| volumes[class]);
        }
        Ok(())
    };
    let (supply, demand) = if by_rows { (&rows, &cols) } else { (&cols, &rows) };
    let shipments = cheapest(supply, demand, most, &mut fill)?;

    let mut labels = vec![None; given.size() as usize];
    let (mut row_used, mut col_used) = (vec![0; row_types], vec![0; col_types]);
    for shipment in shipments {
        let Some(class) = class_at(shipment.row, shipment.column) else { continue };
        let (row, col) = (class % row_types, class % col_types);
        for position in 0..small.positions() {
            for copy in 0..shipment.amount {
                let (sender, receiver) =
                    small.pair(class as u64, position, row_used[row] + copy, col_used[col] + copy);
                labels[receiver as usize] = source.rank_at(sender);
            }
        }
        row_used[row] += shipment.amount;
        col_used[col] += shipment.amount;
    }
    Ok(labels)
}

/// Gives each position without a label its own rank if that is free, and else the first free rank.
fn complete(request: &Relabel<'_>, given: &Grid, labels: Vec<Option<u64>>) -> Vec<u64> {
    let mut used: HashSet<u64> = labels.iter().flatten().copied().collect();
    let mut kept: Vec<Option<u64>> = labels;
    for (label, own) in kept.iter_mut().zip(given.ranks()) {
        if label.is_none() && used.insert(own) {
            *label = Some(own);
        }
    }
    let sources = request.arrays.iter().flat_map(|(problem, _)| problem.from().grid().ranks());
    let others = sources.filter(|_| request.among == Among::Both);
    let mut free = given.ranks().chain(others).filter(|rank| !used.contains(rank));
    // There are at least as many candidates as positions.
    kept.into_iter().map(|label| label.or_else(|| free.next()).expect("a free candidate")).collect()
}
