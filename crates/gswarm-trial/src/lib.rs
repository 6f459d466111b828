//! How long tests of faults go on, and what they report.
//!
//! A test that injects faults is written once and runs in two lengths: the short one with every
//! `make test`, the long one under `make torture` (`GSWARM_TRIAL=long`). What it did it tells in a
//! [`Trial`], which `make torture` adds up: a line of JSON in the file that `GSWARM_TRIAL_REPORT` names.
//! Only tests use this crate.

use std::fs::OpenOptions;
use std::io::Write;

use serde::Serialize;

const LENGTH: &str = "GSWARM_TRIAL";
const REPORT: &str = "GSWARM_TRIAL_REPORT";

/// The first number in the short form, the second in the long one.
pub fn rounds(short: u64, long: u64) -> u64 {
    if is_long() { long } else { short }
}

/// True under `make torture`.
pub fn is_long() -> bool {
    asked(LENGTH).is_some_and(|length| length == "long")
}

#[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a test did. Dropping it, also in a failing test, reports it.
#[derive(Debug, Serialize)]
pub struct Trial {
    /// What was tried, as a sentence for the table of `make torture`.
    pub what: &'static str,
    /// Times that the whole thing was gone through.
    pub rounds: u64,
    /// Different seeds among them.
    pub seeds: u64,
    /// Kills, cuts, power losses, failed calls, flipped bits.
    pub faults: u64,
    /// Records whose fate was checked.
    pub records: u64,
    /// Records that were promised and are neither there nor in a named gap, or are there twice.
    pub lost: u64,
    /// False when the test failed.
    pub passed: bool,
}

impl Trial {
    pub fn new(what: &'static str) -> Self {
        Self { what, rounds: 0, seeds: 0, faults: 0, records: 0, lost: 0, passed: true }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.passed = !std::thread::panicking();
        let Ok(mut line) = serde_json::to_string(self) else { return };
        line.push('\n');
        if let Some(path) = asked(REPORT)
            && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
        {
            // One write: tests of several processes share the file.
            let _lost_report = file.write_all(line.as_bytes());
        }
    }
}
