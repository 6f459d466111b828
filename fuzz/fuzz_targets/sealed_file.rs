//! `gswarm_fuzz::sealed_file` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::sealed_file(bytes));
