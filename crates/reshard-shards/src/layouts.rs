//! A layout for each array of a set, by its name: a checkpoint has hundreds of tensors and few ways in which they are distributed.
//!
//! ```text
//! rule    = [ pattern "=" ] layout          without a pattern: every array
//! pattern = characters of a name, "*" for any number of them, "?" for any one
//! ```
//!
//! The first rule decides whose pattern fits the name and whose layout has as many dimensions as the array.

use crate::element::{called, shown};
use reshard::distribution::Pattern;
use reshard::error::counted;
use reshard::notation::parse_pattern;
use reshard::{Error, ErrorKind, MemoryOrder, Result};
use std::fmt;

/// Layouts by name.
///
/// ```
/// use reshard_shards::Layouts;
/// let layouts = Layouts::new(["*.down.weight=(*, block) on 1x4", "(block, *) on 4x1", "(*) on 4"])?;
/// assert_eq!(layouts.of("0.down.weight", 2)?.0.to_string(), "(*, block) on 1x4");
/// assert_eq!(layouts.of("0.up.weight", 2)?.0.to_string(), "(block, *) on 4x1");
/// assert_eq!(layouts.of("norm.weight", 1)?.0.to_string(), "(*) on 4"); // each of the four has a copy
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Layouts {
    rules: Vec<Rule>,
}

/// One rule; it is printed as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Of names; every name without it.
    names: Option<String>,
    layout: Pattern,
    order: Option<MemoryOrder>,
}

impl Layouts {
    /// Rules in the order in which they are asked: `PATTERN=LAYOUT`, or a layout for every array that is left.
    pub fn new<S: AsRef<str>>(rules: impl IntoIterator<Item = S>) -> Result<Self> {
        let rules = rules.into_iter().map(|rule| Rule::parse(rule.as_ref())).collect::<Result<_>>()?;
        Ok(Self { rules })
    }

    /// One layout for every array.
    pub fn all(layout: Pattern, order: Option<MemoryOrder>) -> Self {
        Self { rules: vec![Rule { names: None, layout, order }] }
    }

    /// True if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The layout of an array, and the order of its parts if it was said.
    pub fn of(&self, name: &str, dims: usize) -> Result<(&Pattern, Option<MemoryOrder>)> {
        let rule = self.number_of(name, dims)?;
        Ok((&self.rules[rule].layout, self.rules[rule].order))
    }

    /// The pattern of names of the rule that decides for an array; `None` if the rule is a layout for every array.
    pub fn name_pattern(&self, name: &str, dims: usize) -> Result<Option<&str>> {
        let rule = self.number_of(name, dims)?;
        Ok(self.rules[rule].names.as_deref().filter(|names| *names != "*"))
    }

    /// The only layout, where arrays have no names.
    pub(crate) fn only(&self) -> Result<Option<(&Pattern, Option<MemoryOrder>)>> {
        match &self.rules[..] {
            [] => Ok(None),
            [Rule { names: None, layout, order }] => Ok(Some((layout, *order))),
            _ => Err(Error::new(
                ErrorKind::Mismatch,
                "layouts by name were given, and the files have one array without a name; give one layout",
            )),
        }
    }

    /// All layouts, in the order in which they were given.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.rules.iter().map(|rule| &rule.layout)
    }

    /// Fails if a rule with a pattern decides for none of these names: the pattern is mistyped.
    pub(crate) fn check_used<'n>(&self, arrays: impl Iterator<Item = (&'n str, usize)>) -> Result<()> {
        match self.unused_rules(arrays)?.into_iter().find(|rule| rule.names.is_some()) {
            None => Ok(()),
            Some(rule) => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "'{rule}' is the layout of no tensor; the first layout decides that fits a name and the number of dimensions"
                ),
            )),
        }
    }

    /// The rules that decide for none of these names.
    pub(crate) fn unused_rules<'n>(
        &self,
        arrays: impl Iterator<Item = (&'n str, usize)>,
    ) -> Result<Vec<&Rule>> {
        let mut used = vec![false; self.rules.len()];
        for (name, dims) in arrays {
            used[self.number_of(name, dims)?] = true;
        }
        Ok(self.rules.iter().zip(used).filter(|(_, used)| !used).map(|(rule, _)| rule).collect())
    }

    fn number_of(&self, name: &str, dims: usize) -> Result<usize> {
        let is_named =
            |rule: &Rule| rule.names.as_ref().is_none_or(|names| fits(names.as_bytes(), name.as_bytes()));
        // With one layout for everything, what is wrong with it is said by whoever applies it.
        let is_only = self.rules.len() == 1;
        let fitting = self
            .rules
            .iter()
            .position(|rule| is_named(rule) && (is_only || rule.layout.grid().dims() == dims));
        fitting.ok_or_else(|| {
            let form = if name.is_empty() { "LAYOUT".into() } else { format!("{}=LAYOUT", shown(name)) };
            Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{}, which has {}, has no layout; give one, as in '{form}'",
                    called(name),
                    counted(dims, "dimension")
                ),
            )
        })
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Self> {
        let whole = match parse_pattern(text) {
            Ok((layout, order)) => return Ok(Self { names: None, layout, order }),
            Err(error) => error,
        };
        // Layouts have options with '=', and so may names.
        let mut first = None;
        for (at, _) in text.match_indices('=') {
            match parse_pattern(&text[at + 1..]) {
                Ok((layout, order)) => return Ok(Self { names: Some(text[..at].into()), layout, order }),
                Err(error) => first = first.or(Some((at, error))),
            }
        }
        // What stands before the first '=' is a name, unless it looks like a layout.
        match first {
            Some((at, error)) if !text[..at].contains(['(', '/', ' ']) => Err(error),
            _ => Err(whole),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(names) = &self.names {
            write!(f, "{}=", shown(names))?;
        }
        self.layout.fmt(f)
    }
}

/// True if a pattern fits a name.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut begun) = (0, 0);
    // Where the last star was, and how much of the name it has taken.
    let mut star = None;
    while begun < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, begun));
                at += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == name[begun] => {
                // A character may have several bytes.
                let bytes = if wanted == b'?' { character_bytes(name[begun]) } else { 1 };
                (at, begun) = (at + 1, begun + bytes);
            }
            _ => match star {
                None => return false,
                Some((place, taken)) => {
                    let taken = taken + character_bytes(name[taken]);
                    star = Some((place, taken));
                    (at, begun) = (place + 1, taken);
                }
            },
        }
    }
    pattern[at..].iter().all(|&left| left == b'*')
}

fn character_bytes(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name) in [
            ("", ""),
            ("*", ""),
            ("*", "a.b"),
            ("a*", "a"),
            ("*.w", "x.y.w"),
            ("a?c", "abc"),
            ("a?c", "aéc"),
            ("*a*b*", "xxaybz"),
            ("*ab", "aab"),
            ("layers.*.up", "layers.11.up"),
        ] {
            assert!(fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("?", ""),
            ("a", "ab"),
            ("*.w", "x.wy"),
            ("a?c", "ac"),
            ("*a*b", "ba"),
            ("A", "a"),
            ("*???c*", "axcz"),
            ("*???c*", "€xcz"),
            ("*??", "𝄞"),
        ] {
            assert!(!fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_that_fits_decides() {
        let layouts =
            Layouts::new(["a*=2/3", "*b=(*, block) on 1x2 memory=row", "3/1", "x=y=1x1/1x1"]).unwrap();
        let of = |name: &str, dims| layouts.of(name, dims).map(|(layout, _)| layout.to_string());
        assert_eq!(of("ab", 1).unwrap(), "2/3");
        assert_eq!(of("ab", 2).unwrap(), "(*, block) on 1x2");
        assert_eq!(of("c", 1).unwrap(), "3/1");
        assert_eq!(of("x=y", 2).unwrap(), "1x1/1x1");
        assert_eq!(layouts.of("b", 2).unwrap().1, Some(MemoryOrder::RowMajor));
        let said = of("c", 2).unwrap_err().to_string();
        assert!(said.contains("the tensor 'c', which has 2 dimensions, has no layout"), "{said}");
        let said = layouts.check_used([("a", 1), ("b", 2)].into_iter()).unwrap_err().to_string();
        assert!(said.contains("'x=y=1x1/1x1' is the layout of no tensor"), "{said}");
        assert!(layouts.only().is_err());
        let said = Layouts::new(["x=2/3"]).unwrap().of("", 1).unwrap_err().to_string();
        assert!(
            said.contains("the array, which has 1 dimension, has no layout; give one, as in 'LAYOUT'"),
            "{said}"
        );
    }

    #[test]
    fn what_is_wrong_is_said_of_the_layout() {
        for (text, expected) in [("w=2/0", "0"), ("2/0", "0"), ("2/3 memory=rwo", "memory"), ("", "layout")] {
            let said = Layouts::new([text]).unwrap_err().to_string();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
