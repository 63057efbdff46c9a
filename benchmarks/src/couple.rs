//! Couplings: what setting one up takes for partners of any size, and what a step takes beside plain sockets.
//!
//! Both jobs are threads of this process, each hosting all its ranks, over the loopback. For the set-up the consumer has 4 ranks and the
//! producer 4 to 1024: what the consumer's ranks plan, and what the leaders tell each other. For steps, the same bytes also go over as many
//! plain sockets, with no packing, no checksum and no queue, interleaved.

use crate::machine::{Failure, Machine, keep, median};
use reshard::Layout;
use reshard_couple::{ElementType, Job, Meeting, Options, Publisher, Setup, Subscriber};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The grids of the producer.
const GRIDS: [u64; 5] = [2, 4, 8, 16, 32];
const SETUPS: usize = 15;

/// Steps of arrays of these megabytes.
const MEGABYTES: [u64; 3] = [1, 8, 64];
const STEPS: u64 = 31;

/// Layouts of producer and consumer.
const LAYOUTS: [(&str, &str); 2] = [("2x2/64x64", "3x1/50x50"), ("2x2/2048x2048", "4x1/1024x4096")];

#[derive(Serialize)]
struct SetUp {
    producer_ranks: u64,
    setup_seconds: f64,
    /// Of one rank of the consumer.
    planning_seconds: f64,
    handshake_bytes: u64,
}

#[derive(Serialize)]
struct Stepped {
    from: &'static str,
    to: &'static str,
    bytes: u64,
    put_seconds: f64,
    /// From the beginning of `put` until `get` has returned.
    step_seconds: f64,
    socket_seconds: f64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    setups: Vec<SetUp>,
    steps: Vec<Stepped>,
}

pub fn run() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("reshard-bench-couple-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut setups = Vec::new();
    for grid in GRIDS {
        eprintln!("a producer of {} ranks", grid * grid);
        setups.push(set_up(grid, &folder)?);
    }
    let mut steps = Vec::new();
    for (from, to) in LAYOUTS {
        for megabytes in MEGABYTES {
            eprintln!("{megabytes} MiB, {from} to {to}");
            steps.push(step(from, to, megabytes, &folder)?);
        }
    }
    std::fs::remove_dir_all(&folder)?;
    let machine = Machine::here();
    let results =
        Results { benchmark: "couple", command: "cargo xtask bench couple", machine, setups, steps };
    keep("couple", &results, &report(&results)?)
}

type Sent<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Both jobs: the producer's part runs beside the consumer's.
fn both<T: Send>(
    meeting: &Path,
    layouts: &[Layout; 2],
    produce: impl Fn(&mut Publisher, reshard_couple::ArrayId) -> Sent<()> + Send,
    consume: impl FnOnce(&mut Subscriber, reshard_couple::ArrayId, Setup) -> Sent<T>,
) -> Result<T, Failure> {
    let meeting = Meeting::file(meeting);
    let [from, to] = layouts;
    std::thread::scope(|scope| {
        let there = &meeting;
        let producer = scope.spawn(move || -> Sent<()> {
            let mut publisher = Publisher::new(Job::hosting_all(), Options::default());
            let array = publisher.publish("t", from, ElementType::of::<f64>())?;
            publisher.open(there)?;
            publisher.wait_for(1)?;
            produce(&mut publisher, array)?;
            publisher.finish()?;
            Ok(())
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), Options::default());
        let array = subscriber.subscribe("t", to, ElementType::of::<f64>())?;
        let setup = subscriber.connect(&meeting)?;
        let value = consume(&mut subscriber, array, setup).map_err(|error| error.to_string())?;
        subscriber.leave();
        let produced = producer.join().map_err(|_| "the producer panicked")?;
        produced.map_err(|error| error.to_string())?;
        Ok(value)
    })
}

fn set_up(grid: u64, folder: &Path) -> Result<SetUp, Failure> {
    let layouts: [Layout; 2] =
        [format!("{grid}x{grid}/8x8 of 4096x4096").parse()?, "2x2/64x64 of 4096x4096".parse()?];
    let mut setups = Vec::new();
    for number in 0..SETUPS {
        let meeting = folder.join(format!("{grid}-{number}.meet"));
        setups.push(both(&meeting, &layouts, |_, _| Ok(()), |_, _, setup| Ok(setup))?);
    }
    let middle = |of: fn(&Setup) -> f64| median(setups.iter().map(of).collect()).unwrap_or(0.0);
    Ok(SetUp {
        producer_ranks: grid * grid,
        setup_seconds: middle(|setup| setup.seconds),
        planning_seconds: middle(|setup| setup.planning_seconds / 4.0),
        handshake_bytes: setups[0].bytes,
    })
}

fn step(from: &'static str, to: &'static str, megabytes: u64, folder: &Path) -> Result<Stepped, Failure> {
    // Columns of 4096 elements of 8 bytes.
    let (rows, columns) = (4096, megabytes * 32);
    let layout = |pattern: &str| format!("{pattern} of {rows}x{columns}").parse::<Layout>();
    let layouts = [layout(from)?, layout(to)?];
    let bytes = 8 * rows * columns;
    let (mut plain, address) = plain_sockets(bytes as usize)?;
    let (began_at, begun) = std::sync::mpsc::channel::<Instant>();
    let (go, going) = std::sync::mpsc::sync_channel::<()>(0);
    let (put_took, puts) = std::sync::mpsc::channel::<f64>();
    let going = std::sync::Mutex::new(going);
    let meeting: PathBuf = folder.join(format!("{megabytes}-{}.meet", from.len()));
    let (steps, sockets) = both(
        &meeting,
        &layouts,
        |publisher, array| {
            let parts = layouts[0].parts(|index| index[0] as f64)?;
            let going = going.lock().map_err(|_| "the lock is gone")?;
            for number in 0..STEPS {
                going.recv()?;
                let began = Instant::now();
                began_at.send(began)?;
                publisher.put(array, number, b"", &parts)?;
                put_took.send(began.elapsed().as_secs_f64())?;
            }
            Ok(())
        },
        |subscriber, array, _| {
            let mut parts = layouts[1].parts(|_| 0.0)?;
            let (mut steps, mut sockets) = (Vec::new(), Vec::new());
            for _ in 0..STEPS {
                go.send(())?;
                subscriber.get(array, &mut parts)?;
                steps.push(begun.recv()?.elapsed().as_secs_f64());
                sockets.push(over_socket(&mut plain, bytes as usize)?);
            }
            Ok((steps, sockets))
        },
    )?;
    let puts: Vec<f64> = puts.try_iter().collect();
    drop(plain);
    let _ = address;
    let middle = |times: Vec<f64>| median(times).unwrap_or(0.0);
    Ok(Stepped {
        from,
        to,
        bytes,
        put_seconds: middle(puts),
        step_seconds: middle(steps),
        socket_seconds: middle(sockets),
    })
}

/// A thread that sends so many bytes whenever it is asked, and the socket to ask it on.
fn plain_sockets(bytes: usize) -> Result<(TcpStream, std::net::SocketAddr), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.set_nodelay(true);
        let data = vec![7_u8; bytes];
        let mut asked = [0];
        while stream.read_exact(&mut asked).is_ok() && stream.write_all(&data).is_ok() {}
    });
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

fn over_socket(stream: &mut TcpStream, bytes: usize) -> std::io::Result<f64> {
    let mut memory = vec![0_u8; bytes];
    let began = Instant::now();
    stream.write_all(&[1])?;
    stream.read_exact(&mut memory)?;
    Ok(began.elapsed().as_secs_f64())
}

fn report(results: &Results) -> Result<String, Failure> {
    let mut text = String::new();
    writeln!(text, "# Couplings\n")?;
    writeln!(
        text,
        "Written by `{}`. {}. Both jobs in one process, each hosting all its ranks, over the loopback; medians of {SETUPS} set-ups and of {STEPS} steps.\n",
        results.command, results.machine
    )?;
    writeln!(text, "## Setting up\n")?;
    writeln!(
        text,
        "A consumer `2x2/64x64`, a producer of GxG ranks with blocks of 8 x 8, an array of 4096 x 4096 f64. Planning is what one rank of the consumer takes.\n"
    )?;
    writeln!(
        text,
        "| ranks of the producer | set-up, ms | planning of a rank, us | bytes between the leaders |\n|---|---|---|---|"
    )?;
    for one in &results.setups {
        writeln!(
            text,
            "| {} | {:.2} | {:.0} | {} |",
            one.producer_ranks,
            1e3 * one.setup_seconds,
            1e6 * one.planning_seconds,
            one.handshake_bytes
        )?;
    }
    writeln!(text, "\n## Steps\n")?;
    writeln!(
        text,
        "From the beginning of `put` to the end of `get`, beside the same bytes over a plain socket (neither packed nor checked nor unpacked), interleaved.\n"
    )?;
    writeln!(
        text,
        "| from | to | MiB | put, ms | step, ms | socket, ms | of the socket's speed |\n|---|---|---|---|---|---|---|"
    )?;
    for one in &results.steps {
        writeln!(
            text,
            "| {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.0} % |",
            one.from,
            one.to,
            one.bytes >> 20,
            1e3 * one.put_seconds,
            1e3 * one.step_seconds,
            1e3 * one.socket_seconds,
            100.0 * one.socket_seconds / one.step_seconds
        )?;
    }
    Ok(text)
}
