//! `cargo fuzz run proxmox`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis_fuzz::proxmox(bytes));
