//! Nodes and their devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /api/v1/nodes`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodesBody {
    pub nodes: Vec<NodeBody>,
    /// Nodes that ask to be let in.
    #[serde(default)]
    pub waiting: Vec<super::WaitingBody>,
    /// Nodes that have a certificate and never delivered anything.
    #[serde(default)]
    pub silent_members: Vec<super::SilentBody>,
}

/// Whether a node delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeHealth {
    /// Data within the last 30 seconds.
    Healthy,
    /// Silent for more than 30 seconds.
    Unhealthy,
    /// Stopped cleanly.
    Stopped,
    /// Known from before this host started, not seen since.
    Unseen,
    /// Taken out of the cluster: what it recorded stays.
    Removed,
}

/// `GET /api/v1/nodes/{name}`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeBody {
    pub name: String,
    pub node_id: String,
    pub hostname: String,
    pub health: NodeHealth,
    pub connected: bool,
    pub agent_version: String,
    /// The old tool's protocol: numbered on receipt, exactly-once does not apply.
    pub legacy: bool,
    pub simulated: bool,
    /// It has a certificate of this host, and nobody without it can speak for it.
    #[serde(default)]
    pub member: bool,
    /// What the node permits its host to do.
    pub allow: Vec<String>,
    /// Seconds since the last data; `null` when none came since the host started.
    pub silent_seconds: Option<f64>,
    pub last_seen: Option<String>,
    /// Node clock minus host clock.
    pub clock_offset_us: Option<i64>,
    /// Half the round trip in which the offset was measured.
    pub clock_error_us: Option<i64>,
    pub period_ms: i64,
    /// Records on the node that the host does not have yet.
    pub spool_records: Option<u64>,
    pub records_stored: u64,
    /// Commands the node refused because its allow-list does not have them.
    pub commands_refused: u64,
    pub devices: Vec<DeviceBody>,
    pub processes: Vec<ProcessBody>,
    pub peer_links: Vec<PeerLinkBody>,
    pub gaps: Vec<GapBody>,
}

/// One device with its latest values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceBody {
    pub id: String,
    /// gpu, link, node, disk or nic.
    pub scope: String,
    pub index: u32,
    pub name: String,
    pub simulated: bool,
    /// Latest values by metric name, in the units of the catalogue.
    pub values: std::collections::BTreeMap<String, Option<f64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessBody {
    pub gpu_index: u32,
    pub pid: u32,
    pub name: Option<String>,
    pub user: Option<String>,
    /// The scheduler's job that the process belongs to; `null` outside of jobs.
    pub job: Option<String>,
    pub memory_bytes: Option<u64>,
    /// compute or graphics.
    pub kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerLinkBody {
    pub gpu_index: u32,
    /// `null` when the other end is an NVSwitch.
    pub remote_gpu_index: Option<u32>,
    pub kind: String,
    pub links: u32,
    pub bytes_per_second_max: Option<u64>,
}

/// Records that will never come, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GapBody {
    pub node: String,
    pub node_id: String,
    pub incarnation: String,
    pub first_seq: u64,
    /// `null` where nobody knows how many there were, or whether there were any.
    pub last_seq: Option<u64>,
    pub records: Option<u64>,
    pub reason: String,
    /// Host time of the last record before the gap.
    pub from: Option<String>,
    /// Host time of the first record after the gap.
    pub to: Option<String>,
    /// False while the node may still deliver it.
    #[serde(rename = "final")]
    pub is_final: bool,
}
