//! Loom models: what ranks of a node tell each other, in every interleaving. See docs/protocols.md.
//!
//! A rank is a thread here, and a word is loom's; buffer rings, double buffers, offers, rounds, boards and task groups are those of the
//! movers. Buffers, sources and destinations are cells: loom reports one that is read or written while another thread may
//! write to it. A source that is revoked may be read and written at once: it is a word, and what was read then must not
//! count.

#![allow(unsafe_code)]

use super::Progress;
use super::cma::offers::{Offer, Offers};
use super::gather::{Given, Rounds};
use super::messages::double_buffer::{BUFFERS_PER_PAIR, DoubleBuffer};
use super::private::queue::{
    BufferHandle, BufferRing, Consumer, LINE, Producer, WarmBuffers, publish_emptied,
};
use super::shared::groups::{GroupState, TaskGroups};
use super::shared::progress::{CALL_HISTORY, ProgressBoard};
use super::shared::readers::Readers;
use super::word::{OrderingSite, SharedMemory, Word};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, number: u64, order: Ordering) {
        self.store(number, order);
    }

    fn fetch_max(&self, number: u64, order: Ordering) -> u64 {
        self.fetch_max(number, order)
    }

    fn fetch_add(&self, number: u64, order: Ordering) -> u64 {
        self.fetch_add(number, order)
    }

    fn replace(&self, seen: u64, number: u64) -> Result<u64, u64> {
        self.compare_exchange_weak(seen, number, Ordering::Relaxed, Ordering::Relaxed)
    }

    fn fence(order: Ordering) {
        if order != Ordering::Relaxed {
            fence(order);
        }
    }
}

/// The words of all ranks, as one of them sees them.
#[derive(Clone)]
struct ModelMemory {
    rank: usize,
    /// For each rank, the byte offsets of its words, and the words.
    words: Arc<Vec<Vec<(usize, AtomicU64)>>>,
}

impl ModelMemory {
    /// Memory with words at these byte offsets, equal on all ranks.
    fn new(ranks: usize, at: &[usize]) -> Self {
        let words = || at.iter().map(|&at| (at, AtomicU64::new(0))).collect();
        Self { rank: 0, words: Arc::new((0..ranks).map(|_| words()).collect()) }
    }

    fn of(&self, rank: usize) -> Self {
        Self { rank, words: Arc::clone(&self.words) }
    }
}

impl SharedMemory for ModelMemory {
    type Word = AtomicU64;

    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.words.len()
    }

    fn word(&self, rank: usize, at: usize) -> &AtomicU64 {
        let found = self.words[rank].iter().find(|word| word.0 == at);
        &found.unwrap_or_else(|| panic!("no word at {at}")).1
    }
}

/// A buffer, a source or a destination: only the protocol prevents a data race on it.
struct Cell(UnsafeCell<u64>);

// SAFETY: loom checks that it is used by one thread at a time.
unsafe impl Sync for Cell {}
// SAFETY: a number.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn read(&self) -> u64 {
        // SAFETY: loom checks that no thread may write to it meanwhile.
        self.0.with(|number| unsafe { *number })
    }

    fn write(&self, number: u64) {
        // SAFETY: loom checks that no other thread may read or write it meanwhile.
        self.0.with_mut(|place| unsafe { *place = number });
    }
}

/// Tries every interleaving of `test`; or, where that takes longer than seconds, all with at most this many preemptions
/// (a thread interrupted where it could have gone on).
fn model(preemptions: Option<usize>, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(test);
}

/// Runs all ranks concurrently.
fn together(ranks: usize, play: impl Fn(usize) + Send + Sync + 'static) {
    let play = Arc::new(play);
    let others: Vec<_> = (1..ranks)
        .map(|rank| {
            let play = Arc::clone(&play);
            thread::spawn(move || play(rank))
        })
        .collect();
    play(0);
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// Buffers for rings of one entry: two for each rank, one in its ring and one spare, or only the first.
struct RingModel {
    memory: ModelMemory,
    cells: Vec<Cell>,
}

impl RingModel {
    /// Offset of every ring's header.
    const AT: usize = LINE;

    fn new(ranks: usize) -> Self {
        // The counter of emptied buffers; the counter of filled ones, and the words of one entry.
        let at: Vec<usize> = [0].into_iter().chain((0..5).map(|word| Self::AT + 8 * word)).collect();
        Self { memory: ModelMemory::new(ranks, &at), cells: (0..2 * ranks).map(|_| Cell::new()).collect() }
    }

    fn cell(&self, buffer: BufferHandle) -> &Cell {
        &self.cells[2 * buffer.rank + buffer.at]
    }

    /// The handle of cell `at` of a rank.
    fn buffer(rank: usize, at: usize) -> BufferHandle {
        BufferHandle { rank, at, bytes: LINE }
    }

    fn ring(sender: usize, peer: usize) -> BufferRing {
        BufferRing { sender, at: Self::AT, peer, min_bytes: LINE, entries: 1 }
    }

    fn send(&self, to: &mut Producer, warm: &mut WarmBuffers, value: u64, call: u64, free_at: u64) -> bool {
        let memory = self.memory.of(to.ring.sender);
        if !to.is_free(&memory) {
            return false;
        }
        self.cell(to.choose(&memory, warm)).write(value);
        to.push(&memory, call, free_at);
        true
    }

    fn receive(
        &self,
        me: usize,
        from: &mut Consumer,
        warm: &mut WarmBuffers,
        emptied: u64,
    ) -> Option<(u64, u64)> {
        let memory = self.memory.of(me);
        if !from.is_filled(&memory) {
            return None;
        }
        let (call, value) = (from.call(&memory), self.cell(from.peek(&memory)).read());
        from.pop(&memory, warm);
        publish_emptied(&memory, emptied);
        Some((call, value))
    }
}

/// Each rank sends a buffer to the next in every run, and all buffers migrate. A rank that has waited `max_waits` times
/// stops: among three, two could wait for ever while the third is never scheduled.
fn migrate(ranks: usize, runs: u64, max_waits: u32) {
    let model = RingModel::new(ranks);
    (0..ranks).for_each(|me| {
        let next = (me + 1) % ranks;
        RingModel::ring(me, next).init_entry(&model.memory, 0, RingModel::buffer(me, 0));
    });
    together(ranks, move |me| {
        let (next, last) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        let mut to = Producer::new(RingModel::ring(me, next));
        let mut from = Consumer::new(RingModel::ring(last, last));
        let mut warm = WarmBuffers::new([RingModel::buffer(me, 1)].into_iter());
        let mut waited = 0;
        let value = |rank: usize, run: u64| 100 * run + rank as u64;
        for run in 1..=runs {
            let (mut sent, mut received) = (false, false);
            while !sent || !received {
                let before = (sent, received);
                sent = sent || model.send(&mut to, &mut warm, value(me, run), run + 7, run);
                if !received && let Some(got) = model.receive(me, &mut from, &mut warm, run) {
                    assert_eq!(got, (run + 7, value(last, run)));
                    received = true;
                }
                if before == (sent, received) {
                    if waited == max_waits {
                        return;
                    }
                    waited += 1;
                    thread::yield_now();
                }
            }
        }
    });
}

#[test]
fn ring_of_one_buffer() {
    model(None, || {
        let model = RingModel::new(2);
        RingModel::ring(0, 1).init_entry(&model.memory, 0, RingModel::buffer(0, 0));
        together(2, move |me| {
            let mut warm = WarmBuffers::new([].into_iter());
            let mut to = Producer::new(RingModel::ring(0, 1));
            let mut from = Consumer::new(RingModel::ring(0, 0));
            for chunk in 1..=3 {
                if me == 0 {
                    while !model.send(&mut to, &mut warm, chunk, chunk + 7, chunk) {
                        thread::yield_now();
                    }
                    continue;
                }
                let got = loop {
                    match model.receive(1, &mut from, &mut warm, chunk) {
                        Some(got) => break got,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(got, (chunk + 7, chunk));
            }
        });
    });
}

#[test]
fn rings_of_two_ranks() {
    model(Some(3), || migrate(2, 3, u32::MAX));
}

#[test]
fn rings_of_three_ranks() {
    model(Some(2), || migrate(3, 2, 2));
}

#[test]
fn double_buffer_of_two_ranks() {
    model(Some(3), || {
        let memory = ModelMemory::new(2, &[0, 8, 16, 64]);
        let cells: [Cell; BUFFERS_PER_PAIR] = std::array::from_fn(|_| Cell::new());
        together(2, move |me| {
            let (memory, mut queue) = (memory.of(me), DoubleBuffer::new(0, 0));
            for fragment in 1..=4 {
                if me == 0 {
                    while !queue.is_free(&memory) {
                        thread::yield_now();
                    }
                    cells[queue.number()].write(fragment);
                    queue.push(&memory, fragment + 7);
                    continue;
                }
                let call = loop {
                    match queue.filled(&memory) {
                        Some(call) => break call,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!((call, cells[queue.number()].read()), (fragment + 7, fragment));
                queue.pop(&memory);
            }
        });
    });
}

/// Rank 0 owns, rank 1 receives, rank 2 helps if there is one: a group of some tasks.
fn groups(memory: &ModelMemory, me: usize, tasks: u64) -> TaskGroups<ModelMemory> {
    let group = GroupState { number: 0, tasks, home: (1, 0), ranks: vec![0, 1], receivers: vec![1] };
    let board = Arc::new(ProgressBoard::within(memory.of(me)));
    let readers = if me == 0 { vec![1] } else { vec![] };
    let readers = Arc::new(Readers::new(Arc::clone(&board), readers, None, false));
    let owners = if me == 1 { vec![0] } else { vec![] };
    TaskGroups::new(vec![group], usize::from(me == 1), owners, board, readers)
}

/// The words of a board: milestones, the group worked on, call fingerprints, and one task counter.
fn board_words(ranks: usize) -> ModelMemory {
    let calls = (0..CALL_HISTORY as usize).map(|run| 5 * LINE + 8 * run);
    let milestones = (0..5).map(|line| line * LINE);
    // Beside the last milestone, the group over which the rank panicked.
    let milestones = milestones.chain([3 * LINE + 8]);
    let at: Vec<usize> = milestones.chain(calls).chain([6 * LINE, 6 * LINE + 8]).collect();
    ModelMemory::new(ranks, &at)
}

/// Finishes a run that has begun.
fn finish(groups: &mut TaskGroups<ModelMemory>, copy: impl Fn(u64)) -> reshard_plan::Result<()> {
    loop {
        if !groups.poll()? {
            thread::yield_now();
            continue;
        }
        match groups.copy(|_, task| copy(task))? {
            Progress::Done => return Ok(()),
            Progress::Moved => {}
            Progress::Waits => thread::yield_now(),
        }
    }
}

/// The words of an owner and its readers, for one array.
fn offer_words(ranks: usize) -> ModelMemory {
    let words: Vec<usize> = (0..Offers::<ModelMemory>::bytes(1)).step_by(8).collect();
    ModelMemory::new(ranks, &words)
}

/// Waits for the owner's offer.
fn wait_for_offer(offers: &Offers<ModelMemory>, run: u64) {
    while offers.offer_of(0, run) != Offer::Open {
        thread::yield_now();
    }
}

/// Three rounds of a gather: slots are used again in the third.
#[test]
fn rounds_of_two_ranks() {
    model(Some(3), || {
        let memory = ModelMemory::new(2, &[0, LINE]);
        let slots: [[Cell; 2]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| Cell::new()));
        together(2, move |me| {
            let mut rounds = Rounds::new(memory.of(me));
            for round in 1..=3 {
                slots[me][rounds.next_slot()].write(10 * round + me as u64);
                rounds.give();
                while rounds.given(1 - me) != Given::Yes {
                    thread::yield_now();
                }
                assert_eq!(slots[1 - me][rounds.slot()].read(), 10 * round + 1 - me as u64);
            }
        });
    });
}

/// A rank that closes has given what it has given, and nothing more.
#[test]
fn closed_after_a_round() {
    model(None, || {
        let memory = ModelMemory::new(2, &[0, LINE]);
        let slot = Cell::new();
        together(2, move |me| {
            let mut rounds = Rounds::new(memory.of(me));
            if me == 0 {
                slot.write(5);
                rounds.give();
                rounds.drop_it();
                return;
            }
            rounds.give();
            match rounds.given(0) {
                Given::Yes => assert_eq!(slot.read(), 5),
                Given::NotYet => {}
                Given::Closed { .. } => panic!("it has given before"),
            }
        });
    });
}

/// Two runs, in which one rank reads the source of another, which writes to it as soon as its run is over.
#[test]
fn source_offered_and_read() {
    model(Some(3), || {
        let (memory, source) = (offer_words(2), Cell::new());
        together(2, move |me| {
            let offers = Offers::new(memory.of(me));
            for run in 1..=2 {
                if me == 0 {
                    source.write(run);
                    offers.offer(run, std::iter::once(100 + run));
                    while !offers.has_read(1, run) {
                        thread::yield_now();
                    }
                    offers.confirm(run);
                } else {
                    wait_for_offer(&offers, run);
                    assert_eq!((offers.address(0, 0), source.read()), (100 + run, run));
                    offers.publish_read(run);
                    while !offers.is_confirmed(0, run) {
                        thread::yield_now();
                    }
                }
            }
        });
    });
}

/// The owner gives up, and writes to its source: what is read then does not count, as nobody confirms it.
#[test]
fn source_offered_and_withdrawn() {
    model(None, || {
        let (memory, source) = (offer_words(2), AtomicU64::new(1));
        together(2, move |me| {
            let offers = Offers::new(memory.of(me));
            if me == 0 {
                offers.offer(1, std::iter::once(0));
                if offers.has_read(1, 1) {
                    offers.confirm(1);
                }
                source.store(2, Ordering::Relaxed);
                return;
            }
            wait_for_offer(&offers, 1);
            let read = source.load(Ordering::Relaxed);
            offers.publish_read(1);
            assert!(
                !offers.is_confirmed(0, 1) || read == 1,
                "read after the owner had given up, and confirmed"
            );
        });
    });
}

/// One of two readers cannot read: nobody finds that all have read, whenever it looks. Where both can, nobody finds anything else, and what
/// was read counts: the owner's source changes only when it has found that.
#[test]
fn source_unreadable_for_one() {
    for refused in [true, false] {
        model(Some(3), move || {
            let (memory, source) = (offer_words(3), AtomicU64::new(1));
            together(3, move |me| {
                let offers = Offers::new(memory.of(me));
                let mut read = 1;
                if me == 0 {
                    offers.offer(1, std::iter::once(0));
                    offers.publish_read(1);
                } else if me == 1 && refused {
                    offers.publish_unreadable(1);
                } else if offers.offer_of(0, 1) == Offer::Open {
                    read = source.load(Ordering::Relaxed);
                    offers.publish_read(1);
                }
                let all_read = (0..3).all(|rank| offers.has_read(rank, 1));
                let gives_up = (0..3).any(|rank| offers.is_unreadable(rank, 1));
                assert!(if refused { !all_read } else { !gives_up }, "ranks find different ends");
                if me == 0 && all_read {
                    source.store(2, Ordering::Relaxed);
                }
                assert!(read == 1, "read after the run of the owner was over");
            });
        });
    }
}

/// Two runs; the owner writes to its source as soon as it may.
fn tasks(ranks: usize, tasks: u64) {
    let (memory, source) = (board_words(ranks), Cell::new());
    let target: Vec<Cell> = (0..tasks).map(|_| Cell::new()).collect();
    together(ranks, move |me| {
        let mut groups = groups(&memory, me, tasks);
        for run in 1..=2 {
            if me == 0 {
                while !groups.readers().are_done(run - 1) {
                    thread::yield_now();
                }
                source.write(run);
            }
            groups.begin(7);
            // Each task once: a second copy would be a race, or change the value.
            finish(&mut groups, |task| target[task as usize].write(source.read() * 10 + task)).unwrap();
            if me == 1 {
                (0..tasks).for_each(|task| assert_eq!(target[task as usize].read(), run * 10 + task));
            }
        }
    });
}

#[test]
fn tasks_of_owner_and_receiver() {
    model(Some(3), || tasks(2, 2));
}

#[test]
fn tasks_with_a_helper() {
    model(Some(1), || tasks(3, 2));
}

/// The owner revokes its source instead of waiting for readers: what is read after that must not count.
fn revoke(ranks: usize) {
    let (memory, source, target) = (board_words(ranks), AtomicU64::new(1), Cell::new());
    together(ranks, move |me| {
        let mut groups = groups(&memory, me, 1);
        groups.begin(7);
        if me == 0 {
            // It copies nothing in this model.
            ProgressBoard::within(memory.of(0)).revoke(1);
            source.store(2, Ordering::Relaxed);
            return;
        }
        if me == 2 {
            let copied = groups.copy(|_, _| target.write(source.load(Ordering::Relaxed)));
            assert!(copied.is_ok());
            return;
        }
        if finish(&mut groups, |_| target.write(source.load(Ordering::Relaxed))).is_ok() {
            assert_eq!(target.read(), 1, "read after it was revoked, and nobody noticed");
        }
    });
}

#[test]
fn revoked_from_its_reader() {
    model(None, || revoke(2));
}

#[test]
fn revoked_from_a_helper() {
    model(Some(3), || revoke(3));
}

/// The receiver aborts while another rank copies for it: once the taken tasks are copied, nobody writes to its destination
/// or reads the source.
#[test]
fn aborted_while_another_copies() {
    model(Some(4), || {
        let (memory, source) = (board_words(3), Cell::new());
        let target: [Cell; 2] = std::array::from_fn(|_| Cell::new());
        together(3, move |me| {
            let mut groups = groups(&memory, me, 2);
            let copy = |task| target[task as usize].write(source.read());
            if me == 0 {
                source.write(1);
                groups.begin(7);
                if groups.readers().are_done(1) {
                    source.write(2);
                }
                return;
            }
            groups.begin(7);
            if me == 2 {
                let copied = [groups.copy(|_, task| copy(task)), groups.copy(|_, task| copy(task))];
                assert!(copied.iter().all(Result::is_ok));
                return;
            }
            let counts = groups.close();
            if !groups.taken_copied(&counts) {
                return;
            }
            target.iter().for_each(|target| target.write(3));
            groups.leave();
        });
    });
}

/// An owner that runs ahead as far as it may, after a first run with another call, is detected.
#[test]
fn other_call_and_gone_on() {
    model(None, || {
        let (memory, source) = (board_words(2), Cell::new());
        together(2, move |me| {
            let mut groups = groups(&memory, me, 1);
            if me == 0 {
                for run in 1..=CALL_HISTORY + 1 {
                    groups.begin(if run == 1 { 8 } else { 7 });
                    // It receives nothing: its run ends as soon as it has begun.
                    while !groups.poll().unwrap() {
                        thread::yield_now();
                    }
                }
                return;
            }
            groups.begin(7);
            let outcome = finish(&mut groups, |_| assert_eq!(source.read(), 0));
            assert!(outcome.is_err(), "not detected");
            groups.close();
            groups.leave();
        });
    });
}

/// Relaxes one ordering after the other, and checks that the model which docs/protocols.md names then fails.
#[test]
fn every_ordering_is_needed() {
    let program = std::env::current_exe().unwrap();
    let table = include_str!("../../../../docs/protocols.md");
    for site in OrderingSite::ALL {
        let name = format!("{site:?}");
        let row =
            table.lines().find(|line| line.starts_with(&format!("| `{name}` | `{:?}` |", site.order())));
        let row = row.unwrap_or_else(|| panic!("docs/protocols.md has no row for {name}"));
        let model = row.split('`').nth(5).unwrap();
        let model = format!("{}::{model}", module_path!().split_once("::").unwrap().1);
        let run = Command::new(&program)
            .args(["--exact", &model])
            .env(OrderingSite::RELAX_VARIABLE, &name)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(said.contains(&format!("test {model} ... FAILED")), "without {name}, {model}: {said}");
        // The model must not fail because it became too long.
        assert!(!said.contains("maximum number of branches"), "{name}: {said}");
    }
}
