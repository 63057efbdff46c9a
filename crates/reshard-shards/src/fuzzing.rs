//! What fuzzers may leave behind for a run that is continued, and expect of a set: whatever it is, nothing panics, no box is taken that was not
//! written, and every box that was is taken. Not part of the interface.

use crate::array::Array;
use crate::checksum::{append_crc, crc32c};
use crate::element::element_from_safetensors;
use crate::expect::Expected;
use crate::journal::{Done, Journal, line_of, sealed};
use crate::manifest::Format;
use crate::one_array::OneArray;
use crate::options::ConvertOptions;
use crate::output::{Output, Wanted};
use crate::resumed::{check_boxes, check_lines};
use crate::staging::Staging;
use reshard::Layout;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The first line of the run that is continued.
const RUN: &str = "run 7";

/// Between two journals in the bytes of a fuzzer.
const NEXT_JOURNAL: char = '\u{c}';

/// A run that was interrupted: all its boxes were written, and fuzzers write its journals. Its directory is gone, the files stay open.
struct Interrupted {
    staging: Staging,
    arrays: Vec<OneArray<'static>>,
    output: Output,
    /// The checksum of each box, worked out element by element.
    crcs: Vec<u32>,
}

/// Any bytes as the journals that a run has left behind. Lines that begin with `=` get a right checksum, which anybody can work out, and where
/// they end with ` !`, that of the boxes they name.
///
/// # Panics
/// If boxes are taken for written that were not, or are not taken that were.
pub fn journal(bytes: &[u8]) {
    static INTERRUPTED: OnceLock<Interrupted> = OnceLock::new();
    let Some((&decision, bytes)) = bytes.split_first() else { return };
    let (checksums, cut) = (decision & 1 == 0, usize::from(decision >> 1));
    let run = INTERRUPTED.get_or_init(Interrupted::new);
    let text = String::from_utf8_lossy(bytes);
    let texts: Vec<String> = text.split(NEXT_JOURNAL).map(|journal| run.written(journal)).collect();
    let Ok(done) = Journal::read(&texts, RUN) else {
        let said = Journal::done_boxes(&run.staging, &texts, RUN).expect_err("it is another run");
        let said = said.to_string();
        assert!(said.len() < 15_000 && !said.contains(char::is_control), "{said}");
        return;
    };
    assert!(done.len() <= texts.iter().map(|text| text.lines().count()).sum());
    // Printed and read again.
    let lines: String = done.iter().map(|done| sealed(&line_of(done))).collect();
    assert_eq!(Journal::read(&[sealed(RUN) + &lines], RUN), Ok(done.clone()));
    // A journal that was cut off says less, and nothing else.
    let mut fewer = texts.clone();
    if let Some(last) = fewer.last_mut() {
        let mut length = last.len().saturating_sub(cut);
        while !last.is_char_boundary(length) {
            length -= 1;
        }
        last.truncate(length);
        let fewer = Journal::read(&fewer, RUN).unwrap_or_default();
        assert!(fewer.iter().all(|one| done.contains(one)), "{fewer:?} of {done:?}");
    }
    let sensible = run.is_sensible(&done, checksums);
    let checked = check_lines(&run.staging, run.crcs.len() as u64, checksums, &done);
    assert_eq!(checked.is_ok(), sensible, "{checked:?}: {done:?}");
    if !sensible {
        return;
    }
    let joined = Journal::joined(&done);
    assert!(joined.windows(2).all(|two| two[0].end < two[1].start), "{joined:?}");
    for number in 0..=run.crcs.len() as u64 {
        let is_done = done.iter().any(|one| one.boxes.contains(&number));
        assert_eq!(joined.iter().any(|range| range.contains(&number)), is_done, "{number} of {done:?}");
    }
    let is_right = |one: &Done| one.crc.is_none_or(|crc| run.crc_of(one) == crc);
    let found = check_boxes(&run.staging, 1, &run.arrays, &run.output, &done);
    assert_eq!(found.is_ok(), done.iter().all(is_right), "{found:?}: {done:?}");
}

/// Any bytes as a list of expected tensors.
///
/// # Panics
/// If something else is read than the JSON says, or a sentence is not one line.
pub fn expected(bytes: &[u8]) {
    let expected = match Expected::from_json(bytes) {
        Ok(expected) => expected,
        Err(error) => {
            let said = error.to_string();
            assert!(said.len() < 800 && !said.contains(char::is_control), "{said}");
            return;
        }
    };
    // Keys that nobody reads may have numbers that nobody can hold.
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let list = json.as_array().or_else(|| json["tensors"].as_array()).expect("a list");
    assert_eq!(list.len(), expected.len());
    for tensor in list {
        // Two words for one thing.
        let element = tensor["type"].as_str().or_else(|| tensor["dtype"].as_str()).expect("a type");
        let element = element.parse().or_else(|_| element_from_safetensors(element)).expect("a known one");
        let shape = tensor["shape"].as_array().expect("a shape").iter().map(serde_json::Value::as_u64);
        let shape = shape.collect::<Option<Vec<u64>>>().expect("lengths");
        assert!(shape.len() <= 64);
        let name = tensor["name"].as_str().expect("a name");
        assert_eq!(expected.tensors.get(name), Some(&(element, shape)), "{name}");
    }
}

impl Interrupted {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("reshard-fuzzing-{}", std::process::id()));
        let staging = Staging::begin_anew(&path, "none ").expect("there is room for files");
        let layout = |text: &str| text.parse::<Layout>().expect("a layout");
        let element = "u16".parse().expect("a name");
        let from = Box::leak(Box::new(Array::new(layout("2/3 of 30"), element)));
        let mut options = ConvertOptions::default();
        options.box_bytes = Some(8);
        let one = OneArray::new(from, &layout("3/2 of 30"), &options).expect("they fit");
        let words = BTreeMap::new();
        let wanted = Wanted {
            arrays: vec![one.to.clone()],
            format: Format::Raw,
            pattern: "{rank}",
            words: &words,
            checked: true,
        };
        let output = Output::new(&staging, wanted, true).expect("they can be made");
        // Element i is i + 500, on the rank that a cyclic distribution of blocks of two gives it to, in the order of elements.
        let owned = |rank: u64, from: u64, to: u64| {
            let elems = (from..to).filter(move |elem| elem / 2 % 3 == rank);
            elems.flat_map(|elem| (elem as u16 + 500).to_le_bytes()).collect::<Vec<u8>>()
        };
        for rank in 0..3 {
            let file = staging.path().join(rank.to_string());
            std::fs::write(file, owned(rank, 0, 30)).expect("there is room");
        }
        let crc = |number: u64| {
            let [range] = &one.region(number)[..] else { panic!("an array of one dimension") };
            (0..3).map(|rank| crc32c(&owned(rank, range.start, range.end))).fold(0, append_crc)
        };
        let crcs: Vec<u32> = (0..one.boxes.count()).map(crc).collect();
        assert!(crcs.len() > 4, "{} boxes", crcs.len());
        std::fs::remove_dir_all(staging.path()).expect("it is this process's own");
        Self { staging, arrays: vec![one], output, crcs }
    }

    /// A journal as a fuzzer writes it.
    fn written(&self, journal: &str) -> String {
        let line = |line: &str| {
            let Some(said) = line.strip_prefix('=') else { return line.to_string() };
            let said = said.strip_suffix('\n').unwrap_or(said);
            match said.strip_suffix(" !") {
                Some(boxes) => sealed(&self.with_crc(boxes).unwrap_or(boxes.to_string())),
                None => sealed(said),
            }
        };
        journal.split_inclusive('\n').map(line).collect()
    }

    /// What a line says of boxes, with their checksum.
    fn with_crc(&self, boxes: &str) -> Option<String> {
        let (start, end) = boxes.split_once("..")?;
        let done = Done { boxes: start.parse().ok()?..end.parse().ok()?, crc: None };
        (done.boxes.end <= self.crcs.len() as u64).then(|| format!("{boxes} {:08x}", self.crc_of(&done)))
    }

    /// The checksum of some boxes.
    fn crc_of(&self, done: &Done) -> u32 {
        done.boxes.clone().map(|number| self.crcs[number as usize]).fold(0, append_crc)
    }

    /// True if a run has these boxes, each at most once, and their checksums if it has some.
    fn is_sensible(&self, done: &[Done], checksums: bool) -> bool {
        let mut counts = vec![0; self.crcs.len()];
        for Done { boxes, crc } in done {
            if boxes.is_empty() || boxes.end > counts.len() as u64 || checksums && crc.is_none() {
                return false;
            }
            counts[boxes.start as usize..boxes.end as usize].iter_mut().for_each(|count| *count += 1);
        }
        counts.iter().all(|&count| count <= 1)
    }
}

#[cfg(test)]
mod tests {
    /// Journals that are taken, and those that are refused, by the fuzzer's own rules: it panics where they are not kept.
    #[test]
    fn journals_are_judged() {
        for text in [
            "0=run 7\n=0..2 !\n=2..3 !\n",
            "1=run 7\n=3..4\n=0..2\n\u{c}=run 7\n=2..3\n",
            "0=run 7\n=0..2 00000000\n",
            "0=run 7\n=0..2 !\n=1..3 !\n",
            "0=run 7\n=2..1 !\n",
            "0=run 7\n=0..99 0\n",
            "0=run 8\n",
            "0=run \u{1b}[2J\n",
            "0",
        ] {
            super::journal(text.as_bytes());
        }
    }
}
