//! `cargo fuzz run usage`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::usage(bytes));
