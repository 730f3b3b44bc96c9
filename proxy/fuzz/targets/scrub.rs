//! `cargo fuzz run scrub`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::scrub(bytes));
