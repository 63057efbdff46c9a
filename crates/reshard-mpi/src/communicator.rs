//! What the engines on one transport share: their numbers and tags, agreement on what is made, and which have failed.
//!
//! An engine that fails on one rank sends a failure notice to all others: a few bytes to each. Only ranks that wait probe
//! for notices, so they cost nothing while all is well. A notice that is due on a thread that may not call MPI is kept, and sent by the
//! next call on the communicator of a thread that may.

use crate::fork::{forked_off, is_forked, watch_forks};
use crate::node::Node;
use crate::registry::{Failure, Registry, TAGS};
use crate::transport::{MAX_MESSAGE_BYTES, Transport};
use crate::tree::{HEAD_BYTES, TreeExchange, gather, no_answer, send_once, wait_within};
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The default timeout of a rank that waits for others.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The tag of failure notices.
const NOTICE_TAG: u32 = 32_002;

/// The first of the two tags of gathers.
const GATHER_TAG: u32 = 32_003;

/// The most bytes of a failure notice: which engine, in which run, and why.
const MAX_NOTICE_BYTES: usize = 512;

/// What ranks tell each other in one go.
const SHORT_BYTES: usize = 160;

/// The ranks that engines are made on, over a [`Transport`].
pub struct Communicator {
    transport: Box<dyn Transport>,
    pub(crate) node: OnceLock<Node>,
    registry: Mutex<Registry>,
    /// Exchanges so far.
    exchanges: AtomicU64,
    /// The first sequence number: that of the transport.
    first: OnceLock<u64>,
    /// Why it cannot be used any more.
    refused: OnceLock<String>,
}

/// What engines are made on: a [`Communicator`], or what has one, as a communicator of MPI.
pub trait ToCommunicator {
    /// The communicator of engines. Collective the first time; fails on timeout, and if it cannot be used any more.
    fn to_communicator(&self, limit: Option<Duration>) -> Result<Arc<Communicator>>;
}

impl ToCommunicator for Arc<Communicator> {
    fn to_communicator(&self, limit: Option<Duration>) -> Result<Arc<Communicator>> {
        self.check_open()?;
        self.check_usable()?;
        self.begin(limit)?;
        self.send_notices(&mut self.registry());
        Ok(Self::clone(self))
    }
}

impl Communicator {
    /// A communicator over a transport. It must be made on all ranks.
    pub fn new(transport: impl Transport) -> Arc<Self> {
        watch_forks();
        Arc::new(Self {
            transport: Box::new(transport),
            node: OnceLock::new(),
            registry: Mutex::default(),
            exchanges: AtomicU64::new(0),
            first: OnceLock::new(),
            refused: OnceLock::new(),
        })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// What carries its messages.
    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// What carries its messages, to interfere with them: for tests.
    ///
    /// # Safety
    /// Ranks that share memory agree over it who writes where: nothing is sent that could be taken for such a message, and none is
    /// received.
    #[doc(hidden)]
    #[allow(unsafe_code)]
    pub unsafe fn transport_of_engines(&self) -> &dyn Transport {
        self.transport()
    }

    /// Fails if nothing can be sent or received: in a fork of a rank, after the end of MPI, on a thread that may not call it.
    pub(crate) fn check_open(&self) -> Result<()> {
        if is_forked() {
            return Err(forked_off());
        }
        self.transport.check_open()
    }

    /// Fails if this thread may not send or receive, while another one of the process may.
    pub(crate) fn check_thread(&self) -> Result<()> {
        self.transport.check_thread()
    }

    /// Fails if it cannot be used any more.
    pub(crate) fn check_usable(&self) -> Result<()> {
        let Some(why) = self.refused.get() else { return Ok(()) };
        Err(Error::new(
            ErrorKind::External,
            format!(
                "nothing more can be made on this communicator since an earlier failure ({why}); see what became of the others, \
                 and use another communicator"
            ),
        ))
    }

    /// Takes the first sequence number. Collective the first time.
    pub(crate) fn begin(&self, limit: Option<Duration>) -> Result<()> {
        if self.first.get().is_none() {
            let first = self.transport.number(limit).inspect_err(|error| self.refuse(error))?;
            self.first.get_or_init(|| first);
            self.registry().begin(first);
        }
        Ok(())
    }

    /// Gives the communicator up: the ranks are out of step, and the next exchange would be matched with another one. The
    /// first reason is kept.
    pub(crate) fn refuse(&self, why: &Error) {
        self.transport.poison();
        let _ = self.refused.set(why.to_string());
    }

    /// The sequence number of the next exchange.
    pub(crate) fn next_sequence(&self) -> u64 {
        let first = self.first.get().copied().unwrap_or_default();
        first + self.exchanges.fetch_add(1, Ordering::Relaxed)
    }

    /// Gathers the bytes of all ranks on all ranks, in the order of ranks; all must give equally many. Collective.
    pub fn gather(&self, mine: &[u8], limit: Option<Duration>) -> Result<Vec<u8>> {
        self.gather_lengths(mine, &|_| mine.len(), limit)
    }

    /// As [`gather`](Self::gather), where all know how many bytes each rank has.
    fn gather_lengths(
        &self,
        mine: &[u8],
        length: &dyn Fn(usize) -> usize,
        limit: Option<Duration>,
    ) -> Result<Vec<u8>> {
        self.check_open()?;
        self.check_usable()?;
        self.begin(limit)?;
        self.send_notices(&mut self.registry());
        let all: u128 = (0..self.size()).map(|rank| length(rank) as u128).sum();
        if all > (MAX_MESSAGE_BYTES - HEAD_BYTES) as u128 {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "{all} bytes of all ranks were to be gathered, and a message has at most {MAX_MESSAGE_BYTES}"
                ),
            ));
        }
        let sequence = self.next_sequence();
        let exchange = TreeExchange { transport: self.transport(), sequence, tag: GATHER_TAG, limit };
        // A message, what it is made of, and what is made of it.
        let gathered =
            memory::check(3 * all, "what all ranks say").and_then(|()| gather(&exchange, mine, length));
        let gathered = gathered.and_then(|gathered| gathered.map_err(no_answer));
        gathered.inspect_err(|error| self.refuse(error))
    }

    /// Gathers what each rank says, however long it is, on all ranks, in the order of ranks. Collective.
    pub fn gather_texts(&self, mine: &[u8], limit: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        // Lengths, and what is short along with them.
        let mut first = [0; SHORT_BYTES];
        first[..8].copy_from_slice(&(mine.len() as u64).to_ne_bytes());
        let short = mine.len().min(SHORT_BYTES - 8);
        first[8..8 + short].copy_from_slice(&mine[..short]);
        let all = self.gather(&first, limit)?;
        let (all, _) = all.as_chunks::<SHORT_BYTES>();
        let length = |one: &[u8; SHORT_BYTES]| {
            one.first_chunk::<8>().map_or(0, |length| u64::from_ne_bytes(*length) as usize)
        };
        let lengths: Vec<usize> = all.iter().map(length).collect();
        if lengths.iter().all(|&length| length <= SHORT_BYTES - 8) {
            return Ok(all.iter().zip(lengths).map(|(one, length)| one[8..8 + length].to_vec()).collect());
        }
        // What is short is here already: one rank that has much to say costs the others no more than that.
        let rest = |length: usize| if length <= SHORT_BYTES - 8 { 0 } else { length };
        let mine = if rest(mine.len()) == 0 { &[] } else { mine };
        let texts = self.gather_lengths(mine, &|rank| rest(lengths[rank]), limit)?;
        let mut texts = texts.as_slice();
        let text = |(one, &length): (&[u8; SHORT_BYTES], &usize)| match rest(length) {
            0 => one[8..8 + length].to_vec(),
            _ => texts.split_off(..length).unwrap_or_default().to_vec(),
        };
        Ok(all.iter().zip(&lengths).map(text).collect())
    }

    /// The result of all ranks: that of this one, or, if some failed, the error of the first of them, on all ranks; `told` makes it of the
    /// rank, its kind and its sentence. Collective.
    pub fn agree_on<T>(
        &self,
        mine: Result<T>,
        limit: Option<Duration>,
        told: impl Fn(usize, ErrorKind, &str) -> Error,
    ) -> Result<T> {
        let said = mine.as_ref().err().map_or(Vec::new(), |error| {
            [&[error.kind().code() as u8], error.to_string().as_bytes()].concat()
        });
        let all = self.gather_texts(&said, limit)?;
        let Some(rank) = all.iter().position(|said| !said.is_empty()) else { return mine };
        let kind = ErrorKind::from_code(i32::from(all[rank][0])).unwrap_or(ErrorKind::Failed);
        Err(told(rank, kind, &String::from_utf8_lossy(&all[rank][1..])))
    }

    /// Gathers a number of each rank on all ranks. Collective.
    pub fn gather_numbers(&self, number: u64, limit: Option<Duration>) -> Result<Vec<u64>> {
        let all = self.gather(&number.to_ne_bytes(), limit)?;
        let number = |eight: &[u8]| u64::from_ne_bytes(eight.try_into().unwrap_or_default());
        Ok(all.chunks_exact(8).map(number).collect())
    }

    /// The sum of a number of each rank. Collective.
    pub(crate) fn sum(&self, number: u64, limit: Option<Duration>) -> Result<u64> {
        Ok(self.gather_numbers(number, limit)?.into_iter().fold(0, u64::saturating_add))
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
            while let Some((rank, bytes)) = self.transport.probe(tag as u32)? {
                self.take(rank, bytes, tag as u32)?;
            }
        }
        Ok(())
    }

    /// Receives a message that a probe has found.
    fn take(&self, rank: usize, bytes: usize, tag: u32) -> Result<Vec<u8>> {
        let mut message = self.transport.buffer(bytes)?;
        message.receive(rank, tag)?;
        if !wait_within(&mut *message, Some(DEADLINE))? {
            return Err(Error::new(
                ErrorKind::External,
                format!("a message of rank {rank} was announced and did not arrive"),
            ));
        }
        Ok(message.bytes().to_vec())
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
        registry.unsent.push(notice);
        self.send_notices(&mut registry);
    }

    /// Sends the notices that are due, if this thread may.
    fn send_notices(&self, registry: &mut Registry) {
        if registry.unsent.is_empty() || self.check_open().is_err() {
            return;
        }
        registry.notices.retain_mut(|sent| !matches!(sent.test(), Ok(Some(_))));
        for notice in std::mem::take(&mut registry.unsent) {
            for rank in (0..self.size()).filter(|&rank| rank != self.rank()) {
                match send_once(self.transport(), &notice, rank, NOTICE_TAG) {
                    Ok(sent) => registry.notices.push(sent),
                    // Others would wait for it before they free the transport.
                    Err(_) => self.transport.poison(),
                }
            }
            registry.sent += 1;
        }
    }

    /// Lets the transport go on: MPI moves what others wait for only when it is called.
    pub(crate) fn progress(&self) -> Result<()> {
        self.transport.probe(NOTICE_TAG).map(drop)
    }

    /// Receives the failure notices of other ranks.
    fn receive_notices(&self) -> Result<MutexGuard<'_, Registry>> {
        let mut registry = self.registry();
        while let Some((rank, bytes)) = self.transport.probe(NOTICE_TAG)? {
            let notice = self.take(rank, bytes, NOTICE_TAG)?;
            registry.received += 1;
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

impl Drop for Communicator {
    fn drop(&mut self) {
        // Another thread of the parent may hold the lock for ever.
        if is_forked() {
            return;
        }
        let mut registry = self.registry();
        self.send_notices(&mut registry);
        let (sent, received) = (registry.sent, registry.received);
        drop(registry);
        self.transport.retire(NOTICE_TAG, sent, received);
    }
}

/// An engine's number and tags on its communicator, its own as long as this lives.
pub(crate) struct Registration {
    comm: Arc<Communicator>,
    number: u64,
    /// A message of the engine may still be in flight.
    keeps_tags: bool,
}

impl Registration {
    pub fn comm(&self) -> &Arc<Communicator> {
        &self.comm
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The first tag of the engine.
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
        let mut registry = if probes { self.comm.receive_notices()? } else { self.comm.registry() };
        self.comm.send_notices(&mut registry);
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
            self.comm.transport.poison();
        }
        self.comm.registry().leave(self.number, !self.keeps_tags);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::transport::ThreadTransport;

    #[test]
    fn stray_messages_with_tags_that_are_used_again_are_dropped() {
        let ranks: Vec<_> = ThreadTransport::groups([2, 0]).into_iter().map(Communicator::new).collect();
        let (first, tag) = (5 * TAGS, 7);
        ranks[0].first.set(first).unwrap();
        let mut stray = ranks[1].transport.buffer(8).unwrap();
        stray.send(0..8, 0, tag, false).unwrap();
        let waits = || ranks[0].transport.probe(tag).unwrap().is_some();
        // It may be a message of the first engine with this tag, whose sender was faster.
        drop(ranks[0].enter(first + u64::from(tag), 2).unwrap());
        assert!(waits());
        drop(ranks[0].enter(first + TAGS + u64::from(tag), 2).unwrap());
        assert!(!waits());
    }
}
