//! `cargo fuzz run graphql`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::graphql(bytes));
