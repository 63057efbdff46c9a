//! Tells the program the commit it was built from, for `reshard doctor` and `--version`; without git, none.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Grows with every commit; outside of a checkout there is none.
    let log = "../../.git/logs/HEAD";
    if Path::new(log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok();
    let commit = output
        .filter(|output| output.status.success() && Path::new("../../.git").exists())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let commit = commit.as_deref().map_or("unknown", str::trim);
    println!("cargo::rustc-env=RESHARD_COMMIT={commit}");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=RESHARD_TARGET={target}");
}
