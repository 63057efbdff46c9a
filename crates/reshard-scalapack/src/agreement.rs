//! How all processes learn what each was asked for, and whether all were asked for the same: in one reduction, or, where they share memory,
//! by looking at what each says.
//!
//! Each process gives words, and all get the smallest of each. What must be equal goes in twice, as it is and inverted, so smallest and
//! largest come out; what a process does not know it leaves out, as the largest word. What belongs to one process alone, its place in
//! each grid and its leading dimensions, has words of its own. So afterwards all know the whole call: also those outside of a grid.

use crate::arguments::Scales;
use crate::request::{Request, SideRequest};
use crate::routine::{Argument, Routine};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is left out. Numbers have 63 bits: not every MPI compares the highest bit as one that counts.
const NONE: u64 = u64::MAX >> 1;

/// Numbers that must be equal: three of the call, and those of each side.
const CALL_NUMBERS: usize = 3;
const SIDE_NUMBERS: usize = 10;
const NUMBERS: usize = CALL_NUMBERS + 2 * SIDE_NUMBERS;

/// Words that come once: the lowest rank with an error, 0 if a process has dropped groups of processes, 0 if one wants the real routine.
const SINGLE: usize = 3;

/// Words of each process: its places in the two grids, its leading dimensions, the number of its process.
const OF_PROCESS: usize = 5;

/// A call on which all processes agree. What it hashes is what it means: contexts are not in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgreedCall {
    pub routine: Routine,
    pub rows: u64,
    pub columns: u64,
    pub sides: [AgreedSide; 2],
}

impl AgreedCall {
    /// Bytes that move. Saturates.
    pub fn bytes(&self, elem: u64) -> u64 {
        let triangle = self.routine.shape.triangle(self.rows, self.columns);
        let elems = match triangle {
            Some(triangle) => triangle.elems(self.rows, self.columns),
            None => self.rows.saturating_mul(self.columns),
        };
        elems.saturating_mul(elem)
    }
}

/// One matrix of an agreed call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgreedSide {
    /// Rows and columns of the process grid.
    pub grid: [u64; 2],
    /// The ranks of its processes, row by row.
    pub ranks: Vec<u64>,
    pub shape: [u64; 2],
    pub block: [u64; 2],
    pub source: [u64; 2],
    pub first: [u64; 2],
    /// The leading dimension of each of its processes, row by row.
    pub leading: Vec<u64>,
}

/// What came out of a reduction.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All were asked for this. `dropped` says whether one has dropped groups of processes, `processes` are the numbers of their processes.
    Agreed { call: Box<AgreedCall>, dropped: bool, processes: Vec<u64> },
    /// This rank, and perhaps others, has an error of its own.
    Refused { rank: usize },
    /// Processes were asked for different numbers of this index; [`own_number`] and [`disagreement`] say more.
    Differ { number: usize },
    /// The real routine is wanted.
    Forwards,
    /// A grid has processes that do not call, or a side has no process at all.
    Incomplete(String),
}

/// What a process says of itself.
pub struct OwnState {
    /// A number of this process alone. Of 62 bits.
    pub process: u64,
    /// It has dropped groups of processes: it may not know one that others know.
    pub dropped: bool,
}

/// Words in which a process says what it is asked for: whether it refuses that, the numbers that must be equal, its places in the two
/// grids, its leading dimensions.
pub const SAID_WORDS: usize = 1 + NUMBERS + 4;
pub type Said = [u64; SAID_WORDS];

/// What a process says of a request, or that it refuses.
pub fn said(request: Result<&Request, ()>) -> Said {
    let mut said = [NONE; SAID_WORDS];
    let Ok(request) = request else { return said };
    said[0] = u64::from(request.forwards);
    for (word, number) in said[1..].iter_mut().zip(numbers(request)) {
        *word = number.unwrap_or(NONE);
    }
    for (k, side) in request.sides.iter().enumerate() {
        if let Some(side) = side {
            (said[1 + NUMBERS + k], said[3 + NUMBERS + k]) = (side.grid.place(), side.leading);
        }
    }
    said
}

/// True if a process that says this sends something: it is in the grid of A.
pub fn sends(said: &Said) -> bool {
    said[1 + NUMBERS] != NONE
}

/// The words that a process gives.
pub fn words(said: &Said, rank: usize, ranks: usize, state: &OwnState) -> Vec<u64> {
    let mut words = vec![NONE; 2 * NUMBERS + SINGLE + OF_PROCESS * ranks];
    let (twice, rest) = words.split_at_mut(2 * NUMBERS);
    let (single, of_processes) = rest.split_at_mut(SINGLE);
    single[1] = if state.dropped { 0 } else { NONE };
    let own = &mut of_processes[rank * OF_PROCESS..][..OF_PROCESS];
    own[4] = state.process;
    if said[0] == NONE {
        single[0] = rank as u64;
        return words;
    }
    single[2] = if said[0] == 1 { 0 } else { NONE };
    let (numbers, of_process) = said[1..].split_at(NUMBERS);
    twice[..NUMBERS].copy_from_slice(numbers);
    for (inverted, &number) in twice[NUMBERS..].iter_mut().zip(numbers) {
        *inverted = if number == NONE { NONE } else { NONE - number };
    }
    own[..4].copy_from_slice(of_process);
    words
}

/// What a reduction of the words of all processes would give, where all have seen what each says.
pub fn reduced(all: &[Said]) -> Vec<u64> {
    let nobody = OwnState { process: 0, dropped: false };
    let each = all.iter().enumerate().map(|(rank, said)| words(said, rank, all.len(), &nobody));
    let smallest = |a: Vec<u64>, b: Vec<u64>| a.into_iter().zip(b).map(|(a, b)| a.min(b)).collect();
    each.reduce(smallest).unwrap_or_default()
}

/// The numbers that must be equal, where a process knows them.
fn numbers(request: &Request) -> [Option<u64>; NUMBERS] {
    let mut numbers = [None; NUMBERS];
    let mut hasher = DefaultHasher::new();
    (request.routine, request.scales.map(Scales::compared), env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    numbers[..CALL_NUMBERS].copy_from_slice(&[
        Some(hasher.finish() >> 2),
        Some(request.rows),
        Some(request.columns),
    ]);
    for (k, side) in request.sides.iter().enumerate() {
        if let Some(SideRequest { grid, shape, block, source, first, .. }) = side {
            let of_side = [[grid.rows, grid.columns], *shape, *block, *source, *first];
            for (number, &value) in
                numbers[CALL_NUMBERS + k * SIDE_NUMBERS..].iter_mut().zip(of_side.as_flattened())
            {
                *number = Some(value);
            }
        }
    }
    numbers
}

/// Reads the reduced words of a call of `routine`.
pub fn read(words: &[u64], routine: Routine, ranks: usize) -> Outcome {
    let (twice, rest) = words.split_at(2 * NUMBERS);
    let (single, of_processes) = rest.split_at(SINGLE);
    if single[0] != NONE {
        return Outcome::Refused { rank: single[0] as usize };
    }
    let given = |number: usize| (twice[number] != NONE).then_some(twice[number]);
    let differs =
        |&number: &usize| given(number).is_some() && twice[number] != NONE - twice[NUMBERS + number];
    if let Some(number) = (0..NUMBERS).find(differs) {
        return Outcome::Differ { number };
    }
    if single[2] == 0 {
        return Outcome::Forwards;
    }
    let process = |rank: usize, which: usize| of_processes[rank * OF_PROCESS + which];
    let side = |k: usize| -> Result<AgreedSide, String> {
        let name = routine.matrices()[k];
        let at = CALL_NUMBERS + k * SIDE_NUMBERS;
        let pair = |number: usize| Some([given(at + number)?, given(at + number + 1)?]);
        let all = (0..SIDE_NUMBERS).step_by(2).map(pair).collect::<Option<Vec<[u64; 2]>>>();
        let Some([grid, shape, block, source, first]) = all.and_then(|all| <[_; 5]>::try_from(all).ok())
        else {
            return Err(format!("no process that calls is in the context of {name}"));
        };
        let size = grid[0].saturating_mul(grid[1]);
        let mut members = vec![None; usize::try_from(size).unwrap_or(usize::MAX).min(ranks)];
        for rank in 0..ranks {
            let member = members.get_mut(process(rank, k) as usize);
            let before = member.and_then(|member| member.replace((rank as u64, process(rank, 2 + k))));
            if let Some((other, _)) = before {
                return Err(format!(
                    "ranks {other} and {rank} are both process {} of the context of {name}: they were given different contexts; give \
                     all processes the same",
                    process(rank, k)
                ));
            }
        }
        let members: Option<Vec<(u64, u64)>> = members.into_iter().collect();
        let Some(members) = members.filter(|members| members.len() as u64 == size) else {
            return Err(format!(
                "the context of {name} has {} x {} processes, and not all of them are in the context of the call",
                grid[0], grid[1]
            ));
        };
        let (ranks, leading) = members.into_iter().unzip();
        Ok(AgreedSide { grid, ranks, shape, block, source, first, leading })
    };
    match (side(0), side(1)) {
        (Ok(a), Ok(b)) => Outcome::Agreed {
            call: Box::new(AgreedCall { routine, rows: twice[1], columns: twice[2], sides: [a, b] }),
            dropped: single[1] == 0,
            processes: (0..ranks).map(|rank| process(rank, 4)).collect(),
        },
        (Err(why), _) | (_, Err(why)) => Outcome::Incomplete(why),
    }
}

/// This process's number of that index, in words that all can compare; none if it has none.
pub fn own_number(request: &Request, number: usize) -> Option<String> {
    if number == 0 {
        let described = request.routine.described();
        let factors = request.scales.map(Scales::compared).map(|Scales { alpha, beta }| {
            let [alpha, beta] = [alpha, beta].map(|factor| request.routine.element.number(&factor));
            format!(" with ALPHA = {alpha} and BETA = {beta}")
        });
        return Some(described + &factors.unwrap_or_default());
    }
    numbers(request)[number].map(|value| {
        match (number.checked_sub(CALL_NUMBERS).map(|k| k % SIDE_NUMBERS), value) {
            // Windows begin at 0 here, and at 1 in arguments.
            (Some(8 | 9), value) => (value + 1).to_string(),
            (_, value) => value.to_string(),
        }
    })
}

/// The message of processes that were asked for different numbers, out of what each of them said.
pub fn disagreement(routine: &Routine, number: usize, said: &[Option<String>]) -> String {
    let mut given = said.iter().enumerate().filter_map(|(rank, said)| Some((rank, said.as_ref()?)));
    let first = given.next();
    let other = first.and_then(|(_, value)| given.find(|(_, other)| *other != value));
    let what = name(routine, number);
    match (first, other) {
        (Some((rank, value)), Some((other_rank, other))) => {
            format!(
                "{what} is {value} on rank {rank} and {other} on rank {other_rank}; give all processes the same"
            )
        }
        _ => format!("{what} differs between processes; give all of them the same"),
    }
}

/// What a number is, in words.
fn name(routine: &Routine, number: usize) -> String {
    let Some(of_side) = number.checked_sub(CALL_NUMBERS) else {
        return match number {
            1 => routine.argument(Argument::M),
            2 => routine.argument(Argument::N),
            _ => "the routine".into(),
        };
    };
    let (k, number) = (of_side / SIDE_NUMBERS, of_side % SIDE_NUMBERS);
    let descriptor = routine.argument([Argument::DescA, Argument::DescB][k]);
    match number {
        0 => format!("the number of rows of the process grid of {descriptor}"),
        1 => format!("the number of columns of the process grid of {descriptor}"),
        8 => routine.argument([Argument::Ia, Argument::Ib][k]),
        9 => routine.argument([Argument::Ja, Argument::Jb][k]),
        number => {
            let entry = ["M", "N", "MB", "NB", "RSRC", "CSRC"][number - 2];
            format!("entry {} ({entry}) of {descriptor}", number + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blacs::ProcessGrid;
    use crate::routine::{Element, Shape};

    const ROUTINE: Routine = Routine { element: Element::Double, shape: Shape::General, of_all: false };

    /// The request of a process: A on a grid of 1 x 2 (ranks 2 and 0), B on one of 2 x 1 (ranks 0 and 1).
    fn request(rank: usize) -> Request {
        let side = |grid: [u64; 2], place: u64| SideRequest {
            grid: ProcessGrid {
                rows: grid[0],
                columns: grid[1],
                row: place / grid[1],
                column: place % grid[1],
            },
            shape: [10, 20],
            block: [3, 4],
            source: [0, 0],
            first: [1, 2],
            leading: 100 + rank as u64,
        };
        let a = [Some(1), None, Some(0)][rank].map(|place| side([1, 2], place));
        let b = [Some(0), Some(1), None][rank].map(|place| side([2, 1], place));
        Request { routine: ROUTINE, rows: 5, columns: 6, sides: [a, b], scales: None, forwards: false }
    }

    fn state(dropped: bool, rank: usize) -> OwnState {
        OwnState { process: 70 + rank as u64, dropped }
    }

    /// Reduces the words of three processes.
    #[allow(clippy::needless_pass_by_value)]
    fn reduce(requests: [Result<Request, ()>; 3], dropped: [bool; 3]) -> Outcome {
        let requests = &requests;
        let all = requests.each_ref().map(|request| said(request.as_ref().map_err(|_| ())));
        let mut least = vec![u64::MAX; words(&all[0], 0, 3, &state(false, 0)).len()];
        for (rank, said) in all.iter().enumerate() {
            let own = words(said, rank, 3, &state(dropped[rank], rank));
            least.iter_mut().zip(own).for_each(|(least, word)| *least = word.min(*least));
        }
        let outcome = read(&least, ROUTINE, 3);
        // Who has seen what all say finds the same, but for what processes say of themselves.
        match (read(&reduced(&all), ROUTINE, 3), &outcome) {
            (Outcome::Agreed { call, .. }, Outcome::Agreed { call: other, .. }) => assert_eq!(&call, other),
            (seen, outcome) => assert_eq!(&seen, outcome),
        }
        outcome
    }

    #[test]
    fn all_learn_the_whole_call() {
        let Outcome::Agreed { call, dropped: false, processes } =
            reduce([0, 1, 2].map(|rank| Ok(request(rank))), [false; 3])
        else {
            panic!("all were asked for the same");
        };
        assert_eq!(processes, [70, 71, 72]);
        let [a, b] = &call.sides;
        assert_eq!((a.grid, &a.ranks[..], &a.leading[..]), ([1, 2], &[2, 0][..], &[102, 100][..]));
        assert_eq!((b.grid, &b.ranks[..], &b.leading[..]), ([2, 1], &[0, 1][..], &[100, 101][..]));
        assert_eq!((call.rows, call.columns, a.shape, a.block, a.first), (5, 6, [10, 20], [3, 4], [1, 2]));
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        type Change = fn(&mut Request);
        let changes: [(Change, &str); 5] = [
            (
                |other| other.rows = 4,
                "argument 1 (M) is 5 on rank 0 and 4 on rank 1; give all processes the same",
            ),
            (
                |other| other.sides[1].as_mut().unwrap().shape[1] = 21,
                "entry 4 (N) of argument 10 (DESCB) is 20 on rank 0 and 21 on rank 1; give all processes the same",
            ),
            (
                |other| other.sides[1].as_mut().unwrap().first[0] = 0,
                "argument 8 (IB) is 2 on rank 0 and 1 on rank 1; give all processes the same",
            ),
            (
                |other| other.sides[1].as_mut().unwrap().source[0] = 1,
                "entry 7 (RSRC) of argument 10 (DESCB) is 0 on rank 0 and 1 on rank 1; give all processes the same",
            ),
            (
                |other| other.routine.element = Element::Single,
                "the routine is pdgemr2d on rank 0 and psgemr2d on rank 1; give all processes the same",
            ),
        ];
        for (change, expected) in changes {
            let mut requests = [0, 1, 2].map(request);
            change(&mut requests[1]);
            let Outcome::Differ { number } = reduce(requests.clone().map(Ok), [false; 3]) else {
                panic!("{expected}")
            };
            let said: Vec<Option<String>> =
                requests.iter().map(|request| own_number(request, number)).collect();
            assert_eq!(disagreement(&ROUTINE, number, &said), expected);
        }
    }

    #[test]
    fn errors_come_first_and_grids_must_be_complete() {
        assert_eq!(reduce([Ok(request(0)), Err(()), Err(())], [false; 3]), Outcome::Refused { rank: 1 });
        let mut outside = request(2);
        outside.sides[0] = None;
        let Outcome::Incomplete(why) = reduce([Ok(request(0)), Ok(request(1)), Ok(outside)], [false; 3])
        else {
            panic!("one is missing")
        };
        assert_eq!(
            why,
            "the context of A has 1 x 2 processes, and not all of them are in the context of the call"
        );
        let nobody =
            [0, 1, 2].map(|rank| Ok(Request { sides: [None, request(rank).sides[1]], ..request(rank) }));
        assert_eq!(
            reduce(nobody, [false; 3]),
            Outcome::Incomplete("no process that calls is in the context of A".into())
        );
    }

    #[test]
    fn one_that_wants_the_real_routine_is_enough() {
        let mut requests = [0, 1, 2].map(request);
        requests[1].forwards = true;
        assert_eq!(reduce(requests.map(Ok), [false; 3]), Outcome::Forwards);
    }

    #[test]
    fn factors_are_compared() {
        let mut requests = [0, 1, 2].map(request);
        let factor = |factor: f64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&factor.to_ne_bytes());
            bytes
        };
        for (rank, request) in requests.iter_mut().enumerate() {
            request.scales = Some(Scales { alpha: factor(1.5), beta: factor([0.0, -0.0, 0.5][rank]) });
        }
        let Outcome::Differ { number } = reduce(requests.clone().map(Ok), [false; 3]) else { panic!("beta") };
        requests[2].scales = requests[1].scales;
        assert!(
            matches!(reduce(requests.clone().map(Ok), [false; 3]), Outcome::Agreed { .. }),
            "zeros are equal"
        );
        requests[2].scales = Some(Scales { alpha: factor(1.5), beta: factor(0.5) });
        let said: Vec<Option<String>> = requests.iter().map(|request| own_number(request, number)).collect();
        assert!(disagreement(&ROUTINE, number, &said).contains("BETA = 0.5 on rank 2"), "{said:?}");
    }

    #[test]
    fn who_has_dropped_groups_says_so() {
        let requests = || [0, 1, 2].map(|rank| Ok(request(rank)));
        let dropped = |dropped| matches!(reduce(requests(), dropped), Outcome::Agreed { dropped: true, .. });
        assert!(dropped([false, false, true]) && !dropped([false; 3]));
    }

    #[test]
    fn two_processes_at_one_place_were_given_different_contexts() {
        let mut requests = [0, 1, 2].map(request);
        requests[1].sides[0] = requests[2].sides[0];
        let Outcome::Incomplete(why) = reduce(requests.map(Ok), [false; 3]) else {
            panic!("both are process 0 of A")
        };
        assert!(why.starts_with("ranks 1 and 2 are both process 0 of the context of A"), "{why}");
    }
}
