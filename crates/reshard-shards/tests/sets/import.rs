//! Files without a manifest: what is taken from their headers, and that what is said twice must agree.

use crate::folder::{Folder, random_layout};
use reshard::{Layout, MemoryOrder};
use reshard_shards::{ConvertOptions, Format, Import, Npy, ShardSet, convert, make};
use reshard_testkit::Random;

#[test]
fn what_was_written_is_found_again() {
    let folder = Folder::new("import");
    let mut random = Random::new(31);
    for case in 0..100 {
        let dims = random.within(1, 3) as usize;
        let shape: Vec<u64> = (0..dims).map(|_| random.within(1, 30)).collect();
        let element: reshard::ElementType =
            ["f64", "u8", "c64", "bf16"][random.within(0, 3) as usize].parse().unwrap();
        let (from, to) = (random_layout(&mut random, &shape), random_layout(&mut random, &shape));
        let format = [Format::Npy, Format::Raw][random.within(0, 1) as usize];
        let path = folder.0.join("set");
        make(&path, &from, element, format, case, |_, _| {}).unwrap();
        let mut import = Import::default().with_layout(from.distribution().pattern());
        if format == Format::Raw {
            import = import.with_shape(&shape).with_order(from.order());
        }
        if format == Format::Raw || element.name() == Some("bf16") {
            import = import.with_element(element);
        }
        let set = ShardSet::import(path.join(format.default_names()), &import).unwrap();
        assert_eq!((set.layout().distribution(), set.element()), (from.distribution(), element));
        let files = ["one", "other"].map(|name| folder.0.join(name));
        for (set, path) in [&set, &ShardSet::open(&path).unwrap()].into_iter().zip(&files) {
            convert(set, path, &to, &ConvertOptions::default().with_box_bytes(500), |_, _| {}).unwrap();
        }
        for rank in to.distribution().grid().sorted_ranks() {
            let name = format!("rank_{rank:04}.npy");
            let [one, other] = [0, 1].map(|at| std::fs::read(files[at].join(&name)).unwrap());
            assert!(one == other, "{from} to {to}");
        }
        for path in files.iter().chain([&path]) {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn headers_must_agree() {
    let folder = Folder::new("import-headers");
    let write = |name: &str, npy: &Npy| {
        let mut bytes = npy.write();
        bytes.resize(npy.file_bytes() as usize, 7);
        std::fs::write(folder.0.join(name), bytes).unwrap();
    };
    let npy = |element: &str, fortran: bool, shape: [u64; 2]| {
        Npy::new(element.parse().unwrap(), fortran, shape.to_vec()).unwrap()
    };
    let import = Import::default().with_layout("2x1/5x4".parse().unwrap());
    let open = || ShardSet::import(folder.0.join("{rank}.npy"), &import);
    write("0.npy", &npy("f64", false, [5, 4]));
    for (second, expected) in [
        (npy("f64", true, [3, 4]), "is in Fortran order"),
        (npy("f32", false, [3, 4]), "has elements of type f32"),
        (npy("f64", false, [3, 5]), "has the shape 3x5"),
        (npy("f64", false, [6, 4]), "has the shape"),
    ] {
        write("1.npy", &second);
        let said = open().err().unwrap().to_string();
        assert!(said.contains(expected), "{said}");
    }
    // A part with one long dimension is in both orders, whatever its header says.
    write("1.npy", &npy("f64", true, [1, 4]));
    assert_eq!(open().unwrap().layout().order(), MemoryOrder::RowMajor);
    // A whole file and bytes behind its end.
    write("1.npy", &npy("f64", false, [3, 4]));
    assert_eq!(open().unwrap().layout().distribution().shape(), [8, 4]);
    let mut longer = std::fs::read(folder.0.join("1.npy")).unwrap();
    longer.push(0);
    std::fs::write(folder.0.join("1.npy"), longer).unwrap();
    let said = open().err().unwrap().to_string();
    assert!(said.contains("longer than it says"), "{said}");
}

#[test]
fn a_source_that_changed_is_not_continued() {
    let folder = Folder::new("import-changed");
    let path = folder.0.join("set");
    let layout: Layout = "2x2/8x8 of 60x50".parse().unwrap();
    make(&path, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let import = Import::default().with_layout(layout.distribution().pattern());
    let open = || ShardSet::import(path.join("rank_{rank:04}.npy"), &import).unwrap();
    let options = ConvertOptions::default().with_box_bytes(60 * 8 * 7);
    let destination = folder.0.join("new");
    let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
    let interrupted = std::panic::catch_unwind(|| {
        let mut boxes = 0;
        convert(&open(), &destination, &to, &options, |_, _| {
            boxes += 1;
            assert!(boxes < 3, "interrupted");
        })
    });
    assert!(interrupted.is_err() && !destination.exists());
    let options = options.resuming(true);
    // The same bytes, but written anew.
    let file = path.join("rank_0000.npy");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let said = convert(&open(), &destination, &to, &options, |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("was another"), "{said}");
}

#[test]
fn a_set_without_checksums_that_changed_is_not_continued() {
    let folder = Folder::new("unchecked-changed");
    let [made, unchecked, new] = ["made", "unchecked", "new"].map(|name| folder.0.join(name));
    let layout: Layout = "2x2/8x8 of 60x50".parse().unwrap();
    make(&made, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let bare = ConvertOptions::default().without_checksums();
    convert(&ShardSet::open(&made).unwrap(), &unchecked, &layout, &bare, |_, _| {}).unwrap();
    let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
    let begin = |options: &ConvertOptions| {
        let interrupted = std::panic::catch_unwind(|| {
            let mut boxes = 0;
            convert(&ShardSet::open(&unchecked).unwrap(), &new, &to, options, |_, _| {
                boxes += 1;
                assert!(boxes < 3, "interrupted");
            })
        });
        assert!(interrupted.is_err() && !new.exists());
    };
    let options = ConvertOptions::default().with_box_bytes(60 * 8 * 7);
    begin(&options);
    let resume = |options: &ConvertOptions| {
        let set = ShardSet::open(&unchecked).unwrap();
        convert(&set, &new, &to, &options.clone().resuming(true), |_, _| {}).map(|_| ())
    };
    // Neither with checksums what was begun without, nor the other way.
    let said = resume(&options.clone().without_checksums()).unwrap_err().to_string();
    assert!(said.contains("was another"), "{said}");
    let file = unchecked.join("rank_0003.npy");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let said = resume(&options).unwrap_err().to_string();
    assert!(said.contains("was another"), "{said}");
}

#[test]
fn an_array_without_elements_is_converted_however_long_it_is() {
    let folder = Folder::new("import-empty");
    let file = folder.0.join("empty.npy");
    let huge = 1 << 62;
    let npy = Npy::new("f64".parse().unwrap(), false, vec![0, huge, huge, huge]).unwrap();
    std::fs::write(&file, npy.write()).unwrap();
    let set = ShardSet::import(&file, &Import::default()).unwrap();
    let to: Layout = format!("2x1x1x1/1x1x1x1 of 0x{huge}x{huge}x{huge} memory=row").parse().unwrap();
    let new = folder.0.join("new");
    convert(&set, &new, &to, &ConvertOptions::default(), |_, _| {}).unwrap();
    ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap();
}

#[test]
fn no_file_of_the_pattern_is_left_out() {
    let folder = Folder::new("import-others");
    let set = folder.0.join("set");
    make(&set, &"4x1/2x6 of 8x6".parse().unwrap(), "f64".parse().unwrap(), Format::Npy, 1, |_, _| {})
        .unwrap();
    let files = set.join("rank_{rank:04}.npy");
    let of = |layout: &str| Import::default().with_layout(layout.parse().unwrap());
    let open = |import: &Import| ShardSet::import(&files, import);
    assert_eq!(open(&of("4x1/2x6")).unwrap().layout().distribution().shape(), [8, 6]);
    for (layout, expected) in [
        ("2x1/2x6", "rank_0002.npy is there, too, and the layout has ranks 0 and 1 only; give the layout"),
        ("3x1/2x6", "rank_0003.npy is there, too, and the layout has ranks 0 to 2 only"),
        ("1x1/2x6", "rank_0001.npy is there, too, and the layout has rank 0 only"),
    ] {
        let said = open(&of(layout)).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    // Whoever gives the shape says how much there is.
    open(&of("2x1/2x6").with_shape(&[4, 6])).unwrap();
}
