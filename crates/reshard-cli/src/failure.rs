//! How the program fails: one sentence on standard error, and an exit code scripts can trust.

use reshard_plan::ErrorKind;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// What was typed cannot be done: exit code 2.
    Usage(String),
    /// It was begun and went wrong: exit code 1.
    Failed(String),
    /// Another rank says why: this exit code.
    Told(u8),
    /// It could be done, but reading or writing failed: exit code 1.
    Io(io::Error),
}

impl Failure {
    pub fn usage(message: &str) -> Self {
        Self::Usage(message.to_string())
    }

    /// An error of the planner about the value of a flag.
    pub fn of_flag(flag: &'static str) -> impl Fn(reshard_plan::Error) -> Self {
        move |error| Self::of(&error, format!("{flag}: {error}"))
    }

    /// An error of the planner, whose last words may be said more exactly with a flag's name.
    pub fn hint(hint: &'static str, flag: &'static str) -> impl Fn(reshard_plan::Error) -> Self {
        move |error| {
            let message = error.to_string();
            Self::of(&error, if message.ends_with(hint) { format!("{message} with {flag}") } else { message })
        }
    }

    /// An error of the planner in other words. That there is no memory is no mistake of whoever typed.
    pub fn of(error: &reshard_plan::Error, message: String) -> Self {
        match error.kind() {
            ErrorKind::Memory => Self::Failed(message),
            _ => Self::Usage(message),
        }
    }

    /// The same, without a word: another rank says it.
    pub fn told(self) -> Self {
        match self {
            Self::Usage(_) => Self::Told(2),
            Self::Told(code) => Self::Told(code),
            Self::Failed(_) | Self::Io(_) => Self::Told(1),
        }
    }

    /// Said here and now: under a launcher that ends all ranks as soon as one of them fails, while they still wait for each
    /// other.
    pub fn said(self) -> Self {
        let code = match self {
            Self::Usage(_) => 2,
            Self::Told(code) => code,
            Self::Failed(_) | Self::Io(_) => 1,
        };
        self.report();
        Self::Told(code)
    }

    pub fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Told(code) => return ExitCode::from(code),
            Self::Usage(message) => (message, 2),
            Self::Failed(message) => (message, 1),
            // Whoever read our output has seen enough.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Self::Io(error) => (format!("the result could not be written: {error}"), 1),
        };
        // If standard error is gone as well there is nobody left to tell.
        let _ = writeln!(io::stderr(), "error: {message}");
        ExitCode::from(code)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Io(error.into())
    }
}

impl From<reshard_plan::Error> for Failure {
    fn from(error: reshard_plan::Error) -> Self {
        Self::of(&error, error.to_string())
    }
}

/// What the argument parser complains about, without its paragraphs: problem, tips, where to read more.
pub fn in_one_sentence(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let complaint = rendered.split("\n\nUsage:").next().unwrap_or_default();
    let complaint = complaint.split("\n\nFor more information").next().unwrap_or_default();
    let complaint = complaint.strip_prefix("error: ").unwrap_or(complaint);
    let words = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<String> = complaint.split("\n\n").map(words).filter(|part| !part.is_empty()).collect();
    // No command at all: the parser answers with its whole help; we with a sentence.
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command was given; try `reshard plan --from 16/3 --to 16/5`, or `reshard --help`"
            .to_string();
    }
    format!("{}; `reshard --help` lists commands and flags", parts.join("; "))
}
