//! The consumer's side of a coupling.

use crate::arrivals::{Arrivals, Arriving};
use crate::connecting::{Coupled, Redialling, begin, connect_all, introduce, needs, partner, plan};
use crate::element::{ElementType, check_element};
use crate::io::IoThread;
use crate::job::{Job, error_of};
use crate::meeting::Meeting;
use crate::options::Options;
use crate::receiving::{Receiving, unpack};
use crate::side::Side;
use crate::terms::{
    Announced, ArrayId, BYTE_ORDER, Hello, Part, Process, Queue, Text, Wanted, process_of, ranks,
};
use bytemuck::Pod;
use reshard::{Error, ErrorKind, Layout, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, Instant};

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
    /// Where not all connections are held.
    redialling: Option<Redialling>,
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
    /// Of these, those to processes of the same machine, through shared memory.
    pub shared_connections: usize,
}

impl Subscription {
    /// All of an array, into this layout. Its ranks are those of this job.
    pub fn new(name: &str, layout: &Layout, element: ElementType) -> Self {
        let queue = Queue { depth: 2, drops: false };
        Self {
            wanted: Wanted {
                name: name.into(),
                element,
                layout: layout.clone(),
                window: None,
                queue,
                whole: false,
            },
        }
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

    /// Steps are written whole or not at all: on an error the parts are as they were. Otherwise what comes is written at once, which is faster
    /// and takes less memory, and after an error in the middle of a step the parts are written in places.
    #[must_use]
    pub fn whole_steps(mut self) -> Self {
        self.wanted.whole = true;
        self
    }

    /// The producer never waits for this consumer: when it has kept as many steps as the queue is deep, the oldest is dropped.
    #[must_use]
    pub fn dropping_oldest(mut self) -> Self {
        self.wanted.queue.drops = true;
        self
    }
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
    /// more. After an error the parts may be written in places, and the error says so, unless [whole
    /// steps](Subscription::whole_steps) were asked for. After one of kind [`Partner`](ErrorKind::Partner) because the step did not come within the
    /// deadline, it may be asked for again.
    pub fn get<T: Pod>(&mut self, array: ArrayId, parts: &mut [impl AsMut<[T]>]) -> Result<Option<StepInfo>> {
        let fits = self
            .arrays
            .get(array.0)
            .map_or(Ok(()), |wanted| check_element::<T>(wanted.element, &wanted.name));
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
        let open = self.open.as_mut().ok_or_else(not_connected)?;
        let Some(wanted) = self.arrays.get(array.0) else {
            let why = no_array(array.0, self.arrays.len());
            return self.refuse(why).map(|()| None);
        };
        let checked =
            fits.and_then(|()| open.sides[array.0].check_parts(parts.iter().map(|part| part.len())));
        if job.processes() == 1 {
            checked.clone()?;
        }
        open.get(job, array.0, wanted, deadline, checked, parts)
    }

    /// Takes part in a [`get`](Self::get) of all processes that this one cannot make, as it was called wrongly: all get an error that says why,
    /// and no step is taken. Also before [`connect`](Self::connect), which then fails.
    pub fn refuse(&mut self, why: Error) -> Result<()> {
        let (job, deadline) = (&self.job, self.options.deadline);
        match &mut self.open {
            None => job.agree(Err(why), deadline),
            Some(open) => match job.processes() {
                1 => Err(why),
                _ => open.next_step(job, None, deadline, Some(&why)).map(drop),
            },
        }
    }

    /// Tells the producer that no more steps are wanted.
    pub fn leave(self) {
        if let Some(open) = self.open {
            let complete = open.ended.iter().all(|&ended| ended);
            open.leave(&Text::Leave { complete });
        }
    }

    /// Tells the producer that this job cannot go on, and why: its next call fails and says so, where it would otherwise know only that the
    /// connection was closed. One process alone may call this.
    pub fn leave_because(self, why: &str) {
        if let Some(open) = self.open {
            open.leave(&Text::bye(why));
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

impl Connected {
    fn new(job: &Job, options: &Options, arrays: &[Wanted], meeting: &Meeting) -> Result<Self> {
        let began = Instant::now();
        let end = began + options.deadline;
        let wait = options.deadline;
        let arriving = |wanted: &Wanted| {
            let (element, depth) = (wanted.element.bytes(), wanted.queue.depth);
            Arriving { element, depth, ..Arriving::default() }
        };
        let mut arrivals = Arrivals::default();
        arrivals.arrays = arrays.iter().map(arriving).collect();
        // A process that cannot begin must not leave the others alone.
        let io = job.agree(begin(arrivals, meeting, options.deadline), options.deadline)?;
        let own_ranks = ranks(arrays.iter().map(|wanted| &wanted.layout));
        let process = |process: usize| Process {
            address: String::new(),
            local: None,
            ranks: job.hosted(process, own_ranks),
        };
        let hello = Hello {
            byte_order: BYTE_ORDER.into(),
            processes: (0..job.processes()).map(process).collect(),
            arrays: arrays.to_vec(),
            few_connections: options.max_connections.is_some(),
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
            let shared = options.shared_memory && options.max_connections.is_none();
            let needs = needs(&sides, arrays, &coupled.welcome.processes, shared);
            let most = if coupled.by_sockets() { options.max_connections } else { None };
            let redialling = Redialling::new(job, &coupled, needs.len(), most)?;
            if redialling.is_none() {
                connect_all(&io, job, &coupled, meeting, &needs, end)?;
            }
            Ok((sides, redialling))
        });
        let (sides, redialling) = job.agree(connected, wait).inspect_err(|error| {
            io.shared().lock().leave(&Text::bye(&error.to_string()));
            io.shared().wake();
        })?;
        let (connections, shared_connections) = {
            let mut arrivals = io.shared().lock();
            for (array, (side, wanted)) in sides.iter().zip(arrays).enumerate() {
                let messages =
                    side.ranks.iter().flat_map(|rank| rank.messages.iter().map(move |one| (rank.rank, one)));
                let expected: HashMap<(u32, u32), u64> =
                    messages.map(|(rank, one)| ((one.peer as u32, rank as u32), one.bytes)).collect();
                let order = side.ranks.iter().flat_map(|rank| rank.messages.iter().map(|one| one.peer));
                let arriving = &mut arrivals.arrays[array];
                arriving.comes_from(order, |rank| process_of(&coupled.welcome.processes, rank));
                arriving.expected = expected;
                if !wanted.queue.drops && redialling.is_none() {
                    (0..u64::from(wanted.queue.depth)).for_each(|sequence| arrivals.want(array, sequence));
                }
            }
            arrivals.tell(&Text::Ready);
            (arrivals.data.len() + usize::from(arrivals.control.is_some()), arrivals.shared_count())
        };
        io.shared().wake();
        let seconds = began.elapsed().as_secs_f64();
        let setup = Setup { seconds, planning_seconds, bytes, connections, shared_connections };
        let (next, ended) = (vec![0; arrays.len()], vec![false; arrays.len()]);
        Ok(Self { io, sides, redialling, next, ended, setup })
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
        let wait = deadline;
        let next = self.next_step(job, Some((array, wanted)), deadline, checked.as_ref().err())?;
        let announced = match next {
            Some(Next::Step(announced)) => announced,
            Some(Next::End) => {
                self.ended[array] = true;
                return Ok(None);
            }
            Some(Next::Error(why)) => return Err(partner(why)),
            None => return Err(Error::new(ErrorKind::Failed, "the leader cannot be understood")),
        };
        // What was announced has time to come: the wait for its announcement does not count.
        let end = Instant::now() + deadline;
        let sequence = announced.sequence;
        if sequence < self.next[array] || sequence > u64::MAX / 2 {
            return Err(partner("the producer announced a step that it had announced before"));
        }
        if wanted.queue.drops && self.redialling.is_none() {
            let mut arrivals = self.io.shared().lock();
            if !arrivals.arrays[array].steps.contains_key(&sequence) {
                arrivals.want(array, sequence);
            }
            drop(arrivals);
            self.io.shared().wake();
        }
        let Self { io, sides, redialling, .. } = self;
        let redialling = redialling.as_ref();
        let mut receiving = Receiving {
            io,
            array,
            wanted,
            announced: &announced,
            deadline,
            redialling,
            early: false,
            once: false,
        };
        let began = checked.and_then(|()| {
            let ranks = sides[array].ranks.iter_mut().zip(parts);
            ranks.map(|(rank, part)| rank.unpack(part)).collect::<Result<Vec<_>>>()
        });
        // Where whole steps are wanted, all of it must be there, on all processes, before anything is written.
        let came = began.and_then(|mut ranks| receiving.receive(&mut ranks, end).map(|()| ranks));
        let once = receiving.once;
        let mut ranks = match job.agree(came, wait) {
            Ok(ranks) => ranks,
            Err(error) => {
                let mut arrivals = io.shared().lock();
                if once {
                    let why = format!("an earlier step did not come whole, so there are no more: {error}");
                    arrivals.torn.get_or_insert(why);
                }
                if job.leads() {
                    // Still to be taken.
                    arrivals.arrays[array].announced.push_front(announced);
                }
                return Err(error);
            }
        };
        let frames = io.shared().lock().take(array, sequence);
        let mut unpacked = Ok(());
        for frame in frames {
            unpacked = unpacked.and_then(|()| unpack(&mut ranks, &frame));
            io.shared().lock().give_back(frame);
        }
        drop(ranks);
        let dropped = sequence - self.next[array];
        self.next[array] = sequence + 1;
        {
            let mut arrivals = self.io.shared().lock();
            if !wanted.queue.drops && self.redialling.is_none() {
                arrivals.want(array, sequence + u64::from(wanted.queue.depth));
            }
            if !wanted.queue.drops && wanted.is_empty() && job.leads() {
                arrivals.tell(&Text::Next { array: array as u32 });
            }
        }
        self.io.shared().wake();
        unpacked?;
        Ok(Some(StepInfo { number: announced.number, header: announced.header, dropped }))
    }

    /// The next step of an array, which the leader knows: what it says, on all processes. One that was called `wrong`ly must not leave the others
    /// alone, nor with a step that only they have taken.
    fn next_step(
        &self,
        job: &Job,
        asked: Option<(usize, &Wanted)>,
        deadline: Duration,
        wrong: Option<&Error>,
    ) -> Result<Option<Next>> {
        let end = Instant::now() + deadline;
        let next =
            asked.filter(|_| job.leads()).map(|(array, wanted)| self.announced(array, wanted, end, deadline));
        if job.processes() == 1 {
            return Ok(next);
        }
        let wrong = wrong.map(|error| (error.kind().code() as u32, error.to_string()));
        let mine = serde_json::to_vec(&(&next, wrong)).expect("texts and numbers");
        let (mut said, mut outcome) = (None, Ok(()));
        for (process, text) in job.gather(&mine, deadline)?.iter().enumerate() {
            type Said = (Option<Next>, Option<(u32, String)>);
            let Ok((next, wrong)) = serde_json::from_slice::<Said>(text) else { continue };
            said = said.or(next);
            if let Some((kind, why)) = wrong {
                outcome = outcome.and_then(|()| Err(error_of(process, kind, &why)));
            }
        }
        if let (Err(_), Some(Next::Step(announced)), Some((array, _))) = (&outcome, next, asked) {
            // Still to be taken.
            self.io.shared().lock().arrays[array].announced.push_front(announced);
        }
        outcome.map(|()| said)
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
            if let Some(why) = &arrivals.torn {
                return Some(Next::Error(why.clone()));
            }
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

    fn leave(self, text: &Text) {
        self.io.shared().lock().leave(text);
        self.io.shared().wake();
        // So that the last words are sent.
        let end = Instant::now() + Duration::from_secs(1);
        self.io.shared().wait(end, |arrivals| arrivals.is_silent().then_some(()));
    }
}
