//! Sets that several ranks read and write together, here threads: what one process writes, they write, and what one of them meets, all are told.

use crate::folder::{Folder, random_layout};
use reshard::Layout;
use reshard_mpi::communicator::Communicator;
use reshard_mpi::in_process;
use reshard_shards::collective::Ranks;
use reshard_shards::{ConvertOptions, Format, ShardSet, convert, make};
use reshard_testkit::Random;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs a function on each of some ranks, and returns what each returns.
fn on_all<T: Send>(ranks: usize, run: impl Fn(Ranks, usize) -> T + Sync) -> Vec<T> {
    let communicators = in_process::group(ranks);
    std::thread::scope(|scope| {
        let run = &run;
        let one = |(rank, comm): (usize, Arc<Communicator>)| {
            scope.spawn(move || run(Ranks::of(&comm, Duration::from_secs(1200)).unwrap(), rank))
        };
        let threads: Vec<_> = communicators.into_iter().enumerate().map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn assert_same_files(one: &Path, other: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(other));
    for name in names(one) {
        assert!(
            std::fs::read(one.join(&name)).unwrap() == std::fs::read(other.join(&name)).unwrap(),
            "{name:?}"
        );
    }
}

fn options(box_bytes: u64) -> ConvertOptions {
    ConvertOptions::default().with_threads(1).with_box_bytes(box_bytes)
}

#[test]
fn what_several_write_is_what_one_writes() {
    let folder = Folder::new("several");
    let mut random = Random::new(41);
    for case in 0..60 {
        let dims = random.within(1, 3) as usize;
        let shape: Vec<u64> = (0..dims).map(|_| random.within(1, 30)).collect();
        let (from, to) = (random_layout(&mut random, &shape), random_layout(&mut random, &shape));
        let [made, expected, converted] =
            ["made", "expected", "converted"].map(|name| folder.0.join(format!("{name}{case}")));
        make(&made, &from, "f64".parse().unwrap(), Format::Npy, case, |_, _| {}).unwrap();
        let options = options(random.within(16, 2000));
        convert(&ShardSet::open(&made).unwrap(), &expected, &to, &options, |_, _| {}).unwrap();
        on_all(random.within(1, 5) as usize, |ranks, _| {
            let set = ranks.open(&made).unwrap();
            ranks.convert(&set, &converted, &to, &options, |_, _| {}).unwrap();
        });
        assert_same_files(&expected, &converted);
        for path in [made, expected, converted] {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn what_ranks_save_other_ranks_load() {
    let folder = Folder::new("saved");
    let mut random = Random::new(43);
    for case in 0..60 {
        let dims = random.within(1, 3) as usize;
        let shape: Vec<u64> = (0..dims).map(|_| random.within(1, 20)).collect();
        let wider = |random: &mut Random, layout: Layout| -> Layout {
            let axes = layout.distribution().axes();
            let most: Vec<u64> = axes.iter().map(|axis| axis.max_local_len() + random.within(0, 2)).collect();
            layout.with_allocated(&most).unwrap()
        };
        let (from, to) = (random_layout(&mut random, &shape), random_layout(&mut random, &shape));
        let (from, to) = (wider(&mut random, from), wider(&mut random, to));
        let value = |index: &[u64]| index.iter().fold(case, |value, index| 1000 * value + index);
        let path = folder.0.join(format!("set{case}"));
        let size = |layout: &Layout| layout.distribution().grid().size() as usize;
        let spare = random.within(0, 2) as usize;
        on_all(size(&from) + spare, |ranks, rank| {
            let part = match rank < size(&from) {
                true => from.filled(rank as u64, value).unwrap(),
                false => Vec::new(),
            };
            ranks.save(&path, &from, "u64".parse().unwrap(), &part, Format::Npy).unwrap();
        });
        ShardSet::open(&path).unwrap().verify(|_, _| {}).unwrap();
        on_all(size(&to), |ranks, rank| {
            let mut part = to.allocate::<u64>(rank as u64).unwrap();
            ranks.load_as(&path, &to, &mut part).unwrap();
            assert_eq!(part, to.filled(rank as u64, value).unwrap(), "{from} to {to}");
        });
        std::fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn any_number_of_ranks_continues_what_others_began() {
    let folder = Folder::new("continued");
    let (from, to): (Layout, Layout) =
        ("2x2/8x8 of 60x50".parse().unwrap(), "3x1/7x9 of 60x50".parse().unwrap());
    let [made, expected] = ["made", "expected"].map(|name| folder.0.join(name));
    make(&made, &from, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let options = options(60 * 8 * 3);
    convert(&ShardSet::open(&made).unwrap(), &expected, &to, &options, |_, _| {}).unwrap();
    for (number, (before, after)) in [(3, 2), (1, 4), (4, 1), (2, 2)].into_iter().enumerate() {
        let destination = folder.0.join(format!("destination{number}"));
        // All ranks stop in the middle of their boxes.
        let stopped = on_all(before, |ranks, _| {
            let set = ranks.open(&made).unwrap();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut boxes = 0;
                ranks.convert(&set, &destination, &to, &options, |_, _| {
                    boxes += 1;
                    assert!(boxes < 3, "interrupted");
                })
            }))
            .is_err()
        });
        assert!(stopped.iter().all(|&stopped| stopped) && !destination.exists());
        let options = options.clone().resuming(true);
        let done = on_all(after, |ranks, _| {
            let set = ranks.open(&made).unwrap();
            ranks.convert(&set, &destination, &to, &options, |_, _| {}).unwrap()
        });
        assert!(done.iter().map(|done| done.resumed).sum::<u64>() >= before as u64, "{done:?}");
        assert_same_files(&expected, &destination);
    }
}

#[test]
fn what_one_rank_meets_all_are_told() {
    let folder = Folder::new("told");
    let made = folder.0.join("made");
    let layout: Layout = "3x1/8x50 of 60x50".parse().unwrap();
    make(&made, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let new = folder.0.join("new");
    // A part that is too short on one rank.
    let said = on_all(3, |ranks, rank| {
        let part = layout.allocate::<f64>(rank as u64).unwrap();
        let part = if rank == 1 { &part[1..] } else { &part };
        ranks.save(&new, &layout, "f64".parse().unwrap(), part, Format::Npy).unwrap_err().to_string()
    });
    assert!(said.iter().all(|said| said.contains("rank 1")), "{said:?}");
    // A destination that is there, and a layout of more ranks than there are.
    let said = on_all(3, |ranks, rank| {
        let part = layout.allocate::<f64>(rank as u64).unwrap();
        let there = ranks.save(&made, &layout, "f64".parse().unwrap(), &part, Format::Npy).unwrap_err();
        let more: Layout = "5x1/8x50 of 60x50".parse().unwrap();
        let mut part = vec![0.0; 8 * 50 * 2];
        (there.to_string(), ranks.load_as(&made, &more, &mut part).unwrap_err().to_string())
    });
    assert!(said.iter().all(|(there, _)| there.contains("exists already")), "{said:?}");
    assert!(said.iter().all(|(_, more)| more.contains("3 ranks")), "{said:?}");
    // A file that was damaged, which only one of them reads.
    let file = made.join("rank_0002.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let said = on_all(3, |ranks, _| {
        let set = ranks.open(&made).unwrap();
        ranks.convert(&set, &new, &layout, &options(500), |_, _| {}).unwrap_err().to_string()
    });
    assert!(said.iter().all(|said| said.contains("rank_0002.npy is not what was written")), "{said:?}");
    assert!(!new.exists());
    let left: Vec<_> = folder.0.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["made"], "staging directories of what cannot succeed are removed");
}

#[test]
fn ranks_that_were_given_different_things_are_told() {
    let folder = Folder::new("disagree");
    let [made, other, new] = ["made", "other", "new"].map(|name| folder.0.join(name));
    let layout: Layout = "3x1/8x50 of 60x50".parse().unwrap();
    for (path, seed) in [(&made, 1), (&other, 2)] {
        make(path, &layout, "f64".parse().unwrap(), Format::Npy, seed, |_, _| {}).unwrap();
    }
    for different in ["boxes", "source", "destination", "layout", "checksums", "resume"] {
        let said = on_all(3, |ranks, rank| {
            let odd = |what: &str| rank == 1 && different == what;
            let set = ranks.open(if odd("source") { &other } else { &made }).unwrap();
            let mut options = options(if odd("boxes") { 400 } else { 800 }).resuming(odd("resume"));
            if odd("checksums") {
                options = options.without_checksums();
            }
            let to: Layout =
                if odd("layout") { "3x1/9x50 of 60x50" } else { "3x1/7x50 of 60x50" }.parse().unwrap();
            let destination = if odd("destination") { &other } else { &new };
            ranks.convert(&set, destination, &to, &options, |_, _| {}).unwrap_err().to_string()
        });
        assert!(said.iter().all(|said| said.contains("rank 1 was given another")), "{different}: {said:?}");
        assert!(!new.exists());
    }
    let said = on_all(3, |ranks, rank| {
        let part = vec![0.0; 60 * 50 / 3];
        let layout = if rank == 2 { "(*, block) on 1x3 of 60x51" } else { "(block, *) on 3x1 of 60x50" };
        let layout: Layout = layout.parse().unwrap();
        let part = if rank == 2 { vec![0.0; 60 * 17] } else { part };
        ranks.save(&new, &layout, "f64".parse().unwrap(), &part, Format::Npy).unwrap_err().to_string()
    });
    assert!(said.iter().all(|said| said.contains("rank 2 was given another")), "{said:?}");
}
