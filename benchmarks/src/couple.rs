//! Couplings: what setting one up takes for partners of any size, what a step takes by every way beside the engine inside one job and plain
//! sockets, how much of it is hidden behind a computation, and what strangers at the door cost.
//!
//! For the set-up (`couple/sides.rs`) both jobs are threads of this process, each hosting all its ranks. Steps are timed by the example `steps` of
//! `reshard-couple`, in one launch of M + N processes.

mod sides;

use crate::chart::{Chart, Line};
use crate::machine::{Failure, Machine, keep, median};

use reshard::Layout;
use reshard_couple::{ArrayId, ElementType, Job, Meeting, Options, Publisher, Setup, Subscriber};
use serde::{Deserialize, Serialize};
use sides::OneSide;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Processes, shape, and the layouts of producer and consumer.
const STEPS: [(&str, [&str; 3]); 6] = [
    ("2", ["1024x512", "1x1/64x64", "1x1/50x50"]),
    ("2", ["4096x2048", "1x1/64x64", "1x1/50x50"]),
    ("7", ["1024x512", "2x2/64x64", "3x1/50x50"]),
    ("7", ["4096x2048", "2x2/64x64", "3x1/50x50"]),
    ("8", ["4096x2048", "2x2/2048x1024", "4x1/1024x2048"]),
    ("5", ["512x128x128", "1x2x2/512x16x16", "1x1x1/512x128x128"]),
];

/// Strangers that knock while a coupling runs, and steps of 4 MiB in each of so many turns.
const STRANGERS: usize = 1000;
const STRANGE_STEPS: u64 = 200;
const TURNS: usize = 5;

/// Seconds of a step by each way.
#[derive(Serialize, Deserialize)]
struct Stepped {
    #[serde(default)]
    processes: String,
    #[serde(default)]
    shape: String,
    from: String,
    to: String,
    bytes: u64,
    private: f64,
    #[serde(rename = "shared memory")]
    shared: f64,
    tcp: f64,
    sockets: f64,
    mpi: f64,
}

/// Seconds of a computation alone, and with a step of 64 MiB that takes a tenth of it.
#[derive(Serialize, Deserialize)]
struct Overlapped {
    way: String,
    step: f64,
    alone: f64,
    coupled: f64,
}

/// Median seconds of a step, and kilobytes of memory, without strangers and while they knock.
#[derive(Serialize)]
struct Strange {
    strangers: usize,
    quiet_seconds: f64,
    besieged_seconds: f64,
    quiet_kilobytes: u64,
    besieged_kilobytes: u64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    sides: Vec<OneSide>,
    steps: Vec<Stepped>,
    overlaps: Vec<Overlapped>,
    strange: Strange,
}

/// `example` is the path of the example `steps`.
pub fn run(example: &str) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("reshard-bench-couple-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    eprintln!("strangers at the door");
    let strange = strange(&folder)?;
    let sides = sides::measure(&folder)?;
    let mut steps = Vec::new();
    for (processes, case) in STEPS {
        eprintln!("{processes} processes, {}", case.join(" "));
        let said = launched(example, processes, &case)?;
        let found: Stepped = serde_json::from_str(said.trim())?;
        steps.push(Stepped { processes: processes.into(), shape: case[0].into(), ..found });
    }
    eprintln!("overlap");
    let said = launched(example, "2", &["overlap", "4096x2048"])?;
    let overlaps = said.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    std::fs::remove_dir_all(&folder)?;
    let (machine, command) = (Machine::here(), "cargo xtask bench couple");
    let results = Results { benchmark: "couple", command, machine, sides, steps, overlaps, strange };
    std::fs::write("docs/couple-speed.svg", chart(&results).svg())?;
    keep("couple", &results, &report(&results)?)
}

fn launched(example: &str, processes: &str, arguments: &[&str]) -> Result<String, Failure> {
    let mut command = std::process::Command::new("mpirun.openmpi");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", processes, example]).args(arguments);
    let output = command.output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

type Sent<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An array of one element, with which a step costs its latency.
const ONE: &str = "1x1/1x1 of 1x1";

/// Both jobs: the producer's part runs beside the consumer's. They share the array of these layouts, and one of one element.
fn both<T: Send>(
    meeting: &Path,
    layouts: &[Layout; 2],
    produce: impl Fn(&mut Publisher, [ArrayId; 2]) -> Sent<()> + Send,
    consume: impl FnOnce(&mut Subscriber, [ArrayId; 2], Setup) -> Sent<T>,
) -> Result<T, Failure> {
    let meeting = Meeting::file(meeting);
    let [from, to] = layouts;
    let one: &Layout = &ONE.parse()?;
    let element = ElementType::of::<f64>;
    std::thread::scope(|scope| {
        let there = &meeting;
        let producer = scope.spawn(move || -> Sent<()> {
            let mut publisher = Publisher::new(Job::hosting_all(), Options::default());
            let arrays =
                [publisher.publish("t", from, element())?, publisher.publish("one", one, element())?];
            publisher.open(there)?;
            publisher.wait_for(1)?;
            produce(&mut publisher, arrays)?;
            publisher.finish()?;
            Ok(())
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), Options::default());
        let arrays =
            [subscriber.subscribe("t", to, element())?, subscriber.subscribe("one", one, element())?];
        let setup = subscriber.connect(&meeting)?;
        let value = consume(&mut subscriber, arrays, setup).map_err(|error| error.to_string())?;
        subscriber.leave();
        let produced = producer.join().map_err(|_| "the producer panicked")?;
        produced.map_err(|error| error.to_string())?;
        Ok(value)
    })
}

/// The paper's curves: what a partner of another size costs each side.
fn chart(results: &Results) -> Chart {
    let panel = |role: &str| {
        let line = |name: &str, seconds: fn(&OneSide) -> f64| {
            let side = results.sides.iter().filter(|one| one.role == role);
            let points = side.map(|one| (one.partner_ranks as f64, 1e6 * seconds(one))).collect();
            Line { name: name.to_string(), joined: true, points }
        };
        vec![
            line("buffering", |one| one.buffering_seconds),
            line("generating", |one| one.generating_seconds),
            line("of that, ASPEN", |one| one.intersecting_seconds),
            line("latency", |one| one.latency_seconds),
        ]
    };
    Chart {
        title: "One of 4 ranks, 2048 x 2048 f64, and a partner of P ranks".to_string(),
        panels: vec![
            ("it produces, a consumer of P".to_string(), panel("producer")),
            ("it consumes, a producer of P".to_string(), panel("consumer")),
        ],
        x_label: "P, ranks of the partner".to_string(),
        y_label: "microseconds".to_string(),
    }
}

/// Steps in turns, without strangers and while they knock: some say nothing, some garbage.
fn strange(folder: &Path) -> Result<Strange, Failure> {
    let layouts: [Layout; 2] = ["2x2/64x64 of 1024x512".parse()?, "3x1/50x50 of 1024x512".parse()?];
    let steps = 2 * TURNS as u64 * STRANGE_STEPS;
    let (address, found) = std::sync::mpsc::channel::<String>();
    let produce = |publisher: &mut Publisher, [array, _]: [ArrayId; 2]| -> Sent<()> {
        address.send(publisher.address().unwrap_or_default().to_string())?;
        let parts = layouts[0].parts(|index| index[0] as f64)?;
        (0..steps).try_for_each(|number| Ok(publisher.put(array, number, b"", &parts)?))
    };
    both(&folder.join("strange.meet"), &layouts, produce, |subscriber, [array, _], _| {
        let (mut parts, address) = (layouts[1].parts(|_| 0.0)?, found.recv()?);
        let (mut times, mut memory, mut next) = ([Vec::new(), Vec::new()], [0, 0], 0);
        for _ in 0..TURNS {
            for besieged in [0, 1] {
                let (strangers, over) = (besieged * STRANGERS / TURNS, AtomicBool::new(false));
                std::thread::scope(|scope| -> Sent<()> {
                    scope.spawn(|| besiege(&address, strangers, &over));
                    for _ in 0..STRANGE_STEPS {
                        let began = Instant::now();
                        let step = subscriber.get(array, &mut parts);
                        times[besieged].push(began.elapsed().as_secs_f64());
                        let number = step.map(|step| step.map(|step| step.number));
                        if number != Ok(Some(next)) {
                            over.store(true, Ordering::Relaxed);
                            return Err(format!("{number:?} came instead of step {next}").into());
                        }
                        next += 1;
                    }
                    over.store(true, Ordering::Relaxed);
                    Ok(())
                })?;
                memory[besieged] = memory[besieged].max(kilobytes());
            }
        }
        let middle = |times: &[f64]| median(times.to_vec()).unwrap_or(0.0);
        Ok(Strange {
            strangers: STRANGERS,
            quiet_seconds: middle(&times[0]),
            besieged_seconds: middle(&times[1]),
            quiet_kilobytes: memory[0],
            besieged_kilobytes: memory[1],
        })
    })
}

/// So many strangers, one after the other, each of whom stays while the next ones come.
fn besiege(address: &str, strangers: usize, over: &AtomicBool) {
    let mut open = std::collections::VecDeque::new();
    for number in 0..strangers {
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        if over.load(Ordering::Relaxed) {
            return;
        }
        if number % 2 == 0 {
            let _ = stream.write_all(&[7; 4096]);
        }
        open.push_back(stream);
        if open.len() > 100 {
            open.pop_front();
        }
    }
}

/// Memory of this process.
fn kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn report(results: &Results) -> Result<String, Failure> {
    let mut text = String::new();
    writeln!(text, "# Couplings\n")?;
    writeln!(text, "Written by `{}`. {}. Medians.\n", results.command, results.machine)?;
    writeln!(text, "## Setting up\n")?;
    writeln!(
        text,
        "Both jobs in one process, each hosting all its ranks. The side measured has 4 ranks, `2x2/64x64`, its partner GxG ranks with blocks of 8 x 8, an array of 2048 x 2048 \
         f64. What the ASPEN paper asks to be told apart, for one rank: *generating* is what it takes to plan, and of that the intersections that ASPEN finds. Both grow with the messages that the rank has, and not with the ranks that its partner has. *Buffering* is packing (of a producer) or unpacking (of a consumer) one step of the array. *Latency* is a step of one \
         element: what `put` takes, or from the beginning of `put` until `get` has it, in a consumer that waits. Set-up is that of the consumer's whole job, which plans for all its ranks; the bytes are those that the leaders \
         exchange, also divided by all ranks of both.\n\n![Generating, buffering and latency](couple-speed.svg)\n"
    )?;
    writeln!(
        text,
        "| the side measured | ranks of the partner | messages of a rank | ASPEN, us | generating, us | buffering, us | latency, us | set-up, ms | bytes between leaders | a rank |\n|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for one in &results.sides {
        writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.0} | {:.0} | {:.0} | {:.1} | {} | {:.1} |",
            one.role,
            one.partner_ranks,
            one.messages,
            1e6 * one.intersecting_seconds,
            1e6 * one.generating_seconds,
            1e6 * one.buffering_seconds,
            1e6 * one.latency_seconds,
            1e3 * one.setup_seconds,
            one.handshake_bytes,
            one.bytes_per_rank()
        )?;
    }
    writeln!(text, "\n## Steps\n")?;
    writeln!(
        text,
        "One launch of M + N processes of Open MPI; batches of steps by each way in turns, medians of 15; milliseconds a step. `private` is the same layouts moved inside one job of \
         M + N ranks, which a coupling through shared memory is compared with; `sockets` the same bytes over as many plain sockets, neither packed nor checked nor unpacked, which \
         TCP is compared with.\n"
    )?;
    writeln!(
        text,
        "| processes | shape | from | to | MiB | private | shared memory | of private | sockets | tcp | of the sockets' speed | mpi |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for one in &results.steps {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} % | {:.2} |",
            one.processes,
            one.shape,
            one.from,
            one.to,
            one.bytes >> 20,
            1e3 * one.private,
            1e3 * one.shared,
            one.shared / one.private,
            1e3 * one.sockets,
            1e3 * one.tcp,
            100.0 * one.sockets / one.tcp,
            1e3 * one.mpi
        )?;
    }
    writeln!(text, "\n## Behind a computation\n")?;
    writeln!(
        text,
        "One producer and one consumer, each bound to a core; a step of 64 MiB, and on both sides a computation of ten times what a step takes from `put` to the end of `get`.\n"
    )?;
    writeln!(text, "| way | step, ms | computing, ms | with steps, ms | ratio |\n|---|---|---|---|---|")?;
    for one in &results.overlaps {
        let Overlapped { way, step, alone, coupled } = one;
        writeln!(
            text,
            "| {way} | {:.2} | {:.1} | {:.1} | {:.3} |",
            1e3 * step,
            1e3 * alone,
            1e3 * coupled,
            coupled / alone
        )?;
    }
    let strange = &results.strange;
    writeln!(text, "\n## Strangers\n")?;
    writeln!(
        text,
        "{} connections that prove nothing, half of them with garbage, 100 at a time, while {} steps of 4 MiB go through (in turns with as many steps without them): no step is lost, a step takes \
         {:.3} ms instead of {:.3} (median, {:.2} times), and the process has {} kB instead of {}.",
        strange.strangers,
        TURNS as u64 * STRANGE_STEPS,
        1e3 * strange.besieged_seconds,
        1e3 * strange.quiet_seconds,
        strange.besieged_seconds / strange.quiet_seconds,
        strange.besieged_kilobytes,
        strange.quiet_kilobytes
    )?;
    Ok(text)
}
