//! Parses lists of numbers into a ring problem; every error names its flag.
//!
//! Costs may be fractions. They are brought to one denominator here, since the planner counts time in whole units; a time
//! it returns counts parts of [`RingRequest::denominator`].

use crate::args;
use crate::failure::Failure;
use reshard_ring::{Direction, RingProblem};
use serde::Serialize;

/// The ring that the arguments describe.
pub struct RingRequest {
    pub problem: RingProblem,
    /// Number of the planner's time units in a unit of the arguments.
    pub denominator: u64,
    /// True if items keep their order.
    pub ordered: bool,
}

/// A number without loss of precision, for JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Number {
    Whole(u64),
    Decimal(f64),
    Fraction(String),
}

impl RingRequest {
    pub fn read(args: &args::Ring) -> Result<Self, Failure> {
        let direction = match args.direction.as_str() {
            "uni" => Direction::Uni,
            "bi" => Direction::Bi,
            other => {
                return Err(Failure::usage(&format!(
                    "--direction: {other:?} was given; expected uni (only to the next process) or bi (to both neighbours)"
                )));
            }
        };
        if direction == Direction::Uni && args.left.is_some() {
            return Err(Failure::usage(
                "--left is the cost of links a ring with --direction uni does not have",
            ));
        }
        let loads = items("--loads", &args.loads)?;
        let targets = items("--targets", &args.targets)?;
        let procs = loads.len();
        let right = costs("--right", args.right.as_deref(), procs)?;
        let left = costs("--left", args.left.as_deref(), procs)?;
        let both = || right.iter().chain(&left);
        let denominator = both().try_fold(1, |all, &(_, part)| common(all, part)).ok_or_else(|| {
            Failure::usage(
                "--right, --left: the costs have no common denominator below 2^64; use fewer digits",
            )
        })?;
        let whole = |flag: &'static str, costs: &[(u64, u64)]| {
            let whole = |&(number, part): &(u64, u64)| number.checked_mul(denominator / part);
            costs.iter().map(whole).collect::<Option<Vec<u64>>>().ok_or_else(|| {
                Failure::usage(&format!(
                    "{flag}: over the common denominator {denominator} the costs exceed 2^64"
                ))
            })
        };
        let (right, left) = (whole("--right", &right)?, whole("--left", &left)?);
        let problem = RingProblem::new(loads, targets)?
            .with_right(right)
            .map_err(Failure::of_flag("--right"))?
            .with_left(left)
            .map_err(Failure::of_flag("--left"))?
            .with_direction(direction)?;
        let problem =
            if args.ordered { problem.in_order().map_err(Failure::of_flag("--ordered"))? } else { problem };
        Ok(Self { problem, denominator, ordered: args.ordered })
    }

    /// A time of the planner in words, exactly: 7, or 7/2.
    pub fn time(&self, parts: u64) -> String {
        match self.lowest(parts) {
            (whole, 1) => whole.to_string(),
            (number, part) => format!("{number}/{part}"),
        }
    }

    /// A time of the planner for scripts, exactly: 7, 3.5, or "7/3" where no decimal is exact.
    pub fn number(&self, parts: u64) -> Number {
        match self.lowest(parts) {
            (whole, 1) => Number::Whole(whole),
            (number, part) => {
                let decimal = number as f64 / part as f64;
                let exact = fraction(&decimal.to_string()) == Some((number, part));
                if exact { Number::Decimal(decimal) } else { Number::Fraction(self.time(parts)) }
            }
        }
    }

    fn lowest(&self, parts: u64) -> (u64, u64) {
        let shared = divisor(parts, self.denominator);
        (parts / shared, self.denominator / shared)
    }
}

/// The entries of a list: as typed, or in a file after an `@`.
fn entries(flag: &str, text: &str) -> Result<Vec<String>, Failure> {
    let written = match text.strip_prefix('@') {
        None => text.to_string(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(&format!("{flag}: {path} cannot be read: {error}")))?,
    };
    let written = written.trim();
    if written.is_empty() {
        return Ok(Vec::new());
    }
    Ok(written.split(|c: char| c == ',' || c.is_whitespace()).map(String::from).collect())
}

fn items(flag: &str, text: &str) -> Result<Vec<u64>, Failure> {
    let number = |entry: &String| {
        entry.parse::<u64>().map_err(|_| {
            Failure::usage(&format!(
                "{flag}: {entry:?} was given; expected a whole number of items from 0 to 2^62 for each process, such as 1,2,3"
            ))
        })
    };
    entries(flag, text)?.iter().map(number).collect()
}

/// Costs as fractions; one stands for all links, none for links that cost 1.
fn costs(flag: &str, text: Option<&str>, procs: usize) -> Result<Vec<(u64, u64)>, Failure> {
    let entries = entries(flag, text.unwrap_or("1"))?;
    let costs = entries
        .iter()
        .map(|entry| {
            fraction(entry).ok_or_else(|| {
                Failure::usage(&format!(
                    "{flag}: {entry:?} was given; a cost is a number greater than 0, such as 3, 0.25 or 3/2"
                ))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(if let [cost] = costs[..] { vec![cost; procs] } else { costs })
}

/// 3, 3/2 or 0.25, in lowest terms; greater than 0.
fn fraction(text: &str) -> Option<(u64, u64)> {
    let digits =
        |text: &str| if text.bytes().all(|b| b.is_ascii_digit()) { text.parse::<u64>().ok() } else { None };
    let (number, part) = match (text.split_once('/'), text.split_once('.')) {
        (Some((number, part)), _) => (digits(number)?, digits(part)?),
        (None, Some((whole, rest))) => {
            let part = 10_u64.checked_pow(u32::try_from(rest.len()).ok()?)?;
            (digits(whole)?.checked_mul(part)?.checked_add(digits(rest)?)?, part)
        }
        (None, None) => (digits(text)?, 1),
    };
    if number == 0 || part == 0 {
        return None;
    }
    let shared = divisor(number, part);
    Some((number / shared, part / shared))
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { divisor(b, a % b) }
}

fn common(a: u64, b: u64) -> Option<u64> {
    (a / divisor(a, b)).checked_mul(b)
}
