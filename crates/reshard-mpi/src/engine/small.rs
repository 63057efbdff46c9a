//! Small arrays, for ranks that have agreed on everything already: lists of copies, made by each rank for itself.
//!
//! An engine agrees before it moves anything, shares memory and compiles routes: for a small array that moves once or twice that takes
//! longer than all else. Here what a rank sends is packed into one buffer, all for the first rank first, and what it
//! receives is unpacked; how the buffers travel is up to the caller.

#![allow(unsafe_code)]

use reshard::engine::{BufferTable, RawPart};
use reshard_plan::{Error, ErrorKind, MemoryRuns, Plan, Result};
use std::sync::Arc;

/// One rank's side of moving the one array of a plan.
#[doc(hidden)]
pub struct SmallMove {
    plan: Arc<Plan>,
    rank: u64,
    /// For each rank, where what it is sent begins in the buffer; and where the buffer ends.
    at: Vec<usize>,
    /// What is packed, in the order of the buffer.
    sends: Vec<Copies>,
    /// What is unpacked: from which rank, how many bytes, and the copies.
    receives: Vec<(usize, usize, Copies)>,
    /// What this rank keeps.
    own: Vec<Copies>,
    table: BufferTable,
}

/// Runs in bytes, repeated at some offsets.
struct Copies {
    runs: Vec<[usize; 3]>,
    offsets: Vec<[usize; 2]>,
}

impl Copies {
    fn new(runs: &MemoryRuns, elem: u64) -> Self {
        let bytes = |elems: u64| elems.wrapping_mul(elem) as usize;
        Self {
            runs: runs.runs.iter().map(|run| [run.from, run.to, run.elems].map(bytes)).collect(),
            offsets: runs.offsets.iter().map(|&(from, to)| [from, to].map(bytes)).collect(),
        }
    }

    fn bytes(&self) -> usize {
        self.offsets.len() * self.runs.iter().map(|[_, _, bytes]| bytes).sum::<usize>()
    }

    /// Calls `each` with where each run is in the source and in the destination, and its bytes.
    #[inline]
    fn each(&self, mut each: impl FnMut(usize, usize, usize)) {
        for [from, to] in &self.offsets {
            for [run_from, run_to, bytes] in &self.runs {
                each(from.wrapping_add(*run_from), to.wrapping_add(*run_to), *bytes);
            }
        }
    }
}

/// Copies `bytes` bytes; the lengths of single elements without a call.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    /// # Safety
    /// As for [`copy`].
    #[inline]
    unsafe fn one<T>(from: *const u8, to: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) }
    }
    // SAFETY: promised by the caller.
    unsafe {
        match bytes {
            4 => one::<u32>(from, to),
            8 => one::<u64>(from, to),
            16 => one::<[u64; 2]>(from, to),
            bytes => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

impl SmallMove {
    /// Prepares the move of a plan that lists the peers of `rank`, one of `ranks`. Fails for a triangle.
    pub fn new(plan: Arc<Plan>, rank: usize, ranks: usize) -> Result<Self> {
        let refused = |why: &str| Error::new(ErrorKind::Unsupported, format!("a small move is {why}"));
        let array = plan.arrays().first().ok_or_else(|| refused("one array, and none was given"))?;
        if plan.arrays().len() > 1 || array.wanted().triangle().is_some() {
            return Err(refused("one array, whole rectangles of it"));
        }
        let rank = rank as u64;
        let elem = array.wanted().elem_bytes();
        let (mut sends, mut receives, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for target in array.targets().iter().filter(|target| target.elems() > 0) {
            for place in array.places_of(target, rank) {
                let unlisted = || refused("what a plan lists, with the peers of a rank");
                let source = array.source_at(target, place).ok_or_else(unlisted)?;
                let source = array.sources()[source].rank;
                let copies = || -> Result<Copies> {
                    let runs = array.memory_runs(target, place).ok_or_else(unlisted)?;
                    Ok(Copies::new(&runs, elem))
                };
                match (source == rank, target.rank == rank) {
                    (true, true) => own.push(copies()?),
                    (true, false) => sends.push((target.rank as usize, copies()?)),
                    (false, true) => {
                        let copies = copies()?;
                        receives.push((source as usize, copies.bytes(), copies));
                    }
                    (false, false) => {}
                }
            }
        }
        sends.sort_by_key(|(rank, _)| *rank);
        if receives.iter().enumerate().any(|(k, one)| receives[..k].iter().any(|other| other.0 == one.0)) {
            return Err(refused("one box from each rank to each"));
        }
        let mut at = vec![0; ranks + 1];
        for (rank, copies) in &sends {
            at[rank + 1] = copies.bytes();
        }
        (0..ranks).for_each(|rank| at[rank + 1] += at[rank]);
        let sends = sends.into_iter().map(|(_, copies)| copies).collect();
        let table = BufferTable::new(Arc::clone(&plan));
        Ok(Self { plan, rank, at, sends, receives, own, table })
    }

    /// For each rank, where what it is sent begins in the buffer; and where the buffer ends.
    pub fn send_at(&self) -> &[usize] {
        &self.at
    }

    /// The ranks that send something, and how many bytes.
    pub fn receives(&self) -> impl Iterator<Item = (usize, usize)> {
        self.receives.iter().map(|&(rank, bytes, _)| (rank, bytes))
    }

    /// Elements that this rank's source part and its destination part span in memory; 0 if it has none.
    pub fn lens(&self) -> [usize; 2] {
        let array = &self.plan.arrays()[0];
        let source = array.source_of(self.rank).map(|source| array.sources()[source].span);
        let target = array.target_of(self.rank).map(|target| array.targets()[target].span);
        [source, target].map(|span| span.unwrap_or(0) as usize)
    }

    /// Packs what this rank sends. Fails if `into` is too short, or a part is not as the plan says.
    ///
    /// # Safety
    /// As for [`Own::raw`](crate::Own::raw); `into` is nothing of them.
    pub unsafe fn pack(&mut self, from: RawPart, to: RawPart, into: &mut [u8]) -> Result<()> {
        let Self { rank, at, sends, table, .. } = self;
        let bytes = at.last().copied().unwrap_or(0);
        if into.len() < bytes {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("{bytes} bytes are to be packed into {}", into.len()),
            ));
        }
        let mut data = table.fill();
        // SAFETY: promised by the caller.
        unsafe { data.enter_own_raw(0, *rank, from, to, None)? };
        let (from, _) = data.own_of(0, *rank);
        let mut next = into.as_mut_ptr();
        for copies in sends.iter() {
            // SAFETY: all offsets are those of elements of the plan, within the span of the part, which was checked; there is room for
            // the sum of all that is packed.
            copies.each(|offset, _, bytes| unsafe {
                copy(from.add(offset), next, bytes);
                next = next.add(bytes);
            });
        }
        data.clear();
        Ok(())
    }

    /// Unpacks what this rank receives, and copies what it keeps. `sent` gives the bytes of each rank that sends something, where it
    /// is given how many there are. If it fails, nothing is written.
    ///
    /// # Safety
    /// As for [`Own::raw`](crate::Own::raw); what `sent` gives is nothing of them.
    pub unsafe fn unpack<'a>(
        &mut self,
        from: RawPart,
        to: RawPart,
        sent: impl Fn(usize, usize) -> Option<&'a [u8]>,
    ) -> Result<()> {
        let Self { rank, receives, own, table, .. } = self;
        let mut data = table.fill();
        // SAFETY: promised by the caller.
        unsafe { data.enter_own_raw(0, *rank, from, to, None)? };
        let (from, to) = data.own_of(0, *rank);
        let all =
            || receives.iter().map(|(rank, bytes, copies)| (*rank, sent(*rank, *bytes), *bytes, copies));
        if let Some((rank, ..)) =
            all().find(|(_, sent, bytes, _)| sent.is_none_or(|sent| sent.len() != *bytes))
        {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("rank {rank} has not sent what was expected"),
            ));
        }
        for (_, sent, bytes, copies) in all() {
            let Some(sent) = sent.filter(|sent| sent.len() == bytes) else { continue };
            let mut next = sent.as_ptr();
            // SAFETY: as in `pack`, with the destination.
            copies.each(|_, offset, bytes| unsafe {
                copy(next, to.add(offset), bytes);
                next = next.add(bytes);
            });
        }
        // SAFETY: as above; a source that the destination overlaps was copied.
        own.iter().for_each(|copies| {
            copies.each(|source, target, bytes| unsafe {
                copy(from.add(source), to.add(target), bytes);
            })
        });
        data.clear();
        Ok(())
    }
}
