//! Checks, before a run is resumed, that the partial output is what the interrupted run wrote; a changed one is refused.

use crate::checksum::append_crc;
use crate::journal::Done;
use crate::one_array::OneArray;
use crate::output::Output;
use crate::set::ShardSet;
use crate::slab::Slab;
use crate::staging::Staging;
use reshard::{Error, ErrorKind, Result};
use std::ops::Range;

/// Fails if a journal says what no run says: boxes that a run of `boxes` has not or that are done twice, or none; or no checksum of them, where
/// the run has some.
pub fn check_lines(staging: &Staging, boxes: u64, checksums: bool, done: &[Done]) -> Result<()> {
    let mut from = 0;
    for Done { boxes: range, crc } in done {
        let Range { start, end } = *range;
        let why = if start >= end || end > boxes {
            format!("its journal has the boxes {start} to {end}, and the run has {boxes}")
        } else if start < from {
            format!("its journal has the box {start} twice")
        } else if checksums && crc.is_none() {
            format!("its journal has no checksum of the boxes {start} to {end}")
        } else {
            from = end;
            continue;
        };
        return Err(changed(staging, &why));
    }
    Ok(())
}

/// Fails if some boxes are not what was written, by the checksums that the journal has of them.
pub fn check_boxes(
    staging: &Staging,
    threads: usize,
    arrays: &[OneArray<'_>],
    output: &Output,
    done: &[Done],
) -> Result<()> {
    let mut slab = Slab::default();
    // A run without checksums has lines without them.
    for (boxes, known) in done.iter().filter_map(|done| Some((&done.boxes, done.crc?))) {
        let mut found = 0;
        for number in boxes.clone() {
            let Some(at) = arrays.iter().position(|array| array.numbers().contains(&number)) else {
                continue;
            };
            let region = arrays[at].region(number);
            found = append_crc(found, output.crc_of_box(staging, threads, at, &region, &mut slab)?);
        }
        if found != known {
            return Err(changed(
                staging,
                "what was written last time has other checksums than its journal says",
            ));
        }
    }
    Ok(())
}

/// Fails if a set that has everything but its name is not what was written.
pub fn check_complete(staging: &Staging) -> Result<()> {
    let checked = ShardSet::open(staging.path()).and_then(|set| set.check_files().map(|_| ()));
    checked.map_err(|error| match error.kind() {
        ErrorKind::External => error,
        _ => changed(staging, &error.to_string()),
    })
}

fn changed(staging: &Staging, why: &str) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!(
            "{} was changed since the run that is to be continued: {why}; remove it, and begin again",
            staging.path().display()
        ),
    )
}
