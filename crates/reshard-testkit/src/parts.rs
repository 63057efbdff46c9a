//! The command line of test programs without libtest's harness, in libtest's words: `--list`, names, `--exact`.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A test: its name, and the function that panics if it fails.
pub type Part<'a> = (String, Box<dyn Fn() + 'a>);

/// Runs the tests whose names contain a word of the command line, or all if it has none. A failure ends the process after the last test.
#[allow(clippy::print_stdout)]
pub fn run(parts: &[Part<'_>]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|word| word == flag);
    if has("--list") {
        return parts.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let words: Vec<&str> =
        arguments.iter().map(|word| &word[..]).filter(|word| !word.starts_with('-')).collect();
    let fits = |name: &str| {
        words.iter().any(|word| if has("--exact") { name == *word } else { name.contains(word) })
    };
    let mut failed = false;
    for (name, run) in parts.iter().filter(|(name, _)| words.is_empty() || fits(name)) {
        let passed = catch_unwind(AssertUnwindSafe(run)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed |= !passed;
    }
    if failed {
        std::process::exit(101);
    }
}
