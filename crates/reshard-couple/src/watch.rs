//! Notices that a job which MPI has joined is gone: MPI says nothing of it. The leader of that job holds a lock on a file, which the system
//! releases when it ends, however it ends.

use reshard_mpi::transport::Transport;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to look.
const PAUSE: Duration = Duration::from_millis(100);

/// What a job said before it ended arrives within this time.
const GRACE: Duration = Duration::from_secs(1);

/// What carries frames, and what notices that nobody is there any more to take them.
pub struct Carrier {
    pub transport: Arc<dyn Transport>,
    pub watch: Option<Watch>,
    /// What tells the other job that this one is there, as long as anything is carried.
    pub lock: Option<Arc<File>>,
}

/// A file that the other job's leader holds a lock on.
#[derive(Clone)]
pub struct Watch {
    file: Arc<File>,
    looked: Instant,
    /// Since when the lock is released.
    released: Option<Instant>,
}

impl Watch {
    /// None where the lock cannot be seen: file systems between machines may keep locks to themselves.
    pub fn new(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let seen = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        seen.then(|| Self { file: Arc::new(file), looked: Instant::now(), released: None })
    }

    /// True once the other job is gone, and what it said before is there.
    pub fn is_over(&mut self) -> bool {
        if self.released.is_none() && self.looked.elapsed() >= PAUSE {
            self.looked = Instant::now();
            self.released = match self.file.try_lock_shared() {
                Ok(()) => Some(self.looked),
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
            };
        }
        self.released.is_some_and(|since| since.elapsed() >= GRACE)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_released_is_noticed() {
        let path = std::env::temp_dir().join(format!("reshard-watch-{}", std::process::id()));
        let held = File::create(&path).unwrap();
        assert!(Watch::new(&path).is_none(), "nobody holds it");
        held.try_lock().unwrap();
        let mut watch = Watch::new(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::thread::sleep(2 * PAUSE);
        assert!(!watch.is_over() && watch.released.is_none());
        drop(held);
        std::thread::sleep(2 * PAUSE);
        assert!(!watch.is_over(), "what was said before may still come");
        std::thread::sleep(GRACE);
        assert!(watch.is_over());
        assert!(Watch::new(&path).is_none());
    }
}
