//! What every parser of outside bytes promises, one function each.
//!
//! A function takes any bytes, hands them to the parser where they would arrive, and panics when a
//! promise is broken. `fuzz/` feeds them from libFuzzer; the test of this crate feeds them the
//! committed seeds, so that every input that once broke something is tried with `make test`.

#![expect(clippy::expect_used, clippy::panic, reason = "a broken promise ends the run")]

mod files;
mod store;
mod host;
mod grpc;
mod segments;
mod sealed;
mod small_files;
mod config;
mod names;
mod replay;
mod http_bodies;
mod credentials;

pub use config::config;
pub use credentials::credentials;
pub use grpc::{grpc_legacy, grpc_records};
pub use http_bodies::http_bodies;
pub use names::names;
pub use replay::replay_import;
pub use sealed::sealed_file;
pub use segments::{journal_segment, spool_segment};
pub use small_files::checkpoint_and_small_files;

/// A promise, kept or broken by panicking.
pub type Target = fn(&[u8]);

/// Every target by the name of its folder in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("grpc_records", grpc_records),
    ("grpc_legacy", grpc_legacy),
    ("journal_segment", journal_segment),
    ("spool_segment", spool_segment),
    ("sealed_file", sealed_file),
    ("checkpoint_and_small_files", checkpoint_and_small_files),
    ("config", config),
    ("names", names),
    ("replay_import", replay_import),
    ("http_bodies", http_bodies),
    ("credentials", credentials),
];
