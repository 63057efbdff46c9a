//! The producer's side of couplings.

use crate::element::ElementType;
use crate::frame::{FrameKind, Head};
use crate::greeting::SessionId;
use crate::io::{Door, IoThread, Shared};
use crate::job::Job;
use crate::meeting::{Meeting, WrittenFile};
use crate::options::Options;
use crate::secret::{Secret, random};
use crate::side::{Role, Side};
use crate::state::{Consumer, ConsumerId, Stage, State};
use crate::terms::{Hello, MAX_HEADER_BYTES, Process, Published, Wanted, check_processes, moved, ranks};
use bytemuck::Pod;
use reshard::{Error, ErrorKind, Layout, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Gives arrays to other jobs, step after step.
///
/// ```
/// use reshard_couple::{ElementType, Job, Meeting, Options, Publisher, Subscriber};
/// let folder = std::env::temp_dir().join(format!("reshard-publisher-{}", std::process::id()));
/// std::fs::create_dir_all(&folder).unwrap();
/// let meeting = Meeting::file(folder.join("run.meet"));
/// let there = meeting.clone();
/// // Another job, here a thread, which knows another layout.
/// let viewer = std::thread::spawn(move || -> reshard::Result<f64> {
///     let layout: reshard::Layout = "3x1/5x5 of 20x30".parse()?;
///     let mut viewer = Subscriber::new(Job::hosting_all(), Options::default());
///     let t = viewer.subscribe("t", &layout, ElementType::of::<f64>())?;
///     viewer.connect(&there)?;
///     let (mut parts, mut last) = (layout.parts(|_| 0.0)?, 0.0);
///     while viewer.get(t, &mut parts)?.is_some() {
///         last = *layout.get(&parts, &[19, 29])?;
///     }
///     viewer.leave();
///     Ok(last)
/// });
/// let layout: reshard::Layout = "2x2/4x4 of 20x30".parse()?;
/// let mut simulation = Publisher::new(Job::hosting_all(), Options::default());
/// let t = simulation.publish("t", &layout, ElementType::of::<f64>())?;
/// simulation.open(&meeting)?;
/// simulation.wait_for(1)?;
/// for step in 0..3 {
///     let parts = layout.parts(|index| (100 * step + index[0] + index[1]) as f64)?;
///     simulation.put(t, step, b"", &parts)?;
/// }
/// assert_eq!(simulation.finish()?, 1); // one consumer has taken all
/// assert_eq!(viewer.join().unwrap()?, 248.0);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), reshard::Error>(())
/// ```
///
/// Everything but [`publish`](Self::publish) is collective: all processes of the job call it, with the same arguments but for the
/// parts.
pub struct Publisher {
    job: Job,
    options: Options,
    arrays: Vec<Published>,
    open: Option<OpenPublisher>,
}

/// An array that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayId(pub(crate) usize);

/// A publisher that consumers can find.
struct OpenPublisher {
    io: IoThread<State>,
    address: String,
    ranks: u64,
    /// Of each consumer, each of its arrays.
    sides: BTreeMap<(ConsumerId, u32), Side>,
    _file: Option<WrittenFile>,
}

/// What the leader decides for all processes before a step.
#[derive(Default, Serialize, Deserialize)]
struct Decision {
    admit: Vec<(ConsumerId, Hello)>,
    drop: Vec<(ConsumerId, u32, u64)>,
    lost: Vec<(ConsumerId, String)>,
    left: Vec<ConsumerId>,
}

impl Publisher {
    /// A producer with no arrays yet.
    pub fn new(job: Job, options: Options) -> Self {
        Self { job, options, arrays: Vec::new(), open: None }
    }

    /// Offers an array under a name. Its ranks are those of this job.
    pub fn publish(&mut self, name: &str, layout: &Layout, element: ElementType) -> Result<ArrayId> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Mismatch, message));
        if self.open.is_some() {
            return wrong(format!(
                "the array '{name}' was published after open(); publish all arrays before"
            ));
        }
        if name.is_empty() || name.len() > 256 {
            return wrong(format!(
                "the name of an array was given with {} bytes; it has 1 to 256",
                name.len()
            ));
        }
        if self.arrays.iter().any(|array| array.name == name) {
            return wrong(format!("the array '{name}' was published twice; give each a name of its own"));
        }
        self.arrays.push(Published { name: name.into(), element, layout: layout.clone() });
        Ok(ArrayId(self.arrays.len() - 1))
    }

    /// Lets consumers come: listens, and writes the meeting file. It is removed when the publisher ends.
    pub fn open(&mut self, meeting: &Meeting) -> Result<()> {
        let Self { job, options, arrays, .. } = self;
        let opened = OpenPublisher::new(job, options, arrays, meeting);
        self.open = Some(job.agree(opened, options.deadline)?);
        Ok(())
    }

    /// The address at which this process listens.
    pub fn address(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.address.as_str())
    }

    /// Waits until there are this many consumers, which get the next step.
    pub fn wait_for(&mut self, consumers: usize) -> Result<()> {
        let (job, deadline) = (&self.job, self.options.deadline);
        let open = self.open.as_mut().ok_or_else(not_open)?;
        let end = Instant::now() + deadline;
        let there = |state: &mut State| {
            let comes = |stage: &Stage| matches!(stage, Stage::Ready | Stage::Admitted);
            let count = state.consumers.values().filter(|one| comes(&one.stage)).count();
            (count >= consumers).then_some(())
        };
        let shared = Arc::clone(open.io.shared());
        // In turns, so that all processes move frames meanwhile.
        loop {
            let turn = if job.processes() == 1 { end } else { (Instant::now() + TURN).min(end) };
            let came = match job.leads() {
                true => shared.wait(turn, there).is_some(),
                false => shared.wait(turn, |_| None::<()>).is_some(),
            };
            let verdict = match (came, Instant::now() >= end) {
                (true, _) => CAME,
                (false, true) => LATE,
                (false, false) => WAITS,
            };
            match job.broadcast(vec![verdict], deadline)?.first() {
                Some(&WAITS) => {}
                Some(&CAME) => {
                    open.decide(job, deadline, None)?;
                    // One that is gone again does not count.
                    let admitted = |one: &&Consumer| one.stage == Stage::Admitted;
                    let count = shared.lock().consumers.values().filter(admitted).count();
                    let enough = job.broadcast(vec![u8::from(count >= consumers)], deadline)?;
                    if enough.first() == Some(&1) {
                        return Ok(());
                    }
                }
                _ => {
                    let late = if job.leads() { Err(late(&shared, consumers, deadline)) } else { Ok(()) };
                    job.agree(late, deadline)?;
                    return Err(Error::new(ErrorKind::Failed, "the leader cannot be understood"));
                }
            }
        }
    }

    /// The number of consumers that get the next step.
    pub fn consumers(&self) -> usize {
        let Some(open) = &self.open else { return 0 };
        open.io.shared().lock().consumers.values().filter(|one| one.stage == Stage::Admitted).count()
    }

    /// Gives a step of an array to all consumers, with a number and a few bytes of the program's own. The parts are those of the ranks
    /// that this process hosts, in the order of ranks. When it returns they may be changed: what has not been sent is kept.
    ///
    /// Waits for consumers whose queue is full, unless they drop steps. An error of kind [`Partner`](ErrorKind::Partner) says that a
    /// consumer is gone, or took no step within the deadline; all others get this step, and the next ones.
    pub fn put<T: Pod>(
        &mut self,
        array: ArrayId,
        number: u64,
        header: &[u8],
        parts: &[impl AsRef<[T]>],
    ) -> Result<()> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| bytemuck::cast_slice(part.as_ref())).collect();
        let fits = self.array(array).and_then(|one| check_size::<T>(&one.name, one.element));
        self.put_checked(array, number, header, fits, &parts)
    }

    /// As [`put`](Self::put), with parts given as bytes.
    pub fn put_bytes(&mut self, array: ArrayId, number: u64, header: &[u8], parts: &[&[u8]]) -> Result<()> {
        self.put_checked(array, number, header, Ok(()), parts)
    }

    fn put_checked(
        &mut self,
        array: ArrayId,
        number: u64,
        header: &[u8],
        fits: Result<()>,
        parts: &[&[u8]],
    ) -> Result<()> {
        let checked = fits.and_then(|()| self.check(array, header, parts));
        let (job, deadline) = (&self.job, self.options.deadline);
        let open = self.open.as_mut().ok_or_else(not_open)?;
        // A process that was called wrongly must not leave the others alone.
        job.agree(checked, deadline)?;
        let decided = open.decide(job, deadline, Some(array.0));
        if decided.as_ref().is_err_and(|error| error.kind() != ErrorKind::Partner) {
            return decided;
        }
        open.wait_for_room(array.0, deadline);
        open.pack(array.0, number, header, parts)?;
        open.io.hand_over(deadline, State::is_handed_over);
        if job.processes() > 1 {
            // What this process noticed meanwhile, all say at the next call.
            return decided;
        }
        match (decided, open.lost()) {
            (Err(one), Err(other)) => Err(Error::new(ErrorKind::Partner, format!("{one}; {other}"))),
            (one, other) => one.and(other),
        }
    }

    /// Says that there are no more steps, and waits until consumers have taken those that wait, and left. Returns how many consumers have
    /// taken the last step of each of their arrays.
    pub fn finish(mut self) -> Result<usize> {
        let (job, deadline) = (&self.job, self.options.deadline);
        let open = self.open.as_mut().ok_or_else(not_open)?;
        let decided = open.decide(job, deadline, None);
        let shared = Arc::clone(open.io.shared());
        shared.lock().end_all();
        shared.wake();
        let end = Instant::now() + deadline;
        if shared.wait(end, |state| state.all_left().then_some(())).is_none() {
            let mut state = shared.lock();
            let admitted =
                |(id, one): (&ConsumerId, &Consumer)| (one.stage == Stage::Admitted).then_some(*id);
            let late: Vec<ConsumerId> = state.consumers.iter().filter_map(admitted).collect();
            for id in late {
                let why = format!(
                    "consumer {id} has not left within {} s after the last step",
                    deadline.as_secs_f64()
                );
                state.end(id, Stage::Lost(why));
            }
        }
        let lost = open.decide(job, deadline, None);
        decided.and(lost)?;
        let complete = shared.lock().complete as u64;
        let complete = job.broadcast(complete.to_le_bytes().to_vec(), deadline)?;
        Ok(complete.try_into().map_or(0, |bytes| u64::from_le_bytes(bytes) as usize))
    }

    fn array(&self, array: ArrayId) -> Result<&Published> {
        self.arrays.get(array.0).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfRange,
                format!("array {} was given; {} are published", array.0, self.arrays.len()),
            )
        })
    }

    fn check(&self, array: ArrayId, header: &[u8], parts: &[&[u8]]) -> Result<()> {
        let Published { layout, element, .. } = self.array(array)?;
        let wrong = |message: String| Err(Error::new(ErrorKind::Mismatch, message));
        if header.len() > MAX_HEADER_BYTES {
            return wrong(format!(
                "a header of {} bytes was given; it has at most {MAX_HEADER_BYTES}",
                header.len()
            ));
        }
        let ranks = self.open.as_ref().map_or(0, |open| open.ranks);
        let grid = layout.distribution().grid();
        let hosted: Vec<u64> =
            self.job.hosted(self.job.process(), ranks).filter(|&rank| grid.contains(rank)).collect();
        if parts.len() != hosted.len() {
            return wrong(format!(
                "{} parts were given; this process hosts {} ranks of the array: give the part of each, in the order of ranks",
                parts.len(),
                hosted.len()
            ));
        }
        for (&rank, part) in hosted.iter().zip(parts) {
            let needed = layout.span(rank)? * element.bytes();
            if (part.len() as u64) < needed {
                return wrong(format!(
                    "the part of rank {rank} has {} bytes; its layout needs {needed}",
                    part.len()
                ));
            }
        }
        Ok(())
    }
}

/// What the leader says while all wait for consumers.
const WAITS: u8 = 0;
const CAME: u8 = 1;
const LATE: u8 = 2;

/// How long one turn of waiting takes.
const TURN: Duration = Duration::from_millis(5);

/// The error of too few consumers.
fn late(shared: &Shared<State>, consumers: usize, deadline: Duration) -> Error {
    let refusal = shared.lock().last_refusal.clone();
    let refusal = refusal.map_or(String::new(), |why| format!("; the last that came was refused: {why}"));
    let many = match consumers {
        1 => "no consumer".into(),
        _ => format!("fewer than {consumers} consumers"),
    };
    Error::new(ErrorKind::Partner, format!("{many} came within {} s{refusal}", deadline.as_secs_f64()))
}

/// How a process of the producer can be reached.
struct Reached {
    way: Way,
    address: String,
    /// The session and the secret, which the leader chooses for all.
    invites: Option<(SessionId, String)>,
}

enum Way {
    Listens(TcpListener),
    #[cfg(feature = "mpi")]
    Messages(crate::messages::MessageIo),
}

impl Reached {
    fn new(job: &Job, options: &Options, meeting: &Meeting) -> Result<Self> {
        let secret = match meeting {
            Meeting::At { secret, .. } => secret.clone(),
            _ => Secret::random()?,
        };
        let invites = if job.leads() { Some((random()?, secret.to_hex())) } else { None };
        let bind = match meeting {
            #[cfg(feature = "mpi")]
            Meeting::World { world, partner } => {
                world.leader(partner)?;
                let leader = world.own_leader();
                let io = crate::messages::MessageIo::new(world.transport(leader)?, leader, Role::Producer)?;
                return Ok(Self { way: Way::Messages(io), address: world.rank().to_string(), invites });
            }
            Meeting::At { address, .. } if job.leads() => resolve(address)?[0],
            _ => options.bind,
        };
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorKind::External,
                format!("nothing can listen at {bind}: {error}; give another address"),
            )
        };
        let listener = TcpListener::bind(bind).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { way: Way::Listens(listener), address: advertised(options, bind.ip(), port), invites })
    }
}

fn not_open() -> Error {
    Error::new(ErrorKind::Mismatch, "the publisher was used before open(); publish all arrays, then open it")
}

impl OpenPublisher {
    fn new(job: &Job, options: &Options, arrays: &[Published], meeting: &Meeting) -> Result<Self> {
        let ranks = ranks(arrays.iter().map(|array| &array.layout));
        // A process that cannot be reached must not leave the others alone.
        let reached = job.agree(Reached::new(job, options, meeting), options.deadline)?;
        let mine = serde_json::to_vec(&(&reached.invites, &reached.address)).expect("texts and numbers");
        let all = job.gather(&mine, options.deadline)?;
        type Said = (Option<(SessionId, String)>, String);
        let all: Vec<Said> = all.iter().filter_map(|text| serde_json::from_slice(text).ok()).collect();
        let leader = all.first().and_then(|(invites, _)| invites.clone());
        let secret = leader.as_ref().and_then(|(_, secret)| Secret::from_hex(secret));
        let (Some((session, _)), Some(secret), true) = (leader, secret, all.len() == job.processes()) else {
            return Err(Error::new(
                ErrorKind::Failed,
                "the processes of this job do not understand each other",
            ));
        };
        let processes: Vec<Process> = all
            .into_iter()
            .enumerate()
            .map(|(process, (_, address))| Process { address, ranks: job.hosted(process, ranks) })
            .collect();
        check_processes("producer", &processes, ranks).map_err(|why| Error::new(ErrorKind::Mismatch, why))?;
        let state = State::new(arrays.to_vec(), processes, options.max_consumers, job.leads());
        let io = match reached.way {
            Way::Listens(listener) => {
                let door = Door { listener, secret: secret.clone(), session };
                IoThread::start(state, Some(door))?
            }
            #[cfg(feature = "mpi")]
            Way::Messages(io) => IoThread::without_thread(state, io),
        };
        let address = reached.address;
        let file = match meeting {
            Meeting::File(path) if job.leads() => {
                Some(WrittenFile::write(path, &address, &session, &secret)?)
            }
            _ => None,
        };
        Ok(Self { io, address, ranks, sides: BTreeMap::new(), _file: file })
    }

    fn shared(&self) -> &Shared<State> {
        self.io.shared()
    }

    /// What all processes do before a step of an array: new consumers come in, those that are gone go, full queues drop a step.
    fn decide(&mut self, job: &Job, deadline: Duration, place: Option<usize>) -> Result<()> {
        // Over MPI nothing was heard since the last call.
        self.shared().wake();
        let mine = {
            let mut state = self.shared().lock();
            let left = state.consumers.iter().filter(|(_, one)| one.stage == Stage::Left).map(|(id, _)| *id);
            let mut mine = Decision { lost: lost_in(&state), left: left.collect(), ..Decision::default() };
            if job.leads() {
                let ready = state.consumers.iter().filter(|(_, one)| one.stage == Stage::Ready);
                let hello = ready.filter_map(|(id, one)| Some((*id, Hello::clone(one.hello.as_ref()?))));
                mine.admit = hello.collect();
                // Dropped at once: from now on no consumer is told of them.
                mine.drop = place.map_or(Vec::new(), |place| state.full(place));
                mine.drop.iter().for_each(|&(id, array, sequence)| state.drop_step(id, array, sequence));
            }
            mine
        };
        let mut decision = match job.processes() {
            1 => mine,
            _ => shared_decision(job, &mine, deadline)?,
        };
        for (id, hello) in std::mem::take(&mut decision.admit) {
            self.admit(job, id, hello, deadline)?;
        }
        {
            let mut state = self.io.shared().lock();
            decision.drop.iter().for_each(|&(id, array, sequence)| state.drop_step(id, array, sequence));
            for (id, why) in &decision.lost {
                state.end(*id, Stage::Lost(why.clone()));
            }
            for &id in &decision.left {
                state.end(id, Stage::Left);
                state.consumers.remove(&id);
            }
            self.sides.retain(|(id, _), _| !decision.left.contains(id));
        }
        self.forget(&decision.lost)
    }

    /// Forgets consumers that are gone, and says so.
    fn forget(&mut self, lost: &[(ConsumerId, String)]) -> Result<()> {
        let mut said: Vec<&str> = Vec::new();
        for (id, why) in lost {
            self.shared().lock().consumers.remove(id);
            let before = self.sides.len();
            self.sides.retain(|(of, _), _| of != id);
            if self.sides.len() < before {
                said.push(why);
            }
        }
        self.shared().wake();
        match said.is_empty() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Partner, said.join("; "))),
        }
    }

    /// Consumers that are gone since the last time, where this process is the only one.
    fn lost(&mut self) -> Result<()> {
        let lost = lost_in(&self.shared().lock());
        self.forget(&lost)
    }

    /// A consumer gets the next step. Collective.
    fn admit(&mut self, job: &Job, id: ConsumerId, hello: Hello, deadline: Duration) -> Result<()> {
        let hello = Arc::new(hello);
        let planned = job.agree(self.plan(job, id, &hello), deadline);
        let mut state = self.io.shared().lock();
        match planned {
            Ok(sides) => {
                state.admit(id, &hello);
                drop(state);
                self.sides.extend((0..).zip(sides).map(|(array, side)| ((id, array), side)));
            }
            // It is told, and was none of this job's consumers yet.
            Err(error) => {
                let why = format!("consumer {id} cannot be served: {error}");
                state.last_refusal = Some(why.clone());
                state.end(id, Stage::Lost(why));
                drop(state);
            }
        }
        self.shared().wake();
        Ok(())
    }

    fn plan(&self, job: &Job, id: ConsumerId, hello: &Hello) -> Result<Vec<Side>> {
        // Not with the lock held: frames of others go on.
        let (published, processes) = {
            let state = self.shared().lock();
            (state.published.clone(), state.processes.clone())
        };
        let hosted = job.hosted(job.process(), self.ranks);
        let all = processes.iter().map(|process| process.ranks.end).max().unwrap_or(0);
        let side = |wanted: &Wanted| {
            let published = published.iter().find(|one| one.name == wanted.name);
            let published =
                published.ok_or_else(|| Error::new(ErrorKind::Mismatch, "an array is not published"))?;
            Side::new(&moved(published, wanted, all)?, Role::Producer, hosted.clone(), all)
        };
        let sides: Vec<Side> = hello.arrays.iter().map(side).collect::<Result<_>>()?;
        let state = self.shared().lock();
        for message in sides.iter().flat_map(|side| &side.ranks).flat_map(|rank| &rank.messages) {
            let process = process_of(&hello.processes, message.peer);
            if !state.has_connection(id, process) {
                return Err(Error::new(
                    ErrorKind::Partner,
                    format!(
                        "process {process} of consumer {id} has no connection to process {}",
                        job.process()
                    ),
                ));
            }
        }
        Ok(sides)
    }

    /// Waits until no consumer's queue is full but of those that drop steps. Who takes no step in time is given up.
    fn wait_for_room(&self, place: usize, deadline: Duration) {
        let end = Instant::now() + deadline;
        while self.shared().wait(end, |state| state.without_room(place).is_none().then_some(())).is_none() {
            let mut state = self.shared().lock();
            let Some(id) = state.without_room(place) else { return };
            let why = format!("consumer {id} took no step within {} s", deadline.as_secs_f64());
            state.end(id, Stage::Lost(why));
            drop(state);
            self.shared().wake();
        }
    }

    fn pack(&mut self, place: usize, number: u64, header: &[u8], parts: &[&[u8]]) -> Result<()> {
        let shared = Arc::clone(self.io.shared());
        for (&(id, array), side) in &mut self.sides {
            let found = {
                let mut state = shared.lock();
                let consumer = state.consumers.get(&id).filter(|one| one.stage == Stage::Admitted);
                let hello = consumer.filter(|one| one.places.get(array as usize) == Some(&place));
                let hello = hello.and_then(|one| one.hello.clone());
                hello.and_then(|hello| Some((hello, state.begin_step(id, array, number, header)?)))
            };
            let Some((hello, sequence)) = found else { continue };
            for (rank, part) in side.ranks.iter_mut().zip(parts) {
                let from = rank.rank as u32;
                rank.pack(
                    part,
                    || shared.lock().memory(),
                    |to, frame| {
                        let head =
                            Head { from, to: to as u32, ..Head::new(FrameKind::Data, array, sequence) };
                        shared.lock().add_frame(id, process_of(&hello.processes, to), head, frame);
                        shared.wake();
                        Ok(())
                    },
                )?;
            }
            shared.lock().end_step(id, array, sequence);
            shared.wake();
        }
        Ok(())
    }
}

fn lost_in(state: &State) -> Vec<(ConsumerId, String)> {
    let lost = state.consumers.iter().filter_map(|(id, one)| match &one.stage {
        Stage::Lost(why) => Some((*id, why.clone())),
        _ => None,
    });
    lost.collect()
}

/// What the leader decides, and what any process knows of consumers that are gone.
fn shared_decision(job: &Job, mine: &Decision, deadline: Duration) -> Result<Decision> {
    let empty = mine.admit.is_empty() && mine.drop.is_empty() && mine.lost.is_empty() && mine.left.is_empty();
    let text = if empty { Vec::new() } else { serde_json::to_vec(mine).expect("texts and numbers") };
    let mut all = Decision::default();
    for (process, text) in
        job.gather(&text, deadline)?.iter().enumerate().filter(|(_, text)| !text.is_empty())
    {
        let said: Decision = serde_json::from_slice(text).map_err(|error| {
            Error::new(
                ErrorKind::Failed,
                format!("process {process} of this job cannot be understood: {error}"),
            )
        })?;
        if process == 0 {
            (all.admit, all.drop) = (said.admit, said.drop);
        }
        let known = |lost: &(ConsumerId, String)| all.lost.iter().any(|(id, _)| *id == lost.0);
        let new: Vec<_> = said.lost.into_iter().filter(|lost| !known(lost)).collect();
        all.lost.extend(new);
        all.left.extend(said.left);
    }
    Ok(all)
}

/// Fails unless elements of a type have the bytes of the array's.
pub(crate) fn check_size<T>(name: &str, element: ElementType) -> Result<()> {
    match element.bytes() == size_of::<T>() as u64 {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "elements of {} bytes were given for the array '{name}', whose type is {element}",
                size_of::<T>()
            ),
        )),
    }
}

/// The process that hosts a rank.
pub(crate) fn process_of(processes: &[Process], rank: u64) -> u32 {
    processes.partition_point(|process| process.ranks.end <= rank) as u32
}

/// The addresses of a name.
pub(crate) fn resolve(address: &str) -> Result<Vec<SocketAddr>> {
    let wrong = |why: String| {
        Error::new(
            ErrorKind::OutOfRange,
            format!("the address was given as '{address}'; give HOST:PORT: {why}"),
        )
    };
    let found: Vec<SocketAddr> =
        address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    if found.is_empty() { Err(wrong("it has no address".into())) } else { Ok(found) }
}

/// How other machines reach this process.
fn advertised(options: &Options, ip: std::net::IpAddr, port: u16) -> String {
    let host = match &options.advertise {
        Some(host) => host.clone(),
        None if ip.is_unspecified() => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            if name.trim().is_empty() { "localhost".into() } else { name.trim().to_string() }
        }
        None => ip.to_string(),
    };
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
