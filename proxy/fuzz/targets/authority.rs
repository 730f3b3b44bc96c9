//! `cargo fuzz run authority`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::authority(bytes));
