//! A set of elements that are a function of their index: to try things out, and to check them.

use crate::boxes::{Boxes, Files};
use crate::contents::only;
use crate::journal::Journal;
use crate::made::Elements;
use crate::manifest::{Format, Made, Manifest};
use crate::output::{Output, Wanted};
use crate::parallel::for_each;
use crate::slab::Slab;
use crate::staging::Staging;
use reshard::{ElementType, Layout, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// How its journals begin.
const WORD: &str = "make ";
/// Bytes of elements that are made at a time.
const BOX_BYTES: u64 = 64 << 20;

/// Makes a set at `destination`, which must not exist.
pub fn make(
    destination: impl AsRef<Path>,
    layout: &Layout,
    element: ElementType,
    format: Format,
    seed: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<u64> {
    make_at(destination.as_ref(), layout, element, format, seed, &mut progress)
}

fn make_at(
    destination: &Path,
    layout: &Layout,
    element: ElementType,
    format: Format,
    seed: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let distribution = layout.distribution();
    let shape = distribution.shape();
    let made = Made { seed, axes: (0..shape.len()).collect() };
    // What an earlier one has made is made again as fast as it is checked: nothing is continued.
    let staging = Staging::begin_anew(destination, WORD)?;
    let identity = format!("{WORD}{layout} {element} {seed}");
    let written = Journal::begin(&staging, 0, &identity, &[])
        .and_then(|_| write(&staging, layout, element, format, &made, progress));
    if let Err(error) = written {
        staging.discard();
        return Err(error);
    }
    staging.finish()?;
    Ok(distribution.elems() * element.bytes())
}

/// Writes all files, and their manifest.
fn write(
    staging: &Staging,
    layout: &Layout,
    element: ElementType,
    format: Format,
    made: &Made,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let distribution = layout.distribution();
    let shape = distribution.shape();
    let pattern = format.default_names();
    let mut array = only(format, layout, element);
    array.made = Some(made.clone());
    let wanted = Wanted { arrays: vec![array], format, pattern, words: &BTreeMap::new(), checked: true };
    let mut output = Output::new(staging, wanted, true)?;
    let files = Files::of(layout, None);
    let boxes = Boxes::new(&shape, element.bytes(), BOX_BYTES, &files, &files);
    let elements = Elements::new(made, &shape, element);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let ranks = distribution.grid().sorted_ranks();
    let mut slab = Slab::default();
    let (total, mut done) = (distribution.elems() * element.bytes(), 0);
    for number in 0..boxes.count() {
        let region = boxes.region(number);
        let local = |rank| distribution.local_region(rank, &region);
        let bytes = |&rank: &u64| {
            Ok(local(rank)?.iter().map(|range| range.end - range.start).product::<u64>() * element.bytes())
        };
        let mut parts = slab.cut(&ranks.iter().map(bytes).collect::<Result<Vec<_>>>()?)?;
        for_each(
            threads,
            ranks.iter().zip(&mut parts).collect(),
            |(&rank, part): (&u64, &mut &mut [u8])| elements.fill(layout, rank, &local(rank)?, part),
        )?;
        output.write(staging, threads, 0, &region, &parts, false, false)?;
        done += element.bytes() * region.iter().map(|range| range.end - range.start).product::<u64>();
        progress(done, total);
    }
    output.sync_all(staging, threads)?;
    let files = output.finish(staging, threads, 0..ranks.len() as u64, &mut 0)?;
    let manifest = Manifest { files: Output::files_of(&[files])?, ..output.manifest() };
    staging.write_manifest(&manifest.write()?)
}
