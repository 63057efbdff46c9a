//! Extreme sizes: strides that are never used, arrays that do not fit into memory, plans that must not take longer for a longer
//! array.

use super::arrays::{every_engine, layout, plan_of};
use reshard::engine::{BufferTable, Buffers, Engine, Messages, MessagesOptions, Threads};
use reshard::{ErrorKind, MemoryOrder, Move, Pair, Parts, Plan, Triangle};
use reshard_testkit::conformance::Case;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes both engines.
fn made(plan: &Arc<Plan>) -> [reshard::Result<Box<dyn Engine>>; 2] {
    [
        Threads::new(Arc::clone(plan), Some(2)).map(|engine| Box::new(engine) as Box<dyn Engine>),
        Messages::new(Arc::clone(plan), MessagesOptions::default())
            .map(|engine| Box::new(engine) as Box<dyn Engine>),
    ]
}

#[test]
fn the_stride_of_an_axis_with_one_position_may_be_anything() {
    for stride in [0, 1 << 61, 1 << 63, u64::MAX] {
        let odd = |text: &str| layout(text, MemoryOrder::RowMajor).with_strides(&[stride, 1]).unwrap();
        let (from, to) = (odd("1x2/1x3 of 1x20"), odd("1x3/1x2 of 1x20"));
        let case = Case {
            moving: Move::of::<f64>(from, to).unwrap(),
            skew: [8, 8],
            salt: stride,
            equal_copies: false,
        };
        for mut engine in every_engine(&plan_of(&case.moving)) {
            case.judge(|_, from, to| {
                engine.run_bytes(from, to).unwrap();
            });
        }
    }
}

/// A loop over every piece would take minutes.
#[test]
fn a_longer_array_takes_no_longer_to_prepare() {
    let shape = 1_u64 << 37;
    let from = layout(&format!("2/1 of {shape}"), MemoryOrder::ColMajor);
    let to = layout(&format!("1/{shape} of {shape}"), MemoryOrder::ColMajor);
    let there = Move::of::<f64>(from.clone(), to.clone()).unwrap().of_bytes(1).unwrap();
    let back = Move::of::<f64>(to, from).unwrap().of_bytes(1).unwrap();
    for moving in [there, back] {
        assert!(made(&plan_of(&moving)).iter().all(Result::is_ok));
    }
}

/// A loop over every element of a triangle would take minutes.
#[test]
fn triangles_are_prepared_row_by_row() {
    let text = "1x1/400000x400000 of 400000x400000";
    let moving =
        Move::of::<f64>(layout(text, MemoryOrder::RowMajor), layout(text, MemoryOrder::RowMajor)).unwrap();
    for triangle in [Triangle::UPPER, Triangle::STRICTLY_LOWER] {
        let moving = moving.clone().of_bytes(1).unwrap().only(triangle).unwrap();
        assert!(made(&plan_of(&moving)).iter().all(Result::is_ok));
    }
}

#[test]
fn arrays_that_no_memory_holds_are_refused() {
    let of = |elems: u64, bytes| {
        let text = format!("1/{elems} of {elems}");
        let moving =
            Move::of::<f64>(layout(&text, MemoryOrder::ColMajor), layout(&text, MemoryOrder::ColMajor))
                .unwrap();
        plan_of(&moving.of_bytes(bytes).unwrap())
    };
    for plan in [of(1 << 62, 1 << 20), of(1 << 62, 8), of(1 << 60, 8)] {
        for engine in made(&plan) {
            let error = engine.map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            assert!(error.to_string().contains("more than this machine can address"), "{error}");
        }
    }
    // Larger than any memory, but not too large for an address space.
    assert!(made(&of(1 << 59, 8)).iter().all(Result::is_ok));
}

#[test]
fn what_is_entered_last_counts() {
    let from = layout("2/1 of 8", MemoryOrder::ColMajor);
    let plan = plan_of(&Move::of::<f64>(from, layout("1/8 of 8", MemoryOrder::ColMajor)).unwrap());
    for engine in made(&plan) {
        let ones = [[1.0_f64; 4]; 2];
        let bytes = ones.map(|part| bytemuck::cast_slice::<f64, u8>(&part).to_vec());
        let (mut scaled, mut plain) = ([[0.0; 8]], [vec![0; 64]]);
        let mut table = BufferTable::new(Arc::clone(&plan));
        let mut data = table.fill();
        Pair::new(&ones, &mut scaled).scaled(3.0, 0.0).enter(0, &mut data).unwrap();
        data.enter_bytes(0, &bytes, &mut plain).unwrap();
        engine.unwrap().run(&mut data).unwrap();
        assert_eq!(plain[0], bytes.concat(), "ones, as they were");
    }
}

/// Addresses of an earlier run must not be used again.
#[test]
fn parts_that_were_not_entered_cannot_be_looked_at() {
    let from = layout("2/1 of 8", MemoryOrder::ColMajor);
    let mut table =
        BufferTable::new(plan_of(&Move::of::<f64>(from, layout("1/8 of 8", MemoryOrder::ColMajor)).unwrap()));
    let looks = |data: &mut Buffers<'_>, index: usize| {
        let source = catch_unwind(AssertUnwindSafe(|| data.source(0, index).len()));
        let target = catch_unwind(AssertUnwindSafe(|| data.target(0, index).len()));
        (source.ok(), target.ok())
    };
    assert_eq!(looks(&mut table.fill(), 0), (None, None));
    let (from, mut to) = (vec![vec![1.0; 4]; 2], [vec![0.0; 8]]);
    let mut data = table.fill();
    data.enter(0, &from, &mut to, None).unwrap();
    assert_eq!(looks(&mut data, 0), (Some(32), Some(64)));
    assert_eq!(looks(&mut data, 1), (Some(32), None));
    assert_eq!(looks(&mut data, 2), (None, None));
    drop((from, to));
    assert_eq!(looks(&mut table.fill(), 0), (None, None));
}

#[test]
fn plans_that_no_memory_holds_are_refused() {
    let whole = |shape: &str, grid: &str| {
        layout(&format!("{grid}/{} of {shape}", shape.replace("x0", "x1")), MemoryOrder::ColMajor)
    };
    let refused = |moving: Move| {
        let error = Plan::new(vec![moving]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        error.to_string()
    };
    // One range for each column, and one index for each row.
    for shape in ["2305843009213693952x1", "1x2305843009213693952", "2147483648x2147483648"] {
        let moving = Move::of::<f64>(whole(shape, "1x1"), whole(shape, "1x1")).unwrap();
        let said = refused(moving.only(Triangle::UPPER).unwrap());
        assert!(said.contains("positions along an axis"), "{said}");
    }
    // Nothing moves, however long the other axes are.
    let empty = whole("4611686018427387904x4611686018427387904x0", "1x1x1").with_strides(&[1, 1, 1]).unwrap();
    assert_eq!(Plan::new(vec![Move::of::<f64>(empty.clone(), empty).unwrap()]).unwrap().bytes(), 0);
    // Something for each rank, with elements or without.
    for (from, to) in [("1099511627776x1", "1x1"), ("1x1", "1048576x1048576")] {
        let moving = Move::of::<f64>(whole("9x9", from), whole("9x9", to)).unwrap();
        let said = refused(moving);
        assert!(said.contains("1099511627776 ranks"), "{said}");
    }
}

#[test]
fn more_ranks_than_threads_are_refused() {
    let from = layout("5000/1 of 5000", MemoryOrder::ColMajor);
    let plan = plan_of(&Move::of::<f64>(from, layout("1/5000 of 5000", MemoryOrder::ColMajor)).unwrap());
    let [threads, messages] = made(&plan);
    assert!(threads.is_ok());
    let error = messages.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("5000 ranks"), "{error}");
}
