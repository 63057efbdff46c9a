//! How a consumer comes to its producer: finds it, agrees with it, plans, and connects to the processes from which it gets something.

use crate::addresses::resolve;
use crate::arrivals::Arrivals;
use crate::frame::{FrameKind, Head, data_bytes};
use crate::greeting::{ANSWER_BYTES, Channel, SessionId, VERDICT_BYTES, Visitor};
use crate::io::IoThread;
use crate::job::Job;
use crate::meeting::{Invitation, Meeting, read_file};
#[cfg(feature = "mpi")]
use crate::messages::{MessageIo, connection, opening};
use crate::secret::Secret;
use crate::service::ConnectionId;
use crate::side::{Role, Side};
use crate::slots::SlotMemory;
use crate::stream::{Stream, connect, pass};
use crate::terms::{
    Hello, Process, Published, Text, Wanted, Welcome, check_processes, moved, process_of, ranks,
};
use reshard::{Error, ErrorKind, Layout, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Slots begin at multiples of this.
const PAGE_BYTES: usize = 4096;

/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How long to wait before looking again for a producer that is not there yet.
const PAUSE: Duration = Duration::from_millis(20);

/// What the leader tells the other processes about the coupling.
#[derive(Serialize, Deserialize)]
pub struct Coupled {
    pub welcome: Welcome,
    secret: String,
    session: SessionId,
}

impl Coupled {
    /// Not over MPI, where connections are no open files.
    pub fn by_sockets(&self) -> bool {
        !self.secret.is_empty()
    }
}

/// An error about the other job.
pub fn partner(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Partner, message.into())
}

/// What moves frames.
pub fn begin(arrivals: Arrivals, meeting: &Meeting, deadline: Duration) -> Result<IoThread<Arrivals>> {
    match meeting {
        #[cfg(feature = "mpi")]
        Meeting::World { world, partner } => {
            let leader = world.leader(partner)?;
            let io = MessageIo::new(world.transport(leader)?, leader, Role::Consumer)?;
            Ok(IoThread::without_thread(arrivals, io))
        }
        _ => IoThread::start(arrivals, None, deadline),
    }
}

/// Plans each array for the ranks that this process hosts.
pub fn plan(job: &Job, arrays: &[Wanted], welcome: &Welcome, own_ranks: u64) -> Result<Vec<Side>> {
    if welcome.layouts.len() != arrays.len() {
        return Err(partner("the producer answered for another number of arrays"));
    }
    check_processes("producer", &welcome.processes, ranks(welcome.layouts.iter())).map_err(partner)?;
    let all = welcome.processes.iter().map(|process| process.ranks.end).max().unwrap_or(0);
    let hosted = job.hosted(job.process(), own_ranks);
    let side = |(wanted, layout): (&Wanted, &Layout)| {
        let published =
            Published { name: wanted.name.clone(), element: wanted.element, layout: layout.clone() };
        Side::new(&moved(&published, wanted, all)?, Role::Consumer, hosted.clone(), all)
    };
    arrays.iter().zip(&welcome.layouts).map(side).collect()
}

/// The shared memory that a process of the producer on the same machine would need.
#[derive(Default)]
pub struct SlotNeeds {
    slots: u32,
    slot_bytes: usize,
}

/// The processes of the producer from which this one gets something, and what they need to send it through shared memory: slots for as
/// many steps as may be there at a time, so that one array never waits for another: a queue of those that were sent and not read, as many that wait to be
/// asked for, one that is packed and one that is unpacked. None where that is not wanted.
pub fn needs(
    sides: &[Side],
    arrays: &[Wanted],
    processes: &[Process],
    shared: bool,
) -> BTreeMap<u32, SlotNeeds> {
    let mut needs: BTreeMap<u32, SlotNeeds> = BTreeMap::new();
    for (side, wanted) in sides.iter().zip(arrays) {
        for message in side.ranks.iter().flat_map(|rank| &rank.messages) {
            let needs = needs.entry(process_of(processes, message.peer)).or_default();
            if shared {
                let frame = data_bytes(wanted.element.bytes()).min(message.bytes as usize);
                let frames = message.max_frames(frame as u64) * (2 * u64::from(wanted.queue.depth) + 2);
                needs.slots = needs.slots.saturating_add(u32::try_from(frames).unwrap_or(u32::MAX));
                needs.slot_bytes = needs.slot_bytes.max(frame.next_multiple_of(PAGE_BYTES));
            }
        }
    }
    needs
}

/// A connection that was made.
enum Opened {
    Stream(Stream),
    /// With memory that both processes have.
    Shared(Stream, SlotMemory),
    #[cfg(feature = "mpi")]
    Rank(usize),
}

impl Opened {
    #[cfg_attr(not(feature = "mpi"), allow(unused_variables))]
    fn attach(self, arrivals: &mut Arrivals, channel: Channel) -> ConnectionId {
        match self {
            Self::Stream(stream) => arrivals.attach(stream),
            Self::Shared(stream, memory) => {
                let id = arrivals.attach(stream);
                arrivals.share(id, Arc::new(memory));
                id
            }
            #[cfg(feature = "mpi")]
            Self::Rank(rank) => {
                let id = connection(rank, channel != Channel::Control);
                arrivals.open(id, opening(channel));
                id
            }
        }
    }
}

/// Connects to the processes of the producer from which this one gets something.
pub fn connect_all(
    io: &IoThread<Arrivals>,
    job: &Job,
    coupled: &Coupled,
    meeting: &Meeting,
    needs: &BTreeMap<u32, SlotNeeds>,
    end: Instant,
) -> Result<()> {
    let Coupled { welcome, secret, session } = coupled;
    for (&process, needs) in needs {
        let channel = Channel::Data { consumer: welcome.consumer, process: job.process() as u32 };
        let there = &welcome.processes[process as usize];
        let address = &there.address;
        let opened = match meeting {
            #[cfg(feature = "mpi")]
            Meeting::World { .. } => {
                let rank = address
                    .parse()
                    .map_err(|_| partner(format!("the producer gave '{address}' as a rank")))?;
                Opened::Rank(rank)
            }
            _ => {
                let secret = Secret::from_hex(secret).ok_or_else(|| partner("the leader gave no secret"))?;
                match dial_near(there, &secret, channel, session, needs, end) {
                    Some((stream, memory)) => Opened::Shared(stream, memory),
                    None => Opened::Stream(dial_until(address, &secret, channel, Some(session), end)?),
                }
            }
        };
        let mut arrivals = io.shared().lock();
        let id = opened.attach(&mut arrivals, channel);
        arrivals.data.insert(process, id);
    }
    io.shared().wake();
    let opened = io.shared().wait(end, |arrivals| {
        // Memory that is shared is answered as well.
        let opened = (arrivals.opened == needs.len() + arrivals.shared_count()).then_some(Ok(()));
        opened.or_else(|| arrivals.over.clone().map(|why| Err(partner(why))))
    });
    opened.unwrap_or_else(|| Err(partner("the producer did not take all connections before the deadline")))
}

/// Connects again in every step, to a few processes at a time.
pub struct Redialling {
    most: usize,
    processes: Vec<Process>,
    channel: Channel,
    secret: Secret,
    session: SessionId,
}

impl Redialling {
    /// None if all connections may be held.
    pub fn new(job: &Job, coupled: &Coupled, needed: usize, most: Option<usize>) -> Result<Option<Self>> {
        let Some(most) = most.filter(|most| *most < needed) else { return Ok(None) };
        let Coupled { welcome, secret, session } = coupled;
        let secret = Secret::from_hex(secret).ok_or_else(|| partner("the leader gave no secret"))?;
        Ok(Some(Self {
            most,
            processes: welcome.processes.clone(),
            channel: Channel::Data { consumer: welcome.consumer, process: job.process() as u32 },
            secret,
            session: *session,
        }))
    }

    /// True if there may be one more than so many.
    pub fn may(&self, open: usize) -> bool {
        open < self.most
    }

    pub fn dial(&self, process: u32, end: Instant) -> Result<Stream> {
        let address = &self.processes[process as usize].address;
        dial_until(address, &self.secret, self.channel, Some(&self.session), end)
    }
}

/// The leaders agree.
pub fn introduce(
    io: &IoThread<Arrivals>,
    meeting: &Meeting,
    hello: Hello,
    end: Instant,
    bytes: &mut u64,
) -> Result<Coupled> {
    let text = Text::Hello(hello);
    let (opened, session, secret) = match meeting {
        #[cfg(feature = "mpi")]
        Meeting::World { world, partner } => {
            (Opened::Rank(world.leader(partner)?), SessionId::default(), String::new())
        }
        _ => {
            let (stream, session, secret) = reach(meeting, end)?;
            (Opened::Stream(stream), session, secret.to_hex())
        }
    };
    {
        let mut arrivals = io.shared().lock();
        arrivals.control = Some(opened.attach(&mut arrivals, Channel::Control));
        arrivals.tell(&text);
        *bytes += text.encode().len() as u64;
    }
    io.shared().wake();
    let answer = io.shared().wait(end, |arrivals| {
        let answer = arrivals.answer.take().map(Ok);
        answer.or_else(|| arrivals.over.clone().map(Err))
    });
    match answer {
        Some(Ok(Text::Welcome(welcome))) => {
            *bytes += Text::Welcome(welcome.clone()).encode().len() as u64;
            Ok(Coupled { welcome, secret, session })
        }
        Some(Ok(Text::Refused { why })) => Err(partner(format!("the producer refused: {why}"))),
        Some(Ok(_)) => Err(partner("the producer said something out of turn")),
        Some(Err(why)) => Err(partner(why)),
        None => Err(partner("the producer did not answer before the deadline")),
    }
}

/// Finds the producer: waits for its file, and until it listens.
fn reach(meeting: &Meeting, end: Instant) -> Result<(Stream, SessionId, Secret)> {
    let mut last = match meeting {
        Meeting::File(path) => format!("no producer wrote the meeting file {}", path.display()),
        Meeting::At { address, .. } => format!("no producer listens at {address}"),
        #[cfg(feature = "mpi")]
        Meeting::World { partner, .. } => format!("no producer is '{partner}'"),
    };
    loop {
        let invitation = match meeting {
            Meeting::File(path) => read_file(path)?,
            Meeting::At { address, secret } => {
                Some(Invitation { address: address.clone(), secret: secret.clone() })
            }
            #[cfg(feature = "mpi")]
            Meeting::World { .. } => None,
        };
        if let Some(Invitation { address, secret }) = invitation {
            match dial(&address, &secret, Channel::Control, None, end) {
                Ok((stream, session)) => return Ok((stream, session, secret)),
                Err(Dialled::NotThere(why)) => last = why,
                // The port of a producer that is gone may be somebody else's.
                Err(Dialled::Wrong(why)) if stale(meeting, &address) => last = why,
                Err(Dialled::Wrong(why)) => return Err(partner(why)),
            }
        }
        if Instant::now() + PAUSE >= end {
            return Err(partner(format!("{last}; start the producer, or give a longer deadline")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// True if a meeting file names another address by now, or none.
fn stale(meeting: &Meeting, address: &str) -> bool {
    match meeting {
        Meeting::File(path) => {
            !matches!(read_file(path), Ok(Some(invitation)) if invitation.address == address)
        }
        _ => false,
    }
}

/// Connects to a process that is there, but may have many callers.
fn dial_until(
    address: &str,
    secret: &Secret,
    channel: Channel,
    session: Option<&SessionId>,
    end: Instant,
) -> Result<Stream> {
    loop {
        match dial(address, secret, channel, session, end) {
            Ok((stream, _)) => return Ok(stream),
            Err(Dialled::NotThere(_)) if Instant::now() + PAUSE < end => std::thread::sleep(PAUSE),
            Err(Dialled::NotThere(why) | Dialled::Wrong(why)) => return Err(partner(why)),
        }
    }
}

/// Why a connection was not made.
enum Dialled {
    /// Perhaps later.
    NotThere(String),
    /// Never.
    Wrong(String),
}

/// Connects, and proves the secret.
fn dial(
    address: &str,
    secret: &Secret,
    channel: Channel,
    session: Option<&SessionId>,
    end: Instant,
) -> std::result::Result<(Stream, SessionId), Dialled> {
    let not_there = |error: std::io::Error| {
        let hint = match error.raw_os_error() {
            // Too many open files, of this process or of the machine.
            Some(23 | 24) => "; raise the limit of open files (ulimit -n)",
            _ => "",
        };
        Dialled::NotThere(format!("no producer answers at {address}: {error}{hint}"))
    };
    // Whoever listens at an address that a producer had once may never answer.
    let end = end.min(Instant::now() + ATTEMPT);
    let left = || end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let places = resolve(address).map_err(|error| Dialled::Wrong(error.to_string()))?;
    let mut reached = Err(std::io::ErrorKind::AddrNotAvailable.into());
    for place in places {
        reached = TcpStream::connect_timeout(&place, left());
        if reached.is_ok() {
            break;
        }
    }
    let stream = reached.map_err(not_there)?;
    let _ = stream.set_nodelay(true);
    let mut stream = Stream::Tcp(stream);
    let session = greet(&mut stream, address, secret, channel, session, end, not_there)?;
    Ok((stream, session))
}

/// Connects to a process of the same machine, and shares memory with it; none if that is not possible.
fn dial_near(
    there: &Process,
    secret: &Secret,
    channel: Channel,
    session: &SessionId,
    needs: &SlotNeeds,
    end: Instant,
) -> Option<(Stream, SlotMemory)> {
    let name = there.local.as_ref().filter(|_| needs.slots > 0)?;
    let end = end.min(Instant::now() + ATTEMPT);
    let (memory, passed) = SlotMemory::new(needs.slots, needs.slot_bytes).ok()?;
    let mut stream = Stream::Local(connect(name)?);
    let not_there = |error: std::io::Error| Dialled::NotThere(error.to_string());
    greet(&mut stream, name, secret, channel, Some(session), end, not_there).ok()?;
    let head =
        Head { array: needs.slot_bytes as u32, ..Head::new(FrameKind::Memory, 0, u64::from(needs.slots)) };
    if let Stream::Local(stream) = &stream {
        pass(stream, &head.encode(), &passed).ok()?;
    }
    Some((stream, memory))
}

/// Proves the secret.
fn greet(
    stream: &mut Stream,
    address: &str,
    secret: &Secret,
    channel: Channel,
    session: Option<&SessionId>,
    end: Instant,
    not_there: impl Fn(std::io::Error) -> Dialled,
) -> std::result::Result<SessionId, Dialled> {
    let left = || end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut visitor = Visitor::new(secret, channel).map_err(|error| Dialled::Wrong(error.to_string()))?;
    let mut exchange = |said: &[u8], heard: &mut [u8]| {
        stream.set_timeout(left())?;
        stream.write_all(said)?;
        let mut at = 0;
        while at < heard.len() {
            stream.set_timeout(left())?;
            match stream.read(&mut heard[at..]) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => at += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= end {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    };
    let mut answer = [0; ANSWER_BYTES];
    let opening = visitor.opening().to_vec();
    exchange(&opening, &mut answer).map_err(&not_there)?;
    let wrong = |why: String| Dialled::Wrong(format!("at {address}: {why}"));
    let (session, proof) = visitor.prove(&answer, session).map_err(wrong)?;
    let mut verdict = [0; VERDICT_BYTES];
    exchange(&proof, &mut verdict).map_err(not_there)?;
    visitor.believe(&session, &verdict).map_err(wrong)?;
    Ok(session)
}
