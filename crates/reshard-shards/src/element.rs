//! What other formats call the types of elements. NumPy has no name for bf16 and the two f8: in `.npy` files they are two bytes or one
//! of which nothing else is known, and only a manifest says what they are.

use reshard::axis::MAX_LEN;
use reshard::{ElementType, Error, ErrorKind, Result};

/// Our name, NumPy's and that of safetensors; empty where there is none.
const NAMES: [(&str, &str, &str); 17] = [
    ("bool", "|b1", "BOOL"),
    ("u8", "|u1", "U8"),
    ("i8", "|i1", "I8"),
    ("u16", "<u2", "U16"),
    ("i16", "<i2", "I16"),
    ("f16", "<f2", "F16"),
    ("bf16", "", "BF16"),
    ("f8_e4m3", "", "F8_E4M3"),
    ("f8_e5m2", "", "F8_E5M2"),
    ("u32", "<u4", "U32"),
    ("i32", "<i4", "I32"),
    ("u64", "<u8", "U64"),
    ("i64", "<i8", "I64"),
    ("f32", "<f4", "F32"),
    ("f64", "<f8", "F64"),
    ("c64", "<c8", "C64"),
    ("c128", "<c16", ""),
];

/// Longer names are not repeated in errors.
const SHOWN_CHARS: usize = 40;

fn named(name: &str) -> Option<ElementType> {
    name.parse().ok()
}

/// A text of a stranger, as errors repeat it: short, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    shown_to(text, SHOWN_CHARS)
}

/// The first characters of a text of a stranger, as `shown`.
pub(crate) fn shown_to(text: &str, chars: usize) -> String {
    let mut short: String = text.chars().take(chars).flat_map(char::escape_debug).collect();
    if text.chars().nth(chars).is_some() {
        short.push_str("...");
    }
    short
}

/// An array as errors call it, by its name if it has one.
pub(crate) fn called(name: &str) -> String {
    match name {
        "" => "the array".into(),
        name => format!("the tensor '{}'", shown(name)),
    }
}

/// Bytes of an array; `None` if a length, or all bytes together, are more than 2^62. It is 0 if one length is 0.
pub(crate) fn array_bytes(element: ElementType, shape: &[u64]) -> Option<u64> {
    if shape.iter().any(|&length| length > MAX_LEN) {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    let bytes = shape.iter().try_fold(element.bytes(), |bytes, &length| bytes.checked_mul(length));
    bytes.filter(|&bytes| bytes <= MAX_LEN)
}

/// NumPy's name for a type, as in the header of a `.npy` file: `<f8` for f64, `|V24` for bytes(24) and `|V2` for bf16.
///
/// ```
/// assert_eq!(reshard_shards::npy_descr("c128".parse()?), "<c16");
/// # Ok::<(), reshard::Error>(())
/// ```
pub fn npy_descr(element: ElementType) -> String {
    let known = NAMES.iter().find(|(name, descr, _)| element.name() == Some(name) && !descr.is_empty());
    match known {
        Some((_, descr, _)) => (*descr).to_string(),
        None => format!("|V{}", element.bytes()),
    }
}

/// The type that NumPy has under a name. Big-endian numbers are refused: bytes are moved, never turned.
///
/// ```
/// assert_eq!(reshard_shards::element_from_npy("<f8")?, "f64".parse()?);
/// assert!(reshard_shards::element_from_npy(">f8").is_err());
/// # Ok::<(), reshard::Error>(())
/// ```
pub fn element_from_npy(descr: &str) -> Result<ElementType> {
    let refused = |why: &str| {
        Err(Error::new(ErrorKind::Unsupported, format!("the element type '{}' {why}", shown(descr))))
    };
    const FORM: &str =
        "is not one that is read; write numbers, bool or raw bytes (as in <f8, |u1, |b1, |V24)";
    let Some((order, kind)) = descr.split_at_checked(1) else { return refused(FORM) };
    let Some((letter, digits)) = kind.split_at_checked(1) else { return refused(FORM) };
    if letter == "O" {
        return refused("means Python objects, which are not read; convert the array to numbers first");
    }
    // Plain digits: no sign, no space, no zero in front.
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit()) && !digits.starts_with('0');
    let Some(bytes) = digits.parse::<u64>().ok().filter(|_| plain) else { return refused(FORM) };
    if !["<", "|", ">"].contains(&order) {
        return refused(FORM);
    }
    let element = match letter {
        "V" => ElementType::opaque(bytes).ok(),
        _ => {
            NAMES.iter().find(|(_, descr, _)| descr.get(1..) == Some(kind)).and_then(|(name, ..)| named(name))
        }
    };
    let Some(element) = element else { return refused(FORM) };
    match (order, element.bytes()) {
        (">", 2..) => {
            refused("is big-endian; write little-endian numbers, in NumPy with .astype('<f8') or the like")
        }
        ("|", 2..) if letter != "V" => refused("has no byte order; little-endian numbers begin with '<'"),
        _ => Ok(element),
    }
}

/// True if a `.npy` file of one type may hold the other: equal types, or types that NumPy knows only by their size.
pub fn same_in_npy(one: ElementType, other: ElementType) -> bool {
    npy_descr(one) == npy_descr(other)
}

/// The name that safetensors has for a type; c128 and bytes(N) have none.
pub fn safetensors_name(element: ElementType) -> Result<&'static str> {
    let known = NAMES.iter().find(|(name, _, theirs)| element.name() == Some(name) && !theirs.is_empty());
    match known {
        Some((_, _, theirs)) => Ok(theirs),
        None => Err(Error::new(
            ErrorKind::Unsupported,
            format!("safetensors files have no elements of type {element}; write .npy or raw files"),
        )),
    }
}

/// The type that safetensors has under a name.
pub fn element_from_safetensors(theirs: &str) -> Result<ElementType> {
    let known = NAMES.iter().find(|(.., name)| *name == theirs && !name.is_empty());
    known.and_then(|(name, ..)| named(name)).ok_or_else(|| {
        let all: Vec<_> = NAMES.iter().map(|(.., name)| *name).filter(|name| !name.is_empty()).collect();
        Error::new(
            ErrorKind::Unsupported,
            format!("the element type '{}' is not read; known are {}", shown(theirs), all.join(", ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_in_other_formats() {
        assert_eq!(ElementType::named().count(), NAMES.len());
        for element in ElementType::named() {
            let name = element.name().unwrap();
            assert!(NAMES.iter().any(|(ours, ..)| *ours == name), "{name}");
            let back = element_from_npy(&npy_descr(element)).unwrap();
            let by_size = ["bf16", "f8_e4m3", "f8_e5m2"].contains(&name);
            assert_eq!(back == element, !by_size, "{name}");
            assert!(same_in_npy(back, element) && back.bytes() == element.bytes());
            match safetensors_name(element) {
                Ok(theirs) => assert_eq!(element_from_safetensors(theirs).unwrap(), element),
                Err(error) => {
                    assert!(name == "c128" && error.to_string().contains("c128"), "{name}: {error}");
                }
            }
        }
        let bytes = ElementType::opaque(24).unwrap();
        assert_eq!((npy_descr(bytes).as_str(), element_from_npy("|V24").unwrap()), ("|V24", bytes));
        assert!(safetensors_name(bytes).is_err());
    }

    #[test]
    fn one_byte_has_no_order_and_raw_bytes_have_none_either() {
        for descr in ["|u1", "<u1", ">u1"] {
            assert_eq!(element_from_npy(descr).unwrap().name(), Some("u8"));
        }
        assert_eq!(element_from_npy("<V2").unwrap(), ElementType::opaque(2).unwrap());
    }

    #[test]
    fn what_is_not_read_is_refused_with_its_name() {
        let wrong = [
            "",
            "<",
            "f8",
            "<f",
            "<f16",
            "<f0",
            "<f08",
            "<f+8",
            "=f8",
            ">f8",
            "|f8",
            "<U4",
            "|S4",
            "<M8[ns]",
            "<m8",
            "|O",
            "|V0",
            "|V1048577",
            "|V99999999999999999999999",
            "<c4",
            "<b1 ",
            "é8",
            "<é8",
            "<fé",
            ">V2",
            "<i3",
        ];
        for descr in wrong {
            let error = element_from_npy(descr).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(&format!("'{descr}'")), "{error}");
        }
        let said = element_from_npy(">f8").unwrap_err().to_string();
        assert!(said.contains("big-endian"), "{said}");
        let said = element_from_npy("|O").unwrap_err().to_string();
        assert!(said.contains("Python objects"), "{said}");
        for theirs in ["", "f64", "F4", "F8_E8M0", "C128"] {
            let said = element_from_safetensors(theirs).unwrap_err().to_string();
            assert!(said.contains("BF16"), "{said}");
        }
        let long = element_from_npy(&"\n".repeat(1000)).unwrap_err().to_string();
        assert!(long.len() < 300 && !long.contains('\n'), "{long}");
    }
}
