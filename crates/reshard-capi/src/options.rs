//! Options of engines and rings: words of a text, `mover=messages deadline=30`, so that new ones change no structure of C.

use crate::border::{Failure, Outcome};
use reshard::engine::{MessagesOptions, ThreadsOptions};
use reshard::{Error, ErrorKind};
use reshard_couple::{Options, Subscription};
use reshard_mpi::{MpiOptions, MpiRingOptions};
use std::str::FromStr;
use std::time::Duration;

/// The words of a text, each `key=value` or a word alone.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, "")))
}

fn unknown(key: &str, value: &str, of: &str, known: &str) -> Failure {
    let word = if value.is_empty() { key.to_string() } else { format!("{key}={value}") };
    Failure::of(ErrorKind::Notation, format!("{word:?} is no option of {of}; there are {known}"))
}

fn wrong(key: &str, value: &str, what: &str) -> Failure {
    Failure::of(ErrorKind::Notation, format!("\"{key}={value}\" was given as an option; {key} is {what}"))
}

fn number<T: FromStr>(key: &str, value: &str, what: &str) -> Outcome<T> {
    value.parse().map_err(|_| wrong(key, value, what))
}

/// Seconds, or no end.
fn deadline(value: &str) -> Outcome<Option<Duration>> {
    if value == "none" {
        return Ok(None);
    }
    let time = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match time.filter(|time| !time.is_zero()) {
        Some(time) => Ok(Some(time)),
        None => Err(wrong("deadline", value, "a number of seconds above 0, such as deadline=30, or none")),
    }
}

pub fn of_threads(text: &str) -> Outcome<ThreadsOptions> {
    let mut options = ThreadsOptions::default();
    for (key, value) in words(text) {
        options = match key {
            "threads" => options.with_threads(number::<usize>(key, value, "a number of threads")?),
            "level" => options.with_level(value.parse::<reshard::engine::Level>()?),
            _ => return Err(unknown(key, value, "an engine of threads", "threads=, level=")),
        };
    }
    Ok(options)
}

pub fn of_mpi(text: &str) -> Outcome<MpiOptions> {
    let mut options = MpiOptions::default();
    let mut messages = MessagesOptions::default();
    for (key, value) in words(text) {
        match key {
            "mover" => options = options.with_mover(mover(value)?),
            "strategy" => {
                let strategy =
                    value.parse().map_err(|error: Error| Failure::of(ErrorKind::Notation, error.to_string()));
                messages = messages.with_strategy(strategy?);
            }
            "memory" => messages = messages.with_memory(number::<u64>(key, value, "a number of bytes")?),
            "level" => messages = messages.with_level(value.parse::<reshard::engine::Level>()?),
            "deadline" => options = options.with_deadline(deadline(value)?),
            _ => {
                let known = "mover=, strategy=, memory=, level=, deadline=";
                return Err(unknown(key, value, "an engine between processes", known));
            }
        }
    }
    Ok(options.with_messages(messages))
}

/// A mover of private arrays: C has no others.
fn mover(name: &str) -> Outcome<reshard_mpi::Mover> {
    match name.parse()? {
        reshard_mpi::Mover::Shared | reshard_mpi::Mover::SharedSource => Err(Failure::of(
            ErrorKind::Unsupported,
            format!(
                "the mover {name} moves arrays that the library of Rust allocates; choose private, or none"
            ),
        )),
        reshard_mpi::Mover::Alltoallv | reshard_mpi::Mover::Alltoallw => Err(Failure::of(
            ErrorKind::Unsupported,
            format!(
                "the mover {name} is one blocking call of MPI, to compare with: a rank that was called wrongly lets the others wait without \
                 end; choose messages, or none"
            ),
        )),
        mover => Ok(mover),
    }
}

/// Options of a ring: whether its items are in order, and go one way only; the rest is for rings between processes.
pub struct RingOptions {
    pub ordered: bool,
    pub one_way: bool,
    pub mpi: MpiRingOptions,
}

pub fn of_ring(text: &str, between_processes: bool) -> Outcome<RingOptions> {
    let mut options = RingOptions { ordered: false, one_way: false, mpi: MpiRingOptions::default() };
    for (key, value) in words(text) {
        match (key, value) {
            ("ordered", "") => options.ordered = true,
            ("one-way", "") => options.one_way = true,
            ("memory", _) if between_processes => {
                options.mpi = options.mpi.with_memory(number::<u64>(key, value, "a number of bytes")?);
            }
            ("deadline", _) if between_processes => options.mpi = options.mpi.with_deadline(deadline(value)?),
            _ if between_processes => {
                let known = "ordered, one-way, memory=, deadline=";
                return Err(unknown(key, value, "a ring between processes", known));
            }
            _ => return Err(unknown(key, value, "a ring in one process", "ordered, one-way")),
        }
    }
    Ok(options)
}

/// What both sides of a coupling are told.
pub struct Coupling {
    pub options: Options,
    pub deadline: Duration,
    /// The names of this program and of the other, where one launch began both.
    pub programs: Option<(String, String)>,
}

pub fn of_coupling(text: &str) -> Outcome<Coupling> {
    let (mut options, mut wait) = (Options::default(), COUPLING_DEADLINE);
    let (mut program, mut partner) = (None, None);
    for (key, value) in words(text) {
        match key {
            "deadline" => {
                wait = deadline(value)?
                    .ok_or_else(|| wrong(key, value, "a number of seconds above 0, such as deadline=30"))?;
            }
            "consumers" => options = options.with_consumers(number(key, value, "a number of consumers")?),
            "connections" => {
                options = options.with_connections(number(key, value, "a number of connections")?);
            }
            "bind" => {
                options = options.with_bind(number(key, value, "an address and a port, such as 0.0.0.0:0")?);
            }
            "host" => options = options.with_advertised_host(value),
            "tcp" => options = options.with_shared_memory(false),
            "program" => program = Some(value.to_string()),
            "partner" => partner = Some(value.to_string()),
            _ => {
                let known = "deadline=, consumers=, connections=, bind=, host=, tcp, program=, partner=";
                return Err(unknown(key, value, "a coupling", known));
            }
        }
    }
    let programs = match (program, partner) {
        (None, None) => None,
        (Some(program), Some(partner)) => Some((program, partner)),
        _ => {
            let why = "program= and partner= belong together; give both or neither";
            return Err(Failure::of(ErrorKind::Notation, why));
        }
    };
    Ok(Coupling { options: options.with_deadline(wait), deadline: wait, programs })
}

/// The deadline of a coupling, if none is given.
const COUPLING_DEADLINE: Duration = Duration::from_secs(30);

pub fn of_subscription(mut wanted: Subscription, text: &str) -> Outcome<Subscription> {
    for (key, value) in words(text) {
        wanted = match key {
            "depth" => wanted.with_depth(number(key, value, "a number of steps")?),
            "drop-oldest" => wanted.dropping_oldest(),
            "whole" => wanted.whole_steps(),
            _ => return Err(unknown(key, value, "a subscription", "depth=, drop-oldest, whole")),
        };
    }
    Ok(wanted)
}
