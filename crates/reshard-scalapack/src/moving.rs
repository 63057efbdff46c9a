//! A call from its arguments to the data in place: checked, agreed, planned or found among earlier ones, run.
//!
//! Processes that share memory meet in one round of a gather, in which each says what it is asked for. A process that has said the same
//! before gives what it sent then, too: if all say what they said then, that is the whole call. Others meet in a
//! reduction. Nothing of B is written before all have agreed.

#![allow(unsafe_code)]

use crate::agreement::{
    AgreedCall, Outcome, SAID_WORDS, Said, disagreement, own_number, read, reduced, said, sends, words,
};
use crate::arguments::{Arguments, Scales};
use crate::errors::CallError;
use crate::groups::{Group, Kept, Small, lock};
use crate::host::{Host, Width, host};
use crate::planning::{Way, engine, small, small_bytes, way};
use crate::request::Request;
use crate::routine::{Element, Shape};
use crate::settings::Settings;
use crate::small::SmallMove;
use reshard::Number;
use reshard::engine::RawPart;
use reshard::num_complex::Complex;
use reshard_mpi::mpi::Reduce;
use reshard_mpi::{Comm, Gathered, MpiEngine, NodeGather, NotGathered, Own};
use reshard_plan::Error;
use std::sync::{Mutex, TryLockError};

/// Bytes of the text in which a process says what it was given, or why it refuses.
const TEXT_BYTES: usize = 512;

/// A slot of a gather begins with the number of the move whose data it has, and what its process says; then come, for each process, where
/// its data begins, and the data.
const HEAD_BYTES: usize = (1 + SAID_WORDS) * WORD;
const WORD: usize = size_of::<u64>();

/// In the place of a number: no data, or none whatever the move.
const NO_MOVE: u64 = 0;
const ANY_MOVE: u64 = u64::MAX;

/// What a call did.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub bytes: u64,
    pub mover: &'static str,
    /// The plan was made by an earlier call.
    pub cached: bool,
    /// It took one round.
    pub at_once: bool,
    /// This process is the first of those that call.
    pub first: bool,
}

/// A call on its way.
struct Calling<'a, I> {
    call: &'a Arguments<I>,
    comm: Comm,
    request: Result<Request, String>,
    said: Said,
    elem: u64,
    settings: &'a Settings,
}

/// What a reduction says: the call, and the numbers of all processes.
type Reduced = (Box<AgreedCall>, Vec<u64>);

/// Why a call did not come about in a gather.
enum Failed {
    /// The gather was dropped, before anything was agreed: there is another way.
    Dropped,
    /// This rank gave the call up.
    GivenUp {
        rank: usize,
    },
    Error(CallError),
}

/// What became of a call.
#[derive(Debug)]
pub enum Done {
    /// There was nothing to move.
    Nothing,
    Moved(Moved),
    /// All processes agree that the real routine is to be called.
    Forwards,
}

/// Moves what a call asks for.
///
/// # Safety
/// As for the routine: descriptors have nine entries, parts are as large as they say, nobody else uses them meanwhile.
pub unsafe fn redistribute<I: Width>(call: &Arguments<I>, settings: &Settings) -> Result<Done, CallError> {
    let own = |message: String| CallError {
        message: format!("{}: {message}", call.routine),
        says: true,
        agreed: false,
    };
    if call.rows == 0 || call.columns == 0 {
        return Ok(Done::Nothing);
    }
    // Two at once could meet in another order on another process. The BLACS could not do it, either.
    static CALLING: Mutex<()> = Mutex::new(());
    let _calling = match CALLING.try_lock() {
        Err(TryLockError::WouldBlock) => {
            return Err(own("it was called by two threads at once; let one thread make all calls".into()));
        }
        calling => calling,
    };
    let host: &Host<I> = host::<I>().map_err(own)?;
    // SAFETY: promised by the caller.
    let request = match unsafe { Request::new(call, settings.strict, |context| host.blacs.grid(context)) } {
        Ok(None) => return Ok(Done::Nothing),
        Ok(Some(request)) => Ok(request),
        Err(why) => Err(why),
    };
    let comm = host.communicator(call).map_err(own)?;
    let said = said(request.as_ref().map_err(|_| ()));
    let elem = call.routine.element.bytes(size_of::<I>());
    let calling = Calling { call, comm, request, said, elem, settings };
    let kept = Kept::get();
    if let Some((processes, group)) = kept.gathering(&calling.comm) {
        // SAFETY: promised by the caller.
        match unsafe { calling.gather(&mut lock(&group)) } {
            Ok(done) => return Ok(done),
            Err(Failed::Error(error)) => {
                // An error on which all agree leaves everything as it was.
                if !error.agreed {
                    kept.drop_group(&processes);
                }
                return Err(error);
            }
            Err(failed @ Failed::GivenUp { .. }) => {
                kept.drop_group(&processes);
                return Err(calling.given_up(failed));
            }
            Err(Failed::Dropped) => kept.drop_group(&processes),
        }
    }
    let Some((agreed, processes)) = calling.reduce(kept)? else { return Ok(Done::Forwards) };
    // SAFETY: promised by the caller.
    let moved = unsafe { calling.run_in_group(kept, &agreed, &processes) };
    moved.map(Done::Moved).inspect_err(|_| {
        // Others may not have noticed, and keep what this process does not: it says so from now on.
        kept.drop_group(&processes);
    })
}

impl<I: Width> Calling<'_, I> {
    /// An error of this process.
    fn own_error(&self, message: &str) -> CallError {
        let message = format!("{}: rank {}: {message}", self.call.routine, self.comm.rank());
        CallError { message, says: true, agreed: false }
    }

    fn destination(&self) -> &'static str {
        self.call.routine.matrices()[1]
    }

    /// An error of this process, before anything was written.
    fn before(&self, error: &Error) -> CallError {
        self.own_error(&format!("{error}; {} is as it was", self.destination()))
    }

    /// An error that all processes have.
    fn agreed_error(&self, message: &str) -> CallError {
        let message = format!("{}: {message}; {} is as it was", self.call.routine, self.destination());
        CallError { message, says: self.comm.rank() == 0, agreed: true }
    }

    /// Agrees in one reduction; none if the real routine is wanted. Collective.
    fn reduce(&self, kept: &Kept) -> Result<Option<Reduced>, CallError> {
        let failed = |error: Error| self.own_error(&error.to_string());
        let Self { comm, settings, .. } = self;
        let mut all = words(&self.said, comm.rank(), comm.size(), &kept.state());
        // Without a deadline one blocking call, which is faster.
        match settings.deadline {
            None => comm.all_reduce(&mut all, Reduce::Min),
            deadline => comm.all_reduce_within(&mut all, Reduce::Min, deadline),
        }
        .map_err(failed)?;
        let (agreed, dropped, processes) = match read(&all, self.call.routine, comm.size()) {
            Outcome::Agreed { call, dropped, processes } => (call, dropped, processes),
            Outcome::Forwards => return Ok(None),
            other => return Err(self.explain(&other)),
        };
        if dropped {
            let mut known = [u64::from(kept.knows(&processes))];
            comm.all_reduce_within(&mut known, Reduce::Min, settings.deadline).map_err(failed)?;
            if known == [0] {
                kept.forget(&processes);
            }
        }
        Ok(Some((agreed, processes)))
    }

    /// The error of processes that do not agree. Collective.
    fn explain(&self, outcome: &Outcome) -> CallError {
        let failed = |error: Error| self.own_error(&error.to_string());
        let comm = &self.comm;
        match outcome {
            Outcome::Agreed { .. } | Outcome::Forwards => {
                self.own_error("all agree, and it was taken for an error")
            }
            Outcome::Incomplete(why) => self.agreed_error(why),
            Outcome::Refused { rank } => {
                let mut text = text_bytes(self.request.as_ref().err().map_or("", String::as_str));
                match comm.broadcast(*rank, &mut text) {
                    Ok(()) => self.agreed_error(&format!("rank {rank}: {}", text_of(&text))),
                    Err(error) => failed(error),
                }
            }
            Outcome::Differ { number } => {
                let own = self.request.as_ref().ok().and_then(|request| own_number(request, *number));
                let mut all = vec![0; TEXT_BYTES * comm.size()];
                if let Err(error) = comm.all_gather(&text_bytes(own.as_deref().unwrap_or_default()), &mut all)
                {
                    return failed(error);
                }
                let said: Vec<Option<String>> = all
                    .chunks_exact(TEXT_BYTES)
                    .map(|text| Some(text_of(text)).filter(|text| !text.is_empty()))
                    .collect();
                self.agreed_error(&disagreement(&self.call.routine, *number, &said))
            }
        }
    }

    fn moved(&self, agreed: &AgreedCall, mover: &'static str, cached: bool) -> Moved {
        let (bytes, first) = (agreed.bytes(self.elem), self.comm.rank() == 0);
        Moved { bytes, mover, cached, at_once: false, first }
    }

    /// The parts of this process, if they span so many elements.
    fn parts(&self, lens: [usize; 2]) -> [RawPart; 2] {
        let part = |part: *mut u8, elems: usize| match elems {
            0 => RawPart::NONE,
            elems => RawPart::new(part, elems * self.elem as usize),
        };
        [part(self.call.a.part, lens[0]), part(self.call.b.part, lens[1])]
    }

    /// Meets the others in a gather, and moves the data: with the first round, if all guess what it is.
    ///
    /// # Safety
    /// As for [`redistribute`].
    unsafe fn gather(&self, group: &mut Group) -> Result<Done, Failed> {
        let ranks = self.comm.size();
        let Group { gather: Some(gather), small: moves, .. } = &mut *group else {
            return Err(Failed::Dropped);
        };
        gather.check().map_err(|why| self.not_gathered(why))?;
        let mut guess = if sends(&self.said) { NO_MOVE } else { ANY_MOVE };
        if self.request.is_err() {
            guess = NO_MOVE;
        } else if let Some(number) = moves.meant(&self.said).filter(|_| guess != ANY_MOVE)
            && let Some(Small::Gathered { small, .. }) = moves.look(number)
        {
            // SAFETY: promised by the caller: what this process says is what it said then, so its parts are as they were.
            if unsafe { self.pack(small, gather.slot()) }.is_ok() {
                guess = number;
            }
        }
        self.head(guess, gather.slot());
        let gathered = gather.round(self.settings.deadline).map_err(|why| self.not_gathered(why))?;
        if let Some(number) = agreed_guess(&gathered, ranks)
            && let Some(Small::Gathered { small, expected, bytes }) = moves.look(number)
            && expected.len() == ranks
            && (0..ranks).all(|rank| said_by(gathered.of(rank)).eq(expected[rank].iter().copied()))
        {
            // SAFETY: promised by the caller.
            let done = unsafe { self.unpack(small, &gathered) };
            done.map_err(|error| Failed::Error(self.before(&error)))?;
            let bytes = *bytes;
            // All processes use it now.
            moves.get(number);
            let first = self.comm.rank() == 0;
            return Ok(Done::Moved(Moved { bytes, mover: "gather", cached: true, at_once: true, first }));
        }
        let all: Vec<Said> = (0..ranks)
            .map(|rank| {
                let mut said = [0; SAID_WORDS];
                said.iter_mut().zip(said_by(gathered.of(rank))).for_each(|(word, said)| *word = said);
                said
            })
            .collect();
        let agreed = match read(&reduced(&all), self.call.routine, ranks) {
            Outcome::Agreed { call, .. } => call,
            Outcome::Forwards => return Ok(Done::Forwards),
            other => return Err(Failed::Error(self.explain(&other))),
        };
        // SAFETY: promised by the caller.
        let moved = unsafe { self.run(group, &agreed, &all) };
        moved.map(Done::Moved).map_err(|failed| Failed::Error(self.given_up(failed)))
    }

    fn not_gathered(&self, why: NotGathered) -> Failed {
        match why {
            NotGathered::Dropped => Failed::Dropped,
            NotGathered::GivenUp { rank } => Failed::GivenUp { rank },
            NotGathered::Failed(error) => Failed::Error(self.before(&error)),
        }
    }

    /// The error of a call for which there is no other way.
    fn given_up(&self, failed: Failed) -> CallError {
        let by = match failed {
            Failed::Error(error) => return error,
            Failed::GivenUp { rank } => format!("rank {rank}"),
            Failed::Dropped => "another process".into(),
        };
        self.own_error(&format!("{by} gave the call up; {} is as it was", self.destination()))
    }

    /// Runs a call on which a reduction has agreed, with the group of its processes, made if it is not known.
    ///
    /// # Safety
    /// As for [`redistribute`].
    unsafe fn run_in_group(
        &self,
        kept: &Kept,
        agreed: &AgreedCall,
        processes: &[u64],
    ) -> Result<Moved, CallError> {
        let group = kept.group(processes, &self.comm, self.settings).map_err(|error| self.before(&error))?;
        // SAFETY: promised by the caller.
        unsafe { self.run(&mut lock(&group), agreed, &[]) }.map_err(|failed| self.given_up(failed))
    }

    /// Runs an agreed call, as an earlier one or a new one. `said` is what all processes said, if they met in a gather.
    ///
    /// # Safety
    /// As for [`redistribute`].
    unsafe fn run(&self, group: &mut Group, agreed: &AgreedCall, said: &[Said]) -> Result<Moved, Failed> {
        let before = |error: Error| Failed::Error(self.before(&error));
        if let Way::Engine = way(agreed, self.elem, group, self.settings) {
            let (engine, cached) = engine(agreed, self.elem, group, self.settings).map_err(before)?;
            let [from, to] = self.parts([engine.source_len(0), engine.target_len(0)]);
            // SAFETY: the caller promises parts as large as the descriptors say, which is what was prepared.
            let run = unsafe { self.run_engine(engine, from, to) };
            run.map_err(|error| Failed::Error(self.own_error(&error.to_string())))?;
            return Ok(self.moved(agreed, engine.mover().name(), cached));
        }
        let known = group.small.number(agreed);
        let number = match known {
            Some(number) => number,
            None => {
                // The others wait in the next round.
                let small = small(agreed, self.elem, group)
                    .inspect_err(|_| group.gather.iter().for_each(NodeGather::give_up));
                let small = small.map_err(before)?;
                group.small.insert(agreed, small, small_bytes(agreed, self.comm.size()))
            }
        };
        let Group { comm, gather, small: moves, .. } = group;
        let mover = match (moves.get(number), gather) {
            (Some(Small::Gathered { small, expected, .. }), Some(gather)) => {
                expected.clear();
                expected.extend_from_slice(said);
                // SAFETY: promised by the caller.
                let packed = unsafe { self.pack(small, gather.slot()) };
                packed.inspect_err(|_| gather.give_up()).map_err(before)?;
                self.head(number, gather.slot());
                let gathered = gather.round(self.settings.deadline).map_err(|why| self.not_gathered(why))?;
                // SAFETY: promised by the caller.
                unsafe { self.unpack(small, &gathered) }.map_err(before)?;
                "gather"
            }
            (Some(Small::Collective(small)), _) => {
                // SAFETY: promised by the caller.
                unsafe { small.run(comm, self.call.a.part, self.call.b.part) }
                    .map_err(|error| Failed::Error(self.own_error(&error.to_string())))?;
                "alltoallv"
            }
            _ => return Err(Failed::Error(self.own_error("a plan that was kept is gone"))),
        };
        if !said.is_empty() {
            moves.remember(self.said, number);
        }
        Ok(self.moved(agreed, mover, known.is_some()))
    }

    /// Runs an engine, with the factors of p?tran.
    ///
    /// # Safety
    /// As for [`Own::raw`].
    unsafe fn run_engine(&self, engine: &mut MpiEngine, from: RawPart, to: RawPart) -> Result<(), Error> {
        let Arguments { routine, scales, .. } = self.call;
        let conjugated = routine.shape == Shape::Transposed { conjugated: true };
        // SAFETY: promised by the caller.
        let report = unsafe {
            match (scales, routine.element) {
                (Some(scales), Element::Single) => engine.run(scaled::<f32>(from, to, scales, conjugated)),
                (Some(scales), Element::Double) => engine.run(scaled::<f64>(from, to, scales, conjugated)),
                (Some(scales), Element::Complex) => {
                    engine.run(scaled::<Complex<f32>>(from, to, scales, conjugated))
                }
                (Some(scales), Element::DoubleComplex) => {
                    engine.run(scaled::<Complex<f64>>(from, to, scales, conjugated))
                }
                _ => engine.run(Own::<u8>::raw(from, to).as_bytes()),
            }
        };
        report.map(drop)
    }

    /// Writes the beginning of a slot.
    fn head(&self, number: u64, slot: &mut [u8]) {
        let words = std::iter::once(number).chain(self.said);
        for (place, word) in slot.chunks_exact_mut(WORD).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Packs what this process sends into a slot.
    ///
    /// # Safety
    /// As for [`redistribute`]; the parts span what the move says.
    unsafe fn pack(&self, small: &SmallMove, slot: &mut [u8]) -> Result<(), Error> {
        let (table, data) = slot[HEAD_BYTES..].split_at_mut((self.comm.size() + 1) * WORD);
        for (place, at) in table.chunks_exact_mut(WORD).zip(small.send_at()) {
            place.copy_from_slice(&(*at as u64).to_ne_bytes());
        }
        // SAFETY: promised by the caller; the slot is no part of a matrix.
        unsafe { small.pack(self.call.a.part, data) }
    }

    /// Unpacks what all processes have sent.
    ///
    /// # Safety
    /// As for [`redistribute`].
    unsafe fn unpack(&self, small: &SmallMove, gathered: &Gathered<'_>) -> Result<(), Error> {
        let me = self.comm.rank();
        let data_at = HEAD_BYTES + (self.comm.size() + 1) * WORD;
        let sent = |rank: usize, bytes: usize| {
            let slot = gathered.of(rank);
            let at = word(slot, HEAD_BYTES + me * WORD) as usize;
            (word(slot, HEAD_BYTES + (me + 1) * WORD) as usize == at + bytes).then_some(())?;
            slot.get(data_at + at..)?.get(..bytes)
        };
        // SAFETY: promised by the caller; slots are no parts of a matrix.
        unsafe { small.unpack(self.call.a.part, self.call.b.part, sent) }
    }
}

/// The parts of a call of p?tran.
///
/// # Safety
/// As for [`Own::raw`].
unsafe fn scaled<T: Number>(
    from: RawPart,
    to: RawPart,
    scales: &Scales,
    conjugated: bool,
) -> Own<'static, T> {
    let factor = |bytes: &[u8; 16]| reshard::bytemuck::pod_read_unaligned::<T>(&bytes[..size_of::<T>()]);
    // SAFETY: promised by the caller.
    let own = unsafe { Own::<T>::raw(from, to) }.scaled(factor(&scales.alpha), factor(&scales.beta));
    if conjugated { own.conjugated() } else { own }
}

/// The word at an offset of a slot.
fn word(slot: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(slot[at..at + WORD].try_into().unwrap_or_default())
}

/// What the process of a slot says.
fn said_by(slot: &[u8]) -> impl Iterator<Item = u64> {
    (1..=SAID_WORDS).map(|k| word(slot, k * WORD))
}

/// The move whose data all have given, if it is the same.
fn agreed_guess(gathered: &Gathered<'_>, ranks: usize) -> Option<u64> {
    let mut guesses = (0..ranks).map(|rank| word(gathered.of(rank), 0)).filter(|&guess| guess != ANY_MOVE);
    let first = guesses.next().filter(|&guess| guess != NO_MOVE)?;
    guesses.all(|guess| guess == first).then_some(first)
}

fn text_bytes(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes()[..text.len().min(TEXT_BYTES)].to_vec();
    bytes.resize(TEXT_BYTES, 0);
    bytes
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string()
}
