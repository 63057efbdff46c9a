//! Answers as JSON: one object on one line, with keys that scripts can depend on. `docs/json.md` lists them.

use crate::screen::Screen;
use serde::Serialize;
use std::io::{self, Write};

/// Grows when a key changes its meaning or goes; keys may be added without.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    answer: &'a T,
}

/// Writes an answer on a line of its own.
pub fn write<T: Serialize>(screen: &mut Screen, answer: &T) -> io::Result<()> {
    serde_json::to_writer(&mut screen.out, &Versioned { schema: SCHEMA, answer })?;
    writeln!(screen.out)
}

/// True if `--json` was typed, wherever: errors are answered in JSON, too, also those about flags that make no sense.
pub fn is_wanted() -> bool {
    std::env::args_os().any(|argument| argument == "--json")
}

/// Why there is no answer.
#[derive(Serialize)]
pub struct Refusal<'a> {
    pub error: Complaint<'a>,
}

/// What went wrong: a word for programs, a sentence for people, and where in a text the mistake is, if it is in one.
#[derive(Serialize)]
pub struct Complaint<'a> {
    pub kind: &'a str,
    pub message: &'a str,
    pub position: Option<usize>,
}
