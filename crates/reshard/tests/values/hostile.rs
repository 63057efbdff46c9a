//! Safe calls with wrong arguments: each panics or fails, and none accesses memory it must not.
//!
//! [`docs/soundness.md`](../../../../docs/soundness.md) says for each public function why. Parts lie between canaries, and an
//! array that was not entered again must not be reachable, whatever was entered before.

use super::arrays::{layout, plan_of};
use num_complex::Complex;
use reshard::engine::{BufferTable, Buffers, Engine, Entered, Messages, MessagesOptions, Scaling, Threads};
use reshard::rank::{self, Cursor, MessageRange, Program, RankPacker, messages, staged_copy};
use reshard::{ErrorKind, MemoryOrder, Move, Plan, Redistribution};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Two ranks, both source and destination: each keeps some elements and sends some.
fn plan() -> Arc<Plan> {
    let (from, to) =
        (layout("2/8 of 64", MemoryOrder::ColMajor), layout("2/12 of 64", MemoryOrder::ColMajor));
    plan_of(&Move::of::<f64>(from, to).unwrap())
}

/// Elements of rank 0: of its source part and of its destination part.
const PARTS: (usize, usize) = (32, 36);

fn packer(plan: &Arc<Plan>, rank: u64) -> (RankPacker, Program) {
    messages(plan, rank, &MessagesOptions::default(), 1 << 10).unwrap()
}

#[track_caller]
fn refuses(what: &str, call: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{what} must be refused");
}

/// Tries all calls that one rank can make with some data: all are refused.
#[track_caller]
fn everything_is_refused(plan: &Arc<Plan>, data: &mut Buffers<'_>, rank: u64) {
    let (mut packer, program) = packer(plan, rank);
    let mut fragment = vec![7; packer.fragment_bytes()];
    for range in &program.sends {
        refuses("packing", || {
            let mut cursor = packer.open(data, range);
            packer.pack(data, range, &mut cursor, &mut fragment);
        });
    }
    for range in &program.receives {
        refuses("unpacking", || {
            let mut cursor = packer.open(data, range);
            packer.unpack(data, range, &mut cursor, &fragment);
        });
    }
    refuses("local work", || _ = packer.copy_local(data));
    let mut staged = staged_copy(plan, rank, 100, None).unwrap();
    let room = staged.outgoing().iter().map(|outgoing| outgoing.max_bytes).max().unwrap();
    let mut room = vec![7; room];
    for outgoing in 0..staged.outgoing().len() {
        let chunk = staged.next_chunk(outgoing, 0);
        refuses("packing a buffer", || _ = staged.pack(data, outgoing, chunk, &mut room));
    }
    for group in 0..staged.groups().len() {
        let chunk = staged.next_chunk(staged.groups()[group].members[0], 0);
        let mut rooms: Vec<Vec<u8>> = staged.groups()[group].members.iter().map(|_| room.clone()).collect();
        let mut rooms = rooms.iter_mut();
        refuses("packing a group", || {
            staged.pack_group(data, group, chunk, false, |_| rooms.next().unwrap());
        });
    }
    for chunk in 0..staged.chunks() {
        refuses("assembling", || staged.assemble(data, chunk, |_| &room));
    }
    assert!(fragment.iter().chain(&room).all(|&byte| byte == 7), "nothing was written");
}

/// Entries of the last run are cleared: their memory may have been freed.
#[test]
fn parts_of_an_earlier_run() {
    let plan = plan();
    let mut table = BufferTable::new(Arc::clone(&plan));
    {
        let (from, mut to) = (vec![1.0; PARTS.0], vec![0.0; PARTS.1]);
        let mut data = table.fill();
        data.enter_own(0, 0, &from, &mut to, None).unwrap();
        assert!(packer(&plan, 0).0.copy_local(&mut data), "this succeeds");
    }
    everything_is_refused(&plan, &mut table.fill(), 0);
}

/// An array entered for another rank, or for a rank that has nothing.
#[test]
fn parts_of_another_rank() {
    let plan = plan();
    for other in [1, 99] {
        let mut table = BufferTable::new(Arc::clone(&plan));
        let (from, mut to) = (vec![1.0; PARTS.0], vec![0.0; PARTS.1]);
        let mut data = table.fill();
        data.enter_own(0, other, &from, &mut to, None).unwrap();
        everything_is_refused(&plan, &mut data, 0);
        assert!(to.iter().all(|&value| value == 0.0));
    }
}

#[test]
fn data_of_another_plan() {
    let (one, other) = (plan(), plan());
    let mut table = BufferTable::new(Arc::clone(&other));
    let (from, mut to) = (vec![1.0; PARTS.0], vec![0.0; PARTS.1]);
    let mut data = table.fill();
    data.enter_own(0, 0, &from, &mut to, None).unwrap();
    everything_is_refused(&one, &mut data, 0);
    let (mut packer, program) = packer(&one, 0);
    refuses("beginning", || packer.begin(&data));
    refuses("opening", || _ = packer.open(&data, &program.sends[0]));
    refuses("counting", || _ = packer.fragment_count(&data, &program.sends[0]));
}

/// An engine for all ranks refuses the parts of one.
#[test]
fn one_rank_for_engines_of_all() {
    let plan = plan();
    let engines: [Box<dyn Engine>; 2] = [
        Box::new(Threads::new(Arc::clone(&plan), Some(2)).unwrap()),
        Box::new(Messages::new(Arc::clone(&plan), MessagesOptions::default()).unwrap()),
    ];
    for mut engine in engines {
        for rank in [0, 1, 99] {
            let mut table = BufferTable::new(Arc::clone(&plan));
            let (from, mut to) = (vec![1.0; 64], vec![0.0; 64]);
            let mut data = table.fill();
            data.enter_own(0, rank, &from, &mut to, None).unwrap();
            let error = engine.run(&mut data).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            assert!(error.to_string().contains(&format!("rank {rank}")), "{error}");
            assert!(to.iter().all(|&value| value == 0.0), "nothing is written");
        }
    }
}

/// After an entry that failed, the array counts as not entered.
#[test]
fn an_array_whose_second_entry_failed() {
    let plan = plan();
    let mut engine = Threads::new(Arc::clone(&plan), Some(1)).unwrap();
    let mut table = BufferTable::new(Arc::clone(&plan));
    let (from, mut to) = (vec![vec![1.0; 64]; 2], vec![vec![0.0; 64]; 2]);
    let (short, mut empty) = (vec![1.0; 64], vec![]);
    let mut data = table.fill();
    data.enter(0, &from, &mut to, None).unwrap();
    data.enter_own(0, 0, &short, &mut empty, None).unwrap_err();
    assert_eq!(engine.run(&mut data).unwrap_err().kind(), ErrorKind::Mismatch);
    refuses("a part of it", || _ = data.source(0, 0));
}

fn wrong_type<T: reshard::Number, U: bytemuck::Pod>(alpha: T, value: U) {
    let (from, to) =
        (layout("2/8 of 64", MemoryOrder::ColMajor), layout("2/12 of 64", MemoryOrder::ColMajor));
    let moving = Move::of::<f64>(from, to).unwrap().of_bytes(size_of::<U>() as u64).unwrap();
    let plan = plan_of(&moving);
    let scaling = Scaling::new(alpha, alpha, false);
    assert!(scaling.is_some());
    let (from, mut to) = (vec![vec![value; 64]; 2], vec![vec![value; 64]; 2]);
    let mut table = BufferTable::new(plan);
    let error = table.fill().enter(0, &from, &mut to, scaling).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let words = ["scaling", std::any::type_name::<T>(), std::any::type_name::<U>()];
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    let (from, mut to) = (vec![value; 64], vec![value; 64]);
    let again = table.fill().enter_own(0, 0, &from, &mut to, scaling).unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
}

#[test]
fn a_scaling_of_another_type() {
    wrong_type(Complex::new(2.0_f64, 1.0), 1.0_f32);
    wrong_type(2.0_f64, 1.0_f32);
    wrong_type(2.0_f32, 1.0_f64);
    wrong_type(2.0_f64, Complex::new(1.0_f32, 0.0));
    wrong_type(2.0_f64, 1_u64);
    wrong_type(2.0_f32, [0_u8; 3]);
}

#[test]
fn parts_that_are_not_here_are_empty() {
    let mut table = BufferTable::new(plan());
    let (from, mut to) = (vec![1.0; PARTS.0], vec![0.0; PARTS.1]);
    let mut data = table.fill();
    data.enter_own(0, 0, &from, &mut to, None).unwrap();
    assert_eq!((data.source(0, 0).len(), data.source(0, 1)), (PARTS.0 * 8, &[][..]));
    assert_eq!(data.target(0, 1), &[]);
    refuses("a third source", || _ = data.source(0, 2));
    refuses("a third destination", || _ = data.target(0, 2));
    refuses("a second array", || _ = data.source(1, 0));
}

/// Any message, positions and cursor, right or wrong: bytes are written only to the fragment and the rank's own parts.
#[test]
fn ranges_and_cursors_of_others() {
    let plan = plan();
    let mut table = BufferTable::new(Arc::clone(&plan));
    let from: Vec<f64> = (0..PARTS.0).map(|at| 1.0 + at as f64).collect();
    let mut room = vec![-1.0; PARTS.1 + 16];
    let mut fragment = [0xa5_u8; 16 * 8 + 64];
    for number in 0..4_u64 {
        let (mut packer, program) = packer(&plan, number % 2);
        let mut data = table.fill();
        let to = &mut room[8..8 + PARTS.1];
        data.enter_own(0, number % 2, &from, to, None).unwrap();
        let mut cursors = vec![Cursor::default()];
        let mut ranges: Vec<MessageRange> = program.sends.iter().chain(&program.receives).cloned().collect();
        for message in [0, 1, 2, usize::MAX] {
            for (start, end) in [(0, 1), (0, 0), (5, 3), (3, 500), (0, u64::MAX), (u64::MAX, u64::MAX)] {
                ranges.push(MessageRange { message, positions: start..end });
            }
        }
        for range in &ranges {
            let opened = catch_unwind(AssertUnwindSafe(|| packer.open(&data, range)));
            cursors.extend(opened.ok());
            _ = catch_unwind(AssertUnwindSafe(|| packer.ends(range)));
            _ = catch_unwind(AssertUnwindSafe(|| packer.bytes(range)));
        }
        for range in &ranges {
            for &cursor in &cursors {
                for len in [0, 1, 7, 8, 9, 100, 128] {
                    let mut at = cursor;
                    let packed = catch_unwind(AssertUnwindSafe(|| {
                        packer.pack(&data, range, &mut at, &mut fragment[32..32 + len])
                    }));
                    assert!(packed.is_err() || packed.is_ok_and(|bytes| bytes <= len));
                    let mut at = cursor;
                    let unpacked = catch_unwind(AssertUnwindSafe(|| {
                        packer.unpack(&mut data, range, &mut at, &fragment[32..32 + len])
                    }));
                    assert!(unpacked.is_err() || unpacked.is_ok_and(|bytes| bytes <= len));
                }
            }
        }
        assert!(
            fragment[..32].iter().chain(&fragment[160..]).all(|&byte| byte == 0xa5),
            "beside the fragment"
        );
        assert!(room[..8].iter().chain(&room[8 + PARTS.1..]).all(|&value| value == -1.0), "beside the part");
    }
}

/// Chunks, receivers and groups that do not exist, and buffers too short by a byte.
#[test]
fn chunks_and_buffers_that_do_not_fit() {
    let plan = plan();
    let mut staged = staged_copy(&plan, 0, 100, None).unwrap();
    let mut table = BufferTable::new(Arc::clone(&plan));
    let (from, mut to) = (vec![1.0; PARTS.0], vec![-1.0; PARTS.1]);
    let mut data = table.fill();
    data.enter_own(0, 0, &from, &mut to, None).unwrap();
    let numbers = |count: usize| [count, count + 1, usize::MAX - 1, usize::MAX];
    for outgoing in 0..staged.outgoing().len() {
        let chunk = staged.next_chunk(outgoing, 0);
        let mut room = vec![0; staged.outgoing()[outgoing].max_bytes];
        let bytes = staged.pack(&data, outgoing, chunk, &mut room);
        assert!(bytes > 0);
        refuses("a short buffer", || _ = staged.pack(&data, outgoing, chunk, &mut room[..bytes - 1]));
        for chunk in numbers(staged.outgoing()[outgoing].chunks) {
            assert_eq!(staged.next_chunk(outgoing, chunk), chunk);
            assert_eq!(staged.pack(&data, outgoing, chunk, &mut room), 0, "there is nothing to pack");
        }
    }
    for outgoing in numbers(staged.outgoing().len()) {
        refuses("a receiver there is not", || _ = staged.pack(&data, outgoing, 0, &mut []));
        refuses("its chunks", || _ = staged.next_chunk(outgoing, 0));
    }
    for group in numbers(staged.groups().len()) {
        refuses("a group there is not", || staged.pack_group(&mut data, group, 0, false, |_| &mut []));
        refuses("whether it keeps", || _ = staged.keeps(&data, group, 0));
    }
    for chunk in numbers(staged.chunks()) {
        refuses("a chunk there is not", || staged.assemble(&mut data, chunk, |_| &[]));
        refuses("what it needs", || _ = staged.needs(chunk).count());
    }
    for chunk in
        (0..staged.chunks()).filter(|&chunk| staged.needs(chunk).next().is_some()).collect::<Vec<_>>()
    {
        refuses("an empty buffer", || staged.assemble(&mut data, chunk, |_| &[]));
        refuses("a buffer of a byte", || staged.assemble(&mut data, chunk, |_| &[1]));
    }
    assert!(to.iter().all(|&value| value == -1.0), "nothing was written");
}

/// A chunk may be kept only if `keeps` is true for it.
#[test]
fn keeping_what_cannot_be_kept() {
    let plan = plan();
    let mut staged = staged_copy(&plan, 0, 100, None).unwrap();
    let mut table = BufferTable::new(Arc::clone(&plan));
    let (from, mut to) = (vec![1.0; PARTS.0], vec![-1.0; PARTS.1]);
    let mut data = table.fill();
    data.enter_own(0, 0, &from, &mut to, None).unwrap();
    for group in 0..staged.groups().len() {
        for chunk in (0..9).filter(|&chunk| !staged.keeps(&data, group, chunk)).collect::<Vec<_>>() {
            let mut rooms = vec![vec![0; 1000]; staged.groups()[group].members.len()];
            let mut rooms = rooms.iter_mut();
            refuses("keeping", || {
                staged.pack_group(&mut data, group, chunk, true, |_| rooms.next().unwrap());
            });
        }
    }
}

/// A run that failed has no effect on the next.
#[test]
fn a_run_after_one_that_was_refused() {
    let plan = plan();
    let mut redistribution = Redistribution::with(Threads::new(plan, Some(1)).unwrap());
    {
        let (from, mut to) = (vec![vec![1.0; 64]; 2], vec![vec![0.0; 64], vec![0.0; 1]]);
        redistribution.run(&from, &mut to).unwrap_err();
    }
    let (from, mut to) = (vec![vec![1.0; 64]; 2], vec![vec![0.0; 64]; 2]);
    redistribution.run(&from, &mut to).unwrap();
    assert_eq!(to.iter().flatten().sum::<f64>(), 64.0);
}

/// The addresses of a rank's own parts, whether those of all ranks or of one were entered.
#[test]
fn the_own_part_among_all() {
    let mut table = BufferTable::new(plan());
    let (from, mut to) = (vec![vec![1.0; 64]; 2], vec![vec![0.0; 64]; 2]);
    let begins =
        |rank: usize, to: &[Vec<f64>]| (from[rank].as_ptr().cast(), to[rank].as_ptr().cast_mut().cast());
    let wanted = [begins(0, &to), begins(1, &to)];
    let nothing = (std::ptr::null(), std::ptr::null_mut());
    let mut data = table.fill();
    assert_eq!((data.entered_for(0), data.own_of(0, 0)), (None, nothing));
    data.enter(0, &from, &mut to, None).unwrap();
    assert_eq!(data.entered_for(0), Some(Entered::All));
    assert_eq!([data.own_of(0, 0), data.own_of(0, 1), data.own_of(0, 2)], [wanted[0], wanted[1], nothing]);
    let mut data = table.fill();
    data.enter_own(0, 1, &from[1], &mut to[1], None).unwrap();
    assert_eq!(data.entered_for(0), Some(Entered::Rank(1)));
    assert_eq!([data.own_of(0, 0), data.own_of(0, 1)], [nothing, wanted[1]]);
    refuses("a second array", || _ = data.own_of(1, 0));
    refuses("whose it is", || _ = data.entered_for(1));
}

/// Parts larger than the address space of a process are refused, before a size in bytes can overflow.
#[test]
fn parts_that_no_process_has() {
    let of = |elems: u64, bytes: u64| {
        let from = layout(&format!("1/{elems} of {elems}"), MemoryOrder::ColMajor);
        plan_of(&Move::of::<f64>(from.clone(), from).unwrap().of_bytes(bytes).unwrap())
    };
    rank::check_reach(&of(1 << 44, 8)).unwrap();
    for (elems, bytes) in [((1 << 44) + 1, 8), (1 << 61, 8), (1 << 62, 4), (1 << 62, 1 << 20)] {
        let error = rank::check_reach(&of(elems, bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("source part of rank 0"), "{error}");
    }
    // A destination that is too large only by its strides.
    let (from, to) =
        (layout("1x1/2x2 of 2x2", MemoryOrder::ColMajor), layout("1x1/2x2 of 2x2", MemoryOrder::ColMajor));
    let plan = plan_of(&Move::of::<f64>(from, to.with_strides(&[1, 1 << 61]).unwrap()).unwrap());
    let error = rank::check_reach(&plan).unwrap_err().to_string();
    assert!(error.contains("destination part of rank 0"), "{error}");
}
