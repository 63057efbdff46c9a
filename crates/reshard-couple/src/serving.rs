//! A publisher that consumers can find: how its processes are reached, what they decide together before a step, and how a step is packed.

use crate::addresses::{advertised, resolve};
use crate::bounds::check_messages;
use crate::frame::{FrameKind, Head};
use crate::greeting::SessionId;
use crate::io::{Door, IoThread, Shared};
use crate::job::{Job, error_of};
use crate::meeting::{Meeting, write_file};
#[cfg(feature = "mpi")]
use crate::messages::MessageIo;
use crate::options::{LONGEST, Options};
use crate::private_file::WrittenFile;
use crate::secret::{Secret, random};
use crate::side::{Frames, Role, Side};
use crate::slots::Buffer;
use crate::state::{ConsumerId, Patience, Stage, State, took_no_step};
use crate::stream::{listen, local_name};
use crate::terms::{Hello, Process, Published, Wanted, check_processes, moved, process_of, ranks};
use reshard::{Error, ErrorKind, Move, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A publisher that consumers can find.
pub struct Serving {
    pub io: IoThread<State>,
    pub address: String,
    pub ranks: u64,
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
    /// This process was called wrongly: the kind of the error, and what it says.
    wrong: Option<(u32, String)>,
}

/// How a process of the producer can be reached.
struct Reached {
    way: Way,
    address: String,
    local: Option<(String, UnixListener)>,
    /// The session and the secret, which the leader chooses for all.
    invites: Option<(SessionId, String)>,
}

enum Way {
    Listens(TcpListener),
    #[cfg(feature = "mpi")]
    Messages(MessageIo),
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
                let io = MessageIo::new(world.transport(leader)?, leader, Role::Producer)?;
                let address = world.rank().to_string();
                return Ok(Self { way: Way::Messages(io), address, local: None, invites });
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
        let address = advertised(options, bind.ip(), port);
        // Without it, there is TCP.
        let name = if options.shared_memory { local_name(u64::from_le_bytes(random()?)) } else { None };
        let local = name.and_then(|name| listen(&name).ok().map(|listener| (name, listener)));
        Ok(Self { way: Way::Listens(listener), address, local, invites })
    }
}

impl Serving {
    pub fn new(job: &Job, options: &Options, arrays: &[Published], meeting: &Meeting) -> Result<Self> {
        let ranks = ranks(arrays.iter().map(|array| &array.layout));
        // A process that cannot be reached must not leave the others alone.
        let reached = job.agree(Reached::new(job, options, meeting), options.deadline)?;
        let (name, local) = reached.local.unzip();
        let mine =
            serde_json::to_vec(&(&reached.invites, &reached.address, name)).expect("texts and numbers");
        let all = job.gather(&mine, options.deadline)?;
        type Said = (Option<(SessionId, String)>, String, Option<String>);
        let all: Vec<Said> = all.iter().filter_map(|text| serde_json::from_slice(text).ok()).collect();
        let leader = all.first().and_then(|(invites, ..)| invites.clone());
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
            .map(|(process, (_, address, local))| {
                let ranks = job.hosted(process, ranks);
                Process { address, local, ranks }
            })
            .collect();
        check_processes("producer", &processes, ranks).map_err(|why| Error::new(ErrorKind::Mismatch, why))?;
        let state = State::new(arrays.to_vec(), processes, options.max_consumers, job.leads());
        let io = match reached.way {
            Way::Listens(listener) => {
                let door = Door { listener, local, secret: secret.clone(), session };
                IoThread::start(state, Some(door), options.deadline)?
            }
            #[cfg(feature = "mpi")]
            Way::Messages(io) => IoThread::without_thread(state, io),
        };
        let address = reached.address;
        let file = match meeting {
            Meeting::File(path) if job.leads() => Some(write_file(path, &address, &session, &secret)?),
            _ => None,
        };
        Ok(Self { io, address, ranks, sides: BTreeMap::new(), _file: file })
    }

    fn shared(&self) -> &Shared<State> {
        self.io.shared()
    }

    /// What all processes do before a step of an array: new consumers come in, those that are gone go, full queues drop a step.
    /// A process that was called wrongly must not leave the others alone: all fail.
    pub fn decide(
        &mut self,
        job: &Job,
        checked: Result<()>,
        deadline: Duration,
        place: Option<usize>,
    ) -> Result<()> {
        if job.processes() == 1 {
            checked.clone()?;
        }
        // Over MPI nothing was heard since the last call.
        self.shared().wake();
        let mine = {
            let mut state = self.shared().lock();
            let left = state.consumers.iter().filter(|(_, one)| one.stage == Stage::Left).map(|(id, _)| *id);
            let wrong = checked.err().map(|error| (error.kind().code() as u32, error.to_string()));
            let mut mine =
                Decision { lost: lost_in(&state), left: left.collect(), wrong, ..Decision::default() };
            if job.leads() && !state.has_ended() {
                let ready = state.consumers.iter().filter(|(_, one)| one.stage == Stage::Ready);
                let hello = ready.filter_map(|(id, one)| Some((*id, Hello::clone(one.hello.as_ref()?))));
                mine.admit = hello.collect();
                // Dropped at once: from now on no consumer is told of them.
                mine.drop = place.map_or(Vec::new(), |place| state.full(place));
                mine.drop.iter().for_each(|&(id, array, sequence)| state.drop_step(id, array, sequence));
            }
            mine
        };
        let (mut decision, wrong) = match job.processes() {
            1 => (mine, Ok(())),
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
        match (wrong, self.forget(&decision.lost)) {
            (Err(wrong), Err(lost)) => Err(Error::new(wrong.kind(), format!("{wrong}; {lost}"))),
            (wrong, lost) => wrong.and(lost),
        }
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
    pub fn lost(&mut self) -> Result<()> {
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
        let moved = |wanted: &Wanted| {
            let published = published.iter().find(|one| one.name == wanted.name);
            let published =
                published.ok_or_else(|| Error::new(ErrorKind::Mismatch, "an array is not published"))?;
            moved(published, wanted, all)
        };
        let moves: Vec<Move> = hello.arrays.iter().map(moved).collect::<Result<_>>()?;
        check_messages(&moves, &hosted)?;
        let side = |moved| Side::new(moved, Role::Producer, hosted.clone(), all);
        let sides: Vec<Side> = moves.iter().map(side).collect::<Result<_>>()?;
        let state = self.shared().lock();
        for message in sides.iter().flat_map(|side| &side.ranks).flat_map(|rank| &rank.messages) {
            let process = process_of(&hello.processes, message.peer);
            if !hello.few_connections && !state.has_connection(id, process) {
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
    pub fn wait_for_room(&self, place: usize, deadline: Duration) {
        let end = Instant::now() + deadline;
        while self.shared().wait(end, |state| state.without_room(place).is_none().then_some(())).is_none() {
            let mut state = self.shared().lock();
            let Some(id) = state.without_room(place) else { return };
            state.end(id, Stage::Lost(took_no_step(id, deadline)));
            drop(state);
            self.shared().wake();
        }
    }

    /// Where there is no thread that sends while the program computes, sends all there is to send. Who receives nothing for as long as the
    /// deadline is given up, so that the next step waits for it no more.
    pub fn hand_over(&self, deadline: Duration) {
        if self.io.has_thread() {
            return;
        }
        let began = Instant::now();
        self.shared().wait(began + LONGEST, |state| {
            state.end_stalled(began, deadline);
            state.is_handed_over().then_some(())
        });
        // Whoever was given up is told.
        self.shared().wake();
    }

    /// Waits until all consumers have left; false if some have not before the deadline. Collective: who comes at the very end may need all
    /// processes, and over MPI nothing moves while a process waits for others.
    pub fn wait_until_left(&self, job: &Job, deadline: Duration) -> Result<bool> {
        let end = Instant::now() + deadline;
        loop {
            let turn = if job.processes() == 1 { end } else { (Instant::now() + TURN).min(end) };
            let left = self.shared().wait(turn, |state| state.all_left().then_some(())).is_some();
            if job.processes() == 1 {
                return Ok(left);
            }
            let all = job.gather(&[u8::from(left), u8::from(Instant::now() >= end)], deadline)?;
            let is = |place: usize| move |said: &Vec<u8>| said.get(place) == Some(&1);
            if all.iter().all(is(0)) || all.iter().any(is(1)) {
                return Ok(left);
            }
        }
    }

    pub fn pack(
        &mut self,
        place: usize,
        number: u64,
        header: &[u8],
        parts: &[&[u8]],
        deadline: Duration,
    ) -> Result<()> {
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
            // The consumer is told of it.
            shared.wake();
            // Over MPI nothing is sent while this waits, and who drops steps is not waited for.
            let threaded = self.io.has_thread();
            let drops = hello.arrays.get(array as usize).is_some_and(|wanted| wanted.queue.drops);
            let mut frames = ToConsumer {
                shared: &shared,
                id,
                hello: &hello,
                head: Head::new(FrameKind::Data, array, sequence),
                threaded,
                patience: if threaded && !drops { Patience::Always } else { Patience::None },
                waits_since: None,
                waited: Duration::ZERO,
                deadline,
            };
            for (rank, part) in side.ranks.iter_mut().zip(parts) {
                frames.head.from = rank.rank as u32;
                rank.pack(part, &mut frames)?;
            }
            shared.lock().end_step(id, array, sequence);
            shared.wake();
        }
        Ok(())
    }
}

/// How long one turn of waiting takes.
pub const TURN: Duration = Duration::from_millis(5);

/// How long to wait in one step for a consumer that takes it, or for what carries it, while memory could be had all the same: the longest
/// turn of others on its processor. A step that takes longer is packed at once, so that `put` does not last as long as it travels.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long to wait for a consumer that has taken a step, and may take the next in a moment.
const BETWEEN_STEPS: Duration = Duration::from_micros(500);

/// How long to look for memory again and again before sleeping in between.
const POLLING: Duration = Duration::from_millis(2);

/// The frames of a step that go to one consumer.
struct ToConsumer<'s> {
    shared: &'s Shared<State>,
    id: ConsumerId,
    hello: &'s Hello,
    head: Head,
    /// What is packed is sent by a thread meanwhile.
    threaded: bool,
    /// What is read while it is in the caches is read faster.
    patience: Patience,
    waits_since: Option<Instant>,
    /// In this step, before the wait that goes on.
    waited: Duration,
    deadline: Duration,
}

impl Frames for ToConsumer<'_> {
    fn memory(&mut self, peer: u64, bytes: usize) -> Option<Buffer> {
        let process = process_of(&self.hello.processes, peer);
        self.shared.lock().memory(self.id, process, bytes, self.patience)
    }

    fn packed(&mut self, peer: u64, frame: Buffer) {
        self.waited += self.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        if self.waited > PATIENCE {
            self.patience = Patience::None;
        }
        let process = process_of(&self.hello.processes, peer);
        let head = Head { to: peer as u32, ..self.head };
        if self.shared.lock().add_frame(self.id, process, head, frame) || !self.threaded {
            self.shared.wake();
        }
    }

    /// Waits a moment. A consumer that frees no memory before the deadline is given up.
    fn wait(&mut self) {
        let waited = self.waits_since.get_or_insert_with(Instant::now).elapsed();
        self.patience = match self.patience {
            Patience::Always if waited > BETWEEN_STEPS => Patience::Awaited,
            Patience::Awaited if self.waited + waited > PATIENCE => Patience::None,
            same => same,
        };
        if waited > self.deadline {
            let why = took_no_step(self.id, self.deadline);
            self.shared.lock().end(self.id, Stage::Lost(why));
            self.shared.wake();
        } else if waited > POLLING {
            std::thread::sleep(POLLING / 10);
        } else {
            std::thread::yield_now();
        }
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
fn shared_decision(job: &Job, mine: &Decision, deadline: Duration) -> Result<(Decision, Result<()>)> {
    let Decision { admit, drop, lost, left, wrong } = mine;
    let empty = admit.is_empty() && drop.is_empty() && lost.is_empty() && left.is_empty() && wrong.is_none();
    let text = if empty { Vec::new() } else { serde_json::to_vec(mine).expect("texts and numbers") };
    let (mut all, mut outcome) = (Decision::default(), Ok(()));
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
        if let Some((kind, why)) = &said.wrong {
            outcome = outcome.and_then(|()| Err(error_of(process, *kind, why)));
        }
        let known = |lost: &(ConsumerId, String)| all.lost.iter().any(|(id, _)| *id == lost.0);
        let new: Vec<_> = said.lost.into_iter().filter(|lost| !known(lost)).collect();
        all.lost.extend(new);
        all.left.extend(said.left);
    }
    Ok((all, outcome))
}
