//! `cargo fuzz run strip`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::strip(bytes));
