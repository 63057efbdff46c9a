//! Before data moves, all ranks find out whether they mean the same.
//!
//! One rank with another block size would make the others wait for ever, or take wrong bytes for right ones. So each says
//! what it was given, as numbers that stand for it; on the way up a tree of ranks they become the smallest and the largest,
//! and what is found comes down the same way. If all are equal, all go on. If not, all say what they were given for the
//! first thing they disagree on, and all get the same error. A rank that does not answer in time is named, too, by the one
//! who waited for it: everybody learns of it.

use crate::ffi::comm::Comm;
use crate::owned::Owned;
use reshard_plan::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
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

/// Something all ranks must have been given alike: its name, and what this rank was given.
pub struct Field {
    pub name: &'static str,
    pub value: String,
}

/// What goes up and down the tree.
struct Tally {
    /// The first rank that did not answer, plus one.
    missing: u64,
    /// For each field the smallest and the largest number.
    least: Vec<u64>,
    most: Vec<u64>,
}

impl Tally {
    fn of(fields: &[u64]) -> Self {
        Self { missing: 0, least: fields.to_vec(), most: fields.to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let numbers = [self.missing].into_iter().chain(self.least.iter().chain(&self.most).copied());
        numbers.flat_map(u64::to_ne_bytes).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |eight: &[u8]| u64::from_ne_bytes(eight.try_into().unwrap_or_default());
        let numbers: Vec<u64> = bytes.chunks_exact(8).map(number).collect();
        let fields = (numbers.len() - 1) / 2;
        Self {
            missing: numbers[0],
            least: numbers[1..=fields].to_vec(),
            most: numbers[1 + fields..].to_vec(),
        }
    }

    fn join(&mut self, other: &Self) {
        if self.missing == 0 {
            self.missing = other.missing;
        }
        self.least.iter_mut().zip(&other.least).for_each(|(mine, theirs)| *mine = (*mine).min(*theirs));
        self.most.iter_mut().zip(&other.most).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }
}

/// Ends alike on all ranks: well if all were given the same and `local` is well everywhere, else with the same error. All
/// ranks must give as many fields. Collective.
pub fn agree(comm: &Comm, fields: &[Field], local: Result<()>, limit: Option<Duration>) -> Result<()> {
    let failed =
        local.as_ref().err().map(|error| Field { name: "a rank's own check", value: error.to_string() });
    let well = Field { name: "a rank's own check", value: String::new() };
    let fields: Vec<&Field> = [failed.as_ref().unwrap_or(&well)].into_iter().chain(fields).collect();
    let mut tally = Tally::of(&fields.iter().map(|field| number(field)).collect::<Vec<_>>());
    count(comm, &mut tally, limit)?;
    if tally.missing > 0 {
        let error = Error::new(
            ErrorKind::Mpi,
            format!(
                "rank {} did not answer in time: it is gone, stuck, or was never called; call this on all ranks of the \
                 communicator, or allow more time; nothing was moved",
                tally.missing - 1
            ),
        );
        // What it may say later would be taken for an answer to something else.
        comm.poison(&error.to_string());
        return Err(error);
    }
    let differs = (0..fields.len()).find(|&k| tally.least[k] != tally.most[k]);
    // A rank that fails alike everywhere agrees with the others.
    let Some(field) = differs.map(|k| fields[k]) else { return local };
    disagreement(comm, field, differs == Some(0), limit)
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
fn count(comm: &Comm, tally: &mut Tally, limit: Option<Duration>) -> Result<()> {
    let begin = Instant::now();
    let rank = comm.rank();
    let children = || (rank * CHILDREN + 1..).take(CHILDREN).filter(|&child| child < comm.size());
    let bytes = tally.bytes().len();
    let levels = |mut rank: usize| {
        let mut levels = 0;
        while rank * CHILDREN + 1 < comm.size() {
            rank = rank * CHILDREN + 1;
            levels += 1;
        }
        levels
    };
    let left = |levels: u32| limit.map(|limit| (limit + GRACE * levels).saturating_sub(begin.elapsed()));
    let mut silent = Vec::new();
    for child in children() {
        let mut answer = Owned::receive(comm, bytes, child, UP)?;
        if settle(&mut answer, left(levels(rank)))? {
            tally.join(&Tally::from_bytes(&answer.take()));
        } else {
            silent.push(child);
            tally.missing = child as u64 + 1;
        }
    }
    if rank > 0 {
        let parent = (rank - 1) / CHILDREN;
        let mut said = Owned::send(comm, tally.bytes(), parent, UP)?;
        let mut answer = Owned::receive(comm, bytes, parent, DOWN)?;
        if settle(&mut answer, left(levels(0) + 2))? {
            *tally = Tally::from_bytes(&answer.take());
        } else if tally.missing == 0 {
            tally.missing = parent as u64 + 1;
        }
        said.is_done()?;
    }
    for child in children() {
        let mut said = Owned::send(comm, tally.bytes(), child, DOWN)?;
        if !silent.contains(&child) {
            settle(&mut said, left(levels(0) + 2))?;
        }
    }
    Ok(())
}

/// What all ranks say about a field: who is it that differs?
fn disagreement(comm: &Comm, field: &Field, own_check: bool, limit: Option<Duration>) -> Result<()> {
    let mut mine = [0; WORDS];
    let mut length = field.value.len().min(WORDS - 8);
    while !field.value.is_char_boundary(length) {
        length -= 1;
    }
    mine[..8].copy_from_slice(&(length as u64).to_ne_bytes());
    mine[8..8 + length].copy_from_slice(&field.value.as_bytes()[..length]);
    let mut all = vec![0; WORDS * comm.size()];
    // All are here: they have just agreed to disagree.
    comm.all_gather_within(&mine, &mut all, limit)?;
    let said: Vec<String> = all
        .chunks_exact(WORDS)
        .map(|words| {
            let length = u64::from_ne_bytes(words[..8].try_into().unwrap_or_default()) as usize;
            String::from_utf8_lossy(&words[8..8 + length.min(WORDS - 8)]).into_owned()
        })
        .collect();
    if own_check {
        let (rank, why) = said.iter().enumerate().find(|(_, said)| !said.is_empty()).unwrap_or((0, &said[0]));
        return Err(Error::new(ErrorKind::Mismatch, format!("rank {rank}: {why}; nothing was moved")));
    }
    // What most ranks say is taken for right; among equals what the first says.
    let votes = |value: &String| said.iter().filter(|other| *other == value).count();
    let usual = said.iter().enumerate().max_by_key(|(rank, value)| (votes(value), usize::MAX - rank));
    let (usual_rank, usual) = usual.unwrap_or((0, &said[0]));
    let (rank, other) = said.iter().enumerate().find(|(_, value)| *value != usual).unwrap_or((0, usual));
    Err(Error::new(
        ErrorKind::Mismatch,
        format!(
            "ranks disagree on {}: rank {rank} was given {other}, rank {usual_rank} was given {usual}; give all ranks the same; \
             nothing was moved",
            field.name
        ),
    ))
}

/// Waits for a message; false if it does not get through in time.
fn settle(message: &mut Owned, within: Option<Duration>) -> Result<bool> {
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
