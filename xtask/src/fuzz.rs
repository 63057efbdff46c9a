//! Coverage-guided fuzzing of the notation parser with libFuzzer, on the stable compiler.
//!
//! The crate in `fuzz/` is instrumented by compiler flags that need no nightly. The planner has no unsafe code, so
//! no sanitizer is needed: a crash is a panic, an overflow or a broken promise of print and parse.

use crate::tools::{Outcome, cargo, program, say, system_program};

/// How many executions we call enough.
pub const ENOUGH: u64 = 10_000_000;

const INSTRUMENT: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Coverflow-checks=on -Cdebug-assertions=on";

pub fn run(runs: u64) -> Outcome {
    if !system_program("c++", "g++") {
        return Err(
            "libFuzzer is built from C++ and needs a C++ compiler; install one and try again".to_string()
        );
    }
    say("building the fuzzer");
    // A target keeps build scripts and macros free of the instrumentation.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo(&["build", "--release", "--target", &target]).folder("fuzz").env("RUSTFLAGS", INSTRUMENT).run()?;
    say(&format!("fuzzing the notation: {runs} executions"));
    std::fs::create_dir_all("fuzz/artifacts").map_err(|error| format!("fuzz/artifacts: {error}"))?;
    // New finds go to the first folder, which git ignores; the seeds are in the second.
    std::fs::create_dir_all("fuzz/target/corpus").map_err(|error| format!("fuzz/target/corpus: {error}"))?;
    program(
        &format!("fuzz/target/{target}/release/notation"),
        &[
            "fuzz/target/corpus",
            "fuzz/corpus/notation",
            &format!("-runs={runs}"),
            "-max_len=96",
            "-dict=fuzz/notation.dict",
            "-artifact_prefix=fuzz/artifacts/",
            "-print_final_stats=1",
            "-verbosity=0",
            "-timeout=5",
        ],
    )
    .run()
}
