//! Who owes how many elements to whom.
//!
//! A redistribution is a product over the axes, so its traffic is kept as one small table for each axis and
//! multiplied when a message is asked for. Nothing of size P x Q exists unless somebody lists all messages, and
//! one rank's messages need no table at all.

use crate::classes::Classes;
use crate::error::{Error, Result};
use crate::overlap::{Method, Overlap, Sides};
use crate::problem::{Problem, multiply};

/// A table of one axis holds at most so many pairs of processes: a gigabyte.
const MOST_PAIRS: u128 = 1 << 26;

/// All processes of one axis together may have so many runs: seconds of work.
const MOST_RUNS: u128 = 1 << 30;

/// So many elements from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// The rank that sends.
    pub from: u64,
    /// The rank that receives.
    pub to: u64,
    /// Elements in the message.
    pub elems: u64,
}

/// The traffic of a problem.
///
/// ```
/// use reshard_plan::{Problem, Traffic};
/// let problem = Problem::new("2x2/64x64 of 256x256".parse()?, "1x4/32x32 of 256x256".parse()?)?;
/// let traffic = Traffic::new(&problem);
/// assert_eq!(traffic.elems(0, 1)?, 128 * 64);
/// assert_eq!(traffic.table()?.message_count(), 4 * 2);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Traffic<'a> {
    problem: &'a Problem,
    method: Method,
}

impl<'a> Traffic<'a> {
    /// The traffic of a problem. Costs nothing until something is asked.
    pub fn new(problem: &'a Problem) -> Self {
        Self { problem, method: Method::default() }
    }

    /// The same by another method.
    #[must_use]
    pub fn by(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// What a rank sends, by receiver; nothing if it is not part of the source.
    pub fn sent_by(&self, rank: u64) -> Result<Vec<Message>> {
        if !self.problem.from().grid().contains(rank) {
            return Ok(Vec::new());
        }
        let shares = self.problem.sends(rank, self.method)?.shares(self.problem.to().grid());
        Ok(shares.into_iter().map(|(to, elems)| Message { from: rank, to, elems }).collect())
    }

    /// What a rank receives, by sender; nothing if it is not part of the destination.
    pub fn received_by(&self, rank: u64) -> Result<Vec<Message>> {
        if !self.problem.to().grid().contains(rank) {
            return Ok(Vec::new());
        }
        let shares = self.problem.receives(rank, self.method)?.shares(self.problem.from().grid());
        Ok(shares.into_iter().map(|(from, elems)| Message { from, to: rank, elems }).collect())
    }

    /// How many elements one rank owes another.
    pub fn elems(&self, from: u64, to: u64) -> Result<u64> {
        let (senders, receivers) = (self.problem.from(), self.problem.to());
        if !senders.grid().contains(from) || !receivers.grid().contains(to) {
            return Ok(0);
        }
        let (from, to) = (senders.coords(from)?, receivers.coords(to)?);
        let mut elems = 1;
        for (dim, &process) in from.iter().enumerate() {
            let overlap = Overlap::by(self.method, &self.problem.sides(dim), process)?;
            elems *= overlap.with_peer(to[self.problem.lands()[dim]]).elems();
        }
        Ok(elems)
    }

    /// The tables of all axes, from which any message is a few multiplications. Refused where they would not
    /// fit in memory, or not be done in seconds; one rank's messages can still be asked for.
    pub fn table(&self) -> Result<Table<'a>> {
        let axes = (0..self.problem.from().dims())
            .map(|dim| {
                let sides = self.problem.sides(dim);
                let (pairs, runs) = (most_pairs(&sides), sides.most_runs());
                if pairs > MOST_PAIRS || runs > MOST_RUNS {
                    return Err(Error::too_large(format!(
                        "along dimension {dim} up to {pairs} pairs of processes share up to {runs} runs of elements, \
                         too many to hold for all ranks at once; ask for one rank at a time"
                    )));
                }
                (0..sides.here().axis.procs())
                    .map(|process| Ok(Overlap::by(self.method, &sides, process)?.shares()))
                    .collect()
            })
            .collect::<Result<Vec<Vec<_>>>>()?;
        Ok(Table { problem: self.problem, axes })
    }
}

/// At most so many pairs of processes share anything along one axis: exact for whole periods.
fn most_pairs(sides: &Sides<'_>) -> u128 {
    let (here, there) = (u128::from(sides.here().axis.procs()), u128::from(sides.there().axis.procs()));
    let pairs = Classes::new(sides).map_or(here.saturating_mul(there), |classes| classes.pairs());
    pairs.min(u128::from(sides.extent()))
}

/// The traffic of all ranks, one table for each axis.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    problem: &'a Problem,
    /// For each source axis and process: (peer process, elements), ascending.
    axes: Vec<Vec<Vec<(u64, u64)>>>,
}

impl Table<'_> {
    /// Number of messages, without listing them: the product over the axes.
    pub fn message_count(&self) -> u128 {
        self.axes.iter().map(|rows| rows.iter().map(|row| row.len() as u128).sum::<u128>()).product()
    }

    /// What a rank sends, by receiver.
    pub fn sent_by(&self, rank: u64) -> Vec<Message> {
        let Some(coords) = self.problem.from().grid().coords(rank) else { return Vec::new() };
        let rows: Vec<&[(u64, u64)]> =
            self.axes.iter().zip(&coords).map(|(rows, &process)| rows[process as usize].as_slice()).collect();
        let shares = multiply(&rows, self.problem.lands(), self.problem.to().grid());
        shares.into_iter().map(|(to, elems)| Message { from: rank, to, elems }).collect()
    }

    /// Every message, by sender in the source grid's order and then by receiver.
    pub fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.problem.from().grid().ranks().flat_map(|rank| self.sent_by(rank))
    }
}
