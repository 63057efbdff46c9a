//! What a consumer may cost its producer: known before anything is allocated, as a consumer can say in a few bytes that each element goes to
//! four billion of its ranks.

use reshard::overlap::Overlap;
use reshard::{Error, ErrorKind, Move, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// The most bytes that the queues of one consumer may take beyond one copy of each element, for each process of the producer.
const MAX_COPIED_BYTES: u128 = 1 << 32;

/// The most messages that one process sends one consumer in a step of each of its arrays.
const MAX_MESSAGES: u64 = 1 << 21;

/// An array that a consumer wants: its name, what is moved in a step, and how many steps are kept.
pub type Asked<'a> = (&'a str, &'a Move, u32);

/// What a consumer asks for of one array, in one entry or several: steps that its queues keep, in elements.
#[derive(Default)]
struct Kept {
    entries: usize,
    copies: u64,
    elem_bytes: u64,
    all: u128,
    /// Each element of an entry once.
    once: u128,
    /// The whole array once, in the longest queue.
    array: u128,
}

impl Kept {
    fn add(&mut self, moved: &Move, depth: u32) {
        let (depth, copies) = (u128::from(depth), moved.problem().to().copies().max(1));
        let all = u128::from(moved.problem().elems()).saturating_mul(depth);
        self.entries += 1;
        self.copies = self.copies.max(copies);
        self.elem_bytes = moved.elem_bytes();
        self.all = self.all.saturating_add(all);
        self.once = self.once.saturating_add(all / u128::from(copies));
        self.array = self.array.max(u128::from(moved.problem().from().elems()).saturating_mul(depth));
    }

    /// Bytes beyond one copy of each element: entries of one array may be parts of it, and together are no more than the array.
    fn extra(&self) -> u128 {
        (self.all - self.once.min(self.array)).saturating_mul(u128::from(self.elem_bytes))
    }
}

/// Fails, with one sentence, if copies of what a consumer wants would take too much memory in its queues at the processes of the producer.
/// Who asks for an array several times wants copies of it as well.
pub fn check_copies<'a>(
    arrays: impl Iterator<Item = Asked<'a>>,
    processes: usize,
) -> std::result::Result<(), String> {
    let mut kept: BTreeMap<&str, Kept> = BTreeMap::new();
    arrays.for_each(|(name, moved, depth)| kept.entry(name).or_default().add(moved, depth));
    let bytes = kept.values().map(Kept::extra).fold(0, u128::saturating_add);
    let most = MAX_COPIED_BYTES * processes.max(1) as u128;
    match kept.iter().max_by_key(|(_, kept)| kept.extra()) {
        Some((name, kept)) if bytes > most => Err(format!(
            "the consumer wants each element of the array '{name}'{} on {} of its ranks: in queues as deep as it asks for, copies would take {} at \
             the producer, which keeps at most {} of them; replicate less, or ask for fewer steps at a time",
            if kept.entries > 1 { format!(" {} times", kept.entries) } else { String::new() },
            kept.copies,
            gibibytes(bytes),
            gibibytes(most)
        )),
        _ => Ok(()),
    }
}

fn gibibytes(bytes: u128) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// Fails if the ranks that a process of the producer hosts would send one consumer more messages, in a step of each of its arrays, than it plans.
pub fn check_messages(moves: &[Move], hosted: &Range<u64>) -> Result<()> {
    let ranks = hosted.clone().count() as u64;
    // Mostly there are not so many pairs of ranks.
    let pairs = |moved: &Move| {
        let [from, to] = [moved.from(), moved.to()].map(|layout| layout.distribution().grid().size());
        ranks.min(from).saturating_mul(to)
    };
    if moves.iter().map(pairs).fold(0, u64::saturating_add) <= MAX_MESSAGES {
        return Ok(());
    }
    let mut messages = 0_u64;
    for problem in moves.iter().map(Move::problem) {
        let grid = problem.from().grid();
        for rank in hosted.clone().filter(|&rank| grid.contains(rank)) {
            let coords = problem.from().coords(rank)?;
            let mut of_rank = 1_u64;
            for (dim, &coord) in coords.iter().enumerate() {
                let axis = &problem.to().axes()[problem.lands()[dim]];
                let peers = Overlap::new(&problem.sides(dim), coord)?.shares().len() as u64;
                of_rank = of_rank.saturating_mul(peers).saturating_mul(axis.copies());
            }
            messages = messages.saturating_add(of_rank);
            if messages > MAX_MESSAGES {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!(
                        "a process of the producer would send it more than {MAX_MESSAGES} messages in a step of each array; give the arrays fewer \
                         ranks, or larger blocks, or ask for fewer arrays"
                    ),
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked(from: &str, to: &str, depth: u32) -> std::result::Result<(), String> {
        let moved = Move::of::<f64>(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        check_copies([("t", &moved, depth)].into_iter(), 2)
    }

    #[test]
    fn copies_are_bounded_by_what_they_take() {
        // Two processes, 4 GiB each; 8 MiB an array.
        assert_eq!(asked("8/100 of 1048576", "(*) on 500 of 1048576", 2), Ok(()));
        assert_eq!(asked("8/100 of 1048576", "7/1000000 of 1048576", 1024), Ok(()));
        let said = asked("8/100 of 1048576", "(*) on 520 of 1048576", 2).unwrap_err();
        assert!(said.contains("'t' on 520 of its ranks") && said.contains("8.1 GiB"), "{said}");
        assert!(said.contains("at most 8.0 GiB"), "{said}");
        assert!(asked("8/100 of 1048576", "(*) on 4000000000 of 1048576", 1).is_err());
    }

    #[test]
    fn an_array_that_is_asked_for_many_times_is_copied() {
        let of = |from: &str, to: &str| Move::of::<f64>(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        // Two processes, 4 GiB each; 2 GiB an array.
        let [same, copied] =
            ["16/100 of 268435456", "(*) on 4 of 268435456"].map(|to| of("8/100 of 268435456", to));
        let many = |moved: &Move, times: usize| check_copies(std::iter::repeat_n(("t", moved, 1), times), 2);
        assert_eq!(many(&same, 5), Ok(()));
        let said = many(&same, 6).unwrap_err();
        assert!(said.contains("of the array 't' 6 times") && said.contains("10.0 GiB"), "{said}");
        assert_eq!(many(&copied, 1), Ok(()));
        let said = many(&copied, 2).unwrap_err();
        assert!(said.contains("14.0 GiB"), "{said}");
        let others = [("t", &copied, 1), ("u", &same, 9)];
        assert_eq!(check_copies(others.into_iter(), 2), Ok(()), "each array once is no copy");
        // Parts of one array are no copies of each other.
        let window = reshard::Window::of(&[67108864]);
        let part = |at: u64| {
            let (from, to) = ("8/100 of 268435456".parse().unwrap(), "3/100 of 67108864".parse().unwrap());
            Move::windowed::<f64>(from, to, window.clone().from(&[at])).unwrap()
        };
        let parts = [0, 1, 2, 3].map(|number| part(number * 67108864));
        assert_eq!(check_copies(parts.iter().map(|part| ("t", part, 1000)), 2), Ok(()));
    }

    #[test]
    fn messages_are_bounded_before_they_are_listed() {
        let of = |from: &str, to: &str| Move::of::<u8>(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        let alone = |moved: &Move, hosted| check_messages(std::slice::from_ref(moved), &hosted);
        assert_eq!(alone(&of("4/1 of 4000000", "1000/1 of 4000000"), 0..4), Ok(()));
        // More pairs than that, but not of ranks that share anything.
        assert_eq!(alone(&of("1000/1000 of 1000000", "10000/100 of 1000000"), 0..1000), Ok(()));
        for to in ["4000000/1 of 4000000", "(*) on 3000000 of 4000000"] {
            let said = alone(&of("1/4000000 of 4000000", to), 0..1).unwrap_err();
            assert!(
                said.kind() == ErrorKind::TooLarge && said.to_string().contains("2097152 messages"),
                "{said}"
            );
        }
        // Those of all arrays count, and only those that there are.
        let (copies, few) = (
            of("1/1000 of 1000", "(*) on 1000000 of 1000"),
            of("1000/1000 of 1000000", "10000/100 of 1000000"),
        );
        assert_eq!(check_messages(&[copies.clone(), copies.clone()], &(0..1)), Ok(()));
        assert!(check_messages(&vec![copies; 3], &(0..1)).is_err());
        assert_eq!(check_messages(&vec![few; 9], &(0..1000)), Ok(()));
    }
}
