//! Names of a set's files by a pattern, for sets without a manifest and for those to be written: `rank_{rank:04}.npy`, `{p}_{q}.bin`.
//!
//! ```text
//! pattern = { any character but braces | "{{" | "}}" | field }       {{ and }} are braces of the name
//! field   = "{" ( "rank" | coordinate ) [ ":0" width ] "}"           width: at least as many digits, with zeros in front, 1 to 20
//! coordinate = "p" | "q" | "r" | "s" | "t" | "u" | "v" | "w" | "0" ... "7"      of the process in its grid, in this order
//! ```

use crate::element::shown;
use crate::manifest::check_name;
use reshard::error::counted;
use reshard::grid::{Grid, MAX_DIMS};
use reshard::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// The letters of coordinates.
const LETTERS: &str = "pqrstuvw";
/// Names of more files are not listed; no manifest has room for them either.
const MAX_FILES: u64 = 1 << 20;
/// More digits than any number has are a mistake.
const MAX_WIDTH: usize = 20;
/// Longer patterns cannot be names.
const MAX_PATTERN_BYTES: usize = 1024;

/// A pattern of file names.
///
/// ```
/// use reshard_shards::NamePattern;
/// let pattern: NamePattern = "rank_{rank:04}.npy".parse()?;
/// assert_eq!(pattern.name(7, &[1, 3])?, "rank_0007.npy");
/// let pattern: NamePattern = "{p}_{q}.bin".parse()?;
/// assert_eq!(pattern.name(7, &[1, 3])?, "1_3.bin");
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    pieces: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Rank { width: usize },
    Coordinate { dim: usize, width: usize },
}

impl NamePattern {
    /// True if ranks have different names.
    pub fn has_fields(&self) -> bool {
        self.pieces.iter().any(|piece| !matches!(piece, Segment::Text(_)))
    }

    /// The name of the file of a rank at these coordinates of its grid.
    pub fn name(&self, rank: u64, coordinates: &[u64]) -> Result<String> {
        let mut name = String::new();
        for piece in &self.pieces {
            match *piece {
                Segment::Text(ref text) => name.push_str(text),
                Segment::Rank { width } => name.push_str(&format!("{rank:0width$}")),
                Segment::Coordinate { dim, width } => {
                    let Some(coordinate) = coordinates.get(dim) else {
                        return Err(Error::new(
                            ErrorKind::Mismatch,
                            format!(
                                "the name pattern '{}' asks for coordinate {{{dim}}}, but the grid has {}, numbered from 0",
                                shown(&self.text),
                                counted(coordinates.len(), "dimension")
                            ),
                        ));
                    };
                    name.push_str(&format!("{coordinate:0width$}"));
                }
            }
        }
        check_name(&name)?;
        Ok(name)
    }

    /// True if some rank or coordinates could give this name.
    pub(crate) fn could_give(&self, name: &str) -> bool {
        let name = name.as_bytes();
        // Where in the name the pieces so far may end: fields without anything between them share their digits in several ways.
        let mut ends = vec![0];
        for piece in &self.pieces {
            let mut next = Vec::new();
            for begin in ends {
                match *piece {
                    Segment::Text(ref text) if name[begin..].starts_with(text.as_bytes()) => {
                        next.push(begin + text.len());
                    }
                    Segment::Text(_) => {}
                    Segment::Rank { width } | Segment::Coordinate { width, .. } => {
                        let digits = name[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                        // There are zeros in front up to the width, and not beyond.
                        let most = if name.get(begin) == Some(&b'0') { width.max(1) } else { MAX_WIDTH };
                        next.extend((width.max(1)..=digits.min(most)).map(|digits| begin + digits));
                    }
                }
            }
            next.sort_unstable();
            next.dedup();
            ends = next;
        }
        ends.contains(&name.len())
    }

    /// The names of all ranks' files, by ascending rank. Fails if two ranks would have the same.
    pub fn names(&self, grid: &Grid) -> Result<Vec<String>> {
        if grid.size() > MAX_FILES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{} files were to be named; at most {MAX_FILES} are possible", grid.size()),
            ));
        }
        let ranks = grid.sorted_ranks();
        let name = |&rank: &u64| self.name(rank, &grid.coords(rank).unwrap_or_default());
        let names = ranks.iter().map(name).collect::<Result<Vec<_>>>()?;
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_unstable_by_key(|&at| (&names[at], at));
        match order.windows(2).find(|two| names[two[0]] == names[two[1]]) {
            None => Ok(names),
            Some(two) => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the name pattern '{}' gives ranks {} and {} the same file '{}'; add {{rank}}, or all coordinates with \
                     something between them",
                    shown(&self.text),
                    ranks[two[0]],
                    ranks[two[1]],
                    shown(&names[two[0]])
                ),
            )),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NamePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(wrong(text, "is longer than any name"));
        }
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            let character = text[..text.len() - rest.len()].chars().count() + 1;
            if let Some((brace, after)) =
                ["{{", "}}"].iter().find_map(|two| Some((two, rest.strip_prefix(two)?)))
            {
                plain.push_str(&brace[..1]);
                rest = after;
                continue;
            }
            let Some(inside) = rest.strip_prefix('{') else {
                return Err(wrong(
                    text,
                    &format!(
                        "has a '}}' at character {character} that closes nothing; write }}}} for one in the name"
                    ),
                ));
            };
            let end = inside.find(['{', '}']).filter(|&end| inside[end..].starts_with('}'));
            let Some(end) = end else {
                return Err(wrong(
                    text,
                    &format!(
                        "has a '{{' at character {character} that is not closed; write {{{{ for one in the name"
                    ),
                ));
            };
            if !plain.is_empty() {
                pieces.push(Segment::Text(std::mem::take(&mut plain)));
            }
            pieces.push(field(&inside[..end]).ok_or_else(|| {
                wrong(
                    text,
                    &format!(
                        "has the field {{{}}} at character {character}; fields are {{rank}}, {{p}}, {{q}}, {{r}}, ..., or {{0}}, \
                         {{1}}, {{2}}, ..., with zeros in front as in {{rank:04}}",
                        shown(&inside[..end])
                    ),
                )
            })?);
            rest = &inside[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Segment::Text(plain));
        }
        let texts =
            pieces.iter().filter_map(|piece| if let Segment::Text(text) = piece { Some(text) } else { None });
        for text in texts {
            if text.contains(['/', '\\']) {
                return Err(wrong(text, "has a slash; give the directory apart from the names in it"));
            }
        }
        Ok(Self { text: text.into(), pieces })
    }
}

fn wrong(text: &str, why: &str) -> Error {
    Error::new(ErrorKind::Notation, format!("the name pattern '{}' {why}", shown(text)))
}

/// What stands between braces.
fn field(inside: &str) -> Option<Segment> {
    let (word, width) = match inside.split_once(':') {
        None => (inside, 0),
        Some((word, format)) => {
            let digits = format.strip_prefix('0')?;
            let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
            let width = digits.parse().ok().filter(|width| plain && (1..=MAX_WIDTH).contains(width))?;
            (word, width)
        }
    };
    if word == "rank" {
        return Some(Segment::Rank { width });
    }
    let mut characters = word.chars();
    let (only, None) = (characters.next()?, characters.next()) else { return None };
    let dim = LETTERS.find(only).or_else(|| only.to_digit(10).map(|digit| digit as usize))?;
    (dim < MAX_DIMS).then_some(Segment::Coordinate { dim, width })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        text.parse().unwrap()
    }

    #[test]
    fn names_by_value() {
        for (text, name) in [
            ("rank_{rank:04}.npy", "rank_0011.npy"),
            ("part{rank}.npy", "part11.npy"),
            ("{p}_{q}_{r}.bin", "2_0_3.bin"),
            ("{0}_{2:03}", "2_003"),
            ("{{{rank}}}.bin", "{11}.bin"),
            ("a{{b}}c{rank:01}", "a{b}c11"),
            ("é{rank}", "é11"),
        ] {
            assert_eq!(pattern(text).name(11, &[2, 0, 3]).unwrap(), name);
            assert_eq!(pattern(text).to_string(), text);
        }
        let names = pattern("{p}_{q}").names(&Grid::new(&[2, 2]).unwrap()).unwrap();
        assert_eq!(names, ["0_0", "0_1", "1_0", "1_1"]);
        let listed = Grid::new(&[3]).unwrap().with_ranks(&[9, 4, 7]).unwrap();
        assert_eq!(pattern("{rank}-{p}").names(&listed).unwrap(), ["4-1", "7-2", "9-0"]);
    }

    #[test]
    fn names_that_other_ranks_could_have() {
        for (text, good, bad) in [
            (
                "tp{rank}.npy",
                "tp0.npy tp10.npy",
                "tp.npy tpx.npy tp01.npy tp1.npz xtp1.npy tp-1.npy tp1.npy~",
            ),
            ("r{rank:03}", "r000 r012 r1234", "r12 r0123 r"),
            ("{p}_{q}", "2_0 0_11", "2_ _ 2_0_ 02_0"),
            ("{p}{q:02}x", "000x 112x", "0002x 11x"),
            ("é{rank}", "é7", "é e7"),
            ("{{{rank}}}", "{3}", "{rank} 3"),
        ] {
            let pattern = pattern(text);
            for (names, expected) in [(good, true), (bad, false)] {
                for name in names.split(' ') {
                    assert_eq!(pattern.could_give(name), expected, "{text} {name}");
                }
            }
        }
    }

    #[test]
    fn different_ranks_have_different_files() {
        let grid = Grid::new(&[12, 12]).unwrap();
        for text in ["same.npy", "{p}.npy", "{p}{q}.npy", "{p}_{p}.npy"] {
            let error = pattern(text).names(&grid).unwrap_err().to_string();
            assert!(error.contains("the same file") && error.contains("{rank}"), "{error}");
        }
        for text in ["{p:02}{q:02}", "{p}-{q}", "{rank}"] {
            assert_eq!(pattern(text).names(&grid).unwrap().len(), 144);
        }
        // One rank needs no field.
        assert_eq!(pattern("whole.npy").names(&Grid::new(&[1]).unwrap()).unwrap(), ["whole.npy"]);
        assert!(pattern("{rank}").names(&Grid::new(&[1 << 40]).unwrap()).is_err());
    }

    #[test]
    fn errors_say_where() {
        for (text, expected) in [
            ("a{", "'{' at character 2"),
            ("é}", "'}' at character 2"),
            ("{rank", "'{' at character 1"),
            ("{a{rank}}", "'{' at character 1"),
            ("{}", "the field {} at character 1"),
            ("{x}", "the field {x}"),
            ("{8}", "the field {8}"),
            ("{pq}", "the field {pq}"),
            ("{rank:4}", "the field {rank:4}"),
            ("{rank:0}", "the field"),
            ("{rank:0x}", "the field"),
            ("{rank:021}", "the field"),
            ("{rank:0+3}", "the field"),
            ("{rank:099999999999999999999}", "the field"),
            ("{Rank}", "the field"),
            ("x/{rank}", "a slash"),
            ("../{rank}", "a slash"),
            ("a\\{rank}", "a slash"),
        ] {
            let error = text.parse::<NamePattern>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Notation);
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
        let said = "x".repeat(2000).parse::<NamePattern>().unwrap_err().to_string();
        assert!(said.contains("longer"), "{said}");
        let said = pattern("{p}{r}").name(0, &[1, 2]).unwrap_err().to_string();
        assert!(said.contains("{2}"), "{said}");
        for text in ["", ".{rank}", "reshard.json", "a\n{rank}"] {
            assert!(pattern(text).name(0, &[]).is_err(), "{text}");
        }
    }
}
