//! One rank's part of a set under another layout: what a job reads that restarts on another number of ranks, each rank for itself.
//!
//! Along each dimension the indices that the rank has are cut where their owners in the set change. The array that consists of these indices alone
//! has the set's files as its sources and the rank as its only destination, so it is moved like any other.

use crate::array::{Array, Part};
use crate::boxes::{Boxes, Files};
use crate::checked::Checked;
use crate::parallel::{engine, for_each};
use crate::selection::{Amount, Selection};
use crate::set::{Shard, ShardSet};
use reshard::axis::{Axis, Deal, Piece};
use reshard::distribution::Distribution;
use reshard::grid::Grid;
use reshard::{Error, ErrorKind, Layout, MemoryOrder, Move, Plan, Result, bytemuck};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of elements that are read before they are put where they belong.
const BOX_BYTES: u64 = 32 << 20;

/// What was read for a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Bytes of the rank's elements.
    pub bytes: u64,
    /// Bytes that were read from files: more where pieces are so short that what lies between them is read along.
    pub read_bytes: u64,
    /// Those of them that were checked: blocks of checksums that were read whole.
    pub checked_bytes: u64,
    /// The others, which nobody has checked; none with [`ShardSet::with_whole_blocks`], if the files have checksums.
    pub unchecked_bytes: u64,
    /// Calls that read.
    pub reads: u64,
}

impl ShardSet {
    /// Reads the part that a rank has under the layout `to`, and of the files nothing else but what lies between short pieces. `part` is the
    /// rank's memory, `to.span(rank)` elements.
    ///
    /// Blocks of checksums (1 MiB, in most sets) that one call reads whole are checked on the way: many, where runs are long, none where they are
    /// short. [`Loaded::unchecked_bytes`] says how much was not; [`with_whole_blocks`](Self::with_whole_blocks) reads what is needed to check all of it.
    ///
    /// ```
    /// use reshard_shards::{Format, ShardSet, make};
    /// # let folder = std::env::temp_dir().join(format!("reshard-load-doc-{}", std::process::id()));
    /// make(&folder, &"4x4/8x8 of 100x120".parse()?, "f64".parse()?, Format::Npy, 0, |_, _| {})?; // 16 ranks wrote,
    /// let layout: reshard::Layout = "3x3/10x10 of 100x120".parse()?; // 9 ranks read
    /// let mut part = layout.allocate::<f64>(5)?;
    /// let loaded = ShardSet::open(&folder)?.load_as(&layout, 5, &mut part)?;
    /// assert_eq!(loaded.bytes, 8 * layout.distribution().local_elems(5)?);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), reshard::Error>(())
    /// ```
    pub fn load_as<T: bytemuck::Pod>(&self, to: &Layout, rank: u64, part: &mut [T]) -> Result<Loaded> {
        self.load_of(self.only()?, to, rank, part)
    }

    /// Reads the part that a rank has of one array under the layout `to`, as [`load_as`](Self::load_as) does of the only one.
    pub fn load_array_as<T: bytemuck::Pod>(
        &self,
        name: &str,
        to: &Layout,
        rank: u64,
        part: &mut [T],
    ) -> Result<Loaded> {
        self.load_of(self.array(name)?, to, rank, part)
    }

    fn load_of<T: bytemuck::Pod>(
        &self,
        array: &Array,
        to: &Layout,
        rank: u64,
        part: &mut [T],
    ) -> Result<Loaded> {
        if size_of::<T>() as u64 != array.element.bytes() {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "elements of {} bytes were asked for, and {} has elements of type {}, {} bytes each",
                    size_of::<T>(),
                    if array.name.is_empty() { "the set".into() } else { array.called() },
                    array.element,
                    array.element.bytes()
                ),
            ));
        }
        self.load_bytes_of(array, to, rank, bytemuck::cast_slice_mut(part))
    }

    /// Reads the part of a rank as [`load_as`](Self::load_as), into memory that is given as bytes.
    pub fn load_bytes_as(&self, to: &Layout, rank: u64, part: &mut [u8]) -> Result<Loaded> {
        self.load_bytes_of(self.only()?, to, rank, part)
    }

    /// Reads the part of a rank as [`load_array_as`](Self::load_array_as), into memory that is given as bytes.
    pub fn load_array_bytes_as(&self, name: &str, to: &Layout, rank: u64, part: &mut [u8]) -> Result<Loaded> {
        self.load_bytes_of(self.array(name)?, to, rank, part)
    }

    fn load_bytes_of(&self, array: &Array, to: &Layout, rank: u64, part: &mut [u8]) -> Result<Loaded> {
        let shape = to.distribution().shape();
        if shape != array.layout.distribution().shape() {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the set is {}, and the layout {to} was asked for; give one of its shape",
                    array.layout
                ),
            ));
        }
        let elem = array.element.bytes();
        let span = to.span(rank)?.saturating_mul(elem);
        if part.len() as u64 != span {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the part of rank {rank} under {to} has {span} bytes, and memory for {} was given",
                    part.len()
                ),
            ));
        }
        let local = to.distribution().local_shape(rank)?;
        let files = Files::of_one(&local, to.order());
        let boxes = Boxes::new(&local, elem, BOX_BYTES, &files, &files);
        let elems = to.distribution().local_elems(rank)?;
        let mut loaded = Loaded { bytes: elem * elems, ..Loaded::default() };
        let before = self.stamps()?;
        for number in 0..boxes.count() {
            self.load_box(array, to, rank, &boxes.region(number), part, &mut loaded)?;
        }
        self.is_unchanged_since(&before)?;
        loaded.unchecked_bytes = loaded.read_bytes - loaded.checked_bytes;
        Ok(loaded)
    }

    /// Reads a box of a rank's part, in local indices.
    fn load_box(
        &self,
        array: &Array,
        to: &Layout,
        rank: u64,
        region: &[Range<u64>],
        part: &mut [u8],
        loaded: &mut Loaded,
    ) -> Result<()> {
        let (here, elem) = (array.layout.distribution(), array.element.bytes());
        let coords = to.distribution().coords(rank)?;
        let mut seen = Vec::with_capacity(region.len());
        for (dim, range) in region.iter().enumerate() {
            let (from, to) = (&here.axes()[dim], &to.distribution().axes()[dim]);
            seen.push(Seen::new(from, to, coords[dim], range)?);
        }
        let axes = seen.iter().map(|seen| seen.axis.clone()).collect();
        let from = Layout::new(Distribution::new(here.grid().clone(), axes)?, array.layout.order());
        let strides = to.strides(rank)?;
        let start: u64 = region.iter().zip(&strides).map(|(range, stride)| range.start * stride).sum();
        let extents: Vec<u64> = region.iter().map(|range| range.end - range.start).collect();
        let only = of_one(&extents, to.order())?.with_strides_of(0, &strides)?;
        let bytes = (only.span(0)? * elem) as usize;
        if bytes == 0 {
            return Ok(());
        }
        let mut parts: Vec<Vec<u8>> = array.parts.iter().map(|_| Vec::new()).collect();
        let (reads, read, checked) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for_each(threads, array.parts.iter().zip(&mut parts).collect(), |(part, memory): (&Part, _)| {
            let (shard, coords) = (self.shard(part), here.coords(part.rank)?);
            let ranges: Vec<_> = seen.iter().zip(coords).map(|(seen, process)| seen.of(process)).collect();
            let shape = here.local_shape(part.rank)?;
            let wanted = Selection::new(&shape, array.layout.order(), &ranges, elem, part.start);
            *memory = vec![0; wanted.bytes() as usize];
            let mut whole = Some(Checked::new(threads)).filter(|_| self.whole_blocks && shard.sums.is_some());
            let amount = wanted.read(&shard.file, memory, |at, bytes| {
                let blocks = match &mut whole {
                    None => self.check_blocks(shard, at, bytes),
                    // What lies between is read for the checksums alone.
                    Some(whole) => whole
                        .go_on_at(self, shard, at)
                        .and_then(|()| whole.update(self, shard, bytes))
                        .map(|()| bytes.len() as u64),
                };
                checked.fetch_add(blocks.map_err(io::Error::other)?, Ordering::Relaxed);
                Ok(())
            });
            let Amount { bytes, calls } = amount.map_err(|error| match error.downcast::<Error>() {
                Ok(error) => error,
                Err(error) => self.failed(shard, "cannot be read", &error),
            })?;
            if let Some(whole) = &mut whole {
                whole.finish(self, shard)?;
            }
            read.fetch_add(bytes, Ordering::Relaxed);
            reads.fetch_add(calls, Ordering::Relaxed);
            Ok(())
        })?;
        loaded.read_bytes += read.into_inner();
        loaded.reads += reads.into_inner();
        loaded.checked_bytes += checked.into_inner();
        let moving = Plan::new(vec![Move::of::<u8>(from, only)?.of_bytes(elem)?])?;
        let start = (start * elem) as usize;
        engine(moving, threads)?.run_bytes(&parts, &mut [&mut part[start..start + bytes]])?;
        Ok(())
    }

    /// Checks the blocks of checksums that lie in some bytes of a file, from byte `at` on. Returns how many bytes they have.
    fn check_blocks(&self, shard: &Shard, at: u64, bytes: &[u8]) -> Result<u64> {
        let Some(sums) = &shard.sums else { return Ok(0) };
        let end = at + bytes.len() as u64;
        let mut checked = 0;
        for block in at.div_ceil(sums.block_bytes)..end.div_ceil(sums.block_bytes) {
            let start = block * sums.block_bytes;
            let stop = (start + sums.block_bytes).min(shard.bytes);
            if stop > end {
                break;
            }
            let found = crate::checksum::crc32c(&bytes[(start - at) as usize..(stop - at) as usize]);
            if sums.crc32c.get(block as usize) != Some(&found) {
                return Err(self.not_what_was_written(shard, start..stop));
            }
            checked += stop - start;
        }
        Ok(checked)
    }
}

/// An array of this shape on one rank, number 0.
pub fn of_one(shape: &[u64], order: MemoryOrder) -> Result<Layout> {
    let axes = shape.iter().map(|&length| Axis::new(length, 1, &Deal::Whole, 0));
    let distribution = Distribution::new(Grid::new(&vec![1; shape.len()])?, axes.collect::<Result<_>>()?)?;
    Ok(Layout::new(distribution, order))
}

/// The indices of an axis that a process has in another layout, as the axis of a smaller array.
struct Seen {
    axis: Axis,
    /// For each process of the set that has any: which of its local indices, ascending.
    local: std::collections::BTreeMap<u64, Vec<Range<u64>>>,
}

impl Seen {
    /// Local indices `range` of process `process` of `to`, as `from` owns them.
    fn new(from: &Axis, to: &Axis, process: u64, range: &Range<u64>) -> Result<Self> {
        let mut local = std::collections::BTreeMap::<u64, Vec<Range<u64>>>::new();
        let (mut pieces, mut left) = (Vec::<Piece>::new(), range.end - range.start);
        let first = to.global_from_local(process, range.start).unwrap_or(0);
        for block in to.blocks(process, first) {
            let mut at = block.start.max(first);
            while left > 0
                && at < block.end
                && let (Some((owner, end)), Some((_, index))) =
                    (from.block_at(at), from.local_from_global(at))
            {
                let len = (end.min(block.end) - at).min(left);
                match pieces.last_mut() {
                    Some(last) if last.owner == owner => last.len += len,
                    _ => pieces.push(Piece { len, owner }),
                }
                let runs = local.entry(owner).or_default();
                match runs.last_mut() {
                    Some(last) if last.end == index => last.end += len,
                    _ => runs.push(index..index + len),
                }
                (at, left) = (at + len, left - len);
            }
            if left == 0 {
                break;
            }
        }
        if pieces.is_empty() {
            pieces.push(Piece { len: 0, owner: 0 });
        }
        let axis = Axis::new(range.end - range.start, from.procs(), &Deal::Cuts(pieces), 0)?;
        Ok(Self { axis, local })
    }

    fn of(&self, process: u64) -> Vec<Range<u64>> {
        self.local.get(&process).cloned().unwrap_or_default()
    }
}
