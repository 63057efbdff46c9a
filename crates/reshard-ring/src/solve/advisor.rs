//! Decides after each step of an iterative application whether to balance its loads now.
//!
//! Moving items takes time, and the speeds of processes drift. The paper's answer is a simulation: with expensive links it is
//! best never to redistribute, with cheap links to do it often, and in between it depends. The advisor needs no tuning: it
//! adds up the time that every step took longer than with balanced loads, and says yes once that sum is as large as the time
//! of the redistribution, if the steps to come can win it back. This is the rule of ski rental: whoever pays a price once as
//! much was lost by not paying never pays much more than twice the cost of the best choice, whatever comes.
//!
//! [`Application`] is a model to test policies on: speeds drift at random, from a seed, so runs can be repeated.

use super::flow::system_6;
use super::problem::RingProblem;
use super::solution::{Solution, solve};
use reshard_plan::{Error, ErrorKind, Result};

/// When an application redistributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Never redistributes.
    Never,
    /// Redistributes after every this many steps.
    Every(u64),
    /// Redistributes when the [`Advisor`] says so.
    WhenItPays,
}

/// Says when to redistribute, from the time lost to imbalance since the last redistribution.
///
/// ```
/// use reshard_ring::{Advisor, RingProblem};
/// let ring = RingProblem::new(vec![50, 50], vec![50, 50])?; // links of cost 1
/// let mut advisor = Advisor::default();
/// // The first process needs 3 units of time for an item, the second 1: a step takes 150 instead of 75.
/// let solution = advisor.after_step(&ring, &[3, 1], 1000)?.expect("25 items in 13 units pay at once");
/// assert_eq!((solution.makespan(), solution.net_flow()), (25, vec![25, 0]));
/// // If the program has to reconnect after a redistribution, it must lose as much first: here in four steps.
/// let mut advisor = Advisor::default().with_overhead(260);
/// for step in 0..4 {
///     assert_eq!(advisor.after_step(&ring, &[3, 1], 1000)?.is_some(), step == 3);
/// }
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Advisor {
    /// Time lost to imbalance since the last redistribution.
    lost: u64,
    /// Time of a redistribution besides that of its items.
    overhead: u64,
}

impl Advisor {
    /// Sets what a redistribution takes besides moving items, however many: planning, new buffers, new connections. In the unit of
    /// the link costs; 0 if it is not set.
    #[must_use]
    pub fn with_overhead(self, time: u64) -> Self {
        Self { overhead: time, ..self }
    }

    /// Call after each step: returns the program to run now, if it is time to redistribute. `ring` has the present loads and
    /// the links. `slowness` is the time each process needs for an item, in the unit of the link costs. `steps_left` steps
    /// are still to come.
    pub fn after_step(
        &mut self,
        ring: &RingProblem,
        slowness: &[u64],
        steps_left: u64,
    ) -> Result<Option<Solution>> {
        let targets = balanced(ring.loads().iter().sum(), slowness)?;
        let (now, then) = (step_time(ring.loads(), slowness), step_time(&targets, slowness));
        let gain = now.saturating_sub(then);
        self.lost = self.lost.saturating_add(gain);
        let ring = ring.clone().with_loads(ring.loads().to_vec(), targets)?;
        let pays = |moving: u64| {
            let time = moving.saturating_add(self.overhead);
            time <= self.lost && time < gain.saturating_mul(steps_left)
        };
        // The bound is cheaper to compute than the program, and mostly decides.
        if gain == 0 || !pays(system_6(&ring).0) {
            return Ok(None);
        }
        let solution = solve(&ring)?;
        if !pays(solution.makespan()) {
            return Ok(None);
        }
        self.lost = 0;
        Ok(Some(solution))
    }
}

/// Time of a step: until the slowest process has worked on all its items.
pub fn step_time(loads: &[u64], slowness: &[u64]) -> u64 {
    loads.iter().zip(slowness).map(|(&load, &slow)| load.saturating_mul(slow)).max().unwrap_or(0)
}

/// Returns the loads with which a step takes the least time, at least one item for each process.
///
/// ```
/// use reshard_ring::balanced;
/// assert_eq!(balanced(100, &[1, 3])?, [75, 25]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn balanced(items: u64, slowness: &[u64]) -> Result<Vec<u64>> {
    let procs = slowness.len() as u64;
    if procs == 0 || items < procs || slowness.contains(&0) {
        return Err(Error::new(
            ErrorKind::OutOfRange,
            format!(
                "{items} items for {procs} processes; every process needs an item, and at least 1 unit of time for one"
            ),
        ));
    }
    let loads_in = |time: u64| slowness.iter().map(move |&slow| (time / slow).max(1));
    let total = |time: u64| loads_in(time).fold(0_u64, u64::saturating_add);
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if total(middle) >= items { high = middle } else { low = middle + 1 }
    }
    let mut loads: Vec<u64> = loads_in(low).collect();
    // The surplus is taken from the processes that need most time.
    let mut surplus = total(low) - items;
    while surplus > 0 {
        let candidates = loads.iter().enumerate().filter(|(_, load)| **load > 1);
        match candidates
            .max_by_key(|&(rank, &load)| (load.saturating_mul(slowness[rank]), rank))
            .map(|(rank, _)| rank)
        {
            Some(rank) => loads[rank] -= 1,
            None => break,
        }
        surplus -= 1;
    }
    Ok(loads)
}

/// An iterative application on a ring of processes whose speeds drift.
#[derive(Clone, Debug)]
pub struct Application {
    /// The links, and the loads at the beginning; the targets are not used.
    pub ring: RingProblem,
    /// Number of steps.
    pub steps: u64,
    /// Time of an item on a process at the beginning, in the unit of the link costs; it drifts between a quarter and four
    /// times this value.
    pub slowness: u64,
    /// The largest change of a speed in a step, in per cent.
    pub drift_percent: u64,
    /// Seed of the drift: equal seeds give equal drift under every policy.
    pub seed: u64,
}

/// The times of an application under a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Time of all steps, without redistributions.
    pub computing: u64,
    /// Time of all redistributions.
    pub moving: u64,
    /// Number of redistributions.
    pub moves: u64,
}

impl Outcome {
    /// Time of all steps and redistributions.
    pub fn total(&self) -> u64 {
        self.computing + self.moving
    }
}

impl Application {
    /// Simulates the application under `policy`.
    pub fn run(&self, policy: Policy) -> Result<Outcome> {
        let procs = self.ring.procs();
        let mut slowness = vec![self.slowness.max(1); procs];
        let mut random_state = self.seed;
        let mut outcome = Outcome::default();
        let mut advisor = Advisor::default();
        let mut ring = self.ring.clone();
        for step in 1..=self.steps {
            outcome.computing = outcome.computing.saturating_add(step_time(ring.loads(), &slowness));
            let left = self.steps - step;
            let solution = match policy {
                Policy::Never => None,
                Policy::Every(steps) if left == 0 || step % steps.max(1) != 0 => None,
                Policy::Every(_) => {
                    let targets = balanced(ring.loads().iter().sum(), &slowness)?;
                    Some(solve(&ring.clone().with_loads(ring.loads().to_vec(), targets)?)?)
                }
                Policy::WhenItPays => advisor.after_step(&ring, &slowness, left)?,
            };
            if let Some(solution) = solution.filter(|solution| solution.makespan() > 0) {
                outcome.moving = outcome.moving.saturating_add(solution.makespan());
                outcome.moves += 1;
                let flow = solution.net_flow();
                let loads = ring.loads().iter().enumerate().map(|(rank, &load)| {
                    let before = flow[(rank + procs - 1) % procs];
                    load.saturating_add_signed(before - flow[rank])
                });
                let loads: Vec<u64> = loads.collect();
                ring = ring.with_loads(loads.clone(), loads)?;
            }
            for slow in &mut slowness {
                let by = random(&mut random_state) % (2 * self.drift_percent + 1);
                let drifted = slow.saturating_mul(100 + by).saturating_sub(*slow * self.drift_percent) / 100;
                *slow = drifted.clamp((self.slowness / 4).max(1), self.slowness.saturating_mul(4));
            }
        }
        Ok(outcome)
    }
}

/// The next number of the generator SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_process_keeps_its_last_item() {
        assert_eq!(balanced(4, &[2, 2, 100]).unwrap(), [2, 1, 1]);
    }
}
