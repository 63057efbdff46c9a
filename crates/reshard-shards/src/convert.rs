//! A set written anew under another layout, in as much memory as one gives it: box by box, each read from its files, moved by the thread
//! engine, and written to its files. Several processes share the boxes, and afterwards the checksums of the files.

use crate::boxes::{Boxes, Files};
use crate::checked::Checked;
use crate::journal::Journal;
use crate::manifest::{Made, Manifest};
use crate::options::{ConvertOptions, Converted, MIN_MEMORY};
use crate::output::Output;
use crate::parallel::for_each;
use crate::processes::Processes;
use crate::set::{Shard, ShardSet};
use crate::slab::Slab;
use crate::staging::{Begun, Staging};
use reshard::engine::{Threads, ThreadsOptions};
use reshard::{Error, ErrorKind, Layout, Move, Plan, Redistribution, Result, Window};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes that may be written until everything before is made durable, and the journal says so.
const BYTES_PER_JOURNAL_LINE: u64 = 1 << 30;

/// Memory for everything but the boxes: file buffers, plans, threads.
const OVERHEAD_BYTES: u64 = 8 << 20;

/// Bytes of a box that caches have twice, once for each side: half of it takes longer, as more boxes are begun, and eight times of it
/// twice as long (Xeon of model 85, 33 MiB).
const CACHED_BOX_BYTES: u64 = 16 << 20;

/// Bytes that are checked as soon as they were read, while the caches have them.
const CHUNK_BYTES: usize = 256 << 10;

/// Converts a set to the layout `to`, as a new set at `destination`, which must not exist: a directory, or one file if the options say
/// so. `progress` is told how many bytes of how many are done.
pub fn convert(
    source: &ShardSet,
    destination: impl AsRef<Path>,
    to: &Layout,
    options: &ConvertOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<Converted> {
    convert_by(&Processes::One, source, destination.as_ref(), to, options, &mut progress)
}

/// Converts a set by several processes, each of which has opened the source. Collective.
pub(crate) fn convert_by(
    processes: &Processes,
    source: &ShardSet,
    destination: &Path,
    to: &Layout,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted> {
    let began = Instant::now();
    let checked = outside(source, destination).and_then(|()| Conversion::new(processes, source, to, options));
    let conversion = processes.agree(checked)?;
    let (run, resume) = (conversion.identity(), options.resume);
    processes.must_agree(&format!("{run} at {} resume {resume}", destination.display()))?;
    let mut converted = conversion.outlook(began);
    let (staging, begun) = Staging::begin_by(processes, destination, || {
        Staging::begin(destination, options.resume, options.file)
    })?;
    match conversion.write(&staging, begun, &mut converted, progress) {
        Ok(()) => {
            let committing = Instant::now();
            let leader = processes.leads().then(|| staging.finish());
            processes.agree(leader.unwrap_or(Ok(())))?;
            converted.sync_seconds += committing.elapsed().as_secs_f64();
        }
        Err(error) => {
            // A full disk may have room later, and another machine more memory; a source that is damaged stays so.
            let is_final =
                ![ErrorKind::External, ErrorKind::Memory, ErrorKind::TooLarge].contains(&error.kind());
            if processes.leads() && is_final && !options.resume {
                staging.discard();
            }
            return Err(error);
        }
    }
    converted.seconds = began.elapsed().as_secs_f64();
    Ok(converted)
}

/// What [`convert`] would do, without doing it.
pub fn outlook(source: &ShardSet, to: &Layout, options: &ConvertOptions) -> Result<Converted> {
    let began = Instant::now();
    Ok(Conversion::new(&Processes::One, source, to, options)?.outlook(began))
}

/// A conversion that was checked.
struct Conversion<'s> {
    processes: &'s Processes,
    source: &'s ShardSet,
    to: &'s Layout,
    options: &'s ConvertOptions,
    /// Dimension `d` of the destination is dimension `axes[d]` of the source.
    axes: Vec<usize>,
    boxes: Boxes,
    threads: usize,
    /// Source files are read from the first byte to the last, and destination files written so.
    reads_in_order: bool,
    writes_in_order: bool,
}

impl<'s> Conversion<'s> {
    fn new(
        processes: &'s Processes,
        source: &'s ShardSet,
        to: &'s Layout,
        options: &'s ConvertOptions,
    ) -> Result<Self> {
        let dims = to.distribution().dims();
        let axes = options.axes.clone().unwrap_or_else(|| (0..dims).collect());
        let shape = to.distribution().shape();
        let from_shape = source.layout().distribution().shape();
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..from_shape.len())
            || axes.iter().map(|&axis| from_shape[axis]).ne(shape.iter().copied())
        {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the set has the shape {from_shape:?}, and the layout {to} was given for it{}; give one of that shape",
                    if options.axes.is_some() { format!(" with the axes {axes:?}") } else { String::new() }
                ),
            ));
        }
        let ranks = to.distribution().grid().size();
        if options.file && ranks != 1 {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "one file was to be written, and the layout {to} has {ranks} ranks; give a directory, or a layout of one rank"
                ),
            ));
        }
        if options.memory < MIN_MEMORY {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("{} bytes of memory were given; give at least {MIN_MEMORY}", options.memory),
            ));
        }
        let from = Files::of(source.layout(), Some(&axes));
        let there = Files::of(to, None);
        let elem = source.element().bytes();
        // Every copy of a replicated array is read, for its checksums, and written.
        let copies = to.distribution().copies().max(source.layout().distribution().copies());
        let budget = options.box_bytes.unwrap_or((options.memory - OVERHEAD_BYTES) / 2 / copies);
        let of = |budget| Boxes::new(&shape, elem, budget, &from, &there);
        let in_order =
            |boxes: &Boxes| boxes.are_in_order(&from.slow_first) && boxes.are_in_order(&there.slow_first);
        // Where files are passed through from the first byte to the last anyway, what is read stays in the caches until it is written.
        let cached = Some(of(budget.min(CACHED_BOX_BYTES))).filter(in_order);
        let boxes = cached.unwrap_or_else(|| of(budget));
        let threads =
            options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let reads_in_order = boxes.are_in_order(&from.slow_first);
        let writes_in_order = boxes.are_in_order(&there.slow_first);
        Ok(Self { processes, source, to, options, axes, boxes, threads, reads_in_order, writes_in_order })
    }

    /// The boxes of this process.
    fn share(&self) -> Range<u64> {
        self.processes.share(self.boxes.count())
    }

    /// What this run is: another one cannot continue it.
    fn identity(&self) -> String {
        let Self { source, to, options, axes, boxes, .. } = self;
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "convert {version} {} {} to {to} axes {axes:?} {:?} {}{} boxes {:?}",
            source.identity,
            source.element(),
            options.format,
            options.pattern(),
            match (options.checksums, options.file) {
                (true, false) => "",
                (false, false) => " without checksums",
                (true, true) => " as one file",
                (false, true) => " as one file without checksums",
            },
            boxes.extents()
        )
    }

    /// The names of the files: that of the destination, if it is the only one.
    fn pattern(&self, staging: &Staging) -> String {
        match self.options.file {
            true => staging.name().replace('{', "{{").replace('}', "}}"),
            false => self.options.pattern().to_string(),
        }
    }

    fn made(&self) -> Option<Made> {
        let made = self.source.made()?;
        Some(Made { seed: made.seed, axes: self.axes.iter().map(|&axis| made.axes[axis]).collect() })
    }

    fn outlook(&self, began: Instant) -> Converted {
        Converted {
            bytes: self.source.bytes(),
            boxes: self.share().end - self.share().start,
            resumed: 0,
            reads: 0,
            writes: 0,
            reread_bytes: 0,
            seconds: began.elapsed().as_secs_f64(),
            read_seconds: 0.0,
            move_seconds: 0.0,
            write_seconds: 0.0,
            sync_seconds: 0.0,
        }
    }

    /// The box of the source that becomes a box of the destination.
    fn source_region(&self, region: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut from = vec![0..0; region.len()];
        for (range, &axis) in region.iter().zip(&self.axes) {
            from[axis] = range.clone();
        }
        from
    }

    fn moving(&self, region: &[Range<u64>], from_region: &[Range<u64>]) -> Result<Move> {
        let part = |layout: &Layout, region: &[Range<u64>]| -> Result<Layout> {
            Ok(Layout::new(layout.distribution().within(region)?, layout.order()))
        };
        let (from, to) = (part(self.source.layout(), from_region)?, part(self.to, region)?);
        let shape: Vec<u64> = from_region.iter().map(|range| range.end - range.start).collect();
        let zero = vec![0; shape.len()];
        let window = Window::of(&shape).from(&zero).to(&zero).permuted(&self.axes);
        Move::windowed::<u8>(from, to, window)?.of_bytes(self.source.element().bytes())
    }

    /// Writes all files and their manifest, unless an earlier run has done so.
    fn write(
        &self,
        staging: &Staging,
        begun: Begun,
        converted: &mut Converted,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let Self { processes, source, to, options, .. } = self;
        let run = self.identity();
        let (texts, complete) = match begun {
            Begun::New => (Vec::new(), false),
            Begun::Journals(texts) => (texts, false),
            Begun::Complete(texts) => (texts, true),
        };
        let done = processes.agree(Journal::done_boxes(staging, &texts, &run))?;
        if complete {
            converted.resumed = converted.boxes;
            return Ok(());
        }
        let new = done.is_empty();
        let pattern = self.pattern(staging);
        let open = |new| {
            let output = Output::new(staging, to, source.element(), options.format, &pattern, new);
            output.map(|output| output.with_checksums(options.checksums))
        };
        // The leader makes the files, then the others open them.
        let begin = || Ok((Journal::begin(staging, processes.mine(), &run, &done)?, open(new)?));
        let leader = processes.agree(processes.leads().then(begin).transpose())?;
        let others = || Ok((Journal::begin(staging, processes.mine(), &run, &[])?, open(false)?));
        let (mut journal, mut output) = processes.agree(leader.map_or_else(others, Ok))?;
        let moved = self.move_boxes(staging, &mut journal, &mut output, &done, converted, progress);
        processes.agree(moved)?;
        let syncing = Instant::now();
        processes.agree(output.sync_all(staging, self.threads))?;
        let share = processes.share(output.files().len() as u64);
        let files = output.finish(staging, self.threads, share, &mut converted.reread_bytes);
        let texts = processes.gather(processes.agree(files)?)?;
        let manifest = Manifest { files: Output::files_of(&texts)?, ..output.manifest(self.made()) };
        let leader = processes.leads().then(|| staging.write_manifest(&manifest.write()?));
        processes.agree(leader.unwrap_or(Ok(())))?;
        converted.sync_seconds += syncing.elapsed().as_secs_f64();
        Ok(())
    }

    fn move_boxes(
        &self,
        staging: &Staging,
        journal: &mut Journal,
        output: &mut Output,
        done: &[Range<u64>],
        converted: &mut Converted,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let Self { processes, source, boxes, threads, options, .. } = self;
        let before = processes.agree(source.stamps())?;
        if options.checksums && !self.reads_in_order {
            converted.reread_bytes += self.check_source()?;
        }
        let share = self.share();
        let is_done = |number: u64| done.iter().any(|range| range.contains(&number));
        // Checksums are worked out on the way if one process writes everything, one box after the other.
        let prefix = done.first().filter(|first| first.start == 0).map_or(0, |first| first.end);
        let sums = options.checksums
            && self.writes_in_order
            && processes.count() == 1
            && !(prefix..share.end).any(is_done);
        let bytes_of = |number: u64| {
            let region = boxes.region(number);
            source.element().bytes() * region.iter().map(|range| range.end - range.start).product::<u64>()
        };
        let total: u64 = share.clone().map(bytes_of).sum();
        let mut moving = Moving {
            checked: source.shards.iter().map(|_| Checked::default()).collect(),
            from: Slab::default(),
            into: Slab::default(),
            engine: None,
        };
        let (mut moved, mut unsaved, mut first_unsaved) = (0, 0, share.start);
        for number in share.clone() {
            let bytes = bytes_of(number);
            moved += bytes;
            if is_done(number) {
                (converted.resumed, first_unsaved) = (converted.resumed + 1, number + 1);
                continue;
            }
            let region = boxes.region(number);
            self.read_box(&region, &mut moving, converted)?;
            let parts = self.move_box(&region, &mut moving, converted)?;
            let writing = Instant::now();
            converted.writes += output.write(staging, *threads, &region, &parts, sums)?;
            converted.write_seconds += writing.elapsed().as_secs_f64();
            unsaved += bytes;
            let next_is_done = number + 1 == share.end || is_done(number + 1);
            if (unsaved >= self.options.box_bytes.unwrap_or(BYTES_PER_JOURNAL_LINE) || next_is_done)
                && number + 1 < share.end
            {
                let syncing = Instant::now();
                output.sync(staging, *threads)?;
                journal.done(staging, first_unsaved..number + 1)?;
                (unsaved, first_unsaved) = (0, number + 1);
                converted.sync_seconds += syncing.elapsed().as_secs_f64();
            }
            progress(moved, total);
        }
        if options.checksums && self.reads_in_order {
            let all = source.shards.iter().zip(&mut moving.checked).collect();
            for_each(*threads, all, |(shard, checked): (&Shard, &mut Checked)| {
                // No box has anything of a part without elements: its file is a header.
                let empty = source.layout().distribution().local_elems(shard.rank)? == 0;
                if empty { Checked::whole(source, shard) } else { checked.finish(source, shard) }
            })?;
        }
        // Files that were checked first and read later must be the same.
        source.is_unchanged_since(&before)
    }

    /// Checks all of the source before any of it is used, each process some of its files. Returns how many bytes they have.
    fn check_source(&self) -> Result<u64> {
        let Self { processes, source, threads, .. } = self;
        let share = processes.share(source.shards.len() as u64);
        let mine: Vec<&Shard> = source.shards[share.start as usize..share.end as usize].iter().collect();
        let bytes = mine.iter().filter(|shard| shard.sums.is_some()).map(|shard| shard.bytes).sum();
        processes.agree(for_each(*threads, mine, |shard| Checked::whole(source, shard)))?;
        Ok(bytes)
    }

    fn read_box(&self, region: &[Range<u64>], moving: &mut Moving, converted: &mut Converted) -> Result<()> {
        let Self { source, threads, .. } = self;
        let in_order = self.options.checksums && self.reads_in_order;
        let from_region = self.source_region(region);
        let (reading, reads) = (Instant::now(), AtomicU64::new(0));
        let parts = moving.from.cut(&self.lengths(&from_region)?)?;
        let all = source.shards.iter().zip(parts).zip(&mut moving.checked).collect();
        for_each(*threads, all, |((shard, memory), checked): ((&Shard, &mut [u8]), &mut Checked)| {
            let part = source.region(shard, &from_region)?;
            reads.fetch_add(part.runs(), Ordering::Relaxed);
            let failed = |error| source.failed(shard, "cannot be read", &error);
            let Some(run) = part.only_run().filter(|run| in_order && run.start < run.end) else {
                return part.read(&shard.file, memory).map_err(failed);
            };
            checked.go_on_at(source, shard, run.start)?;
            for (number, chunk) in memory.chunks_mut(CHUNK_BYTES).enumerate() {
                let at = run.start + (number * CHUNK_BYTES) as u64;
                std::os::unix::fs::FileExt::read_exact_at(&shard.file, chunk, at).map_err(failed)?;
                checked.update(source, shard, chunk)?;
            }
            Ok(())
        })?;
        converted.reads += reads.into_inner();
        converted.read_seconds += reading.elapsed().as_secs_f64();
        Ok(())
    }

    /// Bytes of a box in each file of the source.
    fn lengths(&self, from_region: &[Range<u64>]) -> Result<Vec<u64>> {
        let source = self.source;
        source.shards.iter().map(|shard| Ok(source.region(shard, from_region)?.bytes())).collect()
    }

    /// Moves a box that was read. Returns its parts in the files of the destination.
    fn move_box<'m>(
        &self,
        region: &[Range<u64>],
        moving: &'m mut Moving,
        converted: &mut Converted,
    ) -> Result<Vec<&'m mut [u8]>> {
        let (began, elem) = (Instant::now(), self.source.element().bytes());
        let from_region = self.source_region(region);
        let wanted = self.moving(region, &from_region)?;
        let to = wanted.to();
        let ranks = to.distribution().grid().sorted_ranks();
        let lengths = ranks.iter().map(|&rank| Ok(to.span(rank)? * elem)).collect::<Result<Vec<_>>>()?;
        let from = moving.from.cut(&self.lengths(&from_region)?)?;
        let mut into = moving.into.cut(&lengths)?;
        if moving.engine.as_ref().is_none_or(|(last, _)| *last != wanted) {
            let plan = Arc::new(Plan::new(vec![wanted.clone()])?);
            let threads = ThreadsOptions::default().with_threads(self.threads);
            moving.engine = Some((wanted, Redistribution::with(Threads::with_options(plan, threads)?)));
        }
        if let Some((_, engine)) = &mut moving.engine {
            engine.run_bytes(&from, &mut into)?;
        }
        converted.move_seconds += began.elapsed().as_secs_f64();
        Ok(into)
    }
}

/// What is kept from box to box.
struct Moving {
    /// How far each source file was checked.
    checked: Vec<Checked>,
    /// The box, in the parts of the source and of the destination.
    from: Slab,
    into: Slab,
    /// Of the last box: many boxes are moved alike.
    engine: Option<(Move, Redistribution)>,
}

/// Fails if the destination lies in the source, or is the source.
fn outside(source: &ShardSet, destination: &Path) -> Result<()> {
    if !source.owns_directory {
        return Ok(());
    }
    let parent =
        destination.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Ok(from)) = (parent.canonicalize(), source.path.canonicalize()) else { return Ok(()) };
    let whole = destination.file_name().map_or_else(|| parent.clone(), |name| parent.join(name));
    match whole.starts_with(&from) {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "the destination {} lies in the source {}; give one beside it",
                destination.display(),
                source.path.display()
            ),
        )),
    }
}
