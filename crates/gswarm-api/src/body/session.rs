//! Sessions: named windows over the recording.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /api/v1/sessions`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// Letters, digits, `.`, `_`, `-`; made from the time when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Milliseconds between samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freq: Option<i64>,
    /// Begin in the past: `90s`, `10m`, `2h` or RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Stop by itself after this span.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Node names; all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    /// GPU indices on each node; all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<u32>>,
    /// Only GPUs that a process of this user holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only GPUs that a process of this job holds: 1 to 64 letters, digits, `.`, `_`, `-`. With a
    /// user, one process must be of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_bandwidth: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_nvlink: Option<bool>,
    /// Catalogue names to add to each frame.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub report_metrics: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The same id again changes nothing and gives the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub request_id: Option<String>,
}

/// `POST /api/v1/sessions/capture`: a session that is already over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `10m` (ago) or RFC 3339.
    pub from: String,
    /// `10m` (ago) or RFC 3339; now when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freq: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<u32>>,
    /// Only GPUs that a process of this user held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only GPUs that a process of this job held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub request_id: Option<String>,
}

/// `POST /api/v1/sessions/{key}/stop`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub request_id: Option<String>,
}

/// `POST /api/v1/sessions/stop`: all sessions of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopAllRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub request_id: Option<String>,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionBody {
    pub id: String,
    pub name: String,
    pub active: bool,
    pub created: String,
    pub from: String,
    pub until: Option<String>,
    pub stop_at: Option<String>,
    /// The oldest time the recording still covers within the window.
    pub covered_from: Option<String>,
    pub freq: i64,
    pub enable_bandwidth: bool,
    pub enable_nvlink: bool,
    pub report_metrics: Vec<String>,
    pub nodes: Option<Vec<String>>,
    pub gpus: Option<Vec<u32>>,
    pub user: Option<String>,
    pub job: Option<String>,
    pub owner: String,
    pub tags: Vec<String>,
    pub note: Option<String>,
    pub revision: u32,
    /// Nodes whose records of the window have not all arrived.
    pub incomplete_nodes: Vec<String>,
    /// Where the host wrote the JSON; `null` while it is not written.
    pub output_file: Option<String>,
    /// Frames of the window so far.
    pub frame_count: u64,
    pub simulated: bool,
}

/// `GET /api/v1/sessions`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionsBody {
    pub sessions: Vec<SessionBody>,
}

/// One session that was stopped, and its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoppedBody {
    pub session: SessionBody,
    /// Why there is no file, or no longer one, with the command that writes one.
    pub export_note: Option<String>,
}

/// `POST /api/v1/sessions/stop`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StopBody {
    pub stopped: Vec<StoppedBody>,
}
