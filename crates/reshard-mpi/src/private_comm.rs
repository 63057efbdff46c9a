//! The communicator that engines talk on: a duplicate of the host's, and what its engines know of each other.
//!
//! An engine that fails on one rank is told to all others: a few bytes to each, which those who wait find. Who does not wait
//! does not look, so it costs nothing while all is well.

use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use crate::ffi::library::is_forked;
use crate::ffi::wait::DEADLINE;
use crate::node::{Node, random};
use crate::owned::OwnedMessage;
use crate::registry::{Failure, Registry, TAGS};
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The tag by which a rank tells that an engine of its failed.
const NOTICE: u32 = 32_002;

/// Bytes of what is told, at most: which engine, in which run, and why.
const NOTICE_BYTES: usize = 512;

/// The private duplicate of a communicator.
pub struct PrivateComm {
    comm: Comm,
    pub(crate) node: OnceLock<Node>,
    registry: Mutex<Registry>,
    /// How often this rank has asked the others whether they mean the same, from the first number on.
    questions: AtomicU64,
    /// Where numbers begin, the same on all ranks, and another on every duplicate: MPI gives the number of a communicator that was
    /// freed to another, which may find messages that were left behind.
    first: OnceLock<u64>,
    /// Why nothing more can be said on it.
    refused: OnceLock<String>,
}

impl Deref for PrivateComm {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        &self.comm
    }
}

impl Comm {
    /// The private duplicate of this communicator: made once, then always the same, wherever the handle comes from. Its errors
    /// are returned. Collective the first time, and then a rank waits for the others, but not for ever: two minutes, see
    /// [`Comm::private_within`].
    ///
    /// One limit is MPICH's: an error that shows only when a request is tested, such as a message longer than its place, goes
    /// to the error handler of the world, which is the host's where the host began MPI.
    ///
    /// The parent keeps it until the parent is freed or MPI ends. A clone that lives longer keeps it alive, but not beyond
    /// the end of MPI.
    pub fn private(&self) -> Result<Arc<PrivateComm>> {
        self.private_within(Some(DEADLINE))
    }

    /// As [`Comm::private`], but fails when the time is over. Whoever asks again then goes on waiting for the same.
    pub fn private_within(&self, time: Option<Duration>) -> Result<Arc<PrivateComm>> {
        let private = self.kept_duplicate(time, PrivateComm::new)?;
        match private.refused.get() {
            None => private.begin(time).map(|()| private),
            Some(why) => Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "nothing more can be made on this communicator since an earlier failure ({why}); see what became of the others, \
                     and use another communicator"
                ),
            )),
        }
    }
}

impl PrivateComm {
    fn new(comm: Comm) -> Self {
        Self {
            comm,
            node: OnceLock::new(),
            registry: Mutex::default(),
            questions: AtomicU64::new(0),
            first: OnceLock::new(),
            refused: OnceLock::new(),
        }
    }

    /// Agrees on where numbers begin. Collective the first time, when all ranks have just made the duplicate.
    fn begin(&self, time: Option<Duration>) -> Result<()> {
        if self.first.get().is_none() {
            // Far from each other, and from the largest number.
            let mine = random() as u64 >> 1 & !0xffff_ffff;
            let first = self.reduce(mine, Reduce::Max, time)?;
            self.first.get_or_init(|| first);
            self.registry().begin(first);
        }
        Ok(())
    }

    /// The ranks are out of step: what one says next would be taken for an answer to something else. The first reason counts.
    pub(crate) fn refuse(&self, why: &Error) {
        self.comm.leave_behind();
        let _ = self.refused.set(why.to_string());
    }

    /// The number of the next question to all ranks.
    pub(crate) fn next_question(&self) -> u64 {
        let first = self.first.get().copied().unwrap_or_default();
        first + self.questions.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives all ranks the bytes of all, in the order of ranks. Collective.
    pub(crate) fn gather(&self, mine: &[u8], limit: Option<Duration>) -> Result<Vec<u8>> {
        let all = memory::filled(0, mine.len() * self.size(), "what all ranks say");
        let mut all = all.inspect_err(|error| self.refuse(error))?;
        self.all_gather_within(mine, &mut all, limit).inspect_err(|error| self.refuse(error))?;
        Ok(all)
    }

    /// Combines a number of all ranks. Collective.
    pub(crate) fn reduce(&self, number: u64, how: Reduce, limit: Option<Duration>) -> Result<u64> {
        let mut numbers = [number];
        self.all_reduce_within(&mut numbers, how, limit).inspect_err(|error| self.refuse(error))?;
        Ok(numbers[0])
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for an engine from `least` on, as far as this rank knows.
    pub(crate) fn propose(&self, least: u64, tags: u64) -> Result<u64> {
        self.registry().propose(least, tags)
    }

    /// Enters an engine with so many tags, by a number that all ranks have agreed on.
    pub(crate) fn enter(self: &Arc<Self>, number: u64, tags: u64) -> Result<Registration> {
        let first = self.first.get().copied().unwrap_or_default();
        if number >= first + TAGS {
            self.drain(number, tags)?;
        }
        self.registry().enter(number, tags);
        Ok(Registration { comm: Arc::clone(self), number, keeps_tags: false })
    }

    /// Throws away what lies here with the tags of a new engine: they are used again, and nobody waits for it any more.
    fn drain(&self, number: u64, tags: u64) -> Result<()> {
        for tag in number % TAGS..number % TAGS + tags {
            while let Some((rank, bytes)) = self.iprobe(None, tag as u32)? {
                self.take(rank, bytes, tag as u32)?;
            }
        }
        Ok(())
    }

    /// A message that is here already.
    fn take(&self, rank: usize, bytes: usize, tag: u32) -> Result<Vec<u8>> {
        let mut message = OwnedMessage::receive(&self.comm, bytes, rank, tag)?;
        let begin = Instant::now();
        while !message.is_done()? {
            if begin.elapsed() > DEADLINE {
                return Err(Error::new(ErrorKind::Mpi, format!("a message of rank {rank} does not end")));
            }
        }
        Ok(message.take())
    }

    /// Tells all other ranks that an engine has failed here, without waiting for them. Who cannot be told finds out by waiting.
    fn tell(&self, number: u64, run: u64, why: &str) {
        let mut length = why.len().min(NOTICE_BYTES - 16);
        while !why.is_char_boundary(length) {
            length -= 1;
        }
        let words = [&number.to_ne_bytes(), &run.to_ne_bytes(), &why.as_bytes()[..length]].concat();
        let mut registry = self.registry();
        registry.told.retain_mut(|sent| !matches!(sent.is_done(), Ok(true)));
        for rank in (0..self.size()).filter(|&rank| rank != self.rank()) {
            if let Ok(sent) = OwnedMessage::send(&self.comm, words.clone(), rank, NOTICE) {
                registry.told.push(sent);
            }
        }
    }

    /// Takes in what other ranks have told.
    fn listen(&self) -> Result<MutexGuard<'_, Registry>> {
        let mut registry = self.registry();
        while let Some((rank, bytes)) = self.iprobe(None, NOTICE)? {
            let words = self.take(rank, bytes, NOTICE)?;
            if let Some((number, words)) = words.split_first_chunk()
                && let Some((run, why)) = words.split_first_chunk()
            {
                let (run, why) = (u64::from_ne_bytes(*run), String::from_utf8_lossy(why).into_owned());
                registry.fail(u64::from_ne_bytes(*number), Failure { rank, run, why });
            }
        }
        Ok(registry)
    }
}

/// An engine's number on its communicator, its own as long as it lives.
pub struct Registration {
    comm: Arc<PrivateComm>,
    number: u64,
    /// Something of it may still be on its way.
    keeps_tags: bool,
}

impl Registration {
    pub fn comm(&self) -> &Arc<PrivateComm> {
        &self.comm
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The tag of one of its groups of arrays.
    pub fn tag(&self) -> u32 {
        (self.number % TAGS) as u32
    }

    /// Its tags are never used again.
    pub fn keep_tags(&mut self) {
        self.keeps_tags = true;
    }

    /// Tells all other ranks that the engine has failed here in a run.
    pub fn tell(&self, run: u64, why: &str) {
        if !is_forked() {
            self.comm.tell(self.number, run, why);
        }
    }

    /// Fails if another rank has told that the engine failed there in this run or before: who failed in a later one has done its
    /// part of this. With `listens`, MPI is asked for what is new.
    pub fn check(&self, run: u64, listens: bool) -> Result<()> {
        let registry = if listens { self.comm.listen()? } else { self.comm.registry() };
        match registry.failure(self.number) {
            Some(Failure { rank, run: failed, why }) if *failed <= run => {
                Err(Error::new(ErrorKind::Mpi, format!("rank {rank} cannot go on: {why}")))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Another thread of the parent may have held the lock.
        if is_forked() {
            return;
        }
        if self.keeps_tags {
            self.comm.leave_behind();
        }
        self.comm.registry().leave(self.number, !self.keeps_tags);
    }
}
