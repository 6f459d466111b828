//! State of the host as a whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /api/v1/status`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusBody {
    pub version: String,
    pub storage_id: String,
    /// True when the host accepts simulated devices only.
    pub simulated: bool,
    /// True when everybody on the network may use the host: no encryption, no logins.
    #[serde(default)]
    pub insecure: bool,
    pub started_at: String,
    pub now: String,
    /// Addresses that answer, such as `127.0.0.1:8090`.
    pub addresses: Vec<String>,
    pub data_dir: String,
    pub output_dir: String,
    pub settings: SettingsBody,
    pub nodes_total: u32,
    pub nodes_healthy: u32,
    pub gpus_total: u32,
    pub sessions_active: u32,
    pub health: HealthStatus,
    pub ingest: IngestBody,
    pub store: StoreBody,
}

/// What can be changed while the host runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingsBody {
    /// Milliseconds between samples when no session asks for more.
    pub base_period_ms: i64,
    /// Milliseconds between samples of a session that does not say.
    pub session_period_ms: i64,
    pub enable_bandwidth: bool,
    pub enable_nvlink: bool,
}

/// `PATCH /api/v1/settings`: what is left out stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_period_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_period_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_bandwidth: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_nvlink: Option<bool>,
}

/// What came in since the host started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngestBody {
    pub records_stored: u64,
    pub records_duplicate: u64,
    pub records_rejected: u64,
    pub commits: u64,
    pub commit_failures: u64,
}

/// What is on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoreBody {
    pub segments: u64,
    pub segments_sealed: u64,
    pub bytes: u64,
    pub budget_bytes: u64,
    pub retention_hours: u64,
    /// Time of the oldest record that is kept; `null` when there is none.
    pub oldest: Option<String>,
    /// Growth at the present rate; `null` until it has been measured.
    pub bytes_per_day: Option<u64>,
    pub quarantined_files: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    Ok,
    Degraded,
    Unavailable,
}

/// `GET /health`, `GET /api/v1/health`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthBody {
    pub status: HealthStatus,
    pub version: String,
    pub checks: Vec<CheckBody>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckBody {
    pub name: String,
    pub status: HealthStatus,
    pub message: String,
}

/// `GET /api/v1/retention`: what retention would remove now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetentionBody {
    pub budget_bytes: u64,
    pub bytes: u64,
    pub pinned_bytes: u64,
    pub remove: Vec<RetentionSegment>,
    /// Segments of which only what sessions keep would stay.
    pub trim: Vec<RetentionSegment>,
}

/// One segment of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetentionSegment {
    pub segment: u64,
    pub bytes: u64,
    pub first: Option<String>,
    pub last: Option<String>,
    pub reason: String,
}

/// `POST /api/v1/host/stop`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoppingBody {
    pub stopping: bool,
}
