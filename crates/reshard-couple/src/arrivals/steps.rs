//! What has come of the steps of an array: which messages were asked for, which are there, and the frames that were not unpacked yet.

use crate::frame::data_bytes;
use crate::service::ConnectionId;
use crate::slots::{Filled, ReadSlot, SlotReader};
use crate::terms::Announced;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The steps of one array.
#[derive(Default)]
pub struct Arriving {
    /// Bytes of the message from each rank to each that this process hosts.
    pub expected: HashMap<(u32, u32), u64>,
    pub element: u64,
    /// Steps that the producer keeps for it.
    pub depth: u32,
    /// The processes of the producer from which something comes.
    pub processes: Vec<u32>,
    /// Where connections come and go: the process of each rank from which something comes, and how many messages come from each process.
    pub process_of: HashMap<u32, u32>,
    pub messages_of: HashMap<u32, usize>,
    /// Steps before this one are taken, or were given up.
    pub first: u64,
    /// Steps that were asked for, and what has come of them.
    pub steps: BTreeMap<u64, Arrived>,
    /// Steps that were announced, and not taken yet.
    pub announced: VecDeque<Announced>,
    /// There are no more.
    pub ended: bool,
    /// The producer was asked for the next, where steps may be dropped.
    pub asked: bool,
}

/// What has come of a step.
#[derive(Default)]
pub struct Arrived {
    /// Bytes that have come of each message.
    pub(super) messages: HashMap<(u32, u32), u64>,
    pub(super) complete: usize,
    /// Where connections come and go: messages that are complete, by process, and processes of which all are.
    pub(super) complete_of: HashMap<u32, usize>,
    pub(super) done: Vec<u32>,
    /// Frames that were not unpacked yet; those of a message are in their order.
    pub(super) frames: Vec<ArrivedFrame>,
}

/// A frame that has come.
pub struct ArrivedFrame {
    pub from: u32,
    pub to: u32,
    pub(super) memory: FrameMemory,
}

/// Where the bytes of a frame are.
pub(super) enum FrameMemory {
    Own(Vec<u8>),
    /// Shared with the other end of this connection.
    Slot(ReadSlot, ConnectionId),
}

impl ArrivedFrame {
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            FrameMemory::Own(bytes) => bytes,
            FrameMemory::Slot(slot, _) => slot,
        }
    }
}

/// What there is to do about a step that is wanted.
pub enum Coming {
    /// These frames are to be unpacked, and given back.
    Frames(Vec<ArrivedFrame>),
    /// All is there that this process of the producer sends.
    Done(u32),
    Complete,
    Over(String),
}

impl Arriving {
    /// Messages come from these ranks, in the order of the schedule.
    pub fn comes_from(&mut self, ranks: impl Iterator<Item = u64>, process_of: impl Fn(u64) -> u32) {
        for rank in ranks {
            let process = process_of(rank);
            self.process_of.insert(rank as u32, process);
            let messages = self.messages_of.entry(process).or_default();
            if *messages == 0 {
                self.processes.push(process);
            }
            *messages += 1;
        }
    }

    /// True if all messages of a step are there.
    pub fn is_complete(&self, sequence: u64) -> bool {
        self.expected.is_empty()
            || self.steps.get(&sequence).is_some_and(|step| step.complete == self.expected.len())
    }

    /// Fails unless so many bytes of a message were asked for, and have not come yet.
    pub(super) fn check(&self, sequence: u64, message: (u32, u32), bytes: u32) -> Result<(), String> {
        let step = self.steps.get(&sequence).ok_or_else(out_of_turn)?;
        let expected = self.expected.get(&message).ok_or_else(out_of_turn)?;
        let got = step.messages.get(&message).copied().unwrap_or(0);
        let whole = bytes > 0 && u64::from(bytes).is_multiple_of(self.element);
        let fits = whole && bytes as usize <= data_bytes(self.element) && got + u64::from(bytes) <= *expected;
        if fits { Ok(()) } else { Err(out_of_turn()) }
    }

    /// Counts bytes of a message that have come, and takes note of messages and processes of which all have.
    pub(super) fn count(&mut self, sequence: u64, message: (u32, u32), bytes: u64) {
        let step = self.steps.entry(sequence).or_default();
        let got = step.messages.entry(message).or_default();
        *got += bytes;
        if Some(&*got) != self.expected.get(&message) {
            return;
        }
        step.complete += 1;
        if let Some(&process) = self.process_of.get(&message.0) {
            let complete = step.complete_of.entry(process).or_default();
            *complete += 1;
            step.done.extend((self.messages_of.get(&process) == Some(complete)).then_some(process));
        }
    }

    /// The processes of which not all of a step is there, in the order of the schedule.
    pub fn not_done(&self, sequence: u64) -> Vec<u32> {
        let step = self.steps.get(&sequence);
        let complete = |process: &u32| step.and_then(|step| step.complete_of.get(process)).copied();
        let done = |process: &u32| complete(process) == self.messages_of.get(process).copied();
        self.processes.iter().copied().filter(|process| !done(process)).collect()
    }

    /// Frames of a step that were not unpacked yet.
    pub fn frames(&self, sequence: u64) -> impl Iterator<Item = &ArrivedFrame> {
        self.steps.get(&sequence).into_iter().flat_map(|step| &step.frames)
    }

    /// A message of a step that is not there.
    pub fn missing(&self, sequence: u64) -> Option<(u32, u32)> {
        let step = self.steps.get(&sequence);
        let there = |key: &(u32, u32), bytes: u64| {
            step.and_then(|step| step.messages.get(key)).is_some_and(|got| *got == bytes)
        };
        self.expected.iter().filter(|(key, bytes)| !there(key, **bytes)).map(|(key, _)| *key).min()
    }
}

pub(super) fn out_of_turn() -> String {
    "the producer sent something that was not asked for".into()
}

/// Takes note of a slot that was filled.
pub(super) fn take_slot(
    arrays: &mut [Arriving],
    reader: &mut SlotReader,
    connection: ConnectionId,
    filled: &Filled,
    slot: ReadSlot,
) -> Result<(), String> {
    let array = arrays.get_mut(filled.array as usize).ok_or_else(out_of_turn)?;
    if filled.sequence < array.first && !array.steps.contains_key(&filled.sequence) {
        // Given up meanwhile.
        reader.free(&slot);
        return Ok(());
    }
    let message = (filled.from, filled.to);
    array.check(filled.sequence, message, filled.bytes)?;
    array.count(filled.sequence, message, u64::from(filled.bytes));
    let step = array.steps.entry(filled.sequence).or_default();
    let memory = FrameMemory::Slot(slot, connection);
    step.frames.push(ArrivedFrame { from: filled.from, to: filled.to, memory });
    Ok(())
}
