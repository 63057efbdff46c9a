//! A set written from memory: each rank's part as it is there.

use crate::boxes::{Boxes, Files};
use crate::contents::only;
use crate::journal::Journal;
use crate::load::of_one;
use crate::manifest::{Format, Manifest};
use crate::output::{Output, Wanted};
use crate::parallel::engine;
use crate::processes::Processes;
use crate::staging::{Begun, Staging};
use reshard::{ElementType, Error, ErrorKind, Layout, Move, Plan, Result, bytemuck};
use std::collections::BTreeMap;
use std::path::Path;

/// How its journals begin.
const WORD: &str = "save ";

/// Bytes that are made tight at a time, where parts have room between their rows.
const BOX_BYTES: u64 = 16 << 20;

/// Writes the parts of all ranks, by ascending rank, as a set at `destination`, which must not exist. `element` names the type for readers.
///
/// ```
/// use reshard_shards::{Format, ShardSet, save};
/// # let folder = std::env::temp_dir().join(format!("reshard-save-doc-{}", std::process::id()));
/// let layout: reshard::Layout = "2x2/8x8 of 40x30 memory=row".parse()?;
/// let parts = layout.parts(|index| (100 * index[0] + index[1]) as f32)?;
/// save(&folder, &layout, "f32".parse()?, &parts, Format::Npy)?;
/// let mut whole = vec![0.0_f32; 40 * 30];
/// ShardSet::open(&folder)?.load_as(&"1x1/40x30 of 40x30 memory=row".parse()?, 0, &mut whole)?;
/// assert_eq!(whole[7 * 30 + 11], 711.0);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), reshard::Error>(())
/// ```
pub fn save<T: bytemuck::Pod>(
    destination: impl AsRef<Path>,
    layout: &Layout,
    element: ElementType,
    parts: &[impl AsRef<[T]>],
    format: Format,
) -> Result<()> {
    check_type::<T>(element)?;
    let parts: Vec<&[u8]> = parts.iter().map(|part| bytemuck::cast_slice(part.as_ref())).collect();
    save_bytes(destination, layout, element, &parts, format)
}

/// Writes the parts of all ranks as [`save`], from memory that is given as bytes.
pub fn save_bytes(
    destination: impl AsRef<Path>,
    layout: &Layout,
    element: ElementType,
    parts: &[impl AsRef<[u8]>],
    format: Format,
) -> Result<()> {
    let ranks = layout.distribution().grid().size();
    if parts.len() as u64 != ranks {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!("{} parts were given for the {ranks} ranks of {layout}; give one for each", parts.len()),
        ));
    }
    let ranks = layout.distribution().grid().sorted_ranks();
    let parts: Vec<(u64, &[u8])> = ranks.into_iter().zip(parts.iter().map(AsRef::as_ref)).collect();
    save_by(&Processes::One, destination.as_ref(), layout, element, &parts, format)
}

/// Writes a set by several processes, each with the parts of some ranks, as bytes. Collective; processes give their parts by ascending rank.
pub(crate) fn save_by(
    processes: &Processes,
    destination: &Path,
    layout: &Layout,
    element: ElementType,
    parts: &[(u64, &[u8])],
    format: Format,
) -> Result<()> {
    processes.agree(check(layout, element, parts))?;
    processes.must_agree(&format!("{WORD}{layout} {element} {format:?} at {}", destination.display()))?;
    // What an earlier one has left behind is of no use: this part is another.
    let begin = || Ok((Staging::begin_anew(destination, WORD)?, Begun::New));
    let (staging, _) = Staging::begin_by(processes, destination, begin)?;
    let written = write(processes, &staging, layout, element, parts, format);
    if written.is_err() {
        if processes.leads() {
            staging.discard();
        }
        return written;
    }
    let leader = processes.leads().then(|| staging.finish());
    processes.agree(leader.unwrap_or(Ok(())))
}

/// Fails if elements of a type of Rust cannot be those of the set.
pub(crate) fn check_type<T>(element: ElementType) -> Result<()> {
    if size_of::<T>() as u64 == element.bytes() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Mismatch,
        format!(
            "elements of {} bytes were given as {element}, which has {}",
            size_of::<T>(),
            element.bytes()
        ),
    ))
}

fn check(layout: &Layout, element: ElementType, parts: &[(u64, &[u8])]) -> Result<()> {
    for (rank, part) in parts {
        let span = layout.span(*rank)?.saturating_mul(element.bytes());
        if part.len() as u64 != span {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the part of rank {rank} under {layout} has {span} bytes, and {} were given",
                    part.len()
                ),
            ));
        }
    }
    Ok(())
}

fn write(
    processes: &Processes,
    staging: &Staging,
    layout: &Layout,
    element: ElementType,
    parts: &[(u64, &[u8])],
    format: Format,
) -> Result<()> {
    let run = format!("{WORD}{layout} {element}");
    let leader = processes.leads().then(|| Journal::begin(staging, 0, &run, &[])).transpose();
    processes.agree(leader)?;
    let (pattern, words) = (format.default_names(), BTreeMap::new());
    let wanted = || Wanted {
        arrays: vec![only(format, layout, element)],
        format,
        pattern,
        words: &words,
        checked: true,
    };
    let files = parts.iter().map(|(rank, part)| {
        let mut output = Output::of_ranks(staging, wanted(), true, |other| other == *rank)?;
        write_part(&mut output, staging, layout, *rank, part, element.bytes())?;
        output.sync_all(staging, 1)?;
        output.finish(staging, 1, 0..1, &mut 0)
    });
    let files = processes.agree(files.collect::<Result<Vec<_>>>())?;
    let texts = processes.gather(files.concat())?;
    let finished = Output::files_of(&texts).and_then(|files| {
        let output = Output::of_ranks(staging, wanted(), false, |_| false)?;
        Manifest { files, ..output.manifest() }.write()
    });
    let leader = processes.leads().then(|| staging.write_manifest(&finished?));
    processes.agree(leader.unwrap_or(Ok(())))
}

/// Writes a part without what lies between its elements.
fn write_part(
    output: &mut Output,
    staging: &Staging,
    layout: &Layout,
    rank: u64,
    part: &[u8],
    elem: u64,
) -> Result<()> {
    let shape = layout.distribution().local_shape(rank)?;
    let (strides, tight) = (layout.strides(rank)?, of_one(&shape, layout.order())?);
    if strides == tight.strides(0)? {
        return output.append(staging, part);
    }
    let files = Files::of_one(&shape, layout.order());
    let boxes = Boxes::new(&shape, elem, BOX_BYTES, &files, &files);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut into = Vec::new();
    for number in 0..boxes.count() {
        let region = boxes.region(number);
        let extents: Vec<u64> = region.iter().map(|range| range.end - range.start).collect();
        let to = of_one(&extents, layout.order())?;
        let from = to.clone().with_strides_of(0, &strides)?;
        let start: u64 = region.iter().zip(&strides).map(|(range, stride)| range.start * stride).sum();
        let span = from.span(0)?;
        let from_bytes = &part[(start * elem) as usize..((start + span) * elem) as usize];
        into.resize((to.span(0)? * elem) as usize, 0);
        let moving = Move::of::<u8>(from, to)?.of_bytes(elem)?;
        engine(Plan::new(vec![moving])?, threads)?.run_bytes(&[from_bytes], &mut [&mut into[..]])?;
        output.append(staging, &into)?;
    }
    Ok(())
}
