//! Which stores pack large arrays: ordinary ones, through the caches, or non-temporal ones, through memory.
//!
//! Which is faster depends on how cores of the processor exchange cache lines, and nothing tells. So the first runs try both in
//! turn, all ranks the same in the same run, and each rank compares the time that it copied: waiting does not count. What a rank
//! decides concerns only its own stores.

use std::time::Duration;

/// Runs before the trial: memory is touched for the first time.
const COLD_RUNS: u32 = 1;

/// Runs of the trial, which take turns.
const TRIAL_RUNS: u32 = 4;

/// Non-temporal stores must take less than this part of what ordinary ones take, in percent.
const MAX_PERCENT: u32 = 90;

/// The trial of a mover.
pub struct StoreTrial {
    /// Runs so far; none is counted after the trial.
    runs: u32,
    /// The shortest time of a run with ordinary stores, and with non-temporal ones.
    best: [Duration; 2],
}

impl StoreTrial {
    /// Without a choice there is no trial.
    pub fn new(has_choice: bool) -> Self {
        let runs = if has_choice { 0 } else { COLD_RUNS + TRIAL_RUNS };
        Self { runs, best: [Duration::ZERO, Duration::MAX] }
    }

    /// True if the next run uses non-temporal stores.
    pub fn non_temporal(&self) -> bool {
        match self.runs.checked_sub(COLD_RUNS) {
            None => false,
            Some(run) if run < TRIAL_RUNS => run % 2 == 1,
            Some(_) => self.best[1] < self.best[0] * MAX_PERCENT / 100,
        }
    }

    /// Says how long this rank copied in a run.
    pub fn run_took(&mut self, time: Duration) {
        let Some(run) = self.runs.checked_sub(COLD_RUNS) else {
            self.runs += 1;
            return;
        };
        if run < TRIAL_RUNS {
            let best = &mut self.best[(run % 2) as usize];
            *best = if run < 2 { time } else { time.min(*best) };
            self.runs += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stores of the runs from the first on, if a run takes these milliseconds with ordinary and with non-temporal stores.
    fn runs(took: [u64; 2]) -> Vec<bool> {
        let mut trial = StoreTrial::new(true);
        let one = |_| {
            let non_temporal = trial.non_temporal();
            trial.run_took(Duration::from_millis(took[usize::from(non_temporal)]));
            non_temporal
        };
        (0..7).map(one).collect()
    }

    #[test]
    fn the_faster_stores_stay() {
        let (yes, no) = (true, false);
        assert_eq!(runs([10, 8]), [no, no, yes, no, yes, yes, yes]);
        assert_eq!(runs([10, 12]), [no, no, yes, no, yes, no, no]);
        assert_eq!(runs([100, 95]), [no, no, yes, no, yes, no, no], "a small difference does not decide");
    }

    #[test]
    fn without_a_choice_nothing_is_tried() {
        let mut trial = StoreTrial::new(false);
        for _ in 0..9 {
            assert!(!trial.non_temporal());
            trial.run_took(Duration::from_millis(1));
        }
    }
}
