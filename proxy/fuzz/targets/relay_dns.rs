//! `cargo fuzz run relay_dns`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::relay_dns(bytes));
