//! Algorithm 3 as the paper prints it, kept to show where it fails.
//!
//! A set of rules says, in each step, which process must send an item to which neighbour. The rules keep to one port and
//! end in the fewest steps, as the paper proves; but they ignore what a process holds, and can tell a process to send that
//! holds nothing: loads (1, 2, 3, 1) and imbalances (-3, 1, 2, 0) make process 3 send its only item in the first
//! step and another in the second. [`solve`](super::solve) does not use it. The last rules, which pass items on
//! through balanced processes, are applied until nothing changes: several such processes in a row need it.

use super::problem::{Direction, RingProblem, Side};
use super::program::Program;
use super::record::Record;
use reshard_plan::{Error, ErrorKind, Result};

/// The most slices visited over all steps: bounds the time of the algorithm.
const MAX_SLICES: u128 = 1_000_000_000;

/// The sends of one step: whether each process sends an item to the right, or to the left; at most one of both.
struct Orders {
    right: Vec<bool>,
    left: Vec<bool>,
}

/// Returns the program of Algorithm 3 as printed, or an error that names the process it makes send without an item.
///
/// ```
/// use reshard_ring::{RingProblem, paper_algorithm_3};
/// let ring = RingProblem::new(vec![2, 3, 4, 2], vec![5, 2, 2, 2])?;
/// assert_eq!(paper_algorithm_3(&ring)?.makespan(), 3);
/// let scarce = RingProblem::new(vec![1, 2, 3, 1], vec![4, 1, 1, 1])?;
/// let said = paper_algorithm_3(&scarce).unwrap_err().to_string();
/// assert!(said.contains("process 3 to send"), "{said}");
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn paper_algorithm_3(problem: &RingProblem) -> Result<Program> {
    if !problem.is_homogeneous() || problem.direction() == Direction::Uni || problem.is_ordered() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "Algorithm 3 is for rings with equal links in both directions whose items have no order",
        ));
    }
    let procs = problem.procs();
    let mut imbalance: Vec<i64> = (0..procs).map(|rank| problem.imbalance(rank)).collect();
    let work = (procs as u128).pow(2) * u128::from(bound(&imbalance));
    if work > MAX_SLICES {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "Algorithm 3 visits all slices in each step, {work} here; at most {MAX_SLICES} are visited"
            ),
        ));
    }
    let mut held = problem.loads().to_vec();
    let mut record = Record::new(problem);
    let cost = problem.right()[0];
    for step in 0_u64.. {
        let most = bound(&imbalance);
        if most == 0 {
            break;
        }
        let orders = orders(&imbalance, most as i64);
        let before = held.clone();
        for rank in 0..procs {
            for (side, ordered) in [(Side::Right, orders.right[rank]), (Side::Left, orders.left[rank])] {
                if !ordered {
                    continue;
                }
                if before[rank] == 0 {
                    return Err(Error::new(
                        ErrorKind::Mismatch,
                        format!(
                            "in step {} Algorithm 3 orders process {rank} to send an item, and it holds none",
                            step + 1
                        ),
                    ));
                }
                let to = side.of(rank as u64, procs as u64) as usize;
                (held[rank], imbalance[rank]) = (held[rank] - 1, imbalance[rank] - 1);
                (held[to], imbalance[to]) = (held[to] + 1, imbalance[to] + 1);
                record.send(rank, side, 1, step * cost);
            }
        }
    }
    Ok(record.program())
}

/// The number of steps that are still needed (line 1, and Lemma 6).
fn bound(imbalance: &[i64]) -> u64 {
    let mut most = 0;
    for_slices(imbalance, |first, last, sum| {
        most = most.max(if first == last { sum.unsigned_abs() } else { sum.unsigned_abs().div_ceil(2) });
    });
    most
}

/// Calls `visit` for all slices but the whole ring: first process, last process, imbalance.
fn for_slices(imbalance: &[i64], mut visit: impl FnMut(usize, usize, i64)) {
    let procs = imbalance.len();
    for first in 0..procs {
        let mut sum = 0;
        for length in 1..procs {
            let last = (first + length - 1) % procs;
            sum += imbalance[last];
            visit(first, last, sum);
        }
    }
}

/// The sends of the next step, if `most` steps are still needed.
fn orders(imbalance: &[i64], most: i64) -> Orders {
    let procs = imbalance.len();
    let (before, after) = (|rank: usize| (rank + procs - 1) % procs, |rank: usize| (rank + 1) % procs);
    let mut orders = Orders { right: vec![false; procs], left: vec![false; procs] };
    for_slices(imbalance, |first, last, sum| {
        // Lines 4 to 9; with two steps left, lines 10 to 18.
        let halves = sum.unsigned_abs().div_ceil(2) as i64 == most && sum.abs() > 1;
        let (right_end, left_end) =
            if most == 2 { (sum.abs() >= 3, sum.abs() == 4) } else { (halves, halves) };
        if sum > 0 {
            orders.right[last] |= right_end;
            orders.left[first] |= left_end;
        } else {
            orders.right[before(first)] |= right_end;
            orders.left[after(last)] |= left_end;
        }
    });
    // Lines 19 to 24.
    for (rank, &imbalance) in imbalance.iter().enumerate() {
        if imbalance == most && !orders.right[rank] && !orders.left[rank] {
            orders.right[rank] = true;
        }
    }
    for (rank, &imbalance) in imbalance.iter().enumerate() {
        if imbalance == -most && !orders.right[before(rank)] && !orders.left[after(rank)] {
            orders.right[before(rank)] = true;
        }
    }
    // Lines 25 to 30.
    let mut changed = most == 1;
    while changed {
        changed = false;
        for rank in (0..procs).filter(|&rank| imbalance[rank] == 0) {
            if orders.right[before(rank)] && !orders.right[rank] {
                (orders.right[rank], changed) = (true, true);
            }
            if orders.left[after(rank)] && !orders.left[rank] {
                (orders.left[rank], changed) = (true, true);
            }
        }
    }
    orders
}
