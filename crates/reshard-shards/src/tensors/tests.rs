//! Headers of safetensors files, by value, and all that is wrong with others.

use super::*;

fn file(header: &str, data_bytes: u64) -> Result<Tensors> {
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    Tensors::read(&bytes, bytes.len() as u64 + data_bytes)
}

/// Written by safetensors 0.8 for Python, from NumPy.
const PYTHON: &str = r#"{"__metadata__":{"by":"numpy"},"b":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"a":{"dtype":"I8","shape":[3,1],"data_offsets":[16,19]}}"#;

#[test]
fn headers_are_read_and_written() {
    let read = file(PYTHON, 19).unwrap();
    let start = 8 + PYTHON.len() as u64;
    let found: Vec<_> =
        read.tensors().iter().map(|one| (&one.name[..], one.start - start, one.bytes)).collect();
    assert_eq!(found, [("b", 0, 16), ("a", 16, 3)]);
    assert_eq!(read.metadata()["by"], "numpy");
    let wanted = vec![
        ("a".to_string(), "i8".parse().unwrap(), vec![3, 1]),
        ("b".to_string(), "f64".parse().unwrap(), vec![2]),
    ];
    let made = Tensors::new(wanted, [("by".to_string(), "numpy".to_string())].into()).unwrap();
    let written = made.write().unwrap();
    assert_eq!(written.len() % 8, 0);
    assert_eq!(std::str::from_utf8(&written[8..]).unwrap().trim_end(), PYTHON);
    assert_eq!(Tensors::read(&written, made.file_bytes()).unwrap(), made);
    assert_eq!(made.file_bytes(), written.len() as u64 + 19);
    // No tensors, no words; scalars; nothing in a tensor; any order of names.
    assert_eq!(file("{}  ", 0).unwrap().tensors(), []);
    let odd = r#"{"z":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},"e":{"shape":[0,7],"data_offsets":[0,0],"dtype":"BF16"}}"#;
    let odd = file(odd, 1).unwrap();
    assert_eq!(odd.tensors().iter().map(|one| &one.name[..]).collect::<Vec<_>>(), ["e", "z"]);
}

#[test]
fn hostile_headers_are_refused() {
    let deep = format!(r#"{{"a":{}"#, "[".repeat(100_000));
    let long = format!(r#"{{"a":{{"dtype":"F64","shape":[{}1],"data_offsets":[0,8]}}}}"#, "1,".repeat(64));
    for (header, data_bytes, expected) in [
        ("", 0, "does not begin"),
        ("[]", 0, "does not begin"),
        (" {}", 0, "does not begin"),
        ("{", 0, "cannot be read"),
        ("{}x", 0, "cannot be read"),
        ("{}", 1, "longer than it says"),
        (r#"{"a":1}"#, 0, "cannot be read"),
        (r#"{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#, 7, "cut off"),
        (r#"{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,9]}}"#, 9, "make 8 bytes"),
        (r#"{"a":{"dtype":"F64","shape":[1],"data_offsets":[8,0]}}"#, 8, "make 8 bytes"),
        (r#"{"a":{"dtype":"F64","shape":[1],"data_offsets":[8,16]}}"#, 16, "has a gap"),
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#,
            6,
            "overlaps",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#,
            4,
            "overlaps",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#,
            2,
            "twice",
        ),
        (r#"{"__metadata__":{"a":"b","a":"c"}}"#, 0, "twice"),
        (r#"{"__metadata__":{},"__metadata__":{}}"#, 0, "twice"),
        (r#"{"__metadata__":{"a":1}}"#, 0, "cannot be read"),
        (r#"{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, 1, "duplicate field"),
        (r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}}"#, 1, "unknown field"),
        (r#"{"a":{"dtype":"U8","shape":[1]}}"#, 1, "missing field"),
        (r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#, 1, "'F4' is not read"),
        (r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#, 1, "cannot be read"),
        (r#"{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}"#, 1, "cannot be read"),
        (r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}"#, 1, "cannot be read"),
        (r#"{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#, 0, "2^62"),
        (r#"{"a":{"dtype":"U8","shape":[18446744073709551615,0],"data_offsets":[0,0]}}"#, 0, "2^62"),
        (
            r#"{"a":{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[0,4611686018427387904]}}"#,
            0,
            "2^62",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}}"#,
            1,
            "2^62",
        ),
        (&deep, 0, "cannot be read"),
        (&long, 8, "cannot be read"),
    ] {
        let error = file(header, data_bytes).unwrap_err().to_string();
        assert!(error.contains(expected) && error.len() < 300, "{}: {error}", shown(header));
    }
    for length in 0..8 {
        assert!(Tensors::read(&[0; 8][..length], length as u64).is_err());
    }
    for claim in [1, MAX_HEADER_BYTES, MAX_HEADER_BYTES + 1, u64::MAX] {
        assert!(Tensors::read(&claim.to_le_bytes(), 8).is_err());
        assert!(Tensors::read(&claim.to_le_bytes(), u64::MAX).is_err());
    }
    let one = |name: &str, element: &str| (name.to_string(), element.parse().unwrap(), vec![1 << 40]);
    assert!(Tensors::new(vec![one("a", "u8"), one("a", "i8")], BTreeMap::new()).is_err());
    assert!(Tensors::new(vec![one(METADATA, "u8")], BTreeMap::new()).is_err());
    assert!(Tensors::new(vec![one("a", "c128")], BTreeMap::new()).is_err());
    let huge = (0..1 << 10).map(|at| one(&at.to_string(), "f64")).collect();
    assert!(Tensors::new(huge, BTreeMap::new()).is_ok());
    let huge = (0..1 << 20).map(|at| (at.to_string(), "u8".parse().unwrap(), vec![1 << 43])).collect();
    assert_eq!(Tensors::new(huge, BTreeMap::new()).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// A flip of one bit is refused, or gives another legal header of the same length.
#[test]
fn flips_of_single_bits_are_found_or_give_a_legal_header() {
    let bytes = [&(PYTHON.len() as u64).to_le_bytes()[..], PYTHON.as_bytes()].concat();
    let file_bytes = bytes.len() as u64 + 19;
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(other) = Tensors::read(&flipped, file_bytes) {
            assert_eq!(other.file_bytes(), file_bytes);
            assert_eq!(
                Tensors::read(&other.write().unwrap(), other.write().unwrap().len() as u64 + 19)
                    .unwrap()
                    .tensors()
                    .len(),
                other.tensors().len()
            );
        }
    }
}
