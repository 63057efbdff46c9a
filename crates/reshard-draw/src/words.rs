//! What a picture says in words.

use reshard_plan::Distribution;
use std::ops::Range;

/// The name of a step: a to z, then aa, ab, ...
pub fn step_name(step: usize) -> String {
    let letter = |digit: usize| char::from(b'a' + (digit % 26) as u8);
    let mut name = String::new();
    let mut rest = step + 1;
    while rest > 0 {
        name.insert(0, letter(rest - 1));
        rest = (rest - 1) / 26;
    }
    name
}

/// `rank 5`, or `ranks 1, 5 and 6 more` if several have the same.
pub fn ranks(owners: &[u64]) -> String {
    match owners {
        [one] => format!("rank {one}"),
        _ => {
            let first: Vec<String> = owners.iter().take(4).map(u64::to_string).collect();
            let more = owners.len() - first.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("ranks {}{more}", first.join(", "))
        }
    }
}

/// An index range of each dimension: `[0..64, 30..60]`.
pub fn region(ranges: &[Range<u64>]) -> String {
    let ranges: Vec<String> = ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
    format!("[{}]", ranges.join(", "))
}

/// `8192 x 8192`.
pub fn shape(extents: &[u64]) -> String {
    extents.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

/// The layout of a distribution with its array.
pub fn layout(of: &Distribution) -> String {
    format!("{} of {}", of.pattern(), shape(&of.shape()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_letters() {
        assert_eq!([0, 1, 25, 26, 27, 701, 702].map(step_name), ["a", "b", "z", "aa", "ab", "zz", "aaa"]);
    }

    #[test]
    fn few_ranks_are_listed() {
        assert_eq!(ranks(&[5]), "rank 5");
        assert_eq!(ranks(&[1, 2, 3, 4, 5, 6]), "ranks 1, 2, 3, 4 and 2 more");
    }
}
