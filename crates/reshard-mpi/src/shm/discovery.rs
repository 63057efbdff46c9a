//! Finds out, once for each communicator, whose memory a rank can map: by exchanging what identifies machines, and by
//! trying, as ranks in containers may be on one machine and still hidden from each other. (MPI's own answer,
//! `MPI_Comm_split_type`, is a call without a timeout.)

use super::{PageKind, Segment, longest_file};
use crate::communicator::Communicator;
use crate::node::{Identity, Node};
use reshard_plan::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of the text in which a rank says what it could not map.
const FAILURE_BYTES: usize = 256;

/// What the ranks exchange: who a rank is, and where a probe segment of it is found.
#[derive(Clone, Copy)]
struct ProbeInfo {
    who: Identity,
    pid: u64,
    /// The file descriptor of the probe segment; none if it could not be made.
    fd: Option<u64>,
}

/// The file descriptor that stands for none.
const NO_FD: u64 = u64::MAX;

impl ProbeInfo {
    const BYTES: usize = 56;

    fn bytes(self) -> Vec<u8> {
        let Identity { process, machine, namespaces, limits_files } = self.who;
        let numbers = [machine, namespaces, self.pid, self.fd.unwrap_or(NO_FD), u64::from(limits_files)];
        let numbers = numbers.into_iter().flat_map(u64::to_ne_bytes);
        process.to_ne_bytes().into_iter().chain(numbers).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let process = u128::from_ne_bytes(bytes[..16].try_into().unwrap_or_default());
        let fd = Some(number(40)).filter(|&fd| fd != NO_FD);
        let limits_files = number(48) != 0;
        let who = Identity { process, machine: number(16), namespaces: number(24), limits_files };
        Self { who, pid: number(32), fd }
    }

    /// Tries to map the probe segment and checks that it is the rank's own.
    fn try_mapping(&self) -> Result<()> {
        let refused = |why: String| Error::new(ErrorKind::External, why);
        let fd = self.fd.ok_or_else(|| match self.who.limits_files {
            true => refused(
                "it may not make files, nor memory by them, of that length (RLIMIT_FSIZE, `ulimit -f`)"
                    .into(),
            ),
            false => refused("it could not make any".into()),
        })?;
        let segment = Segment::open(self.pid, fd, 16, PageKind::Ordinary)
            .map_err(|error| refused(error.to_string()))?;
        let [low, high] = [0, 8].map(|at| segment.counter(at).load(Ordering::Acquire));
        if u128::from(high) << 64 | u128::from(low) != self.who.process {
            return Err(refused("what was found there is another process's".into()));
        }
        Ok(())
    }
}

impl Communicator {
    /// True if all ranks are on one node and can map each other's memory. Collective the first time.
    pub fn is_one_node(&self, time: Option<Duration>) -> Result<bool> {
        Ok(self.node(time)?.apart().is_none())
    }

    /// This rank's node. Collective the first time.
    pub(crate) fn node(&self, limit: Option<Duration>) -> Result<&Node> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let process = self.transport().identity();
        let made = Segment::create(16, PageKind::Ordinary);
        let who = Identity {
            process,
            machine: machine().unwrap_or(process as u64),
            namespaces: namespaces(),
            limits_files: longest_file().is_some(),
        };
        let mut info = ProbeInfo { who, pid: u64::from(std::process::id()), fd: None };
        if let Ok((segment, file)) = &made {
            segment.counter(0).store(process as u64, Ordering::Release);
            segment.counter(8).store((process >> 64) as u64, Ordering::Release);
            info.fd = Some(file.as_raw_fd() as u64);
        }
        let infos = self.gather(&info.bytes(), limit)?;
        let infos: Vec<ProbeInfo> = infos.chunks_exact(ProbeInfo::BYTES).map(ProbeInfo::from_bytes).collect();
        let near = |&(_, other): &(usize, &ProbeInfo)| other.who.is_near(&who);
        let failed = infos.iter().enumerate().filter(near).find_map(|(rank, other)| {
            let why = other.try_mapping().err()?;
            Some(format!("rank {} cannot map the memory of rank {rank} ({why})", self.rank()))
        });
        let mut text = failed.unwrap_or_default().into_bytes();
        text.resize(FAILURE_BYTES, 0);
        // Also a barrier: all ranks have tried, and the file may be closed now.
        let texts = self.gather(&text, limit)?;
        let failed: Vec<Option<String>> = texts
            .chunks_exact(FAILURE_BYTES)
            .map(|text| {
                let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_string();
                Some(text).filter(|text| !text.is_empty())
            })
            .collect();
        drop(made);
        let identities: Vec<Identity> = infos.iter().map(|info| info.who).collect();
        Ok(self.node.get_or_init(|| Node::new(self.rank(), &identities, &failed)))
    }
}

/// Hash of the machine's boot identifier; none if it cannot be read.
fn machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mut hasher = DefaultHasher::new();
    text.trim().hash(&mut hasher);
    Some(hasher.finish())
}

/// Hash of this process's namespaces: that of PIDs, because the others find its memory by its PID, and that of the network,
/// because several hosts simulated on one machine must count as several nodes.
fn namespaces() -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in ["pid", "net"] {
        std::fs::read_link(format!("/proc/self/ns/{name}")).ok().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infos_read_as_they_were_written() {
        let info = ProbeInfo {
            who: Identity { process: 7 << 90 | 3, machine: 1, namespaces: 2, limits_files: true },
            pid: 3,
            fd: Some(4),
        };
        let read = ProbeInfo::from_bytes(&info.bytes());
        assert_eq!(
            (read.who.process, read.who.machine, read.who.namespaces, read.pid, read.fd),
            (7 << 90 | 3, 1, 2, 3, Some(4))
        );
        assert!(read.who.limits_files);
        assert_eq!(ProbeInfo::from_bytes(&ProbeInfo { fd: None, ..info }.bytes()).fd, None);
    }
}
