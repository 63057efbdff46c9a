//! Random programs on many communicators of the host: duplicates, groups, the process alone, in which some ranks have no part. They are
//! made and freed in any order, before and after the engines on them, and some of all that outlives MPI.

#![allow(unsafe_code)]

use crate::handles::{AnyHandle, Host};
use crate::programs::{DEADLINE, Fate, Load, any_engine, play as play_round};
use crate::rings::{any_ring, run_once};
use crate::world::World;
use reshard::engine::MessagesOptions;
use reshard::{Error, ErrorKind, Result};
use reshard_mpi::communicator::{Communicator, ToCommunicator};
use reshard_mpi::{Comm, Mover, MpiEngine, MpiOptions, MpiRing, MpiRingOptions, Running};
use reshard_ring::RingPlan;
use reshard_testkit::Random;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Programs of a launch are numbered from its seed times this: each can be run alone.
const PROGRAMS: u64 = 10_000;

/// A communicator that a program has made, or one of several that a split made of disjoint ranks.
struct Group {
    /// The host's; none once it is freed.
    handle: Option<AnyHandle>,
    /// The world, or `MPI_COMM_SELF`, which nobody may free.
    is_predefined: bool,
    /// A duplicate, for what the test itself says.
    aside: Comm,
    aside_handle: AnyHandle,
    /// Ranks of the world.
    members: Vec<usize>,
}

/// This rank in a group, and what engines are made on.
struct Place<'a> {
    comm: Arc<Communicator>,
    aside: &'a Comm,
}

/// An engine of a group.
struct Work {
    /// Equal on all ranks of the group.
    name: u64,
    group: usize,
}

/// What a rank keeps until MPI has ended, and after.
#[derive(Default)]
struct Leftovers {
    engines: Vec<(MpiEngine, Load)>,
    rings: Vec<MpiRing>,
    /// In flight for ever.
    runs: Vec<Running<'static>>,
}

/// How often something happened.
#[derive(Default)]
struct Counts {
    groups: u64,
    runs: u64,
    right: u64,
    rings: u64,
    freed: u64,
    refused: u64,
}

/// One rank of a program.
struct Program<'a> {
    host: &'a Host,
    world: &'a Comm,
    /// By the node of the program's tree: equal on all ranks, but not all have a part in each.
    groups: Vec<Option<Group>>,
    works: Vec<Work>,
    engines: Vec<MpiEngine>,
    loads: Vec<Load>,
    rings: Vec<(usize, MpiRing)>,
    /// Names given so far.
    names: u64,
    /// All ranks draw the same.
    random: Random,
    /// Each rank draws for itself.
    own: Random,
    left: &'a mut Leftovers,
    counts: &'a mut Counts,
}

/// What a launched process does: begins MPI as a host or by the library, runs programs, and ends MPI before some of what it made.
pub fn play(part: &str) {
    let numbers: Vec<u64> = part.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
    let &[seed, first, count] = &numbers[..] else { panic!("no part {part}") };
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("on purpose") {
            eprintln!("{info}");
        }
    }));
    let host = Host::new();
    let is_host = seed % 2 == 0;
    if is_host {
        host.init();
    }
    let session = host.mpi.init().unwrap();
    let world = session.world();
    let (mut left, mut counts) = (Leftovers::default(), Counts::default());
    for number in first..first + count {
        let outcome =
            catch_unwind(AssertUnwindSafe(|| program(&host, world, seed, number, &mut left, &mut counts)));
        if let Err(why) = outcome {
            eprintln!("rank {} of {}: part \"communicators {seed} {number} 1\"", world.rank(), world.size());
            resume_unwind(why);
        }
    }
    let mut random = Random::new(seed);
    if random.one_in(2) {
        leave_in_flight(&mut random, world, &mut left);
    }
    let Counts { groups, runs, right, rings, freed, refused } = counts;
    let mut all = [groups, runs, right, rings, freed, refused];
    world.sum(&mut all);
    let [groups, runs, right, rings, freed, refused] = all;
    let line = format!("[{}/{} done]", world.rank(), world.size());
    if world.rank() == 0 {
        println!(
            "  {} ranks, {count} programs: {groups} groups of ranks, {freed} freed, {refused} refused; {right} of {runs} ranks' \
             runs and {rings} of rings ended well",
            world.size()
        );
    }
    drop(session);
    if is_host {
        host.finalize();
    }
    after_the_end(&mut Random::new(seed), left);
    println!("{line}");
}

/// A rank refuses a run that nobody else begins, and all free the communicator: what is made of its context receives no failure notice of it,
/// which a communicator of fewer ranks could not.
pub fn unread_notices() {
    let host = Host::new();
    host.init();
    let session = host.mpi.init().unwrap();
    let world = session.world();
    let mut random = Random::new(1);
    for round in 0..12 {
        let handle = host.duplicate(host.predefined(false));
        // SAFETY: freed below, after all that uses it.
        let comm = unsafe { Comm::from_raw(host.mpi, host.raw(handle)) }.unwrap();
        let load = Load::random(&mut random, &comm);
        let mut engine = any_engine(&mut random, &load, &comm);
        if world.rank() == round % world.size() {
            engine.refuse(Error::new(ErrorKind::Failed, "on purpose"));
        }
        drop((engine, comm));
        host.free(handle);
        world.meet();
        let few: Vec<AnyHandle> = (0..4).map(|_| host.duplicate(host.predefined(true))).collect();
        for &few in &few {
            // SAFETY: freed below, after the engine.
            let comm = unsafe { Comm::from_raw(host.mpi, host.raw(few)) }.unwrap();
            let mut load = Load::random(&mut random, &comm);
            let mut engine = any_engine(&mut random, &load, &comm);
            load.fill(&comm, engine.mover());
            load.start(&mut engine).and_then(Running::wait).unwrap();
            load.check();
        }
        few.into_iter().for_each(|few| host.free(few));
    }
    let line = format!("[{}/{} done]", world.rank(), world.size());
    drop(session);
    host.finalize();
    println!("{line}");
}

/// Begins runs that nobody waits for before MPI ends. Small ones: MPI may wait for long messages.
fn leave_in_flight(random: &mut Random, world: &Comm, left: &mut Leftovers) {
    let place = Place { comm: world.to_communicator(DEADLINE).unwrap(), aside: world };
    for _ in 0..2 {
        let mut load = Load::random(random, &place);
        let engine = any_engine(random, &load, &place);
        load.fill(&place, engine.mover());
        // Both outlive the run, which has no end.
        left.runs.push(Box::leak(Box::new(load)).start(Box::leak(Box::new(engine))).unwrap());
    }
}

/// Nothing is called any more: MPI would end the process.
fn after_the_end(own: &mut Random, left: Leftovers) {
    for mut run in left.runs {
        for _ in 0..2 {
            if let Err(error) = run.test() {
                // With the mover `cma` a rank is named that has exited.
                let text = error.to_string();
                assert!(text.contains("MPI has ended") || text.contains("of rank"), "{text}");
            }
        }
        match own.within(0, 2) {
            0 => drop(run),
            1 => drop(run.wait()),
            _ => std::mem::forget(run),
        }
    }
    for (mut engine, mut load) in left.engines {
        let error = load.start(&mut engine).err().expect("MPI has ended");
        assert!(error.to_string().contains("MPI has ended"), "{error}");
        if own.one_in(2) {
            drop(engine);
            drop(load);
        } else {
            drop((load, engine));
        }
    }
    for mut ring in left.rings {
        let error = ring.run(&mut [0_u8; 0]).unwrap_err();
        assert!(error.to_string().contains("MPI has ended"), "{error}");
    }
}

/// One random program.
fn program(host: &Host, world: &Comm, seed: u64, number: u64, left: &mut Leftovers, counts: &mut Counts) {
    let mut random = Random::new(seed * PROGRAMS + number);
    let own = Random::new(random.bits() ^ (world.rank() as u64 + 1) << 32);
    let (groups, works, engines) = (Vec::new(), Vec::new(), Vec::new());
    let (loads, rings) = (Vec::new(), Vec::new());
    let mut program =
        Program { host, world, groups, works, engines, loads, rings, names: 0, random, own, left, counts };
    for _ in 0..program.random.within(2, 5) {
        program.make_group();
    }
    for _ in 0..program.random.within(2, 3) {
        program.make_engines();
    }
    for _ in 0..program.random.within(3, 8) {
        match program.random.within(0, 12) {
            0 => program.make_group(),
            1 | 2 => program.make_engines(),
            3 => program.disagree(),
            4 | 5 => program.play_ring(),
            6 | 7 => program.free_group(),
            8 => program.drop_engines(),
            _ => program.play_engines(),
        }
    }
    program.end();
}

impl Program<'_> {
    fn shuffled<T>(random: &mut Random, mut list: Vec<T>) -> Vec<T> {
        (1..list.len()).for_each(|k| list.swap(k, random.within(0, k as u64) as usize));
        list
    }

    /// A node of the tree, and numbers for it that its ranks share: they depend on the size of their group, so that other groups draw
    /// others.
    fn any_node(&mut self) -> (usize, Random) {
        let node = self.random.within(0, self.groups.len() as u64 - 1) as usize;
        (node, Random::new(self.random.bits()))
    }

    /// Makes a communicator of one that is there, or of the world.
    fn make_group(&mut self) {
        let colors: Vec<Option<u32>> = (0..self.world.size())
            .map(|_| (!self.random.one_in(6)).then(|| self.random.within(0, 2) as u32))
            .collect();
        let keys: Vec<u32> = colors.iter().map(|_| self.random.within(0, 9) as u32).collect();
        let (color, key) = (colors[self.world.rank()], keys[self.world.rank()]);
        let (whole, itself) = (self.host.predefined(false), self.host.predefined(true));
        let parent = match self.groups.len() as u64 {
            nodes if nodes > 0 && !self.random.one_in(3) => Some(self.random.within(0, nodes - 1) as usize),
            _ => None,
        };
        // None where this rank has no part in it, or it is freed.
        let handle = match parent {
            Some(node) => self.groups[node].as_ref().and_then(|group| group.handle),
            None => Some(whole),
        };
        let (made, is_predefined) = match self.random.within(0, 9) {
            0 => (Some(whole), true),
            1 => (Some(itself), true),
            2 => (Some(self.host.duplicate(itself)), false),
            3 => {
                if let Some(handle) = handle {
                    self.refuse_between(handle);
                }
                (None, false)
            }
            4 | 5 => (handle.map(|handle| self.host.duplicate(handle)), false),
            _ => (handle.and_then(|handle| self.host.split(handle, color, key)), false),
        };
        let group = made.map(|handle| {
            let aside_handle = self.host.duplicate(handle);
            // SAFETY: it is freed at the end of the program, by nobody else.
            let aside = unsafe { Comm::from_raw(self.host.mpi, self.host.raw(aside_handle)) }.unwrap();
            let rank = (self.world.rank() as u64).to_ne_bytes();
            let members = aside.gather(&rank);
            let members = members.chunks_exact(8).map(|rank| u64::from_ne_bytes(rank.try_into().unwrap()));
            self.counts.groups += 1;
            Group {
                handle: Some(handle),
                is_predefined,
                members: members.map(|rank| rank as usize).collect(),
                aside,
                aside_handle,
            }
        });
        self.groups.push(group);
    }

    /// A communicator between two groups is refused on all ranks, and everything goes on.
    fn refuse_between(&mut self, handle: AnyHandle) {
        // SAFETY: nobody frees it meanwhile.
        let comm = unsafe { Comm::from_raw(self.host.mpi, self.host.raw(handle)) }.unwrap();
        let (rank, size) = (comm.rank(), comm.size());
        if size < 2 {
            return;
        }
        let side = u32::from(2 * rank >= size);
        let own = self.host.split(handle, Some(side), 0).unwrap();
        let between = self.host.between(own, handle, if side == 0 { size.div_ceil(2) } else { 0 });
        // SAFETY: refused before it is used.
        let error = unsafe { Comm::from_raw(self.host.mpi, self.host.raw(between)) }.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Mismatch && error.to_string().contains("between two groups"),
            "{error}"
        );
        self.host.free(own);
        self.host.free(between);
        self.counts.refused += 1;
    }

    /// This rank's place in a group, if it has one and there is a way to it: the host's handle, or that of an engine that is still there.
    fn place(&self, node: usize) -> Option<Place<'_>> {
        let group = self.groups[node].as_ref()?;
        let of_handle = group.handle.map(|handle| {
            // SAFETY: the host has not freed it.
            let comm = unsafe { Comm::from_raw(self.host.mpi, self.host.raw(handle)) }.unwrap();
            comm.to_communicator(DEADLINE).unwrap()
        });
        let at = || self.works.iter().position(|work| work.group == node);
        let comm = of_handle.or_else(|| at().map(|at| Arc::clone(self.engines[at].comm())))?;
        Some(Place { comm, aside: &group.aside })
    }

    /// Makes an engine or two on a group.
    fn make_engines(&mut self) {
        let (node, mut random) = self.any_node();
        let count = self.random.within(1, 2);
        let names = self.names..self.names + count;
        self.names += count;
        let Some(place) = self.place(node) else { return };
        let made: Vec<(Load, MpiEngine)> = names
            .clone()
            .map(|_| {
                let load = Load::random(&mut random, &place);
                let engine = any_engine(&mut random, &load, &place);
                (load, engine)
            })
            .collect();
        for (name, (load, engine)) in names.zip(made) {
            self.works.push(Work { name, group: node });
            self.loads.push(load);
            self.engines.push(engine);
        }
    }

    /// Runs some of the engines, all in flight at once, on whatever communicator they are; at times with a fault on one rank.
    fn play_engines(&mut self) {
        let mut chosen: Vec<u64> = (0..self.names).collect();
        chosen.retain(|_| !self.random.one_in(4));
        let fault = (self.random.one_in(3) && !chosen.is_empty()).then(|| {
            let name = chosen[self.random.within(0, chosen.len() as u64 - 1) as usize];
            let rank = self.random.within(0, self.world.size() as u64 - 1) as usize;
            (name, rank, Fate::any(&mut self.random))
        });
        // Those chosen come first, in the order of names as all are.
        let (mut works, mut engines, mut loads) = (Vec::new(), Vec::new(), Vec::new());
        for at in (0..self.works.len()).rev() {
            if chosen.contains(&self.works[at].name) {
                works.insert(0, self.works.remove(at));
                engines.insert(0, self.engines.remove(at));
                loads.insert(0, self.loads.remove(at));
            }
        }
        for ((work, engine), load) in works.iter().zip(&engines).zip(&mut loads) {
            let group = self.groups[work.group].as_ref().unwrap();
            load.fill(&Place { comm: Arc::clone(engine.comm()), aside: &group.aside }, engine.mover());
        }
        let fault = fault.and_then(|(name, rank, fate)| {
            let at = works.iter().position(|work| work.name == name)?;
            let group = self.groups[works[at].group].as_ref().unwrap();
            group.members.contains(&rank).then_some((at, rank, fate))
        });
        // Some communicators are freed, and others made, while all is in flight.
        let (frees, makes) = (self.random.one_in(3), self.random.one_in(3));
        let (world, mut own) = (self.world, self.own.clone());
        let ended = play_round(world, &mut own, &mut engines, &mut loads, fault, || {
            if frees {
                self.free_group();
            }
            if makes {
                self.make_group();
            }
        });
        self.own = own;
        for (at, ((work, mut engine), mut load)) in works.into_iter().zip(engines).zip(loads).enumerate() {
            self.counts.runs += 1;
            if ended[at] {
                load.check();
                self.counts.right += 1;
            }
            let is_faulty = fault.is_some_and(|(faulty, ..)| faulty == at);
            if !is_faulty {
                let place = self.works.partition_point(|other| other.name < work.name);
                self.works.insert(place, work);
                self.engines.insert(place, engine);
                self.loads.insert(place, load);
            } else if self.own.one_in(2) {
                drop(engine);
            } else {
                // Of a run that was forgotten the others are told by the next, which is refused.
                if fault.is_some_and(|(_, rank, _)| rank == self.world.rank()) {
                    engine.refuse(Error::new(ErrorKind::Failed, "there is no other run"));
                }
                self.left.engines.push((engine, load));
            }
        }
    }

    /// Passes items on between neighbours, on a ring that is new or not; at times one rank's part is wrong.
    fn play_ring(&mut self) {
        let (node, mut random) = self.any_node();
        let at = self.rings.iter().position(|(group, _)| *group == node);
        let known = at.map(|at| self.rings.remove(at).1);
        let Some(place) = self.place(node) else { return self.left.rings.extend(known) };
        let mut ring = match known {
            Some(ring) => ring,
            None => {
                let problem = any_ring(&mut random, place.size(), 40);
                let plan = RingPlan::solved(problem, random.within(1, 100) as usize).unwrap();
                let options = MpiRingOptions::default().with_deadline(DEADLINE);
                MpiRing::new(Arc::new(plan), &place, options).unwrap()
            }
        };
        run_once(&place, &mut ring, random.bits());
        if random.one_in(4) {
            let odd = random.within(0, place.size() as u64 - 1) as usize;
            let bytes = ring.room() * ring.plan().item_bytes();
            let is_odd = place.rank() == odd && bytes > 0;
            let outcome = ring.run(&mut vec![0_u8; bytes - usize::from(is_odd)]);
            if let Err(error) = &outcome {
                let text = error.to_string();
                assert!(text.contains("rank") || text.contains("it needs room for"), "{text}");
            }
            assert!(!is_odd || outcome.is_err(), "a part without room was taken");
        } else if random.one_in(8) {
            self.counts.rings += 1;
            self.left.rings.push(ring);
        } else {
            self.counts.rings += 1;
            self.rings.push((node, ring));
        }
    }

    /// One rank of a group gives something else: all get an error that names it.
    fn disagree(&mut self) {
        let (node, mut random) = self.any_node();
        let Some(place) = self.place(node) else { return };
        let load = Load::random(&mut random, &place);
        let odd = random.within(0, place.size() as u64 - 1) as usize;
        let is_odd = place.rank() == odd;
        let kind = random.within(0, 3);
        let mover = if is_odd && kind == 0 { Mover::Messages } else { Mover::Lockstep };
        let messages = MessagesOptions::default().with_barriers(is_odd && kind == 1);
        let options = MpiOptions::default().with_mover(mover).with_messages(messages).with_deadline(DEADLINE);
        let moves = || Ok(load.plan().arrays().iter().map(|array| array.wanted().clone()).collect());
        let made: Result<MpiEngine> = match kind {
            2 if is_odd => {
                let failed = Err(Error::new(ErrorKind::Failed, "on purpose"));
                MpiEngine::of_moves(failed, &place, options)
            }
            2 => MpiEngine::of_moves(moves(), &place, options),
            _ => MpiEngine::new(load.plan(), &place, options),
        };
        if kind == 3 || place.size() == 1 {
            drop(made);
            return;
        }
        let error = made.err().expect("ranks disagree");
        assert!(error.to_string().contains(&format!("rank {odd}")), "{kind}: {error}");
        self.counts.refused += 1;
    }

    /// The host frees a communicator; engines on it go on.
    fn free_group(&mut self) {
        let (node, _) = self.any_node();
        self.free(node);
    }

    fn free(&mut self, node: usize) {
        if let Some(group) = &mut self.groups[node]
            && !group.is_predefined
            && let Some(handle) = group.handle.take()
        {
            self.host.free(handle);
            self.counts.freed += 1;
        }
    }

    /// Drops some engines, each rank in an order of its own.
    fn drop_engines(&mut self) {
        let mut chosen: Vec<u64> = (0..self.names).collect();
        chosen.retain(|_| self.random.one_in(3));
        for name in Self::shuffled(&mut self.own, chosen) {
            self.drop_engine(name);
        }
    }

    fn drop_engine(&mut self, name: u64) {
        if let Some(at) = self.works.iter().position(|work| work.name == name) {
            self.works.remove(at);
            let (engine, load) = (self.engines.remove(at), self.loads.remove(at));
            if self.own.one_in(10) {
                self.left.engines.push((engine, load));
            } else if self.own.one_in(2) {
                drop((engine, load));
            } else {
                drop((load, engine));
            }
        }
    }

    /// Frees and drops what is left, on each rank in an order of its own, but for calls of MPI: those come in the same on all.
    fn end(mut self) {
        let keeps = self.random.one_in(8);
        let nodes = (0..self.groups.len()).collect();
        let mut nodes = Self::shuffled(&mut self.random, nodes);
        let names = self.works.iter().map(|work| work.name).collect();
        let mut names = Self::shuffled(&mut self.own, names);
        while !nodes.is_empty() || !names.is_empty() || !self.rings.is_empty() {
            match self.own.within(0, 2) {
                0 => drop(self.rings.pop()),
                1 => names.pop().into_iter().for_each(|name| self.drop_engine(name)),
                _ => {
                    let Some(node) = nodes.pop() else { continue };
                    if !keeps {
                        self.free(node);
                    }
                    if let Some(group) = self.groups[node].take()
                        && !keeps
                    {
                        drop(group.aside);
                        self.host.free(group.aside_handle);
                    }
                }
            }
        }
    }
}

impl ToCommunicator for Place<'_> {
    fn to_communicator(&self, limit: Option<Duration>) -> Result<Arc<Communicator>> {
        self.comm.to_communicator(limit)
    }
}

impl World for Place<'_> {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn mpi(&self) -> Option<&Comm> {
        Some(self.aside)
    }

    fn gather(&self, mine: &[u8]) -> Vec<u8> {
        self.aside.gather(mine)
    }

    fn reordered(&self, key: u32) -> Box<dyn World> {
        self.aside.reordered(key)
    }

    fn stop_for(&self, time: Duration) {
        self.aside.stop_for(time);
    }

    fn kill(&self) -> ! {
        self.aside.kill()
    }
}
