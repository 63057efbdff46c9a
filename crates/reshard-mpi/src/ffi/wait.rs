//! Waiting with an end.
//!
//! `MPI_Wait` waits for ever when a partner is gone. We ask again and again instead: a few times at once, because most
//! messages are nearly there, then letting others run in between, because ranks may outnumber processors.

use super::request::Request;
use reshard_plan::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// So long a rank waits for others unless it is told otherwise.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How often all are asked before others may run.
const SPINS: u32 = 100;

/// Waits until all are done; [`Request::received`] then says how many bytes came. At the deadline, counted from now, it
/// fails and says how long it waited; what is still under way stays so, and its memory must stay where it is. Without a
/// deadline it waits as long as it takes.
pub fn wait(requests: &mut [Request], deadline: Option<Duration>) -> Result<()> {
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
            return Ok(());
        }
        if let Some(deadline) = deadline
            && begin.elapsed() >= deadline
        {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "waited {:.3} s for {} of {} messages, which did not come: a peer has exited, is stuck or slow; \
                     see what became of the other ranks, or allow more time",
                    begin.elapsed().as_secs_f64(),
                    open,
                    requests.len()
                ),
            ));
        }
        rounds += 1;
        if rounds < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}
