//! What each side of a coupling takes for a partner of any size, in the parts that the ASPEN paper asks to be told apart: generating the
//! redistribution, buffering, and the latency of a step. The side measured has 4 ranks, its partner 4 to 1024; once it produces, once it consumes.

use super::{Sent, both};
use crate::machine::{Failure, median};
use reshard::engine::{BufferTable, MessagesOptions};
use reshard::overlap::Method;
use reshard::rank::messages;
use reshard::{Layout, Move, Plan};
use reshard_couple::{ArrayId, Publisher, Setup};
use serde::Serialize;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The grids of the partner, and the layout of the side measured.
const GRIDS: [u64; 5] = [2, 4, 8, 16, 32];
const OWN: &str = "2x2/64x64 of 2048x2048";

/// Set-ups of each pair, and how often everything else is done.
const SETUPS: usize = 9;
const REPEATED: usize = 15;

/// Bytes of a frame.
const FRAME_BYTES: usize = 1 << 18;

/// Steps of one element after each set-up, and how long the producer computes before each: the consumer waits already.
const STEPS: u64 = 10;
const COMPUTING: Duration = Duration::from_millis(1);

/// Medians of seconds, for one rank unless said otherwise.
#[derive(Serialize)]
pub struct OneSide {
    pub role: &'static str,
    pub partner_ranks: u64,
    /// Of one rank, in a step.
    pub messages: usize,
    /// Which elements it shares with whom: ASPEN.
    pub intersecting_seconds: f64,
    /// That, and all that a rank keeps to pack and unpack its messages.
    pub generating_seconds: f64,
    /// Packing or unpacking a step of the array.
    pub buffering_seconds: f64,
    /// A step of one element: `put`, or from the beginning of `put` to the end of `get`.
    pub latency_seconds: f64,
    /// Of the whole job, from its first attempt until steps can come.
    pub setup_seconds: f64,
    pub handshake_bytes: u64,
}

impl OneSide {
    pub fn bytes_per_rank(&self) -> f64 {
        self.handshake_bytes as f64 / (self.partner_ranks + 4) as f64
    }
}

pub fn measure(folder: &Path) -> Result<Vec<OneSide>, Failure> {
    let mut found = Vec::new();
    for produces in [true, false] {
        for grid in GRIDS {
            eprintln!("a {} of {} ranks", if produces { "consumer" } else { "producer" }, grid * grid);
            found.push(one_side(produces, grid, folder)?);
        }
    }
    Ok(found)
}

fn one_side(produces: bool, grid: u64, folder: &Path) -> Result<OneSide, Failure> {
    let (own, partner): (Layout, Layout) = (OWN.parse()?, format!("{grid}x{grid}/8x8 of 2048x2048").parse()?);
    let layouts = if produces { [own, partner] } else { [partner, own] };
    let Alone { messages, intersecting, generating, buffering } = alone(produces, &layouts)?;
    let (mut setups, mut latencies) = (Vec::new(), Vec::new());
    for number in 0..SETUPS {
        let (setup, some) =
            coupled(produces, &layouts, &folder.join(format!("{produces}-{grid}-{number}.meet")))?;
        setups.push(setup);
        latencies.extend(some);
    }
    let middle = |times| median(times).unwrap_or(0.0);
    Ok(OneSide {
        role: if produces { "producer" } else { "consumer" },
        partner_ranks: grid * grid,
        messages,
        intersecting_seconds: middle(intersecting),
        generating_seconds: middle(generating),
        buffering_seconds: middle(buffering),
        latency_seconds: middle(latencies),
        setup_seconds: middle(setups.iter().map(|setup| setup.seconds).collect()),
        handshake_bytes: setups[0].bytes,
    })
}

/// What one rank does without its partner.
struct Alone {
    messages: usize,
    intersecting: Vec<f64>,
    generating: Vec<f64>,
    buffering: Vec<f64>,
}

fn alone(produces: bool, [from, to]: &[Layout; 2]) -> Result<Alone, Failure> {
    let producers = from.distribution().grid().size();
    let moved = Move::of::<f64>(from.clone(), to.clone().shifted(producers)?)?;
    let rank = if produces { 0 } else { producers };
    let own = if produces { from } else { to };
    let mut part: Vec<f64> = own.filled(0, |index| index[0] as f64)?;
    let mut found = Alone { messages: 0, intersecting: vec![], generating: vec![], buffering: vec![] };
    for _ in 0..REPEATED {
        let (problem, began) = (moved.problem(), Instant::now());
        let shared =
            if produces { problem.sends(rank, Method::Aspen) } else { problem.receives(rank, Method::Aspen) };
        std::hint::black_box(shared?);
        found.intersecting.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        let plan = Arc::new(Plan::for_rank(vec![moved.clone()], rank)?.with_peers()?);
        let (mut packer, program) = messages(&plan, rank, &MessagesOptions::default(), FRAME_BYTES)?;
        found.generating.push(began.elapsed().as_secs_f64());
        let mut table = BufferTable::new(Arc::clone(&plan));
        let mut data = table.fill();
        let bytes = reshard::bytemuck::cast_slice_mut(&mut part);
        if produces {
            data.enter_own_bytes(0, rank, bytes, &mut [])?;
        } else {
            data.enter_own_bytes(0, rank, &[], bytes)?;
        }
        packer.begin(&data);
        let ranges = if produces { program.sends } else { program.receives };
        found.messages = ranges.len();
        let mut frame = vec![0; FRAME_BYTES];
        let began = Instant::now();
        for range in &ranges {
            let (mut cursor, mut left) = (packer.open(&data, range), packer.bytes(range) as usize);
            while !cursor.finished() {
                let frame = &mut frame[..left.min(FRAME_BYTES)];
                left -= match produces {
                    true => packer.pack(&data, range, &mut cursor, frame),
                    false => packer.unpack(&mut data, range, &mut cursor, frame),
                };
            }
        }
        found.buffering.push(began.elapsed().as_secs_f64());
    }
    Ok(found)
}

/// Sets both jobs up, and returns what each step of one element took the side measured.
fn coupled(produces: bool, layouts: &[Layout; 2], meeting: &Path) -> Result<(Setup, Vec<f64>), Failure> {
    let put = Mutex::new(Vec::new());
    let (one, mut there) = ([vec![1.0]], [vec![0.0]]);
    let produce = |publisher: &mut Publisher, [_, single]: [ArrayId; 2]| -> Sent<()> {
        for step in 0..STEPS {
            std::thread::sleep(COMPUTING);
            let began = Instant::now();
            publisher.put(single, step, b"", &one)?;
            let took = began.elapsed().as_secs_f64();
            put.lock().map_err(|_| "poisoned")?.push((began, took));
        }
        Ok(())
    };
    let (setup, got) = both(meeting, layouts, produce, |subscriber, [_, single], setup| {
        let mut got = Vec::new();
        for _ in 0..STEPS {
            subscriber.get(single, &mut there)?;
            got.push(Instant::now());
        }
        Ok((setup, got))
    })?;
    let put = put.into_inner().map_err(|_| "poisoned")?;
    let times = put.iter().zip(got).map(|((began, took), got)| match produces {
        true => *took,
        false => got.duration_since(*began).as_secs_f64(),
    });
    Ok((setup, times.collect()))
}
