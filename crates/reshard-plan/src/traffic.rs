//! The number of elements each rank sends to each other rank.
//!
//! A redistribution is a product over the axes, so its traffic is kept as one small table for each axis and
//! multiplied when a message is needed. Nothing of size P x Q exists unless all messages are listed, and
//! one rank's messages need no table at all.

use crate::classes::Classes;
use crate::error::{Error, Result};
use crate::grid::{MAX_DIMS, RankOrder, elems_of};
use crate::memory;
use crate::overlap::{MAX_STEPS, Method, Overlap, Sides};
use crate::problem::{Problem, check_peers, multiply_copies};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The most processes in the table of one axis.
const MAX_PROCESSES: u64 = 1 << 24;

/// The most pairs of processes in the table of one axis: 256 MiB.
const MAX_PAIRS: u128 = 1 << 24;

/// The most runs of all processes of one axis together: seconds of work.
const MAX_RUNS: u128 = 1 << 30;

/// The name of a list of one rank's messages in errors.
const OF_ONE: &str = "the messages of one rank";

/// A number of elements from one rank to another.
///
/// ```
/// use reshard_plan::{Message, Problem, Traffic};
/// let problem = Problem::new("2/3 of 12".parse()?, "3/2 of 12".parse()?)?;
/// let table = Traffic::new(&problem).table()?;
/// let messages: Vec<Message> = table.messages().collect();
/// assert_eq!(messages[0], Message { from: 0, to: 0, elems: 4 });
/// assert_eq!(messages.iter().map(|message| message.elems).sum::<u64>(), 12);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// The sender.
    pub from: u64,
    /// The receiver.
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
    /// The traffic of a problem. Nothing is computed until a method is called.
    pub fn new(problem: &'a Problem) -> Self {
        Self { problem, method: Method::default() }
    }

    /// Sets the method that finds overlaps.
    #[must_use]
    pub fn by(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// The messages a rank sends, by receiver; none if it is not part of the source.
    pub fn sent_by(&self, rank: u64) -> Result<Vec<Message>> {
        if !self.problem.from().grid().contains(rank) {
            return Ok(Vec::new());
        }
        let shares = self.problem.sends(rank, self.method)?.shares(self.problem.to().grid())?;
        memory::listed(shares.into_iter().map(|(to, elems)| Message { from: rank, to, elems }), OF_ONE)
    }

    /// The messages a rank receives, by sender; none if it is not part of the destination.
    pub fn received_by(&self, rank: u64) -> Result<Vec<Message>> {
        if !self.problem.to().grid().contains(rank) {
            return Ok(Vec::new());
        }
        let shares = self.problem.receives(rank, self.method)?.shares(self.problem.from().grid())?;
        memory::listed(shares.into_iter().map(|(from, elems)| Message { from, to: rank, elems }), OF_ONE)
    }

    /// Number of elements one rank sends to another.
    pub fn elems(&self, from: u64, to: u64) -> Result<u64> {
        let (senders, receivers) = (self.problem.from(), self.problem.to());
        if !senders.grid().contains(from) || !receivers.grid().contains(to) {
            return Ok(0);
        }
        let (receiver, from, to) = (to, senders.coords(from)?, receivers.coords(to)?);
        if self.problem.copies().is_some_and(|copies| !copies.is_taken_by(receiver, &to, &from)) {
            return Ok(0);
        }
        let on_axis = |(dim, &process): (usize, &u64)| {
            let sides = self.problem.sides(dim);
            let overlap = Overlap::by(self.method, &sides, process)?;
            Ok(overlap.with_peer(sides.there().axis.part_of(to[self.problem.lands()[dim]])).elems())
        };
        Ok(elems_of(&from.iter().enumerate().map(on_axis).collect::<Result<Vec<_>>>()?))
    }

    /// The tables of all axes, from which any message is a few multiplications. Fails if they would not fit in memory, or
    /// would take more than seconds; one rank's messages can still be computed.
    pub fn table(&self) -> Result<Table<'a>> {
        let axes = (0..self.problem.from().dims())
            .map(|dim| {
                let sides = self.problem.sides(dim);
                let too_much = |what: String| {
                    Error::too_large(format!(
                        "along dimension {dim} {what}, too much to hold for all ranks at once; \
                         ask for one rank at a time"
                    ))
                };
                let busy = sides
                    .busy(MAX_PROCESSES)
                    .ok_or_else(|| too_much(format!("more than {MAX_PROCESSES} processes own elements")))?;
                let (pairs, runs) = (most_pairs(&sides), sides.most_runs(busy.len() as u64));
                let copies = sides.here().axis.copies();
                if copies > MAX_PROCESSES {
                    return Err(too_much(format!("more than {MAX_PROCESSES} processes own elements")));
                }
                if pairs > MAX_PAIRS || runs > MAX_RUNS {
                    return Err(too_much(format!(
                        "up to {pairs} pairs of processes share up to {runs} runs"
                    )));
                }
                let steps = self.method.steps_of(&sides, &busy);
                if steps > MAX_STEPS {
                    return Err(Error::too_large(format!(
                        "the method {} would take about {steps} steps for all ranks; use aspen, the default",
                        self.method
                    )));
                }
                let rows = busy.len() as u128 * size_of::<(u64, Row)>() as u128;
                let cells = pairs.min(runs) * size_of::<(u64, u64)>() as u128;
                memory::check(rows + cells, &format!("the table of dimension {dim}"))?;
                busy.into_iter()
                    .map(|process| Ok((process, Overlap::by(self.method, &sides, process)?.shares())))
                    .collect()
            })
            .collect::<Result<Vec<Vec<_>>>>()?;
        let copies = |dim: usize| self.problem.sides(dim).there().axis.copies();
        let longest = |(dim, rows): (usize, &Vec<(u64, Row)>)| {
            let longest = rows.iter().map(|(_, row)| row.len() as u64).max().unwrap_or(0);
            longest.saturating_mul(copies(dim))
        };
        // One rank at a time is multiplied out: its elements on each axis, and the messages they become.
        let peers = check_peers(&axes.iter().enumerate().map(longest).collect::<Vec<_>>())?;
        memory::check(u128::from(peers) * (16 + size_of::<Message>() as u128), OF_ONE)?;
        Ok(Table { problem: self.problem, axes, held_by: self.problem.receivers_of_copies() })
    }
}

/// An upper bound of the pairs of processes that share elements along one axis: exact for whole periods.
fn most_pairs(sides: &Sides<'_>) -> u128 {
    let (here, there) = (u128::from(sides.here().axis.parts()), u128::from(sides.there().axis.parts()));
    let pairs = Classes::new(sides).map_or(here.saturating_mul(there), |classes| classes.pairs());
    pairs.min(u128::from(sides.extent()))
}

/// The traffic of all ranks, one table for each axis.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    problem: &'a Problem,
    /// For each source axis: the processes that own anything, ascending, with (peer process, elements), ascending. Of a replicated
    /// axis, on either side, process 0 stands for all.
    axes: Vec<Vec<(u64, Row)>>,
    /// For each source axis the receivers that get all of it, if its destination is replicated; empty if none is.
    held_by: Vec<Option<Range<u64>>>,
}

/// The elements that one process shares with each of its peers on one axis.
type Row = Vec<(u64, u64)>;

impl Table<'_> {
    /// Number of messages, without listing them: the product over the axes. A receiver takes one copy of a replicated axis.
    pub fn message_count(&self) -> u128 {
        let on_axis = |(dim, rows): (usize, &Vec<(u64, Row)>)| {
            let receivers = u128::from(self.problem.sides(dim).there().axis.copies());
            rows.iter().map(|(_, row)| row.len() as u128).sum::<u128>().saturating_mul(receivers)
        };
        let counts: Vec<u128> = self.axes.iter().enumerate().map(on_axis).collect();
        if counts.contains(&0) { 0 } else { counts.into_iter().fold(1, u128::saturating_mul) }
    }

    /// The messages a rank sends, by receiver.
    pub fn sent_by(&self, rank: u64) -> Vec<Message> {
        let Some(coords) = self.problem.from().grid().coords(rank) else { return Vec::new() };
        let row = |(dim, rows): (usize, &Vec<(u64, Row)>)| {
            let part = self.problem.from().axes()[dim].part_of(coords[dim]);
            rows.binary_search_by_key(&part, |row| row.0).ok()
        };
        let rows: Option<Vec<usize>> = self.axes.iter().enumerate().map(row).collect();
        rows.map_or_else(Vec::new, |rows| self.sent_from(rank, &coords, &rows))
    }

    /// Every message, by sender in the source grid's order and then by receiver. Of a replicated source the receivers are listed first.
    pub fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        let takers = self.takers();
        let from = self.problem.from();
        let copies = |dim: usize| from.axes()[dim].copies() as usize;
        let sizes: Vec<usize> =
            self.axes.iter().enumerate().map(|(dim, rows)| rows.len() * copies(dim)).collect();
        let grid = from.grid();
        let senders: usize = if sizes.contains(&0) { 0 } else { sizes.iter().product() };
        (0..senders).flat_map(move |mut position| {
            // The senders that own elements, in the grid's order.
            let mut rows = vec![0; sizes.len()];
            let mut peel = |dim: usize| {
                rows[dim] = position % sizes[dim];
                position /= sizes[dim];
            };
            match grid.order() {
                RankOrder::RowMajor => (0..sizes.len()).rev().for_each(&mut peel),
                RankOrder::ColMajor => (0..sizes.len()).for_each(&mut peel),
            }
            let coord = |dim: usize| match from.axes()[dim].is_replicated() {
                true => std::mem::take(&mut rows[dim]) as u64,
                false => self.axes[dim][rows[dim]].0,
            };
            let coords: Vec<u64> = (0..self.axes.len()).map(coord).collect();
            let rank = grid.rank(&coords).expect("owners lie on their grid");
            match (&takers, self.problem.copies()) {
                (Some(takers), Some(copies)) => {
                    let takers = takers.get(&copies.at(&coords)).map_or(&[][..], Vec::as_slice);
                    takers.iter().filter_map(|&to| self.message(rank, &rows, to)).collect()
                }
                _ => self.sent_from(rank, &coords, &rows),
            }
        })
    }

    /// The receivers that take each copy of a replicated source, ascending: so that not every copy is asked about every receiver.
    fn takers(&self) -> Option<BTreeMap<[u64; MAX_DIMS], Vec<u64>>> {
        let copies = self.problem.copies()?;
        let peers: Vec<Row> = self
            .axes
            .iter()
            .map(|rows| {
                let peers: BTreeSet<u64> =
                    rows.iter().flat_map(|(_, row)| row.iter().map(|share| share.0)).collect();
                peers.into_iter().map(|peer| (peer, 1)).collect()
            })
            .collect();
        let peers: Vec<&[(u64, u64)]> = peers.iter().map(Vec::as_slice).collect();
        let grid = self.problem.to().grid();
        let mut takers: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for (rank, _) in multiply_copies(&peers, &self.held_by, self.problem.lands(), grid) {
            let coords = grid.coords(rank).expect("receivers lie on their grid");
            takers.entry(copies.taken_by(rank, &coords)).or_default().push(rank);
        }
        Some(takers)
    }

    /// The message to one receiver, if there is one.
    fn message(&self, from: u64, rows: &[usize], to: u64) -> Option<Message> {
        let coords = self.problem.to().grid().coords(to)?;
        let mut elems = 1;
        for (dim, (axis, &row)) in self.axes.iter().zip(rows).enumerate() {
            let to_dim = self.problem.lands()[dim];
            let peer = self.problem.to().axes()[to_dim].part_of(coords[to_dim]);
            let row = &axis[row].1;
            elems *= row[row.binary_search_by_key(&peer, |share| share.0).ok()?].1;
        }
        Some(Message { from, to, elems })
    }

    fn sent_from(&self, rank: u64, coords: &[u64], rows: &[usize]) -> Vec<Message> {
        let rows: Vec<&[(u64, u64)]> =
            self.axes.iter().zip(rows).map(|(axis, &row)| axis[row].1.as_slice()).collect();
        let (lands, receivers) = (self.problem.lands(), self.problem.to().grid());
        let mut shares = multiply_copies(&rows, &self.held_by, lands, receivers);
        if let Some(copies) = self.problem.copies() {
            copies.retain_takers(&mut shares, coords);
        }
        shares.into_iter().map(|(to, elems)| Message { from: rank, to, elems }).collect()
    }
}
