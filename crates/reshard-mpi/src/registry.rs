//! Which engines there are on a communicator, by which tags they are told apart, and which of them have failed.
//!
//! All ranks make their engines in the same order, so a number that only grows names an engine on all of them. Tags are few: an
//! engine's are its number modulo how many there are, and it is given a number whose tags no living engine has, on any rank.
//! A message of an engine that is gone has another number in its head.

use crate::owned::OwnedMessage;
use reshard_plan::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};

/// Tags below this are the engines'.
pub const TAGS: u64 = 30_000;

/// Why an engine cannot go on, as another rank said.
#[derive(Clone, Debug)]
pub struct Failure {
    pub rank: usize,
    /// The first run that cannot be done.
    pub run: u64,
    pub why: String,
}

/// What the engines of a communicator know of each other, on this rank.
#[derive(Default)]
pub struct Registry {
    /// The number after those of the last engine.
    next: u64,
    /// Tags in use: the first of some, and how many.
    used: BTreeMap<u64, u64>,
    /// Of engines that live, or that this rank is about to make.
    failures: HashMap<u64, Failure>,
    /// What this rank told the others, as long as MPI may read it.
    pub told: Vec<OwnedMessage>,
}

impl Registry {
    /// Numbers begin here.
    pub fn begin(&mut self, first: u64) {
        self.next = first;
    }

    /// The smallest number from `least` on for an engine with so many tags, as far as this rank knows.
    pub fn propose(&self, least: u64, tags: u64) -> Result<u64> {
        let first = least.max(self.next);
        let mut number = first;
        while number < first + 2 * TAGS {
            let tag = number % TAGS;
            if tag + tags > TAGS {
                // Tags of an engine are neighbours.
                number = number.next_multiple_of(TAGS).max(number + 1);
                if tags > TAGS {
                    break;
                }
                continue;
            }
            match self.used.range(..tag + tags).next_back() {
                Some((used, count)) if used + count > tag => number += used + count - tag,
                _ => return Ok(number),
            }
        }
        Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "{tags} tags are needed for the arrays of an engine, and of the {TAGS} there are {} are in use by other engines on \
                 this communicator; drop some engines, or use another communicator",
                self.used.values().sum::<u64>()
            ),
        ))
    }

    /// All ranks agree on a number.
    pub fn enter(&mut self, number: u64, tags: u64) {
        self.used.insert(number % TAGS, tags);
        self.next = number + tags;
    }

    /// The engine is gone. If something of it may still be on its way, its tags stay in use: a message that is longer than its
    /// place is an error of MPI's, whoever it was for.
    pub fn leave(&mut self, number: u64, free: bool) {
        self.failures.remove(&number);
        if free {
            self.used.remove(&(number % TAGS));
        }
    }

    /// Another rank says that an engine failed. Those that are gone here are nobody's concern.
    pub fn fail(&mut self, number: u64, failure: Failure) {
        if number >= self.next || self.used.contains_key(&(number % TAGS)) {
            let first = self.failures.entry(number).or_insert_with(|| failure.clone());
            if failure.run < first.run {
                *first = failure;
            }
        }
    }

    pub fn failure(&self, number: u64) -> Option<&Failure> {
        self.failures.get(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_living_engines_share_no_tag() {
        let mut registry = Registry::default();
        let mut living: Vec<(u64, u64)> = Vec::new();
        let mut last = 0;
        for round in 0..200_000_u64 {
            let tags = 1 + round * 7 % 5;
            let number = registry.propose(0, tags).unwrap();
            assert!(number >= last, "{number} after {last}");
            last = number + tags;
            let range = |(number, tags): (u64, u64)| number % TAGS..number % TAGS + tags;
            let new = range((number, tags));
            assert!(new.end <= TAGS);
            for &other in &living {
                let other = range(other);
                assert!(new.end <= other.start || other.end <= new.start, "{new:?} {other:?}");
            }
            registry.enter(number, tags);
            living.push((number, tags));
            // The first two stay for ever, the others go in some order.
            if living.len() > 10 {
                let (number, _) = living.remove(2 + (round * 13 % 8) as usize);
                registry.leave(number, true);
            }
        }
        assert!(last > 4 * TAGS, "tags were used again");
    }

    #[test]
    fn when_all_tags_are_in_use_there_is_an_error() {
        let mut registry = Registry::default();
        assert!(registry.propose(0, TAGS + 1).is_err());
        assert_eq!(registry.propose(0, TAGS).unwrap(), 0);
        registry.enter(0, TAGS - 1);
        assert_eq!(registry.propose(0, 1).unwrap(), TAGS - 1);
        assert!(registry.propose(0, 2).unwrap_err().to_string().contains("29999 are in use"));
        registry.leave(0, true);
        assert_eq!(registry.propose(0, 2).unwrap(), TAGS);
        assert_eq!(registry.propose(TAGS + 7, 2).unwrap(), TAGS + 7);
    }

    #[test]
    fn a_failure_is_kept_for_engines_that_live_or_are_to_come() {
        let mut registry = Registry::default();
        let failure = || Failure { rank: 3, run: 1, why: "no".into() };
        registry.enter(0, 1);
        registry.fail(0, failure());
        registry.fail(1, failure());
        assert!(registry.failure(0).is_some() && registry.failure(1).is_some());
        registry.leave(0, true);
        registry.fail(0, failure());
        assert!(registry.failure(0).is_none(), "nobody asks any more");
        registry.enter(1, 1);
        assert_eq!(registry.failure(1).unwrap().rank, 3);
    }
}
