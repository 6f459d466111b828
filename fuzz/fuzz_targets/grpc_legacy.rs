//! `gswarm_fuzz::grpc_legacy` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::grpc_legacy(bytes));
