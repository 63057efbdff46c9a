//! Every engine against one suite, by value.

#![allow(clippy::unwrap_used)]

use reshard::engine::{Data, Engine, Messages, MessagesOptions, Scaling, Table, Threads};
use reshard::rank::{Porter, Program, Relay, messages};
use reshard::schedule::Strategy;
use reshard::{Distribution, ErrorKind, Layout, Move, Number, Order, Plan, Window};
use reshard_testkit::conformance::{C64, C128, Case, Element, Kinds, Parts, Scaled, ScaledParts, Several};
use reshard_testkit::{Random, full_sweep};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

/// What can be judged: one array, several, or scaled ones.
trait Judged: Debug {
    type Parts;
    /// Of all ranks.
    fn plan(&self) -> Plan;
    /// As one rank knows it, which of all strides knows its own alone.
    fn seen_by(&self, rank: u64) -> Plan;
    fn ranks(&self) -> Vec<u64>;
    fn parts(&self) -> Self::Parts;
    /// Enters the parts of all ranks, or of one, and runs.
    fn with_data(
        &self,
        only: Option<u64>,
        parts: &mut Self::Parts,
        table: &mut Table,
        run: impl FnOnce(&mut Data<'_>),
    );
    fn check(&self, parts: &Self::Parts);
}

/// The parts of one rank, empty if it has none.
fn of_rank<'a, T>(
    case: &Case,
    rank: u64,
    (from, to): (Vec<&'a [T]>, Vec<&'a mut [T]>),
) -> (&'a [T], &'a mut [T]) {
    let ranks = |layout: &Layout| layout.distribution().grid().sorted_ranks();
    let from = ranks(case.moving.from()).into_iter().zip(from).find(|(other, _)| *other == rank);
    let to = ranks(case.moving.to()).into_iter().zip(to).find(|(other, _)| *other == rank);
    (from.map_or(&[], |(_, part)| part), to.map_or(&mut [], |(_, part)| part))
}

impl Judged for Several {
    type Parts = Vec<Parts>;
    fn plan(&self) -> Plan {
        Plan::new(self.moves()).unwrap()
    }
    fn seen_by(&self, rank: u64) -> Plan {
        Plan::new(self.seen_by(rank)).unwrap()
    }
    fn ranks(&self) -> Vec<u64> {
        self.ranks()
    }
    fn parts(&self) -> Vec<Parts> {
        self.parts()
    }
    fn with_data(
        &self,
        only: Option<u64>,
        parts: &mut Vec<Parts>,
        table: &mut Table,
        run: impl FnOnce(&mut Data<'_>),
    ) {
        let mut slices = self.slices(parts);
        let mut data = table.fill();
        if let Some(rank) = only {
            for ((array, case), slices) in self.cases.iter().enumerate().zip(slices) {
                let (from, to) = of_rank(case, rank, slices);
                data.enter_own_bytes(array, rank, from, to).unwrap();
            }
            return run(&mut data);
        }
        for (array, (from, to)) in slices.iter_mut().enumerate() {
            data.enter_bytes(array, from, to).unwrap();
        }
        run(&mut data);
    }
    fn check(&self, parts: &Vec<Parts>) {
        self.check(parts);
    }
}

/// Arrays of two types in one plan, scaled with all sorts of factors.
#[derive(Debug)]
struct Sums<T, U>(Vec<Scaled<T>>, Vec<Scaled<U>>);

impl<T: Number + Element, U: Number + Element> Sums<T, U> {
    fn random(random: &mut Random, kinds: &Kinds) -> Self {
        let mut sums = Self(Vec::new(), Vec::new());
        for (number, mut case) in Several::random(random, kinds).cases.into_iter().enumerate() {
            let bytes = if number % 2 == 0 { size_of::<T>() } else { size_of::<U>() };
            case.moving = case.moving.of_bytes(bytes as u64).unwrap();
            match number % 2 {
                0 => sums.0.push(Scaled::of(random, case)),
                _ => sums.1.push(Scaled::of(random, case)),
            }
        }
        sums
    }

    fn cases(&self) -> impl Iterator<Item = &Case> {
        self.0.iter().map(|sum| &sum.case).chain(self.1.iter().map(|sum| &sum.case))
    }
}

impl<T: Number + Element, U: Number + Element> Judged for Sums<T, U> {
    type Parts = (Vec<ScaledParts<T>>, Vec<ScaledParts<U>>);
    fn plan(&self) -> Plan {
        Plan::new(self.cases().map(|case| case.moving.clone()).collect()).unwrap()
    }
    fn seen_by(&self, rank: u64) -> Plan {
        Plan::new(self.cases().map(|case| case.seen_by(rank)).collect()).unwrap()
    }
    fn ranks(&self) -> Vec<u64> {
        self.plan().ranks()
    }
    fn parts(&self) -> Self::Parts {
        (self.0.iter().map(Scaled::parts).collect(), self.1.iter().map(Scaled::parts).collect())
    }
    fn with_data(
        &self,
        only: Option<u64>,
        (t, u): &mut Self::Parts,
        table: &mut Table,
        run: impl FnOnce(&mut Data<'_>),
    ) {
        let mut t: Vec<_> = self.0.iter().zip(t).map(|(sum, parts)| sum.slices(parts)).collect();
        let mut u: Vec<_> = self.1.iter().zip(u).map(|(sum, parts)| sum.slices(parts)).collect();
        let mut data = table.fill();
        if let Some(rank) = only {
            for ((array, sum), slices) in self.0.iter().enumerate().zip(t) {
                let (from, to) = of_rank(&sum.case, rank, slices);
                data.enter_own(array, rank, from, to, scaling(sum)).unwrap();
            }
            for ((array, sum), slices) in self.1.iter().enumerate().zip(u) {
                let (from, to) = of_rank(&sum.case, rank, slices);
                data.enter_own(self.0.len() + array, rank, from, to, scaling(sum)).unwrap();
            }
            return run(&mut data);
        }
        for ((array, sum), (from, to)) in self.0.iter().enumerate().zip(&mut t) {
            data.enter(array, from, to, scaling(sum)).unwrap();
        }
        for ((array, sum), (from, to)) in self.1.iter().enumerate().zip(&mut u) {
            data.enter(self.0.len() + array, from, to, scaling(sum)).unwrap();
        }
        run(&mut data);
    }
    fn check(&self, (t, u): &Self::Parts) {
        self.0.iter().zip(t).for_each(|(sum, parts)| sum.check(parts));
        self.1.iter().zip(u).for_each(|(sum, parts)| sum.check(parts));
    }
}

fn scaling<T: Number + Element>(sum: &Scaled<T>) -> Option<Scaling> {
    Scaling::new(sum.alpha, sum.beta, sum.conjugated)
}

/// One array alone.
fn alone(case: &Case) -> Several {
    Several { cases: vec![case.clone()] }
}

fn judge(judged: &impl Judged, mut engine: impl Engine) {
    let mut parts = judged.parts();
    let mut table = Table::new(Arc::clone(engine.plan()));
    judged.with_data(None, &mut parts, &mut table, |data| {
        engine.run(data).unwrap_or_else(|error| panic!("{error}: {judged:?}"));
    });
    judged.check(&parts);
}

fn sweep(seed: u64, cases: u64, kinds: &Kinds) {
    let mut random = Random::new(seed);
    for number in 0..cases {
        let case = Case::random(&mut random, kinds);
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        // The slice takes every case in every way, the whole sweep each in one: thousands of cases for each.
        let ways = if full_sweep() { number as usize..number as usize + 1 } else { 0..Threads::ways() };
        for way in ways {
            let threads = 1 + number as usize / Threads::ways() % 2;
            judge(&alone(&case), Threads::in_way(&plan, threads, way % Threads::ways()).unwrap());
        }
    }
}

#[test]
fn threads_in_every_way() {
    sweep(7, if full_sweep() { 100_000 } else { 2_000 }, &Kinds::default());
}

#[test]
fn threads_in_every_way_on_larger_arrays() {
    sweep(8, if full_sweep() { 20_000 } else { 300 }, &Kinds { elems: 20_000, ..Kinds::default() });
}

/// Calls `run(number of a rank, its data)` for each rank with its own parts alone, as if it were a process of its own.
fn each_rank<J: Judged>(
    judged: &J,
    parts: &mut J::Parts,
    plans: &[Arc<Plan>],
    mut run: impl FnMut(usize, &mut Data<'_>),
) {
    for ((number, rank), plan) in judged.ranks().into_iter().enumerate().zip(plans) {
        let mut table = Table::new(Arc::clone(plan));
        judged.with_data(Some(rank), parts, &mut table, |data| run(number, data));
    }
}

/// What each rank plans, each for itself.
fn plans_of(judged: &impl Judged) -> Vec<Arc<Plan>> {
    judged.ranks().into_iter().map(|rank| Arc::new(judged.seen_by(rank))).collect()
}

/// All pack all their boxes, then all assemble what they have not written already. Returns how many chunks that were.
fn relay(judged: &impl Judged, chunk: u64, way: usize) -> usize {
    let mut kept: HashSet<(usize, usize)> = HashSet::new();
    let (ranks, plans, mut parts) = (judged.ranks(), plans_of(judged), judged.parts());
    let relay = |(plan, &rank): (&Arc<Plan>, &u64)| Relay::in_way(Arc::clone(plan), rank, chunk, way);
    let mut relays: Vec<Relay> = plans.iter().zip(&ranks).map(relay).collect();
    let mut boxes: HashMap<(u64, u64, usize), Vec<u8>> = HashMap::new();
    each_rank(judged, &mut parts, &plans, |number, data| {
        let relay = &mut relays[number];
        let mut in_bundles = 0;
        for bundle in 0..relay.bundles().len() {
            let members = relay.bundles()[bundle].members.clone();
            in_bundles += members.len();
            let mut next = relay.next_chunk(members[0], 0);
            while next < relay.outgoing()[members[0]].chunks {
                let room = |&member: &usize| vec![0; relay.outgoing()[member].most_bytes];
                let mut packed: Vec<Vec<u8>> = members.iter().map(room).collect();
                let mut rooms = packed.iter_mut();
                let keep = relay.keeps(data, bundle, next) && kept.insert((number, next));
                relay.pack_bundle(data, bundle, next, keep, |_| rooms.next().unwrap());
                for (&member, packed) in members.iter().zip(packed) {
                    assert_eq!(relay.next_chunk(member, next), next, "members of a bundle go together");
                    // The same, one by one.
                    let mut alone = vec![0; packed.len()];
                    let bytes = relay.pack(data, member, next, &mut alone);
                    assert!(bytes > 0 && alone[..bytes] == packed[..bytes]);
                    boxes.insert((ranks[number], relay.outgoing()[member].to, next), alone);
                }
                next = relay.next_chunk(members[0], next + 1);
            }
        }
        assert_eq!(in_bundles, relay.outgoing().len());
    });
    each_rank(judged, &mut parts, &plans, |number, data| {
        let (relay, rank) = (&mut relays[number], ranks[number]);
        let incoming = relay.incoming().to_vec();
        for chunk in (0..relay.chunks()).filter(|&chunk| !kept.contains(&(number, chunk))) {
            for sender in relay.needs(chunk) {
                assert!(boxes.contains_key(&(incoming[sender], rank, chunk)));
            }
            relay.assemble(data, chunk, |sender| &boxes[&(incoming[sender], rank, chunk)]);
        }
    });
    judged.check(&parts);
    kept.len()
}

#[test]
fn relays_in_chunks_of_any_size() {
    let mut random = Random::new(12);
    for number in 0..if full_sweep() { 40_000 } else { 2_000 } {
        let elems = if number % 8 == 0 { 20_000 } else { 2_000 };
        let case = Case::random(&mut random, &Kinds { elems, ..Kinds::default() });
        let bytes = case.moving.elem_bytes();
        let chunk = random.within(1, [bytes, 100, 5_000, 300_000][number as usize % 4]);
        relay(&alone(&case), chunk, random.within(0, Threads::ways() as u64 - 1) as usize);
    }
}

/// Whole columns of the source become pieces of several destinations: what a rank has for itself is written while the rest is
/// packed.
#[test]
fn relays_that_keep_some_of_what_they_pack() {
    let mut random = Random::new(13);
    let (cases, mut kept) = (if full_sweep() { 20_000 } else { 500 }, 0);
    for number in 0..cases {
        let elem = [1, 4, 8, 15, 16][random.within(0, 4) as usize];
        // Pieces of two lines and more.
        let piece = random.within(128, 500).div_ceil(elem);
        let (fast, slow) = (random.within(2 * piece, 7 * piece), random.within(1, 50));
        let order = if random.one_in(2) { Order::ColMajor } else { Order::RowMajor };
        let mut layout = |fast_procs: u64, fast_block: u64| {
            let (procs, block) = (random.within(1, 3), random.within(1, 12));
            let text = match order {
                Order::ColMajor => format!("{fast_procs}x{procs}/{fast_block}x{block} of {fast}x{slow}"),
                Order::RowMajor => format!("{procs}x{fast_procs}/{block}x{fast_block} of {slow}x{fast}"),
            };
            Layout::new(text.parse::<Distribution>().unwrap(), order)
        };
        // Now and then not whole ones: then nothing may be written ahead.
        let from = if number % 4 == 0 { layout(2, piece) } else { layout(1, fast) };
        let to = layout(2 + number % 2, piece + number % 3);
        let mut window = Window::of(&match order {
            Order::ColMajor => [fast, slow],
            Order::RowMajor => [slow, fast],
        });
        if random.one_in(3) {
            let (first, last) = (random.within(0, 3.min(slow - 1)), slow);
            let (rows, at) = ([last - first, fast], [first, 0]);
            let turn = |pair: [u64; 2]| if order == Order::ColMajor { [pair[1], pair[0]] } else { pair };
            window = Window::of(&turn(rows)).from(&turn(at)).to(&turn([0, 0]));
        }
        let moving = Move::windowed(from, to, window).and_then(|moving| moving.of_bytes(elem)).unwrap();
        let skew = [random.within(0, 63) as usize, random.within(0, 63) as usize];
        let case = Case { moving, skew, salt: random.bits() };
        let chunk = random.within(1, 5 * fast * elem);
        kept += relay(&alone(&case), chunk, random.within(0, Threads::ways() as u64 - 1) as usize);
    }
    assert!(kept as u64 > cases, "{kept} chunks in {cases} cases");
}

/// Rows of different lengths, of which only the short ones fit into a chunk: the same numbers are not the same rows.
#[test]
fn relays_that_keep_nothing_of_other_rows() {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), Order::ColMajor);
    for (from, to) in [("60,40", "20,80"), ("40,60", "80,20")] {
        let [from, to] = [from, to].map(|parts| format!("(gen_block({parts}), *) on 2x1 of 100x12"));
        let moving = Move::new(layout(&from), layout(&to)).unwrap().of_bytes(8).unwrap();
        let case = Case { moving, skew: [0, 0], salt: 3 };
        for chunk in [160, 320, 400, 480, 640, 1_280, 10_000] {
            relay(&alone(&case), chunk, 0);
        }
    }
}

/// All pack all their letters, then all unpack them, in the order of a schedule.
fn carry(judged: &impl Judged, options: &MessagesOptions, chunk: usize) {
    let (plans, mut parts) = (plans_of(judged), judged.parts());
    let porter = |(plan, rank)| messages(plan, rank, options, chunk).unwrap();
    let mut porters: Vec<(Porter, Program)> = plans.iter().zip(judged.ranks()).map(porter).collect();
    // Letters of one group after another, as of messages with different tags.
    let mut letters: HashMap<(u64, u64, usize), VecDeque<Vec<u8>>> = HashMap::new();
    each_rank(judged, &mut parts, &plans, |number, data| {
        let (porter, program) = &mut porters[number];
        porter.begin(data);
        for parcel in &program.sends {
            let mut cursor = porter.open(data, parcel);
            while !cursor.finished() {
                let mut letter = vec![0; porter.letter()];
                assert!(porter.pack(data, parcel, &mut cursor, &mut letter) > 0);
                letters.entry(porter.ends(parcel)).or_default().push_back(letter);
            }
        }
    });
    each_rank(judged, &mut parts, &plans, |number, data| {
        let (porter, program) = &mut porters[number];
        while porter.work_alone(data) {}
        for parcel in &program.receives {
            let mut cursor = porter.open(data, parcel);
            while !cursor.finished() {
                let waiting = letters.get_mut(&porter.ends(parcel));
                // Sender and receiver each have a longest letter; both cut by what was sent.
                let letter = waiting.and_then(VecDeque::pop_front).unwrap();
                assert!(porter.unpack(data, parcel, &mut cursor, &letter) > 0);
            }
        }
    });
    assert!(letters.values().all(VecDeque::is_empty));
    judged.check(&parts);
}

#[test]
fn porters_with_letters_of_any_size() {
    let mut random = Random::new(13);
    for number in 0..if full_sweep() { 10_000 } else { 600 } {
        let case = Case::random(&mut random, &Kinds { elems: 800, ..Kinds::default() });
        let strategy = [Strategy::Optimal, Strategy::Async, Strategy::Caterpillar][number as usize % 3];
        let options = MessagesOptions { strategy, ..Default::default() };
        carry(&alone(&case), &options, random.within(1, [8, 100, 5_000][number as usize / 3 % 3]) as usize);
    }
}

/// Every strategy that accepts the case, with all the memory it likes, with the least it can do with, and something in
/// between; with barriers and without. Returns how many runs that were.
fn sweep_messages(seed: u64, cases: u64, kinds: &Kinds) -> u64 {
    let mut random = Random::new(seed);
    let mut runs = 0;
    for number in 0..cases {
        let case = Case::random(&mut random, kinds);
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        for strategy in Strategy::ALL {
            let options = MessagesOptions { strategy, barriers: random.one_in(2), ..Default::default() };
            let engine = match Messages::new(Arc::clone(&plan), options) {
                Ok(engine) => engine,
                Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                Err(error) => panic!("{error}: {strategy}: {case:?}"),
            };
            let (least, most) = (engine.least_bytes(), engine.scratch_bytes());
            assert!(least <= most, "{least} bytes are needed and {most} are used");
            let memory = match (number + strategy as u64) % 3 {
                0 => None,
                1 => Some(least),
                _ => Some(random.within(least, most)),
            };
            let engine = match memory {
                None => engine,
                Some(_) => Messages::new(Arc::clone(&plan), MessagesOptions { memory, ..options }).unwrap(),
            };
            assert!(memory.is_none_or(|memory| engine.scratch_bytes() <= memory));
            judge(&alone(&case), engine);
            runs += 1;
        }
    }
    runs
}

#[test]
fn messages_by_every_strategy_in_any_memory() {
    let kinds = Kinds { procs: 3, elems: 600, dims: 1..4, ..Kinds::default() };
    let runs = sweep_messages(9, if full_sweep() { 5_000 } else { 150 }, &kinds);
    assert!(runs > if full_sweep() { 30_000 } else { 900 }, "{runs} runs");
}

#[test]
fn messages_between_many_ranks() {
    sweep_messages(10, if full_sweep() { 400 } else { 12 }, &Kinds { dims: 2..5, ..Kinds::default() });
}

#[test]
fn messages_of_larger_arrays() {
    let kinds = Kinds { elems: 60_000, dims: 1..4, procs: 3, ..Kinds::default() };
    sweep_messages(11, if full_sweep() { 600 } else { 12 }, &kinds);
}

/// Everything that runs a plan, on whatever is to be judged.
fn sweep_everything<J: Judged>(seed: u64, cases: u64, next: impl Fn(&mut Random) -> J) {
    let mut random = Random::new(seed);
    for number in 0..cases {
        let judged = next(&mut random);
        let plan = Arc::new(judged.plan());
        let way = random.within(0, Threads::ways() as u64 - 1) as usize;
        judge(&judged, Threads::in_way(&plan, 1 + number as usize % 2, way).unwrap());
        let strategy = [Strategy::Optimal, Strategy::Async, Strategy::Split][number as usize % 3];
        let options = MessagesOptions { strategy, barriers: random.one_in(2), ..Default::default() };
        let engine = Messages::new(Arc::clone(&plan), options).unwrap();
        let memory = random.one_in(2).then(|| random.within(engine.least_bytes(), engine.scratch_bytes()));
        judge(&judged, Messages::new(plan, MessagesOptions { memory, ..options }).unwrap());
        carry(&judged, &options, random.within(1, [8, 100, 5_000][number as usize / 3 % 3]) as usize);
        relay(&judged, random.within(1, [16, 100, 5_000, 300_000][number as usize % 4]), way);
    }
}

fn small_kinds() -> Kinds {
    Kinds { elems: 500, procs: 3, dims: 1..4, own_strides: true, ..Kinds::default() }
}

#[test]
fn several_arrays_with_strides_of_their_own() {
    sweep_everything(21, if full_sweep() { 20_000 } else { 400 }, |random| {
        Several::random(random, &small_kinds())
    });
}

#[test]
fn sums_of_every_type() {
    let cases = if full_sweep() { 8_000 } else { 150 };
    sweep_everything(22, cases, |random| Sums::<f32, C128>::random(random, &small_kinds()));
    sweep_everything(23, cases, |random| Sums::<C64, f64>::random(random, &small_kinds()));
}
