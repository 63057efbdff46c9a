//! Relabels any problem: computes the cost of every destination position on every candidate, and solves the assignment exactly.
//!
//! Costs are counted in units of `positions + 1`, and a position that changes its rank costs 1 more. All changes
//! together are less than one unit, so the cheapest assignment is one with the fewest changes among the
//! cheapest, and a labelling that is already optimal comes back as it was.

use super::{Among, Labelling, Relabel, Volume};
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::memory;
use crate::problem::Problem;
use crate::traffic::Traffic;
use crate::transportation::{cheapest, too_costly};

/// The most positions of an assignment: a second as a rule, half a minute where most costs tie.
const MAX_POSITIONS: u64 = 4096;

/// The most cells of the matrix of positions and candidates: 256 MiB, twice that for costs past 64 bits.
const MAX_CELLS: u128 = 1 << 25;

/// The most pairs of a position and a source rank that are visited, counted for each candidate that has a cost of its own.
const MAX_PAIRS: u128 = 1 << 32;

/// The name of lists of candidates in errors.
const CANDIDATES: &str = "the ranks to choose from";

pub(super) fn find(request: &Relabel<'_>, given: &Grid) -> Result<Labelling> {
    let candidates = candidates(request, given)?;
    let ranks: Vec<u64> = given.ranks().collect();
    let max_weight = match request.cost {
        None => 1,
        Some(cost) => request
            .arrays
            .iter()
            .flat_map(|&(problem, _)| problem.from().grid().ranks())
            .flat_map(|from| candidates.iter().map(move |&to| cost(from, to)))
            .max()
            .unwrap_or(0),
    };
    let mut max_bytes = 0;
    for &rank in &ranks {
        max_bytes = max_bytes.max(request.arrays.iter().try_fold(0_u128, |sum, &(problem, bytes)| {
            let elems = u128::from(problem.to().local_elems(rank)?);
            elems.checked_mul(bytes.into()).and_then(|more| sum.checked_add(more)).ok_or_else(too_costly)
        })?);
    }
    let unit = ranks.len() as u128 + 1;
    let most = max_bytes.checked_mul(max_weight.max(1).into()).and_then(|cost| cost.checked_mul(unit));
    let most = most.and_then(|cost| cost.checked_add(1)).ok_or_else(too_costly)?;

    // After the check above no sum or product overflows.
    let mut fill = |position: usize, costs: &mut [u128]| -> Result<()> {
        costs.fill(0);
        // Costs without weights: all elements move, except those a candidate has already.
        let mut all = 0;
        for &(problem, bytes) in &request.arrays {
            for (from, elems) in received(problem, ranks[position])? {
                let volume = u128::from(elems) * u128::from(bytes);
                match (request.cost, candidates.binary_search(&from)) {
                    (Some(cost), _) => {
                        for (total, &to) in costs.iter_mut().zip(&candidates) {
                            *total += volume * u128::from(cost(from, to));
                        }
                    }
                    (None, Ok(own)) => {
                        all += volume;
                        costs[own] += volume;
                    }
                    (None, Err(_)) => all += volume,
                }
            }
        }
        if request.cost.is_none() {
            costs.iter_mut().for_each(|kept| *kept = all - *kept);
        }
        for (cost, &to) in costs.iter_mut().zip(&candidates) {
            *cost = *cost * unit + u128::from(to != ranks[position]);
        }
        Ok(())
    };
    let (supply, demand) = (vec![1; ranks.len()], memory::filled(1, candidates.len(), CANDIDATES)?);
    let mut labels = ranks.clone();
    for shipment in cheapest(&supply, &demand, most, &mut fill)? {
        labels[shipment.row] = candidates[shipment.column];
    }
    Ok(Labelling { before: weigh(request, &ranks, &ranks)?, after: weigh(request, &ranks, &labels)?, labels })
}

/// The ranks that may be chosen, ascending; an error if the work would be too much.
fn candidates(request: &Relabel<'_>, given: &Grid) -> Result<Vec<u64>> {
    let positions = u128::from(given.size());
    let sources: u128 =
        request.arrays.iter().map(|(problem, _)| u128::from(problem.from().grid().size())).sum();
    let most = positions + if request.among == Among::Both { sources } else { 0 };
    let each = if request.cost.is_some() { most } else { 1 };
    let work = positions.saturating_mul(sources).saturating_mul(each);
    if positions > MAX_POSITIONS.into() || positions * most > MAX_CELLS || work > MAX_PAIRS {
        return Err(Error::too_large(format!(
            "placing {positions} grid positions on up to {most} ranks by what {sources} ranks hold is too much for an \
             exact assignment, which takes {MAX_POSITIONS} positions and 2^25 places at most; only one-dimensional \
             block-cyclic layouts over whole periods, all source ranks being candidates, can be larger"
        )));
    }
    let mut ranks: Vec<u64> = memory::with_room(most as usize, CANDIDATES)?;
    ranks.extend(given.ranks());
    if request.among == Among::Both {
        ranks.extend(request.arrays.iter().flat_map(|(problem, _)| problem.from().grid().ranks()));
    }
    ranks.sort_unstable();
    ranks.dedup();
    Ok(ranks)
}

/// The elements that the position of this rank receives: (source rank, elements).
fn received(problem: &Problem, rank: u64) -> Result<impl Iterator<Item = (u64, u64)>> {
    let messages = Traffic::new(problem).received_by(rank)?;
    Ok(messages.into_iter().map(|message| (message.from, message.elems)))
}

/// The volume that stays and moves if the position that had rank `ranks[i]` gets `labels[i]`.
fn weigh(request: &Relabel<'_>, ranks: &[u64], labels: &[u64]) -> Result<Volume> {
    let mut volume = Volume::default();
    for (&rank, &label) in ranks.iter().zip(labels) {
        for &(problem, bytes) in &request.arrays {
            for (from, elems) in received(problem, rank)? {
                let (elems, bytes) = (u128::from(elems), u128::from(elems) * u128::from(bytes));
                if from == label {
                    volume.kept_elems += elems;
                    volume.kept_bytes += bytes;
                } else {
                    volume.moved_elems += elems;
                    volume.moved_bytes += bytes;
                }
                volume.cost += bytes * u128::from(request.cost_of(from, label));
            }
        }
    }
    Ok(volume)
}
