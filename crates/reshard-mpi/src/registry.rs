//! The engines of a communicator: their numbers, their tags, and which of them have failed.
//!
//! All ranks make their engines in the same order, so a monotonic number names an engine on all of them. Tags are few: an
//! engine's first tag is its number modulo [`TAGS`], and it gets a number whose tags no living engine has, on any rank.
//! A stray message of a dropped engine has another number in its envelope.

use crate::transport::MessageBuffer;
use reshard_plan::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};

/// Tags of engines: those below this number.
pub const TAGS: u64 = 30_000;

/// Why an engine cannot go on, from the notice of another rank.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The rank that sent the notice.
    pub rank: usize,
    /// The first run that cannot be done.
    pub run: u64,
    pub why: String,
}

/// The engines of a communicator, as this rank knows them.
#[derive(Default)]
pub struct Registry {
    /// The smallest number of the next engine.
    next: u64,
    /// Tags in use: the first tag of an engine, and their number.
    used: BTreeMap<u64, u64>,
    /// Failures of engines that live, or that this rank is about to make.
    failures: HashMap<u64, Failure>,
    /// Notices this rank has sent, as long as they are in flight.
    pub notices: Vec<Box<dyn MessageBuffer>>,
    /// Notices this rank has sent to each other rank, and those of others that it has received.
    pub sent: u64,
    pub received: u64,
    /// Notices that were due on a thread that may not send: the next call of one that may sends them.
    pub unsent: Vec<Vec<u8>>,
}

impl Registry {
    /// Sets the first number.
    pub fn begin(&mut self, first: u64) {
        self.next = first;
    }

    /// The smallest number of at least `least` for an engine with `tags` tags, free as far as this rank knows.
    pub fn propose(&self, least: u64, tags: u64) -> Result<u64> {
        let first = least.max(self.next);
        let mut number = first;
        while number < first + 2 * TAGS {
            let tag = number % TAGS;
            if tag + tags > TAGS {
                // The tags of an engine are contiguous.
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

    /// Registers an engine under a number that all ranks have agreed on.
    pub fn enter(&mut self, number: u64, tags: u64) {
        self.used.insert(number % TAGS, tags);
        self.next = number + tags;
    }

    /// Removes an engine. Unless `free`, its tags stay in use, as a message of it may still be in flight: a message longer
    /// than its buffer is an error of the transport, whichever engine it was for.
    pub fn leave(&mut self, number: u64, free: bool) {
        self.failures.remove(&number);
        if free {
            self.used.remove(&(number % TAGS));
        }
    }

    /// Records a notice of another rank. Notices for engines that this rank has dropped are ignored.
    pub fn fail(&mut self, number: u64, failure: Failure) {
        if number >= self.next || self.used.contains_key(&(number % TAGS)) {
            let first = self.failures.entry(number).or_insert_with(|| failure.clone());
            if failure.run < first.run {
                *first = failure;
            }
        }
    }

    /// The failure of an engine, if another rank has sent a notice.
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
        let said = registry.propose(0, 2).unwrap_err().to_string();
        assert!(said.contains("29999 are in use"), "{said}");
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
