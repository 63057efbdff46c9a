//! Layouts: the same by notation, numbers and descriptor, and what is refused.

use super::*;

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
fn a_leading_dimension_stays_with_its_process() {
    let descriptor = [1, 0, 100, 80, 10, 10, 0, 0, 77];
    // The rank as it is in the grid, and as it will be in the communicator.
    for rank in [1, 5] {
        let mut made = null_mut();
        // SAFETY: lists of as many numbers as are said, and places.
        unsafe {
            let order = RESHARD_ROW_MAJOR;
            done(reshard_layout_from_descriptor(descriptor.as_ptr(), 2, 2, order, rank, &raw mut made));
            let made = Owned(made, reshard_layout_free);
            done(reshard_layout_set_ranks(made.0, 4, [4, 5, 6, 7].as_ptr()));
            let mut strides = [0; 2];
            let mut of = |rank| {
                done(reshard_layout_strides(made.0, rank, 2, strides.as_mut_ptr()));
                strides
            };
            assert_eq!([of(5), of(4)], [[1, 77], [1, 50]]);
            // Of every rank, whatever one was given before.
            done(reshard_layout_set_strides(made.0, 2, [1, 60].as_ptr()));
            assert_eq!([of(5), of(4)], [[1, 60], [1, 60]]);
        }
    }
}

#[test]
fn wrong_layouts_are_refused() {
    let one = layout("2x2/3x3 of 10x10");
    // A caller's place may hold anything.
    let (three, mut made, mut number) = ([1_u64; 3], std::ptr::dangling_mut(), 0);
    // SAFETY: objects that live, lists as long as the function reads them before it refuses, and places.
    unsafe {
        let made = &raw mut made;
        refused(
            reshard_layout_parse(null(), made),
            RESHARD_ERROR_ARGUMENT,
            "`notation` was given as a null pointer",
        );
        assert!((*made).is_null());
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
            "`shape` was given as a null pointer, and must have 1 value",
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
