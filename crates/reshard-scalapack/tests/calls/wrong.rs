//! Calls that are wrong: arguments out of range, processes that disagree. All are told the same, and B is as it was.

use crate::Int;
use crate::host::{Call, Host, last_error};
use crate::rank::{Simple, names};
use reshard_testkit::Random;

/// Wrong arguments, on one rank or on all: all ranks have the same message, and B is untouched.
pub fn arguments(host: &Host) {
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
pub fn disagreement(host: &Host, seed: u64, trials: u64) {
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

/// Every process has a context of its own, in which it is the first: that is no grid of all.
pub fn different_contexts(host: &Host) {
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

/// By default an error ends the job, with one message.
pub fn abort(host: &Host) {
    let mut simple = Simple::new(host);
    let mut descriptors = [simple.descriptor; 2];
    if host.world().rank() == 1 {
        descriptors[0][4] = 0;
    }
    let call = simple.call([&descriptors[0], &descriptors[1]]);
    host.call(true, "pdgemr2d_", &call);
}
