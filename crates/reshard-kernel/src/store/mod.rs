//! Sinks, which write rows of bytes: with plain stores, with non-temporal stores a whole line at a time, or scaled.
//!
//! A copy larger than the caches should not read the lines it overwrites. Non-temporal (streaming) stores avoid that, but
//! they are fast only for whole 64-byte lines written at once, and pieces of a redistribution begin and end anywhere. So a
//! [`StreamingSink`] combines writes itself: it holds the incomplete line (in a register, where the level has 64-byte ones),
//! merges the next piece into it and writes whole lines. It continues across pieces and rows while the destination has no
//! gap. A [`ScaledSink`] computes `alpha * op(A) + beta * B` instead of copying.

mod scale;

pub use scale::{Number, Scaling};

use crate::simd::{CACHE_LINE, Strided, Vector, prefetch_write};

/// Bytes between the place being written and the lines prefetched for writing.
const PREFETCH_WRITE_BYTES: usize = 2048;

/// A consumer of bytes in destination order.
///
/// # Safety
/// For all methods: the processor supports the level; pushed bytes are readable, their destination is writable, and
/// the two do not overlap. Pushed bytes are in memory only after `close`.
pub trait Sink<V: Vector>: Copy {
    /// True if a kernel may write whole lines with non-temporal stores in place of the sink.
    const NON_TEMPORAL: bool = false;

    /// True if the sink writes what it is given, bit for bit, so that a kernel may store bytes in its place.
    const COPIES_BITS: bool = true;

    /// True if the sink reads the pushed bytes.
    #[inline(always)]
    fn reads(&self) -> bool {
        true
    }

    /// Returns where the next `n` bytes go and counts them as pushed, if a kernel may store them itself.
    #[inline(always)]
    unsafe fn reserve(&mut self, n: usize) -> Option<*mut u8> {
        let _ = n;
        None
    }

    /// Sets the destination of the next pushed bytes to `to`.
    unsafe fn open(&mut self, to: *mut u8);
    /// Writes the `n` bytes at `from`.
    unsafe fn push(&mut self, from: *const u8, n: usize);
    /// Writes everything that is still held back.
    unsafe fn close(&mut self);
}

/// A sink of plain stores.
#[derive(Clone, Copy)]
pub struct PlainSink {
    to: *mut u8,
    /// Lines are prefetched for writing.
    prefetches: bool,
}

impl PlainSink {
    /// With `prefetches`, lines are prefetched for writing. That is for staging buffers and fragments, which another core
    /// read last: fetching the ownership of one line takes long, but several requests can be in flight.
    pub fn new(prefetches: bool) -> Self {
        Self { to: std::ptr::null_mut(), prefetches }
    }

    #[inline(always)]
    fn prefetch_ahead(&self, n: usize) {
        if self.prefetches {
            prefetch_write(self.to.wrapping_add(PREFETCH_WRITE_BYTES), n);
        }
    }
}

impl<V: Vector> Sink<V> for PlainSink {
    #[inline(always)]
    unsafe fn reserve(&mut self, n: usize) -> Option<*mut u8> {
        self.prefetch_ahead(n);
        let place = self.to;
        self.to = place.wrapping_add(n);
        Some(place)
    }

    #[inline(always)]
    unsafe fn open(&mut self, to: *mut u8) {
        self.to = to;
    }

    #[inline(always)]
    unsafe fn push(&mut self, from: *const u8, n: usize) {
        let (mut from, mut n) = (from, n);
        // SAFETY: as the caller promises for the `n` bytes at `from` and at the open place.
        unsafe {
            while self.prefetches && n > PREFETCH_WRITE_BYTES {
                self.prefetch_ahead(PREFETCH_WRITE_BYTES);
                V::copy(self.to, from, PREFETCH_WRITE_BYTES);
                self.to = self.to.add(PREFETCH_WRITE_BYTES);
                (from, n) = (from.add(PREFETCH_WRITE_BYTES), n - PREFETCH_WRITE_BYTES);
            }
            self.prefetch_ahead(n);
            V::copy(self.to, from, n);
            self.to = self.to.add(n);
        }
    }

    #[inline(always)]
    unsafe fn close(&mut self) {}
}

/// A write-combining sink: writes whole lines with non-temporal stores.
#[derive(Clone, Copy)]
pub struct StreamingSink<V: Vector> {
    /// Destination of the held line: a multiple of `CACHE_LINE`.
    to: *mut u8,
    /// The held line, not yet complete.
    line: V::Line,
    /// Bytes `start..fill` of the held line were pushed, `fill` below `CACHE_LINE`; bytes before `start` are not this sink's.
    start: usize,
    fill: usize,
}

impl<V: Vector> StreamingSink<V> {
    pub fn new() -> Self {
        Self { to: std::ptr::null_mut(), line: V::empty(), start: 0, fill: 0 }
    }

    /// Writes the held line, which is complete from `start` on.
    #[inline(always)]
    unsafe fn write_line(&mut self) {
        // SAFETY: bytes `start..CACHE_LINE` were pushed for this address, which the caller promised to be writable.
        unsafe {
            if self.start == 0 {
                V::stream_line(self.to, self.line);
            } else {
                V::store(self.to, self.line, self.start, CACHE_LINE - self.start);
            }
            self.to = self.to.add(CACHE_LINE);
        }
        self.start = 0;
    }
}

impl<V: Vector> Sink<V> for StreamingSink<V> {
    const NON_TEMPORAL: bool = true;

    #[inline(always)]
    unsafe fn open(&mut self, to: *mut u8) {
        if self.to.wrapping_add(self.fill) == to {
            return;
        }
        // SAFETY: the bytes pushed so far are written to where the caller promised room for them.
        unsafe { self.close() };
        let ahead = to.addr() % CACHE_LINE;
        self.to = to.wrapping_sub(ahead);
        (self.start, self.fill) = (ahead, ahead);
    }

    #[inline(always)]
    unsafe fn push(&mut self, from: *const u8, n: usize) {
        let (mut from, mut n) = (from, n);
        // SAFETY: a piece that does not complete the held line is merged into it. Otherwise its head completes the line,
        // whole lines are copied from `from` to the following lines, and the rest, less than a line, is held.
        unsafe {
            if self.fill + n < CACHE_LINE {
                self.line = V::merge(self.line, self.fill, from, n);
                self.fill += n;
                return;
            }
            if self.fill > 0 {
                let head = CACHE_LINE - self.fill;
                self.line = V::merge(self.line, self.fill, from, head);
                self.write_line();
                (from, n) = (from.add(head), n - head);
            }
            let lines = n / CACHE_LINE;
            V::stream(self.to, from, lines);
            self.to = self.to.add(lines * CACHE_LINE);
            (from, n) = (from.add(lines * CACHE_LINE), n % CACHE_LINE);
            self.line = V::merge(self.line, 0, from, n);
            self.fill = n;
        }
    }

    #[inline(always)]
    unsafe fn close(&mut self) {
        if self.fill > self.start {
            // SAFETY: these bytes were pushed for this address.
            unsafe { V::store(self.to, self.line, self.start, self.fill - self.start) };
        }
        self.to = std::ptr::null_mut();
        (self.start, self.fill) = (0, 0);
    }
}

/// A sink that scales elements: see [`Scaling`].
#[derive(Clone, Copy)]
pub struct ScaledSink<'a> {
    pub scaling: &'a Scaling,
    pub elem: usize,
    pub to: *mut u8,
}

impl<V: Vector> Sink<V> for ScaledSink<'_> {
    const COPIES_BITS: bool = false;

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
        // SAFETY: whole elements of the scaling's type are pushed, to where the caller promised elements of that type.
        unsafe {
            self.scaling.apply(strided, n / self.elem);
            self.to = self.to.add(n);
        }
    }

    #[inline(always)]
    unsafe fn close(&mut self) {}
}
