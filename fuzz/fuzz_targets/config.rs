//! `gswarm_fuzz::config` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::config(bytes));
