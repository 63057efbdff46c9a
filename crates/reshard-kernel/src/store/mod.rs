//! Where rows of bytes end up: straight in memory, or past the caches a whole line at a time.
//!
//! A copy larger than the caches should not read what it overwrites. Streaming stores avoid that, but only whole lines of
//! 64 bytes, written at once, are fast; pieces of a redistribution begin and end anywhere. So a [`StreamingSink`] carries the line
//! that is not yet complete (in a register, where the level has one so long), merges the next piece into it and lets go
//! of whole lines. It carries on across pieces and rows as long as the destination goes on without a gap. [`ScaledSink`] is for
//! sums and products: it computes what it writes.

mod scale;

pub use scale::{Number, Scaling};

use crate::simd::{LINE, Strided, Vector, claim};

/// So many bytes ahead of the writing, lines are asked for.
const CLAIMED: usize = 2048;

/// A consumer of bytes in destination order.
///
/// # Safety
/// For all methods: the processor has the level's instructions; what is pushed is readable, where it goes is writable, and
/// the two do not overlap. What was pushed is in its place only after `close`.
pub trait Sink<V: Vector>: Copy {
    /// Whether whole lines may go past it and past the caches.
    const STREAMS: bool = false;

    /// Whether what is pushed is looked at.
    #[inline(always)]
    fn reads(&self) -> bool {
        true
    }

    /// The next bytes go to `to`.
    unsafe fn open(&mut self, to: *mut u8);
    /// The next `n` bytes.
    unsafe fn push(&mut self, from: *const u8, n: usize);
    /// The next `n` bytes: the first of a line in hand.
    unsafe fn line(&mut self, line: V::Line, n: usize);
    /// The next bytes: for each 8 addresses a vector of what lies there, see [`Vector::gather`].
    unsafe fn gather<const WIDTH: usize>(&mut self, lanes: &[u64], shift: u64);
    /// Everything pushed is in its place.
    unsafe fn close(&mut self);
}

/// Straight to memory.
#[derive(Clone, Copy)]
pub struct PlainSink {
    to: *mut u8,
    /// Lines are asked for before they are written.
    claims: bool,
}

impl PlainSink {
    /// `claims`: what is written to may have been read by another processor last, as boxes and letters are. To take each line from
    /// there takes long, and a few at a time can be taken at once: they are asked for ahead.
    pub fn new(claims: bool) -> Self {
        Self { to: std::ptr::null_mut(), claims }
    }

    #[inline(always)]
    fn claim_ahead(&self, n: usize) {
        if self.claims {
            claim(self.to.wrapping_add(CLAIMED), n);
        }
    }
}

impl<V: Vector> Sink<V> for PlainSink {
    #[inline(always)]
    unsafe fn open(&mut self, to: *mut u8) {
        self.to = to;
    }

    #[inline(always)]
    unsafe fn push(&mut self, from: *const u8, n: usize) {
        let (mut from, mut n) = (from, n);
        // SAFETY: as the caller promises for the `n` bytes at `from` and at the open place.
        unsafe {
            while self.claims && n > CLAIMED {
                self.claim_ahead(CLAIMED);
                V::copy(self.to, from, CLAIMED);
                self.to = self.to.add(CLAIMED);
                (from, n) = (from.add(CLAIMED), n - CLAIMED);
            }
            self.claim_ahead(n);
            V::copy(self.to, from, n);
            self.to = self.to.add(n);
        }
    }

    #[inline(always)]
    unsafe fn line(&mut self, line: V::Line, n: usize) {
        self.claim_ahead(n);
        // SAFETY: as the caller promises for the `n` bytes at the open place.
        unsafe {
            V::store(self.to, line, 0, n);
            self.to = self.to.add(n);
        }
    }

    #[inline(always)]
    unsafe fn gather<const WIDTH: usize>(&mut self, lanes: &[u64], shift: u64) {
        for eight in lanes.chunks_exact(8) {
            self.claim_ahead(8 * WIDTH);
            // SAFETY: as the caller promises for each lane and for all bytes at the open place.
            unsafe {
                V::gather::<WIDTH>(self.to, eight, shift);
                self.to = self.to.add(8 * WIDTH);
            }
        }
    }

    #[inline(always)]
    unsafe fn close(&mut self) {}
}

/// Whole lines past the caches.
#[derive(Clone, Copy)]
pub struct StreamingSink<V: Vector> {
    /// Where the line in hand belongs: a multiple of `LINE`.
    to: *mut u8,
    line: V::Line,
    /// Bytes `start..fill` of the line in hand were pushed, `fill` below `LINE`; those before belong to others.
    start: usize,
    fill: usize,
}

impl<V: Vector> StreamingSink<V> {
    pub fn new() -> Self {
        Self { to: std::ptr::null_mut(), line: V::empty(), start: 0, fill: 0 }
    }

    /// Lets go of the line in hand, which is complete from `start` on.
    #[inline(always)]
    unsafe fn release(&mut self) {
        // SAFETY: bytes `start..LINE` were pushed for this place, which the pusher promised to be writable.
        unsafe {
            if self.start == 0 {
                V::stream_line(self.to, self.line);
            } else {
                V::store(self.to, self.line, self.start, LINE - self.start);
            }
            self.to = self.to.add(LINE);
        }
        self.start = 0;
    }
}

impl<V: Vector> Sink<V> for StreamingSink<V> {
    const STREAMS: bool = true;

    #[inline(always)]
    unsafe fn open(&mut self, to: *mut u8) {
        if self.to.wrapping_add(self.fill) == to {
            return;
        }
        // SAFETY: what was pushed so far is put in its place, as promised when it was pushed.
        unsafe { self.close() };
        let ahead = to.addr() % LINE;
        self.to = to.wrapping_sub(ahead);
        (self.start, self.fill) = (ahead, ahead);
    }

    #[inline(always)]
    unsafe fn push(&mut self, from: *const u8, n: usize) {
        let (mut from, mut n) = (from, n);
        // SAFETY: a piece that does not complete the line in hand becomes part of it. Otherwise its head completes it, whole
        // lines go from `from` to where the next line belongs, and the rest, less than a line, is in hand.
        unsafe {
            if self.fill + n < LINE {
                self.line = V::merge(self.line, self.fill, from, n);
                self.fill += n;
                return;
            }
            if self.fill > 0 {
                let head = LINE - self.fill;
                self.line = V::merge(self.line, self.fill, from, head);
                self.release();
                (from, n) = (from.add(head), n - head);
            }
            let lines = n / LINE;
            V::stream(self.to, from, lines);
            self.to = self.to.add(lines * LINE);
            (from, n) = (from.add(lines * LINE), n % LINE);
            self.line = V::merge(self.line, 0, from, n);
            self.fill = n;
        }
    }

    #[inline(always)]
    unsafe fn line(&mut self, line: V::Line, n: usize) {
        // SAFETY: the line in hand and the next make one that is complete or goes on; `n` bytes, at most a line, are put
        // into the room and pushed from there.
        unsafe {
            if self.fill == 0 && n == LINE {
                self.line = line;
                self.release();
            } else if self.fill.is_multiple_of(4) {
                let (out, kept) = V::behind(self.line, self.fill, line);
                self.line = out;
                self.fill += n;
                if self.fill >= LINE {
                    self.release();
                    self.line = kept;
                    self.fill -= LINE;
                }
            } else {
                let mut room = LineBuffer::new();
                V::store(room.start(), line, 0, n);
                self.push(room.start(), n);
            }
        }
    }

    #[inline(always)]
    unsafe fn gather<const WIDTH: usize>(&mut self, lanes: &[u64], shift: u64) {
        let mut room = LineBuffer::new();
        let taken = room.start();
        for eight in lanes.chunks_exact(8) {
            // SAFETY: as the caller promises for each lane; `8 * WIDTH` bytes, at most a line, are written to `taken` and
            // pushed from there, or go straight to a place the caller promised.
            unsafe {
                if WIDTH == 8 {
                    self.line(V::gather_line(eight, shift), LINE);
                } else {
                    V::gather::<WIDTH>(taken, eight, shift);
                    self.push(taken, 8 * WIDTH);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn close(&mut self) {
        if self.fill > self.start {
            // SAFETY: these bytes were pushed for this place.
            unsafe { V::store(self.to, self.line, self.start, self.fill - self.start) };
        }
        self.to = std::ptr::null_mut();
        (self.start, self.fill) = (0, 0);
    }
}

/// A line of memory on the stack.
#[repr(align(64))]
struct LineBuffer([std::mem::MaybeUninit<u8>; LINE]);

impl LineBuffer {
    #[inline(always)]
    fn new() -> Self {
        Self([std::mem::MaybeUninit::uninit(); LINE])
    }

    #[inline(always)]
    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Straight to memory, scaled on the way.
#[derive(Clone, Copy)]
pub struct ScaledSink<'a> {
    pub scaling: &'a Scaling,
    pub elem: usize,
    pub to: *mut u8,
}

impl<V: Vector> Sink<V> for ScaledSink<'_> {
    #[inline(always)]
    fn reads(&self) -> bool {
        !self.scaling.ignores_source
    }

    #[inline(always)]
    unsafe fn open(&mut self, to: *mut u8) {
        self.to = to;
    }

    #[inline(always)]
    unsafe fn push(&mut self, from: *const u8, n: usize) {
        let strided = Strided { to: self.to, to_stride: self.elem, from, from_stride: self.elem };
        // SAFETY: whole elements of the scaling's type are pushed, to where the caller promised such elements.
        unsafe {
            self.scaling.apply(strided, n / self.elem);
            self.to = self.to.add(n);
        }
    }

    #[inline(always)]
    unsafe fn line(&mut self, line: V::Line, n: usize) {
        let mut room = LineBuffer::new();
        // SAFETY: `n` bytes, at most a line, are put into the room and pushed from there.
        unsafe {
            V::store(room.start(), line, 0, n);
            Sink::<V>::push(self, room.start(), n);
        }
    }

    #[inline(always)]
    unsafe fn gather<const WIDTH: usize>(&mut self, lanes: &[u64], shift: u64) {
        let mut space = [0; LINE];
        for eight in lanes.chunks_exact(8) {
            // SAFETY: `8 * WIDTH` bytes, at most a line, are taken and pushed; nothing is taken that is not to be read.
            unsafe {
                if !self.scaling.ignores_source {
                    V::gather::<WIDTH>(space.as_mut_ptr(), eight, shift);
                }
                Sink::<V>::push(self, space.as_ptr(), 8 * WIDTH);
            }
        }
    }

    #[inline(always)]
    unsafe fn close(&mut self) {}
}
