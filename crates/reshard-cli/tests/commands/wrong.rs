//! Wrong inputs, kept as data in `wrong/`: a line is what somebody types, the line under it the exit code and the sentence he gets, `*` for
//! what differs between machines. Each gets one sentence on standard error and nothing on standard output.
//!
//! `RESHARD_WRONG=write cargo test -p reshard-cli --test commands wrong` writes the sentences anew; those that still fit are kept.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with what the commands meet: a set of files, and what looks like one.
fn prepared(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("wrong-{name}"));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("empty")).unwrap();
    fs::create_dir_all(dir.join("full/something")).unwrap();
    fs::write(dir.join("file.txt"), "this is a text\n").unwrap();
    for rank in 0..2 {
        fs::write(dir.join(format!("raw_{rank}.bin")), [0; 120]).unwrap();
    }
    for set in ["set", "missing", "damaged", "short"] {
        let made = Command::new(env!("CARGO_BIN_EXE_reshard"))
            .args(["make", dir.join(set).to_str().unwrap(), "--shape", "30", "--layout", "2/3"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let file = |set: &str| {
        let mut files: Vec<PathBuf> =
            fs::read_dir(dir.join(set)).unwrap().map(|one| one.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "npy"));
        files.sort();
        files.pop().unwrap()
    };
    fs::remove_file(file("missing")).unwrap();
    let damaged = file("damaged");
    let mut bytes = fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let short = file("short");
    let bytes = fs::read(&short).unwrap();
    fs::write(&short, &bytes[..bytes.len() - 8]).unwrap();
    dir
}

/// The answer to a command: exit code and sentence.
fn answer(line: &str, dir: &Path) -> String {
    let place = dir.to_str().unwrap();
    let mut path = std::ffi::OsString::from(Path::new(env!("CARGO_BIN_EXE_reshard")).parent().unwrap());
    path.push(":/usr/bin:/bin");
    let output = Command::new("sh")
        .args(["-c", &line.replace("{dir}", place)])
        .env("PATH", path)
        .env_remove("RESHARD_SECRET")
        .current_dir(dir)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.is_empty(), "{line} writes to standard output: {out}");
    let sentence = err.strip_prefix("error: ").unwrap_or_else(|| panic!("{line} gives no error: {err}"));
    let sentence = sentence.strip_suffix('\n').unwrap_or(sentence);
    assert!(!sentence.contains('\n'), "{line} says more than a sentence: {err}");
    let code = output.status.code();
    assert!(code == Some(1) || code == Some(2), "{line} ends with {code:?}: {err}");
    format!("{}: {}", code.unwrap(), sentence.replace(place, "{dir}"))
}

/// True if a text is what a pattern says, in which each `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    // A sentence may have stars of its own.
    if pattern == text {
        return true;
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (at, part) in parts.iter().enumerate() {
        match if at + 1 == parts.len() {
            rest.ends_with(part).then_some(rest.len())
        } else {
            rest.find(part).map(|found| found + part.len())
        } {
            Some(end) => rest = &rest[end..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// Types all lines of a file. Returns how many there are.
fn typed(name: &str) -> usize {
    let path = format!("{}/tests/commands/wrong/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap();
    let (mut anew, mut wrong, mut count) = (String::new(), Vec::new(), 0);
    let mut lines = text.lines().peekable();
    let dir = prepared(name);
    while let Some(line) = lines.next() {
        anew += line;
        anew.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        count += 1;
        let expected = lines.next_if(|next| next.starts_with("    ")).map(str::trim_start);
        let found = answer(line, &dir);
        let kept = expected.filter(|expected| fits(expected, &found));
        anew += &format!("    {}\n", kept.unwrap_or(&found));
        if kept.is_none() {
            wrong.push(format!("{line}\n  expected {}\n  found    {found}", expected.unwrap_or("nothing")));
        }
    }
    if std::env::var_os("RESHARD_WRONG").is_some() {
        fs::write(&path, anew).unwrap();
        return count;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    count
}

#[test]
fn layouts_that_are_not_written_as_they_should_be() {
    assert!(typed("notation") >= 25);
}

#[test]
fn numbers_and_units_that_are_none() {
    assert!(typed("numbers") >= 25);
}

#[test]
fn flags_that_do_not_fit() {
    assert!(typed("flags") >= 25);
}

#[test]
fn files_that_are_something_else() {
    assert!(typed("files") >= 25);
}

#[test]
fn launches_without_mpi() {
    assert!(typed("launch") >= 25);
}

#[test]
fn more_than_memory_holds() {
    assert!(typed("memory") >= 25);
}

#[test]
fn stars_stand_for_anything() {
    assert!(fits("a*c", "abbc") && fits("a*", "a") && fits("*", "") && fits("a*b*c", "a1b2c"));
    assert!(!fits("a*c", "abcd") && !fits("a", "ab") && !fits("a*b*c", "a1c"));
}
