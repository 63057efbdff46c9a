//! Schedules turned round: what each rank has to do, step by step.
//!
//! Wherever ranks are threads or processes, and however letters travel, this is what they follow.

use crate::kernel::cargo::Cargo;
use crate::kernel::hands::Parcel;
use crate::schedule::{self, Schedule, Strategy};
use reshard_plan::{Plan, Problem, Result};
use std::ops::Range;

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagesOptions {
    /// In which order.
    pub strategy: Strategy,
    /// What the strategy may assume: `in_flight`, `alpha`, `beta`, `most_steps`. The other two are the engine's to say: the
    /// strategy is the one above, and a rank is one process on both sides.
    pub schedule: schedule::Options,
    /// At most so many bytes of memory for all ranks together, beside plan and data. With less, messages travel in smaller
    /// pieces; too little for one element of each sender is refused.
    pub memory: Option<u64>,
    /// All ranks meet after each step. Without, each goes on as soon as it has done its own.
    pub barriers: bool,
}

/// All that one rank sends and receives.
#[derive(Default)]
pub struct Program {
    /// The steps in which it has something to do.
    pub steps: Vec<Step>,
    /// All it sends: a step's are a range of them.
    pub sends: Vec<Parcel>,
    /// All it receives.
    pub receives: Vec<Parcel>,
    /// All ranks meet after each step.
    pub meets: bool,
    /// Steps of all ranks.
    pub all_steps: u64,
}

/// One step of one rank.
pub struct Step {
    /// Its number in the whole run.
    pub number: u64,
    /// Which of the rank's parcels it sends.
    pub sends: Range<usize>,
    /// Which it receives.
    pub receives: Range<usize>,
}

/// The programs of all ranks: the schedules one after the other. Steps in which a rank has nothing to do are left out
/// unless all ranks meet after each.
pub fn of_ranks(cargo: &Cargo, schedules: &[Schedule], barriers: bool) -> Vec<Program> {
    let program = |_| Program { meets: barriers, ..Program::default() };
    let mut programs: Vec<Program> = cargo.ranks().iter().map(program).collect();
    // Messages may be cut: so many positions of each went in earlier steps.
    let mut gone = vec![0; cargo.messages().len()];
    let mut number = 0;
    for (group, schedule) in schedules.iter().enumerate() {
        for step in schedule.steps() {
            let before: Vec<(usize, usize)> =
                programs.iter().map(|program| (program.sends.len(), program.receives.len())).collect();
            for part in &step.messages {
                // Of a triangle some boxes hold nothing.
                let Some(message) = cargo.find(group, part.from, part.to) else { continue };
                let begin = gone[message];
                gone[message] += part.elems;
                let parcel = Parcel { message, positions: begin..gone[message] };
                let (from, to) = (cargo.messages()[message].from, cargo.messages()[message].to);
                programs[from].sends.push(parcel.clone());
                programs[to].receives.push(parcel);
            }
            for (program, (sends, receives)) in programs.iter_mut().zip(before) {
                let (sends, receives) = (sends..program.sends.len(), receives..program.receives.len());
                if barriers || !sends.is_empty() || !receives.is_empty() {
                    program.steps.push(Step { number, sends, receives });
                }
            }
            number += 1;
        }
    }
    programs.iter_mut().for_each(|program| program.all_steps = number);
    programs
}

/// Arrays that move alike share their messages: such groups, and the schedule of each.
pub fn schedules_of(plan: &Plan, options: &MessagesOptions) -> Result<(Vec<Vec<usize>>, Vec<Schedule>)> {
    let problem = |array: usize| plan.arrays()[array].wanted().problem();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for array in 0..plan.arrays().len() {
        match groups.iter_mut().find(|group| problem(group[0]) == problem(array)) {
            Some(group) => group.push(array),
            None => groups.push(vec![array]),
        }
    }
    let schedules = groups.iter().map(|group| schedule_of(problem(group[0]), options));
    let schedules = schedules.collect::<Result<_>>()?;
    Ok((groups, schedules))
}

fn schedule_of(problem: &Problem, options: &MessagesOptions) -> Result<Schedule> {
    let [from, to] = [problem.from(), problem.to()].map(|side| side.grid().sorted_ranks());
    // Where no rank is on both sides it comes to the same, and schedules by formula are at hand.
    let shared_ranks = from.iter().any(|rank| to.binary_search(rank).is_ok());
    Schedule::with(
        problem,
        &schedule::Options { strategy: options.strategy, shared_ranks, ..options.schedule },
    )
}
