//! Simulates an optimal schedule in one dimension for millions of ranks, without a list of its messages.
//!
//! The closed form gives any rank's messages and their steps, and the classes their lengths, so nothing needs to be kept
//! but the state that later messages depend on. With barriers that is the longest message of each step. Without them it is
//! one time for each port: taking the messages step by step, each starts when its sender's and its receiver's port are both free.
//! Step by step is not the order in which ranks list their messages, so they are sorted into a table of some steps at a
//! time, all ranks' messages are visited once for each such window, and the table's size bounds the memory.
//!
//! The result is exactly that of the engine for this schedule on a flat switch, one port each way.

use super::Busy;
use crate::classes::Classes;
use crate::cost::{CostModel, Duplex};
use crate::error::{Error, Result};
use crate::memory;
use crate::problem::Problem;
use crate::schedule::ClosedForm;

/// The default number of messages in the table, of eight bytes each.
const DEFAULT_TABLE_MESSAGES: u64 = 1 << 24;

/// The most ranks on either side.
const MAX_RANKS: u64 = 1 << 24;

/// The most visits to messages, all windows together: some minutes.
const MAX_VISITS: u128 = 1 << 34;

/// The most classes whose lengths are kept; with more they are computed for each message.
const MAX_KEPT_CLASSES: u128 = 1 << 20;

/// Marks a sender in the table that has no message in this step.
const NO_RECEIVER: u32 = u32::MAX;

/// A redistribution that can be run without listing its messages: one dimension, block-cyclic, in whole periods.
///
/// ```
/// use reshard_plan::{Pattern, Problem, one_period};
/// use reshard_plan::cost::CostModel;
/// use reshard_plan::simulate::Stream;
/// let (from, to): (Pattern, Pattern) = ("20000/8".parse()?, "20000/25".parse()?);
/// let shape = one_period(&from, &to)?;
/// let problem = Problem::new(from.over(&shape)?, to.over(&shape)?)?;
/// let stream = Stream::new(&problem)?.expect("whole periods of block-cyclic layouts");
/// assert_eq!((stream.steps(), stream.messages()), (50, 640_000));
/// let run = stream.run(&CostModel::default(), false)?;
/// assert!(run.bound <= run.makespan && run.makespan <= run.predicted);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    form: ClosedForm,
    classes: Classes,
    senders: u64,
    receivers: u64,
    periods: u64,
    elems: u64,
    messages: u128,
    table: u64,
}

/// The result of a streamed run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streamed {
    /// Time at which all messages had arrived, in seconds.
    pub makespan: f64,
    /// The schedule's time with a barrier after each step, in seconds.
    pub predicted: f64,
    /// Lower bound of the time: the busiest port's time, in seconds.
    pub bound: f64,
    /// How busy the ports were.
    pub busy: Busy,
    /// Bytes of memory the run needed, by calculation.
    pub bytes: u64,
}

impl Stream {
    /// The stream of a problem; `None` if it needs a list: more dimensions, irregular axes, parts of a period.
    pub fn new(problem: &Problem) -> Result<Option<Self>> {
        if problem.from().dims() != 1 || problem.elems() == 0 {
            return Ok(None);
        }
        let sides = problem.sides(0);
        let Some(form) = ClosedForm::new(problem)?.filter(ClosedForm::is_optimal) else { return Ok(None) };
        let Some(classes) = Classes::new(&sides) else { return Ok(None) };
        let Some(period) = u64::try_from(classes.period()).ok().filter(|&p| sides.extent().is_multiple_of(p))
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            form,
            classes,
            senders: sides.here().axis.procs(),
            receivers: sides.there().axis.procs(),
            periods: sides.extent() / period,
            elems: sides.extent(),
            messages: classes.pairs(),
            table: DEFAULT_TABLE_MESSAGES,
        }))
    }

    /// Sets the number of messages in the table, of eight bytes each; at least one step of all senders. The smaller it is, the
    /// more often all messages are visited. The default is 2^24.
    #[must_use]
    pub fn with_table(self, messages: u64) -> Self {
        Self { table: messages, ..self }
    }

    /// Number of messages.
    pub fn messages(&self) -> u128 {
        self.messages
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.form.steps()
    }

    /// Steps that are in the table at a time.
    fn window(&self) -> u64 {
        (self.table / self.senders).clamp(1, self.steps())
    }

    /// Runs all ranks, one port each way, on a flat switch; with a barrier after each step or without. Fails if it
    /// would take too long or too much memory.
    pub fn run(&self, cost: &CostModel, barriers: bool) -> Result<Streamed> {
        if cost.ports() != 1 || cost.duplex() != Duplex::Full {
            return Err(Error::unsupported(
                "a run without a list of its messages needs one sending and one receiving port for each rank; \
                 take those, or fewer ranks",
            ));
        }
        let most = self.senders.max(self.receivers);
        if most > MAX_RANKS {
            return Err(Error::too_large(format!(
                "{most} ranks are to be simulated, and at most {MAX_RANKS} can be; take fewer"
            )));
        }
        let windows = if barriers { 0 } else { self.steps().div_ceil(self.window()) };
        let visits = self.messages.saturating_mul(u128::from(windows) + 1);
        if visits > MAX_VISITS {
            return Err(Error::too_large(format!(
                "the {} messages would be walked through {} times, which takes too long; take fewer ranks",
                self.messages,
                windows + 1
            )));
        }
        const WHAT: &str = "a run without a list of its messages";
        let kept = if self.classes.count() <= MAX_KEPT_CLASSES { self.classes.count() as u64 } else { 0 };
        memory::check(self.bytes(barriers, kept).into(), WHAT)?;
        let lengths = Lengths::new(&self.classes, self.periods);
        let survey = self.survey(&lengths);
        let mut predicted = 0.0;
        for &longest in &survey.longest {
            // Every step of an optimal schedule has a message.
            predicted += cost.message(longest);
            predicted += cost.barrier();
        }
        let makespan = if barriers { predicted } else { self.free_running(cost, &lengths) };
        let of_port = |messages: u64, ranks: u64| cost.port(messages, self.elems / ranks);
        let sending = of_port(survey.most_sent, self.senders);
        let receiving = of_port(survey.most_received, self.receivers);
        let all = cost.port(self.messages as u64, self.elems);
        let fraction = |ranks: u64| if makespan > 0.0 { all / (ranks as f64 * makespan) } else { 0.0 };
        let busy = Busy { sending: fraction(self.senders), receiving: fraction(self.receivers) };
        let bytes = self.bytes(barriers, lengths.kept.len() as u64);
        Ok(Streamed { makespan, predicted, bound: sending.max(receiving), busy, bytes })
    }

    /// Bytes of the vectors of a run.
    fn bytes(&self, barriers: bool, kept: u64) -> u64 {
        let surveyed = self.steps() * 8 + self.receivers * 4;
        let running = if barriers { 0 } else { (self.senders + self.receivers) * 8 + self.entries() * 8 };
        kept * 8 + surveyed.max(self.steps() * 8 + running)
    }

    /// Messages the table has room for.
    fn entries(&self) -> u64 {
        self.window() * self.senders
    }

    /// Visits all messages once: finds the longest of each step, and the most messages of any rank.
    fn survey(&self, lengths: &Lengths<'_>) -> Survey {
        let mut longest = vec![0_u64; self.steps() as usize];
        let mut received = vec![0_u32; self.receivers as usize];
        let mut most_sent = 0;
        for sender in 0..self.senders {
            let mut sent = 0;
            self.form.sends_by_class(sender, |receiver, step, class| {
                let longest = &mut longest[step as usize];
                *longest = (*longest).max(lengths.of(class));
                received[receiver as usize] += 1;
                sent += 1;
            });
            most_sent = most_sent.max(sent);
        }
        let most_received = received.into_iter().max().unwrap_or(0).into();
        Survey { longest, most_sent, most_received }
    }

    /// Runs without barriers.
    fn free_running(&self, cost: &CostModel, lengths: &Lengths<'_>) -> f64 {
        let (senders, steps) = (self.senders as usize, self.steps());
        let mut sender_free = vec![0.0_f64; senders];
        let mut receiver_free = vec![0.0_f64; self.receivers as usize];
        // Receiver and class, by step of the window and sender.
        let mut table = vec![(NO_RECEIVER, 0_u32); self.entries() as usize];
        let mut makespan = 0.0_f64;
        for first in (0..steps).step_by(self.window() as usize) {
            let window = first..steps.min(first + self.window());
            table.fill((NO_RECEIVER, 0));
            for sender in 0..senders {
                self.form.sends_by_class(sender as u64, |receiver, step, class| {
                    if window.contains(&step) {
                        table[(step - first) as usize * senders + sender] = (receiver as u32, class as u32);
                    }
                });
            }
            for row in table.chunks(senders).take((window.end - window.start) as usize) {
                for (sender_free, &(receiver, class)) in sender_free.iter_mut().zip(row) {
                    if receiver == NO_RECEIVER {
                        continue;
                    }
                    let receiver_free = &mut receiver_free[receiver as usize];
                    let end = sender_free.max(*receiver_free) + cost.message(lengths.of(class.into()));
                    (*sender_free, *receiver_free) = (end, end);
                    makespan = makespan.max(end);
                }
            }
        }
        makespan
    }
}

struct Survey {
    longest: Vec<u64>,
    most_sent: u64,
    most_received: u64,
}

/// The length of a message by its class.
struct Lengths<'a> {
    classes: &'a Classes,
    periods: u64,
    kept: Vec<u64>,
}

impl<'a> Lengths<'a> {
    fn new(classes: &'a Classes, periods: u64) -> Self {
        let mut lengths = Self { classes, periods, kept: Vec::new() };
        if classes.count() <= MAX_KEPT_CLASSES {
            lengths.kept = (0..classes.count() as u64).map(|class| lengths.of(class)).collect();
        }
        lengths
    }

    fn of(&self, class: u64) -> u64 {
        match self.kept.get(class as usize) {
            Some(&elems) => elems,
            // No message is longer than the array.
            None => self.classes.volume(class.into()) as u64 * self.periods,
        }
    }
}
