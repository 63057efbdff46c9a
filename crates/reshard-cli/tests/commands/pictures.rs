//! The pictures in the documentation come from the program: this test draws them again and compares. After a change that is meant,
//! `RESHARD_PICTURES=write cargo test -p reshard-cli --test commands pictures` writes them anew.

#![allow(clippy::unwrap_used)]

use std::process::Command;

/// What is drawn, and by which command.
const PICTURES: [(&str, &[&str]); 6] = [
    ("redistribution.svg", &["explain", "2x2/4x4", "4x1/2x16", "--shape", "16x16"]),
    ("pictures/layout.svg", &["layout", "2x3/4x4", "--shape", "18x20"]),
    ("pictures/example1.svg", &["explain", "16/3", "16/5"]),
    ("pictures/matrix.svg", &["explain", "4x4/64x64", "2x8/50x30", "--shape", "8192x8192"]),
    ("pictures/strategies.svg", &["simulate", "12/3", "8/5", "--compare"]),
    ("pictures/ring.svg", &["ring", "--loads", "9,1,7,0", "--targets", "4,4,4,5", "--right", "1,2,1,3"]),
];

#[test]
fn pictures_of_the_documentation_come_from_the_program() {
    for (file, command) in PICTURES {
        let output =
            Command::new(env!("CARGO_BIN_EXE_reshard")).args(command).args(["--svg", "-"]).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let path = format!("{}/../../docs/{file}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("RESHARD_PICTURES").is_some() {
            std::fs::write(&path, &output.stdout).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(
            kept == output.stdout,
            "docs/{file} is not what the program draws; RESHARD_PICTURES=write draws it anew"
        );
    }
}
