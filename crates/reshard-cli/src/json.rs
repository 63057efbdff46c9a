//! Results as JSON: one object on one line, with keys that scripts can depend on. `docs/json.md` lists them.

use crate::screen::Screen;
use serde::Serialize;
use std::io::{self, Write};

/// The version of the keys. It grows when a key changes its meaning or is removed, not when keys are added.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    answer: &'a T,
}

/// Writes a result as one line.
pub fn write<T: Serialize>(screen: &mut Screen, answer: &T) -> io::Result<()> {
    serde_json::to_writer(&mut screen.out, &Versioned { schema: SCHEMA, answer })?;
    writeln!(screen.out)
}

/// True if `--json` is among the arguments, anywhere: errors are written as JSON, too, also those about wrong flags.
pub fn is_requested() -> bool {
    std::env::args_os().any(|argument| argument == "--json")
}

/// The result of a command that failed.
#[derive(Serialize)]
pub struct ErrorAnswer<'a> {
    pub error: ErrorObject<'a>,
}

/// An error: its kind for programs, a sentence for people, and the position of the mistake in a text, if it has one.
#[derive(Serialize)]
pub struct ErrorObject<'a> {
    pub kind: &'a str,
    pub message: &'a str,
    pub position: Option<usize>,
}
