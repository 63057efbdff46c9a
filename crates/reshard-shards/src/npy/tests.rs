//! Headers by value, as NumPy 2.4 writes them, and all that is wrong with others.

use super::*;
use proptest::prelude::*;

/// A header of a version, from its dictionary, padded by nothing but a newline.
fn header(major: u8, text: &str) -> Vec<u8> {
    let text = format!("{text}\n");
    let length = (text.len() as u32).to_le_bytes();
    let length = if major == 1 { &length[..2] } else { &length[..] };
    [&MAGIC[..], &[major, 0], length, text.as_bytes()].concat()
}

fn read(text: &str, data_bytes: u64) -> Result<Npy> {
    let header = header(1, text);
    Npy::read(&header, header.len() as u64 + data_bytes)
}

/// What `numpy.save` wrote, up to the elements: 128 bytes each, padded by spaces.
fn numpy(dictionary: &str) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00v\x00".to_vec();
    bytes.extend_from_slice(dictionary.as_bytes());
    bytes.resize(127, b' ');
    bytes.push(b'\n');
    bytes
}

#[test]
fn headers_are_those_of_numpy() {
    let cases: [(&str, &str, bool, &[u64]); 6] = [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }", "f64", false, &[3, 4]),
        ("{'descr': '<c16', 'fortran_order': True, 'shape': (3, 4), }", "c128", true, &[3, 4]),
        ("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "bool", false, &[]),
        ("{'descr': '|V24', 'fortran_order': False, 'shape': (7,), }", "bytes(24)", false, &[7]),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 5), }", "u8", false, &[2, 3, 5]),
        (
            "{'descr': '<i4', 'fortran_order': False, 'shape': (0, 123456789), }",
            "i32",
            false,
            &[0, 123_456_789],
        ),
    ];
    for (text, element, fortran_order, shape) in cases {
        let npy = Npy::new(element.parse().unwrap(), fortran_order, shape.to_vec()).unwrap();
        let bytes = numpy(text);
        assert_eq!(npy.write(), bytes, "{text}");
        assert_eq!(Npy::read(&bytes, npy.file_bytes()), Ok(npy.clone()));
        assert_eq!(npy.data_start(), 128);
        assert_eq!(npy.data_bytes(), npy.element().bytes() * shape.iter().product::<u64>());
    }
    // A header that would end at a multiple of 64 is padded by 64 more, as NumPy does it.
    let sizes: Vec<usize> = (1..=64)
        .map(|dims| Npy::new("f64".parse().unwrap(), false, vec![1; dims]).unwrap().write().len())
        .collect();
    assert!(sizes.iter().all(|size| size % 64 == 0));
}

#[test]
fn all_versions_and_spellings_are_read() {
    let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
    for major in 1..=3 {
        let header = header(major, text);
        let npy = Npy::read(&header, header.len() as u64 + 96).unwrap();
        assert_eq!((npy.data_start(), npy.shape()), (header.len() as u64, &[3, 4][..]));
    }
    for text in [
        "{'shape': (3, 4), 'fortran_order': False, 'descr': '<f8'}",
        "{\"descr\":\"<f8\",\"fortran_order\":False,\"shape\":(3,4)}",
        "  { 'descr' : '<f8' , 'fortran_order' : False , 'shape' : ( 3 , 4 , ) , }     ",
    ] {
        assert_eq!(read(text, 96).unwrap().shape(), [3, 4], "{text}");
    }
    let most = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': ({}), }}", "1, ".repeat(64));
    assert_eq!(read(&most, 1).unwrap().shape().len(), 64);
}

#[test]
fn hostile_headers_are_refused() {
    let good = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
    assert!(read(good, 96).is_ok());
    let long_string =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': (3, 4), }}", "x".repeat(60_000));
    let many = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}), }}", "1, ".repeat(65));
    let nested = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {}", "(".repeat(60_000));
    let key = format!("{{'{}': 1}}", "k".repeat(60_000));
    let cases = [
        ("", "a dictionary"),
        ("{", "a string"),
        ("{}", "not all of the keys"),
        ("[]", "a dictionary"),
        ("{'descr': '<f8', 'fortran_order': False, }", "not all of the keys"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), 'shape': (3, 4), }", "twice"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), 'more': 1, }", "not known"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } x", "newline"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }}", "newline"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }\n", "newline"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }\t", "newline"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }\0", "newline"),
        ("{'descr': '<f8', 'fortran_order': false, 'shape': (3, 4), }", "True or False"),
        ("{'descr': '<f8', 'fortran_order': 0, 'shape': (3, 4), }", "True or False"),
        ("{'descr': '<f8', 'fortran_order': Falsehood, 'shape': (3, 4), }", "','"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3), }", "after the only length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': [3, 4], }", "a tuple"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': 12, }", "a tuple"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (,), }", "a length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 4), }", "a length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (+3, 4), }", "a length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (03, 4), }", "a length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3.0, 4), }", "','"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 4L), }", "','"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (nan, 4), }", "a length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (0x3, 4), }", "','"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3 4), }", "','"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387905, 1), }", "a length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999999, 1), }", "a length"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 1), }", "2^62 bytes"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "2^62 bytes"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 2147483648, 2), }", "2^62 bytes"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 5), }", "cut off"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3), }", "longer than it says"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", "longer than it says"),
        ("{'descr': '>f8', 'fortran_order': False, 'shape': (3, 4), }", "big-endian"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (3, 4), }", "Python objects"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 4), }", "records"),
        ("{'descr': ('<f8', (2,)), 'fortran_order': False, 'shape': (3, 4), }", "a string"),
        ("{'descr': '<f8\\'', 'fortran_order': False, 'shape': (3, 4), }", "a string"),
        ("{'descr': '<f8, 'fortran_order': False, 'shape': (3, 4), }", "','"),
        ("{'descr': '<f8\", 'fortran_order': False, 'shape': (3, 4), }", "','"),
        ("{descr: '<f8', 'fortran_order': False, 'shape': (3, 4), }", "a string"),
        ("{b'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }", "a string"),
        ("{'descr' '<f8', 'fortran_order': False, 'shape': (3, 4), }", "':'"),
        ("{'descr': '<f8',, 'fortran_order': False, 'shape': (3, 4), }", "a string"),
        ("{'descr': '<f8' 'fortran_order': False, 'shape': (3, 4), }", "','"),
        ("{'descr': '<fé', 'fortran_order': False, 'shape': (3, 4), }", "ASCII"),
        ("{'descr': '<f8', # \n'fortran_order': False, 'shape': (3, 4), }", "a string"),
        ("__import__('os').system('true')", "a dictionary"),
        (&long_string, "is not one that is read"),
        (&many, "more than 64 dimensions"),
        (&nested, "a length"),
        (&key, "not known"),
    ];
    for (text, expected) in cases {
        let error = read(text, 96).unwrap_err().to_string();
        assert!(error.contains(expected) && error.len() < 300 && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn hostile_lengths_are_refused() {
    let good = numpy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }");
    for length in 0..128 {
        let error = Npy::read(&good[..length], length as u64).unwrap_err().to_string();
        assert!(error.contains("cut off") || error.contains("no .npy file"), "{length}: {error}");
    }
    for file_bytes in [0, 127, 128, 223, 225, u64::MAX] {
        assert!(Npy::read(&good, file_bytes).is_err());
    }
    let mut claims = header(2, "{}");
    claims[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let said = Npy::read(&claims, u64::MAX).unwrap_err().to_string();
    assert!(said.contains("at most 65536"), "{said}");
    for version in [[0, 0], [1, 1], [4, 0], [255, 255]] {
        claims[6..8].copy_from_slice(&version);
        assert_eq!(Npy::read(&claims, 1000).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert!(Npy::new("f64".parse().unwrap(), false, vec![1; 65]).is_err());
    assert!(Npy::new("f64".parse().unwrap(), false, vec![1 << 60]).is_err());
    assert!(Npy::new("u8".parse().unwrap(), false, vec![MAX_LEN + 1, 0]).is_err());
}

/// What a header means, without where the elements begin.
fn meaning(npy: &Npy) -> (ElementType, bool, Vec<u64>) {
    (npy.element(), npy.fortran_order(), npy.shape().to_vec())
}

/// Every flip of one bit is refused, or means the same; an array without elements may get another shape.
#[test]
fn flips_of_single_bits_are_found_or_mean_the_same() {
    let mut same = 0;
    for (element, fortran_order, shape) in [
        ("f64", false, vec![3, 4]),
        ("u8", true, vec![10, 1]),
        ("bytes(24)", false, vec![7]),
        ("c64", true, vec![]),
        ("bool", false, vec![2, 3, 5]),
        ("f32", false, vec![0, 12]),
    ] {
        let npy = Npy::new(element.parse().unwrap(), fortran_order, shape).unwrap();
        let bytes = npy.write();
        let later = [&MAGIC[..], &[2, 0], &[bytes[8], bytes[9], 0, 0], &bytes[10..]].concat();
        for bytes in [bytes, later] {
            let file_bytes = bytes.len() as u64 + npy.data_bytes();
            for bit in 0..8 * bytes.len() {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let Ok(other) = Npy::read(&flipped, file_bytes) else { continue };
                if npy.data_bytes() > 0 {
                    assert_eq!(meaning(&other), meaning(&npy), "bit {bit} of {npy:?}");
                    same += 1;
                } else {
                    assert_eq!(other.data_bytes(), 0);
                }
            }
        }
    }
    // Version 2.0 as 3.0 five times, '|' as '<' of one byte in both versions of two headers, and of raw bytes in both of one.
    assert_eq!(same, 5 + 4 + 2);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        at in 0_usize..17,
        fortran_order: bool,
        shape in prop::collection::vec(0_u64..1 << 19, 0..4),
        ones in 0_usize..60,
    ) {
        let element = ElementType::named().nth(at).unwrap();
        let shape = [shape, vec![1; ones]].concat();
        let npy = Npy::new(element, fortran_order, shape).unwrap();
        let bytes = npy.write();
        prop_assert_eq!(bytes.len() % 64, 0);
        let read = Npy::read(&bytes, npy.file_bytes()).unwrap();
        prop_assert!(crate::same_in_npy(read.element(), element));
        prop_assert_eq!((read.shape(), read.order()), (npy.shape(), npy.order()));
        prop_assert_eq!(read.write(), bytes);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), file_bytes: u64) {
        let _ = Npy::read(&bytes, file_bytes);
        let _ = read(&String::from_utf8_lossy(&bytes), 0);
    }
}
