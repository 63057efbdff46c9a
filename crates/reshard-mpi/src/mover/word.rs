//! Words in memory that several processes map, and every memory ordering by which they synchronise.
//!
//! Ranks of a node synchronise through such words only. The types that do so ([`BufferRing`](super::private::queue),
//! [`DoubleBuffer`](super::messages::double_buffer), [`Offers`](super::cma::offers), [`Rounds`](super::gather), [`ProgressBoard`](super::shared::progress),
//! [`TaskGroups`](super::shared::groups)) are generic over [`SharedMemory`]: real shared memory in the movers, loom's
//! atomics in the models, which try every interleaving. Each acquire or release has a name, an [`OrderingSite`], so that
//! the models can relax one after the other and show that each is needed. All other accesses are relaxed:
//! docs/protocols.md says why.

use crate::shm::NodeMemory;
use std::sync::atomic::{AtomicU64, Ordering};

/// A 64-bit atomic word that several processes map.
pub trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, number: u64, order: Ordering);
    fn fetch_max(&self, number: u64, order: Ordering) -> u64;
    fn fetch_add(&self, number: u64, order: Ordering) -> u64;
    /// Weak compare-and-exchange, relaxed: stores `number` if the word holds `seen`. May fail spuriously.
    fn replace(&self, seen: u64, number: u64) -> Result<u64, u64>;
    /// A memory fence; no instruction if `order` is relaxed.
    fn fence(order: Ordering);
}

/// Memory of which each rank owns a part that all ranks of the node map.
pub trait SharedMemory {
    type Word: Word;

    fn rank(&self) -> usize;
    fn ranks(&self) -> usize;

    /// Returns the word at byte offset `at` (a multiple of 8) of the part of `rank`. All words are 0 at first.
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

macro_rules! ordering_sites {
    ($($(#[$says:meta])* $name:ident = $order:ident,)*) => {
        /// A place in the code where one process synchronises with another: a release, or the acquire that pairs with it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OrderingSite { $($(#[$says])* $name,)* }

        impl OrderingSite {
            /// The ordering that correctness requires here.
            const fn required(self) -> Ordering {
                match self { $(Self::$name => Ordering::$order,)* }
            }

            #[cfg(all(test, loom))]
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

ordering_sites! {
    /// [`BufferRing`](super::private::queue): the sender publishes a filled buffer; the receiver sees it.
    RingFills = Release,
    RingSeesFilled = Acquire,
    /// [`BufferRing`](super::private::queue): the receiver returns emptied buffers; a sender sees that.
    RingEmpties = Release,
    RingSeesEmptied = Acquire,
    /// [`DoubleBuffer`](super::messages::double_buffer): the sender publishes a filled buffer; the receiver sees it.
    DoubleBufferFills = Release,
    DoubleBufferSeesFilled = Acquire,
    /// [`DoubleBuffer`](super::messages::double_buffer): the receiver returns an emptied buffer; the sender sees that.
    DoubleBufferEmpties = Release,
    DoubleBufferSeesEmptied = Acquire,
    /// [`Rounds`](super::gather::Rounds): a rank has written its slot, and read all of the round before; another sees that.
    GatherGives = Release,
    GatherSees = Acquire,
    /// [`Rounds`](super::gather::Rounds): a rank gives nothing any more; another sees that, and all that was given before.
    GatherCloses = Release,
    GatherSeesClosed = Acquire,
    /// [`Offers`](super::cma::offers): an owner offers its source; a reader sees that.
    SourceOffered = Release,
    SeesSourceOffered = Acquire,
    /// [`Offers`](super::cma::offers): a reader has read its sources; their owners see that before they may write to them.
    SourceRead = Release,
    SeesSourceRead = Acquire,
    /// A rank begins a run: its source is complete, its destination may be written. Every rank that copies sees that.
    RunBegins = Release,
    SeesRunBegun = Acquire,
    /// A task is copied. Its receiver sees that all tasks are, or, when it aborts, that all taken tasks are.
    TaskCopied = Release,
    SeesAllCopied = Acquire,
    SeesTakenCopied = Acquire,
    /// A rank has received everything; the owner of a source sees that before it writes to the source.
    RunReceived = Release,
    SeesReceived = Acquire,
    /// Two fences around a source that its owner revokes: the owner's between publishing that and writing to the source, the
    /// copying rank's between reading the source and counting the task.
    RevokeFence = Release,
    ReadFence = Acquire,
}

impl OrderingSite {
    #[cfg(not(all(test, loom)))]
    #[inline]
    pub const fn order(self) -> Ordering {
        self.required()
    }

    /// The ordering to use: relaxed if the environment names this site, else the required one.
    #[cfg(all(test, loom))]
    pub fn order(self) -> Ordering {
        use std::sync::OnceLock;
        static RELAXED: OnceLock<Option<String>> = OnceLock::new();
        let relaxed = RELAXED.get_or_init(|| std::env::var(Self::RELAX_VARIABLE).ok());
        match relaxed {
            Some(name) if *name == format!("{self:?}") => Ordering::Relaxed,
            _ => self.required(),
        }
    }

    /// The environment variable that names the site to relax.
    #[cfg(all(test, loom))]
    pub const RELAX_VARIABLE: &str = "RESHARD_LEAVE_OUT";
}
