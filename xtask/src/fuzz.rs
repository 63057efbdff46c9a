//! Coverage-guided fuzzing with libFuzzer, on the stable compiler.
//!
//! The crate in `fuzz/` is instrumented by compiler flags that need no nightly. A crash is a panic, an overflow or a broken
//! promise: of print and parse, of who gets what, or of an element and all that must not change around it.

use crate::tools::{Outcome, cargo, program, say, system_program};

/// What is fuzzed.
pub struct Target {
    /// The name of its program and of its folders.
    pub name: &'static str,
    /// How many executions we call enough.
    pub enough: u64,
    /// Flags of the compiler beside those of all.
    flags: &'static str,
    arguments: &'static [&'static str],
}

pub const TARGETS: [Target; 11] = [
    // Any text for the parser.
    Target {
        name: "notation",
        enough: 10_000_000,
        flags: "-Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-trace-compares",
        arguments: &["-max_len=96", "-dict=fuzz/notation.dict", "-timeout=5"],
    },
    // Any layouts, run by everything that runs plans in one process. Inputs are decisions, not numbers to be compared with, and
    // to watch comparisons would halve the speed; to weigh rare features takes nine times as long as the moves.
    Target {
        name: "moves",
        enough: 500_000,
        flags: "-Ccodegen-units=16",
        arguments: &["-max_len=400", "-timeout=20", "-entropic=0"],
    },
    // Any bytes for those who listen.
    Target {
        name: "greeting",
        enough: 10_000_000,
        flags: "-Ccodegen-units=16",
        arguments: &["-max_len=200", "-timeout=5"],
    },
    Target {
        name: "frames",
        enough: 10_000_000,
        flags: "-Ccodegen-units=16",
        arguments: &["-max_len=300", "-timeout=5"],
    },
    // Any text as a manifest, and any bytes as the header of a file.
    Target {
        name: "manifest",
        enough: 10_000_000,
        flags: TEXTS,
        arguments: &["-max_len=1000", "-timeout=5", "-dict=fuzz/manifest.dict"],
    },
    Target {
        name: "npy",
        enough: 10_000_000,
        flags: TEXTS,
        arguments: &["-max_len=250", "-timeout=5", "-dict=fuzz/npy.dict"],
    },
    Target {
        name: "safetensors",
        enough: 10_000_000,
        flags: TEXTS,
        arguments: &["-max_len=400", "-timeout=5", "-dict=fuzz/safetensors.dict"],
    },
    // What others leave where a run, a job or a browser is expected. On a machine that is shared, a process may not run for some seconds.
    Target {
        name: "journal",
        enough: 10_000_000,
        flags: TEXTS,
        arguments: &["-max_len=200", "-timeout=60", "-dict=fuzz/journal.dict"],
    },
    Target {
        name: "expected",
        enough: 10_000_000,
        flags: TEXTS,
        arguments: &["-max_len=200", "-timeout=60", "-dict=fuzz/expected.dict"],
    },
    Target {
        name: "meeting",
        enough: 10_000_000,
        flags: TEXTS,
        arguments: &["-max_len=300", "-timeout=60", "-dict=fuzz/meeting.dict"],
    },
    Target {
        name: "http",
        enough: 10_000_000,
        flags: TEXTS,
        arguments: &["-max_len=200", "-timeout=60", "-dict=fuzz/http.dict"],
    },
];

/// For texts, whose words are compared with others.
const TEXTS: &str = "-Ccodegen-units=16 -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Options of `cargo build` for a kernel without optimisation.
const PLAIN_KERNEL: [&str; 2] = ["--config", "profile.release.package.reshard-kernel.opt-level=0"];

const INSTRUMENT: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Coverflow-checks=on -Cdebug-assertions=on";

impl Target {
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let names = TARGETS.map(|target| target.name).join(" and ");
        TARGETS.iter().find(|target| target.name == name).ok_or_else(|| {
            format!("{name} was to be fuzzed; there are {names}, as in `cargo xtask fuzz moves 1000`")
        })
    }

    pub fn run(&self, runs: u64) -> Outcome {
        if !system_program("c++", "g++") {
            return Err(
                "libFuzzer is built from C++ and needs a C++ compiler; install one and try again".to_string()
            );
        }
        say("building the fuzzer");
        // A target keeps build scripts and macros free of the instrumentation.
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let build = ["build", "--release", "--bin", self.name, "--target", &triple, "--target-dir", "target"];
        // Readers of texts copy nothing, and the kernel takes most of the time to compile.
        let kernel = if self.flags == TEXTS { &PLAIN_KERNEL[..] } else { &[] };
        let flags = format!("{INSTRUMENT} {}", self.flags);
        cargo(&[&build[..], kernel].concat()).folder("fuzz").env("RUSTFLAGS", &flags).run()?;
        say(&format!("fuzzing {}: {runs} executions", self.name));
        // New finds go to the first folder, which git ignores; the seeds are in the second.
        let [found, seeds] = ["target/corpus", "corpus"].map(|folder| format!("fuzz/{folder}/{}", self.name));
        for folder in ["fuzz/artifacts", &found, &seeds] {
            std::fs::create_dir_all(folder).map_err(|error| format!("{folder}: {error}"))?;
        }
        let runs = format!("-runs={runs}");
        let common = [
            &found,
            &seeds,
            &runs[..],
            "-artifact_prefix=fuzz/artifacts/",
            "-print_final_stats=1",
            "-verbosity=0",
        ];
        program(
            &format!("fuzz/target/{triple}/release/{}", self.name),
            &[&common[..], self.arguments].concat(),
        )
        .run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that is not listed here would never be run.
    #[test]
    fn every_program_is_run() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect("it is there");
        let names = |text: &str| {
            let mut names: Vec<String> = text
                .split("[[bin]]")
                .skip(1)
                .filter_map(|one| Some(one.split("name = \"").nth(1)?.split('"').next()?.to_string()))
                .collect();
            names.sort_unstable();
            names
        };
        let mut listed: Vec<String> = TARGETS.iter().map(|target| target.name.to_string()).collect();
        listed.sort_unstable();
        assert_eq!(names(&read("fuzz/Cargo.toml")), listed);
        let files = std::fs::read_dir(format!("{root}/fuzz/fuzz_targets")).expect("it is there");
        let mut files: Vec<String> = files
            .map(|file| {
                file.expect("it is there").file_name().to_string_lossy().trim_end_matches(".rs").into()
            })
            .collect();
        files.sort_unstable();
        assert_eq!(files, listed);
        let manual = read("docs/testing.md");
        for name in listed {
            assert!(crate::USAGE.contains(&format!("fuzz {name} [RUNS]")), "the usage lacks {name}");
            assert!(manual.contains(&format!("`{name}`")), "docs/testing.md lacks {name}");
        }
        for dictionary in TARGETS.iter().flat_map(|target| target.arguments) {
            if let Some(path) = dictionary.strip_prefix("-dict=") {
                read(path);
            }
        }
    }
}
