//! The recipes for models, as they stand in the README and in docs/files.md, run on models with the names and cuts of real ones; and those
//! that are wrong, which are noticed before a byte is written.

use crate::folder::{Folder, PROGRAM};
use crate::ranks::LAUNCHERS;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sets/python/model.py");

/// The recipe of an earlier README: `o_proj` is cut along its columns, and is not named.
const WRONG: [&str; 6] =
    ["--from", "*.down_proj.weight=(*, block) on 1x2", "--from", "(block, *) on 2x1", "--from", "(*) on 2"];
const TO: [&str; 6] =
    ["--to", "*.down_proj.weight=(*, block) on 1x4", "--to", "(block, *) on 4x1", "--to", "(*) on 4"];

/// The Python that has NumPy and safetensors; none, with a sentence, where there is none.
fn python() -> Option<String> {
    let own = format!("{ROOT}/target/python/bin/python");
    let has_all = |python: &String| {
        let tried = Command::new(python).args(["-c", "import numpy, safetensors"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let found = [own, "python3".into()].into_iter().find(has_all);
    if found.is_none() {
        assert!(std::env::var_os("RESHARD_NEEDS_NUMPY").is_none(), "no Python has NumPy and safetensors");
        println!("no Python here has NumPy and safetensors: the recipes for models are not tested");
    }
    found
}

/// Runs the script. Returns what it prints.
fn script(python: &str, folder: &Folder, command: &str, paths: &[&str]) -> String {
    let paths = paths.iter().map(|path| folder.path(path));
    let output = Command::new(python).arg(SCRIPT).arg(command).args(paths).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with the models, and the Python that wrote them.
fn models(name: &str) -> Option<(Folder, String)> {
    let python = python()?;
    let folder = Folder::new(name);
    script(&python, &folder, "write", &[""]);
    Some((folder, python))
}

/// The shell blocks of a page that name a file.
fn blocks(page: &str, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_string());
    blocks.filter(|block| block.contains(file)).collect()
}

/// Runs a block as a shell does, the program being on the path.
fn run_block(folder: &Folder, block: &str) {
    let path = std::env::var("PATH").unwrap();
    let programs = Path::new(PROGRAM).parent().unwrap().display();
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", block]).current_dir(&folder.0).env("PATH", format!("{programs}:{path}"));
    let output = shell.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{block}\n{said}");
}

/// The program's exit code, standard output and standard error.
fn run(folder: &Folder, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM).args(words).current_dir(&folder.0).output().unwrap();
    let [out, talk] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), out, talk)
}

#[test]
fn the_recipe_of_the_readme_gives_every_element() {
    let Some((folder, python)) = models("recipe-readme") else { return };
    let blocks = blocks("README.md", "tp2/");
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    run_block(&folder, &blocks[0]);
    let compared = script(&python, &folder, "compare", &["tp4", "wanted-tp4"]);
    assert!(compared.trim().parse::<u64>().unwrap() > 3_000_000, "{compared}");
}

#[test]
fn the_recipes_of_the_manual_give_every_element() {
    let Some((folder, python)) = models("recipe-manual") else { return };
    std::fs::rename(folder.path("whole.safetensors"), folder.path("wanted-whole.safetensors")).unwrap();
    for block in blocks("docs/files.md", "tp2/") {
        run_block(&folder, &block);
    }
    for block in blocks("docs/files.md", "fused2/") {
        run_block(&folder, &block);
    }
    for (made, wanted) in [
        ("tp4", "wanted-tp4"),
        ("whole.safetensors", "wanted-whole.safetensors"),
        ("fused4", "wanted-fused4"),
    ] {
        script(&python, &folder, "compare", &[made, wanted]);
    }
    // The models differ, and so does what is compared.
    let different = Command::new(&python)
        .args([SCRIPT, "compare"])
        .args([folder.path("tp4"), folder.path("fused4")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&different.stderr);
    assert!(!different.status.success() && said.contains("AssertionError"), "{said}");
}

#[test]
fn a_tensor_cut_along_the_wrong_axis_is_named() {
    let Some((folder, _)) = models("recipe-wrong") else { return };
    let source = "tp2/model-{rank}.safetensors";
    let convert = [&["convert", source, "new"][..], &WRONG, &TO].concat();
    let (code, table, said) = run(&folder, &[&convert[..], &["--dry-run"]].concat());
    let lines: Vec<&str> = said.lines().collect();
    assert!(code == 0 && lines.len() == 1, "{code}: {said}");
    for part in [
        "warning: '(block, *) on 2x1' is the layout of all tensors that are not named",
        "makes 'model.layers.*.self_attn.o_proj.weight' (3 tensors) 64x16",
        "cut along dimension 1 it is 32x32, a shape that 'model.layers.*.self_attn.q_proj.weight' has",
        "'*.o_proj.weight=(*, block) on 1x2'",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let row = |name: &str| {
        let row = table.lines().find(|line| line.contains(name));
        row.unwrap_or_else(|| panic!("{name}: {table}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let down = row("mlp.down_proj.weight");
    assert_eq!(
        down,
        "model.layers.*.mlp.down_proj.weight (3 layers) f16 32x11008 *.down_proj.weight (*, block) on 1x2 (*, block) on 1x4 2.1 MB"
    );
    let norm = row("input_layernorm");
    assert_eq!(
        norm,
        "model.layers.*.input_layernorm.weight (3 layers) f16 32 * (*) on 2, 2 copies (*) on 4, 4 copies 0.0 MB"
    );
    // Nothing named: the projection down is noticed by the transpose of the others.
    let (_, _, said) =
        run(&folder, &[&["convert", source, "new", "--dry-run"][..], &WRONG[2..], &TO[2..]].concat());
    assert!(said.contains("'*.down_proj.weight=(*, block) on 1x2'") && said.lines().count() == 2, "{said}");
    // A file with the whole, or a list, decides.
    let whole = [&convert[..], &["--expect", "whole.safetensors"]].concat();
    let (code, _, said) = run(&folder, &whole);
    let expected = "the source is not what is expected: the tensor 'model.layers.0.self_attn.o_proj.weight' is f16 64x16, not f16 32x32";
    assert!(code == 1 && said.contains(expected), "{code}: {said}");
    assert!(!folder.path("new").exists());
    let (_, answer, _) = run(&folder, &[&convert[..], &["--dry-run", "--json"]].concat());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1, "{answer}");
    let table = answer["table"].as_array().unwrap();
    let down = table.iter().find(|row| row["tensor"] == "model.layers.*.mlp.down_proj.weight").unwrap();
    assert_eq!((&down["count"], &down["from"]["rule"]), (&3.into(), &"*.down_proj.weight".into()), "{down}");
    assert_eq!(down["to"]["layout"], "(*, block) on 1x4", "{down}");
    let norm = table.iter().find(|row| row["tensor"] == "model.norm.weight").unwrap();
    assert_eq!((&norm["from"]["copies"], &norm["to"]["copies"]), (&2.into(), &4.into()), "{norm}");
    let bytes: u64 = table.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(answer["bytes"], bytes, "{answer}");
}

#[test]
fn what_is_expected_is_checked_before_a_byte_is_written() {
    let Some((folder, _)) = models("recipe-expect") else { return };
    let list = |command: &str| {
        let words: Vec<&str> = command.split_whitespace().collect();
        let (code, out, said) = run(&folder, &words);
        assert_eq!(code, 0, "{command}: {said}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let shown = list("show whole.safetensors --json");
    let write = |name: &str, value: &Value| std::fs::write(folder.path(name), value.to_string()).unwrap();
    write("shown.json", &shown);
    write("list.json", &shown["tensors"]);
    for expect in ["whole.safetensors", "shown.json", "list.json"] {
        list(&format!(
            "convert whole.safetensors new-{expect} --expect {expect} --to 1/1 --to 1x1/1x1 --json"
        ));
        assert!(folder.path(&format!("new-{expect}")).exists());
    }
    let tensors = shown["tensors"].as_array().unwrap();
    let (mut fewer, mut more, mut other, mut twice) =
        (tensors.clone(), tensors.clone(), tensors.clone(), tensors.clone());
    fewer.pop();
    more.push(serde_json::json!({"name": "extra", "dtype": "BF16", "shape": [2]}));
    other[0]["type"] = "bf16".into();
    twice.push(tensors[0].clone());
    for (wrong, expected) in [
        (Value::from(fewer), "is f16 32, and is not expected"),
        (more.into(), "the tensor 'extra' is missing"),
        (other.into(), "not bf16"),
        (twice.into(), "twice"),
        ("no list".into(), "the list of expected tensors is none"),
        (serde_json::json!([{"name": "a", "type": "f7", "shape": [1]}]), "f7"),
    ] {
        write("wrong.json", &wrong);
        let outcome = folder.run("convert whole.safetensors new --expect wrong.json --to 1/1 --to 1x1/1x1");
        outcome.refused(1, expected);
        assert!(!folder.path("new").exists(), "{outcome}");
    }
    folder
        .run("convert whole.safetensors new --expect none.json --to 1/1 --to 1x1/1x1")
        .refused(1, "none.json");
    // A layout of all tensors that is that of none is named, too.
    let (code, _, said) = run(
        &folder,
        &["convert", "whole.safetensors", "new", "--to", "1/1", "--to", "1x1/1x1", "--to", "1x1x1/1x1x1"],
    );
    assert!(
        code == 0 && said.contains("warning: '1x1x1/1x1x1' is the layout of no tensor"),
        "{code}: {said}"
    );
}

/// What is expected differs on one rank of a job: all fail, and none waits for the others.
#[test]
fn ranks_that_expect_something_else_are_an_error_of_all() {
    let folder = Folder::new("recipe-ranks");
    folder.good("make made --shape 40x30 --layout 2x1/20x30 --format safetensors");
    let list =
        |shape: [u64; 2]| serde_json::json!([{"name": "array", "type": "f64", "shape": shape}]).to_string();
    std::fs::write(folder.path("right.json"), list([40, 30])).unwrap();
    std::fs::write(folder.path("wrong.json"), list([30, 40])).unwrap();
    for launcher in LAUNCHERS {
        if !Command::new(launcher[0]).arg("--version").output().is_ok_and(|output| output.status.success()) {
            println!("there is no {}: what ranks of it expect is not tested", launcher[0]);
            continue;
        }
        let launched = |second: &str| {
            let mut by: Vec<&str> = [&["timeout", "1200"], launcher].concat();
            for (rank, expected) in ["right.json", second].into_iter().enumerate() {
                by.extend((rank > 0).then_some(":"));
                by.extend([
                    "-n",
                    "1",
                    PROGRAM,
                    "convert",
                    "made",
                    "new",
                    "--to",
                    "3x1/14x30",
                    "--expect",
                    expected,
                ]);
            }
            folder.run_by(&by[..by.len() - 1], by[by.len() - 1])
        };
        for wrong in ["wrong.json", "none.json"] {
            let outcome = launched(wrong);
            let expected = if wrong == "none.json" { "none.json" } else { "is f64 40x30, not f64 30x40" };
            assert!(outcome.code != 124 && outcome.said.contains(expected), "{outcome}");
            assert!(outcome.code != 0 && !folder.path("new").exists(), "{outcome}");
        }
        let outcome = launched("right.json");
        assert_eq!(outcome.code, 0, "{outcome}");
        folder.remove("new");
    }
}
