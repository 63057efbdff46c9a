//! Some threads that take one piece of work after the other.

use reshard::{Error, ErrorKind, Result};
use std::sync::Mutex;

/// Does `work` with each item on up to `threads` threads. The first error ends it.
pub fn for_each<T: Send>(threads: usize, items: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
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
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(turn)).collect();
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
