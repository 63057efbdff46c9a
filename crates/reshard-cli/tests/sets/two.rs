//! Two that write one destination at the same time: one goes on, the other is told.

use crate::folder::{Folder, PROGRAM};
use reshard_testkit::full_sweep;
use std::fs::File;
use std::process::{Command, Stdio};

#[test]
fn one_of_several_writers_wins() {
    let folder = Folder::new("two");
    folder.good("make source --shape 60x50 --layout 2x2/8x8");
    folder.good("convert source expected --to 3x1/7x9 --box-bytes 3000");
    let trials = if full_sweep() { 400 } else { 10 };
    let mut told = [0; 2];
    for trial in 0..trials {
        let resume = ["", "--resume"][trial % 2];
        let words = format!("convert source new --to 3x1/7x9 --box-bytes 3000 {resume}");
        let start = |_| {
            let mut program = Command::new(PROGRAM);
            program.args(words.split_whitespace()).current_dir(&folder.0);
            program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let running: Vec<_> = (0..3).map(start).collect();
        let mut winners = 0;
        for one in running {
            let output = one.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => winners += 1,
                code => {
                    let writing = said.contains("another process is writing new right now");
                    assert!(code == Some(1) && said.lines().count() == 1, "{code:?} {said}");
                    assert!(writing || said.contains("new exists already"), "{said}");
                    told[usize::from(writing)] += 1;
                }
            }
        }
        assert_eq!(winners, 1, "trial {trial}");
        assert!(folder.files("new") == folder.files("expected"), "trial {trial}");
        assert!(folder.partial().is_empty(), "trial {trial}");
        folder.remove("new");
    }
    println!("{} were told that another is writing, {} that it has written", told[1], told[0]);
}

#[test]
fn whoever_holds_the_lock_is_writing() {
    let folder = Folder::new("two-locked");
    folder.good("make source --shape 60x50 --layout 2x2/8x8");
    let partial = folder.path(".new.reshard-partial");
    std::fs::create_dir(&partial).unwrap();
    let held = File::open(&partial).unwrap();
    held.lock().unwrap();
    for command in [
        "convert source new --to 3x1/7x9",
        "convert source new --to 3x1/7x9 --resume",
        "make new --shape 9 --layout 2/3",
    ] {
        folder.run(command).refused(1, "another process is writing new right now");
    }
    // A lock ends with its process: nothing has to be cleaned up.
    drop(held);
    folder.good("convert source new --to 3x1/7x9");
    folder.good("verify new");
}
