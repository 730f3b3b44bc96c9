//! `cargo fuzz run audit`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::audit(bytes));
