//! Memory that two processes of one machine share: slots for frames, whose elements then go through no socket.
//!
//! The consumer's process makes the memory and passes it on. A slot is written by the producer alone from [`SlotPool::take`] until its
//! number is sent, and read by the consumer alone from then until it says that the slot is free: so no byte is read while it is written.
//! Both sides have proved that they know the secret, and are trusted to keep to this.

#![allow(unsafe_code)]

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The size cannot change any more: nobody reads what is not there.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Slots of one size in memory that two processes have.
pub struct SlotMemory {
    map: MmapRaw,
    slots: u32,
    slot_bytes: usize,
}

impl SlotMemory {
    /// New memory, and what to pass to the other process. Pages are taken only when they are first written to.
    pub fn new(slots: u32, slot_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("reshard-couple", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, slots as u64 * slot_bytes as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Self::of(&file, slots, slot_bytes)?, file))
    }

    /// Memory that another process has passed on.
    pub fn of(file: &OwnedFd, slots: u32, slot_bytes: usize) -> io::Result<Self> {
        let bytes = (slots as usize).checked_mul(slot_bytes).filter(|&bytes| bytes > 0);
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let bytes = bytes.ok_or_else(|| wrong("shared memory of no size was passed"))?;
        if !fcntl_get_seals(file)?.contains(SEALS) || fstat(file)?.st_size as u64 != bytes as u64 {
            return Err(wrong(
                "shared memory of another size than was said, or one that may change, was passed",
            ));
        }
        Ok(Self { map: MmapOptions::new().len(bytes).map_raw(file)?, slots, slot_bytes })
    }

    fn start(&self, slot: u32) -> *mut u8 {
        debug_assert!(slot < self.slots);
        // SAFETY: The slot lies within the mapping, as both who call this have checked.
        unsafe { self.map.as_mut_ptr().add(slot as usize * self.slot_bytes) }
    }

    /// What the other process wrote into a slot, if there is such a slot.
    pub fn read(self: &Arc<Self>, slot: u32, len: usize) -> Option<ReadSlot> {
        (slot < self.slots && len <= self.slot_bytes).then(|| ReadSlot {
            memory: Arc::clone(self),
            slot,
            len,
        })
    }
}

/// A slot whose bytes came from the other process.
pub struct ReadSlot {
    memory: Arc<SlotMemory>,
    slot: u32,
    len: usize,
}

impl ReadSlot {
    pub fn number(&self) -> u32 {
        self.slot
    }
}

impl Deref for ReadSlot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `read` checked that slot and length lie within the mapping; the other process does not write to it until it is told that the
        // slot is free.
        unsafe { std::slice::from_raw_parts(self.memory.start(self.slot), self.len) }
    }
}

/// The slots that a producer may write to.
pub struct SlotPool {
    memory: Arc<SlotMemory>,
    /// The one that was used last comes first: it may still be in the caches.
    free: Vec<u32>,
    is_free: Vec<bool>,
}

impl SlotPool {
    pub fn new(memory: Arc<SlotMemory>) -> Self {
        let free = (0..memory.slots).rev().collect();
        let is_free = vec![true; memory.slots as usize];
        Self { memory, free, is_free }
    }

    /// A slot for so many bytes, if there is one.
    pub fn take(&mut self, bytes: usize) -> Option<WriteSlot> {
        if bytes > self.memory.slot_bytes {
            return None;
        }
        let slot = self.free.pop()?;
        self.is_free[slot as usize] = false;
        Some(WriteSlot { memory: Arc::clone(&self.memory), slot, len: bytes })
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
}

/// A slot that nobody else has.
pub struct WriteSlot {
    memory: Arc<SlotMemory>,
    slot: u32,
    len: usize,
}

/// Bytes that stand for a slot in a frame.
pub const SLOT_BYTES: usize = 8;

impl WriteSlot {
    /// Only the first bytes are of interest.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// As it is sent: from now on it belongs to the other process.
    pub fn encode(self) -> Vec<u8> {
        [self.slot.to_le_bytes(), (self.len as u32).to_le_bytes()].concat()
    }
}

/// The number of a slot and the bytes in it, as they were sent.
pub fn decode(bytes: &[u8]) -> Option<(u32, usize)> {
    let bytes: &[u8; SLOT_BYTES] = bytes.try_into().ok()?;
    let [a, b, c, d, e, f, g, h] = *bytes;
    Some((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize))
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
        // SAFETY: `take` checked that slot and length lie within the mapping, and gives a slot to nobody else until it is given back, which it is
        // only when this has been sent and the other process has read it, or when it was dropped.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start(self.slot), self.len) }
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

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let (there, passed) = SlotMemory::new(3, 4096).unwrap();
        let there = Arc::new(there);
        let mut pool = SlotPool::new(Arc::new(SlotMemory::of(&passed, 3, 4096).unwrap()));
        assert!(pool.take(4097).is_none());
        let mut slots: Vec<WriteSlot> = (0..3).map(|_| pool.take(4096).unwrap()).collect();
        assert!(pool.take(1).is_none());
        for (number, slot) in (1..).zip(&mut slots) {
            slot.fill(number);
            slot.truncate(100 * number as usize);
        }
        for (number, slot) in (1..).zip(slots) {
            let (slot, len) = decode(&slot.encode()).unwrap();
            let read = there.read(slot, len).unwrap();
            assert_eq!(*read, vec![number; 100 * number as usize]);
            assert!(pool.give_back(read.number()));
            assert!(!pool.give_back(read.number()), "twice");
        }
        assert!(!pool.give_back(3));
        assert!(there.read(3, 1).is_none() && there.read(2, 4097).is_none());
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let (_, passed) = SlotMemory::new(2, 4096).unwrap();
        for (slots, bytes) in [(3, 4096), (1, 4096), (0, 4096), (u32::MAX, usize::MAX)] {
            assert!(SlotMemory::of(&passed, slots, bytes).is_err(), "{slots} of {bytes}");
        }
        let open = memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 8192).unwrap();
        assert!(SlotMemory::of(&open, 2, 4096).is_err(), "it may shrink");
        assert!(decode(&[0; 7]).is_none());
    }
}
