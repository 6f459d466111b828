//! `gswarm_fuzz::http_bodies` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::http_bodies(bytes));
