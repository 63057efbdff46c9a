//! What is tested, part by part: each is timed, and in the end one reads what passed at which commit.

use crate::tools::{Outcome, program, say};
use std::time::{Duration, Instant};

/// A part that takes longer should be cut in two.
const LONGEST: Duration = Duration::from_secs(90 * 60);

/// One part of a test: its name, what is said before it runs, and how it runs.
pub struct Part {
    pub name: &'static str,
    pub what: &'static str,
    pub run: fn() -> Outcome,
}

/// Those with these names, in the order of the parts; all if none is named.
pub fn named<'a>(parts: &'a [Part], names: &[&str]) -> Result<Vec<&'a Part>, String> {
    let all = || parts.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = names.iter().find(|name| parts.iter().all(|part| part.name != **name)) {
        return Err(format!(
            "{unknown:?} is not a part of the full test; name some of {}, or none to run all",
            all()
        ));
    }
    Ok(parts.iter().filter(|part| names.is_empty() || names.contains(&part.name)).collect())
}

/// Runs parts until one fails. Says how long each took as it ends, and all of it once more in the end.
pub fn run(parts: &[&Part]) -> Outcome {
    let before = state();
    let mut table = Vec::new();
    let mut outcome = Ok(());
    for part in parts {
        say(part.what);
        let begin = Instant::now();
        outcome = (part.run)();
        let (took, word) = (begin.elapsed(), if outcome.is_ok() { "passed" } else { "FAILED" });
        say(&format!("{} {word} in {}", part.name, time(took)));
        table.push((part.name, word, took));
        if outcome.is_err() {
            break;
        }
    }
    let after = state();
    let meanwhile = if before == after { String::new() } else { format!(", meanwhile {after}") };
    say(&format!("at commit {before}{meanwhile}"));
    for (name, word, took) in &table {
        let long = if *took > LONGEST { "  more than 90 minutes: cut it in two" } else { "" };
        println!("    {name:<10} {word:<7} {:>14}{long}", time(*took));
    }
    for part in &parts[table.len()..] {
        println!("    {:<10} not run", part.name);
    }
    println!("    {:<10} {:<7} {:>14}", "all", "", time(table.iter().map(|row| row.2).sum()));
    outcome
}

/// Which sources these are.
fn state() -> String {
    let git = |arguments: &[&str]| program("git", arguments).says().map(|text| text.trim().to_string());
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_string() };
    match git(&["status", "--porcelain"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with local changes"),
    }
}

/// Minutes and seconds.
fn time(took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds / 60 {
        0 => format!("{:.1} s", took.as_secs_f64()),
        minutes => format!("{minutes} min {:>2} s", seconds % 60),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PARTS: [Part; 3] = [
        Part { name: "one", what: "the first", run: || Ok(()) },
        Part { name: "two", what: "the second", run: || Err("no".to_string()) },
        Part { name: "three", what: "the third", run: || Ok(()) },
    ];

    #[test]
    fn parts_are_named_or_all_of_them_meant() {
        let names = |asked: &[&str]| -> Vec<&str> {
            named(&PARTS, asked).unwrap().iter().map(|part| part.name).collect()
        };
        assert_eq!(names(&[]), ["one", "two", "three"]);
        assert_eq!(names(&["three", "one"]), ["one", "three"]);
        let refused = named(&PARTS, &["one", "four"]).err().unwrap();
        assert_eq!(
            refused,
            "\"four\" is not a part of the full test; name some of one, two, three, or none to run all"
        );
    }

    #[test]
    fn the_first_failure_is_the_outcome() {
        let parts: Vec<&Part> = PARTS.iter().collect();
        assert_eq!(run(&parts), Err("no".to_string()));
        assert_eq!(run(&parts[..1]), Ok(()));
    }

    #[test]
    fn times_are_minutes_and_seconds() {
        assert_eq!(time(Duration::from_millis(59_940)), "59.9 s");
        assert_eq!(time(Duration::from_secs(5_403)), "90 min  3 s");
    }
}
