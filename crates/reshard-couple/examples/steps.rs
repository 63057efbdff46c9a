//! A step of a coupling by every way, beside the same layouts moved inside one job, and the same bytes over as many plain sockets: all in
//! turns, in one launch of M + N processes. `cargo xtask bench couple` runs it; writes one line of JSON.
//!
//! `mpirun -n 7 steps ROWSxCOLUMNS FROM TO`, where FROM and TO are layouts such as 2x2/64x64 and 3x1/50x50. `mpirun -n 2 steps overlap
//! ROWSxCOLUMNS`: how much of a step is hidden behind a computation that takes ten times as long.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

use reshard::{Layout, Move, Plan, Result};
use reshard_couple::{ArrayId, ElementType, Job, Meeting, Options, Publisher, Subscriber, World};
use reshard_mpi::communicator::ToCommunicator;
use reshard_mpi::mpi::Reduce;
use reshard_mpi::{Comm, Mover, Mpi, MpiEngine, MpiOptions, Own};
use reshard_plan::{Problem, Traffic};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const DEADLINE: Duration = Duration::from_secs(60);

/// One way to move a step.
trait Way {
    fn step(&mut self) -> Result<()>;
}

/// Inside one job of all ranks.
struct Inside {
    engine: MpiEngine,
    from: Vec<f64>,
    to: Vec<f64>,
}

impl Way for Inside {
    fn step(&mut self) -> Result<()> {
        self.engine.run(Own::new(&self.from, &mut self.to)).map(drop)
    }
}

struct Producing {
    publisher: Publisher,
    array: ArrayId,
    part: Vec<f64>,
    number: u64,
}

impl Way for Producing {
    fn step(&mut self) -> Result<()> {
        self.number += 1;
        self.publisher.put(self.array, self.number, b"", &[&self.part])
    }
}

struct Consuming {
    subscriber: Subscriber,
    array: ArrayId,
    part: Vec<f64>,
}

impl Way for Consuming {
    fn step(&mut self) -> Result<()> {
        self.subscriber.get(self.array, &mut [&mut self.part]).map(drop)
    }
}

/// Bytes that go over a socket in each step.
struct Sockets {
    sends: bool,
    streams: Vec<(TcpStream, Vec<u8>)>,
}

impl Way for Sockets {
    fn step(&mut self) -> Result<()> {
        for (stream, bytes) in &mut self.streams {
            if self.sends { stream.write_all(bytes).unwrap() } else { stream.read_exact(bytes).unwrap() }
        }
        Ok(())
    }
}

/// The two jobs, and where this process is.
struct Jobs {
    rank: usize,
    /// Ranks of the producer.
    producers: usize,
    layouts: [Layout; 2],
}

impl Jobs {
    fn produces(&self) -> bool {
        self.rank < self.producers
    }

    fn coupled(&self, job: Job, meeting: &Meeting, shared: bool) -> Result<Box<dyn Way>> {
        let options = Options::default().with_deadline(DEADLINE).with_shared_memory(shared);
        let (side, own) = if self.produces() { (0, self.rank) } else { (1, self.rank - self.producers) };
        let layout = &self.layouts[side];
        let part = layout.filled(own as u64, |index| index[0] as f64)?;
        if self.produces() {
            let mut publisher = Publisher::new(job, options);
            let array = publisher.publish("t", layout, ElementType::of::<f64>())?;
            publisher.open(meeting)?;
            publisher.wait_for(1)?;
            return Ok(Box::new(Producing { publisher, array, part, number: 0 }));
        }
        let mut subscriber = Subscriber::new(job, options);
        let array = subscriber.subscribe("t", layout, ElementType::of::<f64>())?;
        let setup = subscriber.connect(meeting)?;
        assert!(shared || setup.shared_connections == 0);
        Ok(Box::new(Consuming { subscriber, array, part }))
    }

    fn inside(&self, world: &Comm) -> Result<Box<dyn Way>> {
        let [from, to] = &self.layouts;
        let to = to.clone().shifted(self.producers as u64)?;
        let plan = Plan::new(vec![Move::of::<f64>(from.clone(), to)?])?;
        let engine = MpiEngine::new(plan.into(), world, MpiOptions::default().with_mover(Mover::Private))?;
        let [from, to] = [engine.source_len(0), engine.target_len(0)].map(|length| vec![1.0; length]);
        Ok(Box::new(Inside { engine, from, to }))
    }

    /// As many sockets as there are messages, each with its bytes.
    fn sockets(&self, world: &Comm) -> Result<Box<dyn Way>> {
        let [from, to] = self.layouts.each_ref().map(|layout| layout.distribution().clone());
        let problem = Problem::new(from, to)?;
        let messages: Vec<_> = Traffic::new(&problem).table()?.messages().collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ports = world.to_communicator(Some(DEADLINE))?.gather_numbers(u64::from(port), Some(DEADLINE))?;
        let produces = self.produces();
        let mut streams = Vec::new();
        if produces {
            for message in messages.iter().filter(|one| one.from == self.rank as u64) {
                let port = ports[self.producers + message.to as usize] as u16;
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.write_all(&message.from.to_le_bytes()).unwrap();
                streams.push((stream, vec![1; 8 * message.elems as usize]));
            }
        } else {
            let own = (self.rank - self.producers) as u64;
            for _ in messages.iter().filter(|one| one.to == own) {
                let (mut stream, _) = listener.accept().unwrap();
                let mut from = [0; 8];
                stream.read_exact(&mut from).unwrap();
                let from = u64::from_le_bytes(from);
                let message = messages.iter().find(|one| one.from == from && one.to == own).unwrap();
                streams.push((stream, vec![0; 8 * message.elems as usize]));
            }
        }
        Ok(Box::new(Sockets { sends: produces, streams }))
    }
}

/// Seconds of a step, of the slowest process.
fn timed(world: &Comm, steps: u32, way: &mut dyn Way) -> Result<f64> {
    world.barrier()?;
    let began = Instant::now();
    for _ in 0..steps {
        way.step()?;
    }
    let mut nanoseconds = [began.elapsed().as_nanos() as u64];
    world.all_reduce(&mut nanoseconds, Reduce::Max)?;
    Ok(nanoseconds[0] as f64 * 1e-9 / f64::from(steps))
}

/// Computes for a while, on this core alone.
fn compute(rounds: u64) -> f64 {
    std::hint::black_box(
        (0..rounds).fold(1.0_f64, |value, _| std::hint::black_box(value * 1.000_000_1 + 1e-9)),
    )
}

/// Seconds of a computation alone and with a step, by shared memory and by TCP.
fn overlap(world: &Comm, jobs: &Jobs, job: &Job) -> Result<()> {
    for (name, shared) in [("shared memory", true), ("tcp", false)] {
        let mut way = jobs.coupled(job.clone(), &file(name), shared)?;
        let mut steps: Vec<f64> = (0..21).map(|_| timed(world, 1, &mut *way)).collect::<Result<_>>()?;
        steps.sort_by(f64::total_cmp);
        let step = steps[steps.len() / 2];
        let began = Instant::now();
        compute(10_000_000);
        // The same work on both sides: as much as the slower one does in ten steps.
        let mut rounds = [(10.0 * step / began.elapsed().as_secs_f64() * 1e7) as u64];
        world.all_reduce(&mut rounds, Reduce::Max)?;
        let (mut alone, mut coupled) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            alone.push(timed(world, 5, &mut Computing { rounds: rounds[0], way: None })?);
            coupled.push(timed(world, 5, &mut Computing { rounds: rounds[0], way: Some(&mut *way) })?);
        }
        if world.rank() == 0 {
            let (alone, coupled) = (middle(alone), middle(coupled));
            println!(
                "{{\"way\": \"{name}\", \"step\": {step:e}, \"alone\": {alone:e}, \"coupled\": {coupled:e}}}"
            );
        }
    }
    Ok(())
}

/// A computation, and perhaps a step after it.
struct Computing<'w> {
    rounds: u64,
    way: Option<&'w mut dyn Way>,
}

impl Way for Computing<'_> {
    fn step(&mut self) -> Result<()> {
        compute(self.rounds);
        self.way.as_mut().map_or(Ok(()), |way| way.step())
    }
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Where both jobs meet: all are children of one launcher.
fn file(way: &str) -> Meeting {
    let name = format!("reshard-steps-{}-{way}.meet", std::os::unix::process::parent_id());
    Meeting::file(std::env::temp_dir().join(name))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (overlaps, shape, from, to) = match arguments[..] {
        ["overlap", shape] => (true, shape, "1x1/64x64", "1x1/50x50"),
        [shape, from, to] => (false, shape, from, to),
        _ => panic!("give ROWSxCOLUMNS FROM TO, or overlap ROWSxCOLUMNS"),
    };
    let layouts = [format!("{from} of {shape}").parse()?, format!("{to} of {shape}").parse()?];
    let sizes = layouts.each_ref().map(|layout: &Layout| layout.distribution().grid().size() as usize);
    let session = Mpi::load(None)?.init()?;
    let world = session.world();
    assert_eq!(world.size(), sizes[0] + sizes[1], "start a process for each rank of both layouts");
    let jobs = Jobs { rank: world.rank(), producers: sizes[0], layouts };
    let own = world.split(Some(u32::from(jobs.produces())), world.rank() as u32)?.unwrap();
    let job = Job::of(&own, DEADLINE)?;
    if overlaps {
        return overlap(world, &jobs, &job);
    }
    let split = World::split(world, if jobs.produces() { "producer" } else { "consumer" }, DEADLINE)?;
    let partner = if jobs.produces() { "consumer" } else { "producer" };
    let mut ways: Vec<(&str, Box<dyn Way>)> = vec![
        ("private", jobs.inside(world)?),
        ("shared memory", jobs.coupled(job.clone(), &file("shared"), true)?),
        ("tcp", jobs.coupled(job, &file("tcp"), false)?),
        ("sockets", jobs.sockets(world)?),
        ("mpi", jobs.coupled(split.job(), &Meeting::in_world(&split, partner), true)?),
    ];
    let bytes = 8 * jobs.layouts[0].distribution().elems();
    let steps = (400_u64 << 20).checked_div(bytes).unwrap_or(1).clamp(3, 200) as u32;
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=ROUNDS {
        for ((_, way), times) in ways.iter_mut().zip(&mut times) {
            let time = timed(world, steps, &mut **way)?;
            // The first warms up.
            if round > 0 {
                times.push(time);
            }
        }
    }
    if world.rank() == 0 {
        let each: Vec<String> = ways
            .iter()
            .zip(times)
            .map(|((name, _), times)| format!("\"{name}\": {:e}", middle(times)))
            .collect();
        println!("{{\"from\": \"{from}\", \"to\": \"{to}\", \"bytes\": {bytes}, {}}}", each.join(", "));
    }
    world.barrier()
}
