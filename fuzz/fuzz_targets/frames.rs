//! Any frames and texts to both sides of a coupling: nothing panics, nothing is kept that was not asked for.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reshard_couple::fuzzing::frames(bytes));
