//! The functions as C calls them, without MPI: what they do, by value, and what they refuse, by code and sentence.
//!
//! Between processes they are tested by programs of C and Fortran: `xtask/tests/installed.rs`.

use crate::arrays::*;
use crate::border::*;
use crate::engine::*;
use crate::layout::*;
use crate::plan::*;
use crate::ring::*;
use crate::run::*;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

fn message() -> String {
    // SAFETY: a text that stays until the next failure.
    unsafe { CStr::from_ptr(reshard_error_message()) }.to_string_lossy().into_owned()
}

#[track_caller]
fn done(code: c_int) {
    assert_eq!(code, RESHARD_OK, "{}", message());
}

#[track_caller]
fn refused(code: c_int, expected: c_int, says: &str) {
    assert_eq!(code, expected, "{}", message());
    assert!(message().contains(says), "{:?} does not say {says:?}", message());
}

/// What is owned in a test, and freed when it ends.
struct Owned<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once.
        unsafe { (self.1)(self.0) }
    }
}

fn layout(notation: &str) -> Owned<reshard_layout> {
    let (text, mut made) = (CString::new(notation).unwrap(), null_mut());
    // SAFETY: a text and a place.
    done(unsafe { reshard_layout_parse(text.as_ptr(), &raw mut made) });
    Owned(made, reshard_layout_free)
}

fn plan(arrays: &[(&str, &str, usize)]) -> Owned<reshard_plan> {
    let mut made = null_mut();
    // SAFETY: objects that live, and places. Layouts are freed at once: plans keep copies.
    unsafe {
        done(reshard_plan_new(&raw mut made));
        for (from, to, bytes) in arrays {
            done(reshard_plan_add(made, layout(from).0, layout(to).0, *bytes));
        }
    }
    Owned(made, reshard_plan_free)
}

fn engine(arrays: &[(&str, &str, usize)]) -> Owned<reshard_engine> {
    let mut made = null_mut();
    // SAFETY: objects that live, and places. The plan is freed at once: engines keep what they need.
    done(unsafe { reshard_engine_threads(plan(arrays).0, c"threads=2".as_ptr(), &raw mut made) });
    Owned(made, reshard_engine_free)
}

fn sources<T>(parts: &[Vec<T>]) -> Vec<reshard_source> {
    let source =
        |part: &Vec<T>| reshard_source { address: part.as_ptr().cast(), bytes: size_of_val(&part[..]) };
    parts.iter().map(source).collect()
}

fn targets<T>(parts: &mut [Vec<T>]) -> Vec<reshard_target> {
    let target = |part: &mut Vec<T>| reshard_target {
        address: part.as_mut_ptr().cast(),
        bytes: size_of_val(&part[..]),
    };
    parts.iter_mut().map(target).collect()
}

fn array(from: &[reshard_source], to: &[reshard_target]) -> reshard_array {
    reshard_array {
        from: from.as_ptr(),
        from_count: from.len(),
        to: to.as_ptr(),
        to_count: to.len(),
        ..one_array(None, None)
    }
}

const DEALT: (&str, &str, usize) = ("2/1 of 4", "1/4 of 4", 8);

#[test]
fn layouts_are_made_of_notation_numbers_and_descriptors_alike() {
    let print = |layout: *const reshard_layout| {
        let mut text = [1 as c_char; 64];
        // SAFETY: an object that lives, and room for so many bytes.
        unsafe {
            done(reshard_layout_print(layout, text.as_mut_ptr(), text.len()));
            CStr::from_ptr(text.as_ptr()).to_str().unwrap().to_string()
        }
    };
    let (shape, grid, blocks, first) = ([1000, 800], [2, 3], [64, 32], [0, 1]);
    let mut made = [null_mut(); 3];
    // SAFETY: lists of as many numbers as are said, and places.
    unsafe {
        let text = c"2x3/64x32 first=0x1 rank-order=col memory=row";
        done(reshard_layout_parse_over(text.as_ptr(), 2, shape.as_ptr(), &raw mut made[0]));
        done(reshard_layout_block_cyclic(
            2,
            shape.as_ptr(),
            grid.as_ptr(),
            blocks.as_ptr(),
            first.as_ptr(),
            RESHARD_COL_MAJOR,
            RESHARD_ROW_MAJOR,
            &raw mut made[1],
        ));
        let descriptor = [1, 0, 1000, 800, 64, 32, 0, 1, 520];
        done(reshard_layout_from_descriptor(
            descriptor.as_ptr(),
            2,
            3,
            RESHARD_COL_MAJOR,
            4,
            &raw mut made[2],
        ));
    }
    let made = made.map(|layout| Owned(layout, reshard_layout_free));
    let line = "2x3/64x32 first=0x1 rank-order=col of 1000x800";
    assert_eq!(
        [0, 1].map(|k| print(made[k].0)),
        [format!("{line} memory=row"), format!("{line} memory=row")]
    );
    assert_eq!(print(made[2].0), line);

    // By value: an element whose owner and address one can count out. Block (2, 1) is process row 0, column (1 + 1) mod 3 = 2, the second block
    // of that row: rank 0 + 2 * 2 counted by columns, local index (64 + 5, 3).
    let index = [2 * 64 + 5, 32 + 3];
    let (mut rank, mut address, mut elements, mut dims) = (0, 0, 0, 0);
    // SAFETY: lists of as many numbers as are said, and places.
    unsafe {
        done(reshard_layout_dims(made[2].0, &raw mut dims));
        assert_eq!(dims, 2);
        done(reshard_layout_locate(made[2].0, 2, index.as_ptr(), &raw mut rank, &raw mut address));
        assert_eq!((rank, address), (4, 69 + 3 * 520));
        let (mut local, mut strides, mut global, mut whole) = ([0; 2], [0; 2], [0; 2], [0; 2]);
        done(reshard_layout_shape(made[0].0, 2, whole.as_mut_ptr()));
        assert_eq!(whole, shape);
        done(reshard_layout_local_shape(made[0].0, 4, 2, local.as_mut_ptr()));
        done(reshard_layout_strides(made[0].0, 4, 2, strides.as_mut_ptr()));
        // Rows: 16 blocks of 64, the last of 40, of which process row 0 has every second: 8 * 64. Columns: 25 blocks dealt to processes 1, 2, 0: 8.
        assert_eq!((local, strides), ([512, 256], [256, 1]));
        done(reshard_layout_global_index(made[0].0, 4, 2, [69, 3].as_ptr(), global.as_mut_ptr()));
        assert_eq!(global, index);
        done(reshard_layout_span(made[2].0, 4, &raw mut elements));
        assert_eq!(elements, 255 * 520 + 512);
        done(reshard_layout_span(made[2].0, 6, &raw mut elements));
        assert_eq!(elements, 0);
        // Ranks and strides that are set.
        done(reshard_layout_set_ranks(made[1].0, 6, [9, 8, 7, 6, 5, 4].as_ptr()));
        done(reshard_layout_set_strides(made[1].0, 2, [400, 1].as_ptr()));
        done(reshard_layout_set_strides_of(made[1].0, 5, 2, [1, 600].as_ptr()));
        done(reshard_layout_locate(made[1].0, 2, index.as_ptr(), &raw mut rank, &raw mut address));
        assert_eq!((rank, address), (5, 69 + 3 * 600));
        done(reshard_layout_span(made[1].0, 9, &raw mut elements));
        done(reshard_layout_locate(made[1].0, 2, [0, 0].as_ptr(), &raw mut rank, &raw mut address));
        // Column 1 of the grid is first: the third rank, counted by columns of two.
        assert_eq!((rank, address), (7, 0));
    }
}

#[test]
fn wrong_layouts_are_refused() {
    let one = layout("2x2/3x3 of 10x10");
    let (three, mut made, mut number) = ([1_u64; 3], null_mut(), 0);
    // SAFETY: objects that live, lists as long as the function reads them before it refuses, and places.
    unsafe {
        let made = &raw mut made;
        refused(
            reshard_layout_parse(null(), made),
            RESHARD_ERROR_ARGUMENT,
            "`notation` was given as a null pointer",
        );
        refused(reshard_layout_parse(c"2/3 of 5".as_ptr(), null_mut()), RESHARD_ERROR_ARGUMENT, "`layout`");
        refused(reshard_layout_parse(c"2/3\xff".as_ptr(), made), RESHARD_ERROR_ARGUMENT, "not UTF-8");
        refused(reshard_layout_parse(c"2/3y of 5".as_ptr(), made), RESHARD_ERROR_NOTATION, "character 4");
        refused(
            reshard_layout_parse(c"1/9999999999999999999 of 5".as_ptr(), made),
            RESHARD_ERROR_TOO_LARGE,
            "2^62",
        );
        let over = |text: &CStr, dims| reshard_layout_parse_over(text.as_ptr(), dims, three.as_ptr(), made);
        refused(over(c"2/3", 0), RESHARD_ERROR_MISMATCH, "0 dimensions were given; arrays have 1 to 8");
        refused(over(c"2/3", 9), RESHARD_ERROR_MISMATCH, "9 dimensions");
        refused(over(c"2/3", 2), RESHARD_ERROR_MISMATCH, "dimension");
        refused(over(c"2/3 of 5", 1), RESHARD_ERROR_NOTATION, "character");
        refused(
            reshard_layout_parse_over(c"2/3".as_ptr(), 1, null(), made),
            RESHARD_ERROR_ARGUMENT,
            "`shape` was given as a null pointer, and 1 value",
        );
        let cyclic = |blocks, ranks, memory| {
            let (list, first) = (three.as_ptr(), null());
            reshard_layout_block_cyclic(2, list, list, blocks, first, ranks, memory, made)
        };
        let all = three.as_ptr();
        refused(cyclic(null(), 1, 1), RESHARD_ERROR_ARGUMENT, "`blocks`");
        refused(cyclic(all, 0, 1), RESHARD_ERROR_ARGUMENT, "`rank_order` is 0; give RESHARD_ROW_MAJOR (1)");
        refused(cyclic(all, 1, 3), RESHARD_ERROR_ARGUMENT, "`memory_order` is 3");
        let descriptor =
            |numbers: *const i32| reshard_layout_from_descriptor(numbers, 2, 2, RESHARD_ROW_MAJOR, 0, made);
        refused(descriptor(null()), RESHARD_ERROR_ARGUMENT, "`descriptor`");
        refused(descriptor([501, 0, 9, 9, 3, 3, 0, 0, 9].as_ptr()), RESHARD_ERROR_UNSUPPORTED, "type 501");
        refused(descriptor([1, 0, 9, 9, 3, 3, 0, -1, 9].as_ptr()), RESHARD_ERROR_OUT_OF_RANGE, "CSRC");
        refused(descriptor([1, 0, 9, 9, 3, 3, 0, 0, 2].as_ptr()), RESHARD_ERROR_MISMATCH, "stride");
        // What failed made nothing.
        assert!((*made).is_null());

        refused(reshard_layout_set_ranks(one.0, 3, all), RESHARD_ERROR_MISMATCH, "3 ranks were listed");
        refused(reshard_layout_set_ranks(null_mut(), 3, all), RESHARD_ERROR_ARGUMENT, "`layout`");
        refused(
            reshard_layout_set_strides(one.0, 3, all),
            RESHARD_ERROR_MISMATCH,
            "`strides` was given with 3 numbers, and the array has 2 dimensions",
        );
        refused(reshard_layout_set_strides(one.0, 2, all), RESHARD_ERROR_MISMATCH, "at one address");
        refused(reshard_layout_set_strides_of(one.0, 4, 2, all), RESHARD_ERROR_OUT_OF_RANGE, "rank 4");
        refused(reshard_layout_dims(one.0, null_mut()), RESHARD_ERROR_ARGUMENT, "`dims`");
        let mut text = [0; 8];
        refused(
            reshard_layout_print(one.0, text.as_mut_ptr(), 8),
            RESHARD_ERROR_MISMATCH,
            "8 bytes were given for a text of 17",
        );
        refused(reshard_layout_shape(one.0, 1, &raw mut number), RESHARD_ERROR_MISMATCH, "1 number,");
        refused(reshard_layout_local_shape(one.0, 4, 2, null_mut()), RESHARD_ERROR_OUT_OF_RANGE, "rank 4");
        let (rank, address) = (&raw mut number, &mut 0);
        refused(reshard_layout_locate(one.0, 2, null(), rank, address), RESHARD_ERROR_ARGUMENT, "`index`");
        refused(
            reshard_layout_locate(one.0, 2, [10, 0].as_ptr(), rank, address),
            RESHARD_ERROR_OUT_OF_RANGE,
            "10",
        );
    }
}

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

/// MPI is not there, or has not begun: an error, not the end of the program.
#[test]
fn communicators_need_mpi() {
    let (one, mut made) = (plan(&[DEALT]), null_mut());
    // SAFETY: objects that live; of the handle nothing is used before MPI has begun.
    let code = unsafe { reshard_engine_fortran(one.0, 0, null(), &raw mut made) };
    refused(code, RESHARD_ERROR_EXTERNAL, "MPI");
    assert!(made.is_null());
}

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
        for process in 0..4 {
            done(reshard_ring_room(ring.0, process as u64, &raw mut rooms[process]));
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
        refused(ring(&good, c"ordered=yes"), RESHARD_ERROR_NOTATION, "is no option");
        refused(reshard_ring_threads(null(), null(), &raw mut made), RESHARD_ERROR_ARGUMENT, "`loads`");
        refused(reshard_ring_threads(&raw const good, null(), null_mut()), RESHARD_ERROR_ARGUMENT, "`ring`");
        refused(reshard_ring_room(null(), 0, &mut 0), RESHARD_ERROR_ARGUMENT, "`ring`");
        refused(reshard_ring_run(null_mut(), null(), 0), RESHARD_ERROR_ARGUMENT, "`ring`");
        assert!(made.is_null());
    }
}
