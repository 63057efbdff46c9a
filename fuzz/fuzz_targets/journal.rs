//! Any bytes as the journals of an interrupted run: they are refused in one line, or every box that they have was written, is counted once, and
//! is printed and read back equal; a journal that was cut off says nothing else.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reshard_shards::fuzzing::journal(bytes));
