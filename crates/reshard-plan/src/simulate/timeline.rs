//! The result of a run: when each message left and arrived, and how busy the ports were.

use std::collections::BTreeMap;

/// One message of a run, in seconds from its beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sent {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// Elements in the message.
    pub elems: u64,
    /// Time at which both ends were ready and it started.
    pub start: f64,
    /// Time at which both ends were done with it.
    pub end: f64,
}

/// The fraction of a run in which the average port was busy, over the ranks that send or receive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// The fraction of the sending ports, over the ranks that send.
    pub sending: f64,
    /// The fraction of the receiving ports, over the ranks that receive.
    pub receiving: f64,
}

/// Every message of a run with its times.
///
/// ```
/// use reshard_plan::cost::CostModel;
/// use reshard_plan::simulate::{Machine, Op, Program, run};
/// let machine = Machine { cost: CostModel::new(1.0, 1.0)?, ..Machine::default() };
/// let send = Program { rank: 0, ops: vec![Op::Send { to: 1, elems: 4 }, Op::Send { to: 2, elems: 2 }] };
/// let receive = |rank, elems| Program { rank, ops: vec![Op::Receive { from: 0, elems }] };
/// let timeline = run(&[send, receive(1, 4), receive(2, 2)], &machine)?;
/// assert_eq!(timeline.makespan(), 5.0 + 3.0);
/// assert_eq!((timeline.messages()[1].start, timeline.messages()[1].end), (5.0, 8.0));
/// assert_eq!(timeline.busy().sending, 1.0);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    messages: Vec<Sent>,
    makespan: f64,
    ports: u64,
}

impl Timeline {
    pub(super) fn new(mut messages: Vec<Sent>, makespan: f64, ports: u64) -> Self {
        messages.sort_unstable_by(|a, b| {
            let ends = |sent: &Sent| (sent.from, sent.to);
            let order = a.start.total_cmp(&b.start).then(ends(a).cmp(&ends(b)));
            order.then(a.end.total_cmp(&b.end)).then(a.elems.cmp(&b.elems))
        });
        Self { messages, makespan, ports }
    }

    /// Every message, by its start, then by sender and receiver.
    pub fn messages(&self) -> &[Sent] {
        &self.messages
    }

    /// Time at which everything was done, the last barrier included.
    pub fn makespan(&self) -> f64 {
        self.makespan
    }

    /// The fractions of the run in which ports were busy.
    pub fn busy(&self) -> Busy {
        let fraction = |rank: fn(&Sent) -> u64| {
            let mut of_rank: BTreeMap<u64, f64> = BTreeMap::new();
            for message in &self.messages {
                *of_rank.entry(rank(message)).or_insert(0.0) += message.end - message.start;
            }
            let all = of_rank.len() as f64 * self.ports as f64 * self.makespan;
            if all > 0.0 { of_rank.into_values().sum::<f64>() / all } else { 0.0 }
        };
        Busy { sending: fraction(|message| message.from), receiving: fraction(|message| message.to) }
    }
}
