//! The heat example: two jobs, whatever happens to the columns, compute what one process computes, and their pictures are pictures.

use serde_json::Value;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HEAT: &str = env!("CARGO_BIN_EXE_heat");

/// What both jobs say; both have verified every bit.
fn heat(options: &[&str]) -> Value {
    let output =
        Command::new(HEAT).args(options).args(["--verify", "--json"]).output().expect("it was built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {said}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(
        (&answer["producer"]["verified"], &answer["viewer"]["verified"]),
        (&true.into(), &true.into())
    );
    answer
}

/// A folder for the pictures of one test.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// The side of a picture in pixels, and its pixels.
fn picture(path: &Path) -> (usize, Vec<u8>) {
    let file = BufReader::new(File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    let mut reader = png::Decoder::new(file).read_info().expect("a picture");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a small one")];
    let info = reader.next_frame(&mut pixels).expect("a whole picture");
    assert_eq!((info.width, info.color_type), (info.height, png::ColorType::Indexed));
    (info.width as usize, pixels)
}

#[test]
fn pictures_show_the_plate_and_the_ranks() {
    let folder = folder("pictures");
    let path = folder.to_str().expect("a name");
    let answer =
        heat(&["--size", "48", "--steps", "40", "--every", "20", "--balance", "never", "--pictures", path]);
    assert_eq!(answer["viewer"]["steps"], 40);
    assert_eq!(answer["producer"]["columns"], serde_json::json!([12, 12, 12, 12]));
    let names = ["heat-0020.png", "heat-0040.png", "maximum.png"].map(|name| folder.join(name));
    assert_eq!(answer["viewer"]["pictures"], serde_json::json!(names));
    let mut sums = Vec::new();
    for name in &names {
        let (side, pixels) = picture(name);
        assert_eq!(side, 48 * 10 + 6 + 16);
        let shades: Vec<u8> = (0..480).flat_map(|row| &pixels[row * side..][..480]).copied().collect();
        let mut seen = shades.clone();
        seen.sort_unstable();
        seen.dedup();
        // From cold to hot, and nothing but temperatures.
        assert!(seen.len() > 60 && seen[0] == 0 && (150..240).contains(&seen[seen.len() - 1]), "{seen:?}");
        sums.push(shades.iter().map(|&shade| u64::from(shade)).sum::<u64>());
        // Below, four ranks with a quarter of the columns each.
        let below: Vec<u8> = (0..4).map(|rank| pixels[(side - 1) * side + 120 * rank + 119]).collect();
        assert_eq!(below, [240, 241, 242, 243]);
    }
    assert!(sums[2] > sums[0] && sums[2] > sums[1], "the maximum is at least any step: {sums:?}");
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn columns_move_away_from_a_slow_rank() {
    let options = ["--size", "48", "--steps", "40", "--slow", "1", "--factor", "6", "--work", "300"];
    let stay = heat(&[&options[..], &["--balance", "never"]].concat());
    assert_eq!(stay["producer"]["moves"], serde_json::json!([]));
    let moved = heat(&options);
    let columns =
        |answer: &Value, rank: usize| answer["producer"]["columns"][rank].as_u64().expect("a number");
    assert_eq!((0..4).map(|rank| columns(&moved, rank)).sum::<u64>(), 48);
    // Less than its share of 12; how much less is a matter of how often the machine was disturbed.
    assert!(columns(&moved, 1) < 12, "{moved}");
    let moves = moved["producer"]["moves"].as_array().expect("a list").len() as u64;
    assert_eq!(
        (moved["viewer"]["couplings"].as_u64(), &moved["viewer"]["steps"]),
        (Some(moves + 1), &40.into())
    );
}

#[test]
fn columns_move_there_and_back() {
    let slow = ["--size", "30", "--steps", "45", "--slow", "0,2,1", "--factor", "8", "--work", "200"];
    let answer = heat(&[&slow[..], &["--producers", "3", "--consumers", "4", "--balance", "5"]].concat());
    let columns = answer["producer"]["columns"].as_array().expect("a list");
    assert!(
        columns[1].as_u64() < columns[0].as_u64() && columns[1].as_u64() < columns[2].as_u64(),
        "{answer}"
    );
    assert!(answer["producer"]["moves"].as_array().expect("a list").len() >= 3, "{answer}");
    // One rank on either side.
    heat(&["--size", "9", "--steps", "5", "--producers", "1", "--consumers", "1"]);
}

#[test]
fn ranks_may_be_processes() {
    let launchers =
        [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"][..]), ("mpirun.mpich", &[][..])];
    for (program, flags) in launchers {
        if Command::new(program).arg("--version").output().is_err() {
            continue;
        }
        let folder = folder(program);
        std::fs::create_dir_all(&folder).expect("there is room");
        let meet = folder.join("run.meet");
        let mut command = Command::new(program);
        for (ranks, job) in [("3", "produce"), ("2", "consume")] {
            command.args(if job == "produce" { flags } else { &[":"] });
            command.args(["-n", ranks, HEAT, job, "--meet"]).arg(&meet);
            command.args([
                "--size",
                "24",
                "--steps",
                "12",
                "--balance",
                "4",
                "--slow",
                "2",
                "--verify",
                "--json",
            ]);
        }
        let Output { status, stdout, stderr } = command.output().expect("the launcher is here");
        assert!(status.success(), "{program}: {}", String::from_utf8_lossy(&stderr));
        let lines = String::from_utf8_lossy(&stdout);
        let answers: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(answers.len(), 2, "{lines}");
        let said = |job: &str| {
            answers.iter().find(|answer| !answer[job].is_null()).expect("both speak")[job].clone()
        };
        assert_eq!((&said("viewer")["steps"], &said("viewer")["verified"]), (&12.into(), &true.into()));
        assert_eq!(said("producer")["verified"], true);
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}

#[test]
fn wrong_options_are_one_sentence() {
    for (options, sentence) in [
        (&["--size", "2"][..], "a plate of 2 x 2 cells was asked for"),
        (&["--slow", "4"], "rank 4 was to be slow; there are 4, from 0 on"),
        (&["--steps", "many"], "--steps was given \"many\"; it takes a whole number"),
        (&["--colour"], "--colour was given; there are --size N"),
        (&["consume"], "--meet FILE must say where the two jobs meet"),
    ] {
        let output = Command::new(HEAT).args(options).output().expect("it was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(sentence), "{options:?}: {said}");
    }
}
