//! The producer's job: computes, publishes every step, and moves columns when that pays. A published layout cannot change, so then the
//! coupling ends, and another one with the new layout begins.

use crate::balance::Balance;
use crate::options::Options;
use crate::ranks::{DEADLINE, Rank};
use crate::simulation::Strip;
use reshard::{Layout, Result, bytemuck};
use reshard_couple::{ArrayId, ElementType, Job, Publisher};
use reshard_ring::{balanced, step_time};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What the producer says in the end.
#[derive(Serialize)]
pub struct Produced {
    pub seconds: f64,
    pub seconds_per_step: f64,
    /// What the waits alone take in a step with as many columns on each rank, and with as many as suit its speed.
    pub equal_seconds_per_step: Option<f64>,
    pub balanced_seconds_per_step: Option<f64>,
    pub moves: Vec<Moved>,
    /// The columns of each rank in the end.
    pub columns: Vec<u64>,
    pub verified: bool,
}

/// A redistribution of columns.
#[derive(Serialize)]
pub struct Moved {
    pub after_step: u64,
    pub columns: Vec<u64>,
    /// What the solution of the ring says, and what moving the columns took.
    pub predicted_seconds: f64,
    pub moving_seconds: f64,
    /// Until the coupling was open again.
    pub reopening_seconds: f64,
}

/// One coupling: as long as the layout stays.
struct Coupling {
    publisher: Publisher,
    array: ArrayId,
    header: Vec<u64>,
}

impl Coupling {
    /// Publishes the plate in the layout of these columns. Collective.
    fn open(rank: &Rank, options: &Options, number: usize, columns: &[u64]) -> Result<Self> {
        let sizes: Vec<String> = columns.iter().map(u64::to_string).collect();
        let (size, ranks) = (options.plate.size, columns.len());
        let layout: Layout =
            format!("(*, gen_block({})) on 1x{ranks} of {size}x{size}", sizes.join(",")).parse()?;
        let mut publisher = Publisher::new(Job::of(&rank.comm, DEADLINE)?, options.coupling());
        let array = publisher.publish("temperature", &layout, ElementType::of::<f64>())?;
        publisher.open(&options.meeting(number)?)?;
        // A viewer that has got all steps of a coupling knows by their number whether another one follows.
        let header = [&[options.plate.steps], columns].concat();
        Ok(Self { publisher, array, header })
    }

    fn put(&mut self, step: u64, strip: &Strip) -> Result<()> {
        self.publisher.put(self.array, step, bytemuck::cast_slice(&self.header), &[&strip.cells])
    }

    /// Ends this coupling; the viewer takes what waits, and comes to the next one. Collective.
    fn follow(&mut self, next: Self) -> Result<()> {
        std::mem::replace(self, next).publisher.finish()?;
        self.publisher.wait_for(1)
    }
}

/// Runs the simulation on one rank.
pub fn produce(rank: &Rank, options: &Options) -> Result<Produced> {
    let (plate, ranks, own) = (options.plate, rank.comm.size(), rank.comm.rank());
    let mut columns = options.equal_columns(ranks);
    let mut strip = Strip::new(rank, plate, &columns)?;
    let link = strip.halo.measure()?;
    let mut balance = Balance::new(rank, options.policy, &columns, link)?;
    let mut coupling = Coupling::open(rank, options, 0, &columns)?;
    coupling.publisher.wait_for(1)?;
    let (begin, mut moves) = (Instant::now(), Vec::new());
    for step in 0..plate.steps {
        let took = strip.step(step, options.wait(own, step))?;
        coupling.put(step, &strip)?;
        let steps = [step + 1, plate.steps - step - 1];
        let Some(due) = balance.after_step(rank, &columns, took, steps)? else { continue };
        let (predicted, moving) = (due.predicted, Instant::now());
        columns = due.carry_out(rank, &mut strip)?;
        let (moving, reopening) = (moving.elapsed(), Instant::now());
        coupling.follow(Coupling::open(rank, options, moves.len() + 1, &columns)?)?;
        let reopening = reopening.elapsed();
        balance.learn(rank, (moving + reopening).saturating_sub(predicted))?;
        moves.push(Moved {
            after_step: step,
            columns: columns.clone(),
            predicted_seconds: predicted.as_secs_f64(),
            moving_seconds: moving.as_secs_f64(),
            reopening_seconds: reopening.as_secs_f64(),
        });
    }
    let seconds = begin.elapsed().as_secs_f64();
    coupling.publisher.finish()?;
    if options.verify {
        strip.verify()?;
    }
    let [equal, best] = model(options, ranks)?;
    Ok(Produced {
        seconds,
        seconds_per_step: seconds / plate.steps as f64,
        equal_seconds_per_step: equal,
        balanced_seconds_per_step: best,
        moves,
        columns,
        verified: options.verify,
    })
}

/// What the waits take in a step, in the mean of all steps: with equal columns, and with the best in each step, moved for nothing.
fn model(options: &Options, ranks: usize) -> Result<[Option<f64>; 2]> {
    let nanoseconds = |rank: usize, step: u64| options.wait(rank, step).as_nanos() as u64;
    let equal = options.equal_columns(ranks);
    let [mut with_equal, mut with_best] = [Duration::ZERO; 2];
    for step in 0..options.plate.steps {
        let slowness: Vec<u64> = (0..ranks).map(|rank| nanoseconds(rank, step)).collect();
        if slowness.contains(&0) {
            return Ok([None; 2]);
        }
        let best = balanced(options.plate.size as u64, &slowness)?;
        with_equal += Duration::from_nanos(step_time(&equal, &slowness));
        with_best += Duration::from_nanos(step_time(&best, &slowness));
    }
    Ok([with_equal, with_best].map(|all| Some(all.as_secs_f64() / options.plate.steps as f64)))
}
