//! Output on standard output: colour only on a terminal and where `NO_COLOR` is not set, unless `--color` says otherwise.

pub use reshard_plan::error::counted;

use clap::ColorChoice;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;
use std::sync::OnceLock;

/// What `--color` says.
static COLOUR: OnceLock<ColorChoice> = OnceLock::new();

/// Says whether output has colour, before any is written.
pub fn set_colour(choice: ColorChoice) {
    let _ = COLOUR.set(choice);
}

/// Standard output, buffered, knowing whether it may use colour.
pub struct Screen {
    pub out: BufWriter<StdoutLock<'static>>,
    colour: bool,
    columns: Option<usize>,
}

impl Screen {
    pub fn new() -> Self {
        let stdout = io::stdout();
        let colour = match COLOUR.get() {
            Some(ColorChoice::Always) => true,
            Some(ColorChoice::Never) => false,
            Some(ColorChoice::Auto) | None => stdout.is_terminal() && !is_plain(),
        };
        let columns = terminal_size::terminal_size_of(&stdout).map(|(width, _)| usize::from(width.0));
        Self { out: BufWriter::new(stdout.lock()), colour, columns: columns.filter(|columns| *columns > 0) }
    }

    /// How many of at most `most` things, each `width` wide, have room in a line of the terminal besides `taken` columns: at least one,
    /// and all where there is no terminal.
    pub fn room(&self, most: usize, width: usize, taken: usize) -> usize {
        let fit = self.columns.map(|columns| columns.saturating_sub(taken) / width.max(1));
        fit.map_or(most, |fit| fit.clamp(1, most.max(1)).min(most))
    }

    /// Text in a faint colour.
    pub fn faint(&self, text: &str) -> String {
        if self.colour { format!("\x1b[2m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Text on the colour of a rank: each rank has one colour, and neighbours differ.
    pub fn of_rank(&self, rank: u64, text: &str) -> String {
        if !self.colour {
            return text.to_string();
        }
        // Steps through the 6 x 6 x 6 colour cube, its darkest and lightest corners left out.
        let colour = 24 + rank.wrapping_mul(47) % 180;
        format!("\x1b[48;5;{colour}m\x1b[38;5;{}m{text}\x1b[0m", if is_dark(colour) { 231 } else { 16 })
    }
}

/// True if white text is easier to read on a colour of the 6 x 6 x 6 cube than black text: the colours' brightness as the eye
/// weighs it, red, green and blue, is below that of a middle grey.
fn is_dark(colour: u64) -> bool {
    let cube = colour - 16;
    // The intensity of the six steps of a channel on terminals, in linear light.
    const LIGHT: [f64; 6] = [0.0, 0.114, 0.242, 0.430, 0.679, 1.0];
    let [red, green, blue] = [cube / 36, cube / 6 % 6, cube % 6].map(|step| LIGHT[step as usize]);
    // Contrast with white is (1 + 0.05) / (y + 0.05), with black (y + 0.05) / 0.05: equal at 0.179.
    0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179
}

/// True if output must be plain text: `NO_COLOR` is set, or an MPI launcher forwards the output. Open MPI
/// gives its ranks a terminal of their own, also where the output ends up in a file.
pub fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || reshard_mpi::mpi::launched().is_some()
}

/// Writes a drawing to a file, or to standard output if that is `-`. Returns whether standard output is still free for text.
pub fn write_drawing(path: &Path, text: &str) -> io::Result<bool> {
    if path.as_os_str() == "-" {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        return Ok(false);
    }
    let write = |path: &Path| {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.flush()
    };
    write(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(true)
}

/// Writes numbers as an index: `(3, 4)`.
pub fn index(numbers: &[u64]) -> String {
    format!("({})", numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
}
