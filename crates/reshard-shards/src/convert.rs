//! A set written anew under other layouts, in as much memory as one gives it: box by box, each read from its files, moved by the thread
//! engine, and written to its files. Several processes share the boxes, and afterwards the checksums of the files.

use crate::array::{Array, Part};
use crate::blocks::BlockSums;
use crate::checksum::{Digest, append_crc};
use crate::contents::lay_out;
use crate::journal::{Done, Journal};
use crate::manifest::Manifest;
use crate::one_array::{OneArray, check_one_rank};
use crate::options::{ConvertOptions, Converted, MIN_MEMORY};
use crate::output::{Output, Wanted};
use crate::parallel::{engine, for_each};
use crate::processes::Processes;
use crate::resumed::{check_boxes, check_complete, check_lines};
use crate::set::{Shard, ShardSet};
use crate::slab::Slab;
use crate::staging::{Begun, Staging};
use reshard::error::counted;
use reshard::{Error, ErrorKind, Layout, Move, Plan, Redistribution, Result};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes that may be written until everything before is made durable, and the journal says so.
const BYTES_PER_JOURNAL_LINE: u64 = 1 << 30;

/// Smaller boxes are read, moved and written by one thread: 6,000 tensors of 8 KiB and less, in memory, take 0.5 s, and with two threads and no
/// engine kept 8.3 s.
const SMALL_BOX_BYTES: u64 = 256 << 10;

/// Engines that are kept for small boxes: a model has tensors of few shapes, in turns.
const KEPT_ENGINES: usize = 16;

/// Converts a set to the layout `to`, as a new set at `destination`, which must not exist: a directory, or one file if the options say
/// so. `progress` is told how many bytes of how many are done.
pub fn convert(
    source: &ShardSet,
    destination: impl AsRef<Path>,
    to: &Layout,
    options: &ConvertOptions,
    progress: impl FnMut(u64, u64),
) -> Result<Converted> {
    source.only()?;
    convert_arrays(source, destination, std::slice::from_ref(to), options, progress)
}

/// Converts a set of any number of arrays as [`convert`] does; `to` has a layout for each, in the order of [`ShardSet::arrays`].
///
/// ```
/// use reshard_shards::{ConvertOptions, Format, Import, Layouts, ShardSet, Tensors, convert_arrays};
/// # let folder = std::env::temp_dir().join(format!("reshard-tensors-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let bf16: reshard::ElementType = "bf16".parse()?;
/// # let wanted = vec![("up".into(), bf16, vec![4, 6]), ("norm".into(), bf16, vec![6])];
/// # let tensors = Tensors::new(wanted, Default::default())?;
/// # for rank in 0..2 {
/// #     let mut bytes = tensors.write()?;
/// #     bytes.resize(tensors.file_bytes() as usize, 0);
/// #     std::fs::write(folder.join(format!("tp{rank}.safetensors")), bytes).unwrap();
/// # }
/// let from = Layouts::new(["norm=(*) on 2", "(block, *) on 2x1"])?; // two ranks wrote
/// let set = ShardSet::import(folder.join("tp{rank}.safetensors"), &Import::default().with_layouts(from))?;
/// let options = ConvertOptions::default().with_format(Format::Safetensors);
/// let to = options.layouts(&set, &Layouts::new(["norm=(*) on 4", "(block, *) on 4x1"])?)?; // four ranks read
/// convert_arrays(&set, folder.join("tp4"), &to, &options, |_, _| {})?;
/// assert_eq!(ShardSet::open(folder.join("tp4"))?.array("up")?.layout().distribution().shape(), [8, 6]);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), reshard::Error>(())
/// ```
pub fn convert_arrays(
    source: &ShardSet,
    destination: impl AsRef<Path>,
    to: &[Layout],
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
    to: &[Layout],
    options: &ConvertOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted> {
    let began = Instant::now();
    let checked =
        source.check_outside(destination).and_then(|()| Conversion::new(processes, source, to, options));
    let conversion = processes.agree(checked)?;
    let (run, resume) = (conversion.identity(), options.resume);
    processes.must_agree(&format!("{run} at {} resume {resume}", destination.display()))?;
    let mut converted = conversion.outlook(began);
    let (staging, begun) = Staging::begin_by(processes, destination, || {
        Staging::begin(destination, options.resume, options.file)
    })?;
    let staging = staging.with_modes(source.modes);
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

/// What [`convert_arrays`] would do, without doing it.
pub fn outlook(source: &ShardSet, to: &[Layout], options: &ConvertOptions) -> Result<Converted> {
    let began = Instant::now();
    Ok(Conversion::new(&Processes::One, source, to, options)?.outlook(began))
}

/// A conversion that was checked.
struct Conversion<'s> {
    processes: &'s Processes,
    source: &'s ShardSet,
    options: &'s ConvertOptions,
    /// As their parts follow each other in the files.
    arrays: Vec<OneArray<'s>>,
    threads: usize,
}

impl<'s> Conversion<'s> {
    fn new(
        processes: &'s Processes,
        source: &'s ShardSet,
        to: &[Layout],
        options: &'s ConvertOptions,
    ) -> Result<Self> {
        let wrong = |why: String| Err(Error::new(ErrorKind::Mismatch, why));
        if to.len() != source.arrays.len() {
            return wrong(format!(
                "{} has {}, and {} were given; give one for each",
                source.path.display(),
                counted(source.arrays.len(), "array"),
                counted(to.len(), "layout")
            ));
        }
        if options.memory < MIN_MEMORY {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("{} bytes of memory were given; give at least {MIN_MEMORY}", options.memory),
            ));
        }
        let arrays = source.arrays.iter().zip(to).map(|(from, to)| OneArray::new(from, to, options));
        let mut arrays = arrays.collect::<Result<Vec<_>>>()?;
        if options.file {
            check_one_rank(to)?;
        }
        arrays.sort_by(|one, other| one.to.place().cmp(&other.to.place()));
        let mut boxes = 0;
        for array in &mut arrays {
            array.first_box = boxes;
            boxes += array.boxes.count();
        }
        // Fails if the files cannot hold them.
        lay_out(options.format, &mut wanted(&arrays), &source.words)?;
        let threads =
            options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Ok(Self { processes, source, options, arrays, threads })
    }

    /// Threads for a box of so many bytes: to begin one takes longer than to copy a small tensor.
    fn threads_for(&self, bytes: u64) -> usize {
        if bytes < SMALL_BOX_BYTES { 1 } else { self.threads }
    }

    /// The boxes of this process.
    fn share(&self) -> Range<u64> {
        self.processes.share(self.boxes())
    }

    /// All boxes.
    fn boxes(&self) -> u64 {
        self.arrays.iter().map(|array| array.boxes.count()).sum()
    }

    /// What this run is: another one cannot continue it.
    fn identity(&self) -> String {
        let Self { source, options, arrays, .. } = self;
        let version = env!("CARGO_PKG_VERSION");
        let said: Vec<String> = arrays.iter().map(OneArray::identity).collect();
        let said = match &said[..] {
            [one] => one.clone(),
            many => format!("{} arrays {}", many.len(), Digest::of(many.join("\n").as_bytes())),
        };
        format!(
            "convert {version} {} {said} {:?} {}{}",
            source.identity,
            options.format,
            options.pattern(),
            match (options.checksums, options.file) {
                (true, false) => "",
                (false, false) => " without checksums",
                (true, true) => " as one file",
                (false, true) => " as one file without checksums",
            },
        )
    }

    /// The names of the files: that of the destination, if it is the only one.
    fn pattern(&self, staging: &Staging) -> String {
        match self.options.file {
            true => staging.name().replace('{', "{{").replace('}', "}}"),
            false => self.options.pattern().to_string(),
        }
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

    /// Writes all files and their manifest, unless an earlier run has done so.
    fn write(
        &self,
        staging: &Staging,
        begun: Begun,
        converted: &mut Converted,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let Self { processes, source, options, .. } = self;
        let run = self.identity();
        let (texts, complete) = match begun {
            Begun::New => (Vec::new(), false),
            Begun::Journals(texts) => (texts, false),
            Begun::Complete(texts) => (texts, true),
        };
        let done = Journal::done_boxes(staging, &texts, &run).and_then(|done| {
            check_lines(staging, self.boxes(), options.checksums, &done)?;
            Ok(done)
        });
        let done = processes.agree(done)?;
        if complete {
            let leader = processes.leads() && !staging.is_named() && options.checksums;
            processes.agree(if leader { check_complete(staging) } else { Ok(()) })?;
            converted.resumed = converted.boxes;
            return Ok(());
        }
        let new = done.is_empty();
        let pattern = self.pattern(staging);
        let open = |new| {
            let (format, words) = (options.format, &source.words);
            let (arrays, checked) = (wanted(&self.arrays), options.checksums);
            Output::new(staging, Wanted { arrays, format, pattern: &pattern, words, checked }, new)
        };
        // The leader makes the files, then the others open them.
        let begin = || Ok((Journal::begin(staging, processes.mine(), &run, &done)?, open(new)?));
        let leader = processes.agree(processes.leads().then(begin).transpose())?;
        let others = || Ok((Journal::begin(staging, processes.mine(), &run, &[])?, open(false)?));
        let (mut journal, mut output) = processes.agree(leader.map_or_else(others, Ok))?;
        let mine = processes.share(done.len() as u64);
        let left = &done[mine.start as usize..mine.end as usize];
        processes.agree(check_boxes(staging, self.threads, &self.arrays, &output, left))?;
        let moved = self.move_boxes(staging, &mut journal, &mut output, &done, converted, progress);
        processes.agree(moved)?;
        let syncing = Instant::now();
        processes.agree(output.sync_all(staging, self.threads))?;
        if options.checksums {
            output.merge(processes)?;
        }
        let share = processes.share(output.files().len() as u64);
        let files = output.finish(staging, self.threads, share, &mut converted.reread_bytes);
        let texts = processes.gather(processes.agree(files)?)?;
        let manifest = Manifest { files: Output::files_of(&texts)?, ..output.manifest() };
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
        done: &[Done],
        converted: &mut Converted,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let Self { processes, source, arrays, options, .. } = self;
        let before = processes.agree(source.stamps())?;
        let (share, done) = (self.share(), Journal::joined(done));
        let is_done = |number: u64| done.iter().any(|range| range.contains(&number));
        let mine = |array: &OneArray<'_>| {
            let numbers = array.numbers();
            numbers.start.max(share.start)..numbers.end.min(share.end)
        };
        let all =
            arrays.iter().enumerate().flat_map(|(at, array)| mine(array).map(move |number| (at, number)));
        let total: u64 =
            all.clone().map(|(at, number)| arrays[at].bytes_of(&arrays[at].region(number))).sum();
        let mut moving = Moving {
            sums: processes.agree(self.sums())?,
            from: Slab::default(),
            into: Slab::default(),
            engines: Vec::new(),
        };
        let line_bytes = options.box_bytes.unwrap_or(BYTES_PER_JOURNAL_LINE);
        // Short runs write no lines.
        let kept = options.checksums && (total > line_bytes || !done.is_empty());
        let mut boxes = || {
            let (mut moved, mut unsaved, mut first_unsaved, mut unsaved_crc) = (0, 0, share.start, 0);
            for (at, number) in all.clone() {
                let array = &arrays[at];
                let region = array.region(number);
                let bytes = array.bytes_of(&region);
                moved += bytes;
                let is_written = is_done(number);
                if is_written {
                    (converted.resumed, first_unsaved) = (converted.resumed + 1, number + 1);
                }
                // What an earlier run has moved it had not checked to the end: it is moved again, and not written.
                if is_written && !options.checksums {
                    continue;
                }
                self.read_box(array, &region, &mut moving, converted)?;
                let parts = self.move_box(array, &region, &mut moving, converted)?;
                let writing = Instant::now();
                let threads = self.threads_for(bytes);
                let (writes, crc) =
                    output.write(staging, threads, at, &region, &parts, is_written, kept && !is_written)?;
                converted.writes += writes;
                converted.write_seconds += writing.elapsed().as_secs_f64();
                if is_written {
                    progress(moved, total);
                    continue;
                }
                unsaved_crc = append_crc(unsaved_crc, crc);
                unsaved += bytes;
                let next_is_done = number + 1 == share.end || is_done(number + 1);
                if (unsaved >= line_bytes || next_is_done) && number + 1 < share.end {
                    let syncing = Instant::now();
                    output.sync(staging, self.threads)?;
                    let boxes = first_unsaved..number + 1;
                    journal.done(staging, &Done { boxes, crc: kept.then_some(unsaved_crc) })?;
                    (unsaved, first_unsaved, unsaved_crc) = (0, number + 1, 0);
                    converted.sync_seconds += syncing.elapsed().as_secs_f64();
                }
                progress(moved, total);
            }
            Ok(())
        };
        processes.agree(boxes())?;
        self.check_source(&mut moving.sums)?;
        // Files without checksums must be the same that they were.
        source.is_unchanged_since(&before)
    }

    /// The checksums of what will be read of each file, if it has some; of its header if no other process does this.
    fn sums(&self) -> Result<Vec<Option<BlockSums>>> {
        let alone = self.processes.count() == 1;
        let sums = |shard: &Shard| {
            let Some(known) = shard.sums.as_ref().filter(|_| self.options.checksums) else { return Ok(None) };
            let mut sums = BlockSums::new(shard.bytes, known.block_bytes)?;
            if alone {
                sums.add_start(&known.header);
            }
            Ok(Some(sums))
        };
        self.source.shards.iter().map(sums).collect()
    }

    /// Fails unless all that was read, by all processes, is what was written: each block of each file, of which every byte was read once.
    fn check_source(&self, sums: &mut [Option<BlockSums>]) -> Result<()> {
        let Self { processes, source, .. } = self;
        BlockSums::merge(processes, sums.iter_mut().flatten().collect())?;
        let all = source.shards.iter().zip(sums);
        for (shard, sums) in all.filter_map(|(shard, sums)| Some((shard, sums.as_mut()?))) {
            let Some(known) = &shard.sums else { continue };
            if processes.count() > 1 {
                // Each has read the headers for itself.
                sums.add_start(&known.header);
            }
            if let Some(block) = sums.difference(&known.crc32c) {
                return Err(source.not_what_was_written(shard, block));
            }
        }
        Ok(())
    }

    fn read_box(
        &self,
        array: &OneArray<'_>,
        region: &[Range<u64>],
        moving: &mut Moving,
        converted: &mut Converted,
    ) -> Result<()> {
        let (source, from) = (self.source, array.from);
        let from_region = array.source_region(region);
        let (reading, reads) = (Instant::now(), AtomicU64::new(0));
        let mut parts = moving.from.cut(&lengths(from, &from_region)?)?;
        // The parts ascend as the files do.
        let mut sums = moving.sums.iter_mut().enumerate();
        let all = from.parts.iter().zip(&mut parts).filter_map(|(part, memory)| {
            let (_, sums) = sums.find(|(file, _)| *file == part.file)?;
            Some((part, memory, sums))
        });
        type Item<'i, 'm> = (&'i Part, &'i mut &'m mut [u8], &'i mut Option<BlockSums>);
        let threads = self.threads_for(array.bytes_of(region));
        for_each(threads, all.collect(), |(part, memory, sums): Item<'_, '_>| {
            let (shard, place) = (source.shard(part), from.region(part, &from_region)?);
            reads.fetch_add(place.runs(), Ordering::Relaxed);
            let known = shard.sums.as_ref().map_or(&[][..], |known| &known.crc32c);
            for (at, piece) in place.pieces_mut(memory) {
                let read = shard.file.read_exact_at(piece, at);
                read.map_err(|error| source.failed(shard, "cannot be read", &error))?;
                if let Some(sums) = sums {
                    let added = sums.add(at, piece, known);
                    added.map_err(|block| source.not_what_was_written(shard, block))?;
                }
            }
            Ok(())
        })?;
        source.check_copies(from, &array.firsts, &parts)?;
        converted.reads += reads.into_inner();
        converted.read_seconds += reading.elapsed().as_secs_f64();
        Ok(())
    }

    /// Moves a box that was read. Returns its parts in the files of the destination.
    fn move_box<'m>(
        &self,
        array: &OneArray<'_>,
        region: &[Range<u64>],
        moving: &'m mut Moving,
        converted: &mut Converted,
    ) -> Result<Vec<&'m mut [u8]>> {
        let (began, elem) = (Instant::now(), array.from.element.bytes());
        let wanted = array.moving(region)?;
        let to = wanted.to();
        let ranks = to.distribution().grid().sorted_ranks();
        let spans = ranks.iter().map(|&rank| Ok(to.span(rank)? * elem)).collect::<Result<Vec<_>>>()?;
        let from = moving.from.cut(&lengths(array.from, &array.source_region(region))?)?;
        let mut into = moving.into.cut(&spans)?;
        // Plans of large boxes may be large, too: of those one is kept.
        let kept = if array.bytes_of(region) < SMALL_BOX_BYTES { KEPT_ENGINES } else { 1 };
        let at = match moving.engines.iter().position(|(known, _)| *known == wanted) {
            Some(at) => at,
            None => {
                let plan = Plan::new(vec![wanted.clone()])?;
                moving.engines.truncate(kept - 1);
                let engine = engine(plan, self.threads_for(array.bytes_of(region)))?;
                moving.engines.insert(0, (wanted, engine));
                0
            }
        };
        moving.engines[at].1.run_bytes(&from, &mut into)?;
        converted.move_seconds += began.elapsed().as_secs_f64();
        Ok(into)
    }
}

/// The arrays that are written.
fn wanted(arrays: &[OneArray<'_>]) -> Vec<Array> {
    arrays.iter().map(|array| array.to.clone()).collect()
}

/// Bytes of a box in each of its parts.
fn lengths(array: &Array, region: &[Range<u64>]) -> Result<Vec<u64>> {
    array.parts.iter().map(|part| Ok(array.region(part, region)?.bytes())).collect()
}

/// What is kept from box to box.
struct Moving {
    /// Of what was read of each source file.
    sums: Vec<Option<BlockSums>>,
    /// The box, in the parts of the source and of the destination.
    from: Slab,
    into: Slab,
    /// Of the last boxes, the newest first: many boxes are moved alike.
    engines: Vec<(Move, Redistribution)>,
}
