//! `cargo fuzz run hello`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::hello(bytes));
