//! The node of a rank: the ranks whose memory it can map, and that can map its own. [`crate::shm`] finds them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The ranks of this rank's node.
pub struct Node {
    /// Ranks of the node in the communicator, ascending.
    ranks: Vec<usize>,
    /// Ranks of the largest node.
    largest: usize,
    /// A unique number of each rank's process, by rank.
    processes: Vec<u128>,
    /// Why not all ranks are on one node; none if they are.
    apart: Option<String>,
    /// Some rank may not make files, and memory with them, of any length.
    limits_files: bool,
}

/// Identifies the process of a rank and where it runs.
#[derive(Clone, Copy)]
pub struct Identity {
    /// A unique random number of the process.
    pub process: u128,
    /// Hash of the boot identifier of the machine.
    pub machine: u64,
    /// Hash of the process's PID and network namespaces.
    pub namespaces: u64,
    /// Files of the process have a longest length (`RLIMIT_FSIZE`).
    pub limits_files: bool,
}

impl Identity {
    /// True if two processes may be able to open each other's files in `/proc`.
    pub fn is_near(&self, other: &Self) -> bool {
        (self.machine, self.namespaces) == (other.machine, other.namespaces)
    }
}

impl Node {
    /// Ranks with equal machine and namespaces form a node if all of them could map each other's memory; else each is a
    /// node of its own. `failed` says by rank why it could not.
    pub fn new(me: usize, identities: &[Identity], failed: &[Option<String>]) -> Self {
        let mut nodes: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        for (rank, identity) in identities.iter().enumerate() {
            nodes.entry((identity.machine, identity.namespaces)).or_default().push(rank);
        }
        let is_whole = |ranks: &&Vec<usize>| ranks.iter().all(|&rank| failed[rank].is_none());
        let largest = nodes.values().filter(is_whole).map(Vec::len).max().unwrap_or(1);
        let mine = nodes.get(&(identities[me].machine, identities[me].namespaces)).filter(is_whole);
        let ranks = mine.cloned().unwrap_or_else(|| vec![me]);
        let apart = failed.iter().flatten().next().cloned().or_else(|| {
            let other = identities.iter().position(|identity| !identity.is_near(&identities[0]))?;
            Some(match identities[other].machine == identities[0].machine {
                true => format!("ranks 0 and {other} are in different namespaces of one machine"),
                false => format!("ranks 0 and {other} are on different machines"),
            })
        });
        Self {
            ranks,
            largest,
            processes: identities.iter().map(|identity| identity.process).collect(),
            apart,
            limits_files: identities.iter().any(|identity| identity.limits_files),
        }
    }

    /// Ranks of the node in the communicator, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// True if a rank is on the node.
    pub fn has(&self, rank: usize) -> bool {
        self.place(rank).is_some()
    }

    /// The index of a rank among the ranks of the node.
    pub fn place(&self, rank: usize) -> Option<usize> {
        self.ranks.binary_search(&rank).ok()
    }

    /// True if the node has more ranks than processors.
    pub fn is_oversubscribed(&self) -> bool {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.ranks.len() > processors
    }

    /// Ranks of the largest node: equal on all ranks.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Why not all ranks are on one node; none if they are.
    pub fn apart(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    /// True if some rank may not make files of any length: equal on all ranks.
    pub fn limits_files(&self) -> bool {
        self.limits_files
    }

    /// The unique process numbers of all ranks, by rank.
    pub fn processes(&self) -> &[u128] {
        &self.processes
    }
}

/// A random number that no other process draws: the standard library's hashers are seeded by the system.
pub fn random() -> u128 {
    let seeded = RandomState::new();
    u128::from(seeded.hash_one(0)) << 64 | u128::from(seeded.hash_one(1))
}

/// The unique number of this process.
pub fn process_number() -> u128 {
    static PROCESS: OnceLock<u128> = OnceLock::new();
    *PROCESS.get_or_init(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(machine: u64, namespaces: u64) -> Identity {
        Identity { process: 0, machine, namespaces, limits_files: false }
    }

    #[test]
    fn ranks_form_a_node_if_machine_and_mapping_agree() {
        let identities = [identity(1, 1), identity(2, 1), identity(1, 1), identity(1, 2)];
        let well = vec![None; 4];
        let node = Node::new(0, &identities, &well);
        assert_eq!((node.ranks(), node.largest()), (&[0, 2][..], 2));
        let said = node.apart().unwrap();
        assert!(said.contains("ranks 0 and 1 are on different machines"), "{said}");
        assert!(Node::new(0, &[identities[0], identities[2]], &well).apart().is_none());
        let other = Node::new(1, &[identities[0], identities[3]], &well);
        let said = other.apart().unwrap();
        assert!(said.contains("namespaces"), "{said}");
        let failed = [None, None, Some("rank 2 cannot".into()), None];
        let node = Node::new(0, &identities, &failed);
        assert_eq!((node.ranks(), node.largest(), node.apart()), (&[0][..], 1, Some("rank 2 cannot")));
    }
}
