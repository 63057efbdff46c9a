//! How a consumer takes a step: what comes through shared memory is unpacked as it comes, as its memory is wanted for the next frames; what
//! comes over connections only when all of it is there.

use crate::arrivals::{Arrivals, Coming};
use crate::connecting::partner;
use crate::io::IoThread;
use crate::side::Unpacking;
use crate::terms::{Announced, Wanted};
use reshard::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// A step that comes.
pub struct Receiving<'s> {
    pub io: &'s IoThread<Arrivals>,
    pub array: usize,
    pub wanted: &'s Wanted,
    pub announced: &'s Announced,
    pub deadline: Duration,
    /// Something was unpacked already.
    pub early: bool,
}

impl Receiving<'_> {
    /// Waits until all of it is there. What comes through shared memory is unpacked at once.
    pub fn receive(&mut self, ranks: &mut [Unpacking<'_>], end: Instant) -> Result<()> {
        let (shared, sequence) = (self.io.shared(), self.announced.sequence);
        loop {
            let coming = shared.wait(end, |arrivals| arrivals.coming(self.array, sequence));
            match coming {
                Some(Coming::Complete) => return Ok(()),
                Some(Coming::Frames(frames)) => {
                    self.early = true;
                    let mut unpacked = Ok(());
                    for frame in &frames {
                        unpacked = unpacked.and_then(|()| unpack(ranks, frame.from, frame.to, frame.bytes()));
                    }
                    shared.lock().give_back(frames);
                    shared.wake();
                    unpacked?;
                }
                Some(Coming::Over(why)) => return Err(self.failed(why)),
                None => return Err(self.late()),
            }
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
pub fn unpack(ranks: &mut [Unpacking<'_>], from: u32, to: u32, frame: &[u8]) -> Result<()> {
    match ranks.binary_search_by_key(&u64::from(to), |rank| rank.rank) {
        Ok(place) => ranks[place].frame(u64::from(from), frame),
        Err(_) => {
            Err(Error::new(ErrorKind::Failed, format!("something came for rank {to}, which is not here")))
        }
    }
}
