//! `reshard couple`: both sides of a coupling, to try one out. The producer puts steps whose elements are a function of index and
//! step; the consumer verifies every one.
//!
//! Without a launcher one process hosts all ranks of its layout. Under `mpirun` every rank is a process; rank 0 reports.

use crate::args::{self, CoupleRole};
use crate::failure::Failure;
use crate::json;
use crate::run::progress::Progress;
use crate::run::request::human;
use crate::run::values::Values;
use crate::run::{Times, array, end_job, failed};
use crate::screen::{Screen, counted};
use crate::words::{seconds, type_name};
use reshard::memory::Memory;
use reshard::{Error, ErrorKind, Layout};
use reshard_couple::{
    ArrayId, ElementType, Job, Meeting, Options, Publisher, Subscriber, Subscription, World,
};
use reshard_draw::time;
use reshard_mpi::mpi::launched;
use reshard_mpi::{Mpi, Session};
use reshard_plan::notation::{parse_pattern, parse_shape};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::Write;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct CoupleAnswer {
    role: &'static str,
    name: String,
    via: &'static str,
    layout: String,
    shape: Vec<u64>,
    #[serde(rename = "type")]
    kind: String,
    ranks: u64,
    steps: u64,
    /// For consumers that drop steps.
    dropped: u64,
    /// Of all steps.
    bytes: u64,
    setup_seconds: f64,
    step_seconds: Times,
    verified: bool,
}

/// What was asked for.
struct CoupleRequest<'a> {
    args: &'a args::CoupleJob,
    layout: Layout,
    shape: Vec<u64>,
    element: ElementType,
    place: Place,
    options: Options,
}

/// Where the two jobs meet, and so what carries the data.
enum Place {
    Tcp(Meeting),
    /// One launch of both.
    World,
    /// Two launches, which MPI joins; this is the meeting file.
    Launches(String),
}

/// The parts of this process, one after the other.
struct Parts {
    memory: Memory<u8>,
    spans: Vec<usize>,
    /// This rank's part alone.
    rank: Option<u64>,
    threads: usize,
}

/// What came of a coupling.
struct Outcome {
    steps: u64,
    dropped: u64,
    setup_seconds: f64,
    times: Vec<f64>,
    /// Something went through shared memory.
    shared: bool,
    /// This rank speaks for its job.
    leads: bool,
}

/// Why a coupling ended, and whether all ranks of this job know it.
struct Stopped {
    failure: Failure,
    all: bool,
    /// This rank speaks for them.
    leads: bool,
}

impl From<Failure> for Stopped {
    /// What one rank noticed.
    fn from(failure: Failure) -> Self {
        Self { failure, all: false, leads: true }
    }
}

/// What the library says. What the other job did, all ranks are told.
fn stopped(error: Error) -> Stopped {
    Stopped { all: error.kind() == ErrorKind::Partner, leads: true, failure: failed(error) }
}

pub fn run(args: &args::Couple) -> Result<(), Failure> {
    let (role, args) = match &args.role {
        CoupleRole::Produce(args) => ("producer", args),
        CoupleRole::Consume(args) => ("consumer", args),
    };
    let request = CoupleRequest::read(args, role)?;
    let session = match launched() {
        Some(_) => Some(Mpi::load(args.mpi.as_deref()).and_then(Mpi::init).map_err(failed)?),
        None => None,
    };
    let outcome = request.run(role, session.as_ref());
    let outcome = match (outcome, &session) {
        (Ok(outcome), _) => outcome,
        (Err(stopped), None) => return Err(stopped.failure),
        // What all ranks were told is said once.
        (Err(Stopped { failure, all: true, leads }), Some(_)) => {
            return Err(if leads { failure.reported() } else { failure.silent() });
        }
        (Err(stopped), Some(session)) => end_job(session, stopped.failure),
    };
    if !outcome.leads {
        return Ok(());
    }
    let ranks = request.layout.distribution().grid().size();
    let bytes = request
        .layout
        .distribution()
        .elems()
        .saturating_mul(request.element.bytes())
        .saturating_mul(outcome.steps);
    let answer = CoupleAnswer {
        role,
        name: args.name.clone(),
        via: match (&request.place, outcome.shared) {
            (Place::Tcp(_), true) => "shared memory",
            (Place::Tcp(_), false) => "tcp",
            _ => "mpi",
        },
        layout: args.layout.clone(),
        shape: request.shape.clone(),
        kind: request.element.to_string(),
        ranks,
        steps: outcome.steps,
        dropped: outcome.dropped,
        bytes,
        setup_seconds: outcome.setup_seconds,
        step_seconds: Times::of(outcome.times),
        verified: true,
    };
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &answer)?;
    } else {
        show(&mut screen, &answer)?;
    }
    Ok(screen.out.flush()?)
}

impl<'a> CoupleRequest<'a> {
    fn read(args: &'a args::CoupleJob, role: &str) -> Result<Self, Failure> {
        let (pattern, order) = parse_pattern(&args.layout).map_err(Failure::of_flag("--layout"))?;
        let shape = parse_shape(&args.shape).map_err(Failure::of_flag("--shape"))?;
        let distribution = pattern.over(&shape).map_err(Failure::of_flag("--shape"))?;
        let layout = Layout::new(distribution, order.unwrap_or_default());
        let element: ElementType = type_name(&args.kind).parse().map_err(Failure::of_flag("--type"))?;
        let place = Place::read(args)?;
        if args.steps == 0 {
            return Err(Failure::usage("--steps 0 was given; give at least 1"));
        }
        let for_others = [
            ("consumer", "--bind", args.bind.is_some()),
            ("consumer", "--consumers", args.consumers.is_some()),
            ("producer", "--depth", args.depth.is_some()),
            ("producer", "--connections", args.connections.is_some()),
            ("producer", "--drop-oldest", args.drop_oldest),
        ];
        if let Some((_, flag, _)) = for_others.iter().find(|(of, _, given)| *given && *of == role) {
            return Err(Failure::usage(&format!("{flag} was given to a {role}; give it to the other side")));
        }
        let mut options = Options::default().with_deadline(duration(&args.deadline)?);
        options = options.with_shared_memory(args.via != "tcp");
        if let Some(bind) = &args.bind {
            let bind = bind.parse().map_err(|_| {
                Failure::usage(&format!(
                    "--bind {bind} was given; it is an address and a port, as 0.0.0.0:0 or [::]:0"
                ))
            })?;
            options = options.with_bind(bind);
        }
        options = options.with_consumers(args.consumers.unwrap_or(1));
        if let Some(most) = args.connections {
            if most == 0 {
                return Err(Failure::usage("--connections 0 was given; give at least 1"));
            }
            options = options.with_connections(most);
        }
        Ok(Self { args, layout, shape, element, place, options })
    }

    fn run(&self, role: &str, session: Option<&Session>) -> Result<Outcome, Stopped> {
        let (job, meeting) = self.meet(role, session)?;
        let rank = session.map(|_| job.process() as u64);
        let mut parts = Parts::new(&self.layout, self.element, rank)?;
        let bytes = (parts.memory.len() as u64).saturating_mul(self.args.steps);
        let mut progress = Progress::new(!self.args.json, bytes);
        let leads = rank.is_none_or(|rank| rank == 0);
        let outcome = match role {
            "producer" => self.produce(job, &meeting, &mut parts, &mut progress),
            _ => self.consume(job, &meeting, &mut parts, &mut progress),
        };
        outcome.map(|outcome| Outcome { leads, ..outcome }).map_err(|stopped| Stopped { leads, ..stopped })
    }

    /// Fails if a job has too few processes.
    fn check_size(&self, job: &Job) -> Result<(), Stopped> {
        let (size, needed) = (job.processes() as u64, self.layout.distribution().grid().size());
        if size >= needed {
            return Ok(());
        }
        let failure = Failure::usage(&format!(
            "--layout {} has {needed} ranks, and the job {size}; start {needed}",
            self.args.layout
        ));
        Err(Stopped { failure, all: true, leads: job.process() == 0 })
    }

    /// The job of this process, and where it meets the other.
    fn meet(&self, role: &str, session: Option<&Session>) -> Result<(Job, Meeting), Stopped> {
        let Some(session) = session else {
            return match &self.place {
                Place::Tcp(meeting) => Ok((Job::hosting_all(), meeting.clone())),
                _ => Err(Failure::usage("--via mpi was given without a launcher").into()),
            };
        };
        let (all, deadline) = (session.world(), duration(&self.args.deadline)?);
        let other = if role == "producer" { "consumer" } else { "producer" };
        if let Place::Tcp(meeting) = &self.place {
            let job = Job::of(all, deadline).map_err(stopped)?;
            return self.check_size(&job).map(|()| (job, meeting.clone()));
        }
        let mut world = World::split(all, role, deadline).map_err(stopped)?;
        self.check_size(&world.job())?;
        // Both may have been started in one launch all the same.
        if let Place::Launches(path) = &self.place
            && !world.has(other)
        {
            let joined = match role {
                "producer" => World::accept(all, path, deadline),
                _ => World::connect(all, path, deadline),
            };
            // All ranks were told.
            let told = |error| Stopped { failure: failed(error), all: true, leads: all.rank() == 0 };
            world = joined.map_err(told)?;
        }
        Ok((world.job(), Meeting::in_world(&world, other)))
    }

    fn produce(
        &self,
        job: Job,
        meeting: &Meeting,
        parts: &mut Parts,
        progress: &mut Progress,
    ) -> Result<Outcome, Stopped> {
        let steps = self.args.steps;
        let began = Instant::now();
        remove_files_on_signals()
            .map_err(|error| Failure::failed(format!("signals cannot be waited for: {error}")))?;
        let mut publisher = Publisher::new(job, self.options.clone());
        let array = publisher.publish(&self.args.name, &self.layout, self.element).map_err(stopped)?;
        publisher.open(meeting).map_err(stopped)?;
        publisher.wait_for(self.args.consumers.unwrap_or(1)).map_err(stopped)?;
        let setup_seconds = began.elapsed().as_secs_f64();
        let shared = publisher.shares_memory();
        let mut times = Vec::new();
        for step in 0..steps {
            progress.at(step as f64 / steps as f64, &format!("step {}/{steps}", step + 1));
            if let Some(values) = parts.values(&self.layout, self.element, step)? {
                values.fill(&mut parts.memory, parts.threads);
            }
            let began = Instant::now();
            publisher.put_bytes(array, step, b"", &parts.given()).map_err(stopped)?;
            times.push(began.elapsed().as_secs_f64().max(1e-9));
        }
        let (complete, wanted) = (publisher.finish().map_err(stopped)?, self.args.consumers.unwrap_or(1));
        if complete < wanted {
            let failure = Failure::failed(format!(
                "{} of {} left before the last step",
                wanted - complete,
                counted(wanted as u64, "consumer")
            ));
            return Err(Stopped { failure, all: true, leads: true });
        }
        Ok(Outcome { steps, dropped: 0, setup_seconds, times, shared, leads: true })
    }

    fn consume(
        &self,
        job: Job,
        meeting: &Meeting,
        parts: &mut Parts,
        progress: &mut Progress,
    ) -> Result<Outcome, Stopped> {
        let expected = self.args.steps;
        let mut subscriber = Subscriber::new(job, self.options.clone());
        let mut wanted = Subscription::new(&self.args.name, &self.layout, self.element);
        if let Some(depth) = self.args.depth {
            wanted = wanted.with_depth(depth);
        }
        if self.args.drop_oldest {
            wanted = wanted.dropping_oldest();
        }
        let array: ArrayId = subscriber.subscribe_to(wanted).map_err(stopped)?;
        let setup = subscriber.connect(meeting).map_err(stopped)?;
        let (setup_seconds, shared) = (setup.seconds, setup.shared_connections > 0);
        let (mut times, mut dropped, mut steps) = (Vec::new(), 0, 0);
        loop {
            progress.at(
                (steps + dropped) as f64 / expected as f64,
                &format!("step {}/{expected}", steps + dropped + 1),
            );
            let began = Instant::now();
            let Some(info) = subscriber.get_bytes(array, &mut parts.taken()).map_err(stopped)? else { break };
            times.push(began.elapsed().as_secs_f64().max(1e-9));
            dropped += info.dropped;
            if info.number != steps + dropped {
                let why = format!("step {} came after {}", info.number, counted(steps, "step"));
                return Err(leave(subscriber, why));
            }
            steps += 1;
            let wrong = match parts.values(&self.layout, self.element, info.number)? {
                Some(values) => values.check(&parts.memory, parts.threads).map_err(stopped)?,
                None => None,
            };
            if let Some(wrong) = wrong {
                return Err(leave(subscriber, format!("step {}: {wrong}", info.number)));
            }
        }
        if steps + dropped != expected {
            let put = counted(steps + dropped, "step");
            let why = format!(
                "the producer ended after {put}, and --steps is {expected}; give both sides the same"
            );
            return Err(leave(subscriber, why));
        }
        subscriber.leave();
        Ok(Outcome { steps, dropped, setup_seconds, times, shared, leads: true })
    }
}

/// What one rank of a consumer noticed: the producer is told as well.
fn leave(subscriber: Subscriber, why: String) -> Stopped {
    subscriber.leave_because(&why);
    Failure::failed(why).into()
}

impl Place {
    fn read(args: &args::CoupleJob) -> Result<Self, Failure> {
        let launched = launched().is_some();
        match (args.via.as_str(), &args.meet, &args.at) {
            ("tcp" | "auto", Some(path), _) => Ok(Self::Tcp(Meeting::file(path))),
            ("tcp" | "auto", None, Some(address)) => {
                Ok(Self::Tcp(Meeting::at(address).map_err(Failure::of_flag("--at"))?))
            }
            ("mpi", ..) if !launched => Err(Failure::usage(
                "--via mpi was given without a launcher; start both sides in one launch, as in mpirun -n 4 reshard couple produce ... : -n 3 \
                 reshard couple consume ..., or each in its own and give both --meet FILE",
            )),
            ("mpi", Some(_), _) if args.consumers.is_some_and(|consumers| consumers > 1) => {
                Err(Failure::usage(
                    "--consumers was given with --via mpi and --meet, and MPI joins one consumer; give --via tcp",
                ))
            }
            ("mpi", Some(path), _) => Ok(Self::Launches(path.clone())),
            ("mpi", None, Some(_)) => Err(Failure::usage(
                "--at was given with --via mpi, which knows no addresses; give both --meet FILE, or --via tcp",
            )),
            ("mpi", None, None) => Ok(Self::World),
            ("auto", None, None) if launched => Ok(Self::World),
            ("tcp" | "auto", None, None) => Err(Failure::usage(
                "the jobs must find each other; give both --meet FILE, or both --at HOST:PORT",
            )),
            (other, ..) => Err(Failure::usage(&format!("--via {other} was given; it is tcp, mpi or auto"))),
        }
    }
}

impl Parts {
    fn new(layout: &Layout, element: ElementType, rank: Option<u64>) -> Result<Self, Failure> {
        let mut parts = Self {
            memory: array(0)?,
            spans: Vec::new(),
            rank,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        if let Some(values) = parts.values(layout, element, 0)? {
            parts.spans = values.spans();
        }
        parts.memory = array(parts.spans.iter().sum())?;
        Ok(parts)
    }

    fn values<'l>(
        &self,
        layout: &'l Layout,
        element: ElementType,
        step: u64,
    ) -> Result<Option<Values<'l>>, Failure> {
        let values = Values::of_step(layout, element.bytes() as usize, step)?;
        Ok(match self.rank {
            Some(rank) => values.of_rank(rank),
            None => Some(values),
        })
    }

    fn given(&self) -> Vec<&[u8]> {
        let mut rest = &self.memory[..];
        let part = |&span: &usize| {
            let (part, after) = rest.split_at(span);
            rest = after;
            part
        };
        self.spans.iter().map(part).collect()
    }

    fn taken(&mut self) -> Vec<&mut [u8]> {
        let mut rest = &mut self.memory[..];
        let part = |&span: &usize| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(span);
            rest = after;
            part
        };
        self.spans.iter().map(part).collect()
    }
}

/// Starts a thread that removes the meeting file when a signal ends the program, as the next consumer would wait at its address. A signal that
/// the program ignores, as under `nohup`, stays ignored.
fn remove_files_on_signals() -> std::io::Result<()> {
    let ignored = ignored_signals();
    let ending = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(ending)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            reshard_couple::remove_meeting_files();
            // Ends the program as the signal does.
            let _ = emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("reshard-signals".into()).spawn(wait).map(drop)
}

/// The signals that this process ignores, a bit for each; none where the system does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Reads a time: a number with ms, s or m.
fn duration(text: &str) -> Result<Duration, Failure> {
    let seconds = seconds(text).ok();
    match seconds.filter(|seconds| (0.001..=1e6).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err(Failure::usage(&format!(
            "--deadline {text} was given; it is a time such as 500ms, 10s or 2m, and at least a millisecond"
        ))),
    }
}

fn show(screen: &mut Screen, answer: &CoupleAnswer) -> Result<(), Failure> {
    let (verb, done) = match answer.role {
        "producer" => ("Put", "taken and verified by the consumer"),
        _ => ("Got", "verified, every element"),
    };
    writeln!(
        screen.out,
        "{verb} {} of '{}' ({}) in {}, over {}",
        counted(answer.steps, "step"),
        answer.name,
        human(u128::from(answer.bytes)),
        counted(answer.ranks, "rank"),
        answer.via
    )?;
    if answer.dropped > 0 {
        writeln!(screen.out, "{} dropped", counted(answer.dropped, "step"))?;
    }
    writeln!(
        screen.out,
        "set up in {}; a step took {} (best {}); {done}",
        time(answer.setup_seconds),
        time(answer.step_seconds.median),
        time(answer.step_seconds.best)
    )?;
    Ok(())
}
