//! Agreement: before data moves, all ranks check that they were given equal arguments.
//!
//! One rank with another block size would make the others wait without end, or take wrong bytes for right ones. So the
//! hashes of all arguments are reduced to minimum and maximum over a tree of ranks (`tree.rs`). If
//! all are equal, all ranks go on. If not, all ranks gather what they were given for the first argument that differs, and all
//! get the same error. A rank that does not answer before the timeout is named, too, and all ranks get that error.

use crate::communicator::{Communicator, Registration};
use crate::registry::TAGS;
use crate::tree::{TreeExchange, no_answer};
use reshard_plan::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// The first of the two tags of agreements.
const AGREE_TAG: u32 = 32_000;

/// Bytes of the text in which a rank says what it was given for one argument.
const VALUE_BYTES: usize = 512;

/// Fields of every agreement; unused ones are 0. Equal lengths let ranks detect that they agree on different things.
const MAX_FIELDS: usize = 20;

/// An argument that must be equal on all ranks: its name, and what this rank was given, in words.
pub struct Field {
    pub name: &'static str,
    pub value: String,
}

/// The answers of all ranks below in the tree, reduced.
struct ReducedAnswers {
    /// The smallest and the largest of the ranks' proposals.
    proposed: [u64; 2],
    /// For each field, the smallest hash.
    least: [u64; MAX_FIELDS],
    /// For each field, the largest hash.
    most: [u64; MAX_FIELDS],
}

impl ReducedAnswers {
    const BYTES: usize = (2 + 2 * MAX_FIELDS) * 8;

    fn bytes(&self) -> Vec<u8> {
        let numbers = self.proposed.iter().chain(&self.least).chain(&self.most);
        numbers.flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let eight = bytes.get(at * 8..at * 8 + 8).and_then(|eight| eight.try_into().ok());
            u64::from_ne_bytes(eight.unwrap_or_default())
        };
        Self {
            proposed: [number(0), number(1)],
            least: std::array::from_fn(|k| number(2 + k)),
            most: std::array::from_fn(|k| number(2 + MAX_FIELDS + k)),
        }
    }

    fn join(&mut self, other: &Self) {
        let [least, most] = self.proposed;
        self.proposed = [least.min(other.proposed[0]), most.max(other.proposed[1])];
        self.least.iter_mut().zip(&other.least).for_each(|(mine, theirs)| *mine = (*mine).min(*theirs));
        self.most.iter_mut().zip(&other.most).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }
}

/// Agrees on `fields`. Returns the same on all ranks: the smallest and the largest of the ranks' proposals if all ranks
/// came to make `what`, were given equal fields, and `local` is `Ok` everywhere; else the same error. Collective.
pub fn agree(
    comm: &Communicator,
    what: &'static str,
    fields: &[Field],
    local: Result<()>,
    proposal: u64,
    limit: Option<Duration>,
) -> Result<(u64, u64)> {
    let field = |name: &'static str, value: String| Field { name, value };
    let failed = local.as_ref().err().map_or(String::new(), Error::to_string);
    let own = [field("what to make", what.into()), field("a rank's own check", failed)];
    let fields: Vec<&Field> = own.iter().chain(fields).collect();
    assert!(fields.len() <= MAX_FIELDS, "{} fields", fields.len());
    let numbers = std::array::from_fn(|k| fields.get(k).map_or(0, |field| hash(field)));
    let own = ReducedAnswers { proposed: [proposal; 2], least: numbers, most: numbers };
    let answers = reduce(comm, &own, limit).inspect_err(|error| comm.refuse(error))?;
    let differs = (0..MAX_FIELDS).find(|&k| answers.least[k] != answers.most[k]);
    match differs {
        // If all ranks fail with the same error they agree.
        None => local.map(|()| (answers.proposed[0], answers.proposed[1])),
        Some(k) => {
            let nothing = field("an argument", String::new());
            let field = fields.get(k).copied().unwrap_or(&nothing);
            Err(disagreement(comm, field, k == 1, limit)?)
        }
    }
}

/// Propagates errors: returns what this rank has made if all ranks have, else the same error on all. Collective.
pub fn agree_on_result<T>(
    what: &'static str,
    made: Result<T>,
    comm: &Communicator,
    limit: Option<Duration>,
) -> Result<T> {
    let outcome = made.as_ref().map(|_| ()).map_err(Clone::clone);
    agree(comm, what, &[], outcome, 0, limit)?;
    made
}

/// Registers an engine with `tags` tags, under a number that all ranks agree on. `proposed` are the smallest and the
/// largest of the ranks' proposals. Collective.
pub fn register(
    comm: &Arc<Communicator>,
    proposed: (u64, u64),
    tags: u64,
    limit: Option<Duration>,
) -> Result<Registration> {
    let (mut least, mut most) = proposed;
    let end = most + 2 * TAGS;
    while least < most {
        // A tag that is free on one rank is in use on another.
        let mine = if most < end { comm.propose(most, tags) } else { Err(no_common_tags(tags)) };
        let outcome = mine.as_ref().map(|_| ()).map_err(Clone::clone);
        (least, most) = agree(comm, "a number", &[], outcome, mine.unwrap_or(0), limit)?;
    }
    comm.enter(most, tags)
}

fn no_common_tags(tags: u64) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "no {tags} tags are free on all ranks at once, because engines on this communicator were dropped on some and not on \
             others; drop them on all ranks, or use another communicator"
        ),
    )
}

/// The hash of a value; 0 for an empty one, so that it differs from every failure.
fn hash(field: &Field) -> u64 {
    if field.value.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (field.name, &field.value).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Reduces the answers of all ranks. Collective.
fn reduce(comm: &Communicator, own: &ReducedAnswers, limit: Option<Duration>) -> Result<ReducedAnswers> {
    let sequence = comm.next_sequence();
    let exchange = TreeExchange { transport: comm.transport(), sequence, tag: AGREE_TAG, limit };
    let join = |joined: &mut Vec<u8>, said: &[u8]| {
        let mut answers = ReducedAnswers::from_bytes(joined);
        answers.join(&ReducedAnswers::from_bytes(said));
        *joined = answers.bytes();
    };
    let bytes = ReducedAnswers::BYTES;
    let reduced = exchange.run(own.bytes(), |_| bytes, join, |all| all, bytes)?;
    reduced.map(|all| ReducedAnswers::from_bytes(&all)).map_err(no_answer)
}

/// Gathers what all ranks were given for a field, and names one that differs. Collective.
fn disagreement(
    comm: &Communicator,
    field: &Field,
    own_check: bool,
    limit: Option<Duration>,
) -> Result<Error> {
    let mut mine = [0; VALUE_BYTES];
    let mut length = field.value.len().min(VALUE_BYTES - 8);
    while !field.value.is_char_boundary(length) {
        length -= 1;
    }
    mine[..8].copy_from_slice(&(length as u64).to_ne_bytes());
    mine[8..8 + length].copy_from_slice(&field.value.as_bytes()[..length]);
    // All ranks are here: they have just finished the reduction.
    let all = comm.gather(&mine, limit)?;
    let said: Vec<String> = all
        .chunks_exact(VALUE_BYTES)
        .map(|value| {
            let length = u64::from_ne_bytes(value[..8].try_into().unwrap_or_default()) as usize;
            String::from_utf8_lossy(&value[8..8 + length.min(VALUE_BYTES - 8)]).into_owned()
        })
        .collect();
    if own_check {
        let (rank, why) = said.iter().enumerate().find(|(_, said)| !said.is_empty()).unwrap_or((0, &said[0]));
        return Ok(Error::new(ErrorKind::Mismatch, format!("rank {rank}: {why}; nothing was moved")));
    }
    // The value of most ranks is taken for right; of equally frequent ones that of the lowest rank.
    let votes = |value: &String| said.iter().filter(|other| *other == value).count();
    let usual = said.iter().enumerate().max_by_key(|(rank, value)| (votes(value), usize::MAX - rank));
    let (usual_rank, usual) = usual.unwrap_or((0, &said[0]));
    let (rank, other) = said.iter().enumerate().find(|(_, value)| *value != usual).unwrap_or((0, usual));
    Ok(Error::new(
        ErrorKind::Mismatch,
        format!(
            "ranks disagree on {}: rank {rank} was given {other}, rank {usual_rank} was given {usual}; give all ranks the same; \
             nothing was moved",
            field.name
        ),
    ))
}
