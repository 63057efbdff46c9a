//! What a consumer may cost its producer: known before anything is allocated, as a consumer can say in a few bytes that each element goes to
//! four billion of its ranks.

use reshard::distribution::Distribution;
use reshard::overlap::Overlap;
use reshard::{Error, ErrorKind, Move, Result};
use std::ops::Range;

/// The most bytes that the queues of one consumer may take beyond one copy of each element, for each process of the producer.
const MAX_COPIED_BYTES: u128 = 1 << 32;

/// The most messages that one process sends one consumer in a step of an array.
const MAX_MESSAGES: u64 = 1 << 21;

/// An array that a consumer wants: its name, what is moved in a step, and how many steps are kept.
pub type Asked<'a> = (&'a str, &'a Move, u32);

/// Fails, with one sentence, if copies of what a consumer wants would take too much memory in its queues at the processes of the producer.
pub fn check_copies<'a>(
    arrays: impl Iterator<Item = Asked<'a>> + Clone,
    processes: usize,
) -> std::result::Result<(), String> {
    let extra = |(_, moved, depth): &Asked<'_>| {
        let (all, copies) = (u128::from(moved.problem().elems()), u128::from(moved.problem().to().copies()));
        (all - all / copies.max(1)) * u128::from(moved.elem_bytes()) * u128::from(*depth)
    };
    let bytes = arrays.clone().map(|one| extra(&one)).fold(0, u128::saturating_add);
    let most = MAX_COPIED_BYTES * processes.max(1) as u128;
    match arrays.max_by_key(extra) {
        Some((name, moved, _)) if bytes > most => Err(format!(
            "the consumer wants each element of the array '{name}' on {} of its ranks: in queues as deep as it asks for, copies would take {} at \
             the producer, which keeps at most {} of them; replicate less, or ask for fewer steps at a time",
            moved.problem().to().copies(),
            gibibytes(bytes),
            gibibytes(most)
        )),
        _ => Ok(()),
    }
}

fn gibibytes(bytes: u128) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// Fails if the ranks that a process of the producer hosts would send more messages in a step than it plans.
pub fn check_messages(moved: &Move, hosted: Range<u64>) -> Result<()> {
    let problem = moved.problem();
    let [from, to] = [problem.from(), problem.to()].map(Distribution::grid);
    // Mostly there are not so many pairs of ranks.
    let ranks = hosted.clone().count() as u64;
    if ranks.min(from.size()).saturating_mul(to.size()) <= MAX_MESSAGES {
        return Ok(());
    }
    let mut messages = 0_u64;
    for rank in hosted.filter(|&rank| from.contains(rank)) {
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
                    "a process of the producer would send it more than {MAX_MESSAGES} messages in each step; give the array fewer ranks, or larger blocks"
                ),
            ));
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
    fn messages_are_bounded_before_they_are_listed() {
        let of = |from: &str, to: &str| Move::of::<u8>(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        assert_eq!(check_messages(&of("4/1 of 4000000", "1000/1 of 4000000"), 0..4), Ok(()));
        // More pairs than that, but not of ranks that share anything.
        assert_eq!(check_messages(&of("1000/1000 of 1000000", "10000/100 of 1000000"), 0..1000), Ok(()));
        for to in ["4000000/1 of 4000000", "(*) on 3000000 of 4000000"] {
            let said = check_messages(&of("1/4000000 of 4000000", to), 0..1).unwrap_err();
            assert!(said.kind() == ErrorKind::TooLarge && said.to_string().contains("2097152 messages"));
        }
    }
}
