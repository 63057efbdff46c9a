//! The groups of processes that call, and what is kept of their earlier calls.
//!
//! Programs make and destroy contexts all the time, so a group is known by its processes, in their order. All processes of a group keep the
//! same, as what is kept depends on nothing but their calls. Where one has dropped a group, to keep others or because a call failed, the
//! others learn it: those that share memory see that its gather is closed, and in a reduction every process says whether it
//! has dropped any.

use crate::agreement::{AgreedCall, OwnState, Said};
use crate::cache::Cache;
use crate::settings::Settings;
use crate::small::{OneCollective, SmallMove};
use reshard_mpi::mpi::PrivateComm;
use reshard_mpi::{Comm, MpiEngine, NodeGather};
use reshard_plan::Error;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The most groups that are kept: then the one used least recently is dropped.
const MAX_GROUPS: usize = 64;

/// The most processes of a group that gathers in shared memory: each reads what all say.
const MAX_GATHERING: usize = 256;

/// Bytes of the slots of a gather.
pub const SLOT_BYTES: usize = (1 << 20) + (1 << 14);

/// The most engines of a group, the most segments of shared memory that they map together, one for each process, and the most bytes.
const MAX_ENGINES: usize = 128;
const MAX_SEGMENTS: usize = 1 << 13;
const MAX_ENGINE_BYTES: u64 = 1 << 29;

/// The most small moves of a group, and their bytes.
const MAX_SMALL: usize = 512;
const MAX_SMALL_BYTES: u64 = 1 << 26;

/// The processes of a context, and what is kept of their calls.
pub struct Group {
    pub comm: PrivateComm,
    /// Where all processes share memory.
    pub gather: Option<NodeGather>,
    pub engines: Cache<AgreedCall, Box<MpiEngine>>,
    pub small: SmallMoves,
    /// How MPI compares a communicator of these processes with this one.
    congruent: i32,
}

impl Group {
    fn new(comm: &Comm, settings: &Settings) -> Result<Self, Error> {
        let own = comm.private_duplicate(settings.deadline)?;
        let gather = match own.size() <= MAX_GATHERING && settings.only.is_none() {
            true => NodeGather::new(own.communicator(), SLOT_BYTES, settings.deadline)?,
            false => None,
        };
        let engines = (MAX_SEGMENTS / own.size().max(1)).clamp(1, MAX_ENGINES);
        Ok(Self {
            gather,
            engines: Cache::new(engines, MAX_ENGINE_BYTES),
            small: SmallMoves::default(),
            congruent: comm.compare(&own)?,
            comm: own,
        })
    }
}

/// A small move that is kept.
pub enum Small {
    /// Its data goes with a round of the gather.
    Gathered {
        small: SmallMove,
        /// What all processes said.
        expected: Vec<Said>,
        /// Bytes that move.
        bytes: u64,
    },
    /// Its data goes in one collective of MPI.
    Collective(OneCollective),
}

/// The small moves of a group, by numbers that are the same on all its processes.
pub struct SmallMoves {
    moves: Cache<u64, Small>,
    numbers: HashMap<AgreedCall, u64>,
    /// The move that was meant when this process last said this.
    meant: HashMap<Said, u64>,
    /// Moves made so far.
    made: u64,
}

impl Default for SmallMoves {
    fn default() -> Self {
        let moves = Cache::new(MAX_SMALL, MAX_SMALL_BYTES);
        Self { moves, numbers: HashMap::new(), meant: HashMap::new(), made: 0 }
    }
}

impl SmallMoves {
    /// The number of the move of a call, if it is kept.
    pub fn number(&self, call: &AgreedCall) -> Option<u64> {
        self.numbers.get(call).copied().filter(|number| self.moves.has(number))
    }

    /// Keeps a move, which takes so many bytes. All processes of the group do.
    pub fn insert(&mut self, call: &AgreedCall, small: Small, bytes: u64) -> u64 {
        self.moves.make_room(bytes);
        self.made += 1;
        self.moves.insert(self.made, small, bytes);
        if self.numbers.len() >= 2 * MAX_SMALL {
            self.numbers.retain(|_, number| self.moves.has(number));
        }
        if self.meant.len() >= 2 * MAX_SMALL {
            self.meant.retain(|_, number| self.moves.has(number));
        }
        self.numbers.insert(call.clone(), self.made);
        self.made
    }

    /// The move of a number that all processes use now.
    pub fn get(&mut self, number: u64) -> Option<&mut Small> {
        self.moves.get(&number)
    }

    /// The move of a number, for this process alone: it counts as no use.
    pub fn look(&mut self, number: u64) -> Option<&mut Small> {
        self.moves.look(&number)
    }

    /// The move that was meant when this process last said this, if it is kept.
    pub fn meant(&self, said: &Said) -> Option<u64> {
        self.meant.get(said).copied().filter(|number| self.moves.has(number))
    }

    /// Remembers what was meant.
    pub fn remember(&mut self, said: Said, number: u64) {
        self.meant.insert(said, number);
    }
}

/// A group that is known, and the number of its last use.
struct Known {
    group: Arc<Mutex<Group>>,
    last_use: u64,
    /// Ranks and rank of its communicator, and whether it gathers: without asking for the lock.
    place: (usize, usize),
    gathers: bool,
}

/// Groups by the numbers of their processes, in the order of the communicator.
#[derive(Default)]
struct Groups {
    known: HashMap<Vec<u64>, Known>,
    /// Uses so far.
    uses: u64,
    /// A group was dropped: its other processes may still know it.
    dropped: bool,
}

/// What this process keeps of earlier calls.
pub struct Kept {
    groups: Mutex<Groups>,
    /// A number of this process.
    process: u64,
}

/// Some number of 62 bits, not 0.
fn random() -> u64 {
    RandomState::new().hash_one(0) >> 2 | 1
}

/// The lock of a group.
pub fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    pub fn get() -> &'static Self {
        static KEPT: OnceLock<Kept> = OnceLock::new();
        KEPT.get_or_init(|| Self { groups: Mutex::default(), process: random() })
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many groups are kept: each has a communicator of its own.
    pub fn count(&self) -> usize {
        self.groups().known.len()
    }

    /// True if the group of these processes is known.
    pub fn knows(&self, processes: &[u64]) -> bool {
        self.groups().known.contains_key(processes)
    }

    /// Forgets a group that all its processes forget.
    pub fn forget(&self, processes: &[u64]) {
        self.groups().known.remove(processes);
    }

    /// Drops a group that others may keep.
    pub fn drop_group(&self, processes: &[u64]) {
        let mut groups = self.groups();
        groups.known.remove(processes);
        groups.dropped = true;
    }

    /// Drops all groups: a call ended where nobody knows.
    pub fn drop_everything(&self) {
        let mut groups = self.groups();
        groups.known.clear();
        groups.dropped = true;
    }

    /// What this process says of itself.
    pub fn state(&self) -> OwnState {
        OwnState { process: self.process, dropped: self.groups().dropped }
    }

    /// The group of a communicator's processes, and their numbers, if it is known, and gathers in shared memory. Local: if one process
    /// finds it, all do, or see that its gather is closed.
    pub fn gathering(&self, comm: &Comm) -> Option<(Vec<u64>, Arc<Mutex<Group>>)> {
        let mut groups = self.groups();
        groups.uses += 1;
        let now = groups.uses;
        let place = (comm.size(), comm.rank());
        let mut likely: Vec<(&Vec<u64>, &mut Known)> =
            groups.known.iter_mut().filter(|(_, known)| known.gathers && known.place == place).collect();
        likely.sort_unstable_by_key(|(_, known)| std::cmp::Reverse(known.last_use));
        likely.into_iter().find_map(|(processes, known)| {
            let is_it = {
                let group = lock(&known.group);
                comm.compare(&group.comm).is_ok_and(|result| result == group.congruent)
            };
            is_it.then(|| {
                known.last_use = now;
                (processes.clone(), Arc::clone(&known.group))
            })
        })
    }

    /// The group of these processes, made if there is none. Collective over `comm`.
    pub fn group(
        &self,
        processes: &[u64],
        comm: &Comm,
        settings: &Settings,
    ) -> Result<Arc<Mutex<Group>>, Error> {
        let mut groups = self.groups();
        groups.uses += 1;
        let now = groups.uses;
        if let Some(known) = groups.known.get_mut(processes) {
            known.last_use = now;
            return Ok(Arc::clone(&known.group));
        }
        drop(groups);
        let group = Group::new(comm, settings)?;
        let gathers = group.gather.is_some();
        let group = Arc::new(Mutex::new(group));
        let mut groups = self.groups();
        if groups.known.len() >= MAX_GROUPS {
            let oldest = groups.known.iter().min_by_key(|(_, known)| known.last_use);
            if let Some(oldest) = oldest.map(|(processes, _)| processes.clone()) {
                groups.known.remove(&oldest);
                groups.dropped = true;
            }
        }
        let known =
            Known { group: Arc::clone(&group), last_use: now, place: (comm.size(), comm.rank()), gathers };
        groups.known.insert(processes.to_vec(), known);
        Ok(group)
    }
}
