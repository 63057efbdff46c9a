//! Any bytes as the beginning of a safetensors file: they are refused, or the tensors fill the file exactly and are written and read back
//! equal. Where only the length of the file was wrong, the one that the error names must be right.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reshard_shards::{Tensor, Tensors};

/// The tensors, each with its place counted from the first one on.
fn placed(tensors: &Tensors) -> Vec<Tensor> {
    let start = tensors.data_start();
    tensors.tensors().iter().map(|one| Tensor { start: one.start - start, ..one.clone() }).collect()
}

fuzz_target!(|input: (u64, &[u8])| {
    // Most headers would be refused for the length in front, which says nothing about the rest of the code.
    let (file_bytes, text) = input;
    let _ = Tensors::read(text, file_bytes);
    let first = [&(text.len() as u64).to_le_bytes()[..], text].concat();
    let (tensors, file_bytes) = match Tensors::read(&first, file_bytes.max(first.len() as u64)) {
        Ok(tensors) => (tensors, file_bytes.max(first.len() as u64)),
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.len() < 400 && !sentence.contains('\n'), "{sentence}");
            let Some((_, rest)) = sentence.split_once("header and tensors make ") else { return };
            let right = rest.split(';').next().unwrap().parse().unwrap();
            (Tensors::read(&first, right).unwrap(), right)
        }
    };
    assert_eq!(tensors.file_bytes(), file_bytes);
    let mut end = tensors.data_start();
    for tensor in tensors.tensors() {
        assert_eq!(tensor.start, end);
        let elems = tensor.shape.iter().fold(1_u128, |elems, &length| elems.saturating_mul(length.into()));
        assert_eq!(u128::from(tensor.bytes), elems * u128::from(tensor.element.bytes()));
        end += tensor.bytes;
    }
    assert_eq!(end, file_bytes);
    let written = tensors.write().unwrap();
    let data_bytes = file_bytes - tensors.data_start();
    let again = Tensors::read(&written, written.len() as u64 + data_bytes).unwrap();
    assert_eq!((placed(&again), again.metadata()), (placed(&tensors), tensors.metadata()));
    assert_eq!(again.write().unwrap(), written);
});
