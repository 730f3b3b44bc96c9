//! `cargo fuzz run dns`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::dns(bytes));
