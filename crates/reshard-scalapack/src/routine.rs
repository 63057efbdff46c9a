//! The routines: p?gemr2d moves a window of a matrix, p?trmr2d one triangle or trapezoid of it, p?tran, p?tranu and p?tranc of the PBLAS
//! transpose it and add it to another.

use reshard_plan::Triangle;
use std::fmt;

/// The type of the elements, by the letter of the routine. p?tran computes with them; for the others only the size counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// An integer of the caller's.
    Integer,
    /// A real number of 4 bytes.
    Single,
    /// A real number of 8 bytes.
    Double,
    /// A complex number of 8 bytes.
    Complex,
    /// A complex number of 16 bytes.
    DoubleComplex,
}

impl Element {
    /// All types.
    pub const ALL: [Self; 5] =
        [Self::Integer, Self::Single, Self::Double, Self::Complex, Self::DoubleComplex];

    /// The letter in the names of routines.
    pub fn letter(self) -> char {
        match self {
            Self::Integer => 'i',
            Self::Single => 's',
            Self::Double => 'd',
            Self::Complex => 'c',
            Self::DoubleComplex => 'z',
        }
    }

    /// The number of these bytes, in words.
    pub fn number(self, bytes: &[u8; 16]) -> String {
        let single = |at: usize| f32::from_ne_bytes(std::array::from_fn(|k| bytes[at + k]));
        let double = |at: usize| f64::from_ne_bytes(std::array::from_fn(|k| bytes[at + k]));
        match self {
            Self::Integer => i32::from_ne_bytes(std::array::from_fn(|k| bytes[k])).to_string(),
            Self::Single => single(0).to_string(),
            Self::Double => double(0).to_string(),
            Self::Complex => format!("({}, {})", single(0), single(4)),
            Self::DoubleComplex => format!("({}, {})", double(0), double(8)),
        }
    }

    /// Bytes of an element; an integer has those of the caller's integers.
    pub fn bytes(self, integer_bytes: usize) -> u64 {
        match self {
            Self::Integer => integer_bytes as u64,
            Self::Single => 4,
            Self::Double | Self::Complex => 8,
            Self::DoubleComplex => 16,
        }
    }
}

/// Which elements of the window move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// All: p?gemr2d.
    General,
    /// One side of a diagonal, which belongs to it unless the matrix is unit triangular: p?trmr2d.
    Trapezoid { upper: bool, unit: bool },
    /// All, transposed, and perhaps conjugated: p?tran, p?tranu, p?tranc.
    Transposed { conjugated: bool },
}

impl Shape {
    /// The shape that UPLO and DIAG mean. As in the reference, letters in either case, and whatever is not U is the other.
    pub fn trapezoid(uplo: u8, diag: u8) -> Self {
        let is_u = |letter: u8| letter.eq_ignore_ascii_case(&b'U');
        Self::Trapezoid { upper: is_u(uplo), unit: is_u(diag) }
    }

    /// The triangle of a window of so many rows and columns. The diagonal of an upper trapezoid ends in its last row and column, that
    /// of a lower one, too: a tall upper one has the whole block above, a wide lower one the whole block to the left.
    pub fn triangle(self, rows: u64, columns: u64) -> Option<Triangle> {
        let Self::Trapezoid { upper, unit } = self else { return None };
        let beyond =
            |longer: u64, shorter: u64| i64::try_from(longer.saturating_sub(shorter)).unwrap_or(i64::MAX);
        Some(match upper {
            true => Triangle::upper(i64::from(unit) - beyond(rows, columns)),
            false => Triangle::lower(beyond(columns, rows) - i64::from(unit)),
        })
    }
}

/// A routine, and what its letters mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Routine {
    pub element: Element,
    pub shape: Shape,
    /// The form without a context, for all processes of the job.
    pub of_all: bool,
}

/// An argument by its place in the list of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    M,
    N,
    A,
    Ia,
    Ja,
    DescA,
    B,
    Ib,
    Jb,
    DescB,
    Context,
}

impl Argument {
    fn name(self) -> &'static str {
        match self {
            Self::M => "M",
            Self::N => "N",
            Self::A => "A",
            Self::Ia => "IA",
            Self::Ja => "JA",
            Self::DescA => "DESCA",
            Self::B => "B",
            Self::Ib => "IB",
            Self::Jb => "JB",
            Self::DescB => "DESCB",
            Self::Context => "ICTXT",
        }
    }
}

impl Routine {
    /// Argument number and name, as messages name it: "argument 4 (IA)".
    pub fn argument(&self, argument: Argument) -> String {
        let before = match self.shape {
            Shape::General => 0,
            // UPLO and DIAG.
            Shape::Trapezoid { .. } => 2,
            // ALPHA, then BETA.
            Shape::Transposed { .. } => match argument {
                Argument::M | Argument::N => 0,
                Argument::A | Argument::Ia | Argument::Ja | Argument::DescA => 1,
                _ => 2,
            },
        };
        let name = match (self.shape, argument) {
            (Shape::Transposed { .. }, Argument::B) => "C",
            (Shape::Transposed { .. }, Argument::Ib) => "IC",
            (Shape::Transposed { .. }, Argument::Jb) => "JC",
            (Shape::Transposed { .. }, Argument::DescB) => "DESCC",
            (_, argument) => argument.name(),
        };
        format!("argument {} ({name})", argument as usize + 1 + before)
    }

    /// The names of source and destination.
    pub fn matrices(&self) -> [&'static str; 2] {
        ["A", if let Shape::Transposed { .. } = self.shape { "C" } else { "B" }]
    }

    /// The routine with its letters: "pdtrmr2d with UPLO = U and DIAG = N".
    pub fn described(&self) -> String {
        match self.shape {
            Shape::General | Shape::Transposed { .. } => self.to_string(),
            Shape::Trapezoid { upper, unit } => {
                let (uplo, diag) = (if upper { 'U' } else { 'L' }, if unit { 'U' } else { 'N' });
                format!("{self} with UPLO = {uplo} and DIAG = {diag}")
            }
        }
    }
}

impl fmt::Display for Routine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let complex = matches!(self.element, Element::Complex | Element::DoubleComplex);
        let kind = match self.shape {
            Shape::General => "gemr2d",
            Shape::Trapezoid { .. } => "trmr2d",
            Shape::Transposed { conjugated: true } => "tranc",
            Shape::Transposed { conjugated: false } if complex => "tranu",
            Shape::Transposed { conjugated: false } => "tran",
        };
        write!(f, "p{}{kind}{}", self.element.letter(), if self.of_all { "o" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of the reference, element by element.
    fn moves(upper: bool, unit: bool, m: i64, n: i64, i: i64, j: i64) -> bool {
        match (upper, unit) {
            (true, false) => i <= j + (m - n).max(0),
            (true, true) => i < j + (m - n).max(0),
            (false, false) => i >= j - (n - m).max(0),
            (false, true) => i > j - (n - m).max(0),
        }
    }

    #[test]
    fn trapezoids_are_the_references() {
        for (m, n) in (1..7).flat_map(|m| (1..7).map(move |n| (m, n))) {
            for (upper, unit) in [(true, false), (true, true), (false, false), (false, true)] {
                let triangle = Shape::Trapezoid { upper, unit }.triangle(m, n).unwrap();
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let wanted = moves(upper, unit, m as i64, n as i64, i as i64, j as i64);
                    assert_eq!(
                        triangle.contains(i, j),
                        wanted,
                        "{m}x{n} upper {upper} unit {unit}: {i}, {j}"
                    );
                }
            }
        }
    }

    #[test]
    fn letters_mean_what_they_mean_in_the_reference() {
        assert_eq!(Shape::trapezoid(b'u', b'U'), Shape::Trapezoid { upper: true, unit: true });
        assert_eq!(Shape::trapezoid(b'x', b'n'), Shape::Trapezoid { upper: false, unit: false });
    }

    #[test]
    fn arguments_are_counted_as_in_the_list() {
        let general = Routine { element: Element::Double, shape: Shape::General, of_all: false };
        assert_eq!(
            (general.to_string(), general.argument(Argument::Ia)),
            ("pdgemr2d".into(), "argument 4 (IA)".into())
        );
        let trapezoid = Routine { shape: Shape::trapezoid(b'U', b'N'), of_all: true, ..general };
        assert_eq!(
            (trapezoid.to_string(), trapezoid.argument(Argument::Context)),
            ("pdtrmr2do".into(), "argument 13 (ICTXT)".into())
        );
        let transposed = Routine { shape: Shape::Transposed { conjugated: false }, ..general };
        let numbered = [Argument::N, Argument::A, Argument::DescA, Argument::B, Argument::DescB]
            .map(|argument| transposed.argument(argument));
        let expected = ["2 (N)", "4 (A)", "7 (DESCA)", "9 (C)", "12 (DESCC)"];
        assert_eq!(numbered, expected.map(|end| format!("argument {end}")));
        let names = [
            (Element::Single, false, "pstran"),
            (Element::Complex, false, "pctranu"),
            (Element::DoubleComplex, true, "pztranc"),
        ];
        for (element, conjugated, name) in names {
            let routine = Routine { element, shape: Shape::Transposed { conjugated }, of_all: false };
            assert_eq!(routine.to_string(), name);
        }
    }
}
