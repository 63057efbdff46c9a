//! Files with several tensors each, every one under a layout of its own: converted from any layouts to any others and compared with a slow
//! twin that knows every element by its index; what is wrong in one file is said in one sentence.

use crate::folder::Folder;
use reshard::{ElementType, Layout};
use reshard_shards::{
    ConvertOptions, Format, Import, Layouts, ShardSet, Tensors, convert, convert_arrays, outlook,
};
use reshard_testkit::Random;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A tensor as the twin knows it.
#[derive(Clone)]
struct Twin {
    name: String,
    element: ElementType,
    shape: Vec<u64>,
}

impl Twin {
    /// The bytes of the element of an index.
    fn bytes(&self, index: &[u64]) -> Vec<u8> {
        let name = self.name.bytes().fold(7, |sum, byte| 31_u64.wrapping_mul(sum) + u64::from(byte));
        let number = index.iter().fold(name, |sum, &at| 1_000_003_u64.wrapping_mul(sum).wrapping_add(at));
        (0..self.element.bytes()).map(|byte| (number.wrapping_mul(2 * byte + 1) >> 13) as u8).collect()
    }

    /// The part of a rank under a layout, element by element, the last index first.
    fn part(&self, layout: &Layout, rank: u64) -> Vec<u8> {
        let distribution = layout.distribution();
        let shape = distribution.local_shape(rank).unwrap();
        let mut part = Vec::new();
        for number in 0..shape.iter().product::<u64>() {
            let mut rest = number;
            let mut local: Vec<u64> = shape
                .iter()
                .rev()
                .map(|length| {
                    let at = rest % length;
                    rest /= length;
                    at
                })
                .collect();
            local.reverse();
            let index = distribution.global_from_local(rank, &local).unwrap();
            part.extend(self.bytes(if self.shape.is_empty() { &[] } else { &index }));
        }
        part
    }
}

/// What files there are, by rank: their tensors, with shape and bytes.
type Files = BTreeMap<u64, Vec<(Twin, Vec<u64>, Vec<u8>)>>;

fn files_of(twins: &[(Twin, Layout)]) -> Files {
    let mut files = Files::new();
    for (twin, layout) in twins {
        for rank in layout.distribution().grid().sorted_ranks() {
            let shape = layout.distribution().local_shape(rank).unwrap();
            let shape = if twin.shape.is_empty() { Vec::new() } else { shape };
            files.entry(rank).or_default().push((twin.clone(), shape, twin.part(layout, rank)));
        }
    }
    files
}

fn write(path: &Path, tensors: &[(Twin, Vec<u64>, Vec<u8>)]) {
    let wanted = tensors.iter().map(|(twin, shape, _)| (twin.name.clone(), twin.element, shape.clone()));
    let words = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    let header = Tensors::new(wanted.collect(), words).unwrap();
    let mut bytes = header.write().unwrap();
    for tensor in header.tensors() {
        let (_, _, data) = tensors.iter().find(|(twin, ..)| twin.name == tensor.name).unwrap();
        bytes.extend(data);
    }
    std::fs::write(path, bytes).unwrap();
}

fn write_all(folder: &Path, files: &Files) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    files.iter().for_each(|(rank, tensors)| write(&folder.join(format!("tp{rank}.safetensors")), tensors));
    folder.join("tp{rank}.safetensors")
}

/// The files of a set must hold just what the twin has.
fn check(set: &Path, twins: &[(Twin, Layout)]) {
    let expected = files_of(twins);
    let opened = ShardSet::open(set).unwrap();
    assert_eq!(opened.ranks().collect::<Vec<_>>(), expected.keys().copied().collect::<Vec<_>>());
    assert_eq!(opened.verify(|_, _| {}).unwrap().files, expected.len() as u64);
    for (rank, tensors) in expected {
        let bytes = std::fs::read(set.join(format!("rank_{rank:04}.safetensors"))).unwrap();
        let header = Tensors::read(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(header.tensors().len(), tensors.len());
        assert_eq!(header.metadata()["format"], "pt");
        for (twin, shape, data) in tensors {
            let found = header.tensors().iter().find(|tensor| tensor.name == twin.name).unwrap();
            assert_eq!((found.element, &found.shape), (twin.element, &shape), "{}", twin.name);
            assert!(bytes[found.start as usize..][..found.bytes as usize] == data, "{}", twin.name);
        }
    }
}

/// Layouts for each tensor by its name, on up to four ranks, some of which some tensors have no part on.
fn random_layouts(random: &mut Random, twins: &[Twin]) -> Vec<(Twin, Layout, String)> {
    let by_x = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let layout = |twin: &Twin| {
        let shape = if twin.shape.is_empty() { vec![1] } else { twin.shape.clone() };
        let grid: Vec<u64> = shape.iter().map(|_| random.within(1, 2)).collect();
        let deal = |_| match random.within(0, 3) {
            _ if twin.shape.is_empty() => "*".to_string(),
            0 | 1 => "*".to_string(),
            2 => "block".to_string(),
            _ => format!("cyclic({})", random.within(1, 4)),
        };
        let deals: Vec<String> = shape.iter().map(deal).collect();
        let size: u64 = grid.iter().product();
        let first = random.within(0, 1);
        let pattern = format!("({}) on {} ranks={first}..{}", deals.join(", "), by_x(&grid), first + size);
        let layout = format!("{pattern} of {} memory=row", by_x(&shape)).parse().unwrap();
        (twin.clone(), layout, format!("{}={pattern}", twin.name))
    };
    twins.iter().map(layout).collect()
}

#[test]
fn every_element_of_random_models() {
    let folder = Folder::new("tensors");
    let mut random = Random::new(23);
    for case in 0..80 {
        let twins: Vec<Twin> = (0..random.within(1, 7))
            .map(|number| Twin {
                name: format!("layer.{number}.é"),
                element: ["bf16", "f8_e4m3", "f32", "i64", "bool"][random.within(0, 4) as usize]
                    .parse()
                    .unwrap(),
                shape: (0..random.within(0, 3)).map(|_| random.within(0, 12)).collect(),
            })
            .collect();
        let [from, to] = [0, 1].map(|_| random_layouts(&mut random, &twins));
        let pair = |all: &[(Twin, Layout, String)]| -> Vec<(Twin, Layout)> {
            all.iter().map(|(twin, layout, _)| (twin.clone(), layout.clone())).collect()
        };
        let rules =
            |all: &[(Twin, Layout, String)]| Layouts::new(all.iter().map(|(_, _, rule)| rule)).unwrap();
        let [theirs, ours, again] =
            ["theirs", "ours", "again"].map(|name| folder.0.join(format!("{name}{case}")));
        let pattern = write_all(&theirs, &files_of(&pair(&from)));
        let import = Import::default().with_layouts(rules(&from));
        let set = ShardSet::import(&pattern, &import).unwrap_or_else(|error| panic!("case {case}: {error}"));
        set.verify(|_, _| {}).unwrap();
        let options = |random: &mut Random| {
            let options = ConvertOptions::default().with_format(Format::Safetensors);
            options.with_box_bytes(random.within(1, 300)).with_threads(random.within(1, 3) as usize)
        };
        let convert = |set: &ShardSet, path: &Path, layouts: Layouts, options: &ConvertOptions| {
            let to = options.layouts(set, &layouts).unwrap();
            let planned = outlook(set, &to, options).unwrap();
            let converted = convert_arrays(set, path, &to, options, |_, _| {})
                .unwrap_or_else(|error| panic!("case {case}: {error}"));
            assert_eq!((planned.bytes, planned.boxes), (converted.bytes, converted.boxes));
        };
        convert(&set, &ours, rules(&to), &options(&mut random));
        check(&ours, &pair(&to));
        // And back, from a set with checksums.
        convert(&ShardSet::open(&ours).unwrap(), &again, rules(&from), &options(&mut random));
        check(&again, &pair(&from));
        // A rank of a restarted job reads what it needs.
        let set = ShardSet::open(&again).unwrap();
        for (twin, layout) in pair(&to).into_iter().filter(|(twin, _)| twin.element.bytes() == 1) {
            for rank in layout.distribution().grid().sorted_ranks() {
                let mut part = vec![0_u8; layout.span(rank).unwrap() as usize];
                set.load_array_as(&twin.name, &layout, rank, &mut part).unwrap();
                assert!(part == twin.part(&layout, rank), "{}", twin.name);
            }
        }
        for path in [theirs, ours, again] {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

/// A model as two ranks have it.
fn model() -> Vec<(Twin, Layout)> {
    let tensor = |name: &str, element: &str, layout: &str| {
        let layout: Layout = layout.parse().unwrap();
        let shape = layout.distribution().shape();
        (Twin { name: name.into(), element: element.parse().unwrap(), shape }, layout)
    };
    vec![
        tensor("0.up", "bf16", "(block, *) on 2x1 of 16x6 memory=row"),
        tensor("0.down", "bf16", "(*, block) on 1x2 of 6x16 memory=row"),
        tensor("0.norm", "f32", "(*) on 2 of 6 memory=row"),
        tensor("1.norm", "f32", "(*) on 2 of 6 memory=row"),
    ]
}

const TWO: [&str; 3] = ["*.down=(*, block) on 1x2", "(block, *) on 2x1", "*norm=(*) on 2"];
const FOUR: [&str; 3] = ["*.down=(*, block) on 1x4", "(block, *) on 4x1", "*norm=(*) on 4"];

fn imported(pattern: &Path, rules: &[&str]) -> reshard::Result<ShardSet> {
    ShardSet::import(pattern, &Import::default().with_layouts(Layouts::new(rules)?))
}

fn tensors_option() -> ConvertOptions {
    ConvertOptions::default().with_format(Format::Safetensors).with_box_bytes(40)
}

#[test]
fn copies_that_differ_are_refused() {
    let folder = Folder::new("tensors-copies");
    let mut files = files_of(&model());
    let new = folder.0.join("new");
    for (at, byte) in [(2, 0), (2, 23), (3, 11)] {
        let mut changed = files.clone();
        changed.get_mut(&1).unwrap()[at].2[byte] ^= 1;
        let name = changed[&1][at].0.name.clone();
        let set = imported(&write_all(&folder.0.join("tp2"), &changed), &TWO).unwrap();
        for checksums in [true, false] {
            let options = if checksums { tensors_option() } else { tensors_option().without_checksums() };
            let to = options.layouts(&set, &Layouts::new(FOUR).unwrap()).unwrap();
            let said = convert_arrays(&set, &new, &to, &options, |_, _| {}).unwrap_err().to_string();
            for word in [
                &format!("the tensor '{name}' is replicated"),
                "tp0.safetensors and",
                "tp1.safetensors differ",
            ] {
                assert!(said.contains(word), "{said}");
            }
            assert!(said.lines().count() == 1 && folder.0.read_dir().unwrap().count() == 1, "{said}");
        }
        let said = set.verify(|_, _| {}).unwrap_err().to_string();
        assert!(said.contains("differ"), "{said}");
    }
    // Of a set without tensors, too.
    files.clear();
    for rank in 0..2_u8 {
        std::fs::write(folder.0.join(format!("{rank}.bin")), [rank; 12]).unwrap();
    }
    let import = Import::default().with_layout("(*) on 2".parse().unwrap()).with_shape(&[12]);
    let set =
        ShardSet::import(folder.0.join("{rank}.bin"), &import.with_element("u8".parse().unwrap())).unwrap();
    let options = ConvertOptions::default();
    let said =
        convert(&set, &new, &"3/4 of 12".parse().unwrap(), &options, |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("the array is replicated") && !new.exists(), "{said}");
}

#[test]
fn files_must_have_what_the_layouts_say() {
    let folder = Folder::new("tensors-wrong");
    let files = files_of(&model());
    type Change = fn(&mut Vec<(Twin, Vec<u64>, Vec<u8>)>);
    let changes: [(Change, &[&str]); 7] = [
        (|file| drop(file.remove(0)), &["tp1.safetensors lacks the tensor '0.up'"]),
        (|file| file[3].0.name = "2.norm".into(), &["tp1.safetensors lacks the tensor '1.norm'"]),
        (
            |file| {
                let mut other = file[3].clone();
                other.0.name = "2.norm".into();
                file.push(other);
            },
            &["tp0.safetensors lacks the tensor '2.norm'"],
        ),
        (|file| file[0].1 = vec![6, 8], &["has the tensor '0.up' with the shape"]),
        (|file| file[0].1 = vec![48], &["tp1.safetensors has the tensor '0.up' with the shape 48"]),
        (
            |file| file[0].0.element = "f16".parse().unwrap(),
            &["the tensor '0.up'", "f16", "tp0.safetensors", "bf16"],
        ),
        (
            |file| {
                file[2].1 = vec![5];
                file[2].2.truncate(20);
            },
            &["tp1.safetensors has the tensor '0.norm' with the shape 5"],
        ),
    ];
    for (change, expected) in changes {
        let mut files = files.clone();
        change(files.get_mut(&1).unwrap());
        let said = imported(&write_all(&folder.0, &files), &TWO).err().unwrap().to_string();
        for word in expected {
            assert!(said.contains(word) && said.lines().count() == 1, "{said}");
        }
    }
    let pattern = write_all(&folder.0, &files);
    let wrong: [(&[&str], &str); 8] = [
        (&[], "the layout of the files is not known"),
        (
            &["*.down=(*, block) on 1x2", "*.up=(block, *) on 2x1"],
            "'0.norm', which has 1 dimension, has no layout",
        ),
        (
            &["*.donw=(*, block) on 1x2", "(block, *) on 2x1", "(*) on 2"],
            "'*.donw=(*, block) on 1x2' is the layout of no",
        ),
        (&["(block, *) on 2x1"], "the tensor '0.norm' has 1 dimension, and its layout"),
        (&["(*) on 2", "(block, *) on 2x1 memory=col"], "memory=col was given for the tensor '0.down'"),
        (
            &["(*) on 1", "(block, *) on 2x1"],
            "tp1.safetensors has the tensor '0.norm', of which rank 1 has no part",
        ),
        (&["(*) on 3", "(block, *) on 2x1"], "tp2.safetensors"),
        (&["(*) on 2", "2x1/9x9"], "the tensor '0.down' with the shape 6x8"),
    ];
    for (rules, expected) in wrong {
        let said = imported(&pattern, rules).err().unwrap().to_string();
        assert!(said.contains(expected) && said.lines().count() == 1, "{rules:?}: {said}");
    }
    let said = ShardSet::import(
        &pattern,
        &Import::default().with_layouts(Layouts::new(TWO).unwrap()).with_shape(&[3]),
    );
    let said = said.err().unwrap().to_string();
    assert!(said.contains("leave it out"), "{said}");
}

#[test]
fn what_cannot_be_written_is_refused() {
    let folder = Folder::new("tensors-refused");
    let set = imported(&write_all(&folder.0.join("tp2"), &files_of(&model())), &TWO).unwrap();
    let new = folder.0.join("new");
    let options = tensors_option();
    let four = options.layouts(&set, &Layouts::new(FOUR).unwrap()).unwrap();
    let refused = |to: &[Layout], options: &ConvertOptions| {
        let said = convert_arrays(&set, &new, to, options, |_, _| {}).unwrap_err().to_string();
        assert!(!new.exists() && folder.0.read_dir().unwrap().count() == 1);
        said
    };
    let said = refused(&four, &ConvertOptions::default());
    assert!(said.contains("the set has 4 arrays, and files of the format npy hold one"), "{said}");
    let said = refused(&four[1..], &options);
    assert!(said.contains("has 4 arrays, and 3 layouts were given"), "{said}");
    let said = refused(&four, &options.clone().as_one_file());
    assert!(said.contains("one file was to be written"), "{said}");
    let mut columns = four.clone();
    columns[3] = "(block, *) on 4x1 of 16x6".parse().unwrap();
    let said = refused(&columns, &options);
    assert!(said.contains("give memory=row"), "{said}");
    let said = convert(&set, &new, &four[0], &options, |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("has 4 arrays; say which"), "{said}");
    let said = set.array("2.up").err().unwrap().to_string();
    assert!(said.contains("no tensor '2.up'"), "{said}");
}

#[test]
fn a_model_is_continued_joined_and_split() {
    let folder = Folder::new("tensors-continued");
    let set = imported(&write_all(&folder.0.join("tp2"), &files_of(&model())), &TWO).unwrap();
    let options = tensors_option();
    let four = options.layouts(&set, &Layouts::new(FOUR).unwrap()).unwrap();
    let boxes = outlook(&set, &four, &options).unwrap().boxes;
    assert!(boxes > 10);
    let expected: Vec<(Twin, Layout)> = model()
        .into_iter()
        .map(|(twin, _)| {
            let at = set.arrays().iter().position(|array| array.name() == twin.name).unwrap();
            (twin, four[at].clone())
        })
        .collect();
    for last in 1..=boxes {
        let new = folder.0.join(format!("new{last}"));
        let interrupted = std::panic::catch_unwind(|| {
            let mut number = 0;
            convert_arrays(&set, &new, &four, &options, |_, _| {
                number += 1;
                assert!(number < last, "interrupted");
            })
        });
        assert!(interrupted.is_err() && !new.exists());
        let two = options.layouts(&set, &Layouts::new(TWO).unwrap()).unwrap();
        let resuming = options.clone().resuming(true);
        let said = convert_arrays(&set, &new, &two, &resuming, |_, _| {}).unwrap_err().to_string();
        assert!(said.contains("was another"), "{said}");
        let done = convert_arrays(&set, &new, &four, &resuming, |_, _| {}).unwrap();
        // Small tensors are made durable along with others.
        assert!(
            done.resumed <= last && done.resumed + 3 >= last.min(boxes - 1),
            "{} of {last}",
            done.resumed
        );
        check(&new, &expected);
    }
    // All in one file, and from there to two again.
    let whole = folder.0.join("whole.safetensors");
    let one = Layouts::new(["(*) on 1", "(*, *) on 1x1"]).unwrap();
    let one = options.layouts(&set, &one).unwrap();
    convert_arrays(&set, &whole, &one, &options.clone().as_one_file(), |_, _| {}).unwrap();
    let set = ShardSet::import(&whole, &Import::default()).unwrap();
    let again = folder.0.join("again");
    let two = options.layouts(&set, &Layouts::new(TWO).unwrap()).unwrap();
    convert_arrays(&set, &again, &two, &options, |_, _| {}).unwrap();
    check(&again, &model());
}

/// Whatever bit changes in a file of a set with checksums: nothing is made of it.
#[test]
fn flips_of_single_bits_are_noticed() {
    let folder = Folder::new("tensors-flips");
    let source = imported(&write_all(&folder.0.join("tp2"), &files_of(&model())), &TWO).unwrap();
    let (options, set, new) = (tensors_option(), folder.0.join("set"), folder.0.join("new"));
    let two = options.layouts(&source, &Layouts::new(TWO).unwrap()).unwrap();
    convert_arrays(&source, &set, &two, &options, |_, _| {}).unwrap();
    let file = set.join("rank_0001.safetensors");
    let good = std::fs::read(&file).unwrap();
    let to = options.layouts(&source, &Layouts::new(FOUR).unwrap()).unwrap();
    let mut random = Random::new(8);
    for bit in (0..8 * good.len()).filter(|_| random.within(0, 4) == 0) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &bad).unwrap();
        let noticed = ShardSet::open(&set).and_then(|set| {
            assert!(set.verify(|_, _| {}).is_err(), "bit {bit}");
            convert_arrays(&set, &new, &to, &options, |_, _| {})
        });
        let said = noticed.unwrap_err().to_string();
        assert!(!new.exists() && said.lines().count() == 1, "bit {bit}: {said}");
    }
}
