//! Reference implementations, slow and simple: programs replayed item by item, and the optimum of tiny rings by exhaustive
//! search, one unit of time after the other.

// Each test that includes this module uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use reshard_ring::{Direction, Program, RingProblem, Side};
use reshard_testkit::Random;
use std::collections::{HashSet, VecDeque};

/// Replays a program with items that have names: 0, 1, 2, .. from the slice of process 0 on. Items sent right leave from
/// the right end of a slice and arrive at the left end of the next, items sent left the other way round. Returns the
/// slices and the time at the end, or the error.
pub fn replay(problem: &RingProblem, program: &Program) -> Result<(Vec<Vec<u64>>, u64), String> {
    let procs = problem.procs();
    let mut name = 0..;
    let slice = |&load: &u64| (0..load).map(|_| name.next().unwrap_or(0)).collect::<VecDeque<u64>>();
    let mut slices: Vec<VecDeque<u64>> = problem.loads().iter().map(slice).collect();
    // Arrivals come before departures of the same time.
    let mut events = Vec::new();
    for transfer in program.transfers() {
        let (from, side) = (transfer.from as usize, transfer.side);
        let cost = problem.cost(from, side);
        for k in 0..transfer.items {
            let spread = transfer.end - transfer.start - cost;
            let pause =
                if k == 0 { 0 } else { u128::from(k) * u128::from(spread) / u128::from(transfer.items - 1) };
            let start = transfer.start + pause as u64;
            events.push((start + cost, 0, from, side));
            events.push((start, 1, from, side));
        }
    }
    events.sort();
    let mut in_flight: Vec<VecDeque<u64>> = vec![VecDeque::new(); procs];
    let mut receiving = vec![false; procs];
    let mut makespan = 0;
    for (time, leaves, from, side) in events {
        let to = side.of(from as u64, procs as u64) as usize;
        if leaves == 1 {
            if !in_flight[from].is_empty() {
                return Err(format!("process {from} sends two items at {time}"));
            }
            if receiving[to] {
                return Err(format!("process {to} receives two items at {time}"));
            }
            let item = match side {
                Side::Right => slices[from].pop_back(),
                Side::Left => slices[from].pop_front(),
            };
            in_flight[from].push_back(item.ok_or(format!("process {from} sends without an item at {time}"))?);
            receiving[to] = true;
        } else {
            let item = in_flight[from].pop_front().ok_or("an item arrives that did not leave")?;
            receiving[to] = false;
            match side {
                Side::Right => slices[to].push_front(item),
                Side::Left => slices[to].push_back(item),
            }
            makespan = time;
        }
    }
    let slices: Vec<Vec<u64>> = slices.into_iter().map(Vec::from).collect();
    match slices.iter().zip(problem.targets()).position(|(slice, &target)| slice.len() as u64 != target) {
        Some(rank) => Err(format!("process {rank} ends with {} items", slices[rank].len())),
        None => Ok((slices, makespan)),
    }
}

/// Items held by each process, then for each the item in flight from it: 0 if none, else twice the time until it arrives, plus
/// 1 if it goes left.
type State = [u8; 16];

/// True if some program ends by `deadline`: tries every choice of every process at every unit of time, idling included.
pub fn can_be_done_by(problem: &RingProblem, deadline: u64) -> bool {
    let procs = problem.procs();
    assert!(procs <= 8, "only tiny rings can be searched exhaustively");
    let mut state: State = [0; 16];
    let mut goal: State = [0; 16];
    for rank in 0..procs {
        state[rank] = problem.loads()[rank] as u8;
        goal[rank] = problem.targets()[rank] as u8;
    }
    let mut level = HashSet::from([state]);
    for time in 0..deadline {
        if level.contains(&goal) {
            return true;
        }
        let mut next = HashSet::new();
        for state in level {
            try_all(problem, state, 0, &mut |state| {
                let state = tick(procs, state);
                if !is_hopeless(problem, &state, deadline - time - 1) {
                    next.insert(state);
                }
            });
        }
        level = next;
    }
    level.contains(&goal)
}

/// Calls `visit` with the states after every choice of the processes from `rank` on.
fn try_all(problem: &RingProblem, state: State, rank: usize, visit: &mut impl FnMut(State)) {
    let procs = problem.procs();
    if rank == procs {
        return visit(state);
    }
    try_all(problem, state, rank + 1, visit);
    if state[rank] == 0 || state[8 + rank] > 0 {
        return;
    }
    for side in [Side::Right, Side::Left] {
        let to = side.of(rank as u64, procs as u64) as usize;
        let is_to = |from: usize, left: u8| {
            let code = state[8 + from];
            code > 0 && code % 2 == left
        };
        let busy = is_to((to + procs - 1) % procs, 0) || is_to((to + 1) % procs, 1);
        let wraps = if side == Side::Right { to < rank } else { to > rank };
        let one_way = problem.direction() == Direction::Uni && side == Side::Left;
        if busy || one_way || (wraps && problem.is_ordered()) {
            continue;
        }
        let mut next = state;
        next[rank] -= 1;
        next[8 + rank] = 2 * problem.cost(rank, side) as u8 + u8::from(side == Side::Left);
        try_all(problem, next, rank + 1, visit);
    }
}

/// Lets one unit of time pass.
fn tick(procs: usize, mut state: State) -> State {
    for rank in 0..procs {
        let code = state[8 + rank];
        if code == 0 {
            continue;
        }
        state[8 + rank] -= 2;
        if state[8 + rank] < 2 {
            state[8 + rank] = 0;
            let side = if code % 2 == 1 { Side::Left } else { Side::Right };
            state[side.of(rank as u64, procs as u64) as usize] += 1;
        }
    }
    state
}

/// True if some slice has to send or receive more items than its two ends can carry in the time that is left.
fn is_hopeless(problem: &RingProblem, state: &State, time: u64) -> bool {
    let procs = problem.procs();
    let mut imbalance = [0_i64; 8];
    for rank in 0..procs {
        imbalance[rank] += i64::from(state[rank]) - problem.targets()[rank] as i64;
        match state[8 + rank] {
            0 => (),
            code if code % 2 == 0 => imbalance[(rank + 1) % procs] += 1,
            _ => imbalance[(rank + procs - 1) % procs] += 1,
        }
    }
    let one_way = problem.direction() == Direction::Uni;
    let slice_is_hopeless = |first: usize, last: usize, sum: i64| {
        let (right, left) = match sum {
            0 => return false,
            1.. => (problem.right()[last], problem.left()[first]),
            _ => (problem.right()[(first + procs - 1) % procs], problem.left()[(last + 1) % procs]),
        };
        let left = if one_way { u64::MAX } else { left };
        let items = if first == last { time / right.min(left) } else { time / right + time / left };
        sum.unsigned_abs() > items
    };
    (0..procs).any(|first| {
        let mut sum = 0;
        (0..procs - 1).any(|more| {
            let last = (first + more) % procs;
            sum += imbalance[last];
            slice_is_hopeless(first, last, sum)
        })
    })
}

/// A random ring: some processes empty, few items or many, equal links or not, one direction or both, in order or not.
pub fn any_ring(random: &mut Random, procs: usize, max_items: u64) -> RingProblem {
    let least = random.within(0, 1);
    let mut loads: Vec<u64> = (0..procs).map(|_| least + random.any_size(max_items)).collect();
    if random.one_in(4) {
        // One process has nearly all items, the others pass them on.
        let rich = random.within(0, procs as u64 - 1) as usize;
        loads
            .iter_mut()
            .enumerate()
            .for_each(|(rank, load)| *load = if rank == rich { max_items } else { least });
    }
    let spread = loads.iter().sum::<u64>() - least * procs as u64;
    let mut cuts: Vec<u64> = (1..procs)
        .map(|_| if random.one_in(3) { spread * random.within(0, 1) } else { random.within(0, spread) })
        .collect();
    cuts.push(spread);
    cuts.sort_unstable();
    let targets = cuts.iter().scan(0, |from, &to| Some(least + to - std::mem::replace(from, to))).collect();
    let max_cost = [1, 3, 10][random.within(0, 2) as usize];
    let mut costs = || (0..procs).map(|_| random.within(1, max_cost)).collect::<Vec<_>>();
    let (right, left) = (costs(), costs());
    let made = RingProblem::new(loads, targets)
        .and_then(|ring| ring.with_right(right))
        .and_then(|ring| ring.with_left(left))
        .expect("lists of equal lengths and sums");
    // Not every ring can be solved in one direction and in order.
    let kind = random.within(0, 4);
    let uni = if kind < 2 { made.clone().with_direction(Direction::Uni).unwrap_or(made) } else { made };
    if kind % 2 == 1 { uni.clone().in_order().unwrap_or(uni) } else { uni }
}

/// The items of a ring in the memory of its processes, before and after a run. All bytes are random, so a misplaced one is
/// found.
#[derive(Clone, Debug)]
pub struct Items {
    problem: RingProblem,
    item_bytes: usize,
    /// The bytes of all items, process by process.
    all: Vec<u8>,
}

impl Items {
    /// Makes the items of a ring from a seed.
    pub fn new(problem: &RingProblem, item_bytes: usize, seed: u64) -> Self {
        let items = problem.loads().iter().sum::<u64>() as usize;
        let mut random = Random::new(seed);
        let mut all = Vec::with_capacity(items * item_bytes + 8);
        while all.len() < items * item_bytes {
            all.extend(random.bits().to_ne_bytes());
        }
        all.truncate(items * item_bytes);
        Self { problem: problem.clone(), item_bytes, all }
    }

    /// The slice of a process, if the sequence of all items is cut into slices of these lengths, in items.
    fn slice(&self, lengths: &[u64], rank: usize) -> &[u8] {
        let before = lengths[..rank].iter().sum::<u64>() as usize;
        &self.all[before * self.item_bytes..][..lengths[rank] as usize * self.item_bytes]
    }

    /// The part of a process before a run: its items, the rest of its room, and a few guard bytes behind it.
    pub fn part(&self, rank: usize, room: usize) -> Vec<u8> {
        let mut part = self.slice(self.problem.loads(), rank).to_vec();
        assert!(part.len() <= room * self.item_bytes, "there is no room for what process {rank} has");
        part.resize(room * self.item_bytes, 0xee);
        part.extend([0x77; 5]);
        part
    }

    /// Returns the items that a process holds after a run. Fails if it wrote to the guard bytes, or, in order, if the items are
    /// not its slice of the sequence.
    pub fn held<'a>(&self, rank: usize, room: usize, part: &'a [u8]) -> &'a [u8] {
        let (own, rest) = part.split_at(room * self.item_bytes);
        assert!(rest == [0x77; 5], "process {rank} wrote beyond its room: {:?}", self.problem);
        let held = &own[..self.problem.targets()[rank] as usize * self.item_bytes];
        if self.problem.is_ordered() {
            let expected = self.slice(self.problem.targets(), rank);
            assert!(held == expected, "process {rank} does not hold its slice: {:?}", self.problem);
        }
        held
    }

    /// Fails unless `held`, the items of all processes after a run, has each item once.
    pub fn check_all(&self, held: &[u8]) {
        let mut found: Vec<&[u8]> = held.chunks(self.item_bytes).collect();
        let mut expected: Vec<&[u8]> = self.all.chunks(self.item_bytes).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert!(found == expected, "items are lost, duplicated or corrupted: {:?}", self.problem);
    }
}
