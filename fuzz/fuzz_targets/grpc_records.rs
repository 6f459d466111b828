//! `gswarm_fuzz::grpc_records` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gswarm_fuzz::grpc_records(bytes));
