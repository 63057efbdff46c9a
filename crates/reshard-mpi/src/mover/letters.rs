//! Letters on their way through MPI: those that leave a rank, and those that come to it.
//!
//! Parcels go in the order of the schedule, both ways on their own: a rank sends its next step while something of an earlier
//! one is still coming, as the papers' machines with one port each way do. Letters are short enough for MPI to send them
//! without asking first, and every few of them wait until the other side has begun to receive: so a rank that is slow to
//! take its letters holds up those who send to it instead of filling its memory.
//!
//! Why nobody waits for ever: take the earliest step of which something has not arrived. Its sender has sent all before it,
//! its receiver has received all before it, so both are at it: receives are posted for all parcels of that step before any
//! later one gets a place.

use super::{Tally, named};
use crate::ffi::comm::Comm;
use crate::ffi::request::Request;
use reshard::engine::Data;
use reshard::rank::{Cursor, Porter};
use reshard_plan::{Error, ErrorKind, Result};
use std::mem::ManuallyDrop;
use std::time::Instant;

/// For each parcel that is coming, so many letters can be under way.
pub const AHEAD: usize = 2;

/// Every so many letters of a parcel, one is done only when the other side has begun to receive it.
const ACKNOWLEDGED: usize = 8;

/// A parcel, by its number among the porter's, and the step it goes in.
#[derive(Clone, Copy)]
pub struct Leg {
    pub step: u64,
    pub parcel: usize,
}

/// Places for letters. If one may still be under way when they go, their memory stays.
struct Slots {
    bytes: ManuallyDrop<Vec<u8>>,
    letter: usize,
    /// Nothing is under way.
    quiet: bool,
}

impl Slots {
    fn new(count: usize, letter: usize) -> Result<Self> {
        let mut bytes = Vec::new();
        let all = count * letter;
        bytes.try_reserve_exact(all).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("{all} bytes for messages do not fit in memory"))
        })?;
        bytes.resize(all, 0);
        Ok(Self { bytes: ManuallyDrop::new(bytes), letter, quiet: true })
    }

    fn place(&mut self, slot: usize) -> &mut [u8] {
        &mut self.bytes[slot * self.letter..(slot + 1) * self.letter]
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.quiet {
            // SAFETY: dropped once, and no letter is under way.
            unsafe { ManuallyDrop::drop(&mut self.bytes) };
        }
    }
}

/// Letters that leave.
pub struct Outbox {
    legs: Vec<Leg>,
    /// Those of the step under way: from here, as many as there are cursors in use.
    first: usize,
    going: Vec<Going>,
    open: usize,
    slots: Slots,
    requests: Vec<Option<Request>>,
    /// A step is over when the other side has begun to receive all of it.
    lockstep: bool,
}

#[derive(Clone, Copy, Default)]
struct Going {
    cursor: Cursor,
    letters: usize,
}

impl Outbox {
    /// At most `most` parcels go in a step.
    pub fn new(legs: Vec<Leg>, most: usize, slots: usize, letter: usize, lockstep: bool) -> Result<Self> {
        Ok(Self {
            legs,
            first: 0,
            going: vec![Going::default(); most],
            open: 0,
            slots: Slots::new(slots, letter)?,
            requests: (0..slots).map(|_| None).collect(),
            lockstep,
        })
    }

    pub fn begin(&mut self) {
        (self.first, self.open) = (0, 0);
    }

    pub fn bytes(&self) -> u64 {
        self.slots.bytes.len() as u64
    }

    /// The step under way, or the next; none if all is sent.
    pub fn step(&self) -> Option<u64> {
        self.legs.get(self.first).map(|leg| leg.step)
    }

    /// Nothing more goes, and everything has gone.
    pub fn is_done(&self) -> bool {
        self.slots.quiet && self.step().is_none()
    }

    /// Packs and sends one letter of each parcel of the step, as long as there are slots; takes no step beyond `last`.
    pub fn advance(
        &mut self,
        porter: &mut Porter,
        comm: &Comm,
        data: &Data<'_>,
        last: u64,
        tally: &mut Tally,
    ) -> Result<bool> {
        let mut free = self.settle()?;
        let sent = self.going[..self.open].iter().all(|going| going.cursor.finished());
        if sent && self.open > 0 && (self.slots.quiet || !self.lockstep) {
            self.first += self.open;
            self.open = 0;
        }
        if self.open == 0 {
            let Some(step) = self.step().filter(|&step| step <= last) else { return Ok(false) };
            let legs = self.legs[self.first..].iter().take_while(|leg| leg.step == step);
            for (going, leg) in self.going.iter_mut().zip(legs) {
                *going = Going { cursor: porter.open(data, &porter.sends()[leg.parcel]), letters: 0 };
                tally.messages += u64::from(!going.cursor.finished());
                self.open += 1;
            }
        }
        let mut moved = false;
        for k in 0..self.open {
            if free == 0 {
                break;
            }
            if self.going[k].cursor.finished() {
                continue;
            }
            let Some(slot) = self.requests.iter().position(Option::is_none) else { break };
            let began = Instant::now();
            let parcel = porter.sends()[self.legs[self.first + k].parcel].clone();
            let room = self.slots.place(slot);
            let going = &mut self.going[k];
            let bytes = porter.pack(data, &parcel, &mut going.cursor, room);
            let (_, to, group) = porter.ends(&parcel);
            let acknowledged = self.lockstep || going.letters % ACKNOWLEDGED == ACKNOWLEDGED - 1;
            let send = if acknowledged { Comm::issend } else { Comm::isend };
            // SAFETY: the slot is nobody else's; it stays where it is until the request is done, even if this goes.
            let request = unsafe { send(comm, room.as_ptr(), bytes, to as usize, group as u32)? };
            self.requests[slot] = Some(request);
            self.slots.quiet = false;
            going.letters += 1;
            free -= 1;
            tally.pack += began.elapsed();
            moved = true;
        }
        Ok(moved)
    }

    /// Takes back slots whose letters are gone. Returns how many are free.
    fn settle(&mut self) -> Result<usize> {
        let mut free = 0;
        for slot in &mut self.requests {
            if let Some(request) = slot
                && request.test()?.is_some()
            {
                *slot = None;
            }
            free += usize::from(slot.is_none());
        }
        self.slots.quiet = free == self.requests.len();
        Ok(free)
    }

    /// Ranks that something is on its way to.
    pub fn late(&self, porter: &Porter) -> Vec<usize> {
        let open = self.legs[self.first..].iter().take(self.open);
        open.map(|leg| porter.ends(&porter.sends()[leg.parcel]).1 as usize).collect()
    }
}

/// Letters that come.
pub struct Inbox {
    legs: Vec<Leg>,
    /// For each, the one before it that comes from the same rank for the same arrays: letters are told apart by their order.
    behind: Vec<Option<usize>>,
    /// Parcels that are coming: `first` to `end`, in a ring.
    first: usize,
    end: usize,
    coming: Vec<Coming>,
    slots: Slots,
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

/// A receive under way.
struct Posted {
    request: Request,
    leg: usize,
    /// Which of its letters.
    letter: usize,
}

impl Inbox {
    /// At most `most` parcels come in a step.
    pub fn new(porter: &Porter, legs: Vec<Leg>, most: usize, slots: usize, letter: usize) -> Result<Self> {
        let mut latest = std::collections::HashMap::new();
        let behind = legs.iter().enumerate().map(|(at, leg)| {
            let (from, _, group) = porter.ends(&porter.receives()[leg.parcel]);
            latest.insert((from, group), at)
        });
        Ok(Self {
            behind: behind.collect(),
            legs,
            first: 0,
            end: 0,
            coming: vec![Coming::default(); most],
            slots: Slots::new(slots, letter)?,
            posted: (0..slots).map(|_| None).collect(),
        })
    }

    pub fn begin(&mut self) {
        (self.first, self.end) = (0, 0);
    }

    pub fn bytes(&self) -> u64 {
        self.slots.bytes.len() as u64
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
        porter: &mut Porter,
        comm: &Comm,
        data: &mut Data<'_>,
        last: u64,
        tally: &mut Tally,
    ) -> Result<bool> {
        let room = self.coming.len();
        while let Some(leg) = self.legs.get(self.end)
            && self.end - self.first < room
            && leg.step <= last
        {
            let parcel = &porter.receives()[leg.parcel];
            let (cursor, letters) = (porter.open(data, parcel), porter.letters(data, parcel));
            self.coming[self.end % room] = Coming { cursor, letters, posted: 0, unpacked: 0 };
            self.end += 1;
        }
        self.post(porter, comm)?;
        let moved = self.unpack(porter, data, tally)?;
        while self.first < self.end {
            let coming = &self.coming[self.first % room];
            if coming.unpacked < coming.letters {
                break;
            }
            self.first += 1;
        }
        self.slots.quiet = self.is_done();
        Ok(moved)
    }

    /// One receive for each parcel before a second for any, earlier parcels first.
    fn post(&mut self, porter: &Porter, comm: &Comm) -> Result<()> {
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
                let (from, _, group) = porter.ends(&porter.receives()[self.legs[at].parcel]);
                let place = self.slots.place(slot);
                // SAFETY: a slot that nobody uses; it stays where it is until the request is done, even if this goes.
                let request =
                    unsafe { comm.irecv(place.as_mut_ptr(), place.len(), from as usize, group as u32)? };
                self.slots.quiet = false;
                self.posted[slot] = Some(Posted { request, leg: at, letter: posted });
                self.coming[at % room].posted += 1;
            }
        }
        Ok(())
    }

    /// Unpacks a letter that has come, if one has.
    fn unpack(&mut self, porter: &mut Porter, data: &mut Data<'_>, tally: &mut Tally) -> Result<bool> {
        let room = self.coming.len();
        for slot in 0..self.posted.len() {
            let Some(Posted { request, leg, letter }) = &mut self.posted[slot] else { continue };
            let (leg, letter) = (*leg, *letter);
            if letter != self.coming[leg % room].unpacked {
                continue;
            }
            let Some(bytes) = request.test()? else { continue };
            let began = Instant::now();
            let parcel = porter.receives()[self.legs[leg].parcel].clone();
            let coming = &mut self.coming[leg % room];
            let unpacked = porter.unpack(data, &parcel, &mut coming.cursor, self.slots.place(slot));
            if unpacked != bytes {
                let from = named([porter.ends(&parcel).0 as usize]);
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

    /// Ranks that something is to come from.
    pub fn late(&self, porter: &Porter) -> Vec<usize> {
        let open = self.legs[self.first..self.end].iter();
        open.map(|leg| porter.ends(&porter.receives()[leg.parcel]).0 as usize).collect()
    }
}
