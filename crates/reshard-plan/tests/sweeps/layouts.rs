//! Layouts: what prints parses back, parts are filled and read by value, descriptors say what ScaLAPACK means by them.

#![allow(clippy::unwrap_used)]

use reshard_plan::notation::parse_pattern;
use reshard_plan::{Distribution, ErrorKind, Grid, Layout, MemoryOrder, Pattern};
use reshard_testkit::{Random, random_deal};

fn layout(text: &str) -> Layout {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Some layout of an array of up to three dimensions, perhaps padded, on ranks that are not always consecutive.
fn any_layout(random: &mut Random) -> Layout {
    let dims = random.within(1, 3) as usize;
    let shape: Vec<u64> = (0..dims).map(|_| random.within(0, 12)).collect();
    let extents: Vec<u64> = shape.iter().map(|_| random.within(1, 3)).collect();
    let mut grid = Grid::new(&extents).unwrap();
    if random.one_in(3) {
        let ranks: Vec<u64> = (0..grid.size()).rev().map(|rank| 2 * rank + 1).collect();
        grid = grid.with_ranks(&ranks).unwrap();
    }
    let (deals, first) =
        shape.iter().zip(&extents).map(|(&len, &procs)| random_deal(random, len, procs)).unzip();
    let distribution = Pattern::new(grid, deals, first).unwrap().over(&shape).unwrap();
    let order = if random.one_in(2) { MemoryOrder::RowMajor } else { MemoryOrder::ColMajor };
    let most: Vec<u64> =
        distribution.axes().iter().map(|axis| axis.max_local_len() + random.within(0, 3)).collect();
    let layout = Layout::new(distribution, order);
    if random.one_in(2) { layout.with_allocated(&most).unwrap() } else { layout }
}

#[test]
fn what_a_layout_prints_parses_back() {
    let mut random = Random::new(1907);
    for _ in 0..2000 {
        let any = any_layout(&mut random);
        assert_eq!(layout(&any.to_string()), any, "{any}");
    }
    for (written, printed) in [
        ("2x2/64x64 of 128x128", "2x2/64x64 of 128x128"),
        ("2x2/64x64 of 128x128 memory=col", "2x2/64x64 of 128x128"),
        ("2x2/64x64 memory=row of 128x128", "2x2/64x64 of 128x128 memory=row"),
        ("2x2/64x64 of 128x128 strides=1x70 MEMORY = ROW", "2x2/64x64 of 128x128 memory=row strides=1x70"),
        ("2x2/64x64 order=col of 128x128", "2x2/64x64 rank-order=col of 128x128"),
    ] {
        assert_eq!(layout(written).to_string(), printed);
    }
}

#[test]
fn mistakes_in_a_layout_are_named_at_their_character() {
    for (text, character, what) in [
        ("2x2/64x64", 10, "\"of\" and the shape"),
        ("2x2/64x64 of 128x128 memory=up", 29, "row or col"),
        ("2x2/64x64 memory=row of 128x128 memory=row", 33, "given twice"),
        ("2x2/64x64 of 128x128 first=1x1", 22, "memory=, strides= or the end"),
        ("2x2/64x64 of 128x128 strides=1x1", 22, "at one address"),
        ("2x2/64x64 of 128x128 strides=1", 22, "1 stride was given for 2 dimensions"),
    ] {
        let error = text.parse::<Layout>().unwrap_err();
        assert_eq!(error.position().map(|at| at + 1), Some(character), "{text}: {error}");
        assert!(error.to_string().contains(what), "{text}: {error}");
    }
    let error = "2x2/64x64 memory=row of 128x128".parse::<Distribution>().unwrap_err();
    assert!(error.to_string().contains("which does not matter here; leave it out"), "{error}");
    assert_eq!(error.position(), Some(10));
    assert!("2x2/64x64 strides=1x64".parse::<Pattern>().is_err());
    let (pattern, order) = parse_pattern("2x2/64x64 memory=row").unwrap();
    assert_eq!((pattern.to_string().as_str(), order), ("2x2/64x64", Some(MemoryOrder::RowMajor)));
    assert_eq!(parse_pattern("4/2").unwrap().1, None);
    let said = parse_pattern("4/2 strides=1").unwrap_err().to_string();
    assert!(said.contains("shape of the array"), "{said}");
}

/// Elements asked one by one for their owner and address.
#[test]
fn parts_are_filled_and_read_by_value() {
    let mut random = Random::new(42);
    for _ in 0..500 {
        let layout = any_layout(&mut random);
        let shape = layout.distribution().shape();
        let number =
            |index: &[u64]| 1 + index.iter().zip(&shape).fold(0, |at, (index, extent)| at * extent + index);
        let parts = layout.parts(number).unwrap();
        let ranks = layout.distribution().grid().sorted_ranks();
        let mut expected: Vec<Vec<u64>> =
            ranks.iter().map(|&rank| vec![0; layout.span(rank).unwrap() as usize]).collect();
        let elems = layout.distribution().elems();
        for flat in 0..elems {
            let mut rest = flat;
            let mut index = vec![0; shape.len()];
            for dim in (0..shape.len()).rev() {
                index[dim] = rest % shape[dim];
                rest /= shape[dim];
            }
            let (first, at) = layout.locate(&index).unwrap();
            let owners = layout.distribution().owners(&index).unwrap();
            assert_eq!((owners.len() as u64, owners[0]), (layout.distribution().copies(), first));
            // Copies may have strides of their own.
            let local = layout.distribution().local_from_global(&index).unwrap().1;
            assert_eq!(layout.address(first, &local).unwrap(), at);
            for rank in owners {
                let position = ranks.iter().position(|&other| other == rank).unwrap();
                expected[position][layout.address(rank, &local).unwrap() as usize] = flat + 1;
            }
            assert_eq!(*layout.get(&parts, &index).unwrap(), flat + 1, "{layout} {index:?}");
        }
        // Padding is nobody's and stays 0.
        assert_eq!(parts, expected, "{layout}");
    }
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let layout = layout("2x2/3x3 of 10x10");
    let error = layout.fill(0, &mut [0; 35], |_| 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "35 elements of memory were given for the part of rank 0, which reaches over 36"
    );
    assert_eq!(layout.allocate::<u8>(4).unwrap_err().kind(), ErrorKind::OutOfRange);
    let parts = vec![vec![0; 36], vec![0; 24]];
    assert!(layout.get(&parts, &[8, 8]).is_ok());
    assert_eq!(layout.get(&parts, &[3, 0]).unwrap_err().kind(), ErrorKind::Mismatch);
    assert_eq!(layout.get(&parts, &[10, 0]).unwrap_err().kind(), ErrorKind::OutOfRange);
    let many: Layout = "1000000000000/1 of 10".parse().unwrap();
    assert_eq!(many.parts(|_| 0).unwrap_err().kind(), ErrorKind::Memory);
    let huge: Layout = "1/1 of 4611686018427387904".parse().unwrap();
    assert!(matches!(huge.allocate::<u64>(0).unwrap_err().kind(), ErrorKind::Memory | ErrorKind::TooLarge));
}

#[test]
fn descriptors() {
    let grid = Grid::new(&[2, 3]).unwrap();
    let descriptor = [1, 0, 1000, 800, 64, 32, 1, 2, 520];
    let from = Layout::from_descriptor(&descriptor, grid.clone(), 4).unwrap();
    let same = layout("2x3/64x32 first=1x2 of 1000x800");
    assert_eq!(from.distribution(), same.distribution());
    // Rank 4 has the leading dimension of its descriptor, the others are not known.
    assert_eq!(
        (from.strides(4).unwrap(), from.strides(0).unwrap()),
        (vec![1, 520], same.strides(0).unwrap())
    );
    // A process outside of the grid has a descriptor, too.
    assert!(Layout::from_descriptor(&descriptor, grid.clone(), 6).is_ok());
    let wrong = |at: usize, value: i32| {
        let mut descriptor = descriptor;
        descriptor[at] = value;
        Layout::from_descriptor(&descriptor, grid.clone(), 4).unwrap_err().to_string()
    };
    assert_eq!(
        wrong(0, 501),
        "a descriptor of type 501 was given; only type 1, a dense block-cyclic matrix, has a layout"
    );
    assert_eq!(wrong(2, -1), "M of the descriptor is -1; it cannot be negative");
    assert!(wrong(4, 0).contains("block"), "{}", wrong(4, 0));
    assert!(wrong(6, 2).contains("between 0 and 1"), "{}", wrong(6, 2));
    assert!(wrong(8, 3).contains("at one address"), "{}", wrong(8, 3));
}
