//! Who owns what is written, and who may read it: nobody else's directory is taken, and a new set is as private as its source.

use crate::folder::Folder;
use reshard::{Layout, MemoryOrder};
use reshard_shards::{ConvertOptions, Format, Import, ShardSet, convert, make};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

/// What the file mode creation mask of this process leaves of all.
fn left_by_umask(folder: &Folder) -> u32 {
    let probe = folder.0.join("probe");
    std::fs::create_dir(&probe).unwrap();
    let left = mode(&probe);
    std::fs::remove_dir(&probe).unwrap();
    left
}

fn made(folder: &Folder) -> ShardSet {
    let path = folder.0.join("made");
    make(&path, &"2x2/8x8 of 60x50".parse().unwrap(), "f64".parse().unwrap(), Format::Npy, 1, |_, _| {})
        .unwrap();
    ShardSet::open(&path).unwrap()
}

#[test]
fn staging_directories_of_others_are_not_taken() {
    let folder = Folder::new("others");
    let set = made(&folder);
    let (new, partial) = (folder.0.join("new"), folder.0.join(".new.reshard-partial"));
    let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
    let refused = |expected: &str| {
        for resume in [false, true] {
            let options = ConvertOptions::default().with_box_bytes(4000).resuming(resume);
            let converted = convert(&set, &new, &to, &options, |_, _| {});
            let said = converted.map(|_| ()).unwrap_err().to_string();
            assert!(said.contains(expected) && said.contains(".new.reshard-partial"), "{said}");
        }
        assert!(!new.exists() && partial.is_dir());
        std::fs::remove_dir_all(&partial).unwrap();
    };
    std::fs::create_dir(&partial).unwrap();
    allow(&partial, 0o777);
    refused("others may write");
    std::fs::create_dir(&partial).unwrap();
    allow(&partial, 0o755);
    // Only the superuser can give it to somebody else.
    match std::os::unix::fs::chown(&partial, Some(65534), None) {
        Ok(()) => refused("belongs to another user"),
        Err(_) => std::fs::remove_dir(&partial).unwrap(),
    }
    convert(&set, &new, &to, &ConvertOptions::default(), |_, _| {}).unwrap();
    ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap();
    // A destination that looks like a run that was killed at the very last, and was made by somebody else.
    std::fs::write(new.join(".journal"), "x").unwrap();
    if std::os::unix::fs::chown(&new, Some(65534), None).is_ok() {
        let options = ConvertOptions::default().resuming(true);
        let said = convert(&set, &new, &to, &options, |_, _| {}).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains("new belongs to another user"), "{said}");
    }
}

/// What has the name of a new file is somebody else's, whatever it is a link to.
#[test]
fn new_files_are_made_anew() {
    let folder = Folder::new("links");
    let set = made(&folder);
    let (new, partial) = (folder.0.join("new"), folder.0.join(".new.reshard-partial"));
    let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
    let options = ConvertOptions::default().with_box_bytes(60 * 8 * 7);
    let interrupted =
        std::panic::catch_unwind(|| convert(&set, &new, &to, &options, |_, _| panic!("interrupted")));
    assert!(interrupted.is_err(), "{interrupted:?}");
    // No box is durable yet: all files are written anew.
    let journal = std::fs::read_to_string(partial.join(".journal")).unwrap();
    std::fs::write(partial.join(".journal"), format!("{}\n", journal.lines().next().unwrap())).unwrap();
    let precious = folder.0.join("precious");
    std::fs::write(&precious, b"precious").unwrap();
    for name in ["rank_0001.npy", ".journal.new"] {
        let _ = std::fs::remove_file(partial.join(name));
        std::fs::hard_link(&precious, partial.join(name)).unwrap();
    }
    convert(&set, &new, &to, &options.resuming(true), |_, _| {}).unwrap();
    let found = std::fs::read(&precious).unwrap();
    assert!(found == b"precious", "{} bytes", found.len());
    ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap();
}

/// Others may do with new files, and with their directory, what they may with every file of the source and with its directory.
#[test]
fn a_new_set_is_as_private_as_its_source() {
    let folder = Folder::new("private");
    let left = left_by_umask(&folder);
    let set = made(&folder);
    let source = set_path(&folder);
    let (new, whole) = (folder.0.join("new"), folder.0.join("whole.npy"));
    let import = Import::default().with_layout("2x2/8x8".parse().unwrap()).with_order(MemoryOrder::ColMajor);
    drop(set);
    // Mode of the directory, of one file, of the others; of the new directory and its files.
    for (directory, one, others, expected_directory, expected_file) in [
        (0o700, 0o600, 0o600, 0o700, 0o600),
        (0o755, 0o644, 0o644, 0o755, 0o644),
        (0o755, 0o640, 0o604, 0o755, 0o600),
        (0o750, 0o644, 0o666, 0o750, 0o640),
        (0o700, 0o644, 0o644, 0o700, 0o600),
        (0o777, 0o666, 0o666, 0o777, 0o666),
        (0o755, 0o440, 0o444, 0o755, 0o640),
    ] {
        for number in 0..4 {
            allow(&source.join(format!("rank_000{number}.npy")), if number == 2 { one } else { others });
        }
        allow(&source, directory);
        let sets = [ShardSet::open(&source), ShardSet::import(source.join("rank_{rank:04}.npy"), &import)];
        for set in sets.map(Result::unwrap) {
            let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
            convert(&set, &new, &to, &ConvertOptions::default(), |_, _| {}).unwrap();
            let found = ["rank_0000.npy", "rank_0002.npy", "reshard.json"].map(|name| mode(&new.join(name)));
            let when = format!("directory {directory:o}, files {one:o} and {others:o}");
            assert_eq!(found, [expected_file & left; 3], "{when}");
            assert_eq!(mode(&new), expected_directory & left, "{when}: {:o}", mode(&new));
            let to = "1x1/60x50 of 60x50".parse().unwrap();
            let options = ConvertOptions::default().as_one_file();
            convert(&set, &whole, &to, &options, |_, _| {}).unwrap();
            assert_eq!(mode(&whole), expected_file & left, "{when}: {:o}", mode(&whole));
            std::fs::remove_dir_all(&new).unwrap();
            std::fs::remove_file(&whole).unwrap();
        }
    }
    allow(&source, 0o755);
    assert_eq!(mode(&source), 0o755);
}

#[test]
fn another_group_gets_no_more_than_all_others() {
    let folder = Folder::new("group");
    let left = left_by_umask(&folder);
    drop(made(&folder));
    let (source, new) = (set_path(&folder), folder.0.join("new"));
    let files = || (0..4).map(|number| source.join(format!("rank_000{number}.npy")));
    let all = || files().chain([source.clone()]);
    // A group that new files do not get; only root may give it.
    if all().any(|path| std::os::unix::fs::chown(path, None, Some(54_321)).is_err()) {
        println!(
            "this user gives files to no other group: what such a group may do with new files is not tested"
        );
        return;
    }
    for (directory, file, expected_directory, expected_file) in
        [(0o750, 0o640, 0o700, 0o600), (0o755, 0o644, 0o755, 0o644), (0o775, 0o664, 0o755, 0o644)]
    {
        files().for_each(|path| allow(&path, file));
        allow(&source, directory);
        let to: Layout = "3x1/7x9 of 60x50".parse().unwrap();
        convert(&ShardSet::open(&source).unwrap(), &new, &to, &ConvertOptions::default(), |_, _| {}).unwrap();
        let found = (mode(&new), mode(&new.join("rank_0000.npy")));
        assert_eq!(found, (expected_directory & left, expected_file & left), "{directory:o}: {found:?}");
        std::fs::remove_dir_all(&new).unwrap();
    }
}

fn set_path(folder: &Folder) -> std::path::PathBuf {
    folder.0.join("made")
}
