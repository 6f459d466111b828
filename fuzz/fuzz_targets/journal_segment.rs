//! `gswarm_fuzz::journal_segment` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::journal_segment(bytes));
