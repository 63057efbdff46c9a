//! Types of elements, by name, for programs and files that tell each other what an array is made of. Only the size matters for moving:
//! nothing is converted on the way, so both sides must name the same type.

use reshard_plan::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// The type of an array's elements, by name.
///
/// ```
/// use reshard::ElementType;
/// let element: ElementType = "f64".parse()?;
/// assert_eq!((element, element.bytes()), (ElementType::of::<f64>(), 8));
/// assert_eq!("bytes(24)".parse::<ElementType>()?.bytes(), 24); // a type of your own
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "String", try_from = "String"))]
pub struct ElementType {
    kind: Kind,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Named(&'static str),
    Opaque,
}

/// Names and sizes.
const NAMED: [(&str, u64); 17] = [
    ("bool", 1),
    ("u8", 1),
    ("i8", 1),
    ("u16", 2),
    ("i16", 2),
    ("f16", 2),
    ("bf16", 2),
    ("f8_e4m3", 1),
    ("f8_e5m2", 1),
    ("u32", 4),
    ("i32", 4),
    ("u64", 8),
    ("i64", 8),
    ("f32", 4),
    ("f64", 8),
    ("c64", 8),
    ("c128", 16),
];

/// The most bytes of an element.
const MAX_BYTES: u64 = 1 << 20;

impl ElementType {
    /// The type of that name in Rust, if it is a number; otherwise as many bytes, of which nothing else is known.
    pub fn of<T: bytemuck::Pod>() -> Self {
        let name = std::any::type_name::<T>();
        let complex = name.starts_with("num_complex::Complex<");
        let name = match complex {
            true if name.ends_with("<f32>") => "c64",
            true if name.ends_with("<f64>") => "c128",
            _ => name,
        };
        let named = NAMED.into_iter().find(|(known, _)| *known == name);
        match named {
            Some((name, bytes)) => Self { kind: Kind::Named(name), bytes },
            None => Self { kind: Kind::Opaque, bytes: size_of::<T>() as u64 },
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// The name, unless nothing but the size is known: then it is `bytes(N)`.
    pub fn name(self) -> Option<&'static str> {
        match self.kind {
            Kind::Named(name) => Some(name),
            Kind::Opaque => None,
        }
    }

    /// As many bytes, of which nothing else is known: `bytes(N)`, with N from 1 to 2^20.
    pub fn opaque(bytes: u64) -> Result<Self> {
        match (1..=MAX_BYTES).contains(&bytes) {
            true => Ok(Self { kind: Kind::Opaque, bytes }),
            false => Err(Error::new(
                ErrorKind::OutOfRange,
                format!("elements of {bytes} bytes were given; 1 to 2^20 are possible"),
            )),
        }
    }

    /// All types that have a name.
    pub fn named() -> impl Iterator<Item = Self> {
        NAMED.into_iter().map(|(name, bytes)| Self { kind: Kind::Named(name), bytes })
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Named(name) => f.write_str(name),
            Kind::Opaque => write!(f, "bytes({})", self.bytes),
        }
    }
}

impl FromStr for ElementType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((name, bytes)) = NAMED.into_iter().find(|(name, _)| *name == text) {
            return Ok(Self { kind: Kind::Named(name), bytes });
        }
        let bytes = text.strip_prefix("bytes(").and_then(|rest| rest.strip_suffix(')')?.parse().ok());
        match bytes {
            Some(bytes) if (1..=MAX_BYTES).contains(&bytes) => Ok(Self { kind: Kind::Opaque, bytes }),
            _ => Err(Error::new(
                ErrorKind::OutOfRange,
                format!(
                    "the type of elements was given as '{text}'; known are {} and bytes(N) with N from 1 to 2^20",
                    NAMED.map(|(name, _)| name).join(", ")
                ),
            )),
        }
    }
}

impl From<ElementType> for String {
    fn from(element: ElementType) -> Self {
        element.to_string()
    }
}

impl TryFrom<String> for ElementType {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (name, bytes) in NAMED {
            let element: ElementType = name.parse().unwrap();
            assert_eq!((element.to_string().as_str(), element.bytes()), (name, bytes));
        }
        assert_eq!(ElementType::of::<i16>().to_string(), "i16");
        assert_eq!(ElementType::of::<num_complex::Complex<f64>>().to_string(), "c128");
        assert_eq!(ElementType::named().count(), 17);
        assert_eq!(ElementType::of::<f32>().name(), Some("f32"));
        assert_eq!(ElementType::opaque(24), "bytes(24)".parse());
        assert!(ElementType::opaque(0).is_err() && ElementType::opaque(MAX_BYTES + 1).is_err());
        assert_eq!(ElementType::opaque(24).unwrap().name(), None);
        assert_eq!(ElementType::of::<[u8; 3]>().to_string(), "bytes(3)");
        for wrong in ["", "double", "bytes(0)", "bytes(x)", "bytes(1048577)", "F64"] {
            let error = wrong.parse::<ElementType>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")) && error.contains("f32, f64"), "{error}");
        }
    }
}
