//! Failures of the program: one sentence on standard error, and a stable exit code for scripts. With `--json` the error also
//! goes to standard output as an object.

use crate::json::{self, ErrorAnswer, ErrorObject};
use crate::screen::Screen;
use reshard_plan::{Error, ErrorKind};
use std::io::{self, Write};
use std::process::ExitCode;

/// The kind of errors about the command line.
const USAGE: &str = "usage";

/// The reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong: exit code 2.
    Usage(Sentence),
    /// The command was started and failed: exit code 1.
    Failed(Sentence),
    /// Another rank reports the reason: this exit code, and no message.
    Silent(u8),
    /// Reading or writing failed: exit code 1.
    Io(io::Error),
}

/// One sentence for people, and for programs its kind and the position of the mistake in a text.
#[derive(Debug)]
pub struct Sentence {
    kind: &'static str,
    message: String,
    position: Option<usize>,
}

impl Sentence {
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The position of the mistake in the text that was given, if it has one.
    pub fn position(&self) -> Option<usize> {
        self.position
    }
}

impl Failure {
    /// The arguments are wrong.
    pub fn usage(message: &str) -> Self {
        Self::Usage(Sentence { kind: USAGE, message: message.to_string(), position: None })
    }

    /// The command was started and failed.
    pub fn failed(message: String) -> Self {
        Self::Failed(Sentence { kind: ErrorKind::Failed.name(), message, position: None })
    }

    /// An error of the planner about the value of a flag.
    pub fn of_flag(flag: &'static str) -> impl Fn(Error) -> Self {
        move |error| Self::of(&error, format!("{flag}: {error}"))
    }

    /// An error of the planner; if it ends with `hint`, the flag to use is added.
    pub fn hint(hint: &'static str, flag: &'static str) -> impl Fn(Error) -> Self {
        move |error| {
            let message = error.to_string();
            Self::of(&error, if message.ends_with(hint) { format!("{message} with {flag}") } else { message })
        }
    }

    /// An error of the planner with another sentence. Too little memory is a failure, not wrong usage.
    pub fn of(error: &Error, message: String) -> Self {
        let sentence = Sentence { kind: error.kind().name(), message, position: error.position() };
        match error.kind() {
            ErrorKind::Memory => Self::Failed(sentence),
            _ => Self::Usage(sentence),
        }
    }

    /// An error of the library that is wrong usage whatever its kind, with another sentence.
    pub fn usage_of(error: &Error, message: String) -> Self {
        Self::Usage(Sentence { kind: error.kind().name(), message, position: error.position() })
    }

    /// An error while data moved, which no other flags would have prevented.
    pub fn while_running(error: &Error) -> Self {
        let sentence =
            Sentence { kind: error.kind().name(), message: error.to_string(), position: error.position() };
        Self::Failed(sentence)
    }

    /// The failure without a message: another rank reports it.
    pub fn silent(self) -> Self {
        Self::Silent(self.code())
    }

    /// Reports the failure here and now: under a launcher that ends all ranks as soon as one of them fails, while they still
    /// wait for each other.
    pub fn reported(self) -> Self {
        let code = self.code();
        self.report();
        Self::Silent(code)
    }

    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Silent(code) => *code,
            Self::Failed(_) | Self::Io(_) => 1,
        }
    }

    /// Writes the message, and returns the exit code.
    pub fn report(self) -> ExitCode {
        let code = self.code();
        let Sentence { kind, message, position } = match self {
            Self::Silent(code) => return ExitCode::from(code),
            Self::Usage(sentence) | Self::Failed(sentence) => sentence,
            // The reader of our output has closed the pipe, as `head` does: no error.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Self::Io(error) => Sentence {
                kind: "io",
                message: format!("the result could not be written: {error}"),
                position: None,
            },
        };
        if json::is_requested() {
            let mut screen = Screen::new();
            let answer = ErrorAnswer { error: ErrorObject { kind, message: &message, position } };
            let _ = json::write(&mut screen, &answer).map(|()| screen.out.flush());
        }
        // If standard error is closed, too, the error cannot be reported.
        let _ = io::stderr().write_all(format!("error: {message}\n").as_bytes());
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

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of(&error, error.to_string())
    }
}

/// Turns an error of the argument parser, which has several paragraphs, into one sentence. `command` is the command, if one
/// was given.
pub fn in_one_sentence(error: &clap::Error, command: Option<&str>) -> String {
    let rendered = error.render().to_string();
    let complaint = rendered.split("\n\nUsage:").next().unwrap_or_default();
    let complaint = complaint.split("\n\nFor more information").next().unwrap_or_default();
    let complaint = complaint.strip_prefix("error: ").unwrap_or(complaint);
    let words = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<String> = complaint.split("\n\n").map(words).filter(|part| !part.is_empty()).collect();
    // Without a command, the parser prints its whole help; we print a sentence.
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return match command {
            None => "no command was given; try `reshard plan 16/3 16/5`, or `reshard --help`".to_string(),
            Some(command) => {
                format!("`reshard {command}` is not all; `reshard {command} --help` lists what follows")
            }
        };
    }
    let hint = match command {
        Some(command) => format!("`reshard {command} --help` lists its flags"),
        None => "`reshard --help` lists the commands".to_string(),
    };
    format!("{}; {hint}", parts.join("; "))
}
