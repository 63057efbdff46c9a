//! Schedules turned round: what each rank has to do, step by step.
//!
//! Wherever ranks are threads or processes, and however letters travel, this is what they follow.

use crate::schedule::{self, ClosedForm, Schedule, Strategy};
use reshard_kernel::exchange::{Fragment, MessageSet};
use reshard_plan::{Message, Plan, Problem, Result, Traffic};
use std::ops::Range;

/// So many messages are no longer scheduled by every rank for all: that takes it more than a few hundredths of a second.
const MANY: u128 = 1 << 14;

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
    pub sends: Vec<Fragment>,
    /// All it receives.
    pub receives: Vec<Fragment>,
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

impl Program {
    fn new(barriers: bool) -> Self {
        Self { meets: barriers, ..Self::default() }
    }

    /// A step with nothing in it yet, or the last if it is that. Steps come in order; where all ranks meet after each, none is
    /// left out.
    fn step(&mut self, number: u64) -> &mut Step {
        let first = match self.steps.last() {
            Some(last) if self.meets => last.number + 1,
            None if self.meets => 0,
            Some(last) if last.number == number => number + 1,
            _ => number,
        };
        let (sent, received) = (self.sends.len(), self.receives.len());
        let empty = |number| Step { number, sends: sent..sent, receives: received..received };
        self.steps.extend((first..=number).map(empty));
        self.steps.last_mut().expect("there is one now, if there was none")
    }

    fn send(&mut self, number: u64, parcel: Fragment) {
        self.step(number).sends.end += 1;
        self.sends.push(parcel);
    }

    fn receive(&mut self, number: u64, parcel: Fragment) {
        self.step(number).receives.end += 1;
        self.receives.push(parcel);
    }

    /// So many steps there are, of all ranks.
    fn end(&mut self, steps: u64) {
        self.all_steps = steps;
        if self.meets && steps > 0 {
            self.step(steps - 1);
        }
    }
}

/// Turns what schedules say into parcels. Messages may be cut: so many positions of each went in earlier steps.
struct Cutter<'c> {
    cargo: &'c MessageSet,
    gone: Vec<u64>,
}

impl<'c> Cutter<'c> {
    fn new(cargo: &'c MessageSet) -> Self {
        Self { cargo, gone: vec![0; cargo.messages().len()] }
    }

    /// What goes of a message; nothing if the cargo does not have it, as it is another rank's, stays where it is, or is a
    /// box of a triangle without an element.
    fn next(&mut self, group: usize, part: &Message) -> Option<Fragment> {
        let message = self.cargo.find(group, part.from, part.to)?;
        let begin = self.gone[message];
        self.gone[message] += part.elems;
        Some(Fragment { message, positions: begin..self.gone[message] })
    }
}

/// The programs of all ranks: the schedules one after the other. Steps in which a rank has nothing to do are left out
/// unless all ranks meet after each.
pub fn of_ranks(cargo: &MessageSet, schedules: &[Schedule], barriers: bool) -> Vec<Program> {
    let mut programs: Vec<Program> = cargo.ranks().iter().map(|_| Program::new(barriers)).collect();
    let mut cutter = Cutter::new(cargo);
    let mut number = 0;
    for (group, schedule) in schedules.iter().enumerate() {
        for step in schedule.steps() {
            for part in &step.messages {
                let Some(parcel) = cutter.next(group, part) else { continue };
                let (from, to) = (cargo.messages()[parcel.message].from, cargo.messages()[parcel.message].to);
                programs[from].send(number, parcel.clone());
                programs[to].receive(number, parcel);
            }
            number += 1;
        }
    }
    programs.iter_mut().for_each(|program| program.end(number));
    programs
}

/// The program of one rank, of which the cargo is. Where a formula has the step of every message it looks at nobody else's.
pub fn of_rank(
    plan: &Plan,
    groups: &[Vec<usize>],
    cargo: &MessageSet,
    rank: u64,
    options: &MessagesOptions,
) -> Result<Program> {
    let mut program = Program::new(options.barriers);
    let mut cutter = Cutter::new(cargo);
    let mut before = 0;
    for (group, arrays) in groups.iter().enumerate() {
        let problem = plan.arrays()[arrays[0]].wanted().problem();
        let mut add = |step: u64, part: &Message| {
            let Some(parcel) = cutter.next(group, part) else { return };
            if part.from == rank {
                program.send(before + step, parcel);
            } else {
                program.receive(before + step, parcel);
            }
        };
        if let Some(form) = formula_of(problem, options)? {
            form.of_rank(problem, rank)?.iter().for_each(|(step, part)| add(*step, part));
            before += form.steps();
        } else {
            let schedule = schedule_of(problem, options)?;
            for (number, step) in (0..).zip(schedule.steps()) {
                step.messages.iter().for_each(|part| add(number, part));
            }
            before += schedule.num_steps();
        }
    }
    program.end(before);
    Ok(program)
}

/// Arrays that move alike share their messages: such groups.
pub fn groups_of(plan: &Plan) -> Vec<Vec<usize>> {
    let problem = |array: usize| plan.arrays()[array].wanted().problem();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for array in 0..plan.arrays().len() {
        match groups.iter_mut().find(|group| problem(group[0]) == problem(array)) {
            Some(group) => group.push(array),
            None => groups.push(vec![array]),
        }
    }
    groups
}

/// The schedule of each group.
pub fn schedules_of(plan: &Plan, groups: &[Vec<usize>], options: &MessagesOptions) -> Result<Vec<Schedule>> {
    let of_group = |group: &Vec<usize>| schedule_of(plan.arrays()[group[0]].wanted().problem(), options);
    groups.iter().map(of_group).collect()
}

fn schedule_of(problem: &Problem, options: &MessagesOptions) -> Result<Schedule> {
    Schedule::with(
        problem,
        &schedule::Options {
            strategy: options.strategy,
            shared_ranks: shares_ranks(problem),
            ..options.schedule
        },
    )
}

/// The formula by which each rank may go alone, if there is one: where it comes to the same as a schedule of all ranks, and
/// where that would take long. There it may have a few steps more: it counts what a rank keeps as a message, and what a
/// short array has no message for as if it had. Without barriers between steps that matters little.
fn formula_of(problem: &Problem, options: &MessagesOptions) -> Result<Option<ClosedForm>> {
    if options.strategy != Strategy::Optimal {
        return Ok(None);
    }
    let form = ClosedForm::new(problem)?.filter(ClosedForm::is_optimal);
    if !shares_ranks(problem) && form.is_some() {
        return Ok(form);
    }
    // Those that do not fit into a table are many.
    if Traffic::new(problem).table().is_ok_and(|table| table.message_count() < MANY) {
        return Ok(None);
    }
    if form.is_some() || options.barriers {
        return Ok(form);
    }
    // A pattern that is too long for a formula has none.
    Ok(ClosedForm::of_pattern(problem).unwrap_or(None))
}

/// A rank is on both sides. Where none is it comes to the same, and schedules by formula are at hand.
fn shares_ranks(problem: &Problem) -> bool {
    let [from, to] = [problem.from(), problem.to()].map(|side| side.grid().sorted_ranks());
    from.iter().any(|rank| to.binary_search(rank).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reshard_plan::{Layout, Move, Order};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    fn plan(from: &str, to: &str) -> Arc<Plan> {
        let layout = |text: &str| Layout::new(text.parse().unwrap(), Order::ColMajor);
        Arc::new(Plan::new(vec![Move::new(layout(from), layout(to)).unwrap()]).unwrap())
    }

    /// By step: sends and receives as sender, receiver and positions.
    type Spelled = Vec<(u64, Vec<(u64, u64, Range<u64>)>, Vec<(u64, u64, Range<u64>)>)>;

    fn spelled(cargo: &MessageSet, program: &Program) -> Spelled {
        let ends = |parcel: &Fragment| {
            let message = &cargo.messages()[parcel.message];
            (cargo.ranks()[message.from], cargo.ranks()[message.to], parcel.positions.clone())
        };
        let of_step = |step: &Step| {
            let sends = program.sends[step.sends.clone()].iter().map(ends).collect();
            let receives = program.receives[step.receives.clone()].iter().map(ends).collect();
            (step.number, sends, receives)
        };
        program.steps.iter().map(of_step).collect()
    }

    fn alone(plan: &Arc<Plan>, rank: u64, options: &MessagesOptions) -> (Spelled, u64) {
        let groups = groups_of(plan);
        let cargo = MessageSet::of_rank(Arc::clone(plan), &groups, rank);
        let program = of_rank(plan, &groups, &cargo, rank, options).unwrap();
        (spelled(&cargo, &program), program.all_steps)
    }

    #[test]
    fn a_rank_alone_has_the_program_it_has_among_all() {
        let cases = [
            // Shared ranks; others by formula; a short window, irregular axes, and nothing at all.
            ("4x4/2x3 of 50x70", "2x8/5x1 of 50x70"),
            ("3/2 of 120", "4/3 ranks=10,11,12,13 of 120"),
            ("5/7 of 31", "3/2 ranks=20,21,22 of 31"),
            ("(gen_block(3,9,1)) on 3 of 13", "3/2 of 13"),
            ("3/2 of 0", "4/3 of 0"),
        ];
        for (from, to) in cases {
            for strategy in [Strategy::Optimal, Strategy::Split, Strategy::Async, Strategy::Eager] {
                for barriers in [false, true] {
                    let options = MessagesOptions { strategy, barriers, ..MessagesOptions::default() };
                    let plan = plan(from, to);
                    let groups = groups_of(&plan);
                    let cargo = MessageSet::new(Arc::clone(&plan), &groups);
                    let schedules = schedules_of(&plan, &groups, &options).unwrap();
                    let programs = of_ranks(&cargo, &schedules, barriers);
                    for (&rank, program) in cargo.ranks().iter().zip(&programs) {
                        let among = (spelled(&cargo, program), program.all_steps);
                        assert_eq!(
                            alone(&plan, rank, &options),
                            among,
                            "{from} -> {to}, {strategy}, rank {rank}"
                        );
                    }
                    let (steps, all_steps) = alone(&plan, 1_000, &options);
                    assert!(
                        steps.iter().all(|step| step.1.is_empty() && step.2.is_empty()),
                        "a rank outside"
                    );
                    assert_eq!(all_steps, programs.first().map_or(0, |program| program.all_steps));
                }
            }
        }
    }

    #[test]
    fn many_ranks_each_by_formula_agree() {
        // 143 ranks on both sides, all pairs: of whole periods, and of an array too short for one.
        for shape in ["5005x5005", "1000x1000"] {
            let plan = plan(&format!("13x11/5x7 of {shape}"), &format!("11x13/7x5 of {shape}"));
            let options = MessagesOptions::default();
            let problem = plan.arrays()[0].wanted().problem();
            let form = formula_of(problem, &options).unwrap().expect("there are many");
            let mut sent = BTreeMap::new();
            let mut received = BTreeMap::new();
            for rank in plan.ranks() {
                let (steps, all_steps) = alone(&plan, rank, &options);
                assert_eq!(all_steps, form.steps());
                for (step, sends, receives) in steps {
                    assert!(step < all_steps && sends.len() <= 1 && receives.len() <= 1, "one port each way");
                    sent.extend(
                        sends.into_iter().map(|(from, to, positions)| ((from, to), (step, positions))),
                    );
                    received.extend(
                        receives.into_iter().map(|(from, to, positions)| ((from, to), (step, positions))),
                    );
                }
            }
            assert_eq!(sent, received, "both ends of one mind");
            let table = Traffic::new(problem).table().unwrap();
            let wanted: BTreeSet<_> = table.messages().filter(|message| message.from != message.to).collect();
            assert!(wanted.len() > 16_000, "{} messages", wanted.len());
            let moved: BTreeSet<_> = sent
                .iter()
                .map(|(&(from, to), (_, positions))| {
                    assert_eq!(positions.start, 0);
                    Message { from, to, elems: positions.end }
                })
                .collect();
            assert_eq!(moved, wanted);
        }
    }
}
