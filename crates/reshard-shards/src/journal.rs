//! What a run has done so far, for the one that continues it: a line that says what the run is, and one for each time that everything
//! before was made durable, with the boxes that were and a checksum of them, for whoever continues must not take what somebody else has put
//! there in the meantime. A line that was cut off by a power failure does not count, nor does what follows it.
//! Each process has a journal of its own.

use crate::checksum::crc32c;
use crate::element::shown_to;
use crate::staging::{JOURNAL_NAME, Staging};
use reshard::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::Write;
use std::ops::Range;

/// The most characters of the first line of another run that an error repeats.
const SHOWN_RUN_CHARS: usize = 1000;

/// Boxes that are done, and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub boxes: Range<u64>,
    /// Of the checksums of the boxes; none for a run without checksums.
    pub crc: Option<u32>,
}

/// The journal of a process.
pub struct Journal {
    name: String,
    file: File,
}

impl Journal {
    /// Begins the journal of a process: `run` says what is done, in one line, `done` which boxes are already.
    pub fn begin(staging: &Staging, process: usize, run: &str, done: &[Done]) -> Result<Self> {
        let name =
            if process == 0 { JOURNAL_NAME.to_string() } else { format!("{}.{process}", JOURNAL_NAME) };
        // The old one stays until the new one is whole.
        let new = format!("{name}.new");
        let mut journal = Self { file: staging.open(&new, true)?, name };
        let lines: Vec<String> = done.iter().map(line_of).collect();
        let lines = std::iter::once(run).chain(lines.iter().map(|line| &line[..]));
        journal.add(staging, lines)?;
        staging.rename_in(&new, &journal.name)?;
        Ok(journal)
    }

    /// Which boxes are done, ascending, by the journals of all processes of a run that did not come to its end; an error if it was another.
    pub fn done_boxes(staging: &Staging, texts: &[String], run: &str) -> Result<Vec<Done>> {
        Self::read(texts, run).map_err(|begun| match begun {
            _ if staging.is_named() => staging.exists_already(),
            begun => Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the run that left {} behind was another: its source, its layout or its options differ, or a file was changed ({} before, \
                     {run} now); remove it, and begin again",
                    staging.path().display(),
                    begun.map_or("unreadable".into(), |begun| shown_to(begun, SHOWN_RUN_CHARS))
                ),
            ),
        })
    }

    /// Which boxes are done, ascending, by the texts of all journals. The error is the first line of one of another run, if it is whole.
    pub fn read<'t>(texts: &'t [String], run: &str) -> std::result::Result<Vec<Done>, Option<&'t str>> {
        let mut done: Vec<Done> = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let mut lines = text.split_inclusive('\n').map_while(checked);
            match lines.next() {
                Some(begun) if begun == run => {}
                // A process that was not the first may not have come to write its own.
                None if number > 0 => continue,
                begun => return Err(begun),
            }
            done.extend(lines.map_while(done_of));
        }
        done.sort_unstable_by_key(|done| (done.boxes.start, done.boxes.end));
        // The leader has copied the lines of others, who may have them still.
        done.dedup();
        Ok(done)
    }

    /// The boxes that are done, ascending and apart.
    pub fn joined(done: &[Done]) -> Vec<Range<u64>> {
        let mut joined: Vec<Range<u64>> = Vec::new();
        for Done { boxes, .. } in done {
            match joined.last_mut() {
                Some(last) if boxes.start <= last.end => last.end = last.end.max(boxes.end),
                _ => joined.push(boxes.clone()),
            }
        }
        joined
    }

    /// Says that some boxes are done, and durable.
    pub fn done(&mut self, staging: &Staging, done: &Done) -> Result<()> {
        self.add(staging, [&line_of(done)[..]])
    }

    fn add<'l>(&mut self, staging: &Staging, lines: impl IntoIterator<Item = &'l str>) -> Result<()> {
        let text: String = lines.into_iter().map(sealed).collect();
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| staging.failed(&self.name, "cannot be written", &error))
    }
}

/// A line with its checksum in front, as it is written.
pub fn sealed(line: &str) -> String {
    format!("{:08x} {line}\n", crc32c(line.as_bytes()))
}

/// What a line says of boxes.
pub fn line_of(done: &Done) -> String {
    let crc = done.crc.map_or_else(String::new, |crc| format!(" {crc:08x}"));
    format!("{}..{}{crc}", done.boxes.start, done.boxes.end)
}

fn done_of(line: &str) -> Option<Done> {
    let (boxes, crc) = line.split_once(' ').map_or((line, None), |(boxes, crc)| (boxes, Some(crc)));
    let crc = crc.map(|crc| u32::from_str_radix(crc, 16).ok());
    let (start, end) = boxes.split_once("..")?;
    // A checksum that cannot be read is none of ours.
    let crc = if let Some(crc) = crc { Some(crc?) } else { None };
    Some(Done { boxes: start.parse().ok()?..end.parse().ok()?, crc })
}

/// What a line says, if it is whole.
fn checked(line: &str) -> Option<&str> {
    let (sum, said) = line.strip_suffix('\n')?.split_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == crc32c(said.as_bytes())).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal obeys control characters, and nobody reads a line of a megabyte.
    #[test]
    fn the_run_of_a_stranger_is_repeated_in_one_short_line() {
        let path = std::env::temp_dir().join(format!("reshard-journal-{}", std::process::id()));
        let staging = Staging::begin_anew(&path, "none ").unwrap();
        for stranger in ["convert \u{1b}[2J\u{7f}\r".to_string(), "x".repeat(1 << 20)] {
            let texts = [sealed(&stranger)];
            let said = Journal::done_boxes(&staging, &texts, "convert").unwrap_err().to_string();
            assert!(said.contains("was another") && said.len() < 2000, "{} bytes", said.len());
            assert!(!said.contains(char::is_control), "{said:?}");
        }
        staging.discard();
    }
}
