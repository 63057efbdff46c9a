//! Several arrays that move together, in one plan.

use super::{Case, Kinds, Parts};
use crate::random::Random;
use reshard_plan::{Move, Plan};

/// Source and destination parts of one array.
pub type Slices<'a> = (Vec<&'a [u8]>, Vec<&'a mut [u8]>);

/// Some cases over the same ranks, of which some can share their messages.
#[derive(Clone, Debug)]
pub struct Several {
    /// One array each.
    pub cases: Vec<Case>,
}

impl Several {
    /// One to four of them, on at most [`Kinds::ranks`] ranks, or some few if that is not said.
    pub fn random(random: &mut Random, kinds: &Kinds) -> Self {
        // One rank alone has no copies.
        let least = 1 + u64::from(kinds.replicated);
        let ranks = kinds.ranks.unwrap_or_else(|| random.within(least, kinds.procs * kinds.procs));
        let kinds = Kinds { ranks: Some(ranks), ..kinds.clone() };
        let mut cases = vec![Case::random(random, &kinds)];
        for _ in 0..random.within(0, 3) {
            let before = random.within(0, cases.len() as u64 - 1) as usize;
            cases.push(match random.one_in(2) {
                true => cases[before].alike(random, &kinds),
                false => Case::random(random, &kinds),
            });
        }
        Self { cases }
    }

    /// What moves.
    pub fn moves(&self) -> Vec<Move> {
        self.cases.iter().map(|case| case.moving.clone()).collect()
    }

    /// What a rank knows that is a process of its own: see [`Case::seen_by`].
    pub fn seen_by(&self, rank: u64) -> Vec<Move> {
        self.cases.iter().map(|case| case.seen_by(rank)).collect()
    }

    /// All ranks of all of them, ascending.
    pub fn ranks(&self) -> Vec<u64> {
        let mut ranks: Vec<u64> = self.cases.iter().flat_map(Case::ranks).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Runs a redistribution and looks at every byte of every part. `run` gets the plan, and for each array the source parts
    /// and the destination parts, both by ascending rank, as bytes.
    ///
    /// # Panics
    /// If a byte is not what it must be; the message names the case.
    pub fn judge(&self, run: impl FnOnce(&Plan, Vec<Slices<'_>>)) {
        let plan = Plan::new(self.moves()).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let mut parts = self.parts();
        run(&plan, self.slices(&mut parts));
        self.check(&parts);
    }

    /// Memory for all parts of each array, filled.
    pub fn parts(&self) -> Vec<Parts> {
        self.cases.iter().map(Case::parts).collect()
    }

    /// For each array source and destination parts as slices, without their margins.
    pub fn slices<'a>(&self, parts: &'a mut [Parts]) -> Vec<Slices<'a>> {
        self.cases.iter().zip(parts).map(|(case, parts)| case.slices(parts)).collect()
    }

    /// Looks at every byte of every destination part.
    ///
    /// # Panics
    /// If one is not what it must be.
    pub fn check(&self, parts: &[Parts]) {
        self.cases.iter().zip(parts).for_each(|(case, parts)| case.check(parts));
    }

    /// Looks at every byte of one rank's destination parts.
    ///
    /// # Panics
    /// If one is not what it must be.
    pub fn check_rank(&self, parts: &[Parts], rank: u64) {
        self.cases.iter().zip(parts).for_each(|(case, parts)| case.check_rank(parts, rank));
    }
}
