//! `cargo fuzz run frames`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::frames(bytes));
