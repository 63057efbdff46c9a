//! Programs: schedules seen from each rank, as what it sends and receives, step by step.
//!
//! All engines that send messages follow them, whether ranks are threads or processes, and however fragments are sent.

use crate::level::Level;
use crate::schedule::{self, ClosedForm, Schedule, Strategy};
use reshard_kernel::exchange::{MessageRange, MessageSet};
use reshard_plan::{Message, Plan, Problem, Result, Traffic};
use std::ops::Range;

/// With at least this many messages, a rank does not schedule those of all ranks: that takes more than a few hundredths of a
/// second.
const MIN_CLOSED_FORM_MESSAGES: u128 = 1 << 14;

/// How messages are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessagesOptions {
    /// The scheduling strategy.
    pub strategy: Strategy,
    /// Parameters of the strategy: `in_flight`, `alpha`, `beta`, `most_steps`. The engine sets the other two: the strategy is
    /// the field above, and a rank is one process as sender and as receiver.
    pub schedule: schedule::Options,
    /// Memory limit in bytes for all ranks together, besides plan and data. With less memory, fragments are smaller; a limit
    /// too small for one element of each sender is an error.
    pub memory: Option<u64>,
    /// A barrier of all ranks after each step. Without, each rank continues as soon as it has finished its own step.
    pub barriers: bool,
    /// The instruction set level with which messages are packed and unpacked; `None` for the best of this processor.
    pub level: Option<Level>,
}

impl MessagesOptions {
    /// Sets the scheduling strategy.
    #[must_use]
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// Sets the parameters of the strategy.
    #[must_use]
    pub fn with_schedule(self, schedule: schedule::Options) -> Self {
        Self { schedule, ..self }
    }

    /// Sets the memory limit in bytes for all ranks together.
    #[must_use]
    pub fn with_memory(self, memory: impl Into<Option<u64>>) -> Self {
        Self { memory: memory.into(), ..self }
    }

    /// Puts a barrier of all ranks after each step, or none.
    #[must_use]
    pub fn with_barriers(self, barriers: bool) -> Self {
        Self { barriers, ..self }
    }

    /// Sets the instruction set level; `None` for the best of this processor.
    #[must_use]
    pub fn with_level(self, level: impl Into<Option<Level>>) -> Self {
        Self { level: level.into(), ..self }
    }
}

/// All that one rank sends and receives.
#[derive(Default)]
pub struct Program {
    /// The steps in which the rank has something to do.
    pub steps: Vec<Step>,
    /// All ranges of messages it sends; a step has a contiguous part of the list.
    pub sends: Vec<MessageRange>,
    /// All ranges of messages it receives; a step has a contiguous part of the list.
    pub receives: Vec<MessageRange>,
    /// There is a barrier of all ranks after each step.
    pub barriers: bool,
    /// Number of steps of all ranks.
    pub all_steps: u64,
}

/// One step of one rank.
pub struct Step {
    /// Its number in the whole run.
    pub number: u64,
    /// Indices into [`Program::sends`].
    pub sends: Range<usize>,
    /// Indices into [`Program::receives`].
    pub receives: Range<usize>,
}

impl Program {
    fn new(barriers: bool) -> Self {
        Self { barriers, ..Self::default() }
    }

    /// Returns step `number`, appended as an empty step if it is not the last one already. Steps are asked for in ascending
    /// order; with barriers, the steps in between are appended, too.
    fn step(&mut self, number: u64) -> &mut Step {
        let first = match self.steps.last() {
            Some(last) if self.barriers => last.number + 1,
            None if self.barriers => 0,
            Some(last) if last.number == number => number + 1,
            _ => number,
        };
        let (sent, received) = (self.sends.len(), self.receives.len());
        let empty = |number| Step { number, sends: sent..sent, receives: received..received };
        self.steps.extend((first..=number).map(empty));
        self.steps.last_mut().expect("there is one now, if there was none")
    }

    fn send(&mut self, number: u64, range: MessageRange) {
        self.step(number).sends.end += 1;
        self.sends.push(range);
    }

    fn receive(&mut self, number: u64, range: MessageRange) {
        self.step(number).receives.end += 1;
        self.receives.push(range);
    }

    /// Ends the program: all ranks together have `steps` steps.
    fn end(&mut self, steps: u64) {
        self.all_steps = steps;
        if self.barriers && steps > 0 {
            self.step(steps - 1);
        }
    }
}

/// Turns the messages of schedule steps into ranges. A schedule may split a message over several steps.
struct Cutter<'c> {
    messages: &'c MessageSet,
    /// For each message, the positions sent in earlier steps.
    sent: Vec<u64>,
}

impl<'c> Cutter<'c> {
    fn new(messages: &'c MessageSet) -> Self {
        Self { messages, sent: vec![0; messages.messages().len()] }
    }

    /// Returns the next range of a message; `None` if the set does not have the message, because it is another rank's, stays
    /// on its rank, or has no element of the triangle.
    fn next(&mut self, group: usize, part: &Message) -> Option<MessageRange> {
        let message = self.messages.find(group, part.from, part.to)?;
        let begin = self.sent[message];
        self.sent[message] += part.elems;
        Some(MessageRange { message, positions: begin..self.sent[message] })
    }
}

/// Returns the programs of all ranks: the schedules one after the other. Steps in which a rank has nothing to do are left
/// out, unless there are barriers.
pub fn of_ranks(messages: &MessageSet, schedules: &[Schedule], barriers: bool) -> Vec<Program> {
    let mut programs: Vec<Program> = messages.ranks().iter().map(|_| Program::new(barriers)).collect();
    let mut cutter = Cutter::new(messages);
    let mut number = 0;
    for (group, schedule) in schedules.iter().enumerate() {
        for step in schedule.steps() {
            for part in &step.messages {
                let Some(range) = cutter.next(group, part) else { continue };
                let (from, to) =
                    (messages.messages()[range.message].from, messages.messages()[range.message].to);
                programs[from].send(number, range.clone());
                programs[to].receive(number, range);
            }
            number += 1;
        }
    }
    programs.iter_mut().for_each(|program| program.end(number));
    programs
}

/// Returns the program of one rank; `messages` must be that rank's. With a closed form, no other rank's messages are listed.
pub fn of_rank(
    plan: &Plan,
    groups: &[Vec<usize>],
    messages: &MessageSet,
    rank: u64,
    options: &MessagesOptions,
) -> Result<Program> {
    let mut program = Program::new(options.barriers);
    let mut cutter = Cutter::new(messages);
    let mut before = 0;
    for (group, arrays) in groups.iter().enumerate() {
        let problem = plan.arrays()[arrays[0]].wanted().problem();
        let mut add = |step: u64, part: &Message| {
            let Some(range) = cutter.next(group, part) else { return };
            if part.from == rank {
                program.send(before + step, range);
            } else {
                program.receive(before + step, range);
            }
        };
        if let Some(form) = closed_form_of(problem, options)? {
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

/// Groups the arrays with equal problems: their data is sent in common messages.
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

/// Returns the schedule of each group.
pub fn schedules_of(plan: &Plan, groups: &[Vec<usize>], options: &MessagesOptions) -> Result<Vec<Schedule>> {
    let of_group = |group: &Vec<usize>| schedule_of(plan.arrays()[group[0]].wanted().problem(), options);
    groups.iter().map(of_group).collect()
}

fn schedule_of(problem: &Problem, options: &MessagesOptions) -> Result<Schedule> {
    Schedule::with(
        problem,
        &options.schedule.with_strategy(options.strategy).with_shared_ranks(shares_ranks(problem)),
    )
}

/// Returns the closed form from which each rank computes its own steps, if there is one: where it equals a schedule of all
/// ranks, and where computing that schedule would take long. In the second case it may have a few steps more: it counts what
/// a rank keeps as a message, and also messages that are empty because the array is short. Without barriers that matters
/// little.
fn closed_form_of(problem: &Problem, options: &MessagesOptions) -> Result<Option<ClosedForm>> {
    if options.strategy != Strategy::Optimal {
        return Ok(None);
    }
    let form = ClosedForm::new(problem)?.filter(ClosedForm::is_optimal);
    if !shares_ranks(problem) && form.is_some() {
        return Ok(form);
    }
    // Messages that do not fit into a table are too many.
    if Traffic::new(problem).table().is_ok_and(|table| table.message_count() < MIN_CLOSED_FORM_MESSAGES) {
        return Ok(None);
    }
    if form.is_some() || options.barriers {
        return Ok(form);
    }
    // A pattern that is too long for a closed form has none.
    Ok(ClosedForm::of_pattern(problem).unwrap_or(None))
}

/// True if a rank is both a source and a destination. If none is, sharing makes no difference, and closed forms apply.
fn shares_ranks(problem: &Problem) -> bool {
    // Two jobs, say: known without listing their ranks.
    if let (Some(from), Some(to)) = (problem.from().grid().rank_range(), problem.to().grid().rank_range()) {
        return from.start.max(to.start) < from.end.min(to.end);
    }
    let [from, to] = [problem.from(), problem.to()].map(|side| side.grid().sorted_ranks());
    from.iter().any(|rank| to.binary_search(rank).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reshard_plan::{Layout, MemoryOrder, Move};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    fn plan(from: &str, to: &str) -> Arc<Plan> {
        let layout = |text: &str| Layout::new(text.parse().unwrap(), MemoryOrder::ColMajor);
        Arc::new(Plan::new(vec![Move::of::<f64>(layout(from), layout(to)).unwrap()]).unwrap())
    }

    /// For each step: its number, sends and receives, as sender, receiver and positions.
    type StepList = Vec<(u64, Vec<(u64, u64, Range<u64>)>, Vec<(u64, u64, Range<u64>)>)>;

    fn steps_of(messages: &MessageSet, program: &Program) -> StepList {
        let endpoints = |range: &MessageRange| {
            let message = &messages.messages()[range.message];
            (messages.ranks()[message.from], messages.ranks()[message.to], range.positions.clone())
        };
        let of_step = |step: &Step| {
            let sends = program.sends[step.sends.clone()].iter().map(endpoints).collect();
            let receives = program.receives[step.receives.clone()].iter().map(endpoints).collect();
            (step.number, sends, receives)
        };
        program.steps.iter().map(of_step).collect()
    }

    fn program_of(plan: &Arc<Plan>, rank: u64, options: &MessagesOptions) -> (StepList, u64) {
        let groups = groups_of(plan);
        let messages = MessageSet::of_rank(Arc::clone(plan), &groups, rank, reshard_kernel::Level::best());
        let program = of_rank(plan, &groups, &messages, rank, options).unwrap();
        (steps_of(&messages, &program), program.all_steps)
    }

    #[test]
    fn one_rank_computes_the_program_it_has_among_all() {
        let cases = [
            // Shared ranks; disjoint ranks (closed form); a short array; irregular axes; no elements.
            ("4x4/2x3 of 50x70", "2x8/5x1 of 50x70"),
            ("3/2 of 120", "4/3 ranks=10,11,12,13 of 120"),
            ("5/7 of 31", "3/2 ranks=20,21,22 of 31"),
            ("(gen_block(3,9,1)) on 3 of 13", "3/2 of 13"),
            ("3/2 of 0", "4/3 of 0"),
        ];
        for (from, to) in cases {
            for strategy in [Strategy::Optimal, Strategy::Split, Strategy::Async, Strategy::Eager] {
                for barriers in [false, true] {
                    let options = MessagesOptions::default().with_strategy(strategy).with_barriers(barriers);
                    let plan = plan(from, to);
                    let groups = groups_of(&plan);
                    let messages = MessageSet::new(Arc::clone(&plan), &groups, reshard_kernel::Level::best());
                    let schedules = schedules_of(&plan, &groups, &options).unwrap();
                    let programs = of_ranks(&messages, &schedules, barriers);
                    for (&rank, program) in messages.ranks().iter().zip(&programs) {
                        let expected = (steps_of(&messages, program), program.all_steps);
                        assert_eq!(
                            program_of(&plan, rank, &options),
                            expected,
                            "{from} -> {to}, {strategy}, rank {rank}"
                        );
                    }
                    let (steps, all_steps) = program_of(&plan, 1_000, &options);
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
    fn many_ranks_agree_by_closed_form() {
        // 143 ranks on both sides, all pairs: of whole periods, and of an array too short for one.
        for shape in ["858x858", "400x400"] {
            let plan = plan(&format!("13x11/2x3 of {shape}"), &format!("11x13/3x2 of {shape}"));
            let options = MessagesOptions::default();
            let problem = plan.arrays()[0].wanted().problem();
            let form = closed_form_of(problem, &options).unwrap().expect("there are many");
            let mut sent = BTreeMap::new();
            let mut received = BTreeMap::new();
            for rank in plan.ranks() {
                let (steps, all_steps) = program_of(&plan, rank, &options);
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
            assert_eq!(sent, received, "senders and receivers agree");
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
