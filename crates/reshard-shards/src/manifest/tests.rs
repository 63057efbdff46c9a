//! Manifests by value, and all that is wrong with others. Those of strangers have right checksums: anybody can work one out.

use super::*;
use crate::checksum::Sums;
use proptest::prelude::*;

/// A set of 2 ranks with 3 elements each, whose values do not matter.
fn small(format: Format) -> Manifest {
    let element = "f64".parse().unwrap();
    let files = (0..2).map(|rank| {
        let mut sums = Sums::new(4096);
        if format == Format::Npy {
            sums.update(&Npy::new(element, true, vec![3]).unwrap().write());
        }
        sums.update(&[rank; 24]);
        let (bytes, blake3, crc32c) = sums.finish();
        ShardFile { name: format!("rank_{rank:04}.npy"), bytes, blake3: Some(blake3), crc32c }
    });
    let array = ManifestArray {
        name: String::new(),
        shape: vec![6],
        element,
        layout: "2/3".parse().unwrap(),
        order: MemoryOrder::ColMajor,
        made: Some(Made { seed: 7, axes: vec![0] }),
    };
    Manifest { arrays: vec![array], format, block_bytes: 4096, files: files.collect() }
}

#[test]
fn the_length_is_known_before_the_files_are() {
    for manifest in [small(Format::Npy), small(Format::Raw), tensors()] {
        let files = manifest.files.iter().map(|file| (&file.name[..], file.bytes));
        let empty = Manifest { files: Vec::new(), ..manifest.clone() };
        assert_eq!(text::length(&empty, files, true).unwrap(), manifest.write().unwrap().len() as u64);
    }
}

/// Two tensors and a number on 2 ranks: rank 1 has 8 + 4 bytes of them, rank 0 a copy of the second and the number besides.
fn tensors() -> Manifest {
    let array = |name: &str, element: &str, shape: &[u64], layout: &str| ManifestArray {
        name: name.into(),
        shape: shape.to_vec(),
        element: element.parse().unwrap(),
        layout: layout.parse().unwrap(),
        order: MemoryOrder::RowMajor,
        made: None,
    };
    let arrays = vec![
        array("up", "bf16", &[4, 2], "2x1/2x2"),
        array("norm", "f8_e4m3", &[4], "(*) on 2"),
        array("step", "i64", &[], "1/1"),
    ];
    let file = |(rank, data): (u64, u64)| ShardFile {
        name: format!("rank_{rank:04}.safetensors"),
        bytes: 200 + data,
        blake3: Some(Digest::of(b"")),
        crc32c: vec![7],
    };
    let files = [(0, 8 + 4 + 8), (1, 8 + 4)].map(file).to_vec();
    Manifest { arrays, format: Format::Safetensors, block_bytes: 4096, files }
}

const TEXT: &str = r#"{
  "version": 1,
  "shape": [6],
  "element": "f64",
  "layout": "2/3",
  "order": "Fortran",
  "format": "raw",
  "block_bytes": 4096,
  "made": {"seed":7,"axes":[0]},
  "files": [
    {"name":"rank_0000.npy","bytes":24,"blake3":"5bd17c5bb0e8df27cef2a0d2f9bb58f17dd54ec73fd2dca6a1d1efff9a1fb2bd","crc32c":"f4e02fb4"},
    {"name":"rank_0001.npy","bytes":24,"blake3":"b7d8a1c0e1ac59d8e2c67b1dbed08c25c91cb7ae8b9af3a9d5d4f52a5b4a2d3e","crc32c":"01234567"}
  ],
  "checksum": ""#;

/// A text up to its checksum, and the right checksum.
fn sealed(text: &str) -> Vec<u8> {
    format!("{text}{}\"\n}}\n", Digest::of(text.as_bytes())).into_bytes()
}

#[test]
fn what_is_written_is_read() {
    for format in [Format::Npy, Format::Raw] {
        let manifest = small(format);
        let text = manifest.write().unwrap();
        assert_eq!(Manifest::read(&text).unwrap(), manifest);
        assert_eq!(Manifest::read(&text).unwrap().write().unwrap(), text);
    }
    let text = tensors().write().unwrap();
    assert_eq!(Manifest::read(&text).unwrap(), tensors());
    let text = String::from_utf8(text).unwrap();
    let line = r#"    {"name":"norm","shape":[4],"element":"f8_e4m3","layout":"(*) on 2","order":"C"},"#;
    assert_eq!((text.lines().nth(1), text.lines().nth(6)), (Some(r#"  "version": 2,"#), Some(line)));
    assert_eq!(tensors().ranks().unwrap(), [(0, 20), (1, 12)]);
}

#[test]
fn tensors_must_fit_together() {
    type Change = fn(&mut Manifest);
    let changes: [(&str, Change); 14] = [
        ("has no arrays", |manifest| manifest.arrays.clear()),
        ("the tensor 'up' twice", |manifest| manifest.arrays[1].name = "up".into()),
        ("one called __metadata__", |manifest| manifest.arrays[1].name = METADATA.into()),
        ("'norm' is in Fortran order", |manifest| manifest.arrays[1].order = MemoryOrder::ColMajor),
        ("c128", |manifest| manifest.arrays[1].element = "c128".parse().unwrap()),
        ("lists 2 files, but its layout of the tensor 'norm' has 3 ranks", |manifest| {
            manifest.arrays[1].layout = "(*) on 3".parse().unwrap();
        }),
        ("lists 2 files, but its layouts have 3 ranks", |manifest| {
            manifest.arrays[1].layout = "(*) on 2 ranks=1..3".parse().unwrap();
        }),
        ("lists 1 file,", |manifest| manifest.files.truncate(1)),
        ("its part has 22, and a header is short", |manifest| {
            manifest.arrays[1].shape = vec![6];
            manifest.files[0].bytes = 30;
        }),
        ("its part has 20", |manifest| manifest.files[0].bytes += MAX_HEADER_BYTES),
        ("dimension", |manifest| manifest.arrays[0].shape = vec![8]),
        ("an order of all", |manifest| manifest.arrays[0].made = Some(Made { seed: 0, axes: vec![0] })),
        ("must have one array, without a name", |manifest| manifest.format = Format::Npy),
        ("2^62", |manifest| manifest.arrays[1].shape = vec![1 << 62, 2]),
    ];
    tensors().write().unwrap();
    for (expected, change) in changes {
        let mut manifest = tensors();
        change(&mut manifest);
        let said = manifest.write().unwrap_err().to_string();
        assert!(
            said.contains(expected) || expected == "2^62" && said.contains("dimension"),
            "{expected}: {said}"
        );
        if expected != "must have one array, without a name" {
            // Nor is it read.
            let said = Manifest::read(&text::write(&manifest).unwrap()).unwrap_err().to_string();
            assert!(said.len() < 600, "{said}");
        }
    }
    // The versions have a form each.
    let text = String::from_utf8(tensors().write().unwrap()).unwrap();
    let text = text.split_once("\n  \"checksum\": \"").unwrap().0.to_string() + "\n  \"checksum\": \"";
    for (from, to, expected) in [
        ("\"version\": 2", "\"version\": 1", "cannot be read"),
        ("\"version\": 2", "\"version\": 3", "take a newer one"),
        ("\"safetensors\"", "\"npy\"", "version 2 and the format npy"),
        ("\"name\":\"up\"", "\"name\":\"up\",\"name\":\"up\"", "duplicate field"),
        ("\"name\":\"up\",", "", "missing field"),
    ] {
        assert!(text.contains(from), "{from}");
        let said = Manifest::read(&sealed(&text.replacen(from, to, 1))).unwrap_err().to_string();
        assert!(said.contains(expected), "{from} as {to}: {said}");
    }
    let said = Manifest::read(&sealed(&TEXT.replace("\"raw\"", "\"safetensors\""))).unwrap_err().to_string();
    assert!(said.contains("version 1 and the format safetensors"), "{said}");
}

/// Thousands of tensors that claim all files each: refused before all their parts are listed.
#[test]
fn parts_without_number_are_refused() {
    let mut manifest = tensors();
    manifest.files = (0..30_000)
        .map(|rank| ShardFile { name: rank.to_string(), bytes: 300, blake3: None, crc32c: Vec::new() })
        .collect();
    let many = |number| ManifestArray {
        name: format!("t{number}"),
        layout: "(*) on 30000".parse().unwrap(),
        ..manifest.arrays[1].clone()
    };
    manifest.arrays = (0..2000).map(many).collect();
    assert_eq!(manifest.write().unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn a_text_by_value() {
    let text = sealed(TEXT);
    let manifest = Manifest::read(&text).unwrap();
    let [array] = &manifest.arrays[..] else { panic!("{manifest:?}") };
    assert_eq!((&array.shape[..], array.layout.to_string().as_str()), (&[6][..], "2/3"));
    assert_eq!(
        (array.order, manifest.format, manifest.block_bytes),
        (MemoryOrder::ColMajor, Format::Raw, 4096)
    );
    assert_eq!(array.made, Some(Made { seed: 7, axes: vec![0] }));
    assert_eq!(manifest.files[1].crc32c, [0x0123_4567]);
    assert_eq!(manifest.files[0].blake3.unwrap().as_bytes()[..2], [0x5b, 0xd1]);
    assert_eq!(manifest.write().unwrap(), text);
    assert_eq!(Manifest::checksum(&text).unwrap(), Digest::of(TEXT.as_bytes()));
    assert_eq!(array.layout().unwrap().to_string(), "2/3 of 6");
}

/// Every flip of one bit is found, in spaces, digits and the checksum alike.
#[test]
fn flips_of_single_bits_are_found() {
    for text in [small(Format::Npy).write().unwrap(), sealed(TEXT), tensors().write().unwrap()] {
        for bit in 0..8 * text.len() {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::read(&flipped).is_err(), "bit {bit}");
            assert!(Manifest::checksum(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..text.len() {
            assert!(Manifest::read(&text[..length]).is_err(), "{length} bytes");
        }
        for more in [&b" "[..], b"\n", b"\0", &text] {
            assert!(Manifest::read(&[&text[..], more].concat()).is_err());
            assert!(Manifest::read(&[more, &text[..]].concat()).is_err());
        }
    }
}

#[test]
fn without_a_right_checksum_nothing_is_read() {
    let zeros = format!("{TEXT}{}\"\n}}\n", "0".repeat(64));
    let upper = format!("{TEXT}{}\"\n}}\n", Digest::of(TEXT.as_bytes()).to_string().to_uppercase());
    let missing = TEXT.replace(",\n  \"checksum\": \"", "\n}\n");
    for text in ["", "{}", "[]", "null", "\u{feff}{}", &zeros, &upper, &missing] {
        let error = Manifest::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }
    let long = vec![b' '; usize::try_from(Manifest::MAX_BYTES).unwrap() + 1];
    assert_eq!(Manifest::read(&long).unwrap_err().kind(), ErrorKind::TooLarge);
    for version in ["3", "18446744073709551615"] {
        let newer = TEXT.replace("\"version\": 1", &format!("\"version\": {version}"));
        let error = Manifest::read(&sealed(&newer)).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(version), "{error}");
    }
}

/// What a stranger may write: a text that is replaced by another, and what is said of it.
#[test]
fn hostile_manifests_are_refused() {
    let second = TEXT.lines().nth(11).unwrap();
    let long_name = "n".repeat(256);
    let huge_string = "x".repeat(1 << 20);
    let deep = "[".repeat(100_000);
    let deep_objects = r#"{"a":"#.repeat(100_000);
    let long_shape = format!("[{}6]", "1,".repeat(100_000));
    let all_ranks = format!("2/3 ranks={}0\"", "0,".repeat(100_000));
    let [long_layout, huge_layout] = [1 << 20, 5 << 20].map(|length| format!("{}\"", "x".repeat(length)));
    let name = "rank_0001.npy";
    let cases: Vec<(&str, &str, &str)> = vec![
        // Ways out of the directory.
        (name, "../x", "a slash"),
        (name, "/etc/passwd", "a slash"),
        (name, "a/b", "a slash"),
        (name, "./x", "a slash"),
        (name, "..\\\\x", "a slash"),
        (name, "..", "a dot"),
        (name, ".", "a dot"),
        (name, ".hidden", "a dot"),
        (name, "", "is empty"),
        (name, "a\\u0000b", "a control character"),
        (name, "a\\nb", "a control character"),
        (name, "\\u001b[2J", "a control character"),
        (name, "\\u002e\\u002e\\u002fx", "a slash"),
        (name, "reshard.json", "the manifest"),
        (name, "RESHARD.json", "the manifest"),
        (name, &long_name, "longer than 255"),
        (name, &huge_string, "longer than 255"),
        (name, "rank_0000.npy", "twice"),
        (name, "rank_\\u0030000.npy", "twice"),
        (name, "\\ud800", "cannot be read"),
        // Numbers of files.
        (
            "    {\"name\":\"rank_0000",
            "    {\"name\":\"rank_0000.npy\",\"bytes\":0,\"blake3\":\"00\",\"crc32c\":\"\"},\n{\"name\":\"rank_0000",
            "cannot be read",
        ),
        (second, "", "cannot be read"),
        ("2/3\"", "3/2\"", "has 3 ranks"),
        ("2/3\"", "1/6\"", "has 1 rank;"),
        ("2/3\"", "4611686018427387904/1\"", "4611686018427387904 ranks"),
        ("2/3\"", "9223372036854775808/1\"", "2^62"),
        ("2/3\"", "2x1/3x1\"", "dimension"),
        ("2/3\"", "2/0\"", "0"),
        ("2/3\"", "\"", "the layout of the manifest cannot be read"),
        ("2/3\"", "2/3 of 6\"", "the shape of the array is not part"),
        ("2/3\"", "2/3 memory=row\"", "memory"),
        ("2/3\"", &long_layout, "character"),
        ("2/3\"", &huge_layout, "a layout of"),
        ("2/3\"", &all_ranks, "ranks"),
        // Lengths.
        ("\"bytes\":24", "\"bytes\":25", "its part has 24"),
        ("\"bytes\":24", "\"bytes\":23", "its part has 24"),
        ("\"bytes\":24", "\"bytes\":0", "its part has 24"),
        ("\"bytes\":24", "\"bytes\":18446744073709551615", "its part has 24"),
        ("\"bytes\":24", "\"bytes\":18446744073709551616", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":-24", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":24.0", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":2.4e1", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":\"24\"", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":NaN", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":1e400", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":024", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":null", "cannot be read"),
        ("\"bytes\":24", "\"bytes\":24,\"bytes\":24", "duplicate field"),
        ("\"bytes\":24", "\"bytes\":24,\"offset\":0", "unknown field"),
        ("\"bytes\":24,", "", "missing field"),
        ("\"format\": \"raw\"", "\"format\": \"npy\"", "a header is short"),
        ("\"format\": \"raw\"", "\"format\": \"Raw\"", "unknown variant"),
        ("\"format\": \"raw\"", "\"format\": \"pickle\"", "unknown variant"),
        // Shapes and types.
        ("[6]", "[7]", "its part has"),
        ("[6]", "[]", "dimension"),
        ("[6]", "[6,1]", "dimension"),
        ("[6]", "[4611686018427387905]", "2^62"),
        ("[6]", "[4611686018427387904]", "2^62"),
        ("[6]", "[18446744073709551616]", "cannot be read"),
        ("[6]", "[-6]", "cannot be read"),
        ("[6]", "[6.5]", "cannot be read"),
        ("[6]", "[Infinity]", "cannot be read"),
        ("[6]", "6", "cannot be read"),
        ("[6]", "{\"0\":6}", "cannot be read"),
        ("[6]", &long_shape, "cannot be read"),
        ("[6]", &deep, "cannot be read"),
        ("[6]", &deep_objects, "cannot be read"),
        ("\"f64\"", "\"f32\"", "its part has 12"),
        ("\"f64\"", "\"object\"", "cannot be read"),
        ("\"f64\"", "\"bytes(0)\"", "cannot be read"),
        ("\"f64\"", "8", "cannot be read"),
        ("\"Fortran\"", "\"fortran\"", "unknown variant"),
        // Checksums.
        ("f4e02fb4", "f4e02fb", "eight digits"),
        ("f4e02fb4", "F4E02FB4", "lower-case"),
        ("f4e02fb4", "", "has 0 CRCs"),
        ("f4e02fb4", "f4e02fb4f4e02fb4", "has 2 CRCs"),
        ("f4e02fb4", "f4e02fg4", "lower-case"),
        ("f4e02fb4", "\u{e9}4e02fb", "lower-case"),
        ("5bd17c5b", "5BD17C5B", "64 lower-case"),
        ("5bd17c5b", "", "64 lower-case"),
        ("\"block_bytes\": 4096", "\"block_bytes\": 0", "a power of two"),
        ("\"block_bytes\": 4096", "\"block_bytes\": 4097", "a power of two"),
        ("\"block_bytes\": 4096", "\"block_bytes\": 2048", "a power of two"),
        ("\"block_bytes\": 4096", "\"block_bytes\": 2147483648", "a power of two"),
        ("\"block_bytes\": 4096", "\"block_bytes\": 9223372036854775808", "a power of two"),
        // Made sets.
        ("\"axes\":[0]", "\"axes\":[1]", "an order of all"),
        ("\"axes\":[0]", "\"axes\":[]", "an order of all"),
        ("\"axes\":[0]", "\"axes\":[0,0]", "an order of all"),
        ("\"axes\":[0]", "\"axes\":[0],\"code\":\"x\"", "unknown field"),
        ("\"seed\":7", "\"seed\":-7", "cannot be read"),
        // The text as a whole.
        ("\"version\": 1,", "\"version\": 0,", "version 0"),
        ("\"version\": 1,", "\"version\": 1,\n  \"version\": 1,", "duplicate field"),
        ("\"version\": 1,", "\"version\": 1.0,", "cannot be read"),
        ("\"version\": 1,", "\"version\": 01,", "cannot be read"),
        ("\"version\": 1,", "\"version\": -1,", "begin"),
        ("\"version\": 1,", "\"version\": 1e0,", "cannot be read"),
        ("{\n  \"version\"", "{\"version\"", "begin"),
        ("\"version\": 1,", "\"version\": 1,\n  \"__proto__\": {},", "unknown field"),
        ("\"shape\": [6],", "\"shape\": [6],\n  \"shape\": [6],", "duplicate field"),
        ("\"shape\": [6],", "\"shape\": [6],\n  \"checksum\": \"\",", "64 lower-case"),
        ("\"shape\": [6],\n", "", "missing field"),
        ("\"shape\": [6],", "\"shape\": [6],,", "cannot be read"),
        ("\"shape\": [6],", "/* */ \"shape\": [6],", "cannot be read"),
        ("\"shape\": [6],", "\0\"shape\": [6],", "cannot be read"),
        ("  ],\n", "  ,],\n", "cannot be read"),
        ("  ],\n", "  ]\n}\n,\n", "cannot be read"),
    ];
    assert!(cases.len() >= 60);
    assert!(Manifest::read(&sealed(TEXT)).is_ok());
    let mut other = Vec::new();
    for (from, to, expected) in cases {
        assert!(TEXT.contains(from), "{from}");
        let error = Manifest::read(&sealed(&TEXT.replacen(from, to, 1))).unwrap_err().to_string();
        if !error.contains(expected) {
            other.push(format!("{from} as {}: {error}", shown(to)));
        }
        assert!(error.len() < 600 && !error.contains(['\n', '\u{1b}', '\0']), "{error}");
    }
    assert!(other.is_empty(), "{other:#?}");
    let not_text = [TEXT.as_bytes(), &[0xff]].concat();
    let mut not_text = [&not_text[..], Digest::of(&not_text).to_string().as_bytes(), b"\"\n}\n"].concat();
    assert!(Manifest::read(&not_text).is_err());
    not_text.clear();
    assert!(Manifest::read(&not_text).is_err());
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let changes: [fn(&mut Manifest); 6] = [
        |manifest| manifest.files[0].name = "../x".into(),
        |manifest| manifest.files.truncate(1),
        |manifest| manifest.files[1].bytes += 1,
        |manifest| manifest.block_bytes = 1000,
        |manifest| manifest.arrays[0].shape = vec![5],
        |manifest| manifest.arrays[0].made = Some(Made { seed: 0, axes: vec![3] }),
    ];
    for change in changes {
        let mut manifest = small(Format::Raw);
        change(&mut manifest);
        assert!(manifest.write().is_err());
    }
}

#[test]
fn headers_must_fit_their_part() {
    let mut manifest = small(Format::Npy);
    let npy = |element: &str, fortran, shape: &[u64]| {
        Npy::new(element.parse().unwrap(), fortran, shape.to_vec()).unwrap()
    };
    let check = |manifest: &Manifest, rank: usize, npy: &Npy| {
        let array = &manifest.arrays[0];
        array.check_npy(&array.layout().unwrap(), rank as u64, &manifest.files[rank], npy)
    };
    check(&manifest, 0, &npy("f64", true, &[3])).unwrap();
    // One dimension has one order.
    check(&manifest, 1, &npy("f64", false, &[3])).unwrap();
    for (other, expected) in [(npy("f64", true, &[4]), "shape 4"), (npy("i64", true, &[3]), "type i64")] {
        let error = check(&manifest, 0, &other).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("rank_0000.npy"), "{error}");
    }
    manifest.files[0].bytes += 1;
    let said = check(&manifest, 0, &npy("f64", true, &[3])).unwrap_err().to_string();
    assert!(said.contains("length"), "{said}");
    manifest.arrays[0].element = "bf16".parse().unwrap();
    manifest.files[0].bytes = 128 + 6;
    check(&manifest, 0, &npy("bytes(2)", true, &[3])).unwrap();
    let mut square = small(Format::Npy);
    square.arrays[0].shape = vec![4, 6];
    square.arrays[0].layout = "1x2/4x3".parse().unwrap();
    let error = check(&square, 0, &npy("f64", false, &[4, 3])).unwrap_err().to_string();
    assert!(error.contains("the order C") && error.contains("Fortran"), "{error}");
}

#[test]
fn blocks_keep_the_manifest_short() {
    for (bytes, block) in [(0, 1 << 20), (1 << 41, 1 << 20), ((1 << 41) + 1, 1 << 21), (u64::MAX, 1 << 30)] {
        assert_eq!(Manifest::block_bytes_for(bytes), block);
    }
}

/// Any manifest that fits together.
fn any_manifest() -> impl Strategy<Value = Manifest> {
    let parts = (1_u64..4, 1_u64..4, 1_u64..5, 1_u64..5, (0_u64..40, 0_u64..40));
    let words = (0_usize..17, any::<bool>(), any::<bool>(), 12_u32..14, any::<Option<u64>>(), any::<u32>());
    (parts, words).prop_map(|((p, q, r, s, (m, n)), (at, row, npy, block, seed, crc))| {
        let array = ManifestArray {
            name: String::new(),
            shape: vec![m, n],
            element: ElementType::named().nth(at).unwrap(),
            layout: format!("{p}x{q}/{r}x{s}").parse().unwrap(),
            order: if row { MemoryOrder::RowMajor } else { MemoryOrder::ColMajor },
            made: seed.map(|seed| Made { seed, axes: vec![1, 0] }),
        };
        let (distribution, element) = (array.distribution().unwrap(), array.element);
        let mut manifest = Manifest {
            arrays: vec![array],
            format: if npy { Format::Npy } else { Format::Raw },
            block_bytes: 1 << block,
            files: Vec::new(),
        };
        for rank in 0..p * q {
            let data = distribution.local_elems(rank).unwrap() * element.bytes();
            let bytes = data + if npy { 128 } else { 0 };
            let crcs = bytes.div_ceil(manifest.block_bytes);
            manifest.files.push(ShardFile {
                name: format!("é \"{rank}\".bin"),
                bytes,
                blake3: Some(Digest::of(&crc.to_le_bytes())),
                crc32c: (0..crcs).map(|at| crc.wrapping_mul(at as u32)).collect(),
            });
        }
        manifest
    })
}

proptest! {
    #[test]
    fn any_manifest_is_read_as_it_was_written(manifest in any_manifest()) {
        let text = manifest.write().unwrap();
        let read = Manifest::read(&text).unwrap();
        prop_assert_eq!(&read, &manifest);
        prop_assert_eq!(read.write().unwrap(), text);
    }

    #[test]
    fn no_text_panics(at in 0..TEXT.len(), bytes in prop::collection::vec(any::<u8>(), 0..20), removed in 0_usize..20) {
        let end = (at + removed).min(TEXT.len());
        let changed = [&TEXT.as_bytes()[..at], &bytes, &TEXT.as_bytes()[end..]].concat();
        let digits = Digest::of(&changed).to_string();
        let _ = Manifest::read(&[&changed[..], digits.as_bytes(), b"\"\n}\n"].concat());
    }
}
