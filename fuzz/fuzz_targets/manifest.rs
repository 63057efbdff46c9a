//! Any text as a manifest with a right checksum, which anybody can work out: it is refused, or it fits together and is written and read back equal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reshard_shards::{Digest, Manifest, check_name};

fuzz_target!(|before: &[u8]| {
    let _ = Manifest::read(before);
    let digits = Digest::of(before).to_string();
    let sealed = [before, digits.as_bytes(), b"\"\n}\n"].concat();
    let Ok(manifest) = Manifest::read(&sealed) else { return };
    assert_eq!(Manifest::checksum(&sealed).unwrap(), Digest::of(before));
    let written = manifest.write().unwrap();
    assert_eq!(Manifest::read(&written).unwrap(), manifest);
    assert_eq!(Manifest::read(&written).unwrap().write().unwrap(), written);
    let ranks = manifest.ranks().unwrap();
    assert_eq!(ranks.len(), manifest.files.len());
    assert!(manifest.files.len() <= sealed.len());
    for (file, (_, data)) in manifest.files.iter().zip(ranks) {
        check_name(&file.name).unwrap();
        // The longest header is one of safetensors.
        assert!((data..=data + 8 + 100_000_000).contains(&file.bytes));
        assert_eq!(file.crc32c.len() as u64, file.bytes.div_ceil(manifest.block_bytes));
    }
});
