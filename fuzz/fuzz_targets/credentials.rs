//! `gswarm_fuzz::credentials` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::credentials(bytes));
