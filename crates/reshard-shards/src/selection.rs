//! Some elements of a part in its file: a list of ranges along each dimension. They are read in the order of the file, without what lies
//! between them unless that is little.

use reshard::MemoryOrder;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Runs of at least this many bytes are read alone, unless what lies between them is a tenth of them at most.
const SHORT_BYTES: u64 = 4096;

/// The most bytes that are read at once, if it is more than one run.
const SPAN_BYTES: u64 = 1 << 20;

/// Some elements of a part: the product of ranges along each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    data_start: u64,
    /// Bytes of what is next to each other in every index of `ranges`.
    unit: u64,
    /// Along the fastest dimension that is not taken whole, in units.
    ranges: Vec<Range<u64>>,
    /// The slower dimensions, from the fastest on: the stride in bytes, and which indices.
    slower: Vec<(u64, Vec<Range<u64>>)>,
}

/// Bytes read, and in how many calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes, also those that nobody asked for.
    pub bytes: u64,
    /// Calls of the system.
    pub calls: u64,
}

impl Selection {
    /// These ranges, ascending and apart along each dimension, of a part of this shape, whose elements of `elem` bytes begin at byte
    /// `data_start` of the file.
    pub fn new(
        shape: &[u64],
        order: MemoryOrder,
        ranges: &[Vec<Range<u64>>],
        elem: u64,
        data_start: u64,
    ) -> Self {
        let mut dims: Vec<usize> = (0..shape.len()).collect();
        if order == MemoryOrder::RowMajor {
            dims.reverse();
        }
        let mut selection =
            Self { data_start, unit: elem, ranges: std::iter::once(0..1).collect(), slower: Vec::new() };
        let (mut stride, mut whole) = (elem, true);
        for dim in dims {
            let (wanted, length) = (&ranges[dim], shape[dim]);
            if whole {
                (selection.unit, selection.ranges) = (stride, wanted.clone());
                whole = matches!(&wanted[..], [all] if *all == (0..length));
            } else {
                selection.slower.push((stride, wanted.clone()));
            }
            stride *= length;
        }
        selection
    }

    /// Elements, or whatever a unit is, of all ranges.
    fn count(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// All bytes of it.
    pub fn bytes(&self) -> u64 {
        self.slower
            .iter()
            .fold(self.unit * Self::count(&self.ranges), |bytes, (_, indices)| bytes * Self::count(indices))
    }

    /// Where each run of bytes lies in the file, ascending.
    fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        let mut at: Vec<(usize, u64)> = self
            .slower
            .iter()
            .map(|(_, ranges)| (0, ranges.first().map_or(0, |range| range.start)))
            .collect();
        let mut rows_left = self.slower.iter().map(|(_, indices)| Self::count(indices)).product::<u64>();
        let rows = std::iter::from_fn(move || {
            rows_left = rows_left.checked_sub(1)?;
            let row =
                self.slower.iter().zip(&at).map(|((stride, _), &(_, index))| stride * index).sum::<u64>();
            for ((_, ranges), (range, index)) in self.slower.iter().zip(&mut at) {
                *index += 1;
                if *index < ranges[*range].end {
                    break;
                }
                *range = (*range + 1) % ranges.len();
                *index = ranges[*range].start;
                if *range > 0 {
                    break;
                }
            }
            Some(self.data_start + row)
        });
        rows.flat_map(move |row| {
            self.ranges.iter().map(move |range| row + self.unit * range.start..row + self.unit * range.end)
        })
    }

    /// Reads all of it into `into`, one run after the other. `check` is shown whatever was read, and where in the file it begins.
    pub fn read(
        &self,
        file: &File,
        into: &mut [u8],
        mut check: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<Amount> {
        let mut amount = Amount::default();
        if self.bytes() == 0 {
            return Ok(amount);
        }
        let (mut rest, mut memory) = (into, Vec::new());
        let mut span = Span::default();
        for run in self.runs() {
            if span.joins(&run) {
                span.push(run);
                continue;
            }
            rest = span.read(file, rest, &mut memory, &mut amount, &mut check)?;
            span = Span::default();
            span.push(run);
        }
        span.read(file, rest, &mut memory, &mut amount, &mut check)?;
        Ok(amount)
    }
}

/// Runs that are read at once.
#[derive(Default)]
struct Span {
    runs: Vec<Range<u64>>,
    wanted: u64,
}

impl Span {
    fn ends(&self) -> Option<Range<u64>> {
        Some(self.runs.first()?.start..self.runs.last()?.end)
    }

    /// True if a run that follows is best read along.
    fn joins(&self, run: &Range<u64>) -> bool {
        let Some(ends) = self.ends() else { return true };
        if run.start == ends.end {
            return true;
        }
        let (gap, length, wanted) = (run.start - ends.end, run.end - run.start, self.wanted);
        let waste = run.end - ends.start - wanted - length;
        run.end - ends.start <= SPAN_BYTES
            && (10 * waste <= wanted + length
                || length.max(wanted / self.runs.len() as u64) < SHORT_BYTES && gap < SHORT_BYTES)
    }

    fn push(&mut self, run: Range<u64>) {
        self.wanted += run.end - run.start;
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.runs.push(run),
        }
    }

    /// Reads the runs into the beginning of `into`. Returns what is left of it.
    fn read<'i>(
        &self,
        file: &File,
        into: &'i mut [u8],
        memory: &mut Vec<u8>,
        amount: &mut Amount,
        check: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<&'i mut [u8]> {
        let Some(ends) = self.ends() else { return Ok(into) };
        let (mine, rest) = into.split_at_mut(self.wanted as usize);
        *amount = Amount { bytes: amount.bytes + ends.end - ends.start, calls: amount.calls + 1 };
        if self.runs.len() == 1 {
            file.read_exact_at(mine, ends.start)?;
            check(ends.start, mine)?;
            return Ok(rest);
        }
        memory.resize((ends.end - ends.start) as usize, 0);
        file.read_exact_at(memory, ends.start)?;
        check(ends.start, memory)?;
        let mut place = 0;
        for run in &self.runs {
            let length = (run.end - run.start) as usize;
            let from = &memory[(run.start - ends.start) as usize..][..length];
            mine[place..place + length].copy_from_slice(from);
            place += length;
        }
        Ok(rest)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use reshard_testkit::Random;

    fn random_ranges(random: &mut Random, length: u64) -> Vec<Range<u64>> {
        if random.within(0, 2) == 0 {
            return std::iter::once(0..length).collect();
        }
        let (mut ranges, mut at) = (Vec::new(), random.within(0, 2));
        while at < length {
            let end = (at + random.within(1, 4)).min(length);
            ranges.push(at..end);
            at = end + random.within(1, 3);
        }
        ranges
    }

    #[test]
    fn what_is_read_is_what_was_asked_for() {
        // One file for all cases, without a name: it is written, never flushed.
        let path = std::env::temp_dir().join(format!("reshard-selection-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let mut random = Random::new(11);
        for _ in 0..5000 {
            let dims = random.within(0, 4);
            let shape: Vec<u64> = (0..dims).map(|_| random.within(1, 7)).collect();
            let ranges: Vec<Vec<Range<u64>>> =
                shape.iter().map(|&length| random_ranges(&mut random, length)).collect();
            let order = [MemoryOrder::RowMajor, MemoryOrder::ColMajor][random.within(0, 1) as usize];
            let (elem, start) = (random.within(1, 9), random.within(0, 100));
            let total = start + elem * shape.iter().product::<u64>();
            let bytes: Vec<u8> = (0..total).map(|at| (at * 7 + at / 256) as u8).collect();
            file.write_all_at(&bytes, 0).unwrap();
            let mut expected = Vec::new();
            for number in 0..shape.iter().product() {
                let (mut rest, mut inside) = (number, true);
                let mut dims: Vec<usize> = (0..shape.len()).collect();
                if order == MemoryOrder::RowMajor {
                    dims.reverse();
                }
                for dim in dims {
                    let index = rest % shape[dim];
                    inside &= ranges[dim].iter().any(|range| range.contains(&index));
                    rest /= shape[dim];
                }
                if inside {
                    let at = (start + number * elem) as usize;
                    expected.extend_from_slice(&bytes[at..at + elem as usize]);
                }
            }
            let selection = Selection::new(&shape, order, &ranges, elem, start);
            assert_eq!(selection.bytes(), expected.len() as u64, "{shape:?} {ranges:?}");
            let mut found = vec![0; expected.len()];
            let mut seen = 0;
            let amount = selection
                .read(&file, &mut found, |at, read| {
                    assert_eq!(read, &bytes[at as usize..][..read.len()]);
                    seen += read.len() as u64;
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, expected, "{shape:?} {ranges:?} {order:?}");
            assert_eq!(amount.bytes, seen);
            assert!(amount.bytes >= expected.len() as u64);
        }
    }

    #[test]
    fn long_runs_are_read_alone_and_short_ones_together() {
        let path = std::env::temp_dir().join(format!("reshard-selection-long-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let every = |length: u64, step: u64| -> Vec<Range<u64>> {
            (0..(1 << 20) / step).map(|number| number * step..number * step + length).collect()
        };
        let amount = |length: u64, step: u64| {
            let selection = Selection::new(&[1 << 20], MemoryOrder::RowMajor, &[every(length, step)], 1, 0);
            let mut into = vec![0; selection.bytes() as usize];
            selection.read(&file, &mut into, |_, _| Ok(())).unwrap()
        };
        assert_eq!(amount(4096, 8192), Amount { bytes: 1 << 19, calls: 128 });
        assert_eq!(amount(4096, 4352).calls, 1);
        assert_eq!(amount(8, 64).calls, 1);
        assert_eq!(amount(8, 1 << 16), Amount { bytes: 8 * 16, calls: 16 });
    }
}
