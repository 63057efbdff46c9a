//! Wrong plans, engines and runs: refused, and what was right goes on.

use super::*;

#[test]
fn wrong_plans_and_engines_are_refused() {
    let one = plan(&[DEALT]);
    let (short, long) = (layout("2/1 of 4"), layout("2/1 of 5"));
    let (mut bytes, mut made) = (7, null_mut());
    // SAFETY: objects that live, texts and places.
    unsafe {
        refused(reshard_plan_new(null_mut()), RESHARD_ERROR_ARGUMENT, "`plan`");
        refused(
            reshard_plan_add(one.0, short.0, long.0, 8),
            RESHARD_ERROR_MISMATCH,
            "the source is 4 and the destination 5",
        );
        refused(reshard_plan_add(one.0, short.0, short.0, 0), RESHARD_ERROR_MISMATCH, "elements of 0 bytes");
        refused(reshard_plan_add(one.0, null(), short.0, 8), RESHARD_ERROR_ARGUMENT, "`from`");
        refused(
            reshard_plan_source_bytes(one.0, 1, 0, &raw mut bytes),
            RESHARD_ERROR_OUT_OF_RANGE,
            "array 1 was asked for, counted from 0; the plan has 1 array",
        );
        done(reshard_plan_source_bytes(one.0, 0, 1, &raw mut bytes));
        assert_eq!(bytes, 16);
        done(reshard_plan_target_bytes(one.0, 0, 1, &raw mut bytes));
        assert_eq!(bytes, 0);
        let vast = plan(&[("1/4611686018427387904 of 4611686018427387904", "1/1 of 4611686018427387904", 8)]);
        refused(reshard_plan_source_bytes(vast.0, 0, 0, &raw mut bytes), RESHARD_ERROR_TOO_LARGE, "elements");

        let made = &raw mut made;
        let threads = |plan: &Owned<reshard_plan>, options: &CStr| {
            reshard_engine_threads(plan.0, options.as_ptr(), made)
        };
        refused(reshard_engine_threads(null(), null(), made), RESHARD_ERROR_ARGUMENT, "`plan`");
        refused(reshard_engine_threads(one.0, null(), null_mut()), RESHARD_ERROR_ARGUMENT, "`engine`");
        refused(threads(&plan(&[]), c""), RESHARD_ERROR_MISMATCH, "the plan has no array");
        refused(threads(&vast, c""), RESHARD_ERROR_TOO_LARGE, "");
        refused(threads(&one, c"threads=0"), RESHARD_ERROR_MISMATCH, "0 threads");
        refused(threads(&one, c"threads=two"), RESHARD_ERROR_NOTATION, "threads is a number of threads");
        refused(threads(&one, c"level=mmx"), RESHARD_ERROR_NOTATION, "mmx");
        refused(
            threads(&one, c"mover=private"),
            RESHARD_ERROR_NOTATION,
            "\"mover=private\" is no option of an engine of threads; there are threads=, level=",
        );
        assert!((*made).is_null());
    }
}

#[test]
fn wrong_runs_are_refused_and_the_engine_goes_on() {
    let engine = engine(&[DEALT]);
    let (from, mut to) = ([vec![1.0, 3.0], vec![2.0, 4.0]], [vec![0.0; 4]]);
    let (sources, targets) = (sources(&from), targets(&mut to));
    let good = array(&sources, &targets);
    let alpha = 1.0_f32;
    // SAFETY: an engine that lives, and parts as long as they are said to be, or refused before they are used.
    unsafe {
        let run = |array: reshard_array| reshard_engine_run_arrays(engine.0, &raw const array, 1);
        refused(
            reshard_engine_run_arrays(null_mut(), &raw const good, 1),
            RESHARD_ERROR_ARGUMENT,
            "`engine`",
        );
        refused(reshard_engine_run_arrays(engine.0, null(), 1), RESHARD_ERROR_ARGUMENT, "`arrays`");
        refused(
            reshard_engine_run_arrays(engine.0, null(), 0),
            RESHARD_ERROR_MISMATCH,
            "0 arrays were given for a plan of 1 array",
        );
        refused(run(reshard_array { from: null(), ..good }), RESHARD_ERROR_ARGUMENT, "`arrays[0].from`");
        refused(run(reshard_array { from_count: 1, ..good }), RESHARD_ERROR_MISMATCH, "1 source part");
        refused(run(reshard_array { to_count: 0, ..good }), RESHARD_ERROR_MISMATCH, "0 destination parts");
        let part = |bytes, address: *mut c_void| [reshard_target { address, bytes }];
        let at = targets[0].address;
        refused(run(array(&sources, &part(31, at))), RESHARD_ERROR_MISMATCH, "3 elements");
        refused(run(array(&sources, &part(usize::MAX, at))), RESHARD_ERROR_ARGUMENT, "which no memory has");
        refused(run(array(&sources, &part(32, null_mut()))), RESHARD_ERROR_MISMATCH, "null pointer");
        refused(run(reshard_array { element_type: 9, ..good }), RESHARD_ERROR_ARGUMENT, "is of type 9");
        let float = reshard_array { element_type: RESHARD_F32, alpha: (&raw const alpha).cast(), ..good };
        refused(run(float), RESHARD_ERROR_MISMATCH, "numbers of type float, which have 4 bytes");
        refused(
            run(reshard_array { element_type: RESHARD_BITS, ..float }),
            RESHARD_ERROR_ARGUMENT,
            "its type is RESHARD_BITS",
        );
        refused(
            reshard_engine_run(engine.0, sources[0].address, 16, at, 32),
            RESHARD_ERROR_MISMATCH,
            "1 source part",
        );
        refused(
            reshard_engine_start_arrays(engine.0, &raw const good, 1, null_mut()),
            RESHARD_ERROR_ARGUMENT,
            "`run`",
        );
        refused(reshard_run_test(null_mut(), &mut 0), RESHARD_ERROR_ARGUMENT, "`run`");
        refused(reshard_run_wait(null_mut()), RESHARD_ERROR_ARGUMENT, "`run`");
        refused(reshard_run_wait_all(null(), 1), RESHARD_ERROR_ARGUMENT, "`runs`");
        refused(reshard_engine_mover(engine.0, null_mut()), RESHARD_ERROR_ARGUMENT, "`name`");
        assert_eq!(to[0], [0.0; 4]);
        done(run(good));
        assert_eq!(to[0], [1.0, 2.0, 3.0, 4.0]);
        reshard_engine_free(null_mut());
        reshard_run_free(null_mut());
    }
}

/// Two destinations of one run have memory in common: of two ranks, or of two arrays. Those that interleave have none.
#[test]
fn destinations_in_one_memory_are_refused() {
    // Two blocks of rows of one matrix of 4 rows, each in the memory of the whole.
    let (from, to, mut plan, mut engine) =
        (layout("2x1/2x3 of 4x3"), layout("2x1/2x3 of 4x3"), null_mut(), null_mut());
    // SAFETY: objects that live, and places.
    unsafe {
        done(reshard_layout_set_strides(from.0, 2, [1, 2].as_ptr()));
        done(reshard_layout_set_strides(to.0, 2, [1, 4].as_ptr()));
        done(reshard_plan_new(&raw mut plan));
        done(reshard_plan_add(plan, from.0, to.0, 8));
        done(reshard_engine_threads(plan, null(), &raw mut engine));
    }
    let (engine, _plan) = (Owned(engine, reshard_engine_free), Owned(plan, reshard_plan_free));
    let from = [vec![1.0, 2.0, 5.0, 6.0, 9.0, 10.0], vec![3.0, 4.0, 7.0, 8.0, 11.0, 12.0]];
    let sources = sources(&from);
    let mut whole = vec![0.0_f64; 13];
    let first = whole.as_mut_ptr();
    // SAFETY: within the memory, which lives longer.
    let targets = |second: usize| unsafe {
        [0, second].map(|at| reshard_target { address: first.add(at).cast(), bytes: 80 })
    };
    for (second, apart) in [(2, true), (1, false), (0, false), (3, false)] {
        let targets = targets(second);
        let given = array(&sources, &targets);
        // SAFETY: an engine that lives, and parts within the memory.
        let code = unsafe { reshard_engine_run_arrays(engine.0, &raw const given, 1) };
        match apart {
            true => done(code),
            false => refused(
                code,
                RESHARD_ERROR_MISMATCH,
                "rank 0 of array 0 and that of rank 1 of array 0 have memory in common",
            ),
        }
    }
    let expected: Vec<f64> = (1..13).map(f64::from).chain([0.0]).collect();
    assert_eq!(whole, expected);
}

/// MPI is not there, or has not begun: an error, not the end of the program.
#[test]
fn communicators_need_mpi() {
    let (one, mut made) = (plan(&[DEALT]), null_mut());
    // SAFETY: objects that live; of the handle nothing is used before MPI has begun.
    let code = unsafe { reshard_engine_fortran(one.0, 0, null(), &raw mut made) };
    refused(code, RESHARD_ERROR_EXTERNAL, "MPI");
    assert!(made.is_null());
}

/// Options: each is given once, with a value if it has one.
#[test]
fn options_are_taken_at_their_word() {
    let one = plan(&[DEALT]);
    let mut made = null_mut();
    let mut engine = |options: &CStr| {
        // SAFETY: an object that lives, a text and a place.
        unsafe { reshard_engine_threads(one.0, options.as_ptr(), &raw mut made) }
    };
    refused(
        engine(c"threads=2 threads=3"),
        RESHARD_ERROR_NOTATION,
        "give each option of an engine of threads once",
    );
    refused(engine(c"threads="), RESHARD_ERROR_NOTATION, "without a value");
    refused(engine(c"threads"), RESHARD_ERROR_NOTATION, "without a value");
    let (mut publisher, mut subscriber) = (null_mut(), null_mut());
    for (options, says) in [
        (c"consumers=0", "consumers is a number of consumers, 1 or more"),
        (c"host=", "without a value"),
        (c"connections=2", "no option of a producer"),
        (c"tcp tcp", "once"),
    ] {
        // SAFETY: a text and a place.
        refused(
            unsafe { reshard_publisher_new(options.as_ptr(), &raw mut publisher) },
            RESHARD_ERROR_NOTATION,
            says,
        );
    }
    for (options, says) in [(c"consumers=2", "no option of a consumer"), (c"connections=0", "1 or more")] {
        // SAFETY: a text and a place.
        refused(
            unsafe { reshard_subscriber_new(options.as_ptr(), &raw mut subscriber) },
            RESHARD_ERROR_NOTATION,
            says,
        );
    }
}
