//! The files of a model, several tensors in each, from the command line: looked at, converted from two ranks to four and back, joined and
//! split; and what is wrong with them or with what was typed, in one sentence.

use crate::folder::Folder;
use reshard_shards::{ShardSet, Tensors};
use std::collections::BTreeMap;
use std::path::Path;

const FROM: &str = "--from *.down=(*,|block)|on|1x2 --from (block,|*)|on|2x1 --from (*)|on|2";
const TO: &str = "--to *.down=(*,|block)|on|1x4 --to (block,|*)|on|4x1 --to (*)|on|4";

/// What each of some ranks has: `up` is cut along its first dimension, `down` along its second, every rank has all of the norms.
pub fn write_model(folder: &Path, ranks: u64) {
    std::fs::create_dir_all(folder).unwrap();
    let bf16 = "bf16".parse().unwrap();
    for rank in 0..ranks {
        let mut wanted = vec![("step".to_string(), "i64".parse().unwrap(), vec![])];
        for layer in 0..3 {
            wanted.push((format!("{layer}.up"), bf16, vec![24 / ranks, 10]));
            wanted.push((format!("{layer}.down"), bf16, vec![10, 24 / ranks]));
            wanted.push((format!("{layer}.norm"), "f32".parse().unwrap(), vec![10]));
        }
        let words = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        let tensors = Tensors::new(wanted, words).unwrap();
        let mut bytes = tensors.write().unwrap();
        for tensor in tensors.tensors() {
            let elem = tensor.element.bytes();
            for number in 0..tensor.bytes / elem {
                let columns = tensor.shape.get(1).copied().unwrap_or(1);
                let (mut row, mut column) = (number / columns, number % columns);
                match tensor.name.split_once('.') {
                    Some((_, "up")) => row += rank * 24 / ranks,
                    Some((_, "down")) => column += rank * 24 / ranks,
                    _ => {}
                }
                let first = tensor.name.as_bytes()[0];
                bytes.extend((0..elem).map(|byte| (101 * row + 37 * column + 5 * byte) as u8 ^ first));
            }
        }
        std::fs::write(folder.join(format!("tp{rank}.safetensors")), bytes).unwrap();
    }
}

fn same_tensors(folder: &Folder, one: &str, other: &str) {
    let [one, other] = [one, other].map(|name| {
        let bytes = folder.bytes_of(name);
        let header = Tensors::read(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(header.metadata()["format"], "pt");
        let tensor = |tensor: &reshard_shards::Tensor| {
            let data = bytes[tensor.start as usize..][..tensor.bytes as usize].to_vec();
            (tensor.name.clone(), (tensor.element, tensor.shape.clone(), data))
        };
        header.tensors().iter().map(tensor).collect::<BTreeMap<_, _>>()
    });
    assert!(one == other);
}

#[test]
fn a_model_is_converted_to_other_ranks_and_back() {
    let folder = Folder::new("model");
    write_model(&folder.path("tp2"), 2);
    write_model(&folder.path("tp4"), 4);
    let source = "tp2/tp{rank}.safetensors";
    folder.good(&format!("show {source} {FROM}"));
    folder.good(&format!("show {source} {FROM} --json"));
    folder.good(&format!("verify {source} {FROM}"));
    folder.good(&format!("convert {source} new4 {FROM} {TO} --dry-run"));
    assert!(!folder.path("new4").exists());
    folder.good(&format!("convert {source} new4 {FROM} {TO} --memory 16MiB --json"));
    for command in ["verify new4", "verify new4 --json", "show new4", "show new4 --json"] {
        folder.good(command);
    }
    for rank in 0..4 {
        same_tensors(
            &folder,
            &format!("tp4/tp{rank}.safetensors"),
            &format!("new4/rank_{rank:04}.safetensors"),
        );
    }
    // All in one file, of which two are made with names of their own.
    folder.good("convert new4 whole.safetensors --to (*)|on|1 --to (*,|*)|on|1x1");
    folder.good("show whole.safetensors");
    let two = FROM.replace("--from", "--to");
    folder.good(&format!("convert whole.safetensors new2/model-{{rank:05}}.safetensors {two}"));
    for rank in 0..2 {
        same_tensors(
            &folder,
            &format!("tp2/tp{rank}.safetensors"),
            &format!("new2/model-{rank:05}.safetensors"),
        );
    }
    // One array is a tensor, too, and the other way round.
    folder.good("make made --shape 40x30 --layout 2x2/8x8 --seed 3");
    folder.good("convert made tensor --to 3x1/7x9 --format safetensors");
    folder.good("convert tensor back --to 2x2/8x8|memory=col --format npy");
    folder.good("verify tensor");
    let [made, back] = ["made", "back"].map(|name| folder.files(name).unwrap());
    assert!(made == back);
    assert_eq!(ShardSet::open(folder.path("tensor")).unwrap().arrays()[0].name(), "array");
}

#[test]
fn what_is_wrong_with_models() {
    let folder = Folder::new("model-wrong");
    write_model(&folder.path("tp2"), 2);
    let before = folder.path("").read_dir().unwrap().count();
    let good = folder.bytes_of("tp2/tp1.safetensors");
    let source = "tp2/tp{rank}.safetensors";
    let all = format!("convert {source} new {FROM} {TO}");
    for (command, code, expected) in [
        (format!("convert {source} new {TO}"), 1, "the layout of the files is not known"),
        (
            format!("convert {source} new {FROM} --to (*)|on|4"),
            2,
            "has 2 dimensions, but the layout (*) on 4 has 1",
        ),
        (format!("convert {source} new {FROM} {TO} --to x=1/1"), 2, "'x=1/1' is the layout of no tensor"),
        (format!("convert {source} new {FROM} --to (*)|on"), 2, "--to"),
        (format!("convert {source} new {FROM}"), 2, "--to"),
        (format!("{all} --format npy"), 1, "files of the format npy hold one"),
        (format!("{all} --names {{p}}_{{q}}.safetensors"), 1, "asks for coordinate"),
        (format!("{all} --names x{{rank}}.npy"), 1, "files of the format npy hold one"),
        (format!("{all} --format raw --names x{{rank}}.safetensors"), 2, "were to be called"),
        (format!("convert {source} new.safetensors {FROM} {TO}"), 2, "has 4 ranks; give a directory"),
        (
            format!("convert {source} new.safetensors {FROM} --to (*)|on|1 --to (*,|*)|on|1x1|ranks=3"),
            1,
            "have the ranks 0 and 3; give a directory, or layouts of the same rank",
        ),
        (format!("{all} --shape 24x10"), 1, "leave it out"),
        (format!("convert {source} new {FROM} --to (block,|*)|on|2x1 --to block|on|4"), 2, "--to"),
        (format!("convert {source} new {FROM} {TO} --transpose"), 2, "it is for sets of one array"),
        (format!("verify {source} --from (*)|on|2"), 1, "has 2 dimensions, and its layout"),
    ] {
        folder.run(&command).refused(code, expected);
        assert_eq!(folder.path("").read_dir().unwrap().count(), before, "{command}");
    }
    // A copy that differs, in a norm.
    let header = Tensors::read(&good, good.len() as u64).unwrap();
    let norm = header.tensors().iter().find(|tensor| tensor.name == "1.norm").unwrap();
    let mut bad = good.clone();
    bad[norm.start as usize + 7] ^= 4;
    std::fs::write(folder.path("tp2/tp1.safetensors"), bad).unwrap();
    for command in [all.clone(), format!("verify {source} {FROM}")] {
        folder.run(&command).refused(
            1,
            "the tensor '1.norm' is replicated, but its copies in tp2/tp0.safetensors and tp2/tp1.safetensors differ",
        );
        assert_eq!(folder.path("").read_dir().unwrap().count(), before, "{command}");
    }
    // Headers that were cut off or changed; a file that is not there.
    for (bytes, expected) in [
        (&good[..good.len() - 1], "tp1.safetensors: the safetensors file has"),
        (&good[..20], "tp1.safetensors: the safetensors header claims"),
        (&[][..], "tp1.safetensors: the safetensors header is cut off"),
        (&good.clone()[8..], "tp1.safetensors: the safetensors header claims"),
    ] {
        std::fs::write(folder.path("tp2/tp1.safetensors"), bytes).unwrap();
        folder.run(&all).refused(1, expected);
    }
    std::fs::remove_file(folder.path("tp2/tp1.safetensors")).unwrap();
    folder.run(&all).refused(1, "tp1.safetensors");
}

#[test]
fn files_that_the_layouts_leave_out_are_refused() {
    let folder = Folder::new("model-more");
    write_model(&folder.path("tp4"), 4);
    let source = "tp4/tp{rank}.safetensors";
    for command in [format!("verify {source} {FROM}"), format!("convert {source} new {FROM} {TO}")] {
        let expected = "tp2.safetensors is there, too, and the layout has ranks 0 and 1 only";
        folder.run(&command).refused(1, expected);
        assert!(!folder.path("new").exists());
    }
}

#[test]
fn a_number_becomes_an_array_of_one_element() {
    let folder = Folder::new("number");
    let tensors =
        Tensors::new(vec![("step".into(), "i64".parse().unwrap(), vec![])], BTreeMap::new()).unwrap();
    let mut bytes = tensors.write().unwrap();
    bytes.resize(tensors.file_bytes() as usize, 9);
    std::fs::write(folder.path("step.safetensors"), bytes).unwrap();
    for format in ["npy", "raw"] {
        let convert = format!("convert step.safetensors {format} --to (*)|on|1 --format {format}");
        folder.good(&format!("{convert} --dry-run"));
        folder.good(&convert);
        folder.good(&format!("verify {format}"));
    }
    folder.good("convert step.safetensors step.npy --to (*)|on|1");
    folder.good("show step.npy");
}
