//! Rings in one process, right and wrong.

use super::*;

fn loads<'a>(loads: &'a [u64], targets: &'a [u64]) -> reshard_loads {
    reshard_loads {
        processes: loads.len(),
        loads: loads.as_ptr(),
        targets: targets.as_ptr(),
        right: null(),
        left: null(),
        item_bytes: 4,
    }
}

#[test]
fn a_ring_of_threads_evens_out() {
    let costs = [1_u64, 2, 3];
    let stated =
        reshard_loads { right: costs.as_ptr(), left: costs.as_ptr(), ..loads(&[3, 0, 0], &[1, 1, 1]) };
    let (mut made, mut rooms) = (null_mut(), [0; 4]);
    // SAFETY: lists of as many numbers as are said, parts as long as they are said to be, and places.
    unsafe {
        done(reshard_ring_threads(&raw const stated, c"ordered one-way".as_ptr(), &raw mut made));
        let ring = Owned(made, reshard_ring_free);
        for (process, room) in rooms.iter_mut().enumerate() {
            done(reshard_ring_room(ring.0, process as u64, room));
        }
        assert_eq!((rooms[0], rooms[3]), (3, 0));
        let mut parts = [vec![1_i32, 2, 3], vec![0; rooms[1]], vec![0; rooms[2]]];
        let list = targets(&mut parts);
        done(reshard_ring_run(ring.0, list.as_ptr(), 3));
        assert_eq!([parts[0][0], parts[1][0], parts[2][0]], [1, 2, 3]);

        refused(reshard_ring_run(ring.0, list.as_ptr(), 2), RESHARD_ERROR_MISMATCH, "2 parts were given");
        refused(reshard_ring_run(ring.0, null(), 3), RESHARD_ERROR_ARGUMENT, "`parts`");
        let mut twice = targets(&mut parts);
        twice[1] = twice[0];
        refused(reshard_ring_run(ring.0, twice.as_ptr(), 3), RESHARD_ERROR_MISMATCH, "parts 0 and 1 overlap");
        twice[1].address = null_mut();
        refused(
            reshard_ring_run(ring.0, twice.as_ptr(), 3),
            RESHARD_ERROR_ARGUMENT,
            "part 1 was given as a null pointer",
        );
        twice[1] = reshard_target { address: twice[0].address, bytes: usize::MAX };
        refused(reshard_ring_run(ring.0, twice.as_ptr(), 3), RESHARD_ERROR_ARGUMENT, "which no memory has");
        let mut short = targets(&mut parts);
        short[0].bytes = 8;
        refused(reshard_ring_run(ring.0, short.as_ptr(), 3), RESHARD_ERROR_MISMATCH, "room for 3 items");
    }
}

#[test]
fn wrong_rings_are_refused() {
    let mut made = null_mut();
    // SAFETY: lists of as many numbers as are said, or refused before they are read, and places.
    unsafe {
        let mut ring = |stated: &reshard_loads, options: &CStr| {
            reshard_ring_threads(stated, options.as_ptr(), &raw mut made)
        };
        let good = loads(&[3, 1], &[2, 2]);
        refused(ring(&loads(&[3, 1], &[2, 1]), c""), RESHARD_ERROR_MISMATCH, "add up to");
        refused(
            ring(&reshard_loads { targets: null(), ..good }, c""),
            RESHARD_ERROR_ARGUMENT,
            "loads->targets",
        );
        refused(ring(&reshard_loads { item_bytes: 0, ..good }, c""), RESHARD_ERROR_OUT_OF_RANGE, "0 bytes");
        refused(
            ring(&good, c"deadline=3"),
            RESHARD_ERROR_NOTATION,
            "\"deadline=3\" is no option of a ring in one process",
        );
        refused(ring(&good, c"ordered=yes"), RESHARD_ERROR_NOTATION, "ordered has no value");
        refused(ring(&good, c"ordered="), RESHARD_ERROR_NOTATION, "ordered has no value");
        refused(ring(&good, c"ordered one-way ordered"), RESHARD_ERROR_NOTATION, "ring in one process once");
        refused(reshard_ring_threads(null(), null(), &raw mut made), RESHARD_ERROR_ARGUMENT, "`loads`");
        refused(reshard_ring_threads(&raw const good, null(), null_mut()), RESHARD_ERROR_ARGUMENT, "`ring`");
        refused(reshard_ring_room(null(), 0, &mut 0), RESHARD_ERROR_ARGUMENT, "`ring`");
        refused(reshard_ring_run(null_mut(), null(), 0), RESHARD_ERROR_ARGUMENT, "`ring`");
        assert!(made.is_null());
    }
}

/// In order nothing crosses from the last process to the first; without, two items go each way round, and the sequence begins elsewhere.
#[test]
fn the_order_is_kept_if_it_is_asked_for() {
    let stated = loads(&[4, 0, 0, 0], &[1, 1, 1, 1]);
    for (options, ordered) in [(c"ordered", true), (c"", false)] {
        let mut made = null_mut();
        let mut parts = [vec![1_i32, 2, 3, 4], vec![0; 4], vec![0; 4], vec![0; 4]];
        let list = targets(&mut parts);
        // SAFETY: lists of as many numbers as are said, parts with room for all items, and a place.
        unsafe {
            done(reshard_ring_threads(&raw const stated, options.as_ptr(), &raw mut made));
            let ring = Owned(made, reshard_ring_free);
            done(reshard_ring_run(ring.0, list.as_ptr(), 4));
        }
        assert_eq!([0, 1, 2, 3].map(|process| parts[process][0]) == [1, 2, 3, 4], ordered, "{parts:?}");
    }
}
