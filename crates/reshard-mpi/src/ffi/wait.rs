//! Waiting with a timeout.
//!
//! `MPI_Wait` never returns when the peer has exited. So requests are polled instead: first spinning, because most
//! messages are nearly there, then yielding in between, because ranks may outnumber processors.

use super::request::Request;
use reshard_plan::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// Polls before the processor is yielded.
const MAX_SPINS: u32 = 100;

/// Waits until all requests are complete; [`Request::received`] then gives the bytes received. Fails when `deadline`,
/// counted from now, has passed; requests that are still in flight stay so, and their memory must stay where it is. `None`
/// waits without a timeout.
pub fn wait(requests: &mut [Request], deadline: Option<Duration>) -> Result<()> {
    let begin = Instant::now();
    if all_complete_within(requests, deadline)? {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::External,
        format!(
            "waited {:.3} s for {} of {} messages, which did not come: a peer has exited, is stuck or slow; \
             see what became of the other ranks, or allow more time",
            begin.elapsed().as_secs_f64(),
            requests.iter().filter(|request| request.received().is_none()).count(),
            requests.len()
        ),
    ))
}

/// As [`wait`], but returns whether all are complete when `deadline` has passed. Fails only if MPI does.
pub(super) fn all_complete_within(requests: &mut [Request], deadline: Option<Duration>) -> Result<bool> {
    let begin = Instant::now();
    let mut rounds = 0;
    loop {
        let mut open = 0;
        for request in requests.iter_mut() {
            if request.test()?.is_none() {
                open += 1;
            }
        }
        if open == 0 {
            return Ok(true);
        }
        if let Some(deadline) = deadline
            && begin.elapsed() >= deadline
        {
            return Ok(false);
        }
        rounds += 1;
        if rounds < MAX_SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}
