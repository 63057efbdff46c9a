//! Options of engines and rings: words of a text, `mover=messages deadline=30`, so that new ones change no structure of C.

use crate::border::{Failure, Outcome};
use reshard::engine::{MessagesOptions, ThreadsOptions};
use reshard::{Error, ErrorKind};
use reshard_couple::{Options, Subscription};
use reshard_mpi::{MpiOptions, MpiRingOptions};
use std::str::FromStr;
use std::time::Duration;

/// The words of a text, each `key=value` or a word alone, as `known` lists them: `deadline=, tcp`. Fails for one that `of` does not have, one
/// that is given twice, and one with a value or without, where that is wrong.
fn words<'t>(text: &'t str, of: &str, known: &str) -> Outcome<Vec<(&'t str, &'t str)>> {
    let refused = |why: String| Err(Failure::of(ErrorKind::Notation, why));
    let mut all: Vec<(&str, &str)> = Vec::new();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
        let listed = known.split(", ").find(|known| known.trim_end_matches('=') == key);
        match (listed, value) {
            (None, _) => return refused(format!("{word:?} is no option of {of}; there are {known}")),
            (Some(known), None | Some("")) if known.ends_with('=') => {
                return refused(format!(
                    "{word:?} was given as an option of {of}, without a value; give one after \"{key}=\", or leave the option out"
                ));
            }
            (Some(known), Some(_)) if !known.ends_with('=') => {
                return refused(format!(
                    "{word:?} was given as an option of {of}; {key} has no value: give the word alone, or leave it out"
                ));
            }
            _ if all.iter().any(|other| other.0 == key) => {
                return refused(format!(
                    "{word:?} was given, and {key} before it; give each option of {of} once"
                ));
            }
            _ => all.push((key, value.unwrap_or_default())),
        }
    }
    Ok(all)
}

fn wrong(key: &str, value: &str, what: &str) -> Failure {
    Failure::of(ErrorKind::Notation, format!("\"{key}={value}\" was given as an option; {key} is {what}"))
}

fn number<T: FromStr>(key: &str, value: &str, what: &str) -> Outcome<T> {
    value.parse().map_err(|_| wrong(key, value, what))
}

/// A number from 1 on.
fn count(key: &str, value: &str, what: &str) -> Outcome<usize> {
    let given = value.parse().ok().filter(|&count| count > 0);
    given.ok_or_else(|| wrong(key, value, &format!("{what}, 1 or more")))
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
    for (key, value) in words(text, "an engine of threads", "threads=, level=")? {
        options = match key {
            "threads" => options.with_threads(number::<usize>(key, value, "a number of threads")?),
            _ => options.with_level(value.parse::<reshard::engine::Level>()?),
        };
    }
    Ok(options)
}

pub fn of_mpi(text: &str) -> Outcome<MpiOptions> {
    let mut options = MpiOptions::default();
    let mut messages = MessagesOptions::default();
    let known = "mover=, strategy=, memory=, level=, deadline=";
    for (key, value) in words(text, "an engine between processes", known)? {
        match key {
            "mover" => options = options.with_mover(mover(value)?),
            "strategy" => {
                let strategy =
                    value.parse().map_err(|error: Error| Failure::of(ErrorKind::Notation, error.to_string()));
                messages = messages.with_strategy(strategy?);
            }
            "memory" => messages = messages.with_memory(number::<u64>(key, value, "a number of bytes")?),
            "level" => messages = messages.with_level(value.parse::<reshard::engine::Level>()?),
            _ => options = options.with_deadline(deadline(value)?),
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
    let (of, known) = match between_processes {
        true => ("a ring between processes", "ordered, one-way, memory=, deadline="),
        false => ("a ring in one process", "ordered, one-way"),
    };
    for (key, value) in words(text, of, known)? {
        match key {
            "ordered" => options.ordered = true,
            "one-way" => options.one_way = true,
            "memory" => {
                options.mpi = options.mpi.with_memory(number::<u64>(key, value, "a number of bytes")?);
            }
            _ => options.mpi = options.mpi.with_deadline(deadline(value)?),
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

/// The options of a producer.
pub fn of_publisher(text: &str) -> Outcome<Coupling> {
    let known = "deadline=, consumers=, bind=, host=, tcp, program=, partner=";
    of_coupling(words(text, "a producer of a coupling", known)?)
}

/// The options of a consumer.
pub fn of_subscriber(text: &str) -> Outcome<Coupling> {
    let known = "deadline=, connections=, tcp, program=, partner=";
    of_coupling(words(text, "a consumer of a coupling", known)?)
}

fn of_coupling(words: Vec<(&str, &str)>) -> Outcome<Coupling> {
    let (mut options, mut wait) = (Options::default(), COUPLING_DEADLINE);
    let (mut program, mut partner) = (None, None);
    for (key, value) in words {
        match key {
            "deadline" => {
                wait = deadline(value)?
                    .ok_or_else(|| wrong(key, value, "a number of seconds above 0, such as deadline=30"))?;
            }
            "consumers" => options = options.with_consumers(count(key, value, "a number of consumers")?),
            "connections" => {
                options = options.with_connections(count(key, value, "a number of connections")?);
            }
            "bind" => {
                options = options.with_bind(number(key, value, "an address and a port, such as 0.0.0.0:0")?);
            }
            "host" => options = options.with_advertised_host(value),
            "tcp" => options = options.with_shared_memory(false),
            "program" => program = Some(value.to_string()),
            _ => partner = Some(value.to_string()),
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

/// The most steps that a producer keeps for a consumer; it refuses more.
const MAX_DEPTH: u32 = 1024;

/// The deadline of a coupling, if none is given.
const COUPLING_DEADLINE: Duration = Duration::from_secs(30);

pub fn of_subscription(mut wanted: Subscription, text: &str) -> Outcome<Subscription> {
    for (key, value) in words(text, "a subscription", "depth=, drop-oldest, whole")? {
        wanted = match key {
            "depth" => match value.parse() {
                Ok(depth @ 1..=MAX_DEPTH) => wanted.with_depth(depth),
                _ => return Err(wrong(key, value, &format!("a number of steps, 1 to {MAX_DEPTH}"))),
            },
            "drop-oldest" => wanted.dropping_oldest(),
            _ => wanted.whole_steps(),
        };
    }
    Ok(wanted)
}
