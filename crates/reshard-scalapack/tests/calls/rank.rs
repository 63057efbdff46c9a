//! What a launched process does.

use crate::Int;
use crate::case::{Case, shuffle};
use crate::host::{Call, Host, last_error};
use crate::transposes;
use reshard_mpi::mpi::Reduce;
use reshard_testkit::Random;
use std::time::{Duration, Instant};

pub fn play(part: &str) {
    let words: Vec<&str> = part.split(' ').collect();
    if words[0] != "abort" {
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("RESHARD_ERRORS", "return") };
    }
    // Small matrices take the way of large ones, or that between nodes.
    if let Some(way) = words[0].strip_suffix("-sets") {
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("RESHARD_SCALAPACK_ONLY", way) };
    }
    if words[0] == "progress" {
        // Otherwise Open MPI receives a message without its sender.
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("OMPI_MCA_btl_vader_single_copy_mechanism", "none") };
    }
    if ["absent", "late"].contains(&words[0]) {
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("RESHARD_DEADLINE", "1") };
    }
    let host = Host::new(words[0] == "hidden");
    let number = |k: usize| words[k].parse::<u64>().unwrap();
    match words[0] {
        "sets" | "engine-sets" | "collective-sets" | "hidden" => sets(&host, number(1), number(2)),
        "transposes" => transposes::sets(&host, number(1), number(2)),
        "other-transposes" => transposes::others(&host),
        "names" => names(&host),
        "arguments" => arguments(&host),
        "disagreement" => disagreement(&host, number(1), number(2)),
        "contexts" => contexts(&host, number(1)),
        "groups" => groups(&host, number(1)),
        "different-contexts" => different_contexts(&host),
        "abort" => abort(&host),
        "guesses" => guesses(&host, number(1)),
        "progress" => progress(&host),
        "absent" => absent(&host),
        "late" => late(&host),
        "rounds" => rounds(&host),
        "huge" => huge(&host),
        "many-shapes" => many_shapes(&host, number(1)),
        _ => panic!("no part {part}"),
    }
    println!("[{}/{} done]", host.world().rank(), host.world().size());
    host.end();
}

/// The contexts of a case: of A, of B, of all that call.
struct Contexts([Int; 3]);

impl Contexts {
    fn new(host: &Host, case: &Case) -> Self {
        let [a, b] = &case.sides;
        Self([&a.grid, &b.grid, &case.global].map(|grid| host.context(grid.rows, grid.columns, &grid.ranks)))
    }

    fn destroy(self, host: &Host) {
        self.0.into_iter().for_each(|context| host.destroy(context));
    }
}

/// Calls a routine for a case; returns the memory of B, or none if this process does not call.
fn run(host: &Host, case: &Case, contexts: &Contexts, ours: bool, of_c: bool) -> Option<Vec<u8>> {
    let rank = host.world().rank();
    if !case.global.ranks.contains(&rank) {
        return None;
    }
    let (mut a, mut b) = case.before(rank);
    let untouched = a.bytes.clone();
    let [from, to] = &case.sides;
    let desca = from.descriptor(contexts.0[0], rank);
    // With one array there is one descriptor.
    let descb = if case.in_place { desca } else { to.descriptor(contexts.0[1], rank) };
    let int = |index: usize| index as Int + 1;
    let a_part = a.bytes.as_mut_ptr();
    let call = Call {
        letters: case.letters,
        m: case.window[0] as Int,
        n: case.window[1] as Int,
        a: a_part,
        ia: int(from.first[0]),
        ja: int(from.first[1]),
        desca: &desca,
        b: b.as_mut().map_or(a_part, |b| b.bytes.as_mut_ptr()),
        ib: int(to.first[0]),
        jb: int(to.first[1]),
        descb: &descb,
        context: (!case.of_all).then_some(contexts.0[2]),
    };
    host.call(ours, &case.name(of_c), &call);
    match b {
        Some(b) => {
            assert!(a.bytes == untouched, "A was written to: {case:?}");
            Some(b.bytes)
        }
        None => Some(a.bytes),
    }
}

/// Random parameter sets: every byte of B, and of A, and between them.
fn sets(host: &Host, seed: u64, count: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let mut random = Random::new(seed);
    let (mut moved, mut equal, mut reference_wrong) = (0, 0, 0_u64);
    for number in 0..count {
        let case = Case::random(&mut random, size);
        let contexts = Contexts::new(host, &case);
        // Twice: planned, and with the plan that was kept.
        for of_c in [number % 2 == 0, number % 2 == 1] {
            if let Some(found) = run(host, &case, &contexts, true, of_c) {
                assert_eq!(last_error(), None, "{case:?}");
                let expected = case.expected(rank);
                let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
                assert_eq!(
                    (wrong, found.len()),
                    (None, expected.len()),
                    "set {number} on rank {rank}: {case:?}"
                );
                moved += 1;
            }
        }
        // The reference may take other windows of the same array for right or wrong; it is asked for different arrays alone.
        let mut wrong = [0];
        if !case.in_place
            && let Some(found) = run(host, &case, &contexts, false, number % 2 == 0)
        {
            wrong[0] = u64::from(found != case.expected(rank));
            equal += u64::from(wrong[0] == 0);
        }
        host.world().all_reduce(&mut wrong, Reduce::Max).unwrap();
        reference_wrong += wrong[0];
        contexts.destroy(host);
    }
    if rank == 0 {
        println!(
            "  sets: {count}, {moved} calls of rank 0 right, {equal} equal to ScaLAPACK's, which was wrong in {reference_wrong}"
        );
    }
    let mut all_moved = [moved];
    host.world().all_reduce(&mut all_moved, Reduce::Max).unwrap();
    assert!(all_moved[0] >= count, "{all_moved:?}");
}

/// A small matrix on a grid of one row, for tests of arguments: the descriptor, and memory.
struct Simple {
    descriptor: [Int; 9],
    context: Int,
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Simple {
    fn new(host: &Host) -> Self {
        let (rank, size) = (host.world().rank(), host.world().size());
        let context = host.context(1, size, &(0..size).collect::<Vec<_>>());
        let columns = 3 * size;
        let a = (0..30).map(|at| (rank * 100 + at) as f64).collect();
        Self { descriptor: [1, context, 10, columns as Int, 10, 3, 0, 0, 10], context, a, b: vec![-1.0; 30] }
    }

    fn call<'a>(&'a mut self, descriptors: [&'a [Int; 9]; 2]) -> Call<'a> {
        Call {
            letters: None,
            m: 10,
            n: self.descriptor[3],
            a: self.a.as_mut_ptr().cast(),
            ia: 1,
            ja: 1,
            desca: descriptors[0],
            b: self.b.as_mut_ptr().cast(),
            ib: 1,
            jb: 1,
            descb: descriptors[1],
            context: Some(self.context),
        }
    }
}

/// Every name is there and does the same.
fn names(host: &Host) {
    for name in ["pdgemr2d_", "pdgemr2d", "pdgemr2d__", "PDGEMR2D", "reshard_pdgemr2d_", "Cpdgemr2d"] {
        let mut simple = Simple::new(host);
        let descriptor = simple.descriptor;
        let call = simple.call([&descriptor; 2]);
        host.call(true, name, &call);
        assert_eq!(last_error(), None);
        assert_eq!(simple.a, simple.b, "{name}");
        host.destroy(simple.context);
    }
}

/// Wrong arguments, on one rank or on all: all ranks have the same message, and B is untouched.
fn arguments(host: &Host) {
    let rank = host.world().rank();
    // So that the processes know each other.
    names(host);
    type Change = fn(&mut Call<'_>);
    let calls: &[(Change, &str)] = &[
        (
            |call| call.ia = 0,
            "argument 4 (IA) is 0: 10 rows from there on are not within the 10 of the matrix",
        ),
        (|call| call.ia = 2, "argument 4 (IA) is 2"),
        (|call| call.ja = 2_147_483_647, "argument 5 (JA) is 2147483647"),
        (|call| call.ib = -3, "argument 8 (IB) is -3"),
        (|call| call.jb = 2, "argument 9 (JB) is 2"),
        (|call| call.m = 11, "argument 4 (IA) is 1: 11 rows"),
        (|call| call.a = std::ptr::null_mut(), "argument 3 (A) is a null pointer"),
        (|call| call.b = std::ptr::null_mut(), "argument 7 (B) is a null pointer"),
    ];
    let entries: [(usize, Int, &str); 9] = [
        (2, -1, "entry 3 (M) of argument 6 (DESCA) is -1"),
        (4, 0, "entry 5 (MB) of argument 6 (DESCA) is 0; it must be at least 1"),
        (4, -2, "entry 5 (MB) of argument 6 (DESCA) is -2"),
        (5, 0, "entry 6 (NB) of argument 6 (DESCA) is 0"),
        (6, 1, "entry 7 (RSRC) of argument 6 (DESCA) is 1; the process grid is 1 x 4"),
        (6, -1, "entry 7 (RSRC) of argument 6 (DESCA) is -1"),
        (7, 4, "entry 8 (CSRC) of argument 6 (DESCA) is 4"),
        (
            8,
            9,
            "entry 9 (LLD) of argument 6 (DESCA) is 9; this process has 10 rows of the matrix, so it must be at least 10",
        ),
        (8, -10, "entry 9 (LLD) of argument 6 (DESCA) is -10"),
    ];
    for who in [None, Some(2)] {
        let wrong = who.is_none_or(|who| who == rank);
        let check = |simple: &Simple, expected: &str| {
            let said = last_error().unwrap_or_default();
            let place = format!("pdgemr2d: rank {}: ", who.unwrap_or(0));
            assert!(
                said.starts_with(&place) && said.contains(expected) && said.ends_with("B is as it was"),
                "{expected}: {said}"
            );
            assert!(simple.b.iter().all(|&value| value == -1.0), "{expected}");
            host.destroy(simple.context);
        };
        for (change, expected) in calls {
            let mut simple = Simple::new(host);
            let descriptor = simple.descriptor;
            let mut call = simple.call([&descriptor; 2]);
            if wrong {
                change(&mut call);
            }
            host.call(true, "pdgemr2d_", &call);
            check(&simple, expected);
        }
        for (entry, value, expected) in entries {
            let mut simple = Simple::new(host);
            let mut descriptors = [simple.descriptor; 2];
            if wrong {
                descriptors[0][entry] = value;
            }
            let call = simple.call([&descriptors[0], &descriptors[1]]);
            host.call(true, "Cpdgemr2d", &call);
            check(&simple, expected);
        }
    }
    // And after all that a right call is right.
    names(host);
}

/// One rank differs in one number: all ranks are told which, who and both values, and B is untouched.
fn disagreement(host: &Host, seed: u64, trials: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let mut random = Random::new(seed);
    for trial in 0..trials {
        let other = random.within(0, size as u64 - 1) as usize;
        let what = random.within(0, 9);
        let mut simple = Simple::new(host);
        let mut descriptors = [simple.descriptor; 2];
        let side = random.within(0, 1) as usize;
        // Numbers that are right by themselves.
        let expected = match what {
            0 | 1 => ["argument 1 (M) is", "argument 2 (N) is"][what as usize].to_string(),
            2 => format!("argument {} (I{}) is", [4, 8][side], ["A", "B"][side]),
            3..=8 => {
                let entry = what as usize - 1;
                let name = ["M", "N", "MB", "NB", "RSRC", "CSRC"][entry - 2];
                format!(
                    "entry {} ({name}) of argument {} (DESC{}) is",
                    entry + 1,
                    [6, 10][side],
                    ["A", "B"][side]
                )
            }
            _ => "the routine is".into(),
        };
        if rank == other && (3..=8).contains(&what) {
            let entry = what as usize - 1;
            descriptors[side][entry] += if entry == 6 { 0 } else { 1 };
            if entry == 2 {
                descriptors[side][8] += 1;
            }
        }
        let mut call = simple.call([&descriptors[0], &descriptors[1]]);
        (call.m, call.n) = (8, call.n - 1);
        let mut name = "pdgemr2d_";
        if rank == other {
            match what {
                0 => call.m -= 1,
                1 => call.n -= 1,
                2 if side == 0 => call.ia += 1,
                2 => call.ib += 1,
                9 => name = "pzgemr2d_",
                _ => {}
            }
        }
        // The grid has one row, so a process row other than 0 is wrong by itself: nothing differs then.
        let differs = what != 7;
        if what == 9 && rank == other {
            // Elements of twice the size: memory for them, though none is touched.
            call.a = call.b;
        }
        host.call(true, name, &call);
        let said = last_error().unwrap_or_default();
        match differs {
            true => {
                assert!(said.contains(&expected), "trial {trial}: {expected}: {said}");
                assert!(
                    said.contains(&format!("on rank {other}")) && said.contains("B is as it was"),
                    "{said}"
                );
                assert!(simple.b.iter().all(|&value| value == -1.0), "trial {trial}");
            }
            false => assert!(simple.b[..8] == simple.a[..8], "trial {trial}"),
        }
        host.destroy(simple.context);
    }
    if rank == 0 {
        println!("  trials: {trials}, all named");
    }
}

/// More groups of processes than are kept, each met again and again: processes drop different ones, and still move together.
fn groups(host: &Host, calls: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let mut random = Random::new(17);
    let some = |random: &mut Random| {
        let mut group: Vec<usize> = (0..size).collect();
        shuffle(random, &mut group);
        group.truncate(random.within(2, size as u64) as usize);
        group
    };
    let groups: Vec<Vec<usize>> = (0..120).map(|_| some(&mut random)).collect();
    for number in 0..calls {
        let group = &groups[random.within(0, groups.len() as u64 - 1) as usize];
        let case = Case::of_group(&mut random, size, group);
        let contexts = Contexts::new(host, &case);
        if let Some(found) = run(host, &case, &contexts, true, number % 2 == 0) {
            assert_eq!(last_error(), None, "call {number}");
            assert!(found == case.expected(rank), "call {number}: {case:?}");
        }
        contexts.destroy(host);
    }
}

/// Every process has a context of its own, in which it is the first: that is no grid of all.
fn different_contexts(host: &Host) {
    names(host);
    let (rank, size) = (host.world().rank(), host.world().size());
    let contexts: Vec<Int> = (0..size).map(|rank| host.context(1, 1, &[rank])).collect();
    let mut simple = Simple::new(host);
    let descriptor = [1, contexts[rank], 10, 3, 10, 3, 0, 0, 10];
    let mut call = simple.call([&descriptor; 2]);
    call.n = 3;
    host.call(true, "pdgemr2d_", &call);
    let said = last_error().unwrap_or_default();
    assert!(said.contains("are both process 0 of the context of A"), "{said}");
    assert!(simple.b.iter().all(|&value| value == -1.0));
}

/// The processes of A say the same in every call, and those of B something else: what was sent the last time is not what is wanted now.
fn guesses(host: &Host, calls: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let (a, b): (Vec<usize>, Vec<usize>) = (0..size).partition(|&rank| rank < size / 2);
    let contexts = [
        host.context(1, a.len(), &a),
        host.context(b.len(), 1, &b),
        host.context(1, size, &(0..size).collect::<Vec<_>>()),
    ];
    let [rows, columns] = [23, 17];
    let of_a = a.iter().position(|&other| other == rank);
    let of_b = b.iter().position(|&other| other == rank);
    let mut random = Random::new(17);
    for number in 0..calls {
        let block = [2, 3, 5][random.within(0, 2) as usize];
        let local: Vec<usize> =
            (0..rows).filter(|row| of_b.is_some_and(|place| row / block % b.len() == place)).collect();
        let mine: Vec<usize> =
            (0..columns).filter(|column| of_a.is_some_and(|place| column / 4 % a.len() == place)).collect();
        let value = |row: usize, column: usize| (number as usize * 1000 + row * 20 + column) as f64;
        let mut from: Vec<f64> =
            mine.iter().flat_map(|&column| (0..rows).map(move |row| value(row, column))).collect();
        let mut to = vec![-1.0; local.len() * columns];
        let int = |number: usize| number as Int;
        let desca = [1, contexts[0], int(rows), int(columns), int(rows), 4, 0, 0, int(rows)];
        let lead = int(local.len().max(1));
        let descb = [1, contexts[1], int(rows), int(columns), int(block), int(columns), 0, 0, lead];
        let call = Call {
            letters: None,
            m: int(rows),
            n: int(columns),
            a: from.as_mut_ptr().cast(),
            ia: 1,
            ja: 1,
            desca: &desca,
            b: to.as_mut_ptr().cast(),
            ib: 1,
            jb: 1,
            descb: &descb,
            context: Some(contexts[2]),
        };
        host.call(true, "pdgemr2d_", &call);
        assert_eq!(last_error(), None);
        let expected: Vec<f64> =
            (0..columns).flat_map(|column| local.iter().map(move |&row| value(row, column))).collect();
        assert_eq!(to, expected, "call {number}, blocks of {block}");
    }
}

/// A rank waits in a call while another needs MPI to go on with what this one sent it.
fn progress(host: &Host) {
    const TAG: u32 = 9;
    let rank = host.world().rank();
    for _ in 0..3 {
        let mut simple = Simple::new(host);
        // Long enough that MPI sends it only when both sides are ready.
        let mut message = vec![rank as u8 + 1; 32 << 20];
        // SAFETY: the message stays until its request is complete.
        let mut request = match rank {
            0 => Some(unsafe { host.world().isend(message.as_ptr(), message.len(), 1, TAG) }.unwrap()),
            1 => Some(unsafe { host.world().irecv(message.as_mut_ptr(), message.len(), 0, TAG) }.unwrap()),
            _ => None,
        };
        if rank == 1 {
            let request = std::slice::from_mut(request.as_mut().unwrap());
            reshard_mpi::mpi::wait(request, Some(Duration::from_secs(60))).unwrap();
            assert!(message.iter().all(|&byte| byte == 1));
        }
        let descriptor = simple.descriptor;
        let call = simple.call([&descriptor; 2]);
        host.call(true, "pdgemr2d_", &call);
        assert_eq!((last_error(), &simple.a), (None, &simple.b));
        if rank == 0 {
            let request = std::slice::from_mut(request.as_mut().unwrap());
            reshard_mpi::mpi::wait(request, Some(Duration::from_secs(60))).unwrap();
        }
        host.destroy(simple.context);
    }
}

/// One rank gives up before the others come: they give the same call up, and the next ones are right.
fn late(host: &Host) {
    let rank = host.world().rank();
    let mut simple = Simple::new(host);
    let descriptor = simple.descriptor;
    for round in 0..2 {
        for turn in 0..3 {
            simple.a.iter_mut().for_each(|value| *value += 1.0);
            simple.b.fill(-2.0);
            if round == 1 && turn == 0 && rank != 0 {
                std::thread::sleep(Duration::from_millis(1_500 + 100 * rank as u64));
            }
            let call = simple.call([&descriptor; 2]);
            host.call(true, "pdgemr2d_", &call);
            match (round, turn) {
                (1, 0) => {
                    let said = last_error().unwrap_or_default();
                    let expected = if rank == 0 { " s for rank 1" } else { "rank 0 gave the call up" };
                    assert!(said.contains(expected) && said.ends_with("B is as it was"), "{said}");
                    assert!(simple.b.iter().all(|&value| value == -2.0));
                    host.world().barrier().unwrap();
                }
                _ => assert_eq!((last_error(), &simple.a), (None, &simple.b), "{round} {turn}"),
            }
        }
    }
}

/// A call that was there before is one round, in contexts that were not there before, too.
fn rounds(host: &Host) {
    for number in 0..20 {
        let mut simple = Simple::new(host);
        let descriptor = simple.descriptor;
        for _ in 0..5 {
            simple.a.iter_mut().for_each(|value| *value += 1.0);
            let call = simple.call([&descriptor; 2]);
            host.call(true, "pdgemr2d_", &call);
            assert_eq!((last_error(), &simple.a), (None, &simple.b), "{number}");
        }
        host.destroy(simple.context);
    }
    // The first makes the group, the second remembers what all said.
    assert_eq!(reshard_scalapack::counts(), [100, 1, 98, 0]);
}

/// Parts of more than 2^31 elements, of which the last rows and columns move: a few, and so many that the engine takes them. The rest is never
/// touched, so the system gives no memory for it.
fn huge(host: &Host) {
    const SIDE: usize = 46_400;
    let (rank, size) = (host.world().rank(), host.world().size());
    let context = host.context(1, size, &(0..size).collect::<Vec<_>>());
    let first = host.context(1, 1, &[0]);
    let int = |number: usize| number as Int;
    // All of A and of B on the first process, but for the last columns of B.
    let block = SIDE - 3;
    let columns = |rank: usize| (0..SIDE).filter(|column| column / block % size == rank).count();
    let part = |columns: usize| vec![0_i32; SIDE * columns.max(1)];
    let (mut a, mut b) = (part(if rank == 0 { SIDE } else { 0 }), part(columns(rank)));
    for window in [50, 700] {
        let at = SIDE - window;
        let value = |row: usize, column: usize| (row * 1_000 + column + window) as i32;
        if rank == 0 {
            for (column, row) in (at..SIDE).flat_map(|column| (at..SIDE).map(move |row| (column, row))) {
                a[column * SIDE + row] = value(row - at, column - at);
            }
        }
        let desca = [1, first, int(SIDE), int(SIDE), int(SIDE), int(SIDE), 0, 0, int(SIDE)];
        let descb = [1, context, int(SIDE), int(SIDE), int(SIDE), int(block), 0, 0, int(SIDE)];
        let call = Call {
            letters: None,
            m: int(window),
            n: int(window),
            a: a.as_mut_ptr().cast(),
            ia: int(at) + 1,
            ja: int(at) + 1,
            desca: &desca,
            b: b.as_mut_ptr().cast(),
            ib: int(at) + 1,
            jb: int(at) + 1,
            descb: &descb,
            context: Some(context),
        };
        host.call(true, "psgemr2d_", &call);
        assert_eq!(last_error(), None);
        for column in at..SIDE {
            if column / block % size == rank {
                let local = column / (block * size) * block + column % block;
                let found = &b[local * SIDE + at..(local + 1) * SIDE];
                let expected: Vec<i32> = (at..SIDE).map(|row| value(row - at, column - at)).collect();
                assert!(found == expected, "column {column} of the window of {window}");
            }
        }
    }
}

/// More shapes than are kept, some of them again and again, and some as long as fits a slot, or a little longer.
fn many_shapes(host: &Host, calls: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let context = host.context(1, size, &(0..size).collect::<Vec<_>>());
    let first = host.context(1, 1, &[0]);
    let mut random = Random::new(29);
    for number in 0..calls {
        let rows = match random.within(0, 39) {
            0 => random.within(360, 364),
            1..=20 => random.within(1, 20),
            _ => random.within(21, 350) + 350 * random.within(0, 1),
        } as usize;
        let columns = if rows >= 360 { 362 } else { random.within(1, 3) as usize };
        let local = (0..columns).filter(|column| column % size == rank).count();
        let value = |row: usize, column: usize| (number as usize * 1_000_000 + row * 1_000 + column) as f64;
        let elements = |columns: Vec<usize>| -> Vec<f64> {
            columns.into_iter().flat_map(|column| (0..rows).map(move |row| value(row, column))).collect()
        };
        let mut a = if rank == 0 { elements((0..columns).collect()) } else { vec![] };
        let mut b = vec![-1.0; rows * local.max(1)];
        let int = |number: usize| number as Int;
        let shape = [int(rows), int(columns)];
        let desca = [1, first, shape[0], shape[1], shape[0], shape[1], 0, 0, shape[0]];
        let descb = [1, context, shape[0], shape[1], shape[0], 1, 0, 0, shape[0]];
        let call = Call {
            letters: None,
            m: shape[0],
            n: shape[1],
            a: a.as_mut_ptr().cast(),
            ia: 1,
            ja: 1,
            desca: &desca,
            b: b.as_mut_ptr().cast(),
            ib: 1,
            jb: 1,
            descb: &descb,
            context: Some(context),
        };
        host.call(true, "pdgemr2d_", &call);
        assert_eq!(last_error(), None);
        let expected = elements((0..columns).filter(|column| column % size == rank).collect());
        assert!(b[..expected.len()] == expected, "call {number}: {rows} x {columns}");
    }
    let [_, planned, at_once, _] = reshard_scalapack::counts();
    assert!(planned > 600 && at_once > calls / 4, "{planned} planned, {at_once} at once, of {calls}");
}

/// A rank does not come: the others say so after the deadline, and B is as it was.
fn absent(host: &Host) {
    let rank = host.world().rank();
    let mut simple = Simple::new(host);
    let descriptor = simple.descriptor;
    let call = simple.call([&descriptor; 2]);
    host.call(true, "pdgemr2d_", &call);
    assert_eq!(last_error(), None);
    let began = Instant::now();
    if rank != 2 {
        simple.b.fill(-2.0);
        let call = simple.call([&descriptor; 2]);
        host.call(true, "pdgemr2d_", &call);
        let said = last_error().unwrap_or_default();
        assert!(
            said.contains(&format!("pdgemr2d: rank {rank}: waited 1.")) && said.contains(" s for rank 2"),
            "{said}"
        );
        assert!(said.ends_with("B is as it was") && simple.b.iter().all(|&value| value == -2.0), "{said}");
    }
    assert!(began.elapsed() < Duration::from_secs(30));
    host.world().barrier().unwrap();
}

/// Kibibytes of memory of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Contexts made and destroyed all the time, of few shapes: memory stays flat, and plans are found again.
fn contexts(host: &Host, calls: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let mut random = Random::new(3);
    let mut cases: Vec<Case> = Vec::new();
    while cases.len() < 12 {
        let case = Case::random(&mut random, size);
        if !case.of_all && !case.in_place {
            cases.push(case);
        }
    }
    let (mut before, mut communicators) = (0, 0);
    for number in 0..calls {
        let case = &cases[random.within(0, cases.len() as u64 - 1) as usize];
        let contexts = Contexts::new(host, case);
        if let Some(found) = run(host, case, &contexts, true, false) {
            assert!(found == case.expected(rank), "call {number}: {case:?}");
        }
        contexts.destroy(host);
        if number == calls / 2 {
            before = resident();
            communicators = reshard_scalapack::communicators();
        }
    }
    let after = resident();
    assert_eq!((last_error(), reshard_scalapack::communicators()), (None, communicators));
    assert!(after < before + before / 10 + 2048, "{before} kB became {after}");
    if rank == 0 {
        println!("  calls: {calls}, {before} kB after half of them, {after} kB after all");
    }
}

/// By default an error ends the job, with one message.
fn abort(host: &Host) {
    let mut simple = Simple::new(host);
    let mut descriptors = [simple.descriptor; 2];
    if host.world().rank() == 1 {
        descriptors[0][4] = 0;
    }
    let call = simple.call([&descriptors[0], &descriptors[1]]);
    host.call(true, "pdgemr2d_", &call);
}
