//! What may be drawn on standard output: colour only on a terminal, and never where `NO_COLOR` is set.

use std::io::{self, BufWriter, IsTerminal, StdoutLock};

/// Standard output, buffered, knowing whether it may use colour.
pub struct Screen {
    pub out: BufWriter<StdoutLock<'static>>,
    colour: bool,
}

impl Screen {
    pub fn new() -> Self {
        let stdout = io::stdout();
        let colour = stdout.is_terminal() && !is_plain();
        Self { out: BufWriter::new(stdout.lock()), colour }
    }

    /// Text that should stand back.
    pub fn faint(&self, text: &str) -> String {
        if self.colour { format!("\x1b[2m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Text on the colour of a rank: neighbours differ, the same rank is always the same.
    pub fn of_rank(&self, rank: u64, text: &str) -> String {
        if !self.colour {
            return text.to_string();
        }
        // Steps through the 6 x 6 x 6 colour cube, its darkest and lightest corners left out.
        let colour = 24 + rank.wrapping_mul(47) % 180;
        format!("\x1b[48;5;{colour}m\x1b[38;5;{}m{text}\x1b[0m", if colour % 36 < 18 { 231 } else { 16 })
    }
}

/// True if `NO_COLOR` asks for text and nothing else.
pub fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Numbers as an index: `(3, 4)`.
pub fn index(numbers: &[u64]) -> String {
    format!("({})", numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
}

/// "1 message", "2 messages".
pub fn counted(count: impl Into<u128>, what: &str) -> String {
    let count = count.into();
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
