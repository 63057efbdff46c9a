//! Some threads that take one piece of work after the other.

use reshard::engine::{Threads, ThreadsOptions};
use reshard::{Error, ErrorKind, Plan, Redistribution, Result};
use std::sync::{Arc, Mutex};

/// What threads that only read bytes for their checksums may take for them, all together: `--memory` leaves room for that.
const CHECKING_BYTES: usize = 4 << 20;
/// Fewer bytes at a time take longer.
const MIN_CHUNK_BYTES: usize = 4 << 10;

/// How many bytes each of some threads reads at a time to sum them up, `most` if they are few.
pub fn chunk_bytes(threads: usize, most: usize) -> usize {
    (CHECKING_BYTES / threads.max(1)).max(MIN_CHUNK_BYTES).min(most)
}

/// An engine with up to so many threads: if the system gives no more, with the calling one alone.
pub fn engine(plan: Plan, threads: usize) -> Result<Redistribution> {
    let plan = Arc::new(plan);
    let with =
        |threads| Threads::with_options(Arc::clone(&plan), ThreadsOptions::default().with_threads(threads));
    let engine = match with(threads) {
        Err(error) if error.kind() == ErrorKind::Memory && threads > 1 => with(1),
        made => made,
    };
    Ok(Redistribution::with(engine?))
}

/// Does `work` with each item on up to `threads` threads. The first error ends it.
pub fn for_each<T: Send>(threads: usize, items: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    each(threads, items, &work)
}

/// The threads, compiled once for each type of item.
fn each<T: Send>(threads: usize, items: Vec<T>, work: &(dyn Fn(T) -> Result<()> + Sync)) -> Result<()> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().try_for_each(work);
    }
    let (items, outcome) = (Mutex::new(items.into_iter()), Mutex::new(Ok(())));
    let failed = || Error::new(ErrorKind::Failed, "a thread panicked");
    std::thread::scope(|scope| {
        let turn = || {
            loop {
                let item = match (items.lock(), outcome.lock()) {
                    (Ok(mut items), Ok(outcome)) if outcome.is_ok() => items.next(),
                    _ => None,
                };
                let Some(item) = item else { return };
                if let (Err(error), Ok(mut outcome)) = (work(item), outcome.lock())
                    && outcome.is_ok()
                {
                    *outcome = Err(error);
                }
            }
        };
        // Where the system gives no more threads, those that are there do all of it.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, turn).ok();
        let others: Vec<_> = (1..threads).map_while(spawn).collect();
        turn();
        // All are waited for, also if one panicked.
        let panicked = others.into_iter().filter_map(|other| other.join().err()).count() > 0;
        if panicked { Err(failed()) } else { Ok(()) }
    })?;
    outcome.into_inner().map_err(|_| failed())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn many_threads_check_in_little_memory() {
        assert_eq!(chunk_bytes(1, 1 << 20), 1 << 20);
        for threads in [0, 1, 4, 5, 196, 1000] {
            let chunk = chunk_bytes(threads, 1 << 20);
            assert!(chunk >= MIN_CHUNK_BYTES && chunk * threads <= CHECKING_BYTES, "{threads} {chunk}");
        }
    }

    #[test]
    fn each_item_is_taken_once_until_one_fails() {
        for threads in [1, 2, 5] {
            let sum = AtomicU64::new(0);
            let add = |item: u64| {
                sum.fetch_add(item, Ordering::Relaxed);
                Ok(())
            };
            assert_eq!(for_each(threads, (1..=100).collect(), add), Ok(()));
            assert_eq!(sum.into_inner(), 5050);
            let failing = |item: u64| match item {
                7 => Err(Error::new(ErrorKind::Failed, "seven")),
                _ => Ok(()),
            };
            assert!(for_each(threads, (1..=100).collect(), failing).is_err());
        }
    }
}
