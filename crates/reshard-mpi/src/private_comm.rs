//! The private communicator of engines: a duplicate of the host's, with the registry of its engines.
//!
//! An engine that fails on one rank sends a failure notice to all others: a few bytes to each. Only ranks that wait probe
//! for notices, so they cost nothing while all is well.

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

/// The MPI tag of failure notices.
const NOTICE_TAG: u32 = 32_002;

/// The most bytes of a failure notice: which engine, in which run, and why.
const MAX_NOTICE_BYTES: usize = 512;

/// The private duplicate of a communicator.
pub struct PrivateComm {
    comm: Comm,
    pub(crate) node: OnceLock<Node>,
    registry: Mutex<Registry>,
    /// Agreements so far.
    agreements: AtomicU64,
    /// The first sequence number: equal on all ranks, and random for every duplicate. MPI may give the context of a freed
    /// communicator to a new one, which then finds messages that were left in flight.
    first: OnceLock<u64>,
    /// Why it cannot be used any more.
    refused: OnceLock<String>,
}

impl Deref for PrivateComm {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        &self.comm
    }
}

impl Comm {
    /// The private duplicate of this communicator: made once, then always the same, wherever the handle comes from. Its
    /// errors are returned. Collective the first time, with a timeout of two minutes: see [`Comm::private_within`].
    ///
    /// One limit is MPICH's: an error that shows only when a request is tested, such as a message longer than its buffer,
    /// goes to the error handler of the world, which is the host's where the host began MPI.
    ///
    /// The parent keeps it until the parent is freed or MPI ends. A clone that lives longer keeps it alive, but not beyond
    /// the end of MPI.
    pub fn private(&self) -> Result<Arc<PrivateComm>> {
        self.private_within(Some(DEADLINE))
    }

    /// As [`Comm::private`], with a timeout of the caller's choice. A later call goes on waiting for the same duplicate.
    pub fn private_within(&self, time: Option<Duration>) -> Result<Arc<PrivateComm>> {
        let private = self.cached_duplicate(time, PrivateComm::new)?;
        match private.refused.get() {
            None => private.begin(time).map(|()| private),
            Some(why) => Err(Error::new(
                ErrorKind::External,
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
            agreements: AtomicU64::new(0),
            first: OnceLock::new(),
            refused: OnceLock::new(),
        }
    }

    /// Agrees on the first sequence number. Collective the first time, when all ranks have just made the duplicate.
    fn begin(&self, time: Option<Duration>) -> Result<()> {
        if self.first.get().is_none() {
            // Random numbers are far from each other, and from the largest number.
            let mine = random() as u64 >> 1 & !0xffff_ffff;
            let first = self.reduce(mine, Reduce::Max, time)?;
            self.first.get_or_init(|| first);
            self.registry().begin(first);
        }
        Ok(())
    }

    /// Gives the communicator up: the ranks are out of step, and the next collective would be matched with another one.
    /// The first reason is kept.
    pub(crate) fn refuse(&self, why: &Error) {
        self.comm.leak();
        let _ = self.refused.set(why.to_string());
    }

    /// The sequence number of the next agreement.
    pub(crate) fn next_sequence(&self) -> u64 {
        let first = self.first.get().copied().unwrap_or_default();
        first + self.agreements.fetch_add(1, Ordering::Relaxed)
    }

    /// Gathers the bytes of all ranks on all ranks, in the order of ranks. Collective.
    pub(crate) fn gather(&self, mine: &[u8], limit: Option<Duration>) -> Result<Vec<u8>> {
        let all = memory::filled(0, mine.len() * self.size(), "what all ranks say");
        let mut all = all.inspect_err(|error| self.refuse(error))?;
        self.all_gather_within(mine, &mut all, limit).inspect_err(|error| self.refuse(error))?;
        Ok(all)
    }

    /// Reduces a number of all ranks. Collective.
    pub(crate) fn reduce(&self, number: u64, how: Reduce, limit: Option<Duration>) -> Result<u64> {
        let mut numbers = [number];
        self.all_reduce_within(&mut numbers, how, limit).inspect_err(|error| self.refuse(error))?;
        Ok(numbers[0])
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Proposes a number of at least `least` for an engine, free as far as this rank knows.
    pub(crate) fn propose(&self, least: u64, tags: u64) -> Result<u64> {
        self.registry().propose(least, tags)
    }

    /// Registers an engine with `tags` tags, under a number that all ranks have agreed on.
    pub(crate) fn enter(self: &Arc<Self>, number: u64, tags: u64) -> Result<Registration> {
        let first = self.first.get().copied().unwrap_or_default();
        if number >= first + TAGS {
            self.drain(number, tags)?;
        }
        self.registry().enter(number, tags);
        Ok(Registration { comm: Arc::clone(self), number, keeps_tags: false })
    }

    /// Receives and drops stray messages with the tags of a new engine: the tags are reused, and no engine waits for those
    /// messages.
    fn drain(&self, number: u64, tags: u64) -> Result<()> {
        for tag in number % TAGS..number % TAGS + tags {
            while let Some((rank, bytes)) = self.iprobe(None, tag as u32)? {
                self.take(rank, bytes, tag as u32)?;
            }
        }
        Ok(())
    }

    /// Receives a message that a probe has found.
    fn take(&self, rank: usize, bytes: usize, tag: u32) -> Result<Vec<u8>> {
        let mut message = OwnedMessage::receive(&self.comm, bytes, rank, tag)?;
        let begin = Instant::now();
        while !message.is_done()? {
            if begin.elapsed() > DEADLINE {
                return Err(Error::new(
                    ErrorKind::External,
                    format!("a message of rank {rank} was announced and did not arrive"),
                ));
            }
        }
        Ok(message.take())
    }

    /// Sends all other ranks a failure notice for an engine, without waiting. A rank that cannot be reached runs into its
    /// timeout.
    fn notify(&self, number: u64, run: u64, why: &str) {
        let mut length = why.len().min(MAX_NOTICE_BYTES - 16);
        while !why.is_char_boundary(length) {
            length -= 1;
        }
        let notice = [&number.to_ne_bytes(), &run.to_ne_bytes(), &why.as_bytes()[..length]].concat();
        let mut registry = self.registry();
        registry.notices.retain_mut(|sent| !matches!(sent.is_done(), Ok(true)));
        for rank in (0..self.size()).filter(|&rank| rank != self.rank()) {
            if let Ok(sent) = OwnedMessage::send(&self.comm, notice.clone(), rank, NOTICE_TAG) {
                registry.notices.push(sent);
            }
        }
    }

    /// Receives the failure notices of other ranks.
    fn receive_notices(&self) -> Result<MutexGuard<'_, Registry>> {
        let mut registry = self.registry();
        while let Some((rank, bytes)) = self.iprobe(None, NOTICE_TAG)? {
            let notice = self.take(rank, bytes, NOTICE_TAG)?;
            if let Some((number, rest)) = notice.split_first_chunk()
                && let Some((run, why)) = rest.split_first_chunk()
            {
                let (run, why) = (u64::from_ne_bytes(*run), String::from_utf8_lossy(why).into_owned());
                registry.fail(u64::from_ne_bytes(*number), Failure { rank, run, why });
            }
        }
        Ok(registry)
    }
}

/// An engine's number and tags on its communicator, its own as long as this lives.
pub struct Registration {
    comm: Arc<PrivateComm>,
    number: u64,
    /// A message of the engine may still be in flight.
    keeps_tags: bool,
}

impl Registration {
    pub fn comm(&self) -> &Arc<PrivateComm> {
        &self.comm
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The first MPI tag of the engine.
    pub fn tag(&self) -> u32 {
        (self.number % TAGS) as u32
    }

    /// Keeps the tags from being used again: a message may still be in flight.
    pub fn keep_tags(&mut self) {
        self.keeps_tags = true;
    }

    /// Sends all other ranks a notice that the engine has failed on this rank in a run.
    pub fn notify(&self, run: u64, why: &str) {
        if !is_forked() {
            self.comm.notify(self.number, run, why);
        }
    }

    /// Fails if another rank has sent a notice that the engine failed there in this run or before: a rank that failed in a
    /// later run has done its part of this one. With `probes`, new notices are received first.
    pub fn check(&self, run: u64, probes: bool) -> Result<()> {
        let registry = if probes { self.comm.receive_notices()? } else { self.comm.registry() };
        match registry.failure(self.number) {
            Some(Failure { rank, run: failed, why }) if *failed <= run => {
                Err(Error::new(ErrorKind::External, format!("rank {rank} cannot go on: {why}")))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Another thread of the parent may hold the lock for ever.
        if is_forked() {
            return;
        }
        if self.keeps_tags {
            self.comm.leak();
        }
        self.comm.registry().leave(self.number, !self.keeps_tags);
    }
}
