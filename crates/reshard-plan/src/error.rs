//! One error type for all of reshard: opaque, with a kind for programs and one sentence for people.
//!
//! Every message says what was given, what was expected and, where there is one, what to do about it.
//! Programs branch on [`Error::kind`]; none has to match on text.

use std::fmt;

/// The reason of an error. The numbers are stable: bindings to other languages use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A text does not follow the layout notation; [`Error::position`] says where.
    Notation = 1,
    /// Two things that must fit together do not: dimensions, extents, sizes, orders.
    Mismatch = 2,
    /// An index, rank, process or offset lies outside its range.
    OutOfRange = 3,
    /// A length, count or amount of work is beyond what the planner accepts (lengths: 2^62).
    TooLarge = 4,
    /// The request makes sense, but is not supported yet.
    Unsupported = 5,
    /// More memory would be needed than is allowed or available.
    Memory = 6,
    /// A rank failed while data was moving; the destination is only partly written.
    Failed = 7,
    /// Something outside of this library failed or is missing: the MPI library, say.
    External = 8,
    /// The other job of a coupling is absent, gone or late, or wants something else.
    Partner = 9,
}

impl ErrorKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Notation,
        Self::Mismatch,
        Self::OutOfRange,
        Self::TooLarge,
        Self::Unsupported,
        Self::Memory,
        Self::Failed,
        Self::External,
        Self::Partner,
    ];

    /// The kind of this number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The number of the kind, for other languages: stable, from 1 on.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The name of the kind in JSON and other interfaces: short, lower case, and stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Notation => "notation",
            Self::Mismatch => "mismatch",
            Self::OutOfRange => "out-of-range",
            Self::TooLarge => "too-large",
            Self::Unsupported => "unsupported",
            Self::Memory => "memory",
            Self::Failed => "failed",
            Self::External => "external",
            Self::Partner => "partner",
        }
    }
}

/// An error with a kind and one sentence.
///
/// ```
/// use reshard_plan::{ErrorKind, Pattern};
/// let error = "4x4/64y64".parse::<Pattern>().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Notation);
/// assert_eq!(error.position(), Some(6));
/// let said = error.to_string();
/// assert!(said.contains("character 7"), "{said}");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    position: Option<usize>,
}

/// The planner's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a kind, in one sentence: what was given, what was expected, what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), position: None }
    }

    pub(crate) fn mismatch(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Mismatch, message)
    }

    pub(crate) fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::OutOfRange, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// A notation error at the character with this index (counted from 0).
    pub(crate) fn notation(position: usize, message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Notation, message: message.into(), position: Some(position) }
    }

    /// Adds the position in a text to an error.
    pub(crate) fn placed(self, position: usize, message: String) -> Self {
        Self { kind: self.kind, message, position: Some(position) }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// For errors about a text: the index of the character at fault, counted from 0; the length of the text
    /// if something is missing at its end.
    pub fn position(&self) -> Option<usize> {
        self.position
    }
}

/// Writes a number with its noun, "1 rank", "2 ranks" or "2 processes", for the sentences of errors.
#[doc(hidden)]
pub fn counted(count: impl fmt::Display, what: &str) -> String {
    let count = count.to_string();
    let ending = if what.ends_with('s') { "es" } else { "s" };
    format!("{count} {what}{}", if count == "1" { "" } else { ending })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints the sentence, as `Display` does: it is what `fn main() -> Result<(), Error>` shows.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
