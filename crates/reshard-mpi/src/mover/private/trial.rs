//! Which way large arrays go: packed with ordinary stores, through the caches; with non-temporal ones, through memory; or not
//! packed, but read by the system out of the other process ([`CmaMover`](super::super::cma::CmaMover)).
//!
//! Which is fastest depends on how cores of the processor exchange cache lines, on pages and on the system, and nothing tells. So the
//! first runs try all ways in turn, all ranks the same in the same run, and each rank measures the processor time that it copied:
//! waiting does not count, nor what other ranks do on its processor. What a rank decides of stores concerns only its own; whether the system copies is chosen by one rank for all.

use std::time::Duration;

/// Runs before the trial: memory is touched for the first time.
const COLD_RUNS: usize = 1;

/// Runs of the trial with each way.
const RUNS_OF_A_WAY: usize = 3;

/// Non-temporal stores must take less than this part of what ordinary ones take, in percent.
const MAX_PERCENT: u32 = 90;

/// Processor time of this thread so far.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer. It stays zero if there is no such clock: then all ways are alike, and the first stays.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A way to move a large array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Ordinary,
    NonTemporal,
    Cma,
}

/// The trial of a mover.
pub struct Trial {
    ways: Vec<Way>,
    /// Runs before the trial, and runs with each way.
    cold: usize,
    of_each: usize,
    /// Runs so far; none is counted after the trial.
    runs: usize,
    /// For each way, the shortest time of a run.
    best: [Duration; 3],
}

impl Trial {
    /// A trial of ordinary stores and of those of the two other ways that there are. Without a choice there is none.
    pub fn new(non_temporal: bool, cma: bool) -> Self {
        let others = [(Way::NonTemporal, non_temporal), (Way::Cma, cma)];
        let others = others.into_iter().filter_map(|(way, has)| has.then_some(way));
        let ways = std::iter::once(Way::Ordinary).chain(others).collect();
        Self { ways, cold: COLD_RUNS, of_each: RUNS_OF_A_WAY, runs: 0, best: [Duration::MAX; 3] }
    }

    /// A trial of one run for each way, the one by the system first: for tests.
    pub fn eager() -> Self {
        let ways = vec![Way::Cma, Way::NonTemporal, Way::Ordinary];
        Self { ways, cold: 0, of_each: 1, runs: 0, best: [Duration::MAX; 3] }
    }

    /// True if all ways were tried, or there is no choice.
    pub fn is_over(&self) -> bool {
        self.ways.len() == 1 || self.runs == self.cold + self.of_each * self.ways.len()
    }

    /// The way of the next run; after the trial the way this rank packs.
    pub fn way(&self) -> Way {
        match self.runs.checked_sub(self.cold) {
            _ if self.is_over() && self.packs_non_temporal() => Way::NonTemporal,
            Some(run) if !self.is_over() => self.ways[run % self.ways.len()],
            _ => Way::Ordinary,
        }
    }

    fn packs_non_temporal(&self) -> bool {
        let [ordinary, non_temporal, _] = self.best;
        non_temporal < ordinary / 100 * MAX_PERCENT
    }

    /// The best times of this rank: packed, and copied by the system.
    pub fn times(&self) -> [Duration; 2] {
        let [ordinary, non_temporal, cma] = self.best;
        [if self.packs_non_temporal() { non_temporal } else { ordinary }, cma]
    }

    /// Says how long this rank copied in a run of the trial.
    pub fn run_took(&mut self, time: Duration) {
        if self.is_over() {
            return;
        }
        if self.runs >= self.cold {
            let best = &mut self.best[self.way() as usize];
            *best = time.min(*best);
        }
        self.runs += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Way::{Cma as C, NonTemporal as N, Ordinary as O};

    /// The ways of the runs from the first on, if a run takes these milliseconds by each way, and the times at the end.
    fn runs(mut trial: Trial, took: [u64; 3]) -> (Vec<Way>, [u64; 2]) {
        let one = |_| {
            let way = trial.way();
            trial.run_took(Duration::from_millis(took[way as usize]));
            way
        };
        let ways = (0..12).map(one).collect();
        assert!(trial.is_over());
        (ways, trial.times().map(|time| time.as_millis() as u64))
    }

    #[test]
    fn the_faster_stores_stay() {
        let ways = |took: [u64; 2]| runs(Trial::new(true, false), [took[0], took[1], 0]).0;
        assert_eq!(ways([10, 8]), [O, O, N, O, N, O, N, N, N, N, N, N]);
        assert_eq!(ways([10, 12]), [O, O, N, O, N, O, N, O, O, O, O, O]);
        assert_eq!(
            ways([100, 95]),
            [O, O, N, O, N, O, N, O, O, O, O, O],
            "a small difference does not decide"
        );
    }

    #[test]
    fn all_ways_are_tried_and_their_times_told() {
        assert_eq!(
            runs(Trial::new(true, true), [10, 8, 5]),
            (vec![O, O, N, C, O, N, C, O, N, C, N, N], [8, 5])
        );
        assert_eq!(
            runs(Trial::new(true, true), [10, 12, 5]),
            (vec![O, O, N, C, O, N, C, O, N, C, O, O], [10, 5])
        );
    }

    #[test]
    fn without_a_choice_nothing_is_tried() {
        let mut trial = Trial::new(false, false);
        for _ in 0..9 {
            assert!(trial.is_over() && trial.way() == O);
            trial.run_took(Duration::from_millis(1));
        }
    }
}
