//! What NumPy and safetensors write is read, and what is written they read: all types, both orders, 0 to 5 dimensions, no elements.
//!
//! Their Python is in target/python, where `cargo xtask test` puts it, or the system's. Without them the tests are left out with a sentence,
//! unless RESHARD_NEEDS_NUMPY says that they must be here.

use crate::folder::Folder;
use reshard::{ElementType, Layout, MemoryOrder};
use reshard_shards::{
    ConvertOptions, Format, Import, Layouts, MANIFEST_NAME, Manifest, ManifestArray, Npy, ShardFile,
    ShardSet, Sums, Tensors, convert, convert_arrays, make, same_in_npy,
};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sets/python/numpy_and_safetensors.py");

/// The Python that has NumPy and safetensors.
fn python() -> Option<&'static str> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python");
    let has_all = |python: &&str| {
        let tried = Command::new(python).args(["-c", "import numpy, safetensors"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let found = [own, "python3"].into_iter().find(has_all);
    if found.is_none() {
        assert!(std::env::var_os("RESHARD_NEEDS_NUMPY").is_none(), "no Python has NumPy and safetensors");
        println!("no Python here has NumPy and safetensors: that they read what we write is not tested");
    }
    found
}

/// Runs the script. Returns its lines.
fn run(python: &str, folder: &Folder, command: &str, spec: Option<&Value>) -> Vec<Value> {
    let mut script = Command::new(python);
    script.arg(SCRIPT).arg(command).arg(&folder.0);
    if let Some(spec) = spec {
        let path = folder.0.join("spec.json");
        std::fs::write(&path, spec.to_string()).unwrap();
        script.arg(path);
    }
    let output = script.output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lengths(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|length| length.as_u64().unwrap()).collect()
}

/// What the script puts into files.
fn pattern(bytes: u64, element: &str) -> Vec<u8> {
    let most = if element == "bool" { 2 } else { 251 };
    (0..bytes).map(|at| ((7 * at + 13) % most) as u8).collect()
}

#[test]
fn headers_of_numpy_are_read_and_ours_are_the_same() {
    let Some(python) = python() else { return };
    let folder = Folder::new("numpy");
    let files = run(python, &folder, "write-npy", None);
    for one in &files {
        let bytes = std::fs::read(folder.0.join(one["file"].as_str().unwrap())).unwrap();
        let name = one["type"].as_str().unwrap();
        let (element, shape): (ElementType, _) = (name.parse().unwrap(), lengths(&one["shape"]));
        let npy = Npy::read(&bytes, bytes.len() as u64).unwrap_or_else(|error| panic!("{one}: {error}"));
        assert!(npy.element() == element && same_in_npy(npy.element(), element), "{one}");
        assert_eq!((npy.shape(), Value::from(npy.fortran_order())), (&shape[..], one["fortran"].clone()));
        let (header, data) = bytes.split_at(npy.data_start() as usize);
        assert_eq!(data, pattern(npy.data_bytes(), name), "{one}");
        if one["version"] == 1 {
            let fortran = one["fortran"].as_bool().unwrap();
            assert_eq!(Npy::new(element, fortran, shape).unwrap().write(), header, "{one}");
        }
    }
    // 16 types that NumPy has a name for, 15 shapes, two orders, three versions.
    assert_eq!(files.len(), 16 * 15 * 2 * 3);
}

const LAYOUTS: [(&[u64], &[u64], &[u64]); 7] = [
    (&[40], &[3], &[4]),
    (&[0], &[2], &[3]),
    (&[13, 11], &[2, 3], &[3, 2]),
    (&[5, 0], &[2, 2], &[2, 2]),
    (&[7, 6, 5], &[2, 1, 2], &[2, 3, 2]),
    (&[5, 4, 3, 6], &[2, 2, 1, 2], &[1, 3, 2, 2]),
    (&[3, 2, 4, 3, 5], &[1, 2, 2, 1, 3], &[2, 1, 1, 3, 1]),
];

fn layout(shape: &[u64], grid: &[u64], block: &[u64], order: &str) -> Layout {
    let by_x = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let order = if order == "C" { "row" } else { "col" };
    format!("{}/{} of {} memory={order}", by_x(grid), by_x(block), by_x(shape)).parse().unwrap()
}

#[test]
fn numpy_reads_every_element_of_our_sets() {
    let Some(python) = python() else { return };
    let folder = Folder::new("to-numpy");
    let mut sets = Vec::new();
    let add = |name: &str,
               made: &[u64],
               shape: &[u64],
               grid: &[u64],
               block: &[u64],
               element: &str,
               order: &str,
               transposed| {
        let set = ShardSet::open(folder.0.join(name)).unwrap();
        json!({"set": name, "made": made, "shape": shape, "grid": grid, "block": block, "type": element, "seed": 9,
            "order": order, "transposed": transposed, "names": set.names().collect::<Vec<_>>()})
    };
    for (at, (shape, grid, block)) in LAYOUTS.iter().enumerate() {
        for (number, element) in ["f64", "u64", "i16", "u8"].into_iter().enumerate() {
            let order = ["C", "F"][(at + number) % 2];
            let name = format!("made-{at}-{element}");
            let from = layout(shape, grid, block, order);
            make(folder.0.join(&name), &from, element.parse().unwrap(), Format::Npy, 9, |_, _| {}).unwrap();
            sets.push(add(&name, shape, shape, grid, block, element, order, false));
            // The same array, transposed, in the other order, with the processes of the dimensions exchanged.
            let other = ["F", "C"][(at + number) % 2];
            let reversed = |numbers: &[u64]| numbers.iter().rev().copied().collect::<Vec<_>>();
            let (turned, grid, block) = (reversed(shape), grid.to_vec(), vec![2; shape.len()]);
            let axes: Vec<usize> = (0..shape.len()).rev().collect();
            let options = ConvertOptions::default().with_axes(&axes).with_box_bytes(200);
            let set = ShardSet::open(folder.0.join(&name)).unwrap();
            let name = format!("turned-{at}-{element}");
            let to = layout(&turned, &grid, &block, other);
            convert(&set, folder.0.join(&name), &to, &options, |_, _| {}).unwrap();
            sets.push(add(&name, shape, &turned, &grid, &block, element, other, true));
        }
    }
    let checked = run(python, &folder, "check-sets", Some(&Value::from(sets)));
    assert_eq!(checked, [2 * 4 * LAYOUTS.len()]);
}

/// A set of files that others wrote, with a manifest of ours.
fn adopt(path: &Path, names: &[String], layout: &Layout, element: ElementType) {
    let mut files = Vec::new();
    for name in names {
        let mut sums = Sums::new(4096);
        sums.update(&std::fs::read(path.join(name)).unwrap());
        let (bytes, blake3, crc32c) = sums.finish();
        files.push(ShardFile { name: name.clone(), bytes, blake3: Some(blake3), crc32c });
    }
    let distribution = layout.distribution();
    let array = ManifestArray {
        name: String::new(),
        shape: distribution.shape(),
        element,
        layout: distribution.pattern(),
        order: layout.order(),
        made: None,
    };
    let manifest = Manifest { arrays: vec![array], format: Format::Npy, block_bytes: 4096, files };
    std::fs::write(path.join(MANIFEST_NAME), manifest.write().unwrap()).unwrap();
}

#[test]
fn sets_of_numpy_are_converted() {
    let Some(python) = python() else { return };
    let folder = Folder::new("from-numpy");
    let (mut written, mut converted) = (Vec::new(), Vec::new());
    for (at, (shape, grid, block)) in LAYOUTS.iter().enumerate() {
        for (number, element) in ["f64", "u64", "i16", "u8"].into_iter().enumerate() {
            let ranks: u64 = grid.iter().product();
            let names: Vec<String> = (0..ranks).map(|rank| format!("part{rank}.npy")).collect();
            let order = ["C", "F"][(at + number) % 2];
            written.push(
                json!({"set": format!("theirs-{at}-{element}"), "shape": shape, "grid": grid, "block": block,
                "type": element, "seed": 9, "order": order, "version": [1 + number % 3, 0], "names": names}),
            );
        }
    }
    run(python, &folder, "write-shards", Some(&Value::from(written.clone())));
    for one in &written {
        let [shape, grid, block] = ["shape", "grid", "block"].map(|key| lengths(&one[key]));
        let names: Vec<String> =
            one["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().into()).collect();
        let element = one["type"].as_str().unwrap();
        let path = folder.0.join(one["set"].as_str().unwrap());
        let from = layout(&shape, &grid, &block, one["order"].as_str().unwrap());
        adopt(&path, &names, &from, element.parse().unwrap());
        let set = ShardSet::open(&path).unwrap_or_else(|error| panic!("{one}: {error}"));
        assert_eq!(set.verify(|_, _| {}).unwrap().files, names.len() as u64);
        let whole = vec![1; shape.len()];
        let name = one["set"].as_str().unwrap().replace("theirs", "ours");
        let order = if from.order() == MemoryOrder::RowMajor { "F" } else { "C" };
        let options = ConvertOptions::default().with_box_bytes(100);
        convert(&set, folder.0.join(&name), &layout(&shape, &whole, &whole, order), &options, |_, _| {})
            .unwrap();
        converted.push(
            json!({"set": name, "made": shape, "shape": shape, "grid": whole, "block": whole, "type": element,
            "seed": 9, "order": order, "transposed": false, "names": ["rank_0000.npy"]}),
        );
    }
    let checked = run(python, &folder, "check-sets", Some(&Value::from(converted)));
    assert_eq!(checked, [4 * LAYOUTS.len()]);
}

#[test]
fn safetensors_are_read_and_written() {
    let Some(python) = python() else { return };
    let folder = Folder::new("safetensors");
    let files = run(python, &folder, "write-tensors", None);
    let mut ours = Vec::new();
    for one in &files {
        let name = one["file"].as_str().unwrap();
        let bytes = std::fs::read(folder.0.join(name)).unwrap();
        let read =
            Tensors::read(&bytes, bytes.len() as u64).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(json!(read.metadata()), one["metadata"]);
        let listed = one["tensors"].as_array().unwrap();
        assert_eq!(read.tensors().len(), listed.len(), "{name}");
        let mut wanted = Vec::new();
        for tensor in listed {
            let [key, element] = ["key", "type"].map(|word| tensor[word].as_str().unwrap());
            let found = read.tensors().iter().find(|found| found.name == key).unwrap();
            let data = &bytes[found.start as usize..][..found.bytes as usize];
            assert_eq!((found.element, &found.shape), (element.parse().unwrap(), &lengths(&tensor["shape"])));
            assert_eq!(data, pattern(found.bytes, element), "{tensor}");
            wanted.push((key.to_string(), found.element, found.shape.clone()));
        }
        // The same tensors, as we write them.
        let tensors = Tensors::new(wanted, read.metadata().clone()).unwrap();
        let mut bytes = tensors.write().unwrap();
        for tensor in tensors.tensors() {
            assert_eq!(tensor.start, bytes.len() as u64);
            bytes.extend(pattern(tensor.bytes, tensor.element.name().unwrap()));
        }
        assert_eq!(bytes.len() as u64, tensors.file_bytes());
        let file = format!("{name}.ours");
        std::fs::write(folder.0.join(&file), bytes).unwrap();
        ours.push(json!({"file": file, "metadata": one["metadata"], "tensors": one["tensors"]}));
    }
    assert!(files.len() > 5, "{} files", files.len());
    let checked = run(python, &folder, "check-tensors", Some(&Value::from(ours)));
    assert_eq!(checked, [files.len()]);
}

/// A model as tensor-parallel jobs write it: Python writes two files, four are made of them, and back.
#[test]
fn models_of_safetensors_are_converted() {
    let Some(python) = python() else { return };
    let folder = Folder::new("model");
    let tensor = |key: &str, dtype: &str, shape: &[u64], split: Option<u64>| json!({"key": key, "dtype": dtype, "shape": shape, "split": split});
    let tensors = [
        tensor("layers.0.up.weight", "float16", &[24, 10], Some(0)),
        tensor("layers.0.down.weight", "float32", &[10, 24], Some(1)),
        tensor("layers.0.norm.weight", "float32", &[10], None),
        tensor("embed", "int8", &[40, 3, 2], Some(0)),
        tensor("steps", "int64", &[], None),
        tensor("empty", "uint8", &[0, 4], None),
    ];
    let spec = |ranks: u64, set: &str| json!({"ranks": ranks, "set": set, "tensors": tensors});
    let layouts = |ranks: u64| {
        Layouts::new([
            format!("*.down.*=(*, block) on 1x{ranks}"),
            format!("empty=(*, *) on {ranks}x1"),
            format!("(block, *) on {ranks}x1"),
            format!("(*) on {ranks}"),
            format!("embed=(block, *, *) on {ranks}x1x1"),
        ])
        .unwrap()
    };
    run(python, &folder, "write-model", Some(&spec(2, "")));
    let mut set =
        ShardSet::import(folder.0.join("tp{rank}.safetensors"), &Import::default().with_layouts(layouts(2)))
            .unwrap();
    for ranks in [4, 1, 2] {
        let options = ConvertOptions::default().with_format(Format::Safetensors).with_box_bytes(100);
        let (name, to) = (format!("tp{ranks}"), options.layouts(&set, &layouts(ranks)).unwrap());
        convert_arrays(&set, folder.0.join(&name), &to, &options, |_, _| {}).unwrap();
        assert_eq!(run(python, &folder, "check-model", Some(&spec(ranks, &name))), [ranks]);
        set = ShardSet::open(folder.0.join(&name)).unwrap();
    }
}
