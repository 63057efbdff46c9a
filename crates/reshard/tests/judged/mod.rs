//! Runs test cases on everything that runs plans, and checks the result. The conformance suite and the fuzzer share it.

use reshard::engine::{BufferTable, Buffers, Engine, MessagesOptions, Scaling};
use reshard::rank::{Program, RankPacker, StagedCopy, messages};
use reshard::{Layout, Number, Plan};
use reshard_testkit::Random;
use reshard_testkit::conformance::{Case, Element, Kinds, Parts, Scaled, ScaledParts, Several};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

/// A test case: one array, several, or scaled ones.
pub trait Judged: Debug {
    type Parts;
    /// The plan, with the strides of all ranks.
    fn plan(&self) -> Plan;
    /// The plan as one rank knows it, which has the strides of its own parts only.
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
    /// Random arrays on the same ranks, some with equal problems.
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

/// A test case of one array.
pub fn single(case: &Case) -> Several {
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

/// Calls `run(index of a rank, its data)` for each rank with only its own parts, as if it were a process of its own.
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

/// The plan of each rank, as the rank knows it.
fn plans_of(judged: &impl Judged) -> Vec<Arc<Plan>> {
    judged.ranks().into_iter().map(|rank| Arc::new(judged.seen_by(rank))).collect()
}

/// Staged copies: all ranks pack all staging buffers, then all assemble the chunks not written already. Returns the number of
/// chunks that were written while packing.
pub fn run_staged(judged: &impl Judged, chunk: u64, way: usize) -> usize {
    let mut kept: HashSet<(usize, usize)> = HashSet::new();
    let (ranks, plans, mut parts) = (judged.ranks(), plans_of(judged), judged.parts());
    let staged = |(plan, &rank): (&Arc<Plan>, &u64)| StagedCopy::in_way(Arc::clone(plan), rank, chunk, way);
    let mut copies: Vec<StagedCopy> = plans.iter().zip(&ranks).map(staged).collect();
    let mut buffers: HashMap<(u64, u64, usize), Vec<u8>> = HashMap::new();
    each_rank(judged, &mut parts, &plans, |number, data| {
        let staged = &mut copies[number];
        let mut grouped = 0;
        for group in 0..staged.groups().len() {
            let members = staged.groups()[group].members.clone();
            grouped += members.len();
            let mut next = staged.next_chunk(members[0], 0);
            while next < staged.outgoing()[members[0]].chunks {
                let buffer = |&member: &usize| vec![0; staged.outgoing()[member].max_bytes];
                let mut packed: Vec<Vec<u8>> = members.iter().map(buffer).collect();
                let mut empty = packed.iter_mut();
                let keep = staged.keeps(data, group, next) && kept.insert((number, next));
                staged.pack_non_temporal(next % 2 == 1);
                staged.pack_group(data, group, next, keep, |_| empty.next().unwrap());
                staged.pack_non_temporal(next.is_multiple_of(2));
                for (&member, packed) in members.iter().zip(packed) {
                    assert_eq!(staged.next_chunk(member, next), next, "members of a group go together");
                    // Packing the members one by one gives the same bytes, with other stores, too.
                    let mut single = vec![0; packed.len()];
                    let bytes = staged.pack(data, member, next, &mut single);
                    assert!(bytes > 0 && single[..bytes] == packed[..bytes]);
                    buffers.insert((ranks[number], staged.outgoing()[member].to, next), single);
                }
                next = staged.next_chunk(members[0], next + 1);
            }
        }
        assert_eq!(grouped, staged.outgoing().len());
    });
    each_rank(judged, &mut parts, &plans, |number, data| {
        let (staged, rank) = (&mut copies[number], ranks[number]);
        let incoming = staged.incoming().to_vec();
        for chunk in (0..staged.chunks()).filter(|&chunk| !kept.contains(&(number, chunk))) {
            for sender in staged.needs(chunk) {
                assert!(buffers.contains_key(&(incoming[sender], rank, chunk)));
            }
            staged.assemble(data, chunk, |sender| &buffers[&(incoming[sender], rank, chunk)]);
        }
    });
    judged.check(&parts);
    kept.len()
}

/// Messages: all ranks pack all their fragments, then all unpack them, in the order of a schedule.
pub fn run_packers(judged: &impl Judged, options: &MessagesOptions, fragment_bytes: usize) {
    let (plans, mut parts) = (plans_of(judged), judged.parts());
    let packer = |(plan, rank)| messages(plan, rank, options, fragment_bytes).unwrap();
    let mut packers: Vec<(RankPacker, Program)> = plans.iter().zip(judged.ranks()).map(packer).collect();
    // Fragments by sender, receiver and group, like messages with different tags.
    let mut fragments: HashMap<(u64, u64, usize), VecDeque<Vec<u8>>> = HashMap::new();
    each_rank(judged, &mut parts, &plans, |number, data| {
        let (packer, program) = &mut packers[number];
        packer.begin(data);
        for range in &program.sends {
            let mut cursor = packer.open(data, range);
            while !cursor.finished() {
                let mut fragment = vec![0; packer.fragment_bytes()];
                assert!(packer.pack(data, range, &mut cursor, &mut fragment) > 0);
                fragments.entry(packer.ends(range)).or_default().push_back(fragment);
            }
        }
    });
    each_rank(judged, &mut parts, &plans, |number, data| {
        let (packer, program) = &mut packers[number];
        while packer.copy_local(data) {}
        for range in &program.receives {
            let mut cursor = packer.open(data, range);
            while !cursor.finished() {
                let waiting = fragments.get_mut(&packer.ends(range));
                // Sender and receiver may have different fragment sizes; both cut by the length of what was sent.
                let fragment = waiting.and_then(VecDeque::pop_front).unwrap();
                assert!(packer.unpack(data, range, &mut cursor, &fragment) > 0);
            }
        }
    });
    assert!(fragments.values().all(VecDeque::is_empty));
    judged.check(&parts);
}
