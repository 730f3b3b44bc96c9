//! `cargo fuzz run receive_pack`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::receive_pack(bytes));
