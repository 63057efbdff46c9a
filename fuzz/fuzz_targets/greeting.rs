//! Any bytes as the greeting of a coupling: nobody is believed, nothing panics.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reshard_couple::fuzzing::greeting(bytes));
