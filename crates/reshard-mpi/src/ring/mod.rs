//! Rings between processes: every rank has its own items, sends to its two neighbours and receives from them.
//!
//! Items travel in letters, as in `RingMessages` of the library, whose `Share` says what a rank writes and reads. A rank has two
//! places for letters it sends and two for each link it receives from. A letter is sent so that it is done only when
//! the neighbour has begun to receive it, and a place to receive is offered only once what was there is read: so a
//! neighbour that is full makes a sender wait instead of filling MPI's memory.
//!
//! A receiver knows how many items come over a link, not in how many letters. It never offers a second place before it
//! knows how many items the letter in the first has brought, so none is left over when all have come.
//!
//! Why nobody waits for ever: as in the engine of threads that sends letters. A sender without a place waits for a neighbour
//! that has not read what it has, so is full, so has something to send.

use crate::agree::{Field, agree, agree_on_result, register};
use crate::ffi::comm::{Comm, LONGEST_MESSAGE};
use crate::ffi::library::is_forked;
use crate::ffi::wait::DEADLINE;
use crate::mover::{Backoff, rank_list};
use crate::owned::{Envelope, Slot};
use crate::private_comm::Registration;
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use reshard_ring::{Letters, Report, RingPlan, RingProblem, Share, Side};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Letters to the left and to the right have tags of their own: two neighbours can be the same rank.
const TAGS: u64 = 2;

/// Every so often that a rank finds nothing to do, it looks whether another has told that it cannot go on.
const LISTENS: u32 = 16;

const SIDES: [Side; 2] = [Side::Left, Side::Right];

/// What may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiRingOptions {
    /// At most so many bytes for the letters of all ranks together, kept or refused; what MPI itself takes is not counted.
    pub memory: Option<u64>,
    /// So long a rank waits for another before it gives up.
    pub deadline: Option<Duration>,
}

impl Default for MpiRingOptions {
    fn default() -> Self {
        Self { memory: None, deadline: Some(DEADLINE) }
    }
}

/// The engine for rings between processes.
///
/// Process `i` of the ring is rank `i` of the communicator; ranks beyond the ring make one and run it, too, with an empty
/// part.
///
/// ```no_run
/// use reshard_ring::RingProblem;
/// use reshard_mpi::{Mpi, MpiRing, MpiRingOptions};
/// let session = Mpi::load(None)?.init()?;
/// // Columns of 1000 doubles: 10, 20 and 30 of them become 20 each.
/// let problem = RingProblem::between_gen_blocks(&[10, 20, 30], &[20, 20, 20]);
/// let mut ring = MpiRing::of_problem(problem, 1000 * 8, session.world(), MpiRingOptions::default())?;
/// let mut columns = vec![0.0; ring.room() * 1000];
/// ring.run(&mut columns)?; // in place; as often as you like
/// # Ok::<(), reshard::Error>(())
/// ```
pub struct MpiRing {
    plan: Arc<RingPlan>,
    registration: Registration,
    limit: Option<Duration>,
    /// The node has more ranks than processors.
    oversubscribed: bool,
    scratch_bytes: u64,
    rank: Option<Rank>,
    /// Runs begun.
    runs: u64,
    /// Why nothing can be moved any more.
    broken: Option<Cow<'static, str>>,
    /// The others do not know.
    open: bool,
}

/// What a rank of the ring moves with.
struct Rank {
    share: Share,
    neighbours: [usize; 2],
    item_bytes: usize,
    going: Vec<Slot>,
    /// Where the last letter from each of these places went.
    went: Vec<Side>,
    open: Option<Open>,
    coming: [Coming; 2],
    letters: u64,
    bytes: u64,
    /// The engine, the run, and the first of the engine's tags.
    head: Envelope,
    tag: u32,
}

/// A letter that is being written: its place, where it goes, and what is written.
#[derive(Clone, Copy)]
struct Open {
    slot: usize,
    side: Side,
    written: usize,
}

/// What comes from one side.
struct Coming {
    slots: Vec<Slot>,
    /// Items, and those that are in no letter which has arrived.
    items: usize,
    awaited: usize,
    /// The place offered for the next letter.
    offered: Option<usize>,
    reading: Option<Reading>,
    /// Letters that have come, and letters that were sent to this side, in this run.
    come: u64,
    sent: u64,
}

/// A letter that is being read: its place, its bytes, and those that are read.
#[derive(Clone, Copy)]
struct Reading {
    slot: usize,
    bytes: usize,
    read: usize,
}

impl MpiRing {
    /// For a problem that this rank may have been unable to state: then all ranks are told why, instead of waiting for it.
    /// Solved on every rank, alike. All ranks must use the same of this and [`MpiRing::new`].
    pub fn of_problem(
        problem: Result<RingProblem>,
        item_bytes: usize,
        comm: &Comm,
        options: MpiRingOptions,
    ) -> Result<Self> {
        let plan = problem.and_then(|problem| RingPlan::solved(problem, item_bytes)).map(Arc::new);
        let private = comm.private_within(options.deadline)?;
        Self::new(agree_on_result("a plan", plan, &private, options.deadline)?, comm, options)
    }

    /// Ready to run the plan. Collective; ends alike on all ranks.
    pub fn new(plan: Arc<RingPlan>, comm: &Comm, options: MpiRingOptions) -> Result<Self> {
        let limit = options.deadline;
        let comm = comm.private_within(limit)?;
        let letters = Letters::within(options.memory, &plan, true, Envelope::BYTES);
        let proposal = comm.propose(0, TAGS);
        let local = check(&plan, &comm)
            .and(letters.as_ref().map(|_| ()).map_err(Clone::clone))
            .and(proposal.as_ref().map(|_| ()).map_err(Clone::clone));
        let proposed = agree(&comm, "a ring", &fields(&plan, &options), local, proposal.unwrap_or(0), limit)?;
        let registration = register(&comm, proposed, TAGS, limit)?;
        let letters = letters?;
        let in_ring = comm.rank() < plan.procs();
        let rank = in_ring.then(|| Rank::new(&plan, comm.rank(), &letters)).transpose();
        let rank = agree_on_result("letters", rank, &comm, limit)?;
        let scratch_bytes = if in_ring { letters.rank_bytes(&plan, comm.rank()) } else { 0 };
        let oversubscribed = comm.node(limit)?.is_oversubscribed();
        Ok(Self {
            plan,
            registration,
            limit,
            oversubscribed,
            scratch_bytes,
            rank,
            runs: 0,
            broken: None,
            open: false,
        })
    }

    /// What it runs.
    pub fn plan(&self) -> &Arc<RingPlan> {
        &self.plan
    }

    /// For so many items this rank's part needs room; 0 beyond the ring.
    pub fn room(&self) -> usize {
        self.rank.as_ref().map_or(0, |_| self.plan.room(self.registration.comm().rank()))
    }

    /// Bytes this rank takes beside plan and items: its letters.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// The first tag of its messages.
    #[doc(hidden)]
    pub fn tag(&self) -> u32 {
        self.registration.tag()
    }

    /// Moves the items, in place: this rank's part, with [room](Self::room) for what it has and gets. All ranks of the ring
    /// must call it. Says what this rank sent.
    pub fn run<T: Pod>(&mut self, part: &mut [T]) -> Result<Report> {
        let rank = self.registration.comm().rank();
        self.check()?;
        let begin = Instant::now();
        if self.rank.is_none() {
            return Ok(Report::of_rank(&self.plan, 0, 0, begin));
        }
        if let Err(error) = self.plan.check_part(rank, part) {
            // The others may be in the run.
            self.runs += 1;
            self.fail(&error);
            return Err(error);
        }
        // Until it has ended.
        (self.broken, self.open) = (Some("it was begun, and never ended".into()), true);
        self.runs += 1;
        let Self { registration, limit, oversubscribed, runs, .. } = self;
        let backoff = Backoff::in_place(*limit, *oversubscribed);
        let outcome = match &mut self.rank {
            Some(rank) => rank.run(registration, *runs, bytemuck::cast_slice_mut(part), backoff),
            None => Ok(()),
        };
        if let Err(error) = outcome {
            // What another rank has told, all know.
            match self.registration.check(self.runs, false) {
                Ok(()) => self.fail(&error),
                Err(_) => (self.broken, self.open) = (Some(error.to_string().into()), false),
            }
            return Err(error);
        }
        (self.broken, self.open) = (None, false);
        let (letters, bytes) = self.rank.as_ref().map_or((0, 0), |rank| (rank.letters, rank.bytes));
        Ok(Report::of_rank(&self.plan, bytes / self.plan.item_bytes() as u64, letters, begin))
    }

    /// Refuses if nothing can be moved any more.
    fn check(&mut self) -> Result<()> {
        self.registration.comm().mpi().check_open()?;
        if let Err(error) = self.registration.check(self.runs + 1, false) {
            self.broken = Some(error.to_string().into());
            return Err(error);
        }
        let Some(why) = &self.broken else { return Ok(()) };
        let error = Error::new(
            ErrorKind::Mpi,
            format!("an earlier run failed ({why}), and nothing more can be moved with it; make a new one"),
        );
        if self.open {
            self.fail(&error);
        }
        Err(error)
    }

    /// A run failed here: the others are told.
    fn fail(&mut self, error: &Error) {
        (self.broken, self.open) = (Some(error.to_string().into()), false);
        self.registration.tell(self.runs, &error.to_string());
    }
}

impl Drop for MpiRing {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if self.open {
            self.registration.tell(self.runs, "it panicked in the middle of the run");
        }
        // Of a run that failed, a letter may still be on its way.
        if !self.rank.as_mut().is_none_or(Rank::abandon) || self.broken.is_some() {
            self.registration.keep_tags();
        }
    }
}

impl Rank {
    fn new(plan: &RingPlan, rank: usize, letters: &Letters) -> Result<Self> {
        let slots = |bytes: usize| {
            let count = if bytes == 0 { 0 } else { letters.slots };
            (0..count).map(|_| Slot::new(bytes)).collect::<Result<Vec<Slot>>>()
        };
        let share = Share::new(plan, rank);
        let coming = |side: Side| -> Result<Coming> {
            let (slots, items) = (slots(letters.received_bytes(plan, rank, side))?, share.coming(side));
            Ok(Coming { slots, items, awaited: items, offered: None, reading: None, come: 0, sent: 0 })
        };
        Ok(Self {
            going: slots(letters.sent_bytes(plan, rank))?,
            went: vec![Side::Right; letters.slots],
            coming: [coming(Side::Left)?, coming(Side::Right)?],
            neighbours: SIDES.map(|side| side.of(rank as u64, plan.procs() as u64) as usize),
            item_bytes: plan.item_bytes(),
            share,
            open: None,
            letters: 0,
            bytes: 0,
            head: Envelope::default(),
            tag: 0,
        })
    }

    fn run(
        &mut self,
        registration: &Registration,
        run: u64,
        memory: &mut [u8],
        mut backoff: Backoff,
    ) -> Result<()> {
        let comm: &Comm = registration.comm();
        self.share.begin();
        (self.letters, self.bytes) = (0, 0);
        self.head = Envelope { engine: registration.number(), run, call: 0, sequence: 0 };
        self.tag = registration.tag();
        let mut waits = 0_u32;
        for coming in &mut self.coming {
            (coming.awaited, coming.come, coming.sent) = (coming.items, 0, 0);
        }
        while !self.is_over()? {
            if self.advance(comm, memory)? {
                backoff.reset();
            } else {
                waits = waits.wrapping_add(1);
                if waits.is_multiple_of(LISTENS) {
                    registration.check(run, true)?;
                }
                backoff.wait(|| self.late())?;
            }
        }
        self.share.settle(memory);
        Ok(())
    }

    /// All is read, and all that was sent is being received.
    fn is_over(&mut self) -> Result<bool> {
        if !self.share.is_over() {
            return Ok(false);
        }
        self.going.iter_mut().try_fold(true, |over, slot| Ok(slot.poll()?.is_some() && over))
    }

    /// Does what can be done now. Whether there was anything.
    fn advance(&mut self, comm: &Comm, memory: &mut [u8]) -> Result<bool> {
        let mut moved = false;
        for side in SIDES {
            moved |= self.read(comm, memory, side)?;
        }
        moved |= self.write(comm, memory)?;
        if !moved && let Some(open) = self.open.take() {
            self.send(comm, open)?;
            moved = true;
        }
        Ok(moved)
    }

    /// Reads what has come from a side, as far as there is room, and offers a place for more.
    fn read(&mut self, comm: &Comm, memory: &mut [u8], side: Side) -> Result<bool> {
        let (from, tag) = (self.neighbours[side.index()], self.tag + side.opposite().index() as u32);
        let Self { share, coming, item_bytes, head, .. } = self;
        let coming = &mut coming[side.index()];
        let mut moved = false;
        loop {
            if coming.reading.is_none()
                && let Some(slot) = coming.offered
                && let Some(bytes) = coming.slots[slot].poll()?
            {
                let said = coming.slots[slot].envelope();
                if said.engine != head.engine || said.run < head.run {
                    // Of a ring, or a run, that is over.
                    coming.slots[slot].receive(comm, from, tag)?;
                    continue;
                }
                if said != (Envelope { sequence: coming.come, ..*head }) {
                    return Err(out_of_step(from));
                }
                coming.come += 1;
                let items = bytes / *item_bytes;
                if bytes == 0 || !bytes.is_multiple_of(*item_bytes) || items > coming.awaited {
                    return Err(unexpected(from, bytes, *item_bytes, coming.awaited));
                }
                coming.awaited -= items;
                coming.offered = None;
                coming.reading = Some(Reading { slot, bytes, read: 0 });
            }
            if coming.offered.is_none() && coming.awaited > 0 {
                let taken = coming.reading.map(|reading| reading.slot);
                if let Some(slot) = (0..coming.slots.len()).find(|&slot| Some(slot) != taken) {
                    coming.slots[slot].receive(comm, from, tag)?;
                    coming.offered = Some(slot);
                }
            }
            let Some(Reading { slot, bytes, read }) = &mut coming.reading else { return Ok(moved) };
            let now = share.read(memory, side, &coming.slots[*slot].bytes()[..*bytes], *read);
            moved |= now > *read;
            *read = now;
            if now < *bytes {
                return Ok(moved);
            }
            coming.reading = None;
        }
    }

    /// Writes what is held and goes next, and sends letters that are full or the last of their step.
    fn write(&mut self, comm: &Comm, memory: &[u8]) -> Result<bool> {
        let mut moved = false;
        while let Some(side) = self.share.sends_to().filter(|_| self.share.can_send()) {
            let open = match self.open {
                Some(open) => open,
                None => match self.place()? {
                    Some(slot) => Open { slot, side, written: 0 },
                    None => break,
                },
            };
            let place = self.going[open.slot].bytes();
            let written = self.share.write(memory, place, open.written);
            let (full, open) = (written == place.len(), Open { written, ..open });
            moved = true;
            if full || self.share.sends_to() != Some(side) {
                self.send(comm, open)?;
                self.open = None;
            } else {
                self.open = Some(open);
            }
        }
        Ok(moved)
    }

    /// A place to write a letter to, if one is free.
    fn place(&mut self) -> Result<Option<usize>> {
        for (number, slot) in self.going.iter_mut().enumerate() {
            if slot.poll()?.is_some() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    fn send(&mut self, comm: &Comm, open: Open) -> Result<()> {
        let slot = &mut self.going[open.slot];
        let letter = Share::letter(open.side, slot.bytes().len(), open.written);
        let sent = &mut self.coming[open.side.index()].sent;
        let head = Envelope { sequence: *sent, ..self.head };
        *sent += 1;
        let to = (self.neighbours[open.side.index()], self.tag + open.side.index() as u32);
        slot.send(comm, head, letter, to, true)?;
        self.went[open.slot] = open.side;
        self.letters += 1;
        self.bytes += open.written as u64;
        Ok(())
    }

    /// Nobody waits for what is still to come. False if MPI may still receive some of it.
    fn abandon(&mut self) -> bool {
        Slot::cancel_receives(self.coming.iter_mut().flat_map(|coming| &mut coming.slots))
    }

    /// Whom this rank waits for: those that items are to come from, and those that have not begun to receive a letter.
    fn late(&self) -> String {
        let comes = SIDES.into_iter().filter(|&side| self.coming[side.index()].awaited > 0);
        let going = self.going.iter().zip(&self.went).filter(|(slot, _)| !slot.is_free());
        rank_list(comes.chain(going.map(|(_, &side)| side)).map(|side| self.neighbours[side.index()]))
    }
}

fn out_of_step(from: usize) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "rank {from} is in another run than this rank: all ranks must run a ring equally often; what was moved in place is \
             only partly written"
        ),
    )
}

fn unexpected(from: usize, bytes: usize, item_bytes: usize, awaited: usize) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "rank {from} sent {bytes} bytes where at most {awaited} items of {item_bytes} bytes were expected: it runs another \
             plan or another version; give all ranks the same"
        ),
    )
}

/// What all ranks must have been given alike, in words.
fn fields(plan: &RingPlan, options: &MpiRingOptions) -> Vec<Field> {
    let problem = plan.problem();
    let mut hasher = DefaultHasher::new();
    plan.program().transfers().hash(&mut hasher);
    let program = format!("{} transfers ({:016x})", plan.program().transfers().len(), hasher.finish());
    let field = |name: &'static str, value: String| Field { name, value };
    vec![
        field("the version of reshard", env!("CARGO_PKG_VERSION").into()),
        field("the loads", format!("{:?}", problem.loads())),
        field("the targets", format!("{:?}", problem.targets())),
        field("the size of an item", format!("{} bytes", plan.item_bytes())),
        field("the order of items", if problem.is_ordered() { "in order" } else { "without order" }.into()),
        field("the direction", format!("{:?}", problem.direction())),
        field("the costs to the right", format!("{:?}", problem.right())),
        field("the costs to the left", format!("{:?}", problem.left())),
        field("the program", program),
        field("the memory", format!("{:?}", options.memory)),
    ]
}

/// Whether this rank can take part.
fn check(plan: &RingPlan, comm: &Comm) -> Result<()> {
    let procs = plan.procs();
    if procs > comm.size() {
        return Err(Error::new(
            ErrorKind::OutOfRange,
            format!(
                "the ring has {procs} processes, but the communicator has {} ranks; start {procs} processes",
                comm.size()
            ),
        ));
    }
    if plan.item_bytes() > LONGEST_MESSAGE {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "items of {} bytes were given; MPI sends at most {LONGEST_MESSAGE} bytes at once",
                plan.item_bytes()
            ),
        ));
    }
    Ok(())
}
