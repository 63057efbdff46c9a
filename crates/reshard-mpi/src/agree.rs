//! Before data moves, all ranks find out whether they mean the same.
//!
//! One rank with another block size would make the others wait for ever, or take wrong bytes for right ones. So each says
//! what it was given, as numbers that stand for it; on the way up a tree of ranks they become the smallest and the largest,
//! and what is found comes down the same way. If all are equal, all go on. If not, all say what they were given for the
//! first thing they disagree on, and all get the same error. A rank that does not answer in time is named, too, by the one
//! who waited for it: everybody learns of it. Each question has a number, so that no late answer is taken for another.

use crate::owned::OwnedMessage;
use crate::private_comm::{PrivateComm, Registration};
use crate::registry::TAGS;
use reshard_plan::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ranks below one.
const CHILDREN: usize = 8;

/// Tags of what goes up and down.
const UP: u32 = 32_000;
const DOWN: u32 = 32_001;

/// Bytes of what a rank says about one thing.
const WORDS: usize = 512;

/// After the deadline, those further up wait so much longer for each level below them.
const GRACE: Duration = Duration::from_millis(500);

/// No communicator is asked so often; numbers of different ones are further apart.
const NEAR: u64 = 1 << 32;

/// The most fields of a question. All questions have as many, those without a name are nothing: ranks that ask different
/// questions find out.
const FIELDS: usize = 20;

/// Something all ranks must have been given alike: its name, and what this rank was given.
pub struct Field {
    pub name: &'static str,
    pub value: String,
}

/// What goes up and down the tree.
#[derive(Clone)]
struct ReducedAnswers {
    /// The number of the question.
    question: u64,
    /// The first rank that did not answer, plus one.
    missing: u64,
    /// Of the ranks' proposals, the smallest and the largest.
    proposed: [u64; 2],
    /// For each field the smallest and the largest number.
    least: [u64; FIELDS],
    most: [u64; FIELDS],
}

impl ReducedAnswers {
    const BYTES: usize = (4 + 2 * FIELDS) * 8;

    fn bytes(&self) -> Vec<u8> {
        let head = [self.question, self.missing, self.proposed[0], self.proposed[1]];
        let numbers = head.iter().chain(&self.least).chain(&self.most);
        numbers.flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let eight = bytes.get(at * 8..at * 8 + 8).and_then(|eight| eight.try_into().ok());
            u64::from_ne_bytes(eight.unwrap_or_default())
        };
        Self {
            question: number(0),
            missing: number(1),
            proposed: [number(2), number(3)],
            least: std::array::from_fn(|k| number(4 + k)),
            most: std::array::from_fn(|k| number(4 + FIELDS + k)),
        }
    }

    fn join(&mut self, other: &Self) {
        if self.missing == 0 {
            self.missing = other.missing;
        }
        let [least, most] = self.proposed;
        self.proposed = [least.min(other.proposed[0]), most.max(other.proposed[1])];
        self.least.iter_mut().zip(&other.least).for_each(|(mine, theirs)| *mine = (*mine).min(*theirs));
        self.most.iter_mut().zip(&other.most).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }
}

/// Ends alike on all ranks: well if all are here to make `what`, were given the same, and `local` is well everywhere, else
/// with the same error. Each rank proposes a number; all get the smallest and the largest. Collective.
pub fn agree(
    comm: &PrivateComm,
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
    assert!(fields.len() <= FIELDS, "{} fields", fields.len());
    let numbers = std::array::from_fn(|k| fields.get(k).map_or(0, |field| number(field)));
    let question = comm.next_question();
    let mut tally =
        ReducedAnswers { question, missing: 0, proposed: [proposal; 2], least: numbers, most: numbers };
    count(comm, &mut tally, limit).inspect_err(|error| comm.refuse(error))?;
    if tally.missing > 0 {
        let error = Error::new(
            ErrorKind::Mpi,
            format!(
                "rank {} did not answer in time: it has exited, is stuck, or never made the call; call this on all ranks of the \
                 communicator, or allow more time; nothing was moved",
                tally.missing - 1
            ),
        );
        comm.refuse(&error);
        return Err(error);
    }
    let differs = (0..FIELDS).find(|&k| tally.least[k] != tally.most[k]);
    match differs {
        // A rank that fails alike everywhere agrees with the others.
        None => local.map(|()| (tally.proposed[0], tally.proposed[1])),
        Some(k) => {
            let nothing = field("an argument", String::new());
            let field = fields.get(k).copied().unwrap_or(&nothing);
            Err(disagreement(comm, field, k == 1, limit)?)
        }
    }
}

/// What a rank could make, once all ranks have; the same error on all if one could not.
pub fn agree_on_result<T>(
    what: &'static str,
    made: Result<T>,
    comm: &PrivateComm,
    limit: Option<Duration>,
) -> Result<T> {
    let outcome = made.as_ref().map(|_| ()).map_err(Clone::clone);
    agree(comm, what, &[], outcome, 0, limit)?;
    made
}

/// An engine with so many tags, with a number all ranks agree on. `proposed` is what they proposed, least and most.
/// Collective.
pub fn register(
    comm: &Arc<PrivateComm>,
    proposed: (u64, u64),
    tags: u64,
    limit: Option<Duration>,
) -> Result<Registration> {
    let (mut least, mut most) = proposed;
    let end = most + 2 * TAGS;
    while least < most {
        // A tag that is free here is in use elsewhere.
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

/// A number that stands for a value: 0 for nothing, so that failures are the larger ones.
fn number(field: &Field) -> u64 {
    if field.value.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (field.name, &field.value).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Up the tree and down again.
fn count(comm: &PrivateComm, tally: &mut ReducedAnswers, limit: Option<Duration>) -> Result<()> {
    let begin = Instant::now();
    let rank = comm.rank();
    let children = || (rank * CHILDREN + 1..).take(CHILDREN).filter(|&child| child < comm.size());
    let levels = |mut rank: usize| {
        let mut levels = 0;
        while rank * CHILDREN + 1 < comm.size() {
            rank = rank * CHILDREN + 1;
            levels += 1;
        }
        levels
    };
    let left =
        |levels: u32| limit.map(|limit| limit.saturating_add(GRACE * levels).saturating_sub(begin.elapsed()));
    let mut silent = Vec::new();
    for child in children() {
        match answer(comm, tally.question, child, UP, || left(levels(rank)))? {
            Some(said) => tally.join(&said),
            None => {
                silent.push(child);
                if tally.missing == 0 {
                    tally.missing = child as u64 + 1;
                }
            }
        }
    }
    if rank > 0 {
        let parent = (rank - 1) / CHILDREN;
        let mut said = OwnedMessage::send(comm, tally.bytes(), parent, UP)?;
        match answer(comm, tally.question, parent, DOWN, || left(levels(0) + 2))? {
            Some(found) => *tally = found,
            None if tally.missing == 0 => tally.missing = parent as u64 + 1,
            None => {}
        }
        said.is_done()?;
    }
    for child in children() {
        let mut said = OwnedMessage::send(comm, tally.bytes(), child, DOWN)?;
        if !silent.contains(&child) {
            settle(&mut said, left(levels(0) + 2))?;
        }
    }
    Ok(())
}

/// What a rank says to a question, if it does so in time. Late answers to earlier ones are passed over.
fn answer(
    comm: &PrivateComm,
    question: u64,
    from: usize,
    tag: u32,
    left: impl Fn() -> Option<Duration>,
) -> Result<Option<ReducedAnswers>> {
    loop {
        let mut answer = OwnedMessage::receive(comm, ReducedAnswers::BYTES, from, tag)?;
        if !settle(&mut answer, left())? {
            answer.cancel();
            return Ok(None);
        }
        let said = ReducedAnswers::from_bytes(&answer.take());
        match said.question.cmp(&question) {
            std::cmp::Ordering::Equal => return Ok(Some(said)),
            std::cmp::Ordering::Greater if said.question - question < NEAR => {
                return Err(Error::new(
                    ErrorKind::Mpi,
                    format!(
                        "rank {from} has made more on this communicator than this rank: all ranks must make engines, rings and shared \
                         arrays in the same order; nothing was moved"
                    ),
                ));
            }
            // Late, or of another communicator.
            std::cmp::Ordering::Less | std::cmp::Ordering::Greater => {}
        }
    }
}

/// What all ranks say about a field: who is it that differs?
fn disagreement(
    comm: &PrivateComm,
    field: &Field,
    own_check: bool,
    limit: Option<Duration>,
) -> Result<Error> {
    let mut mine = [0; WORDS];
    let mut length = field.value.len().min(WORDS - 8);
    while !field.value.is_char_boundary(length) {
        length -= 1;
    }
    mine[..8].copy_from_slice(&(length as u64).to_ne_bytes());
    mine[8..8 + length].copy_from_slice(&field.value.as_bytes()[..length]);
    // All are here: they have just agreed to disagree.
    let all = comm.gather(&mine, limit)?;
    let said: Vec<String> = all
        .chunks_exact(WORDS)
        .map(|words| {
            let length = u64::from_ne_bytes(words[..8].try_into().unwrap_or_default()) as usize;
            String::from_utf8_lossy(&words[8..8 + length.min(WORDS - 8)]).into_owned()
        })
        .collect();
    if own_check {
        let (rank, why) = said.iter().enumerate().find(|(_, said)| !said.is_empty()).unwrap_or((0, &said[0]));
        return Ok(Error::new(ErrorKind::Mismatch, format!("rank {rank}: {why}; nothing was moved")));
    }
    // What most ranks say is taken for right; among equals what the first says.
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

/// Waits for a message; false if it does not get through in time.
fn settle(message: &mut OwnedMessage, within: Option<Duration>) -> Result<bool> {
    let begin = Instant::now();
    let mut looks = 0_u32;
    while !message.is_done()? {
        if within.is_some_and(|within| begin.elapsed() > within) {
            return Ok(false);
        }
        looks = looks.saturating_add(1);
        if looks < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    Ok(true)
}
