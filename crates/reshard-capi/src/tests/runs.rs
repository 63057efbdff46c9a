//! Engines of threads move what they are told to, by value.

use super::*;

#[test]
fn an_engine_of_threads_moves_and_scales() {
    let engine = engine(&[DEALT]);
    let (from, mut to) = ([vec![1.0, 3.0], vec![2.0, 4.0]], [vec![0.0; 5]]);
    let (sources, targets) = (sources(&from), targets(&mut to));
    let (alpha, beta) = (10.0, -1.0);
    let mut moved = array(&sources, &targets);
    // SAFETY: an engine that lives, and parts as long as they are said to be.
    unsafe {
        for _ in 0..3 {
            done(reshard_engine_run_arrays(engine.0, &raw const moved, 1));
        }
        assert_eq!(to[0], [1.0, 2.0, 3.0, 4.0, 0.0]);
        (moved.element_type, moved.alpha) = (RESHARD_F64, (&raw const alpha).cast());
        moved.beta = (&raw const beta).cast();
        done(reshard_engine_run_arrays(engine.0, &raw const moved, 1));
        assert_eq!(to[0], [9.0, 18.0, 27.0, 36.0, 0.0]);
        // Null factors are 1 and 0.
        (moved.alpha, moved.beta) = (null(), null());
        done(reshard_engine_run_arrays(engine.0, &raw const moved, 1));
        assert_eq!(to[0], [1.0, 2.0, 3.0, 4.0, 0.0]);
        let mut name = null();
        done(reshard_engine_mover(engine.0, &raw mut name));
        assert_eq!(CStr::from_ptr(name), c"threads");
        // A run that is begun is over already, and may be tested, waited for and freed.
        to[0].fill(0.0);
        let (mut run, mut over) = (null_mut(), 0);
        moved.element_type = RESHARD_BITS;
        done(reshard_engine_start_arrays(engine.0, &raw const moved, 1, &raw mut run));
        done(reshard_run_test(run, &raw mut over));
        assert_eq!((over, to[0][3]), (1, 4.0));
        done(reshard_run_wait(run));
        done(reshard_run_wait_all([run, null_mut(), run].as_ptr(), 3));
        reshard_run_free(run);
    }
}

#[test]
fn complex_numbers_are_conjugated() {
    let engine = engine(&[("1/1 of 2", "1/2 of 2", 8)]);
    let (from, mut to) = (vec![1.0_f32, 2.0, 3.0, -4.0], vec![0.0_f32; 4]);
    let alpha = [0.0_f32, 1.0];
    let (from, target) = ([from], [vec![0.0_f32; 4]]);
    let mut target = target;
    let (sources, targets) = (sources(&from), targets(&mut target));
    let mut moved = array(&sources, &targets);
    (moved.element_type, moved.conjugate, moved.alpha) = (RESHARD_COMPLEX_F32, 1, alpha.as_ptr().cast());
    // SAFETY: an engine that lives, parts and a factor as they are said to be.
    unsafe {
        done(reshard_engine_run_arrays(engine.0, &raw const moved, 1));
        // i (1 - 2 i) = 2 + i, i (3 + 4 i) = -4 + 3 i.
        assert_eq!(target[0], [2.0, 1.0, -4.0, 3.0]);
        let (from, bytes) = (from[0].as_ptr().cast(), 16);
        let code = reshard_engine_run_scaled(
            engine.0,
            RESHARD_COMPLEX_F32,
            alpha.as_ptr().cast(),
            from,
            bytes,
            null(),
            to.as_mut_ptr().cast(),
            bytes,
        );
        done(code);
        assert_eq!(to, [-2.0, 1.0, 4.0, 3.0]);
    }
}

#[test]
fn several_arrays_move_together_also_in_place() {
    let engine = engine(&[DEALT, ("1/6 of 6", "(gen_block(6)) on 1 of 6", 3)]);
    let (from, mut to) = ([vec![1_u64, 3], vec![2, 4]], [vec![0_u64; 4]]);
    let mut letters = *b"abcdefghijklmnopqr.";
    let in_place = letters.as_mut_ptr();
    // The second array onto itself, three bytes further on.
    let source = [reshard_source { address: in_place.cast(), bytes: 18 }];
    let (first, second) = (sources(&from), targets(&mut to));
    // SAFETY: within the letters.
    let target = [reshard_target { address: unsafe { in_place.add(1) }.cast(), bytes: 18 }];
    let arrays = [array(&first, &second), array(&source, &target)];
    // SAFETY: an engine that lives, and parts as long as they are said to be.
    done(unsafe { reshard_engine_run_arrays(engine.0, arrays.as_ptr(), 2) });
    assert_eq!((to[0].as_slice(), &letters), ([1, 2, 3, 4].as_slice(), b"aabcdefghijklmnopqr"));
}

#[test]
fn windows_are_transposed_and_triangles_cut() {
    let (from, to) = (layout("1x1/3x3 of 3x3 memory=row"), layout("1x1/9x9 of 4x4 memory=row"));
    let mut plan = null_mut();
    let (shape, begin, into, axes) = ([2_u64, 3], [1_u64, 0], [1_u64, 0], [1_usize, 0]);
    let window = reshard_window {
        dims: 2,
        shape: shape.as_ptr(),
        from: begin.as_ptr(),
        to: into.as_ptr(),
        axes: axes.as_ptr(),
        triangle: RESHARD_ALL,
        diagonal: 0,
    };
    // SAFETY: objects that live, lists and parts as they are said to be, and places.
    unsafe {
        done(reshard_plan_new(&raw mut plan));
        let plan = Owned(plan, reshard_plan_free);
        let add = |window: &reshard_window| reshard_plan_add_window(plan.0, from.0, to.0, 1, window);
        done(add(&window));
        let whole = reshard_window {
            dims: 0,
            shape: null(),
            from: null(),
            to: null(),
            axes: null(),
            triangle: RESHARD_LOWER,
            diagonal: -1,
        };
        done(add(&whole));
        done(add(&reshard_window { triangle: RESHARD_UPPER, diagonal: 1, ..whole }));
        refused(add(&reshard_window { triangle: 3, ..whole }), RESHARD_ERROR_ARGUMENT, "`triangle` is 3");
        refused(
            add(&reshard_window { dims: 3, ..window }),
            RESHARD_ERROR_MISMATCH,
            "`window` was given with 3 numbers",
        );
        refused(add(&reshard_window { from: shape.as_ptr(), ..window }), RESHARD_ERROR_OUT_OF_RANGE, "");
        refused(reshard_plan_add_window(plan.0, from.0, to.0, 1, null()), RESHARD_ERROR_ARGUMENT, "`window`");
        let mut engine = null_mut();
        done(reshard_engine_threads(plan.0, null(), &raw mut engine));
        let engine = Owned(engine, reshard_engine_free);
        let letters = [b"abcdefghi".to_vec()];
        let mut moved = [[b'.'; 16].to_vec(), [b'.'; 16].to_vec(), [b'.'; 16].to_vec()];
        let from = sources(&letters);
        let to: Vec<reshard_target> = targets(&mut moved);
        let arrays: Vec<reshard_array> = to.iter().map(|to| array(&from, std::slice::from_ref(to))).collect();
        done(reshard_engine_run_arrays(engine.0, arrays.as_ptr(), 3));
        assert_eq!(moved[0], b"....dg..eh..fi..");
        assert_eq!(moved[1], b"....d...gh......");
        assert_eq!(moved[2], b".bc...f.........");
    }
}
