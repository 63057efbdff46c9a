//! What a test needs of its ranks, whatever connects them: processes under a launcher of MPI, or threads of one process.

#![allow(unsafe_code)]

use reshard::Result;
use reshard_mpi::Comm;
use reshard_mpi::communicator::{Communicator, ToCommunicator};
use reshard_mpi::in_process::{self, ThreadRank};
use reshard_mpi::mpi::Reduce;
use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{park, sleep};
use std::time::Duration;

/// How long a test waits for its ranks.
const LONG: Option<Duration> = Some(Duration::from_secs(1200));

/// One rank of a test.
pub trait World: ToCommunicator {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// The communicator of MPI, if there is one.
    fn mpi(&self) -> Option<&Comm>;

    /// Gathers bytes of all ranks, beside whatever engines send.
    fn gather(&self, mine: &[u8]) -> Vec<u8>;

    /// This rank on a new communicator of all ranks, in the order of the keys that they give.
    fn reordered(&self, key: u32) -> Box<dyn World>;

    /// Stops this rank for a time.
    fn stop_for(&self, time: Duration);

    /// Ends this rank, without a word to the others.
    fn kill(&self) -> !;

    /// Sums of all ranks' numbers.
    fn sum(&self, numbers: &mut [u64]) {
        let mine: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let all = self.gather(&mine);
        numbers.fill(0);
        for (at, eight) in all.chunks_exact(8).enumerate() {
            numbers[at % (mine.len() / 8)] += u64::from_ne_bytes(eight.try_into().unwrap());
        }
    }

    /// Waits for all ranks.
    fn meet(&self) {
        self.gather(&[0]);
    }

    /// What carries the engines' messages, to interfere with them.
    fn communicator(&self) -> Arc<Communicator> {
        self.to_communicator(LONG).unwrap()
    }
}

impl World for Comm {
    fn rank(&self) -> usize {
        Self::rank(self)
    }

    fn size(&self) -> usize {
        Self::size(self)
    }

    fn mpi(&self) -> Option<&Comm> {
        Some(self)
    }

    fn gather(&self, mine: &[u8]) -> Vec<u8> {
        let mut all = vec![0; mine.len() * Self::size(self)];
        self.all_gather_within(mine, &mut all, LONG).unwrap();
        all
    }

    fn sum(&self, numbers: &mut [u64]) {
        self.all_reduce_within(numbers, Reduce::Sum, LONG).unwrap();
    }

    fn reordered(&self, key: u32) -> Box<dyn World> {
        Box::new(self.split(Some(0), key).unwrap().unwrap())
    }

    fn stop_for(&self, time: Duration) {
        let pid = std::process::id();
        let wake = format!("sleep {}; kill -CONT {pid}", time.as_secs_f64());
        let mut shell = Command::new("sh").args(["-c", &wake]).spawn().unwrap();
        let stopped = Command::new("kill").args(["-STOP", &pid.to_string()]).status();
        assert!(stopped.unwrap().success() && shell.wait().unwrap().success());
    }

    fn kill(&self) -> ! {
        let status = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        unreachable!("{status:?}")
    }
}

/// A rank that is a thread.
pub struct Thread {
    end: ThreadRank,
    communicator: Arc<Communicator>,
    /// For what the test itself says.
    aside: Arc<Communicator>,
    /// Tells the groups of a test apart.
    number: u64,
    splits: AtomicU64,
    job: Arc<Job>,
}

/// A rank's ends in a new group, for engines and for the test itself, until it fetches them.
type UnclaimedEnds = [Option<End>; 2];

type End = (Arc<Communicator>, ThreadRank);

/// What the threads of a test share.
#[derive(Default)]
struct Job {
    /// Every group of theirs that was reordered, by the number of the old group and how often it was.
    groups: Mutex<HashMap<(u64, u64), Vec<UnclaimedEnds>>>,
    /// By rank: whether it was killed.
    killed: Mutex<Vec<usize>>,
}

impl Thread {
    fn new(end: End, aside: End, number: u64, job: Arc<Job>) -> Self {
        let ((communicator, rank), (aside, _)) = (end, aside);
        Self { end: rank, number, communicator, aside, splits: AtomicU64::new(0), job }
    }
}

/// Plays a part with so many threads. Those that are killed are not waited for; if one fails, all do.
pub fn in_threads(ranks: usize, play: impl Fn(&dyn World) + Send + Sync + 'static) {
    let (play, job) = (Arc::new(play), Arc::new(Job::default()));
    let ends = || in_process::with_handles([ranks, 0]).into_iter();
    let ends = ends().zip(ends());
    let threads: Vec<_> = ends
        .map(|(end, aside)| {
            let (play, world) = (Arc::clone(&play), Thread::new(end, aside, 0, Arc::clone(&job)));
            std::thread::spawn(move || play(&world))
        })
        .collect();
    for (rank, thread) in threads.into_iter().enumerate() {
        while !thread.is_finished() && !job.killed.lock().unwrap().contains(&rank) {
            sleep(Duration::from_millis(1));
        }
        if thread.is_finished() && thread.join().is_err() {
            // The others may wait for it.
            std::process::exit(101);
        }
    }
}

impl ToCommunicator for Thread {
    fn to_communicator(&self, limit: Option<Duration>) -> Result<Arc<Communicator>> {
        self.communicator.to_communicator(limit)
    }
}

impl World for Thread {
    fn rank(&self) -> usize {
        self.communicator.rank()
    }

    fn size(&self) -> usize {
        self.communicator.size()
    }

    fn mpi(&self) -> Option<&Comm> {
        None
    }

    fn gather(&self, mine: &[u8]) -> Vec<u8> {
        self.aside.gather(mine, LONG).unwrap()
    }

    fn reordered(&self, key: u32) -> Box<dyn World> {
        let keys: Vec<u32> = self
            .gather(&key.to_ne_bytes())
            .chunks_exact(4)
            .map(|four| u32::from_ne_bytes(four.try_into().unwrap()))
            .collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&rank| (keys[rank], rank));
        let name = (self.number, self.splits.fetch_add(1, Ordering::Relaxed));
        let mut groups = self.job.groups.lock().unwrap();
        let ends = groups.entry(name).or_insert_with(|| {
            // SAFETY: every rank fetches its own, below.
            let [own, aside] = [0, 1].map(|_| unsafe { self.end.regrouped(&order) });
            own.into_iter().zip(aside).map(|(own, aside)| [Some(own), Some(aside)]).collect()
        });
        let place = order.iter().position(|&rank| rank == World::rank(self)).unwrap();
        let [own, aside] = ends[place].each_mut().map(|end| end.take().unwrap());
        let number = self.number * 1_000 + name.1 + 1;
        Box::new(Self::new(own, aside, number, Arc::clone(&self.job)))
    }

    fn stop_for(&self, time: Duration) {
        sleep(time);
    }

    fn kill(&self) -> ! {
        self.end.cut_off();
        self.job.killed.lock().unwrap().push(World::rank(self));
        loop {
            park();
        }
    }
}
