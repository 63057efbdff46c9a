//! What engines for rings run: a problem, a program for it and the bytes of an item, checked together.

use crate::solve::{Program, RingProblem, Side, check, solve};
use reshard_plan::error::counted;
use reshard_plan::{Error, ErrorKind, Result};

/// A ring problem, a program for it, and the size of its items: what the engines for rings run.
///
/// Each process keeps its items in one slice of the caller's memory with room for [`room`](Self::room) of them. The first
/// `loads[rank]` are there before a run, the first `targets[rank]` after it.
///
/// ```
/// use reshard_ring::{RingPlan, RingProblem};
/// let plan = RingPlan::solved(RingProblem::new(vec![5, 0, 1], vec![2, 2, 2])?, 8)?;
/// assert_eq!((plan.room(0), plan.room(1), plan.bytes()), (5, 2, 3 * 8)); // two to process 1, one to process 2
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPlan {
    problem: RingProblem,
    program: Program,
    item_bytes: usize,
    /// Items that each process receives: from the left, from the right.
    incoming: Vec<[u64; 2]>,
    /// Items for which each process needs room.
    rooms: Vec<u64>,
}

impl RingPlan {
    /// Plans the best known program of the problem (see [`solve`]), for items of `item_bytes` bytes.
    pub fn solved(problem: RingProblem, item_bytes: usize) -> Result<Self> {
        let program = solve(&problem)?.program().clone();
        Self::new(problem, program, item_bytes)
    }

    /// Plans a program of the caller's own. It must solve the problem; if items are in order, no link may carry items both
    /// ways, because engines keep the order of sends but not their times, and items would pass each other.
    pub fn new(problem: RingProblem, program: Program, item_bytes: usize) -> Result<Self> {
        check(&problem, &program)?;
        if item_bytes == 0 {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                "items of 0 bytes were given; an item has at least 1 byte",
            ));
        }
        let procs = problem.procs();
        let mut incoming = vec![[0; 2]; procs];
        for transfer in program.transfers() {
            let to = transfer.to(procs as u64) as usize;
            incoming[to][transfer.side.opposite().index()] += transfer.items;
        }
        let (mut rightwards, mut leftwards, mut both_ways) = (0, 0, false);
        for (rank, &[from_left, _]) in incoming.iter().enumerate() {
            let before = (rank + procs - 1) % procs;
            let from_right = incoming[before][Side::Right.index()];
            if from_left > 0 && from_right > 0 && problem.is_ordered() {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    format!(
                        "processes {before} and {rank} send each other items, which would pass each other on the way and break \
                         the order; send only the difference"
                    ),
                ));
            }
            both_ways |= from_left > 0 && from_right > 0;
            rightwards += usize::from(from_left > 0);
            leftwards += usize::from(from_right > 0);
        }
        // Flows without a cycle, not even one of two processes: a full process that is to receive has something to send, and
        // the last of a row of full processes would have nothing.
        let chains = !both_ways && rightwards < procs && leftwards < procs;
        let room = |(rank, from): (usize, &[u64; 2])| {
            let load = problem.loads()[rank];
            match from[0] + from[1] {
                0 => load,
                _ if chains => Program::enough_room(&problem, rank as u64),
                received => load.saturating_add(received),
            }
        };
        let rooms: Vec<u64> = incoming.iter().enumerate().map(room).collect();
        let max_room = rooms.iter().max().copied().unwrap_or(0);
        let fits = usize::try_from(max_room).ok().and_then(|room| room.checked_mul(item_bytes));
        if fits.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{max_room} items of {item_bytes} bytes in one process do not fit in any memory"),
            ));
        }
        Ok(Self { problem, program, item_bytes, incoming, rooms })
    }

    /// The problem that the program solves.
    pub fn problem(&self) -> &RingProblem {
        &self.problem
    }

    /// The sends and receives of all processes.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Number of processes.
    pub fn procs(&self) -> usize {
        self.rooms.len()
    }

    /// Bytes of an item.
    pub fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// Items for which a process needs room: [`Program::enough_room`], which says why there is then no deadlock, or its load
    /// if it receives nothing. Neighbours wait while it is full. (In a program of the caller's own whose flows go round the
    /// ring, or both ways over a link, each process has room for all that it ever receives.)
    ///
    /// # Panics
    /// If there is no such process.
    pub fn room(&self, rank: usize) -> usize {
        self.rooms[rank] as usize
    }

    /// Bytes of a process's slice: its room times the bytes of an item.
    pub fn room_bytes(&self, rank: usize) -> usize {
        self.room(rank) * self.item_bytes
    }

    /// Items that a process receives from `side`.
    pub(crate) fn incoming(&self, rank: usize, side: Side) -> usize {
        // At most all items of the program, whose sums fit: a process that sends items holds or receives them.
        usize::try_from(self.incoming[rank][side.index()]).unwrap_or(usize::MAX)
    }

    /// Items sent over all links, an item counted once for each link it crosses.
    pub fn hops(&self) -> u64 {
        self.program.transfers().iter().fold(0, |all, transfer| all.saturating_add(transfer.items))
    }

    /// Bytes sent over all links.
    pub fn bytes(&self) -> u64 {
        self.hops().saturating_mul(self.item_bytes as u64)
    }

    /// Fails unless there is a part for each process with room enough.
    pub(crate) fn check_parts<T, P: AsMut<[T]>>(&self, parts: &mut [P]) -> Result<()> {
        if parts.len() != self.procs() {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{} given for a ring of {}; give one for each",
                    if parts.len() == 1 {
                        "1 part was".to_string()
                    } else {
                        format!("{} parts were", parts.len())
                    },
                    counted(self.procs(), "process")
                ),
            ));
        }
        parts.iter_mut().enumerate().try_for_each(|(rank, part)| self.check_part(rank, part.as_mut()))
    }

    /// Fails unless `part` has room enough for process `rank`, and an item is a whole number of its values.
    pub fn check_part<T>(&self, rank: usize, part: &[T]) -> Result<()> {
        let (item, value, bytes) = (self.item_bytes, size_of::<T>(), size_of_val(part));
        if value == 0 || !item.is_multiple_of(value) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "values of {value} bytes were given for items of {item} bytes; an item must be a whole number of values"
                ),
            ));
        }
        if bytes < self.room_bytes(rank) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the part of process {rank} has {bytes} bytes; it needs room for {} items of {item} bytes, which are {} \
                     bytes",
                    self.room(rank),
                    self.room_bytes(rank)
                ),
            ));
        }
        Ok(())
    }
}
