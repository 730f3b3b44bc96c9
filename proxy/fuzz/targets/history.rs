//! `cargo fuzz run history`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::history(bytes));
