//! Any bytes as a meeting file, of either kind, or as a knock: they are refused in one line, or printed and read back equal, and a secret is at
//! least 16 bytes in hexadecimal digits.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reshard_couple::fuzzing::meeting(bytes));
