//! Letters on their way through MPI: those that leave a rank, and those that come to it.
//!
//! Parcels go in the order of the schedule, both ways on their own: a rank sends its next step while something of an earlier
//! one is still coming, as the papers' machines with one port each way do. Letters are short enough for MPI to send them
//! without asking first, and every few of them wait until the other side has begun to receive: so a rank that is slow to
//! take its letters holds up those who send to it instead of filling its memory.
//!
//! Even what lies in one piece is packed into a slot. Sent from where it is, it would still be read by the library after a
//! rank has given up waiting and its owner has the memory back; a slot can be left behind. The copy is made in the caches
//! while earlier letters travel.
//!
//! Why nobody waits for ever: take the earliest step of which something has not arrived. Its sender has sent all before it,
//! its receiver has received all before it, so both are at it: receives are posted for all parcels of that step before any
//! later one gets a place.

use super::super::{RunCounters, named, other_call};
use crate::ffi::comm::Comm;
use crate::owned::{Envelope, Slot};
use reshard::engine::Buffers;
use reshard::rank::{Cursor, Fragment, RankPacker};
use reshard_plan::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::time::Instant;

/// For each parcel that is coming, so many letters can be under way.
pub const AHEAD: usize = 2;

/// Every so many letters of a parcel, one is done only when the other side has begun to receive it.
const ACKNOWLEDGED: usize = 8;

/// A parcel, and the step it goes in.
#[derive(Clone)]
pub struct ScheduledRange {
    pub step: u64,
    pub parcel: Fragment,
}

/// Whose letters they are: which engine's, and of which run. The first of the engine's tags is that of its first group.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTag {
    pub tag: u32,
    /// The tag of barriers, behind those of all groups.
    pub barriers: u32,
    pub engine: u64,
    pub run: u64,
    pub call: u64,
}

impl RunTag {
    pub fn head(self, ordinal: u64, letter: usize) -> Envelope {
        Envelope { engine: self.engine, run: self.run, call: self.call, piece: ordinal << 32 | letter as u64 }
    }
}

/// For each leg, how many before it go between the same ranks in the same group.
fn ordinals(legs: &[ScheduledRange], peer: impl Fn(&Fragment) -> (u64, usize)) -> Vec<u64> {
    let mut counts = HashMap::new();
    let mut next = |leg: &ScheduledRange| {
        let count = counts.entry(peer(&leg.parcel)).or_insert(0);
        *count += 1;
        *count - 1
    };
    legs.iter().map(&mut next).collect()
}

/// Letters that leave.
pub struct NetworkSender {
    legs: Vec<ScheduledRange>,
    ordinals: Vec<u64>,
    /// Those of the step under way: from here, as many as there are cursors in use.
    first: usize,
    going: Vec<Going>,
    open: usize,
    slots: Vec<Slot>,
    /// Whom the last letter of each slot went to.
    sent_to: Vec<usize>,
    /// A step is over when the other side has begun to receive all of it.
    lockstep: bool,
}

#[derive(Clone, Copy, Default)]
struct Going {
    cursor: Cursor,
    letters: usize,
}

impl Going {
    /// All is sent. A parcel of which nothing travels goes in an empty letter, which tells how its sender was called.
    fn is_done(&self) -> bool {
        self.cursor.finished() && self.letters > 0
    }
}

impl NetworkSender {
    /// At most `most` parcels go in a step.
    pub fn new(
        porter: &RankPacker,
        legs: Vec<ScheduledRange>,
        most: usize,
        slots: usize,
        letter: usize,
        lockstep: bool,
    ) -> Result<Self> {
        let to = |parcel: &Fragment| (porter.ends(parcel).1, porter.ends(parcel).2);
        Ok(Self {
            ordinals: ordinals(&legs, to),
            legs,
            first: 0,
            going: vec![Going::default(); most],
            open: 0,
            slots: places(slots, letter)?,
            sent_to: vec![0; slots],
            lockstep,
        })
    }

    pub fn begin(&mut self) {
        (self.first, self.open) = (0, 0);
    }

    /// The step under way, or the next; none if all is sent.
    pub fn step(&self) -> Option<u64> {
        self.legs.get(self.first).map(|leg| leg.step)
    }

    /// Nothing more goes, and everything has gone.
    pub fn is_done(&self) -> bool {
        self.step().is_none() && self.slots.iter().all(Slot::is_free)
    }

    /// Packs and sends one letter of each parcel of the step, as long as there are slots; takes no step beyond `last`.
    pub fn advance(
        &mut self,
        porter: &mut RankPacker,
        (comm, marks): (&Comm, RunTag),
        data: &Buffers<'_>,
        last: u64,
        tally: &mut RunCounters,
    ) -> Result<bool> {
        let mut free = self.settle()?;
        let sent = self.going[..self.open].iter().all(Going::is_done);
        if sent && self.open > 0 && (free == self.slots.len() || !self.lockstep) {
            self.first += self.open;
            self.open = 0;
        }
        if self.open == 0 {
            let Some(step) = self.step().filter(|&step| step <= last) else { return Ok(false) };
            let legs = self.legs[self.first..].iter().take_while(|leg| leg.step == step);
            for (going, leg) in self.going.iter_mut().zip(legs) {
                *going = Going { cursor: porter.open(data, &leg.parcel), letters: 0 };
                tally.messages += u64::from(!going.cursor.finished());
                self.open += 1;
            }
        }
        let mut moved = false;
        for k in 0..self.open {
            if free == 0 {
                break;
            }
            if self.going[k].is_done() {
                continue;
            }
            let Some(number) = self.slots.iter().position(Slot::is_free) else { break };
            let slot = &mut self.slots[number];
            let began = Instant::now();
            let parcel = &self.legs[self.first + k].parcel;
            let going = &mut self.going[k];
            let bytes = porter.pack(data, parcel, &mut going.cursor, slot.bytes());
            let (_, to, group) = porter.ends(parcel);
            let acknowledged = self.lockstep || going.letters % ACKNOWLEDGED == ACKNOWLEDGED - 1;
            let head = marks.head(self.ordinals[self.first + k], going.letters);
            slot.send(comm, head, 0..bytes, (to as usize, marks.tag + group as u32), acknowledged)?;
            self.sent_to[number] = to as usize;
            going.letters += 1;
            free -= 1;
            tally.pack += began.elapsed();
            moved = true;
        }
        Ok(moved)
    }

    /// Takes back slots whose letters are gone. Returns how many are free.
    fn settle(&mut self) -> Result<usize> {
        self.slots.iter_mut().try_fold(0, |free, slot| Ok(free + usize::from(slot.settled()?.is_some())))
    }

    /// Ranks that something is on its way to.
    pub fn late(&self, porter: &RankPacker) -> Vec<usize> {
        let open = self.legs[self.first..].iter().take(self.open);
        let open = open.map(|leg| porter.ends(&leg.parcel).1 as usize);
        let sent = self.slots.iter().zip(&self.sent_to).filter(|(slot, _)| !slot.is_free());
        open.chain(sent.map(|(_, to)| *to)).collect()
    }
}

/// Letters that come.
pub struct NetworkReceiver {
    legs: Vec<ScheduledRange>,
    /// For each, the one before it that comes from the same rank for the same arrays.
    behind: Vec<Option<usize>>,
    ordinals: Vec<u64>,
    /// For each, by which queue it comes: that of its rank and arrays.
    queue_of: Vec<usize>,
    queues: Vec<Queue>,
    /// Parcels that are coming: `first` to `end`, in a ring.
    first: usize,
    end: usize,
    coming: Vec<Coming>,
    slots: Vec<Slot>,
    /// What each slot is for, while it is.
    posted: Vec<Option<Posted>>,
}

/// A parcel that is coming.
#[derive(Clone, Default)]
struct Coming {
    cursor: Cursor,
    letters: usize,
    posted: usize,
    unpacked: usize,
}

/// Receives from one rank for the same arrays: MPI fills them in the order they were posted in, so only the next is asked for.
#[derive(Clone, Copy, Default)]
struct Queue {
    posted: usize,
    come: usize,
}

/// A receive under way, or a letter that waits for those before it.
#[derive(Clone, Copy)]
struct Posted {
    leg: usize,
    /// Its number in the queue.
    number: usize,
    /// Which letter has come, and its bytes.
    come: Option<(usize, usize)>,
}

impl NetworkReceiver {
    /// At most `most` parcels come in a step.
    pub fn new(
        porter: &RankPacker,
        legs: Vec<ScheduledRange>,
        most: usize,
        slots: usize,
        letter: usize,
    ) -> Result<Self> {
        let from = |parcel: &Fragment| (porter.ends(parcel).0, porter.ends(parcel).2);
        let ordinals = ordinals(&legs, from);
        let (mut latest, mut numbers) = (HashMap::new(), HashMap::new());
        let mut queue_of = |leg: &ScheduledRange| {
            let next = numbers.len();
            *numbers.entry(from(&leg.parcel)).or_insert(next)
        };
        let queue_of: Vec<usize> = legs.iter().map(&mut queue_of).collect();
        let behind = queue_of.iter().enumerate().map(|(at, queue)| latest.insert(*queue, at));
        Ok(Self {
            behind: behind.collect(),
            ordinals,
            queues: vec![Queue::default(); numbers.len()],
            queue_of,
            legs,
            first: 0,
            end: 0,
            coming: vec![Coming::default(); most],
            slots: places(slots, letter)?,
            posted: vec![None; slots],
        })
    }

    pub fn begin(&mut self) {
        (self.first, self.end) = (0, 0);
        self.queues.fill(Queue::default());
    }

    /// The earliest step of which something is to come; none if all is here.
    pub fn step(&self) -> Option<u64> {
        self.legs.get(self.first).map(|leg| leg.step)
    }

    /// Nothing more comes.
    pub fn is_done(&self) -> bool {
        self.step().is_none()
    }

    /// Posts receives for parcels of steps up to `last`, as long as there are slots, and unpacks a letter that has come.
    pub fn advance(
        &mut self,
        porter: &mut RankPacker,
        (comm, marks): (&Comm, RunTag),
        data: &mut Buffers<'_>,
        last: u64,
        tally: &mut RunCounters,
    ) -> Result<bool> {
        let room = self.coming.len();
        while let Some(leg) = self.legs.get(self.end)
            && self.end - self.first < room
            && leg.step <= last
        {
            let (cursor, letters) =
                (porter.open(data, &leg.parcel), porter.letters(data, &leg.parcel).max(1));
            self.coming[self.end % room] = Coming { cursor, letters, posted: 0, unpacked: 0 };
            self.end += 1;
        }
        self.post(porter, comm, marks)?;
        let moved = self.unpack(porter, (comm, marks), data, tally)?;
        while self.first < self.end {
            let coming = &self.coming[self.first % room];
            if coming.unpacked < coming.letters {
                break;
            }
            self.first += 1;
        }
        Ok(moved)
    }

    /// One receive for each parcel before a second for any, earlier parcels first.
    fn post(&mut self, porter: &RankPacker, comm: &Comm, marks: RunTag) -> Result<()> {
        let room = self.coming.len();
        for ahead in 1..=AHEAD {
            for at in self.first..self.end {
                let Coming { letters, posted, unpacked, .. } = self.coming[at % room];
                if posted == letters || posted - unpacked >= ahead {
                    continue;
                }
                let all_posted = |behind: usize| {
                    let coming = &self.coming[behind % room];
                    behind < self.first || coming.posted == coming.letters
                };
                if !self.behind[at].is_none_or(all_posted) {
                    continue;
                }
                let Some(slot) = self.posted.iter().position(Option::is_none) else { return Ok(()) };
                self.receive(slot, at, porter, (comm, marks))?;
                self.coming[at % room].posted += 1;
            }
        }
        Ok(())
    }

    /// Offers a slot for the next letter that comes by the queue of a leg.
    fn receive(
        &mut self,
        slot: usize,
        leg: usize,
        porter: &RankPacker,
        (comm, marks): (&Comm, RunTag),
    ) -> Result<()> {
        let (from, _, group) = porter.ends(&self.legs[leg].parcel);
        self.slots[slot].receive(comm, from as usize, marks.tag + group as u32)?;
        let queue = &mut self.queues[self.queue_of[leg]];
        self.posted[slot] = Some(Posted { leg, number: queue.posted, come: None });
        queue.posted += 1;
        Ok(())
    }

    /// Unpacks a letter that has come, if one has.
    fn unpack(
        &mut self,
        porter: &mut RankPacker,
        (comm, marks): (&Comm, RunTag),
        data: &mut Buffers<'_>,
        tally: &mut RunCounters,
    ) -> Result<bool> {
        let room = self.coming.len();
        for slot in 0..self.posted.len() {
            let Some((leg, letter, bytes)) = self.take_in(slot, porter, comm, marks)? else { continue };
            if letter != self.coming[leg % room].unpacked {
                continue;
            }
            let began = Instant::now();
            let parcel = &self.legs[leg].parcel;
            let coming = &mut self.coming[leg % room];
            let unpacked = porter.unpack(data, parcel, &mut coming.cursor, self.slots[slot].bytes());
            if unpacked != bytes {
                let from = named([porter.ends(parcel).0 as usize]);
                return Err(Error::new(
                    ErrorKind::Mpi,
                    format!(
                        "{from} sent {bytes} bytes where {unpacked} were expected: it runs another plan or another version; \
                         give all ranks the same"
                    ),
                ));
            }
            coming.unpacked += 1;
            self.posted[slot] = None;
            tally.unpack += began.elapsed();
            return Ok(true);
        }
        Ok(false)
    }

    /// The letter that has come into a slot, by its head: its leg, which of the leg's letters it is, and its bytes. One of an
    /// engine or a run that is over is thrown away, and its place offered again: letters behind it then come into other places
    /// than they were expected in, and say themselves which they are.
    fn take_in(
        &mut self,
        slot: usize,
        porter: &RankPacker,
        comm: &Comm,
        marks: RunTag,
    ) -> Result<Option<(usize, usize, usize)>> {
        let Some(Posted { leg, number, come }) = self.posted[slot] else { return Ok(None) };
        if let Some((letter, bytes)) = come {
            return Ok(Some((leg, letter, bytes)));
        }
        let queue = &mut self.queues[self.queue_of[leg]];
        if number != queue.come {
            return Ok(None);
        }
        let Some(bytes) = self.slots[slot].settled()? else { return Ok(None) };
        queue.come += 1;
        let head = self.slots[slot].head();
        if head.engine != marks.engine || head.run < marks.run {
            self.receive(slot, leg, porter, (comm, marks))?;
            return Ok(None);
        }
        let (from, _, group) = porter.ends(&self.legs[leg].parcel);
        let refused = |what: &str| Error::new(ErrorKind::Mpi, format!("rank {from} {what}"));
        if head.run != marks.run {
            return Err(refused(
                "is in a later run than this rank: all ranks must run an engine equally often; the destination is an unfinished \
                 mixture",
            ));
        }
        if head.call != marks.call {
            return Err(other_call(from as usize, comm.rank()));
        }
        let (ordinal, letter) = (head.piece >> 32, (head.piece & u64::from(u32::MAX)) as usize);
        let meant = (self.first..self.end).find(|&at| {
            let (other, _, of_group) = porter.ends(&self.legs[at].parcel);
            (other, of_group, self.ordinals[at]) == (from, group, ordinal)
        });
        let leg =
            meant.ok_or_else(|| refused("sent something that is not expected: it runs another plan"))?;
        self.posted[slot] = Some(Posted { leg, number, come: Some((letter, bytes)) });
        Ok(Some((leg, letter, bytes)))
    }

    /// Nobody waits for what is still to come. False if MPI may still receive some of it.
    pub fn abandon(&mut self) -> bool {
        Slot::abandon(self.slots.iter_mut())
    }

    /// Ranks that something is to come from.
    pub fn late(&self, porter: &RankPacker) -> Vec<usize> {
        let open = self.legs[self.first..self.end].iter();
        open.map(|leg| porter.ends(&leg.parcel).0 as usize).collect()
    }
}

fn places(count: usize, letter: usize) -> Result<Vec<Slot>> {
    (0..count).map(|_| Slot::new(letter)).collect()
}
