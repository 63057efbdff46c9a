//! Sets of files: made, converted, verified and shown, and what is refused.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that the program runs in, removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("reshard-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn run(&self, command: &str) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_reshard"));
        program.args(command.split_whitespace()).current_dir(&self.0).output().unwrap()
    }

    fn json(&self, command: &str) -> Value {
        let output = self.run(&format!("{command} --json"));
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All keys of an answer must be on the page.
fn on_the_page(section: &str, answer: &Value) {
    let page = include_str!("../../../../docs/json.md");
    let at = page.find(&format!("## `{section}`")).unwrap();
    let own = page[at + 3..].split("\n## ").next().unwrap();
    for key in answer.as_object().unwrap().keys().filter(|key| *key != "schema") {
        assert!(own.contains(&format!("`{key}`")), "{section}: {key} is not on docs/json.md");
    }
}

#[test]
fn sixteen_files_become_nine() {
    let folder = Folder::new("sixteen");
    let made = folder.json("make ck16 --shape 400x300 --layout 4x4/16x16");
    assert_eq!(made["bytes"], 8 * 400 * 300);
    on_the_page("make", &made);
    let planned = folder.json("convert ck16 ck9 --to 3x3/10x10 --dry-run");
    assert_eq!((&planned["done"], folder.0.join("ck9").exists()), (&Value::Bool(false), false));
    let converted = folder.json("convert ck16 ck9 --to 3x3/10x10 --memory 16MiB");
    assert_eq!((&converted["done"], &converted["boxes"]), (&Value::Bool(true), &Value::from(1)));
    on_the_page("convert", &converted);
    let verified = folder.json("verify ck9");
    assert_eq!((&verified["elements"], &verified["files"]), (&Value::from(400 * 300), &Value::from(9)));
    on_the_page("verify", &verified);
    let shown = folder.json("show ck9");
    assert_eq!((&shown["layout"], &shown["made"]), (&Value::from("3x3/10x10"), &Value::Bool(true)));
    on_the_page("show", &shown);
    // And everything in one file, transposed.
    folder.json("convert ck9 whole --to 1x1/300x400 --transpose --names whole.npy");
    assert_eq!(folder.json("verify whole")["elements"], 400 * 300);
    assert!(folder.0.join("whole/whole.npy").exists());
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let folder = Folder::new("wrong");
    folder.json("make set --shape 40x30 --layout 2x2/8x8 --type i32");
    std::fs::create_dir(folder.0.join("empty")).unwrap();
    let cases = [
        ("convert set set --to 1x1/9x9", 1, "lies in the source"),
        ("convert set set/new --to 1x1/9x9", 1, "lies in the source"),
        ("convert set empty --to 1x1/9x9", 1, "exists already"),
        ("convert set no/such --to 1x1/9x9", 1, "make it first"),
        ("convert empty new --to 1x1/9x9", 1, "is no set of shards"),
        ("convert nothing new --to 1x1/9x9", 1, "cannot be opened"),
        ("convert set new --to 3/9", 2, "--to"),
        ("convert set new --to 1x1/9x9 --memory 1", 1, "at least"),
        ("convert set new --to 2x2/9x9 --names same.npy", 1, "the same file"),
        ("make set --shape 40x30 --layout 2x2/8x8", 1, "exists already"),
        ("make other --shape 40x30 --layout 2x2/8x8 --type f63", 2, "f63"),
        ("make other --shape 40x30 --layout 2x2/8x8 --format zip", 2, "npy, raw and safetensors"),
    ];
    for (command, code, expected) in cases {
        let output = folder.run(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{command}: {said}");
        let left: Vec<_> = left_behind(&folder.0);
        assert!(left.is_empty(), "{command} left {left:?}");
    }
    std::fs::remove_file(folder.0.join("set/rank_0003.npy")).unwrap();
    for command in ["verify set", "convert set new --to 1x1/9x9", "show set"] {
        let output = folder.run(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("rank_0003.npy"), "{command}: {said}");
    }
}

#[test]
fn files_without_a_manifest_are_described() {
    let folder = Folder::new("import");
    folder.json("make ck16 --shape 400x300 --layout 4x4/16x16");
    folder.json("convert ck16 expected --to 3x3/10x10");
    folder.json("make bare --shape 400x300 --layout 4x4/16x16 --format raw");
    for set in ["ck16", "bare"] {
        std::fs::remove_file(folder.0.join(set).join("reshard.json")).unwrap();
    }
    let same = |set: &str, names: fn(u64) -> String| {
        for rank in 0..9 {
            let expected = std::fs::read(folder.0.join(format!("expected/rank_{rank:04}.npy"))).unwrap();
            assert!(std::fs::read(folder.0.join(set).join(names(rank))).unwrap() == expected, "{set} {rank}");
        }
    };
    folder.json("convert ck16/rank_{rank:04}.npy npy --from 4x4/16x16 --to 3x3/10x10");
    same("npy", |rank| format!("rank_{rank:04}.npy"));
    folder.json(
        "convert bare/rank_{rank:04}.bin raw/{p}-{q}.npy --from 4x4/16x16 --shape 400x300 --type f64 --to 3x3/10x10",
    );
    same("raw", |rank| format!("{}-{}.npy", rank / 3, rank % 3));
    let shown = folder.json("show ck16/rank_{rank:04}.npy --from 4x4/16x16");
    assert_eq!((&shown["shape"][0], &shown["type"]), (&Value::from(400), &Value::from("f64")));
    // One file is the trivial layout, and needs no more than its name.
    folder.json("convert npy all.npy --to 1x1/400x300");
    assert_eq!(std::fs::metadata(folder.0.join("all.npy")).unwrap().len(), 128 + 8 * 400 * 300);
    assert!(left_behind(&folder.0).is_empty());
    folder.json("convert all.npy split --to 3x3/10x10");
    same("split", |rank| format!("rank_{rank:04}.npy"));
    let cases = [
        ("convert ck16/rank_{rank:04}.npy new --to 1x1/9x9", 1, "--from"),
        (
            "convert ck16/rank_{rank:04}.npy new --from 4x4/20x16 --to 1x1/9x9",
            1,
            "the files were written under",
        ),
        ("convert ck16/rank_{rank:04}.npy new --from 5x5/16x16 --to 1x1/9x9", 1, "rank_0016.npy"),
        ("convert ck16/rank_{rank:04}.npy new --from 16/16 --to 1x1/9x9", 1, "1 dimension"),
        ("convert ck16/rank_{rank:04}.npy new --from 4x4/16x16 --type f32 --to 1x1/9x9", 1, "f32 was given"),
        ("convert ck16/rank_{rank:04}.npy new --from 4x4/16x16,memory=row --to 1x1/9x9", 2, "--from"),
        ("convert bare/rank_{rank:04}.bin new --from 4x4/16x16 --type f64 --to 1x1/9x9", 1, "--shape"),
        ("convert bare/rank_{rank:04}.bin new --from 4x4/16x16 --shape 400x300 --to 1x1/9x9", 1, "--type"),
        (
            "convert bare/rank_{rank:04}.bin new --from 4x4/16x16 --shape 400x300 --type f32 --to 1x1/9x9",
            1,
            "bytes",
        ),
        ("convert expected new --from 3x3/10x10 --to 1x1/9x9", 2, "without a manifest"),
        ("convert expected x{rank}.npy --to 1x1/9x9", 2, "without a directory"),
        ("convert expected new/x{rank}.npy --names y{rank}.npy --to 1x1/9x9", 2, "twice"),
        ("convert expected/rank_{rnk}.npy new --from 3x3/10x10 --to 1x1/9x9", 1, "{rnk}"),
        ("show expected --shape 3x3", 2, "without a manifest"),
        ("convert expected all.npy --to 1x1/9x9", 1, "exists already"),
        ("convert expected other.npy --to 2x1/9x9", 2, "is one file"),
        ("convert expected other.npy --to 1x1/9x9 --names x.npy", 2, "has its own name"),
        ("convert expected other.npy --to 1x1/9x9 --format raw", 2, "npy files end in .npy"),
        ("convert expected other.bin --to 1x1/9x9 --format npy", 2, "npy files end in .npy"),
        ("convert expected new --to 2x2/9x9 --format raw --names x{rank}.npy", 2, "npy files end in .npy"),
        (
            "convert bare/{rank}.bin new --from 1000000000000/1 --shape 9 --type f64 --to 1/9",
            1,
            "files were to be named",
        ),
    ];
    for (command, code, expected) in cases {
        let output = folder.run(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{command}: {said}");
    }
}

/// Boxes pass through files that are much smaller than the array, one after the other: what they needed is given back.
#[test]
fn memory_is_bounded_whatever_the_layout() {
    let folder = Folder::new("bounded");
    folder.json("make set --shape 4000x10000 --layout 1x16/4000x625");
    for to in ["1x20/4000x500", "7x1/572x10000"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_reshard"));
        let command = format!("convert set new --to {to} --memory 32MiB --json");
        let mut child = program
            .args(command.split_whitespace())
            .current_dir(&folder.0)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let path = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
            let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            peak = peak.max(kilobytes.unwrap_or(0));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(child.wait().unwrap().success());
        assert!((1..64 << 10).contains(&peak), "{to}: {peak} kB for an array of 312,500");
        folder.json("verify new");
        std::fs::remove_dir_all(folder.0.join("new")).unwrap();
    }
}

/// Staging directories.
fn left_behind(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().ends_with("-partial")).collect()
}
