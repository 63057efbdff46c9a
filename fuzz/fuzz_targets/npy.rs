//! Any bytes as the beginning of a `.npy` file: they are refused, or they say exactly how long the file is and are written and read back
//! equal. Where only the length of the file was wrong, the one that the error names must be right.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reshard_shards::{Npy, same_in_npy};

fuzz_target!(|input: (u64, &[u8])| {
    let (file_bytes, first) = input;
    let npy = match Npy::read(first, file_bytes) {
        Ok(npy) => npy,
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.len() < 400 && !sentence.contains('\n'), "{sentence}");
            let Some((_, rest)) = sentence.split_once(" make ") else { return };
            let right = rest.split(';').next().unwrap().parse().unwrap();
            Npy::read(first, right).unwrap()
        }
    };
    assert_eq!(npy.file_bytes(), npy.data_start() + npy.data_bytes());
    assert!(npy.data_start() <= first.len() as u64 && npy.data_bytes() <= 1 << 62);
    let elems = npy.shape().iter().fold(1_u128, |elems, &length| elems.saturating_mul(length.into()));
    assert_eq!(u128::from(npy.data_bytes()), elems * u128::from(npy.element().bytes()));
    let written = npy.write();
    let again = Npy::read(&written, written.len() as u64 + npy.data_bytes()).unwrap();
    assert_eq!((again.shape(), again.order()), (npy.shape(), npy.order()));
    assert!(again.element() == npy.element() && same_in_npy(again.element(), npy.element()));
    assert_eq!(again.write(), written);
});
