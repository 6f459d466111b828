//! `gswarm_fuzz::replay_import` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::replay_import(bytes));
