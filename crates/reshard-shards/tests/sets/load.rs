//! One rank's part read out of a set that was written under another layout: every element, what is read for it, and what is refused.

use crate::folder::{Folder, random_layout};
use reshard::Layout;
use reshard_shards::{Format, ShardSet, make};
use reshard_testkit::Random;

/// The whole array of a seed, its last index fastest, from a set of one file.
fn whole(folder: &Folder, shape: &[u64], element: &str, seed: u64) -> Vec<u8> {
    let by_x = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let text = format!("{}/{} of {} memory=row", by_x(&vec![1; shape.len()]), by_x(shape), by_x(shape));
    let path = folder.0.join("whole");
    make(&path, &text.parse().unwrap(), element.parse().unwrap(), Format::Raw, seed, |_, _| {}).unwrap();
    let bytes = std::fs::read(path.join("rank_0000.bin")).unwrap();
    std::fs::remove_dir_all(path).unwrap();
    bytes
}

#[test]
fn each_rank_gets_its_part_and_nothing_else_is_written() {
    let folder = Folder::new("load");
    let mut random = Random::new(21);
    for case in 0..150 {
        let dims = random.within(1, 4) as usize;
        let shape: Vec<u64> = (0..dims).map(|_| random.within(1, 30)).collect();
        let element = ["f64", "u8", "c64", "bytes(3)"][random.within(0, 3) as usize];
        let elem = element.parse::<reshard::ElementType>().unwrap().bytes() as usize;
        let (from, mut to) = (random_layout(&mut random, &shape), random_layout(&mut random, &shape));
        let path = folder.0.join("set");
        let format = [Format::Npy, Format::Raw][random.within(0, 1) as usize];
        make(&path, &from, element.parse().unwrap(), format, case, |_, _| {}).unwrap();
        let all = whole(&folder, &shape, element, case);
        if random.within(0, 1) == 0 {
            // Room between the rows of parts, which must stay as it is.
            let most: Vec<u64> =
                to.distribution().axes().iter().map(reshard::axis::Axis::max_local_len).collect();
            let wider: Vec<u64> = most.iter().map(|length| length + random.within(0, 3)).collect();
            to = to.with_allocated(&wider).unwrap();
        }
        let set = ShardSet::open(&path).unwrap();
        for rank in to.distribution().grid().sorted_ranks() {
            let span = to.span(rank).unwrap() as usize;
            let mut part = vec![0xa5; span * elem];
            let loaded = set.load_bytes_as(&to, rank, &mut part).unwrap();
            let shape_here = to.distribution().local_shape(rank).unwrap();
            let count: u64 = shape_here.iter().product();
            assert_eq!(loaded.bytes, count * elem as u64);
            let mut expected = vec![0xa5; span * elem];
            for number in 0..count {
                let mut rest = number;
                let mut local = vec![0; dims];
                for dim in (0..dims).rev() {
                    local[dim] = rest % shape_here[dim];
                    rest /= shape_here[dim];
                }
                let global = to.distribution().global_from_local(rank, &local).unwrap();
                let there = global.iter().zip(&shape).fold(0, |at, (index, length)| at * length + index);
                let here = to.address(rank, &local).unwrap() as usize;
                expected[here * elem..][..elem].copy_from_slice(&all[there as usize * elem..][..elem]);
            }
            assert!(part == expected, "{from} to {to}, rank {rank}");
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn little_is_read_that_nobody_asked_for() {
    let folder = Folder::new("load-amount");
    // Pieces of 4 KiB and more, on both sides: at most a tenth is read along.
    for (number, (from, to)) in [
        ("4x4/512x512 of 2000x3000", "3x3/512x512 of 2000x3000"),
        ("4x1/100x3000 of 2000x3000 memory=row", "1x3/2000x700 of 2000x3000 memory=row"),
        ("1x16/2000x10 of 2000x3000", "1x9/2000x7 of 2000x3000"),
        ("2x2/1024x600 of 2000x3000", "3x3/600x1024 of 2000x3000 memory=row"),
    ]
    .into_iter()
    .enumerate()
    {
        let (from, to): (Layout, Layout) = (from.parse().unwrap(), to.parse().unwrap());
        let path = folder.0.join(format!("set{number}"));
        make(&path, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
        let set = ShardSet::open(&path).unwrap();
        for rank in to.distribution().grid().sorted_ranks() {
            let mut part = to.allocate::<f64>(rank).unwrap();
            let loaded = set.load_as(&to, rank, &mut part).unwrap();
            assert!(10 * loaded.read_bytes <= 11 * loaded.bytes, "{from} to {to}, rank {rank}: {loaded:?}");
        }
    }
}

#[test]
fn blocks_that_are_read_whole_are_checked() {
    let folder = Folder::new("load-checked");
    let (from, to): (Layout, Layout) =
        ("4x1/300x2000 of 1200x2000".parse().unwrap(), "1x2/1200x1000 of 1200x2000".parse().unwrap());
    let path = folder.0.join("set");
    make(&path, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let mut part = to.allocate::<f64>(0).unwrap();
    let loaded = ShardSet::open(&path).unwrap().load_as(&to, 0, &mut part).unwrap();
    assert!(loaded.checked_bytes >= 1 << 20 && loaded.checked_bytes <= loaded.read_bytes, "{loaded:?}");
    let file = path.join("rank_0001.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[(1 << 20) + 17] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let error = ShardSet::open(&path).unwrap().load_as(&to, 0, &mut part).unwrap_err().to_string();
    assert!(error.contains("rank_0001.npy") && error.contains("bytes 1048576 to 2097151"), "{error}");
}

/// Whatever bit of what is read was flipped, and however short the pieces are.
#[test]
fn whole_blocks_leave_nothing_unchecked() {
    let folder = Folder::new("load-whole");
    let mut random = Random::new(41);
    for case in 0..12 {
        let (from, to): (Layout, Layout) = [
            ("2x2/7x9 of 700x900", "3x1/5x900 of 700x900 memory=row"),
            ("3x1/1x900 of 700x900 memory=row", "1x3/700x2 of 700x900 memory=row"),
            ("1x1/700x900 of 700x900", "2x2/350x450 of 700x900"),
        ]
        .map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()))[case % 3]
            .clone();
        let path = folder.0.join("set");
        make(&path, &from, "f64".parse().unwrap(), Format::Npy, case as u64, |_, _| {}).unwrap();
        let (mut part, mut whole) = (to.allocate::<f64>(1).unwrap(), to.allocate::<f64>(1).unwrap());
        let loaded = ShardSet::open(&path).unwrap().load_as(&to, 1, &mut part).unwrap();
        assert_eq!(loaded.unchecked_bytes, loaded.read_bytes - loaded.checked_bytes, "{loaded:?}");
        let set = ShardSet::open(&path).unwrap().with_whole_blocks(true);
        let loaded = set.load_as(&to, 1, &mut whole).unwrap();
        assert!(part == whole && loaded.unchecked_bytes == 0 && loaded.checked_bytes > 0, "{loaded:?}");
        let name = format!("rank_{:04}.npy", random.within(0, set.names().count() as u64 - 1));
        let mut bytes = std::fs::read(path.join(&name)).unwrap();
        let bit = random.within(8 * 200, 8 * bytes.len() as u64 - 1) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(path.join(&name), bytes).unwrap();
        match set.load_as(&to, 1, &mut whole) {
            Err(error) => assert!(error.to_string().contains(&name), "{error}"),
            // No block with that bit was asked for.
            Ok(loaded) => assert!(part == whole && loaded.unchecked_bytes == 0, "{loaded:?}"),
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = Folder::new("load-refused");
    let path = folder.0.join("set");
    make(&path, &"2x2/8x8 of 60x50".parse().unwrap(), "f64".parse().unwrap(), Format::Npy, 1, |_, _| {})
        .unwrap();
    let set = ShardSet::open(&path).unwrap();
    let to: Layout = "3x1/7x50 of 60x50".parse().unwrap();
    let mut part = to.allocate::<f64>(0).unwrap();
    let said =
        |result: reshard::Result<_>| result.map(|_: reshard_shards::Loaded| ()).unwrap_err().to_string();
    let sentence = said(set.load_as(&to, 0, &mut part[1..]));
    assert!(sentence.contains("memory for"), "{sentence}");
    let sentence = said(set.load_as::<f32>(&to, 0, &mut []));
    assert!(sentence.contains("type f64"), "{sentence}");
    let sentence = said(set.load_as(&to, 3, &mut part));
    assert!(sentence.contains("rank 3"), "{sentence}");
    let other: Layout = "3x1/7x50 of 50x60".parse().unwrap();
    let sentence = said(set.load_as(&other, 0, &mut part));
    assert!(sentence.contains("give one of its shape"), "{sentence}");
}
