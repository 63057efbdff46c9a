//! Who copies which units, and who may read and write what meanwhile.
//!
//! Numbers that only grow say how far each rank is: see [`ProgressBoard`]. A source may be read once its owner has begun the run, a
//! destination written to once its owner has; units are taken by tickets and counted when they are copied. A rank has received
//! everything when all units of the lots that lead to it are copied and nobody has taken back what was read for it.
//!
//! A rank runs ahead of those that read its source, for a few runs: what it was called with stays on the board so long. One that
//! is further ahead waits before it begins.

use super::super::word::SharedMemory;
use super::super::{Progress, named, other_call};
use super::progress::{Home, KEPT, Milestone, ProgressBoard, TaskCounter};
use super::readers::Readers;
use crate::shm::NodeMemory;
use reshard_plan::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Units with the same sources and destinations.
#[derive(Hash)]
pub struct GroupState {
    /// Its number for this rank.
    pub number: usize,
    pub units: u64,
    pub home: Home,
    /// Ranks it leads from or to: they must have begun.
    pub ranks: Vec<usize>,
    /// Ranks it leads to.
    pub receivers: Vec<usize>,
}

impl GroupState {
    fn tickets<'a, M: SharedMemory>(&self, board: &'a ProgressBoard<M>) -> TaskCounter<'a, M::Word> {
        board.tickets(self.home)
    }
}

/// All that a rank knows of.
pub struct TaskGroups<M = NodeMemory> {
    /// Those that lead to this rank, then all others.
    lots: Vec<GroupState>,
    own: usize,
    /// For each, the last run in which all its ranks had begun, in the same call.
    ready: Vec<u64>,
    /// Ranks whose sources this one needs; itself is not among them.
    owners: Vec<usize>,
    board: Arc<ProgressBoard<M>>,
    readers: Arc<Readers<M>>,
    run: u64,
    call: u64,
    /// The others know that this rank has begun.
    begun: bool,
    /// All of this rank's destination is there.
    received: bool,
}

impl<M: SharedMemory> TaskGroups<M> {
    /// The first `own` of them lead to this rank.
    pub fn new(
        lots: Vec<GroupState>,
        own: usize,
        owners: Vec<usize>,
        board: Arc<ProgressBoard<M>>,
        readers: Arc<Readers<M>>,
    ) -> Self {
        let ready = vec![0; lots.len()];
        Self { lots, own, ready, owners, board, readers, run: 0, call: 0, begun: false, received: false }
    }

    /// Those that this rank's source is lent to.
    pub fn readers(&self) -> &Arc<Readers<M>> {
        &self.readers
    }

    pub fn begin(&mut self, call: u64) {
        self.run += 1;
        self.call = call;
        (self.begun, self.received) = (false, false);
        self.readers.begin(self.run);
        self.tell_begun();
    }

    /// Tells the others that this rank has begun, unless one of them still needs what is written down at the same place.
    fn tell_begun(&mut self) -> bool {
        if !self.begun && self.readers.are_through(self.run.saturating_sub(KEPT)) {
            self.board.begin(self.run, self.call);
            self.begun = true;
        }
        self.begun
    }

    /// The next run is none for this rank: it does not begin it, and nobody need wait for it.
    pub fn skip(&mut self) {
        self.run += 1;
        (self.begun, self.received) = (true, false);
        self.readers.begin(self.run);
        self.close();
        self.leave();
        self.readers.end(self.run);
    }

    /// Notices what the others did. Whether this rank has begun for them, too: if not, there is nothing it could do.
    pub fn look(&mut self) -> Result<bool> {
        if !self.tell_begun() {
            return Ok(false);
        }
        if !self.received && self.unfinished().next().is_none() {
            self.receive()?;
        }
        Ok(true)
    }

    /// Copies a unit, if there is one: it is the caller's alone, its sources and destinations are as those they belong to want
    /// them, and stay so until it is copied. Exceptions: one who took its source back or gave up without waiting for that has
    /// told the others, or does not look at its destination any more.
    pub fn copy(&mut self, copy: impl FnOnce(&GroupState, u64)) -> Result<Progress> {
        let Some((at, unit)) = self.take()? else {
            if self.received {
                return Ok(Progress::Done);
            }
            return self.hopeless().map_or(Ok(Progress::Waits), Err);
        };
        let lot = &self.lots[at];
        self.board.work_on(Some(lot.home));
        let dropped = Dropped { board: &self.board, lot: lot.home };
        copy(lot, unit);
        std::mem::forget(dropped);
        self.board.put_down(lot.tickets(&self.board));
        self.board.work_on(None);
        Ok(Progress::Moved)
    }

    /// Takes a unit whose ranks have all begun: the lot's place, and the unit.
    fn take(&mut self) -> Result<Option<(usize, u64)>> {
        let Self { lots, own, ready, board, run, call, .. } = self;
        for (at, (lot, ready)) in lots.iter().zip(ready).enumerate() {
            let tickets = lot.tickets(board);
            if tickets.next(*run, lot.units).is_none() {
                continue;
            }
            if *ready < *run {
                if board.behind(&lot.ranks, Milestone::Begun, *run).next().is_some() {
                    continue;
                }
                let other = lot.ranks.iter().find(|&&rank| board.is_called_otherwise(rank, *run, *call));
                match other {
                    Some(&rank) if at < *own => return Err(other_call(rank, board.rank())),
                    // Whom it concerns finds out.
                    Some(_) => continue,
                    None => *ready = *run,
                }
            }
            if let Some(unit) = tickets.take(*run, lot.units) {
                return Ok(Some((at, unit)));
            }
        }
        Ok(None)
    }

    /// Own lots of which not all units are copied.
    fn unfinished(&self) -> impl Iterator<Item = &GroupState> {
        self.lots[..self.own].iter().filter(|lot| !lot.tickets(&self.board).are_through(self.run, lot.units))
    }

    /// Why own lots will not be finished: somebody panicked over a unit, or a receiver has given up.
    fn hopeless(&self) -> Option<Error> {
        let gave_up = |rank: &&usize| self.board.read(**rank, Milestone::GivenUp) == self.run;
        self.unfinished().find_map(|lot| {
            let dropped = self.board.dropped_by(lot.home).map(panicked);
            dropped.or_else(|| lot.receivers.iter().find(gave_up).map(|&rank| given_up(rank)))
        })
    }

    /// Everything is there, if it could be read in time.
    fn receive(&mut self) -> Result<()> {
        let taken_back = |rank: &&usize| self.board.read(**rank, Milestone::TakenBack) >= self.run;
        if let Some(rank) = self.owners.iter().find(taken_back) {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "rank {rank} waited in vain for this one and took its shared part back; the destination is an unfinished \
                     mixture"
                ),
            ));
        }
        self.board.write(Milestone::Received, self.run);
        self.readers.end(self.run);
        self.received = true;
        Ok(())
    }

    /// Gives the run up: nobody takes a unit that leads to this rank any more. Says how many were taken, for
    /// [`TaskGroups::are_back`].
    pub fn close(&mut self) -> Vec<u64> {
        self.board.write(Milestone::GivenUp, self.run);
        let own = self.lots[..self.own].iter();
        own.map(|lot| lot.tickets(&self.board).close(self.run, lot.units)).collect()
    }

    /// Whether all units that were taken are copied.
    pub fn are_back(&self, taken: &[u64]) -> bool {
        let mut own = self.lots.iter().zip(taken);
        own.all(|(lot, &taken)| lot.tickets(&self.board).are_back(taken))
    }

    /// When they are: nobody writes to this rank's destinations any more.
    pub fn end(&self) {
        self.readers.end(self.run);
    }

    /// After that, or when it was waited for in vain: nobody needs to wait for what is not read any more.
    pub fn leave(&mut self) {
        self.board.write(Milestone::Received, self.run);
    }

    /// Whom the run waits for.
    pub fn late(&self) -> String {
        if !self.begun {
            return named(self.readers.behind(self.run.saturating_sub(KEPT)));
        }
        let absent =
            |lot: &GroupState| self.board.behind(&lot.ranks, Milestone::Begun, self.run).collect::<Vec<_>>();
        let late: Vec<usize> = self.unfinished().flat_map(absent).collect();
        if !late.is_empty() {
            return named(late);
        }
        let busy = |rank: &usize| self.unfinished().any(|lot| self.board.works_on(*rank, lot.home));
        named((0..self.board.ranks()).filter(busy))
    }

    /// Bytes of this rank's board.
    pub fn board_bytes(&self) -> u64 {
        let at_home = self.lots.iter().filter(|lot| lot.home.0 == self.board.rank()).count();
        ProgressBoard::bytes(at_home) as u64
    }
}

/// A unit that is being copied. If that panics, nobody waits for it.
struct Dropped<'a, M: SharedMemory> {
    board: &'a ProgressBoard<M>,
    lot: Home,
}

impl<M: SharedMemory> Drop for Dropped<'_, M> {
    fn drop(&mut self) {
        self.board.drop_work(self.lot);
    }
}

fn panicked(rank: usize) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "rank {rank} panicked while it copied something that this one receives; the destination is an unfinished mixture"
        ),
    )
}

fn given_up(rank: usize) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "rank {rank} gave the run up, and what it receives is copied together with what this one does; the destination is an \
             unfinished mixture"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU64;

    /// The words of all ranks, within one process.
    struct Page {
        rank: usize,
        words: Arc<[[AtomicU64; 64]; 3]>,
    }

    impl SharedMemory for Page {
        type Word = AtomicU64;

        fn rank(&self) -> usize {
            self.rank
        }

        fn ranks(&self) -> usize {
            self.words.len()
        }

        fn word(&self, rank: usize, at: usize) -> &AtomicU64 {
            &self.words[rank][at / 8]
        }
    }

    /// Rank 0 owns what rank 1 receives, in two units, and rank 2 helps.
    fn lots(rank: usize, words: &Arc<[[AtomicU64; 64]; 3]>) -> TaskGroups<Page> {
        let lot = GroupState { number: 0, units: 2, home: (1, 0), ranks: vec![0, 1], receivers: vec![1] };
        let board = Arc::new(ProgressBoard::within(Page { rank, words: Arc::clone(words) }));
        let readers = if rank == 0 { vec![1] } else { Vec::new() };
        let readers = Arc::new(Readers::new(Arc::clone(&board), readers, None, false));
        TaskGroups::new(vec![lot], usize::from(rank == 1), vec![0], board, readers)
    }

    fn page() -> Arc<[[AtomicU64; 64]; 3]> {
        Arc::new(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }

    #[test]
    fn nobody_waits_for_a_unit_over_which_another_panicked() {
        let words = page();
        let [mut owner, mut receiver, mut helper] = [0, 1, 2].map(|rank| lots(rank, &words));
        owner.begin(7);
        receiver.begin(7);
        helper.begin(7);
        // Over another lot, though it may have the same number for that rank.
        receiver.board.drop_work((2, 0));
        assert!(receiver.hopeless().is_none());
        let panicked = catch_unwind(AssertUnwindSafe(|| helper.copy(|_, _| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert!(receiver.look().unwrap());
        assert_eq!(receiver.copy(|_, unit| assert_eq!(unit, 1)).unwrap(), Progress::Moved);
        let said = receiver.copy(|_, _| panic!("all are taken")).unwrap_err().to_string();
        assert!(said.contains("rank 2 panicked while it copied"), "{said}");
    }

    #[test]
    fn who_is_called_otherwise_is_named_by_who_receives_and_not_helped() {
        let words = page();
        let [mut owner, mut receiver, mut helper] = [0, 1, 2].map(|rank| lots(rank, &words));
        owner.begin(8);
        receiver.begin(7);
        helper.begin(8);
        for run in 2..=KEPT {
            owner.begin(7);
            assert!(owner.look().unwrap(), "run {run}");
        }
        // Its reader has not seen what it began with.
        owner.begin(7);
        owner.begin(7);
        assert!(!owner.look().unwrap());
        assert_eq!(owner.late(), "rank 1");
        assert_eq!(helper.copy(|_, _| panic!("other arrays")).unwrap(), Progress::Waits);
        let said = receiver.copy(|_, _| panic!("other arrays")).unwrap_err().to_string();
        assert_eq!(
            said,
            "rank 0 gives other alpha, beta or arrays in this run than rank 1; give the same on all ranks; the destination is an \
             unfinished mixture"
        );
        receiver.close();
        receiver.leave();
        assert!(!owner.look().unwrap(), "one further ahead");
    }
}
