//! `gswarm_fuzz::checkpoint_and_small_files` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::checkpoint_and_small_files(bytes));
