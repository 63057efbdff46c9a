//! What ranks of a node tell each other, in every order in which they can come: see docs/protocols.md.
//!
//! A rank is a thread here, and a word is loom's; lanes, turns, boards and lots are those of the movers. Boxes, sources and
//! destinations are cells: loom finds out if one is read or written while another may write to it. A source that is taken back
//! may be read and written at once: it is a word, and what was read must not count.

#![allow(unsafe_code)]

use super::Progress;
use super::messages::double_buffer::{BOXES, DoubleBuffer};
use super::private::queue::{BufferHandle, BufferRing, Consumer, LINE, Producer, WarmBuffers, tell_emptied};
use super::shared::groups::{GroupState, TaskGroups};
use super::shared::progress::{KEPT, ProgressBoard};
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

/// Words of all ranks, as one of them sees them.
#[derive(Clone)]
struct Sheet {
    rank: usize,
    /// For each rank, where its words are, and these.
    words: Arc<Vec<Vec<(usize, AtomicU64)>>>,
}

impl Sheet {
    /// With words at these bytes, the same for all ranks.
    fn new(ranks: usize, at: &[usize]) -> Self {
        let words = || at.iter().map(|&at| (at, AtomicU64::new(0))).collect();
        Self { rank: 0, words: Arc::new((0..ranks).map(|_| words()).collect()) }
    }

    fn of(&self, rank: usize) -> Self {
        Self { rank, words: Arc::clone(&self.words) }
    }
}

impl SharedMemory for Sheet {
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

/// A box, a source, a destination: nothing but a protocol keeps it from being read and written at once.
struct Cell(UnsafeCell<u64>);

// SAFETY: loom looks whether it is used by one at a time.
unsafe impl Sync for Cell {}
// SAFETY: a number.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn read(&self) -> u64 {
        // SAFETY: loom has looked whether anybody may write to it.
        self.0.with(|number| unsafe { *number })
    }

    fn write(&self, number: u64) {
        // SAFETY: loom has looked whether anybody else may read or write it.
        self.0.with_mut(|place| unsafe { *place = number });
    }
}

/// Every order; or, where those take longer than seconds, all with so many preemptions at most: how often a thread is
/// interrupted where it could have gone on.
fn model(preemptions: Option<usize>, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(test);
}

/// All ranks at once.
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

/// Boxes of lanes: two for each rank, one in its lane and one at hand, or only the first.
struct Room {
    sheet: Sheet,
    cells: Vec<Cell>,
}

impl Room {
    const AT: usize = LINE;

    fn new(ranks: usize) -> Self {
        // How far boxes are emptied; those filled, and the words of one place.
        let at: Vec<usize> = [0].into_iter().chain((0..5).map(|word| Self::AT + 8 * word)).collect();
        Self { sheet: Sheet::new(ranks, &at), cells: (0..2 * ranks).map(|_| Cell::new()).collect() }
    }

    fn cell(&self, spot: BufferHandle) -> &Cell {
        &self.cells[2 * spot.rank + spot.at]
    }

    /// Which cell of a rank.
    fn spot(rank: usize, at: usize) -> BufferHandle {
        BufferHandle { rank, at, room: LINE }
    }

    fn lane(sender: usize, other: usize) -> BufferRing {
        BufferRing { sender, at: Self::AT, other, room: LINE, boxes: 1 }
    }

    fn send(&self, to: &mut Producer, shelf: &mut WarmBuffers, value: u64, call: u64, until: u64) -> bool {
        let memory = self.sheet.of(to.lane.sender);
        if !to.is_free(&memory) {
            return false;
        }
        self.cell(to.choose(&memory, shelf)).write(value);
        to.pass(&memory, call, until);
        true
    }

    fn receive(
        &self,
        me: usize,
        from: &mut Consumer,
        shelf: &mut WarmBuffers,
        told: u64,
    ) -> Option<(u64, u64)> {
        let memory = self.sheet.of(me);
        if !from.is_filled(&memory) {
            return None;
        }
        let (call, value) = (from.call(&memory), self.cell(from.look(&memory)).read());
        from.give_back(&memory, shelf);
        tell_emptied(&memory, told);
        Some((call, value))
    }
}

/// Each rank sends a box to the next in every run, and all boxes wander. Who has waited too often stops: among three, two could
/// wait for ever while the third is never given a turn.
fn wander(ranks: usize, runs: u64, backoff: u32) {
    let room = Room::new(ranks);
    (0..ranks).for_each(|me| {
        let next = (me + 1) % ranks;
        Room::lane(me, next).furnish(&room.sheet, 0, Room::spot(me, 0));
    });
    together(ranks, move |me| {
        let (next, last) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        let mut to = Producer::new(Room::lane(me, next));
        let mut from = Consumer::new(Room::lane(last, last));
        let mut shelf = WarmBuffers::new([Room::spot(me, 1)].into_iter());
        let mut waited = 0;
        let value = |rank: usize, run: u64| 100 * run + rank as u64;
        for run in 1..=runs {
            let (mut sent, mut received) = (false, false);
            while !sent || !received {
                let before = (sent, received);
                sent = sent || room.send(&mut to, &mut shelf, value(me, run), run + 7, run);
                if !received && let Some(got) = room.receive(me, &mut from, &mut shelf, run) {
                    assert_eq!(got, (run + 7, value(last, run)));
                    received = true;
                }
                if before == (sent, received) {
                    if waited == backoff {
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
fn lane_of_one_box() {
    model(None, || {
        let room = Room::new(2);
        Room::lane(0, 1).furnish(&room.sheet, 0, Room::spot(0, 0));
        together(2, move |me| {
            let mut shelf = WarmBuffers::new([].into_iter());
            let mut to = Producer::new(Room::lane(0, 1));
            let mut from = Consumer::new(Room::lane(0, 0));
            for chunk in 1..=3 {
                if me == 0 {
                    while !room.send(&mut to, &mut shelf, chunk, chunk + 7, chunk) {
                        thread::yield_now();
                    }
                    continue;
                }
                let got = loop {
                    match room.receive(1, &mut from, &mut shelf, chunk) {
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
fn lanes_of_two_ranks() {
    model(Some(3), || wander(2, 3, u32::MAX));
}

#[test]
fn lanes_of_three_ranks() {
    model(Some(2), || wander(3, 2, 2));
}

#[test]
fn turns_of_two_ranks() {
    model(Some(3), || {
        let sheet = Sheet::new(2, &[0, 8, 16, 64]);
        let cells: [Cell; BOXES] = std::array::from_fn(|_| Cell::new());
        together(2, move |me| {
            let (memory, mut turns) = (sheet.of(me), DoubleBuffer::new(0, 0));
            for letter in 1..=4 {
                if me == 0 {
                    while !turns.is_free(&memory) {
                        thread::yield_now();
                    }
                    cells[turns.number()].write(letter);
                    turns.pass(&memory, letter + 7);
                    continue;
                }
                let call = loop {
                    match turns.filled(&memory) {
                        Some(call) => break call,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!((call, cells[turns.number()].read()), (letter + 7, letter));
                turns.give_back(&memory);
            }
        });
    });
}

/// Rank 0 owns, rank 1 receives, rank 2 helps if there is one: a lot of some units.
fn lots(sheet: &Sheet, me: usize, units: u64) -> TaskGroups<Sheet> {
    let lot = GroupState { number: 0, units, home: (1, 0), ranks: vec![0, 1], receivers: vec![1] };
    let board = Arc::new(ProgressBoard::within(sheet.of(me)));
    let readers = if me == 0 { vec![1] } else { vec![] };
    let readers = Arc::new(Readers::new(Arc::clone(&board), readers, None, false));
    let owners = if me == 1 { vec![0] } else { vec![] };
    TaskGroups::new(vec![lot], usize::from(me == 1), owners, board, readers)
}

/// Notes, the lot worked on, calls, and one lot's tickets.
fn board(ranks: usize) -> Sheet {
    let calls = (0..KEPT as usize).map(|run| 5 * LINE + 8 * run);
    let notes = (0..5).map(|line| line * LINE);
    // And beside the last note, who panicked.
    let notes = notes.chain([3 * LINE + 8]);
    let at: Vec<usize> = notes.chain(calls).chain([6 * LINE, 6 * LINE + 8]).collect();
    Sheet::new(ranks, &at)
}

/// A run after it has begun.
fn finish(lots: &mut TaskGroups<Sheet>, copy: impl Fn(u64)) -> reshard_plan::Result<()> {
    loop {
        if !lots.look()? {
            thread::yield_now();
            continue;
        }
        match lots.copy(|_, unit| copy(unit))? {
            Progress::Done => return Ok(()),
            Progress::Moved => {}
            Progress::Waits => thread::yield_now(),
        }
    }
}

/// Two runs; the owner writes to its source as soon as it may.
fn tickets(ranks: usize, units: u64) {
    let (sheet, source) = (board(ranks), Cell::new());
    let target: Vec<Cell> = (0..units).map(|_| Cell::new()).collect();
    together(ranks, move |me| {
        let mut lots = lots(&sheet, me, units);
        for run in 1..=2 {
            if me == 0 {
                while !lots.readers().are_through(run - 1) {
                    thread::yield_now();
                }
                source.write(run);
            }
            lots.begin(7);
            // Once each: a second would be a race, or change the value.
            finish(&mut lots, |unit| target[unit as usize].write(source.read() * 10 + unit)).unwrap();
            if me == 1 {
                (0..units).for_each(|unit| assert_eq!(target[unit as usize].read(), run * 10 + unit));
            }
        }
    });
}

#[test]
fn tickets_of_owner_and_receiver() {
    model(Some(3), || tickets(2, 2));
}

#[test]
fn tickets_with_a_helper() {
    model(Some(1), || tickets(3, 2));
}

/// The owner does not wait for who reads its source: what was read afterwards does not count.
fn take_back(ranks: usize) {
    let (sheet, source, target) = (board(ranks), AtomicU64::new(1), Cell::new());
    together(ranks, move |me| {
        let mut lots = lots(&sheet, me, 1);
        lots.begin(7);
        if me == 0 {
            // It does not help in this model: it has no time.
            ProgressBoard::within(sheet.of(0)).take_back(1);
            source.store(2, Ordering::Relaxed);
            return;
        }
        if me == 2 {
            let copied = lots.copy(|_, _| target.write(source.load(Ordering::Relaxed)));
            assert!(copied.is_ok());
            return;
        }
        if finish(&mut lots, |_| target.write(source.load(Ordering::Relaxed))).is_ok() {
            assert_eq!(target.read(), 1, "read after it was taken back, and nobody noticed");
        }
    });
}

#[test]
fn taken_back_from_its_reader() {
    model(None, || take_back(2));
}

#[test]
fn taken_back_from_a_helper() {
    model(Some(3), || take_back(3));
}

/// The receiver gives up while another copies for it: when that is back, nobody writes to its destination or reads the source.
#[test]
fn given_up_while_another_copies() {
    model(Some(4), || {
        let (sheet, source) = (board(3), Cell::new());
        let target: [Cell; 2] = std::array::from_fn(|_| Cell::new());
        together(3, move |me| {
            let mut lots = lots(&sheet, me, 2);
            let copy = |unit| target[unit as usize].write(source.read());
            if me == 0 {
                source.write(1);
                lots.begin(7);
                if lots.readers().are_through(1) {
                    source.write(2);
                }
                return;
            }
            lots.begin(7);
            if me == 2 {
                let copied = [lots.copy(|_, unit| copy(unit)), lots.copy(|_, unit| copy(unit))];
                assert!(copied.iter().all(Result::is_ok));
                return;
            }
            let taken = lots.close();
            if !lots.are_back(&taken) {
                return;
            }
            target.iter().for_each(|target| target.write(3));
            lots.leave();
        });
    });
}

/// An owner that runs ahead as far as it may, and was called otherwise at first, is found out.
#[test]
fn called_otherwise_and_gone_on() {
    model(None, || {
        let (sheet, source) = (board(2), Cell::new());
        together(2, move |me| {
            let mut lots = lots(&sheet, me, 1);
            if me == 0 {
                for run in 1..=KEPT + 1 {
                    lots.begin(if run == 1 { 8 } else { 7 });
                    // It receives nothing: it has ended when it has begun.
                    while !lots.look().unwrap() {
                        thread::yield_now();
                    }
                }
                return;
            }
            lots.begin(7);
            let outcome = finish(&mut lots, |_| assert_eq!(source.read(), 0));
            assert!(outcome.is_err(), "not found out");
            lots.close();
            lots.leave();
        });
    });
}

/// Leaves out one ordering after the other, and sees that model fail which docs/protocols.md names.
#[test]
fn every_ordering_is_needed() {
    let program = std::env::current_exe().unwrap();
    let table = include_str!("../../../../docs/protocols.md");
    for tie in OrderingSite::ALL {
        let name = format!("{tie:?}");
        let row = table.lines().find(|line| line.starts_with(&format!("| `{name}` | `{:?}` |", tie.order())));
        let row = row.unwrap_or_else(|| panic!("docs/protocols.md has no row for {name}"));
        let model = row.split('`').nth(5).unwrap();
        let model = format!("{}::{model}", module_path!().split_once("::").unwrap().1);
        let run = Command::new(&program)
            .args(["--exact", &model])
            .env(OrderingSite::LEFT_OUT, &name)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(said.contains(&format!("test {model} ... FAILED")), "without {name}, {model}: {said}");
        // Not because it became too long.
        assert!(!said.contains("maximum number of branches"), "{name}: {said}");
    }
}
