//! Words in memory that several processes map, and every ordering by which they rely on each other.
//!
//! What ranks of a node tell each other they tell through such words. The types that do so ([`Lane`](super::private::queue),
//! [`DoubleBuffer`](super::messages::double_buffer), [`ProgressBoard`](super::shared::progress), [`TaskGroups`](super::shared::groups)) take any [`Memory`]: that of processes, or
//! loom's in models, which tries them in every order. Each ordering has a name, a [`OrderingSite`], so that the models can leave out one
//! after the other and show that it is needed. All others are relaxed: docs/protocols.md says why.

use crate::shm::NodeMemory;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that several processes reach.
pub trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, number: u64, order: Ordering);
    fn fetch_max(&self, number: u64, order: Ordering) -> u64;
    fn fetch_add(&self, number: u64, order: Ordering) -> u64;
    /// Relaxed; may fail for no reason.
    fn replace(&self, seen: u64, number: u64) -> Result<u64, u64>;
    /// None if it is relaxed.
    fn fence(order: Ordering);
}

/// Memory of which each rank has a part that all others reach, too.
pub trait SharedMemory {
    type Word: Word;

    fn rank(&self) -> usize;
    fn ranks(&self) -> usize;

    /// The word in the part of a rank at a byte, a multiple of 8. All are 0 at first.
    fn word(&self, rank: usize, at: usize) -> &Self::Word;
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, number: u64, order: Ordering) {
        self.store(number, order);
    }

    fn fetch_max(&self, number: u64, order: Ordering) -> u64 {
        self.fetch_max(number, order)
    }

    fn fetch_add(&self, number: u64, order: Ordering) -> u64 {
        self.fetch_add(number, order)
    }

    fn replace(&self, seen: u64, number: u64) -> Result<u64, u64> {
        self.compare_exchange_weak(seen, number, Ordering::Relaxed, Ordering::Relaxed)
    }

    fn fence(order: Ordering) {
        if order != Ordering::Relaxed {
            std::sync::atomic::fence(order);
        }
    }
}

impl SharedMemory for NodeMemory {
    type Word = AtomicU64;

    fn rank(&self) -> usize {
        self.rank()
    }

    fn ranks(&self) -> usize {
        self.ranks()
    }

    fn word(&self, rank: usize, at: usize) -> &AtomicU64 {
        self.counter(rank, at)
    }
}

macro_rules! ties {
    ($($(#[$says:meta])* $name:ident = $order:ident,)*) => {
        /// Where one process relies on another: whoever reads what was written there sees all that was done before.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OrderingSite { $($(#[$says])* $name,)* }

        impl OrderingSite {
            /// As it must be.
            const fn needed(self) -> Ordering {
                match self { $(Self::$name => Ordering::$order,)* }
            }

            #[cfg(all(test, loom))]
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

ties! {
    /// A sender has filled a box of a lane; the receiver sees that.
    LaneFills = Release,
    LaneSeesFilled = Acquire,
    /// A receiver has emptied boxes of its lanes; a sender sees that.
    LaneEmpties = Release,
    LaneSeesEmptied = Acquire,
    /// The same of letters within a node.
    TurnFills = Release,
    TurnSeesFilled = Acquire,
    TurnEmpties = Release,
    TurnSeesEmptied = Acquire,
    /// A rank has begun: its source is written, its destination may be. Whoever copies sees that.
    Begins = Release,
    SeesBegun = Acquire,
    /// A unit is copied; a receiver sees that all are, or, when it gives up, all that were taken.
    PutsDown = Release,
    SeesThrough = Acquire,
    SeesLast = Acquire,
    /// A rank has received everything; an owner sees that before it writes to its source.
    Receives = Release,
    SeesReceived = Acquire,
    /// Fences: of an owner between saying that it takes its source back and writing to it, and of who copies between reading it
    /// and saying so.
    TakesBack = Release,
    HasRead = Acquire,
}

impl OrderingSite {
    #[cfg(not(all(test, loom)))]
    #[inline]
    pub const fn order(self) -> Ordering {
        self.needed()
    }

    /// The one that is left out in this process is relaxed.
    #[cfg(all(test, loom))]
    pub fn order(self) -> Ordering {
        use std::sync::OnceLock;
        static LEFT_OUT: OnceLock<Option<String>> = OnceLock::new();
        let left_out = LEFT_OUT.get_or_init(|| std::env::var(Self::LEFT_OUT).ok());
        match left_out {
            Some(name) if *name == format!("{self:?}") => Ordering::Relaxed,
            _ => self.needed(),
        }
    }

    /// Names the one to be left out.
    #[cfg(all(test, loom))]
    pub const LEFT_OUT: &str = "RESHARD_LEAVE_OUT";
}
