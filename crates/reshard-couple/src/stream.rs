//! Connections: over TCP, or, between processes of one machine, by a socket that also passes memory.

use mio::event::Source;
use mio::{Interest, Registry, Token};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
    sockopt,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// How often the system asks before it closes a connection.
const PROBES: u32 = 3;

/// It counts in seconds, and in no more than this many.
const SHORTEST_SILENCE: Duration = Duration::from_secs(2 * PROBES as u64);
const LONGEST_PAUSE: Duration = Duration::from_secs(32_767);

/// A connection on which one waits.
pub enum Stream {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl Stream {
    pub fn set_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(time)).and(stream.set_write_timeout(Some(time)))
            }
            Self::Local(stream) => {
                stream.set_read_timeout(Some(time)).and(stream.set_write_timeout(Some(time)))
            }
        }
    }

    /// For a thread that waits for many.
    pub fn polled(self) -> io::Result<PolledStream> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Ok(PolledStream::Tcp(mio::net::TcpStream::from_std(stream)))
            }
            Self::Local(stream) => {
                stream.set_nonblocking(true)?;
                Ok(PolledStream::Local(mio::net::UnixStream::from_std(stream)))
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Local(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Local(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection among many for which a thread waits.
pub enum PolledStream {
    Tcp(mio::net::TcpStream),
    Local(mio::net::UnixStream),
}

impl PolledStream {
    /// Reads, and takes memory that was passed along.
    pub fn receive(&mut self, buffer: &mut [u8], passed: &mut Option<OwnedFd>) -> io::Result<usize> {
        let Self::Local(stream) = self else { return self.read(buffer) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let got = recvmsg(&*stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                *passed = descriptors.last().or_else(|| passed.take());
            }
        }
        Ok(got.bytes)
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Local(stream) => stream,
        }
    }

    pub fn set_nodelay(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.set_nodelay(true);
        }
    }

    /// A partner whose machine has vanished never closes its connections: the system asks whether it is there, also while there is nothing to
    /// send, and closes them once nothing has been heard for about as long as the deadline.
    pub fn notice_silence(&self, deadline: Duration) -> io::Result<()> {
        let Self::Tcp(stream) = self else { return Ok(()) };
        let deadline = deadline.max(SHORTEST_SILENCE);
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, (deadline / 2).min(LONGEST_PAUSE))?;
        sockopt::set_tcp_keepintvl(stream, (deadline / (2 * PROBES)).min(LONGEST_PAUSE))?;
        sockopt::set_tcp_keepcnt(stream, PROBES)?;
        // No such limit (TCP_USER_TIMEOUT) for what was sent and is not acknowledged: it would also end a partner that lives and computes for
        // longer than the deadline with its window full. For that, a put has its own deadline.
        Ok(())
    }
}

impl Read for PolledStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Local(stream) => stream.read(buffer),
        }
    }
}

impl Write for PolledStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Local(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for PolledStream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }
}

/// Sends bytes and passes memory along.
pub fn pass(stream: &UnixStream, bytes: &[u8], memory: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The machine on which this process runs, as far as its processes reach each other by local sockets; none if that cannot be known.
fn machine() -> Option<u64> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    let mut hasher = DefaultHasher::new();
    (boot, network).hash(&mut hasher);
    Some(hasher.finish())
}

/// A name by which processes of the same machine find one.
pub fn local_name(random: u64) -> Option<String> {
    machine().map(|machine| format!("{machine:016x}-{random:016x}"))
}

/// Not in any folder: it is gone with its listener.
fn abstract_name(name: &str) -> Vec<u8> {
    format!("reshard-couple-{name}").into_bytes()
}

pub fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name(name))?)
}

/// Connects to a process of the same machine; none if it runs on another.
pub fn connect(name: &str) -> Option<UnixStream> {
    let (there, _) = name.split_once('-')?;
    if machine().is_none_or(|here| format!("{here:016x}") != there) {
        return None;
    }
    // Does not wait where too many knock: there is still TCP.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(&abstract_name(name)).ok()?).ok()?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_noticed_within_the_deadline() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for (deadline, [idle, pause]) in [(30, [15, 5]), (1, [3, 1]), (14 * 24 * 3600, [32_767, 32_767])] {
            let stream = Stream::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let stream = stream.polled().unwrap();
            stream.notice_silence(Duration::from_secs(deadline)).unwrap();
            let PolledStream::Tcp(stream) = stream else { panic!("it is one of TCP") };
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(idle));
            assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), Duration::from_secs(pause));
            assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), 3);
        }
    }
}
