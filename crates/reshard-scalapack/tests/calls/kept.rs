//! What is kept between calls: known shapes, groups of processes, plans; and that memory stays flat.

use crate::Int;
use crate::case::{Case, shuffle};
use crate::host::{Call, Host, last_error};
use crate::rank::{Contexts, Simple, run};
use reshard_testkit::Random;

/// The processes of A say the same in every call, and those of B something else: what was sent the last time is not what is wanted now.
pub fn guesses(host: &Host, calls: u64) {
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

/// A call that was there before is one round, in contexts that were not there before, too.
pub fn rounds(host: &Host) {
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

/// More shapes than are kept, some of them again and again, and some as long as fits a slot, or a little longer.
pub fn many_shapes(host: &Host, calls: u64) {
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
    assert!(planned > calls / 5 && at_once > calls / 4, "{planned} planned, {at_once} at once, of {calls}");
}

/// Parts of more than 2^31 elements, of which the last rows and columns move: a few, and so many that the engine takes them. The rest is never
/// touched, so the system gives no memory for it.
pub fn huge(host: &Host) {
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

/// More groups of processes than are kept, each met again and again: processes drop different ones, and still move together.
pub fn groups(host: &Host, calls: u64) {
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

/// Kibibytes of memory of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Contexts made and destroyed all the time, of few shapes: memory stays flat, and plans are found again.
pub fn contexts(host: &Host, calls: u64) {
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
