//! The consumer's side of a coupling.

use crate::arrivals::{Arrivals, Arriving};
use crate::element::ElementType;
use crate::greeting::{ANSWER_BYTES, Channel, SessionId, VERDICT_BYTES, Visitor};
use crate::io::IoThread;
use crate::job::Job;
use crate::meeting::{Invitation, Meeting, read_file};
use crate::options::Options;
use crate::publisher::{ArrayId, check_size, process_of, resolve};
use crate::secret::Secret;
use crate::service::ConnectionId;
use crate::side::{Role, Side};
use crate::terms::{
    Announced, BYTE_ORDER, Hello, Part, Process, Published, Queue, Text, Wanted, Welcome, check_processes,
    moved, ranks,
};
use bytemuck::Pod;
use reshard::{Error, ErrorKind, Layout, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How long to wait before looking again for a producer that is not there yet.
const PAUSE: Duration = Duration::from_millis(20);

/// Gets arrays from another job, step after step. The other side, and both together: [`Publisher`](crate::Publisher).
///
/// ```no_run
/// use reshard_couple::{ElementType, Job, Meeting, Options, Subscriber};
/// let layout: reshard::Layout = "3x1/50x50 of 1000x800".parse()?;
/// let mut viewer = Subscriber::new(Job::hosting_all(), Options::default());
/// let t = viewer.subscribe("t", &layout, ElementType::of::<f64>())?;
/// viewer.connect(&Meeting::file("run.meet"))?;
/// let mut parts = layout.parts(|_| 0.0)?;
/// while let Some(step) = viewer.get(t, &mut parts)? {
///     println!("step {}: {}", step.number, parts[0][0]);
/// }
/// viewer.leave();
/// # Ok::<(), reshard::Error>(())
/// ```
///
/// Everything but [`subscribe`](Self::subscribe) is collective: all processes of the job call it, with the same arguments but for
/// the parts.
pub struct Subscriber {
    job: Job,
    options: Options,
    arrays: Vec<Wanted>,
    open: Option<Connected>,
}

/// What a consumer wants of an array.
#[derive(Clone, Debug)]
pub struct Subscription {
    wanted: Wanted,
}

/// A step of an array, without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepInfo {
    /// The producer's number of the step.
    pub number: u64,
    /// What the producer says of it.
    pub header: Vec<u8>,
    /// How many steps of the array were dropped since the last one.
    pub dropped: u64,
}

/// A subscriber that is coupled.
struct Connected {
    io: IoThread<Arrivals>,
    sides: Vec<Side>,
    /// The number of the next step of each array.
    next: Vec<u64>,
    /// Arrays of which there are no more steps.
    ended: Vec<bool>,
    setup: Setup,
}

/// What setting a coupling up took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Setup {
    /// From the first attempt to connect until steps can come, in seconds.
    pub seconds: f64,
    /// Of these, planning the ranks that this process hosts.
    pub planning_seconds: f64,
    /// Bytes of the texts that this process's leader sent and received.
    pub bytes: u64,
    /// Connections of this process.
    pub connections: usize,
}

impl Subscription {
    /// All of an array, into this layout. Its ranks are those of this job.
    pub fn new(name: &str, layout: &Layout, element: ElementType) -> Self {
        let queue = Queue { depth: 2, drops: false };
        Self { wanted: Wanted { name: name.into(), element, layout: layout.clone(), window: None, queue } }
    }

    /// A part of an array: `shape` elements from index `from` on, along each dimension of the producer's array, to index `to` on of this
    /// layout, whose dimension `k` is the producer's dimension `axes[k]`.
    #[must_use]
    pub fn of_window(mut self, shape: &[u64], from: &[u64], to: &[u64], axes: &[usize]) -> Self {
        self.wanted.window =
            Some(Part { shape: shape.into(), from: from.into(), to: to.into(), axes: axes.into() });
        self
    }

    /// How many steps the producer keeps before it waits for this consumer. Default: 2.
    #[must_use]
    pub fn with_depth(mut self, steps: u32) -> Self {
        self.wanted.queue.depth = steps;
        self
    }

    /// The producer never waits for this consumer: when it has kept as many steps as the queue is deep, the oldest is dropped.
    #[must_use]
    pub fn dropping_oldest(mut self) -> Self {
        self.wanted.queue.drops = true;
        self
    }
}

/// What the leader tells the other processes about the coupling.
#[derive(Serialize, Deserialize)]
struct Coupled {
    welcome: Welcome,
    secret: String,
    session: SessionId,
}

/// What the leader tells the other processes about a step.
#[derive(Serialize, Deserialize)]
enum Next {
    Step(Announced),
    End,
    Error(String),
}

impl Subscriber {
    /// A consumer that wants no arrays yet.
    pub fn new(job: Job, options: Options) -> Self {
        Self { job, options, arrays: Vec::new(), open: None }
    }

    /// Asks for all of an array, into this layout, whose ranks are those of this job.
    pub fn subscribe(&mut self, name: &str, layout: &Layout, element: ElementType) -> Result<ArrayId> {
        self.subscribe_to(Subscription::new(name, layout, element))
    }

    /// Asks for an array, or a part of one.
    pub fn subscribe_to(&mut self, subscription: Subscription) -> Result<ArrayId> {
        if self.open.is_some() {
            return Err(Error::new(
                ErrorKind::Mismatch,
                "an array was subscribed to after connect(); subscribe to all before",
            ));
        }
        self.arrays.push(subscription.wanted);
        Ok(ArrayId(self.arrays.len() - 1))
    }

    /// Finds the producer, agrees with it, and plans. Steps that the producer puts from now on will come.
    pub fn connect(&mut self, meeting: &Meeting) -> Result<Setup> {
        let Self { job, options, arrays, .. } = self;
        let open = Connected::new(job, options, arrays, meeting)?;
        let setup = open.setup;
        self.open = Some(open);
        Ok(setup)
    }

    /// Gets the next step of an array into the parts of the ranks that this process hosts, in the order of ranks; none if there are no
    /// more. On an error the parts are as they were. After one of kind [`Partner`](ErrorKind::Partner) because the step did not come within the
    /// deadline, it may be asked for again.
    pub fn get<T: Pod>(&mut self, array: ArrayId, parts: &mut [impl AsMut<[T]>]) -> Result<Option<StepInfo>> {
        let wanted = self.arrays.get(array.0).ok_or_else(|| no_array(array.0, self.arrays.len()))?;
        let fits = check_size::<T>(&wanted.name, wanted.element);
        let mut parts: Vec<&mut [u8]> =
            parts.iter_mut().map(|part| bytemuck::cast_slice_mut(part.as_mut())).collect();
        self.get_checked(array, fits, &mut parts)
    }

    /// As [`get`](Self::get), with parts given as bytes.
    pub fn get_bytes(&mut self, array: ArrayId, parts: &mut [&mut [u8]]) -> Result<Option<StepInfo>> {
        self.get_checked(array, Ok(()), parts)
    }

    fn get_checked(
        &mut self,
        array: ArrayId,
        fits: Result<()>,
        parts: &mut [&mut [u8]],
    ) -> Result<Option<StepInfo>> {
        let (job, deadline) = (&self.job, self.options.deadline);
        let wanted = self.arrays.get(array.0).ok_or_else(|| no_array(array.0, self.arrays.len()))?;
        let open = self.open.as_mut().ok_or_else(not_connected)?;
        let checked =
            fits.and_then(|()| open.sides[array.0].check_parts(parts.iter().map(|part| part.len())));
        if job.processes() == 1 {
            checked.clone()?;
        }
        open.get(job, array.0, wanted, deadline, checked, parts)
    }

    /// Tells the producer that no more steps are wanted.
    pub fn leave(mut self) {
        if let Some(open) = self.open.take() {
            open.leave();
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // Connections that close without a word tell the producer that this consumer is gone.
        self.io.shared().wake();
    }
}

fn no_array(given: usize, count: usize) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("array {given} was given; {count} were subscribed to"))
}

fn not_connected() -> Error {
    Error::new(
        ErrorKind::Mismatch,
        "the subscriber was used before connect(); subscribe to all arrays, then connect it",
    )
}

fn partner(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Partner, message.into())
}

impl Connected {
    fn new(job: &Job, options: &Options, arrays: &[Wanted], meeting: &Meeting) -> Result<Self> {
        let began = Instant::now();
        let end = began + options.deadline;
        let wait = options.deadline;
        let arriving = |wanted: &Wanted| Arriving { element: wanted.element.bytes(), ..Arriving::default() };
        let mut arrivals = Arrivals::default();
        arrivals.arrays = arrays.iter().map(arriving).collect();
        // A process that cannot begin must not leave the others alone.
        let io = job.agree(begin(arrivals, meeting), options.deadline)?;
        let own_ranks = ranks(arrays.iter().map(|wanted| &wanted.layout));
        let process =
            |process: usize| Process { address: String::new(), ranks: job.hosted(process, own_ranks) };
        let hello = Hello {
            byte_order: BYTE_ORDER.into(),
            processes: (0..job.processes()).map(process).collect(),
            arrays: arrays.to_vec(),
        };
        // The leader speaks; all hear what came of it.
        let mut bytes = 0;
        let coupled = if job.leads() {
            let coupled = introduce(&io, meeting, hello, end, &mut bytes);
            serde_json::to_vec(&coupled.map_err(|error| error.to_string())).expect("texts and numbers")
        } else {
            Vec::new()
        };
        let coupled = job.broadcast(coupled, wait)?;
        let coupled: std::result::Result<Coupled, String> =
            serde_json::from_slice(&coupled).map_err(|error| {
                Error::new(ErrorKind::Failed, format!("the leader cannot be understood: {error}"))
            })?;
        let coupled = coupled.map_err(partner)?;
        // Each plans alone, and connects to those it gets something from.
        let planning = Instant::now();
        let planned = plan(job, arrays, &coupled.welcome, own_ranks);
        let planning_seconds = planning.elapsed().as_secs_f64();
        let connected = planned.and_then(|sides| {
            connect_all(&io, job, &coupled, meeting, &sides, end)?;
            Ok(sides)
        });
        let sides = job.agree(connected, wait).inspect_err(|error| {
            io.shared().lock().leave(&Text::Bye { why: error.to_string() });
            io.shared().wake();
        })?;
        let connections = {
            let mut arrivals = io.shared().lock();
            for (array, (side, wanted)) in sides.iter().zip(arrays).enumerate() {
                let messages =
                    side.ranks.iter().flat_map(|rank| rank.messages.iter().map(move |one| (rank.rank, one)));
                let expected: HashMap<(u32, u32), u64> =
                    messages.map(|(rank, one)| ((one.peer as u32, rank as u32), one.bytes)).collect();
                let processes: BTreeSet<u32> = expected
                    .keys()
                    .map(|(from, _)| process_of(&coupled.welcome.processes, u64::from(*from)))
                    .collect();
                arrivals.arrays[array].processes = processes.into_iter().collect();
                arrivals.arrays[array].expected = expected;
                if !wanted.queue.drops {
                    (0..u64::from(wanted.queue.depth)).for_each(|sequence| arrivals.want(array, sequence));
                }
            }
            arrivals.tell(&Text::Ready);
            arrivals.data.len() + usize::from(arrivals.control.is_some())
        };
        io.shared().wake();
        let seconds = began.elapsed().as_secs_f64();
        let setup = Setup { seconds, planning_seconds, bytes, connections };
        Ok(Self { io, sides, next: vec![0; arrays.len()], ended: vec![false; arrays.len()], setup })
    }

    fn get(
        &mut self,
        job: &Job,
        array: usize,
        wanted: &Wanted,
        deadline: Duration,
        checked: Result<()>,
        parts: &mut [&mut [u8]],
    ) -> Result<Option<StepInfo>> {
        let end = Instant::now() + deadline;
        let wait = deadline;
        // Which step, says the leader.
        let next = if job.leads() { Some(self.announced(array, wanted, end, deadline)) } else { None };
        let next = match job.processes() {
            1 => next,
            _ => {
                let said = next
                    .as_ref()
                    .map_or(Vec::new(), |next| serde_json::to_vec(next).expect("texts and numbers"));
                serde_json::from_slice(&job.broadcast(said, wait)?).ok()
            }
        };
        let announced = match next {
            Some(Next::Step(announced)) => announced,
            Some(Next::End) => {
                self.ended[array] = true;
                return Ok(None);
            }
            Some(Next::Error(why)) => return Err(partner(why)),
            None => return Err(Error::new(ErrorKind::Failed, "the leader cannot be understood")),
        };
        let sequence = announced.sequence;
        if sequence < self.next[array] {
            return Err(partner("the producer announced a step that it had announced before"));
        }
        if wanted.queue.drops {
            let mut arrivals = self.io.shared().lock();
            if !arrivals.arrays[array].steps.contains_key(&sequence) {
                arrivals.want(array, sequence);
            }
            drop(arrivals);
            self.io.shared().wake();
        }
        // All of it must be there, on all processes, before any part is written.
        let came = checked.and_then(|()| self.complete(array, wanted, &announced, end, deadline));
        if let Err(error) = job.agree(came, wait) {
            if job.leads() {
                // Still to be taken.
                self.io.shared().lock().arrays[array].announced.push_front(announced);
            }
            return Err(error);
        }
        let step = self.io.shared().lock().take(array, sequence);
        let mut unpacked = Ok(());
        for (rank, part) in self.sides[array].ranks.iter_mut().zip(parts) {
            let to = rank.rank;
            unpacked = unpacked.and_then(|()| rank.unpack(part, |from| step.frames(from, to)));
        }
        let dropped = sequence - self.next[array];
        self.next[array] = sequence + 1;
        {
            let mut arrivals = self.io.shared().lock();
            arrivals.keep(step);
            if !wanted.queue.drops {
                arrivals.want(array, sequence + u64::from(wanted.queue.depth));
            }
        }
        self.io.shared().wake();
        unpacked?;
        Ok(Some(StepInfo { number: announced.number, header: announced.header, dropped }))
    }

    /// Waits for the next step to be announced. Only the leader is told.
    fn announced(&self, array: usize, wanted: &Wanted, end: Instant, deadline: Duration) -> Next {
        let shared = self.io.shared();
        if wanted.queue.drops {
            let mut arrivals = shared.lock();
            if arrivals.arrays[array].announced.is_empty() && !arrivals.arrays[array].asked {
                arrivals.arrays[array].asked = true;
                arrivals.tell(&Text::Next { array: array as u32 });
                drop(arrivals);
                shared.wake();
            }
        }
        let found = shared.wait(end, |arrivals| {
            let arriving = &mut arrivals.arrays[array];
            if let Some(announced) = arriving.announced.pop_front() {
                arriving.asked = false;
                return Some(Next::Step(announced));
            }
            if arriving.ended {
                return Some(Next::End);
            }
            arrivals.over.clone().map(Next::Error)
        });
        found.unwrap_or_else(|| {
            Next::Error(format!(
                "step {} of the array '{}' was not put within {} s; ask for it again, or give a longer deadline",
                self.next[array],
                wanted.name,
                deadline.as_secs_f64()
            ))
        })
    }

    /// Waits until all of a step is there.
    fn complete(
        &self,
        array: usize,
        wanted: &Wanted,
        announced: &Announced,
        end: Instant,
        deadline: Duration,
    ) -> Result<()> {
        let sequence = announced.sequence;
        let found = self.io.shared().wait(end, |arrivals| {
            let complete = arrivals.arrays[array].is_complete(sequence);
            if complete { Some(Ok(())) } else { arrivals.over.clone().map(|why| Err(partner(why))) }
        });
        found.unwrap_or_else(|| {
            let missing = self.io.shared().lock().arrays[array].missing(sequence);
            let (from, to) = missing.unwrap_or_default();
            Err(partner(format!(
                "rank {to} waited {} s for what rank {from} of the producer sends it of step {} of the array '{}'",
                deadline.as_secs_f64(),
                announced.number,
                wanted.name
            )))
        })
    }

    fn leave(self) {
        let complete = self.ended.iter().all(|&ended| ended);
        self.io.shared().lock().leave(&Text::Leave { complete });
        self.io.shared().wake();
        // So that the last words are sent.
        let end = Instant::now() + Duration::from_secs(1);
        self.io.shared().wait(end, |arrivals| arrivals.is_silent().then_some(()));
    }
}

/// What moves frames.
fn begin(arrivals: Arrivals, meeting: &Meeting) -> Result<IoThread<Arrivals>> {
    match meeting {
        #[cfg(feature = "mpi")]
        Meeting::World { world, partner } => {
            let leader = world.leader(partner)?;
            let io = crate::messages::MessageIo::new(world.transport(leader)?, leader, Role::Consumer)?;
            Ok(IoThread::without_thread(arrivals, io))
        }
        _ => IoThread::start(arrivals, None),
    }
}

/// Plans each array for the ranks that this process hosts.
fn plan(job: &Job, arrays: &[Wanted], welcome: &Welcome, own_ranks: u64) -> Result<Vec<Side>> {
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

/// A connection that was made.
enum Opened {
    Stream(TcpStream),
    #[cfg(feature = "mpi")]
    Rank(usize),
}

impl Opened {
    fn attach(self, arrivals: &mut Arrivals, channel: Channel) -> ConnectionId {
        match self {
            Self::Stream(stream) => arrivals.attach(stream),
            #[cfg(feature = "mpi")]
            Self::Rank(rank) => {
                let id = crate::messages::connection(rank, channel != Channel::Control);
                arrivals.open(id, crate::messages::opening(channel));
                id
            }
        }
    }
}

/// Connects to the processes of the producer from which this one gets something.
fn connect_all(
    io: &IoThread<Arrivals>,
    job: &Job,
    coupled: &Coupled,
    meeting: &Meeting,
    sides: &[Side],
    end: Instant,
) -> Result<()> {
    let Coupled { welcome, secret, session } = coupled;
    let peers =
        sides.iter().flat_map(|side| &side.ranks).flat_map(|rank| &rank.messages).map(|message| message.peer);
    let processes: BTreeSet<u32> = peers.map(|rank| process_of(&welcome.processes, rank)).collect();
    let count = processes.len();
    for process in processes {
        let channel = Channel::Data { consumer: welcome.consumer, process: job.process() as u32 };
        let address = &welcome.processes[process as usize].address;
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
                Opened::Stream(dial_until(address, &secret, channel, Some(session), end)?)
            }
        };
        let mut arrivals = io.shared().lock();
        let id = opened.attach(&mut arrivals, channel);
        arrivals.data.insert(process, id);
    }
    io.shared().wake();
    let opened = io.shared().wait(end, |arrivals| {
        let opened = (arrivals.opened == count).then_some(Ok(()));
        opened.or_else(|| arrivals.over.clone().map(|why| Err(partner(why))))
    });
    opened.unwrap_or_else(|| Err(partner("the producer did not take all connections before the deadline")))
}

/// The leaders agree.
fn introduce(
    io: &IoThread<Arrivals>,
    meeting: &Meeting,
    hello: Hello,
    end: Instant,
    bytes: &mut u64,
) -> Result<Coupled> {
    let text = Text::Hello(hello);
    let (mut session, mut secret) = Default::default();
    {
        let opened = match meeting {
            #[cfg(feature = "mpi")]
            Meeting::World { world, partner } => Opened::Rank(world.leader(partner)?),
            _ => {
                let (stream, found, known) = reach(meeting, end)?;
                (session, secret) = (found, known.to_hex());
                Opened::Stream(stream)
            }
        };
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
fn reach(meeting: &Meeting, end: Instant) -> Result<(TcpStream, SessionId, Secret)> {
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
) -> Result<TcpStream> {
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
) -> std::result::Result<(TcpStream, SessionId), Dialled> {
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
    let mut stream = reached.map_err(not_there)?;
    let _ = stream.set_nodelay(true);
    let mut visitor = Visitor::new(secret, channel).map_err(|error| Dialled::Wrong(error.to_string()))?;
    let mut exchange = |said: &[u8], heard: &mut [u8]| {
        stream.set_write_timeout(Some(left()))?;
        stream.write_all(said)?;
        let mut at = 0;
        while at < heard.len() {
            stream.set_read_timeout(Some(left()))?;
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
    exchange(&opening, &mut answer).map_err(not_there)?;
    let wrong = |why: String| Dialled::Wrong(format!("at {address}: {why}"));
    let (session, proof) = visitor.prove(&answer, session).map_err(wrong)?;
    let mut verdict = [0; VERDICT_BYTES];
    exchange(&proof, &mut verdict).map_err(not_there)?;
    visitor.believe(&session, &verdict).map_err(wrong)?;
    Ok((stream, session))
}
