//! What others do while a set is converted.

use crate::folder::Folder;
use reshard::{Layout, Result};
use reshard_shards::{ConvertOptions, Converted, Format, Import, ShardSet, convert, make};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Converts a set box by box, in an order in which files are read at places, or one after the other; `event` happens after the first box.
fn disturbed(set: &ShardSet, new: &Path, at_places: bool, event: impl Fn()) -> Result<Converted> {
    let to: Layout =
        if at_places { "1x1/60x50 of 60x50 memory=row" } else { "3x1/7x9 of 60x50" }.parse().unwrap();
    let options = ConvertOptions::default().with_box_bytes(4000);
    let mut boxes = 0;
    let converted = convert(set, new, &to, &options, |_, _| {
        boxes += 1;
        if boxes == 1 {
            event();
        }
    });
    assert!(boxes >= 1, "{converted:?}");
    if let Ok(converted) = &converted {
        // What is written is read once, for its checksums, and nothing else.
        let written = new.read_dir().unwrap().map(|entry| entry.unwrap());
        let of_set = written.filter(|entry| !entry.file_name().to_string_lossy().ends_with(".json"));
        let bytes: u64 = of_set.map(|entry| entry.metadata().unwrap().len()).sum();
        assert_eq!(converted.reread_bytes, bytes, "{converted:?}");
    }
    converted
}

#[test]
fn a_source_that_changes_while_it_is_read_is_noticed() {
    let folder = Folder::new("changes");
    let layout: Layout = "1x8/9x2 of 60x50".parse().unwrap();
    let [made, new] = ["made", "new"].map(|name| folder.0.join(name));
    make(&made, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let path = made.join("rank_0003.npy");
    let bytes = std::fs::metadata(&path).unwrap().len();
    for at_places in [true, false] {
        let set = ShardSet::open(&made).unwrap();
        disturbed(&set, &new, at_places, || {}).unwrap();
        std::fs::remove_dir_all(&new).unwrap();
        // One element, near the end: no box has had it yet.
        let error = disturbed(&set, &new, at_places, || {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[255], bytes - 20).unwrap();
        });
        let said = error.unwrap_err().to_string();
        assert!(said.contains("rank_0003.npy") && said.contains("nothing is made of it"), "{said}");
        assert!(!new.exists() && folder.0.read_dir().unwrap().count() == 1, "at places: {at_places}");
        std::fs::remove_dir_all(&made).unwrap();
        make(&made, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    }
    // Another file under the same name is none of ours: the one that was opened is read to its end.
    let set = ShardSet::open(&made).unwrap();
    disturbed(&set, &new, true, || {
        std::fs::rename(&path, folder.0.join("elsewhere")).unwrap();
        std::fs::write(&path, b"other").unwrap();
    })
    .unwrap();
    assert_eq!(ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap().elements, 3000);
}

#[test]
fn a_destination_that_comes_from_elsewhere_is_not_replaced() {
    let folder = Folder::new("appears");
    let [made, new] = ["made", "new"].map(|name| folder.0.join(name));
    make(&made, &"2x2/8x8 of 60x50".parse().unwrap(), "f64".parse().unwrap(), Format::Npy, 1, |_, _| {})
        .unwrap();
    let set = ShardSet::open(&made).unwrap();
    for is_directory in [true, false] {
        let error = disturbed(&set, &new, false, || match is_directory {
            true => std::fs::create_dir(&new).unwrap(),
            false => std::fs::write(&new, b"precious").unwrap(),
        });
        let said = error.unwrap_err().to_string();
        assert!(said.contains("exists already") && said.contains(".new.reshard-partial"), "{said}");
        match is_directory {
            true => std::fs::remove_dir(&new).unwrap(),
            false => {
                assert_eq!(std::fs::read(&new).unwrap(), b"precious");
                std::fs::remove_file(&new).unwrap();
            }
        }
        // All is there but the name.
        let options = ConvertOptions::default().with_box_bytes(4000).resuming(true);
        let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
        let done = convert(&set, &new, &to, &options, |_, _| {}).unwrap();
        assert_eq!(done.resumed, done.boxes);
        ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap();
        std::fs::remove_dir_all(&new).unwrap();
    }
    // What is made can be made again: nothing of it is left.
    let created = || std::fs::create_dir(&new).unwrap();
    let layout = "2x2/8x8 of 60x50".parse().unwrap();
    let made = make(&new, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| created());
    let said = made.unwrap_err().to_string();
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(new.read_dir().unwrap().count(), 0);
    assert!(!folder.0.join(".new.reshard-partial").exists());
}

/// What a run has written is changed by somebody else until it is continued: whatever byte that is, nothing is made of it.
#[test]
fn what_is_changed_between_a_run_and_the_next_is_noticed() {
    let folder = Folder::new("between");
    let [made, new] = ["made", "new"].map(|name| folder.0.join(name));
    let (from, to): (Layout, [Layout; 2]) = (
        "2x2/8x8 of 60x50".parse().unwrap(),
        ["3x1/7x9 of 60x50", "3x2/7x9 of 60x50 memory=row"].map(|to| to.parse().unwrap()),
    );
    make(&made, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let set = ShardSet::open(&made).unwrap();
    let options = ConvertOptions::default().with_box_bytes(60 * 8 * 7);
    let partial = folder.0.join(".new.reshard-partial");
    let mut random = reshard_testkit::Random::new(6);
    let (mut noticed, mut harmless) = (0, 0);
    for trial in 0..120 {
        let to = &to[trial % 2];
        let last = random.within(2, 7);
        let interrupted = std::panic::catch_unwind(|| {
            let mut boxes = 0;
            convert(&set, &new, to, &options, |_, _| {
                boxes += 1;
                assert!(boxes < last, "interrupted");
            })
        });
        assert!(interrupted.is_err() && partial.is_dir(), "{interrupted:?}");
        let file = partial.join(format!("rank_{:04}.npy", random.within(0, 2)));
        let mut bytes = std::fs::read(&file).unwrap();
        let at = random.within(0, bytes.len() as u64 - 1) as usize;
        bytes[at] ^= 1 << random.within(0, 7);
        std::fs::write(&file, bytes).unwrap();
        match convert(&set, &new, to, &options.clone().resuming(true), |_, _| {}) {
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("was changed since the run that is to be continued"), "{said}");
                assert!(!new.exists() && partial.is_dir());
                std::fs::remove_dir_all(&partial).unwrap();
                noticed += 1;
            }
            // What was not done yet, and headers, are written once more.
            Ok(_) => {
                assert_eq!(ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap().elements, 60 * 50);
                std::fs::remove_dir_all(&new).unwrap();
                harmless += 1;
            }
        }
    }
    assert!(noticed > 20 && harmless > 5, "{noticed} noticed, {harmless} harmless");
    // All is there but the name.
    let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
    disturbed(&set, &new, false, || std::fs::create_dir(&new).unwrap()).unwrap_err();
    std::fs::remove_dir(&new).unwrap();
    let file = partial.join("rank_0001.npy");
    let good = std::fs::read(&file).unwrap();
    let resume = || {
        let options = ConvertOptions::default().with_box_bytes(4000).resuming(true);
        convert(&set, &new, &to, &options, |_, _| {})
    };
    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 16;
        std::fs::write(&file, bad).unwrap();
        let said = resume().unwrap_err().to_string();
        assert!(said.contains("was changed since the run that is to be continued"), "{said}");
        assert!(!new.exists());
    }
    std::fs::write(&file, good).unwrap();
    resume().unwrap();
    ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap();
}

/// Lines that are whole by their own checksum, and that no run writes: somebody else has, so nothing is made of what is there.
#[test]
fn lines_that_no_run_writes_are_refused() {
    let folder = Folder::new("forged");
    let [made, new] = ["made", "new"].map(|name| folder.0.join(name));
    make(&made, &"2x2/8x8 of 60x50".parse().unwrap(), "f64".parse().unwrap(), Format::Npy, 1, |_, _| {})
        .unwrap();
    let set = ShardSet::open(&made).unwrap();
    let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
    let partial = folder.0.join(".new.reshard-partial");
    let all = ConvertOptions::default().with_box_bytes(60 * 8 * 7);
    let without = all.clone().without_checksums();
    let boxes = reshard_shards::outlook(&set, std::slice::from_ref(&to), &all).unwrap().boxes;
    assert!(boxes > 6, "{boxes} boxes");
    let beyond = format!("1..{}", boxes + 1);
    // The options of the run, and the lines that somebody puts after the first one.
    for (options, lines) in [
        (&all, &["1..4"][..]),
        (&all, &["0..1", "1..4 00000000"]),
        (&all, &["1..18446744073709551615"]),
        (&all, &["1..18446744073709551615 00000000"]),
        (&all, &[&format!("{beyond} 00000000")]),
        (&all, &["3..3 00000000"]),
        (&all, &["4..2 00000000"]),
        (&without, &["1..18446744073709551615"]),
        (&without, &[&beyond]),
        (&without, &["1..4", "2..5"]),
    ] {
        let interrupted =
            std::panic::catch_unwind(|| convert(&set, &new, &to, options, |_, _| panic!("interrupted")));
        assert!(interrupted.is_err() && partial.is_dir(), "{interrupted:?}");
        let journal = std::fs::read_to_string(partial.join(".journal")).unwrap();
        let mut forged = format!("{}\n", journal.lines().next().unwrap());
        for line in lines {
            forged.push_str(&format!("{:08x} {line}\n", reshard_shards::crc32c(line.as_bytes())));
        }
        std::fs::write(partial.join(".journal"), forged).unwrap();
        let resumed = convert(&set, &new, &to, &options.clone().resuming(true), |_, _| {});
        let said = resumed.map(|_| ()).unwrap_err().to_string();
        assert!(said.contains("was changed since the run that is to be continued"), "{lines:?}: {said}");
        assert!(!new.exists(), "{lines:?}");
        std::fs::remove_dir_all(&partial).unwrap();
    }
}

/// Changes a byte of a file, and puts its time back.
fn change_in_secret(path: &Path, at: u64) {
    let before = std::fs::metadata(path).unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    // Clocks of file systems may tick every few milliseconds only.
    while std::fs::metadata(path).unwrap().ctime_nsec() == before.ctime_nsec() {
        file.write_all_at(&[255], at).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
    }
    assert_eq!(std::fs::metadata(path).unwrap().modified().unwrap(), before.modified().unwrap());
}

/// Files without checksums are those of before if the system says so by all it knows of them, not only by the time that everybody can set.
#[test]
fn files_without_checksums_that_were_changed_in_secret_are_noticed() {
    let folder = Folder::new("secret");
    let [made, new] = ["made", "new"].map(|name| folder.0.join(name));
    let from: Layout = "1x8/9x2 of 60x50".parse().unwrap();
    make(&made, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let import = || {
        let import = Import::default().with_layout("1x8/9x2".parse().unwrap()).with_order(from.order());
        ShardSet::import(made.join("rank_{rank:04}.npy"), &import).unwrap()
    };
    let path = made.join("rank_0003.npy");
    let bytes = std::fs::metadata(&path).unwrap().len();
    for at_places in [true, false] {
        let error = disturbed(&import(), &new, at_places, || change_in_secret(&path, bytes - 20));
        let said = error.unwrap_err().to_string();
        assert!(said.contains("rank_0003.npy") && said.contains("nothing is made of it"), "{said}");
        assert!(!new.exists());
    }
    let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
    let options = ConvertOptions::default().with_box_bytes(60 * 8 * 7);
    let set = import();
    let interrupted = std::panic::catch_unwind(|| {
        let mut boxes = 0;
        convert(&set, &new, &to, &options, |_, _| {
            boxes += 1;
            assert!(boxes < 4, "interrupted");
        })
    });
    assert!(interrupted.is_err(), "{interrupted:?}");
    change_in_secret(&path, bytes - 30);
    let error = convert(&import(), &new, &to, &options.resuming(true), |_, _| {});
    let said = error.unwrap_err().to_string();
    assert!(said.contains("or a file was changed") && !new.exists(), "{said}");
}
