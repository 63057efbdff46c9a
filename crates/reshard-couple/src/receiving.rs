//! How a consumer takes a step: what comes is unpacked at once, while it is in the caches, and its memory is used for the next frames. Who
//! wants whole steps has nothing unpacked until all of it is there.

use crate::arrivals::{Arrivals, ArrivedFrame, Coming};
use crate::connecting::{Redialling, partner};
use crate::io::IoThread;
use crate::side::Unpacking;
use crate::terms::{Announced, Wanted};
use reshard::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long to look for something in shared memory before this process sleeps.
const POLLING: Duration = Duration::from_micros(200);

/// A step that comes.
pub struct Receiving<'s> {
    pub io: &'s IoThread<Arrivals>,
    pub array: usize,
    pub wanted: &'s Wanted,
    pub announced: &'s Announced,
    pub deadline: Duration,
    /// Where not all connections are held.
    pub redialling: Option<&'s Redialling>,
    /// Something was unpacked already.
    pub early: bool,
    /// It cannot be asked for again, as not all of it would come.
    pub once: bool,
}

impl Receiving<'_> {
    /// Waits until all of it is there.
    pub fn receive(&mut self, ranks: &mut [Unpacking<'_>], end: Instant) -> Result<()> {
        let (shared, sequence) = (self.io.shared(), self.announced.sequence);
        let mut later = self.redialling.map_or(VecDeque::new(), |_| {
            let processes = shared.lock().arrays[self.array].not_done(sequence);
            processes.into()
        });
        shared.lock().receives(true);
        let received = self.receive_all(ranks, &mut later, end);
        shared.lock().receives(false);
        received
    }

    fn receive_all(
        &mut self,
        ranks: &mut [Unpacking<'_>],
        later: &mut VecDeque<u32>,
        end: Instant,
    ) -> Result<()> {
        let (shared, sequence) = (self.io.shared(), self.announced.sequence);
        let polls = shared.lock().shared_count() > 0;
        loop {
            if let Some(redialling) = self.redialling {
                self.once = true;
                self.connect_some(redialling, later, end)?;
            }
            let mut coming = if polls { self.poll() } else { None };
            if coming.is_none() {
                coming = shared.wait(end, |arrivals| {
                    let (array, whole) = (self.array, self.wanted.whole);
                    // Whoever is woken once, and finds nothing to do, is to be woken again.
                    arrivals.coming(array, sequence, whole).or_else(|| {
                        arrivals.sleeps();
                        arrivals.coming(array, sequence, whole)
                    })
                });
            }
            match coming {
                Some(Coming::Complete) => return self.check(ranks),
                Some(Coming::Frames(frames)) => {
                    (self.early, self.once) = (true, true);
                    for frame in frames {
                        unpack(ranks, &frame)?;
                        shared.lock().give_back(frame);
                    }
                }
                Some(Coming::Done(process)) => {
                    if self.redialling.is_some() {
                        shared.lock().pause(process);
                        shared.wake();
                    }
                }
                Some(Coming::Over(why)) => return Err(self.failed(why)),
                None => return Err(self.late()),
            }
        }
    }

    /// Fails if frames that wait to be unpacked are not as long as both sides agreed on: before any process of the job has written something.
    fn check(&mut self, ranks: &mut [Unpacking<'_>]) -> Result<()> {
        let arrivals = self.io.shared().lock();
        let mut frames = arrivals.arrays[self.array].frames(self.announced.sequence);
        let checked = frames.try_for_each(|frame| {
            let rank = rank_of(ranks, frame.to)?;
            rank.check(u64::from(frame.from), frame.bytes().len())
        });
        // It will not be right the next time either.
        self.once |= checked.is_err();
        checked
    }

    /// Looks for a moment whether something comes through shared memory.
    fn poll(&self) -> Option<Coming> {
        let (shared, sequence) = (self.io.shared(), self.announced.sequence);
        let began = Instant::now();
        loop {
            let mut arrivals = shared.lock();
            if let Some(coming) = arrivals.coming(self.array, sequence, self.wanted.whole) {
                return Some(coming);
            }
            if began.elapsed() > POLLING {
                return None;
            }
            drop(arrivals);
            std::thread::yield_now();
        }
    }

    /// Connects to the next processes in the order of the schedule, as many as may be at a time.
    fn connect_some(&self, redialling: &Redialling, later: &mut VecDeque<u32>, end: Instant) -> Result<()> {
        let shared = self.io.shared();
        loop {
            let open = shared.lock().data.len();
            let Some(process) = later.front().copied().filter(|_| redialling.may(open)) else {
                return Ok(());
            };
            let stream = redialling.dial(process, end)?;
            later.pop_front();
            let mut arrivals = shared.lock();
            let id = arrivals.attach(stream);
            arrivals.connected(process, id, self.array, self.announced.sequence);
            debug_assert!(arrivals.data.len() == open + 1);
            drop(arrivals);
            shared.wake();
        }
    }

    fn failed(&self, why: String) -> Error {
        partner(if self.early { format!("{why}; parts are written only in places") } else { why })
    }

    fn late(&self) -> Error {
        let missing = self.io.shared().lock().arrays[self.array].missing(self.announced.sequence);
        let (from, to) = missing.unwrap_or_default();
        self.failed(format!(
            "rank {to} waited {} s for what rank {from} of the producer sends it of step {} of the array '{}'",
            self.deadline.as_secs_f64(),
            self.announced.number,
            self.wanted.name
        ))
    }
}

/// Unpacks a frame into the part of the rank it is for; ranks are in their order.
pub fn unpack(ranks: &mut [Unpacking<'_>], frame: &ArrivedFrame) -> Result<()> {
    rank_of(ranks, frame.to)?.frame(u64::from(frame.from), frame.bytes())
}

fn rank_of<'r, 's>(ranks: &'r mut [Unpacking<'s>], to: u32) -> Result<&'r mut Unpacking<'s>> {
    match ranks.binary_search_by_key(&u64::from(to), |rank| rank.rank) {
        Ok(place) => Ok(&mut ranks[place]),
        Err(_) => {
            Err(Error::new(ErrorKind::Failed, format!("something came for rank {to}, which is not here")))
        }
    }
}
