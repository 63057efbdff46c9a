//! Memory that two processes of one machine share: slots for frames, whose elements then go through no socket, and two queues. In one the
//! producer says which slots it filled, in the other the consumer says which it has read.
//!
//! The consumer's process makes the memory and passes it on. A slot is written by the producer alone from [`SlotWriter::take`] until it is
//! sent, and read by the consumer alone from then until it is freed: so no byte is read while it is written. Both sides have proved that
//! they know the secret, and are trusted to keep to this; what they say of slots is checked all the same.

#![allow(unsafe_code)]

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The size cannot change any more: nobody reads what is not there.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Slots begin at multiples of this.
const PAGE_BYTES: usize = 4096;

/// More are not shared: both sides keep lists of them.
const MAX_SLOTS: u32 = 1 << 24;

/// What stands at the beginning of the memory, each in a cache line of its own.
#[repr(C)]
struct Control {
    sent: QueueEnds,
    freed: QueueEnds,
    /// The consumer takes a step right now.
    receives: Line,
    /// The consumer sleeps until it is woken.
    sleeps: Line,
}

/// How many entries were ever written to a queue, and read.
#[repr(C)]
struct QueueEnds {
    written: Line,
    read: Line,
}

#[repr(C, align(64))]
struct Line(AtomicU64);

/// What is said of a slot that was filled.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    pub sequence: u64,
    pub array: u32,
    pub from: u32,
    pub to: u32,
    pub slot: u32,
    pub bytes: u32,
    pub unused: u32,
}

/// Slots of one size in memory that two processes have.
pub struct SlotMemory {
    map: MmapRaw,
    slots: u32,
    slot_bytes: usize,
}

/// Where the queues and the slots begin, and where all ends.
struct Places {
    freed: usize,
    slots: usize,
    end: usize,
}

fn places(slots: u32, slot_bytes: usize) -> Option<Places> {
    if slots == 0 || slots > MAX_SLOTS || slot_bytes == 0 {
        return None;
    }
    let room = (slots as usize).next_power_of_two();
    let freed = PAGE_BYTES.checked_add(room.checked_mul(size_of::<Filled>())?)?;
    let first =
        freed.checked_add(room.checked_mul(size_of::<u64>())?)?.checked_next_multiple_of(PAGE_BYTES)?;
    Some(Places { freed, slots: first, end: first.checked_add((slots as usize).checked_mul(slot_bytes)?)? })
}

/// What to pass to another process.
pub fn passed_memory(slots: u32, slot_bytes: usize) -> io::Result<OwnedFd> {
    let bytes = places(slots, slot_bytes).map_or(0, |places| places.end as u64);
    // Who makes a file longer than it may is killed (SIGXFSZ).
    if getrlimit(Resource::Fsize).current.is_some_and(|longest| longest < bytes) {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "shared memory is longer than files may be (ulimit -f)",
        ));
    }
    let file = memfd_create("reshard-couple", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

impl SlotMemory {
    /// New memory, and what to pass to the other process. Pages are taken only when they are first written to.
    pub fn new(slots: u32, slot_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = passed_memory(slots, slot_bytes)?;
        Ok((Self::of(&file, slots, slot_bytes)?, file))
    }

    /// Memory that another process has passed on.
    pub fn of(file: &OwnedFd, slots: u32, slot_bytes: usize) -> io::Result<Self> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let places = places(slots, slot_bytes).ok_or_else(|| {
            wrong("shared memory of no size, or of more slots than there may be, was passed")
        })?;
        if !fcntl_get_seals(file)?.contains(SEALS) || fstat(file)?.st_size as u64 != places.end as u64 {
            return Err(wrong(
                "shared memory of another size than was said, or one that may change, was passed",
            ));
        }
        Ok(Self { map: MmapOptions::new().len(places.end).map_raw(file)?, slots, slot_bytes })
    }

    fn control(&self) -> &Control {
        // SAFETY: The memory begins with a page, which begins with this; all of it is atomic, and zero is a value.
        unsafe { &*self.map.as_mut_ptr().cast::<Control>() }
    }

    fn places(&self) -> Places {
        places(self.slots, self.slot_bytes).expect("it was mapped with these")
    }

    /// The place of an entry in the queue of slots that were filled.
    fn filled(&self, number: u64) -> *mut Filled {
        let place = number as usize & ((self.slots as usize).next_power_of_two() - 1);
        // SAFETY: The queue lies within the mapping, and the place within the queue.
        unsafe { self.map.as_mut_ptr().add(PAGE_BYTES).cast::<Filled>().add(place) }
    }

    /// The place of an entry in the queue of slots that were read.
    fn freed(&self, number: u64) -> *mut u64 {
        let place = number as usize & ((self.slots as usize).next_power_of_two() - 1);
        // SAFETY: As above.
        unsafe { self.map.as_mut_ptr().add(self.places().freed).cast::<u64>().add(place) }
    }

    fn start(&self, slot: u32) -> *mut u8 {
        assert!(slot < self.slots);
        // SAFETY: The slot lies within the mapping.
        unsafe { self.map.as_mut_ptr().add(self.places().slots + slot as usize * self.slot_bytes) }
    }
}

/// The producer's end.
pub struct SlotWriter {
    memory: Arc<SlotMemory>,
    /// The one that was freed last comes first: it may still be in the caches.
    free: Vec<u32>,
    is_free: Vec<bool>,
    sent: u64,
    collected: u64,
}

impl SlotWriter {
    pub fn new(memory: Arc<SlotMemory>) -> Self {
        let free = (0..memory.slots).rev().collect();
        let is_free = vec![true; memory.slots as usize];
        Self { memory, free, is_free, sent: 0, collected: 0 }
    }

    /// Takes back what was read. An error if the other side says what cannot be.
    fn collect(&mut self) -> Result<(), String> {
        let freed = self.memory.control().freed.written.0.load(Ordering::Acquire);
        if freed.wrapping_sub(self.collected) > u64::from(self.memory.slots) {
            return Err("it freed more memory than there is".into());
        }
        while self.collected != freed {
            // SAFETY: The entry was written before the number of entries, which was read with `Acquire`, and is not written again before this
            // side has sent as many slots as there are.
            let slot = unsafe { self.memory.freed(self.collected).read_volatile() };
            self.collected += 1;
            if u32::try_from(slot).map_or(true, |slot| !self.give_back(slot)) {
                return Err("it freed memory that it did not have".into());
            }
        }
        Ok(())
    }

    /// A slot for so many bytes, if one is free.
    pub fn take(&mut self, bytes: usize) -> Result<Option<WriteSlot>, String> {
        self.collect()?;
        if bytes > self.memory.slot_bytes {
            return Err("a frame is longer than the memory that it shares for one".into());
        }
        let Some(slot) = self.free.pop() else { return Ok(None) };
        self.is_free[slot as usize] = false;
        Ok(Some(WriteSlot { memory: Arc::clone(&self.memory), slot, len: bytes }))
    }

    /// Slots that are not free.
    pub fn taken(&mut self) -> Result<usize, String> {
        self.collect()?;
        Ok(self.is_free.len() - self.free.len())
    }

    /// True while the consumer takes a step.
    pub fn is_awaited(&self) -> bool {
        self.memory.control().receives.0.load(Ordering::Relaxed) == 1
    }

    /// A slot may be written to again. False if it was free already, or there is none of this number.
    pub fn give_back(&mut self, slot: u32) -> bool {
        match self.is_free.get_mut(slot as usize) {
            Some(is_free) if !*is_free => {
                *is_free = true;
                self.free.push(slot);
                true
            }
            _ => false,
        }
    }

    /// Says that a slot was filled. True if the consumer sleeps, and is to be woken.
    pub fn send(&mut self, filled: Filled) -> bool {
        let control = self.memory.control();
        // SAFETY: There are no more entries than slots, so the one that stood there was read.
        unsafe { self.memory.filled(self.sent).write_volatile(filled) };
        self.sent += 1;
        control.sent.written.0.store(self.sent, Ordering::Release);
        fence(Ordering::SeqCst);
        control.sleeps.0.load(Ordering::Relaxed) == 1 && control.sleeps.0.swap(0, Ordering::Relaxed) == 1
    }
}

/// A slot that nobody else has.
pub struct WriteSlot {
    memory: Arc<SlotMemory>,
    slot: u32,
    len: usize,
}

impl WriteSlot {
    /// Only the first bytes are of interest.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Its number, and the bytes in it.
    pub fn filled(self) -> (u32, u32) {
        (self.slot, self.len as u32)
    }
}

impl Deref for WriteSlot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: As below.
        unsafe { std::slice::from_raw_parts(self.memory.start(self.slot), self.len) }
    }
}

impl DerefMut for WriteSlot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `take` checked that the length fits into a slot, and gives a slot to nobody else until it is given back, which it is only when
        // this has been sent and the other process has read it, or when it was dropped.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start(self.slot), self.len) }
    }
}

/// The consumer's end.
pub struct SlotReader {
    memory: Arc<SlotMemory>,
    read: u64,
    freed: u64,
}

impl SlotReader {
    pub fn new(memory: Arc<SlotMemory>) -> Self {
        Self { memory, read: 0, freed: 0 }
    }

    /// The next slot that was filled.
    pub fn next(&mut self) -> Result<Option<(Filled, ReadSlot)>, String> {
        let written = self.memory.control().sent.written.0.load(Ordering::Acquire);
        if written == self.read {
            return Ok(None);
        }
        if written.wrapping_sub(self.read) > u64::from(self.memory.slots) {
            return Err("the producer filled more memory than there is".into());
        }
        // SAFETY: The entry was written before the number of entries, which was read with `Acquire`, and is not written again before its slot is
        // freed.
        let filled = unsafe { self.memory.filled(self.read).read_volatile() };
        self.read += 1;
        if filled.slot >= self.memory.slots || filled.bytes as usize > self.memory.slot_bytes {
            return Err("the producer named memory that is not shared".into());
        }
        let slot =
            ReadSlot { memory: Arc::clone(&self.memory), slot: filled.slot, len: filled.bytes as usize };
        Ok(Some((filled, slot)))
    }

    /// A slot was read.
    pub fn free(&mut self, slot: &ReadSlot) {
        // SAFETY: There are no more entries than slots, so the one that stood there was collected.
        unsafe { self.memory.freed(self.freed).write_volatile(u64::from(slot.slot)) };
        self.freed += 1;
        self.memory.control().freed.written.0.store(self.freed, Ordering::Release);
    }

    /// Says whether a step is taken right now.
    pub fn receives(&self, receives: bool) {
        self.memory.control().receives.0.store(u64::from(receives), Ordering::Relaxed);
    }

    /// From now on it is to be woken. What was filled before must be looked for once more.
    pub fn sleeps(&self) {
        self.memory.control().sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// A slot whose bytes came from the other process.
pub struct ReadSlot {
    memory: Arc<SlotMemory>,
    slot: u32,
    len: usize,
}

impl Deref for ReadSlot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `next` checked that slot and length lie within the mapping; the other process does not write to it until it is told that the
        // slot is free.
        unsafe { std::slice::from_raw_parts(self.memory.start(self.slot), self.len) }
    }
}

/// Where a frame is packed.
pub enum Buffer {
    Own(Vec<u8>),
    Slot(WriteSlot),
}

impl Buffer {
    pub fn truncate(&mut self, len: usize) {
        match self {
            Self::Own(bytes) => bytes.truncate(len),
            Self::Slot(slot) => slot.truncate(len),
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Slot(slot) => slot,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ends(slots: u32) -> (SlotWriter, SlotReader) {
        let (there, passed) = SlotMemory::new(slots, 4096).unwrap();
        let here = SlotMemory::of(&passed, slots, 4096).unwrap();
        (SlotWriter::new(Arc::new(here)), SlotReader::new(Arc::new(there)))
    }

    fn send(writer: &mut SlotWriter, slot: WriteSlot, sequence: u64) -> bool {
        let (slot, bytes) = slot.filled();
        writer.send(Filled { sequence, array: 1, from: 2, to: 3, slot, bytes, unused: 0 })
    }

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let (mut writer, mut reader) = ends(3);
        assert!(writer.take(4097).is_err());
        // Long enough for the queues to begin anew.
        for round in 0..50 {
            let slots: Vec<WriteSlot> = (0..3).map(|_| writer.take(4096).unwrap().unwrap()).collect();
            assert!(writer.take(1).unwrap().is_none() && writer.taken() == Ok(3));
            for (number, mut slot) in (1..).zip(slots) {
                slot.fill(number + round);
                slot.truncate(100 * number as usize);
                assert!(!send(&mut writer, slot, u64::from(number)));
            }
            for number in 1..4 {
                let (filled, slot) = reader.next().unwrap().unwrap();
                assert_eq!((filled.sequence, filled.to), (u64::from(number), 3));
                assert_eq!(*slot, vec![number + round; 100 * number as usize]);
                reader.free(&slot);
            }
            assert!(reader.next().unwrap().is_none() && writer.taken() == Ok(0));
        }
    }

    #[test]
    fn who_sleeps_is_woken_once() {
        let (mut writer, mut reader) = ends(2);
        reader.sleeps();
        let slots = [(); 2].map(|()| writer.take(1).unwrap().unwrap());
        assert_eq!(slots.map(|slot| send(&mut writer, slot, 0)), [true, false]);
        assert!(reader.next().unwrap().is_some());
        reader.receives(true);
        assert!(writer.is_awaited());
    }

    /// Two threads, as fast as they can: nothing is lost, and nothing read that was not written whole.
    #[test]
    fn slots_go_round_between_two_threads() {
        let (mut writer, mut reader) = ends(4);
        let rounds: u64 = if cfg!(miri) { 50 } else { 200_000 };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..rounds {
                    let mut slot = loop {
                        match writer.take(64).unwrap() {
                            Some(slot) => break slot,
                            None => std::thread::yield_now(),
                        }
                    };
                    slot.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = number.to_ne_bytes());
                    send(&mut writer, slot, number);
                }
            });
            for number in 0..rounds {
                let (filled, slot) = loop {
                    match reader.next().unwrap() {
                        Some(next) => break next,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(filled.sequence, number);
                assert!(slot.as_chunks::<8>().0.iter().all(|word| *word == number.to_ne_bytes()));
                reader.free(&slot);
            }
        });
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (mut writer, mut reader) = ends(2);
        let slot = writer.take(8).unwrap().unwrap();
        let (slot, bytes) = slot.filled();
        let right = Filled { sequence: 0, array: 0, from: 0, to: 0, slot, bytes, unused: 0 };
        writer.send(Filled { slot: 2, ..right });
        let said = reader.next().err();
        assert!(said.as_ref().is_some_and(|why| why.contains("not shared")), "{said:?}");
        writer.send(Filled { bytes: 4097, ..right });
        let said = reader.next().err();
        assert!(said.as_ref().is_some_and(|why| why.contains("not shared")), "{said:?}");
        writer.send(right);
        let (_, slot) = reader.next().unwrap().unwrap();
        reader.free(&slot);
        reader.free(&slot);
        let said = writer.take(1).err();
        assert!(said.as_ref().is_some_and(|why| why.contains("did not have")), "{said:?}");
        let (mut writer, mut reader) = ends(2);
        writer.memory.control().sent.written.0.store(3, Ordering::Release);
        let said = reader.next().err();
        assert!(said.as_ref().is_some_and(|why| why.contains("more memory")), "{said:?}");
        reader.memory.control().freed.written.0.store(3, Ordering::Release);
        let said = writer.take(1).err();
        assert!(said.as_ref().is_some_and(|why| why.contains("more memory")), "{said:?}");
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let (_, passed) = SlotMemory::new(2, 4096).unwrap();
        for (slots, bytes) in [(3, 4096), (1, 4096), (0, 4096), (2, 0), (u32::MAX, usize::MAX)] {
            assert!(SlotMemory::of(&passed, slots, bytes).is_err(), "{slots} of {bytes}");
        }
        let open = memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, places(2, 4096).unwrap().end as u64).unwrap();
        assert!(SlotMemory::of(&open, 2, 4096).is_err(), "it may shrink");
    }
}
