//! Items that can be told apart, and a look at all of them afterwards.
//!
//! Item `k` of the whole ring begins with the number `k`, and its other bytes follow from it: so a look at an item says which
//! one it is, and whether it is whole. In order, process after process must hold its slice; without an order, all
//! processes together must hold every number once.

use crate::failure::Failure;
use reshard_ring::RingPlan;

/// Bytes of an item that hold its number, at most.
const NUMBER: usize = 8;

/// What is in the room that holds no item yet.
const EMPTY: u8 = 0xee;

/// The items of a ring.
pub struct Items<'a> {
    plan: &'a RingPlan,
    all: u64,
    /// The number of each process's first item, before and, in order, after.
    first: Vec<u64>,
    first_after: Vec<u64>,
}

/// Which items have been seen: a bit for each. Those of several processes are added up, which is exact: there are as many
/// items as bits, and as few powers of two only add up to all bits if each is there once.
pub struct Seen(pub Vec<u64>);

impl<'a> Items<'a> {
    /// Refused if items are too short to tell so many apart.
    pub fn new(plan: &'a RingPlan) -> Result<Self, Failure> {
        let (all, bytes) = (plan.problem().loads().iter().sum::<u64>(), plan.item_bytes());
        let told_apart = 1_u128 << (8 * bytes.min(NUMBER));
        if u128::from(all) > told_apart {
            return Err(Failure::usage(&format!(
                "--item-bytes: items of {bytes} bytes tell {told_apart} apart, and the ring has {all}; take longer ones"
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

    /// Writes what a process holds at first.
    pub fn fill(&self, rank: usize, part: &mut [u8]) {
        let held = self.plan.problem().loads()[rank] as usize * self.plan.item_bytes();
        part[held..].fill(EMPTY);
        for (item, number) in part[..held].chunks_exact_mut(self.plan.item_bytes()).zip(self.first[rank]..) {
            let (begin, rest) = item.split_at_mut(item.len().min(NUMBER));
            begin.copy_from_slice(&number.to_le_bytes()[..begin.len()]);
            rest.chunks_mut(NUMBER).zip(words(number)).for_each(|(piece, word)| {
                piece.copy_from_slice(&word[..piece.len()]);
            });
        }
    }

    /// Looks at what a process holds in the end.
    pub fn look(&self, rank: usize, part: &[u8], seen: &mut Seen) -> Result<(), Failure> {
        let wrong = |at: usize, what: String| {
            Err(Failure::failed(format!("verification failed: item {at} of process {rank} {what}")))
        };
        let target = self.plan.problem().targets()[rank] as usize;
        let items = part.chunks_exact(self.plan.item_bytes()).take(target).enumerate();
        for ((at, item), wanted) in items.zip(self.first_after[rank]..) {
            let (begin, rest) = item.split_at(item.len().min(NUMBER));
            let mut number = [0; NUMBER];
            number[..begin.len()].copy_from_slice(begin);
            let number = u64::from_le_bytes(number);
            let mut pieces = rest.chunks(NUMBER).zip(words(number));
            if number >= self.all || !pieces.all(|(piece, word)| *piece == word[..piece.len()]) {
                return wrong(at, "is not a whole item of the ring".to_string());
            }
            if self.plan.problem().is_ordered() && number != wanted {
                return wrong(at, format!("is number {number} of the ring, and should be {wanted}"));
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

    /// Whether all items were seen.
    pub fn all_seen(&self, seen: &Seen) -> Result<(), Failure> {
        let wanted = |word: usize| match self.all - 64 * word as u64 {
            64.. => u64::MAX,
            last => (1 << last) - 1,
        };
        match seen.0.iter().enumerate().position(|(word, &found)| found != wanted(word)) {
            None => Ok(()),
            Some(word) => Err(Failure::failed(format!(
                "verification failed: of the items {} and up to 63 more, some are lost or doubled",
                64 * word
            ))),
        }
    }
}

/// What follows the number of an item.
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

    /// Every way to be wrong is seen.
    #[test]
    fn what_is_lost_doubled_spoilt_or_out_of_order_is_found() {
        for (ordered, item_bytes) in [(false, 1), (false, 8), (true, 3), (true, 21)] {
            let ring = RingProblem::new(vec![70, 30], vec![70, 30]).unwrap();
            let ring = if ordered { ring.in_order().unwrap() } else { ring };
            let plan = RingPlan::solved(ring, item_bytes).unwrap();
            let items = Items::new(&plan).unwrap();
            let verdict = |spoil: &dyn Fn(&mut [Vec<u8>])| {
                let mut parts = [70, 30].map(|count| vec![0; count * item_bytes]);
                (0..2).for_each(|rank| items.fill(rank, &mut parts[rank]));
                spoil(&mut parts);
                let mut seen = items.none_seen();
                (0..2).try_for_each(|rank| items.look(rank, &parts[rank], &mut seen))?;
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
            // What several processes saw is added up: two of one and none of another is not all.
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
