//! Runs whatever can be judged on whatever runs plans: the suite and the fuzzer share it.

use reshard::engine::{BufferTable, Buffers, Engine, MessagesOptions, Scaling};
use reshard::rank::{Program, RankPacker, StagedCopy, messages};
use reshard::{Layout, Number, Plan};
use reshard_testkit::Random;
use reshard_testkit::conformance::{Case, Element, Kinds, Parts, Scaled, ScaledParts, Several};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

/// What can be judged: one array, several, or scaled ones.
pub trait Judged: Debug {
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
        table: &mut BufferTable,
        run: impl FnOnce(&mut Buffers<'_>),
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
        table: &mut BufferTable,
        run: impl FnOnce(&mut Buffers<'_>),
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
pub struct Sums<T, U>(Vec<Scaled<T>>, Vec<Scaled<U>>);

impl<T: Number + Element, U: Number + Element> Sums<T, U> {
    /// On the same ranks, some of them alike.
    pub fn random(random: &mut Random, kinds: &Kinds) -> Self {
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
        table: &mut BufferTable,
        run: impl FnOnce(&mut Buffers<'_>),
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
pub fn alone(case: &Case) -> Several {
    Several { cases: vec![case.clone()] }
}

/// Runs an engine on the parts of all ranks.
pub fn judge(judged: &impl Judged, mut engine: impl Engine) {
    let mut parts = judged.parts();
    let mut table = BufferTable::new(Arc::clone(engine.plan()));
    judged.with_data(None, &mut parts, &mut table, |data| {
        engine.run(data).unwrap_or_else(|error| panic!("{error}: {judged:?}"));
    });
    judged.check(&parts);
}

/// Calls `run(number of a rank, its data)` for each rank with its own parts alone, as if it were a process of its own.
fn each_rank<J: Judged>(
    judged: &J,
    parts: &mut J::Parts,
    plans: &[Arc<Plan>],
    mut run: impl FnMut(usize, &mut Buffers<'_>),
) {
    for ((number, rank), plan) in judged.ranks().into_iter().enumerate().zip(plans) {
        let mut table = BufferTable::new(Arc::clone(plan));
        judged.with_data(Some(rank), parts, &mut table, |data| run(number, data));
    }
}

/// What each rank plans, each for itself.
fn plans_of(judged: &impl Judged) -> Vec<Arc<Plan>> {
    judged.ranks().into_iter().map(|rank| Arc::new(judged.seen_by(rank))).collect()
}

/// All pack all their boxes, then all assemble what they have not written already. Returns how many chunks that were.
pub fn relay(judged: &impl Judged, chunk: u64, way: usize) -> usize {
    let mut kept: HashSet<(usize, usize)> = HashSet::new();
    let (ranks, plans, mut parts) = (judged.ranks(), plans_of(judged), judged.parts());
    let relay = |(plan, &rank): (&Arc<Plan>, &u64)| StagedCopy::in_way(Arc::clone(plan), rank, chunk, way);
    let mut relays: Vec<StagedCopy> = plans.iter().zip(&ranks).map(relay).collect();
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

/// All pack all their letters, then all unpack them, in the order of a schedule.
pub fn carry(judged: &impl Judged, options: &MessagesOptions, chunk: usize) {
    let (plans, mut parts) = (plans_of(judged), judged.parts());
    let porter = |(plan, rank)| messages(plan, rank, options, chunk).unwrap();
    let mut porters: Vec<(RankPacker, Program)> = plans.iter().zip(judged.ranks()).map(porter).collect();
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
