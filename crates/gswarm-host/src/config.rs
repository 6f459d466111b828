//! What a host is told before it starts.

use std::path::PathBuf;

use gswarm_store::journal::SegmentLimits;
use gswarm_types::{Micros, Period};

use crate::access::AccessConfig;

/// Everything a host is told.
#[derive(Debug, Clone)]
pub struct HostConfig {
    pub version: String,
    pub data_dir: PathBuf,
    /// Where finished sessions are written.
    pub output_dir: PathBuf,
    /// Accepts simulated devices, and only those.
    pub simulated: bool,
    pub settings: Settings,
    pub retention: RetentionConfig,
    /// When a segment of the journal is closed.
    pub segments: SegmentLimits,
    pub access: AccessConfig,
    /// Free bytes that ingest leaves on the disk.
    pub disk_reserve_bytes: u64,
    /// Shown to people; the listeners themselves are passed to `Host::serve`.
    pub addresses: Vec<String>,
}

/// What can be changed while the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub base_period: Period,
    pub session_period: Period,
    pub bandwidth: bool,
    pub nvlink: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            base_period: Period::BASE,
            session_period: Period::SESSION,
            bandwidth: false,
            nvlink: false,
        }
    }
}

/// How much of the recording is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionConfig {
    pub keep: Micros,
    pub budget_bytes: u64,
}

impl RetentionConfig {
    /// 24 hours.
    pub const KEEP: Micros = Micros::from_secs(86_400);
    /// 10 GB, or less on a small disk.
    pub const BUDGET_BYTES_MAX: u64 = 10_000_000_000;
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { keep: Self::KEEP, budget_bytes: Self::BUDGET_BYTES_MAX }
    }
}
