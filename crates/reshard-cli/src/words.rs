//! What people type: names of types as NumPy, C and Fortran have them, counts with underscores and Ki, times with their unit.

use reshard_plan::notation::parse_index;

/// Element types by name, with their bytes. Bits are moved unchanged, so nothing else matters.
pub const TYPES: [(&str, u64); 14] = [
    ("i8", 1),
    ("u8", 1),
    ("i16", 2),
    ("u16", 2),
    ("f16", 2),
    ("bf16", 2),
    ("i32", 4),
    ("u32", 4),
    ("f32", 4),
    ("i64", 8),
    ("u64", 8),
    ("f64", 8),
    ("c64", 8),
    ("c128", 16),
];

/// Other names of types, in lower case. `f8` is not among them: NumPy's has eight bytes, others' eight bits.
const ALIASES: [(&str, &str); 33] = [
    ("int8", "i8"),
    ("int8_t", "i8"),
    ("uint8", "u8"),
    ("uint8_t", "u8"),
    ("byte", "u8"),
    ("int16", "i16"),
    ("int16_t", "i16"),
    ("short", "i16"),
    ("uint16", "u16"),
    ("uint16_t", "u16"),
    ("float16", "f16"),
    ("half", "f16"),
    ("bfloat16", "bf16"),
    ("int", "i32"),
    ("int32", "i32"),
    ("int32_t", "i32"),
    ("integer", "i32"),
    ("uint32", "u32"),
    ("uint32_t", "u32"),
    ("float", "f32"),
    ("float32", "f32"),
    ("single", "f32"),
    ("real", "f32"),
    ("int64", "i64"),
    ("int64_t", "i64"),
    ("uint64", "u64"),
    ("uint64_t", "u64"),
    ("double", "f64"),
    ("double precision", "f64"),
    ("float64", "f64"),
    ("complex", "c64"),
    ("complex64", "c64"),
    ("complex128", "c128"),
];

/// The name that all commands know a type by: of `double`, `f64`; of anything else, what was typed.
pub fn type_name(text: &str) -> &str {
    let lower = text.trim().to_ascii_lowercase();
    let known = TYPES.iter().map(|(name, _)| *name).find(|name| *name == lower);
    known.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == lower).map(|(_, name)| *name)).unwrap_or(text)
}

/// Reads a number such as `1000`, `1_000` or `8Ki`.
pub fn count<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let number = match parse_index(text).as_deref() {
        Ok([number]) => Some(*number),
        _ => None,
    };
    number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
        "expected a whole number, such as 1000, 1_000 or 8Ki, that is not too large".to_string()
    })
}

/// Reads a time in seconds, such as `2e-6` or `2us`. What is negative is left to those who say why it cannot be.
pub fn seconds(text: &str) -> Result<f64, String> {
    // An exponent belongs to the number, a unit begins with the first letter after it.
    let ends = |at: &usize| text.is_char_boundary(*at);
    let number =
        (1..=text.len()).rev().filter(ends).find_map(|at| Some((text[..at].trim().parse::<f64>().ok()?, at)));
    let of_unit = |unit: &str| match unit.trim() {
        "" | "s" => Some(1.0),
        "ms" => Some(1e-3),
        "us" | "µs" | "μs" => Some(1e-6),
        "ns" => Some(1e-9),
        "m" | "min" => Some(60.0),
        _ => None,
    };
    match number.and_then(|(number, at)| Some(number * of_unit(&text[at..])?)) {
        Some(seconds) if seconds.is_finite() => Ok(seconds),
        _ => Err("this is no time; give a number of seconds, or one with ns, us, ms, s or m, such as 2us"
            .to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_many_names() {
        for (text, name) in
            [("double", "f64"), ("F64", "f64"), ("float64", "f64"), ("Complex128", "c128"), ("12", "12")]
        {
            assert_eq!(type_name(text), name);
        }
        assert_eq!(type_name("f8"), "f8");
        for (alias, name) in ALIASES {
            assert!(TYPES.iter().any(|(known, _)| *known == name), "{alias}");
            assert!(TYPES.iter().all(|(known, _)| *known != alias), "{alias}");
        }
    }

    #[test]
    fn counts_have_underscores_and_units() {
        for (text, number) in [("7", 7), ("1_000_000", 1_000_000), ("8Ki", 8192), ("2Mi", 2 << 20)] {
            assert_eq!(count(text), Ok(number));
        }
        for text in
            ["", "-1", "1__0", "_1", "1_", "1e6", "8k", "1,2", "99999999999999999999", "17179869184Gi"]
        {
            assert!(count::<u64>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_fit_their_type() {
        assert_eq!(count("4294967295"), Ok(u32::MAX));
        assert!(count::<u32>("4294967296").is_err());
    }

    #[test]
    fn times_have_units() {
        for (text, time) in
            [("2e-6", 2e-6), ("2us", 2e-6), ("1.5 ms", 1.5e-3), ("-3", -3.0), ("2m", 120.0), ("1e3ns", 1e-6)]
        {
            assert!((seconds(text).unwrap_or(f64::NAN) - time).abs() <= 1e-12 * time.abs(), "{text}");
        }
        for text in ["", "us", "1 year", "inf", "nan", "1e400", "2s3", "µ"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
