//! Any bytes as the list of expected tensors: it is refused in one line, or names, types and shapes are those of the JSON.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reshard_shards::fuzzing::expected(bytes));
