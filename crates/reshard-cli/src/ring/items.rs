//! Fills items with distinct bytes, and verifies all of them after a run.
//!
//! Item `k` of the whole ring begins with the number `k`, and its other bytes follow from it: so the bytes of an item say which
//! one it is, and whether it is whole. In order, process after process must hold its slice; without an order, all
//! processes together must hold every number once.

use crate::failure::Failure;
use reshard_ring::RingPlan;

/// The most bytes of an item that hold its number.
const NUMBER_BYTES: usize = 8;

/// The byte in memory that holds no item yet.
const EMPTY: u8 = 0xee;

/// The items of a ring.
pub struct Items<'a> {
    plan: &'a RingPlan,
    all: u64,
    /// The number of each process's first item before a run.
    first: Vec<u64>,
    /// The number of each process's first item after a run, if items are in order.
    first_after: Vec<u64>,
}

/// The items that have been found: a bit for each. The words of several processes are added up, which is exact: there are as
/// many items as bits, and that many powers of two add up to all bits only if each occurs once.
pub struct Seen(pub Vec<u64>);

impl<'a> Items<'a> {
    /// Fails if items are too short to be distinct.
    pub fn new(plan: &'a RingPlan) -> Result<Self, Failure> {
        let (all, bytes) = (plan.problem().loads().iter().sum::<u64>(), plan.item_bytes());
        let distinct = 1_u128 << (8 * bytes.min(NUMBER_BYTES));
        if u128::from(all) > distinct {
            return Err(Failure::usage(&format!(
                "--item-bytes: items of {bytes} bytes tell {distinct} apart, and the ring has {all}; take longer ones"
            )));
        }
        let before_each = |counts: &[u64]| {
            let first = counts.iter().scan(0, |next, &count| Some(std::mem::replace(next, *next + count)));
            first.collect()
        };
        let first = before_each(plan.problem().loads());
        Ok(Self { plan, all, first, first_after: before_each(plan.problem().targets()) })
    }

    pub fn none_seen(&self) -> Seen {
        Seen(vec![0; self.all.div_ceil(64) as usize])
    }

    /// Writes the items that a process holds at first.
    pub fn fill(&self, rank: usize, part: &mut [u8]) {
        let held = self.plan.problem().loads()[rank] as usize * self.plan.item_bytes();
        part[held..].fill(EMPTY);
        for (item, number) in part[..held].chunks_exact_mut(self.plan.item_bytes()).zip(self.first[rank]..) {
            let (begin, rest) = item.split_at_mut(item.len().min(NUMBER_BYTES));
            begin.copy_from_slice(&number.to_le_bytes()[..begin.len()]);
            rest.chunks_mut(NUMBER_BYTES).zip(words(number)).for_each(|(piece, word)| {
                piece.copy_from_slice(&word[..piece.len()]);
            });
        }
    }

    /// Verifies the items that a process holds in the end.
    pub fn check(&self, rank: usize, part: &[u8], seen: &mut Seen) -> Result<(), Failure> {
        let wrong = |at: usize, what: String| {
            Err(Failure::failed(format!("verification failed: item {at} of process {rank} {what}")))
        };
        let target = self.plan.problem().targets()[rank] as usize;
        let items = part.chunks_exact(self.plan.item_bytes()).take(target).enumerate();
        for ((at, item), expected) in items.zip(self.first_after[rank]..) {
            let (begin, rest) = item.split_at(item.len().min(NUMBER_BYTES));
            let mut number = [0; NUMBER_BYTES];
            number[..begin.len()].copy_from_slice(begin);
            let number = u64::from_le_bytes(number);
            let mut pieces = rest.chunks(NUMBER_BYTES).zip(words(number));
            if number >= self.all || !pieces.all(|(piece, word)| *piece == word[..piece.len()]) {
                return wrong(at, "is not a whole item of the ring".to_string());
            }
            if self.plan.problem().is_ordered() && number != expected {
                return wrong(at, format!("is number {number} of the ring, and should be {expected}"));
            }
            let bit = 1 << (number % 64);
            let word = &mut seen.0[(number / 64) as usize];
            if *word & bit != 0 {
                return wrong(at, format!("is number {number} of the ring, which was there already"));
            }
            *word |= bit;
        }
        Ok(())
    }

    /// Fails unless all items were found.
    pub fn all_seen(&self, seen: &Seen) -> Result<(), Failure> {
        let expected = |word: usize| match self.all - 64 * word as u64 {
            64.. => u64::MAX,
            last => (1 << last) - 1,
        };
        match seen.0.iter().enumerate().position(|(word, &found)| found != expected(word)) {
            None => Ok(()),
            Some(word) => Err(Failure::failed(format!(
                "verification failed: of the items {} and up to 63 more, some are lost or doubled",
                64 * word
            ))),
        }
    }
}

/// The words that follow the number of an item.
fn words(number: u64) -> impl Iterator<Item = [u8; 8]> {
    std::iter::successors(Some(mixed(number)), |&word| Some(mixed(word))).map(u64::to_le_bytes)
}

fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ (word >> 27)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use reshard_ring::RingProblem;

    /// Checks that every kind of error is found.
    #[test]
    fn items_lost_duplicated_corrupted_or_out_of_order_are_found() {
        for (ordered, item_bytes) in [(false, 1), (false, 8), (true, 3), (true, 21)] {
            let ring = RingProblem::new(vec![70, 30], vec![70, 30]).unwrap();
            let ring = if ordered { ring.in_order().unwrap() } else { ring };
            let plan = RingPlan::solved(ring, item_bytes).unwrap();
            let items = Items::new(&plan).unwrap();
            let verdict = |corrupt: &dyn Fn(&mut [Vec<u8>])| {
                let mut parts = [70, 30].map(|count| vec![0; count * item_bytes]);
                (0..2).for_each(|rank| items.fill(rank, &mut parts[rank]));
                corrupt(&mut parts);
                let mut seen = items.none_seen();
                (0..2).try_for_each(|rank| items.check(rank, &parts[rank], &mut seen))?;
                items.all_seen(&seen)
            };
            verdict(&|_| ()).unwrap();
            let swap = |parts: &mut [Vec<u8>]| {
                let (first, second) = parts.split_at_mut(1);
                first[0][..item_bytes].swap_with_slice(&mut second[0][..item_bytes]);
            };
            assert_eq!(verdict(&swap).is_err(), ordered);
            assert!(verdict(&|parts| parts[0].copy_within(..item_bytes, item_bytes)).is_err());
            assert!(verdict(&|parts| parts[1][7 * item_bytes - 1] ^= 0x80).is_err());
            assert!(verdict(&|parts| parts[1][..item_bytes].fill(EMPTY)).is_err());
            // The words of several processes are added up: two of one item and none of another is not all.
            let mut seen = items.none_seen();
            seen.0 = vec![u64::MAX, (1 << 36) - 1];
            items.all_seen(&seen).unwrap();
            seen.0[1] -= 1;
            assert!(items.all_seen(&seen).is_err());
        }
        let ring = RingProblem::new(vec![257], vec![257]).unwrap();
        assert!(Items::new(&RingPlan::solved(ring.clone(), 1).unwrap()).is_err());
        assert!(Items::new(&RingPlan::solved(ring, 2).unwrap()).is_ok());
    }
}
