//! Sets that were damaged at random: bits flipped, files cut, made longer, exchanged, blocks of them moved. Whatever it was, `verify` notices
//! it, and so does `convert`, which then leaves nothing behind.

use crate::folder::Folder;
use reshard::Layout;
use reshard_shards::{ConvertOptions, Format, ShardSet, convert, make};
use reshard_testkit::{Random, full_sweep};
use std::collections::BTreeMap;
use std::path::PathBuf;

type Files = BTreeMap<String, Vec<u8>>;

/// A set, another one that looks like it, and where it is converted to.
struct Case {
    path: PathBuf,
    destination: PathBuf,
    to: Layout,
    options: ConvertOptions,
    good: Files,
    other: Files,
}

impl Case {
    fn new(
        folder: &Folder,
        name: &str,
        from: &str,
        element: &str,
        format: Format,
        to: &str,
        axes: &[usize],
    ) -> Self {
        let from: Layout = from.parse().unwrap();
        let made = |seed: u64| {
            let path = folder.0.join(format!("{name}{seed}"));
            make(&path, &from, element.parse().unwrap(), format, seed, |_, _| {}).unwrap();
            let entries = path.read_dir().unwrap().map(|entry| entry.unwrap());
            let file = |entry: std::fs::DirEntry| {
                (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
            };
            (path.clone(), entries.map(file).collect::<Files>())
        };
        let ((path, good), (_, other)) = (made(1), made(2));
        let options = ConvertOptions::default().with_axes(axes).with_box_bytes(4000).with_threads(1);
        let destination = folder.0.join("converted");
        Self { path, destination, to: to.parse().unwrap(), options, good, other }
    }

    /// Both must fail. Nothing may be left behind.
    fn is_noticed(&self, what: &str) {
        if let Ok(set) = ShardSet::open(&self.path) {
            assert!(set.verify(|_, _| {}).is_err(), "{what}: verify");
            let converted = convert(&set, &self.destination, &self.to, &self.options, |_, _| {});
            assert!(converted.is_err(), "{what}: convert");
        }
        let parent = self.destination.parent().unwrap();
        assert!(!self.destination.exists() && !parent.join(".converted.reshard-partial").exists(), "{what}");
    }

    fn damage_and_mend(&self, random: &mut Random) {
        let (bad, what) = self.damaged(random);
        // Of an array without elements only the manifests differ: with the other one it is the other set.
        if bad == self.good || bad == self.other {
            return;
        }
        let changed = || self.good.keys().filter(|name| bad.get(*name) != self.good.get(*name));
        for name in changed() {
            match bad.get(name) {
                Some(bytes) => std::fs::write(self.path.join(name), bytes).unwrap(),
                None => std::fs::remove_file(self.path.join(name)).unwrap(),
            }
        }
        self.is_noticed(&format!("{what}, {:?}", changed().collect::<Vec<_>>()));
        for name in changed() {
            std::fs::write(self.path.join(name), &self.good[name]).unwrap();
        }
    }

    /// The files after something has happened to them, and what.
    fn damaged(&self, random: &mut Random) -> (Files, &'static str) {
        let mut bad = self.good.clone();
        let names: Vec<&String> = self.good.keys().collect();
        let one = names[random.within(0, names.len() as u64 - 1) as usize];
        let another = names[random.within(0, names.len() as u64 - 1) as usize];
        let file = bad.get_mut(one).unwrap();
        let length = file.len() as u64;
        let range = |random: &mut Random| {
            let (from, to) = (random.within(0, length), random.within(0, length));
            from.min(to) as usize..from.max(to) as usize
        };
        let what = match random.within(0, 10) {
            0 => {
                for _ in 0..random.within(1, 8) {
                    let bit = random.within(0, 8 * length - 1);
                    file[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
                "bits flipped"
            }
            1 => {
                file.truncate(random.within(0, length - 1) as usize);
                "cut"
            }
            2 => {
                let more = [0, 0, 32, random.within(0, 255) as u8][random.within(0, 3) as usize];
                file.extend(vec![more; random.within(1, 100) as usize]);
                "longer"
            }
            3 => {
                // Two blocks of one length change places.
                let block = random.within(1, (length / 2).min(4096)) as usize;
                let from = random.within(0, length - 2 * block as u64) as usize;
                let to = random.within((from + block) as u64, length - block as u64) as usize;
                let (left, right) = file.split_at_mut(to);
                left[from..from + block].swap_with_slice(&mut right[..block]);
                "blocks exchanged"
            }
            4 => {
                let (first, second) = (self.good[one].clone(), self.good[another].clone());
                bad.insert(one.clone(), second);
                bad.insert(another.clone(), first);
                "files exchanged"
            }
            5 => {
                file[range(random)].fill(0);
                "zeros"
            }
            6 => {
                // What a lost write leaves: a part of another file, or of the same of another set.
                let theirs = if random.within(0, 1) == 0 { &self.good[another] } else { &self.other[one] };
                let end = theirs.len().min(length as usize);
                let from = random.within(0, end as u64) as usize;
                file[from..end].copy_from_slice(&theirs[from..end]);
                "part of another file"
            }
            7 => {
                let range = range(random);
                let by = usize::from(range.len() > 1);
                file[range].rotate_left(by);
                "moved by a byte"
            }
            8 => {
                *file = self.other[one].clone();
                "file of another set"
            }
            9 => {
                bad.remove(one);
                "removed"
            }
            _ => {
                let range = range(random);
                file.drain(range);
                "cut out"
            }
        };
        (bad, what)
    }
}

#[test]
fn all_damage_is_noticed() {
    let folder = Folder::new("damage");
    let case = |name: &str, from: &str, element: &str, format, to: &str, axes: &[usize]| {
        Case::new(&folder, name, from, element, format, to, axes)
    };
    let small = [
        case("rows", "2x2/8x8 of 40x30", "f64", Format::Npy, "3x1/7x9 of 40x30", &[0, 1]),
        case("raw", "3x1/7x9 of 40x30", "i16", Format::Raw, "2x2/5x5 of 40x30", &[0, 1]),
        case("turned", "2x2/8x8 of 40x30", "f32", Format::Npy, "1x3/7x9 of 30x40", &[1, 0]),
        case("order", "2x2/8x8 of 40x30 memory=row", "u8", Format::Npy, "2x1/7x9 of 40x30", &[0, 1]),
        case("sparse", "2x3/8x8 of 9x7", "f64", Format::Npy, "2x1/2x9 of 9x7", &[0, 1]),
        case("empty", "2x2/8x8 of 0x30", "f64", Format::Npy, "2x1/7x9 of 0x30", &[0, 1]),
    ];
    // Files of more than one block of CRCs.
    let large = case("large", "2/200000 of 350000", "f64", Format::Npy, "3/1000 of 350000", &[0]);
    let mut random = Random::new(8);
    let trials = if full_sweep() { 100_000 } else { 1000 };
    for trial in 0..trials {
        match trial % 100 {
            0 => large.damage_and_mend(&mut random),
            number => small[number % small.len()].damage_and_mend(&mut random),
        }
    }
    // It was mended each time, so it is good again.
    for case in small.iter().chain([&large]) {
        let set = ShardSet::open(&case.path).unwrap();
        set.verify(|_, _| {}).unwrap();
        convert(&set, &case.destination, &case.to, &case.options, |_, _| {}).unwrap();
        std::fs::remove_dir_all(&case.destination).unwrap();
    }
    println!("{trials} times something was damaged");
}

/// Five bytes that somebody changes so that CRC-32C is the same: `convert` takes them, as docs/files.md says, and `verify` does not.
#[test]
fn what_is_forged_is_found_by_verify() {
    let folder = Folder::new("forged-crc");
    let [made, new] = ["made", "new"].map(|name| folder.0.join(name));
    let layout: Layout = "2x2/8x8 of 60x50".parse().unwrap();
    make(&made, &layout, "f64".parse().unwrap(), Format::Npy, 1, |_, _| {}).unwrap();
    let file = made.join("rank_0002.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let before = reshard_shards::crc32c(&bytes);
    // A bit, and what it makes of the CRC, without the inversion at both ends.
    let crc = reshard_shards::crc32c(&[0, 0, 0, 0, 1]) ^ reshard_shards::crc32c(&[0; 5]);
    for (byte, change) in bytes[1000..].iter_mut().zip([1].into_iter().chain(crc.to_le_bytes())) {
        *byte ^= change;
    }
    assert_eq!(reshard_shards::crc32c(&bytes), before);
    std::fs::write(&file, bytes).unwrap();
    let set = ShardSet::open(&made).unwrap();
    let said = set.verify(|_, _| {}).unwrap_err().to_string();
    assert!(said.contains("rank_0002.npy is not what was written"), "{said}");
    convert(&set, &new, &"3x1/7x9 of 60x50".parse().unwrap(), &ConvertOptions::default(), |_, _| {}).unwrap();
}
