//! Sets converted from any layout to any other, in boxes of all sizes, and every element of what comes out.

use crate::folder::{Folder, random_layout};
use reshard::Layout;
use reshard_shards::{ConvertOptions, Format, ShardSet, convert, make};
use reshard_testkit::Random;
use std::path::PathBuf;

#[test]
fn every_element_of_random_conversions() {
    let folder = Folder::new("random");
    let mut random = Random::new(11);
    for case in 0..150 {
        let dims = random.within(1, 3) as usize;
        let shape: Vec<u64> = (0..dims).map(|_| random.within(1, 40)).collect();
        let element = ["f64", "u8", "c64", "bytes(3)"][random.within(0, 3) as usize].parse().unwrap();
        let format = |random: &mut Random| [Format::Npy, Format::Raw][random.within(0, 1) as usize];
        let from = random_layout(&mut random, &shape);
        let [made, converted] = ["made", "converted"].map(|name| folder.0.join(format!("{name}{case}")));
        make(&made, &from, element, format(&mut random), case, |_, _| {}).unwrap();
        let mut axes: Vec<usize> = (0..dims).collect();
        if random.within(0, 2) == 0 {
            axes.rotate_left(random.within(0, 2) as usize % dims);
        }
        let turned: Vec<u64> = axes.iter().map(|&axis| shape[axis]).collect();
        let to = random_layout(&mut random, &turned);
        let options = ConvertOptions::default()
            .with_axes(&axes)
            .with_format(format(&mut random))
            .with_threads(random.within(1, 3) as usize)
            .with_box_bytes(random.within(16, 4000));
        let set = ShardSet::open(&made).unwrap();
        convert(&set, &converted, &to, &options, |_, _| {})
            .unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
        let set = ShardSet::open(&converted).unwrap();
        assert_eq!(set.layout(), &to);
        let verified = set.verify(|_, _| {}).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
        let elements = shape.iter().product::<u64>() * to.distribution().copies();
        assert_eq!(verified.elements, elements, "{from} to {to}");
        assert_eq!(verified.files, to.distribution().grid().size());
        for path in [made, converted] {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn what_was_changed_is_noticed() {
    let folder = Folder::new("changed");
    let (from, to): (Layout, Layout) =
        ("2x2/8x8 of 60x50".parse().unwrap(), "3x1/7x9 of 60x50".parse().unwrap());
    let made = folder.0.join("made");
    make(&made, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let file = made.join("rank_0001.npy");
    let good = std::fs::read(&file).unwrap();
    let mut random = Random::new(2);
    for trial in 0..200 {
        let mut bad = good.clone();
        let at = random.within(0, bad.len() as u64 - 1) as usize;
        bad[at] ^= 1 << random.within(0, 7);
        std::fs::write(&file, &bad).unwrap();
        let converted = folder.0.join(format!("converted{trial}"));
        let noticed = ShardSet::open(&made).and_then(|set| {
            assert!(set.verify(|_, _| {}).is_err(), "byte {at}");
            convert(&set, &converted, &to, &ConvertOptions::default(), |_, _| {})
        });
        assert!(noticed.is_err(), "byte {at}");
        assert!(!converted.exists());
    }
    std::fs::write(&file, &good).unwrap();
    std::fs::remove_file(made.join("rank_0002.npy")).unwrap();
    let said = ShardSet::open(&made).err().unwrap().to_string();
    assert!(said.contains("rank_0002.npy"), "{said}");
}

#[test]
fn a_destination_is_never_replaced_nor_in_the_source() {
    let folder = Folder::new("replaced");
    let layout: Layout = "2x2/8x8 of 60x50".parse().unwrap();
    let made = folder.0.join("made");
    let element = "i32".parse().unwrap();
    make(&made, &layout, element, Format::Npy, 1, |_, _| {}).unwrap();
    let set = ShardSet::open(&made).unwrap();
    let refused = |destination: PathBuf| {
        convert(&set, destination, &layout, &ConvertOptions::default(), |_, _| {}).unwrap_err().to_string()
    };
    let said = refused(made.clone());
    assert!(said.contains("lies in the source"), "{said}");
    let said = refused(made.join("new"));
    assert!(said.contains("lies in the source"), "{said}");
    let said = refused(folder.0.join("no/such"));
    assert!(said.contains("make it first"), "{said}");
    let there = folder.0.join("there");
    std::fs::create_dir(&there).unwrap();
    let said = refused(there);
    assert!(said.contains("exists already"), "{said}");
    let said = make(&made, &layout, element, Format::Npy, 1, |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("exists already"), "{said}");
}

#[test]
fn a_run_that_was_interrupted_is_continued() {
    let folder = Folder::new("interrupted");
    let (from, to): (Layout, Layout) =
        ("2x2/8x8 of 60x50".parse().unwrap(), "3x1/7x9 of 60x50".parse().unwrap());
    let [made, expected] = ["made", "expected"].map(|name| folder.0.join(name));
    make(&made, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let set = ShardSet::open(&made).unwrap();
    let options = ConvertOptions::default().with_box_bytes(60 * 8 * 7);
    let boxes = convert(&set, &expected, &to, &options, |_, _| {}).unwrap().boxes;
    assert!(boxes > 5);
    for last in 1..=boxes {
        let destination = folder.0.join(format!("destination{last}"));
        let interrupted = std::panic::catch_unwind(|| {
            let mut number = 0;
            convert(&set, &destination, &to, &options, |_, _| {
                number += 1;
                assert!(number < last, "interrupted");
            })
        });
        assert!(interrupted.is_err() && !destination.exists());
        let again = convert(&set, &destination, &to, &options, |_, _| {}).unwrap_err().to_string();
        assert!(again.contains("--resume"), "{again}");
        let other = "3x1/7x8 of 60x50".parse().unwrap();
        let refused = convert(&set, &destination, &other, &options.clone().resuming(true), |_, _| {});
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("was another"), "{said}");
        let done = convert(&set, &destination, &to, &options.clone().resuming(true), |_, _| {}).unwrap();
        assert_eq!(done.resumed, last.min(boxes - 1));
        let names = |path: &PathBuf| {
            let mut names: Vec<_> =
                path.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&destination), names(&expected));
        for name in names(&expected) {
            assert_eq!(
                std::fs::read(destination.join(&name)).unwrap(),
                std::fs::read(expected.join(&name)).unwrap()
            );
        }
    }
}

#[test]
fn checksums_can_be_left_out() {
    let folder = Folder::new("unchecked");
    let (from, to): (Layout, Layout) =
        ("2x2/8x8 of 60x50".parse().unwrap(), "3x1/7x9 of 60x50".parse().unwrap());
    let [made, checked, unchecked] = ["made", "checked", "unchecked"].map(|name| folder.0.join(name));
    make(&made, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let set = ShardSet::open(&made).unwrap();
    convert(&set, &checked, &to, &ConvertOptions::default(), |_, _| {}).unwrap();
    let options = ConvertOptions::default().without_checksums();
    assert_eq!(convert(&set, &unchecked, &to, &options, |_, _| {}).unwrap().reread_bytes, 0);
    let found = ShardSet::open(&unchecked).unwrap().verify(|_, _| {}).unwrap();
    assert_eq!((found.files, found.elements), (0, 60 * 50));
    for name in ["rank_0000.npy", "rank_0001.npy", "rank_0002.npy"] {
        let [one, other] = [&checked, &unchecked].map(|path| std::fs::read(path.join(name)).unwrap());
        assert!(one == other, "{name}");
    }
    // Such a set is converted like any other, and what comes of it has checksums again.
    let again = folder.0.join("again");
    convert(&ShardSet::open(&unchecked).unwrap(), &again, &from, &ConvertOptions::default(), |_, _| {})
        .unwrap();
    let verified = ShardSet::open(&again).unwrap().verify(|_, _| {}).unwrap();
    assert_eq!((verified.files, verified.elements), (4, 60 * 50));
}

#[test]
fn one_file_is_written_alone() {
    let folder = Folder::new("alone");
    let (from, to): (Layout, Layout) =
        ("2x2/8x8 of 60x50".parse().unwrap(), "1x1/60x50 of 60x50".parse().unwrap());
    let [made, set] = ["made", "set"].map(|name| folder.0.join(name));
    make(&made, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let source = ShardSet::open(&made).unwrap();
    convert(&source, &set, &to, &ConvertOptions::default(), |_, _| {}).unwrap();
    let expected = std::fs::read(set.join("rank_0000.npy")).unwrap();
    let options = ConvertOptions::default().with_box_bytes(60 * 8 * 7).as_one_file();
    let file = folder.0.join("whole {all}.npy");
    // Interrupted, and continued.
    let interrupted = std::panic::catch_unwind(|| {
        let mut boxes = 0;
        convert(&source, &file, &to, &options, |_, _| {
            boxes += 1;
            assert!(boxes < 3, "interrupted");
        })
    });
    assert!(interrupted.is_err() && !file.exists());
    let options = options.resuming(true);
    assert!(convert(&source, &file, &to, &options, |_, _| {}).unwrap().resumed > 0);
    assert!(std::fs::read(&file).unwrap() == expected);
    // A file that is there stays as it is, also one that nobody of us wrote.
    std::fs::write(&file, b"mine").unwrap();
    let said = convert(&source, &file, &to, &options, |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let mut left: Vec<_> = folder.0.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["made", "set", "whole {all}.npy"]);
    let said = convert(&source, folder.0.join("x.npy"), &from, &options, |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("one file was to be written"), "{said}");
}

#[test]
fn no_name_of_a_file_is_in_the_way() {
    let folder = Folder::new("names");
    let layout: Layout = "1x1/60x50 of 60x50".parse().unwrap();
    let [made, new] = ["made", "new"].map(|name| folder.0.join(name));
    make(&made, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let options = ConvertOptions::default().with_names("reshard.json.new").with_format(Format::Raw);
    convert(&ShardSet::open(&made).unwrap(), &new, &layout, &options, |_, _| {}).unwrap();
    assert_eq!(ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap().elements, 60 * 50);
}
