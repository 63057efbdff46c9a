//! Packed messages in the order of a schedule: what travels between nodes.
//!
//! A rank works step by step, without meeting the others in between. In each step a receive is posted for every parcel
//! before anything is packed, and letters are packed, travel and are unpacked at the same time: as many are under way as
//! there are slots.
//!
//! Why nobody waits for ever: take the earliest step that some rank has not finished. A rank in this step has a receive
//! posted for each parcel it still expects, so a letter of this step finds one, or finds it as soon as the letter before it
//! is unpacked. Its sender is in this step or has left it, and slots it uses for later steps were free after this one.

use super::{Patience, named};
use crate::ffi::comm::Comm;
use crate::ffi::request::Request;
use reshard::engine::{Data, MessagesOptions};
use reshard::rank::{Cursor, Porter, Step};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A letter has at most so many bytes.
const LETTER: usize = 1 << 18;

/// Letters shorter than this cost more than they save.
const FEW_PAGES: usize = 1 << 14;

/// Letters of one rank under way to others.
const SENDS: usize = 8;

/// For each parcel of a step, so many letters can be under way to this rank.
const AHEAD: usize = 2;

pub struct MessagesMover {
    porter: Porter,
    comm: Arc<Comm>,
    /// All slots: first those to send from, then those to receive into.
    arena: ManuallyDrop<Vec<u8>>,
    sends: Vec<Option<Request>>,
    receives: Vec<Option<Posted>>,
    going: Vec<Cursor>,
    coming: Vec<Coming>,
    meets: bool,
    intact: bool,
}

/// A receive under way.
struct Posted {
    request: Request,
    /// Which parcel of the step, and which of its letters.
    parcel: usize,
    letter: usize,
}

/// A parcel that is being received.
#[derive(Clone, Default)]
struct Coming {
    cursor: Cursor,
    letters: usize,
    posted: usize,
    unpacked: usize,
}

/// What a run did.
#[derive(Default)]
pub struct Done {
    pub messages: u64,
    pub pack: Duration,
    pub unpack: Duration,
}

/// What a rank has room for.
pub struct Room {
    porter: Porter,
    sends: usize,
    receives: usize,
    /// Bytes of a letter. All ranks must cut alike: the shortest of all ranks' counts.
    pub letter: usize,
}

impl Room {
    /// For this rank's share of the memory, if it is limited.
    pub fn new(plan: &Arc<Plan>, comm: &Comm, options: &MessagesOptions) -> Result<Self> {
        let porter = Porter::new(Arc::clone(plan), comm.rank() as u64, options, LETTER)?;
        let most = |parcels: fn(&Step) -> usize| porter.steps().iter().map(parcels).max().unwrap_or(0);
        let (going, coming) = (most(|step| step.sends.len()), most(|step| step.receives.len()));
        let sender = usize::from(going > 0);
        let (mut sends, mut receives, mut letter) = (sender * SENDS, coming * AHEAD, porter.chunk());
        if let Some(memory) = options.memory {
            // Each rank has its share: the plan's ranks together keep to the amount.
            let ranks = plan.ranks().len().max(1) as u64;
            let kernels = porter.scratch_bytes();
            let mine = (memory / ranks).saturating_sub(kernels);
            let least = (sender + coming) as u64 * porter.longest_elem();
            if mine < least || memory / ranks < kernels {
                return Err(Error::new(
                    ErrorKind::Memory,
                    format!(
                        "{memory} bytes were given for the messages of {ranks} ranks; this plan needs at least {} bytes, so much \
                         for each rank as the one that needs most: one element for each of {} messages under way, and \
                         {kernels} for the kernels",
                        (least + kernels) * ranks,
                        sender + coming,
                    ),
                ));
            }
            // Shorter letters first, down to a few pages; then fewer; then as short as it takes.
            let fit = |slots: usize| (mine / slots.max(1) as u64) as usize;
            if fit(sends + receives) < FEW_PAGES {
                (sends, receives) = (sender * 2, coming);
            }
            if fit(sends + receives) < FEW_PAGES {
                sends = sender;
            }
            letter = letter.min(fit(sends + receives));
        }
        if sender + coming == 0 {
            // Nothing is sent or received: any length will do.
            letter = usize::MAX;
        }
        Ok(Self { porter, sends, receives, letter })
    }
}

impl MessagesMover {
    /// With the room this rank has, and letters of a length all agree on.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &Arc<Comm>,
        options: &MessagesOptions,
        Room { mut porter, sends, receives, letter }: Room,
    ) -> Result<Self> {
        if letter < porter.chunk() {
            porter = Porter::new(Arc::clone(plan), comm.rank() as u64, options, letter)?;
        }
        let most = |parcels: fn(&Step) -> usize| porter.steps().iter().map(parcels).max().unwrap_or(0);
        let (going, coming) = (most(|step| step.sends.len()), most(|step| step.receives.len()));
        let bytes = (sends + receives) * porter.chunk();
        let mut arena = Vec::new();
        arena.try_reserve_exact(bytes).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("{bytes} bytes for messages do not fit in memory"))
        })?;
        arena.resize(bytes, 0);
        Ok(Self {
            comm: Arc::clone(comm),
            arena: ManuallyDrop::new(arena),
            sends: (0..sends).map(|_| None).collect(),
            receives: (0..receives).map(|_| None).collect(),
            going: vec![Cursor::default(); going],
            coming: vec![Coming::default(); coming],
            meets: options.barriers,
            porter,
            intact: true,
        })
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.arena.len() as u64 + self.porter.scratch_bytes()
    }

    pub fn num_steps(&self) -> u64 {
        self.porter.num_steps()
    }

    pub fn run(&mut self, data: &mut Data<'_>, patience: &mut Patience) -> Result<Done> {
        let mut done = Done::default();
        self.porter.begin(data);
        // On an error letters may still be under way: their memory stays where it is.
        self.intact = false;
        for step in 0..self.porter.steps().len() {
            self.step(data, step, patience, &mut done)?;
            if self.meets {
                self.comm.barrier_within(patience.limit)?;
            }
        }
        if self.meets {
            // A rank outside of the plan has no steps, and meets the others all the same.
            for _ in self.porter.steps().len() as u64..self.porter.num_steps() {
                self.comm.barrier_within(patience.limit)?;
            }
        }
        while self.porter.work_alone(data) {}
        while self.settle_sends()? < self.sends.len() {
            patience.wait(|| "its own letters to be taken".into())?;
        }
        patience.begin_again();
        self.intact = true;
        Ok(done)
    }

    fn step(
        &mut self,
        data: &mut Data<'_>,
        step: usize,
        patience: &mut Patience,
        done: &mut Done,
    ) -> Result<()> {
        let (sends, receives) = {
            let step = &self.porter.steps()[step];
            (step.sends.clone(), step.receives.clone())
        };
        for (k, number) in receives.clone().enumerate() {
            let parcel = &self.porter.receives()[number];
            self.coming[k] = Coming {
                cursor: self.porter.open(data, parcel),
                letters: self.porter.letters(data, parcel),
                posted: 0,
                unpacked: 0,
            };
        }
        for (k, number) in sends.clone().enumerate() {
            self.going[k] = self.porter.open(data, &self.porter.sends()[number]);
            done.messages += u64::from(!self.going[k].finished());
        }
        loop {
            self.post(&receives)?;
            let mut moved = self.unpack(data, &receives, done)?;
            if !moved {
                moved = self.pack(data, &sends, done)?;
            }
            let coming = self.coming[..receives.len()].iter().any(|coming| coming.unpacked < coming.letters);
            let going = self.going[..sends.len()].iter().any(|cursor| !cursor.finished());
            if !coming && !going {
                patience.begin_again();
                return Ok(());
            }
            if moved || self.porter.work_alone(data) {
                patience.begin_again();
            } else {
                patience.wait(|| self.late(&sends, &receives))?;
            }
        }
    }

    /// Posts receives for all parcels of the step that expect more letters, as long as there are slots: one for each
    /// parcel before a second for any.
    fn post(&mut self, receives: &Range<usize>) -> Result<()> {
        for ahead in 1..=AHEAD {
            for k in 0..receives.len() {
                let Coming { letters, posted, unpacked, .. } = self.coming[k];
                if posted == letters || posted - unpacked >= ahead {
                    continue;
                }
                let Some(slot) = self.receives.iter().position(Option::is_none) else { return Ok(()) };
                let (from, _, group) = self.porter.ends(&self.porter.receives()[receives.start + k]);
                let chunk = self.porter.chunk();
                let at = (self.sends.len() + slot) * chunk;
                // SAFETY: a slot that nobody uses; it stays where it is until the request is done, even if this mover goes.
                let request = unsafe {
                    self.comm.irecv(
                        self.arena[at..at + chunk].as_mut_ptr(),
                        chunk,
                        from as usize,
                        group as u32,
                    )?
                };
                self.receives[slot] = Some(Posted { request, parcel: k, letter: posted });
                self.coming[k].posted += 1;
            }
        }
        Ok(())
    }

    /// Unpacks a letter that has come, if one has.
    fn unpack(&mut self, data: &mut Data<'_>, receives: &Range<usize>, done: &mut Done) -> Result<bool> {
        for slot in 0..self.receives.len() {
            let Some(Posted { request, parcel, letter }) = &mut self.receives[slot] else { continue };
            let (parcel, letter) = (*parcel, *letter);
            if letter != self.coming[parcel].unpacked {
                continue;
            }
            let Some(bytes) = request.test()? else { continue };
            let began = Instant::now();
            let chunk = self.porter.chunk();
            let at = (self.sends.len() + slot) * chunk;
            let coming = &mut self.coming[parcel];
            let wanted = self.porter.receives()[receives.start + parcel].clone();
            let unpacked = self.porter.unpack(data, &wanted, &mut coming.cursor, &self.arena[at..at + chunk]);
            if unpacked != bytes {
                let (from, ..) = self.porter.ends(&wanted);
                return Err(Error::new(
                    ErrorKind::Mpi,
                    format!(
                        "rank {from} sent {bytes} bytes where {unpacked} were expected: it runs another plan or another \
                         version; give all ranks the same"
                    ),
                ));
            }
            coming.unpacked += 1;
            self.receives[slot] = None;
            done.unpack += began.elapsed();
            return Ok(true);
        }
        Ok(false)
    }

    /// Packs and sends one letter of each parcel, as long as there are slots.
    fn pack(&mut self, data: &Data<'_>, sends: &Range<usize>, done: &mut Done) -> Result<bool> {
        let mut moved = false;
        for k in 0..sends.len() {
            if self.going[k].finished() {
                continue;
            }
            if self.settle_sends()? == 0 {
                break;
            }
            let Some(slot) = self.sends.iter().position(Option::is_none) else { break };
            let began = Instant::now();
            let parcel = self.porter.sends()[sends.start + k].clone();
            let chunk = self.porter.chunk();
            let room = &mut self.arena[slot * chunk..(slot + 1) * chunk];
            let bytes = self.porter.pack(data, &parcel, &mut self.going[k], room);
            let (_, to, group) = self.porter.ends(&parcel);
            // SAFETY: the slot is nobody else's; it stays where it is until the request is done, even if this mover goes.
            let request = unsafe { self.comm.isend(room.as_ptr(), bytes, to as usize, group as u32)? };
            self.sends[slot] = Some(request);
            done.pack += began.elapsed();
            moved = true;
        }
        Ok(moved)
    }

    /// Takes back slots whose letters are gone. Returns how many are free.
    fn settle_sends(&mut self) -> Result<usize> {
        let mut free = 0;
        for slot in &mut self.sends {
            if let Some(request) = slot
                && request.test()?.is_some()
            {
                *slot = None;
            }
            free += usize::from(slot.is_none());
        }
        Ok(free)
    }

    fn late(&self, sends: &Range<usize>, receives: &Range<usize>) -> String {
        let coming =
            receives.clone().zip(&self.coming).filter(|(_, coming)| coming.unpacked < coming.letters);
        let mut late: Vec<usize> =
            coming.map(|(number, _)| self.porter.ends(&self.porter.receives()[number]).0 as usize).collect();
        let going = sends.clone().zip(&self.going).filter(|(_, cursor)| !cursor.finished());
        late.extend(going.map(|(number, _)| self.porter.ends(&self.porter.sends()[number]).1 as usize));
        late.sort_unstable();
        late.dedup();
        named(late)
    }
}

impl Drop for MessagesMover {
    fn drop(&mut self) {
        if self.intact {
            // SAFETY: dropped once, and no letter is under way.
            unsafe { ManuallyDrop::drop(&mut self.arena) };
        }
    }
}
