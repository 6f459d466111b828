//! Messages of the WebSocket at `/api/v1/live`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::event::EventBody;

/// What the host sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    /// First message: who speaks.
    Hello {
        version: String,
        simulated: bool,
        /// Listens beyond its machine without encryption or logins.
        insecure: bool,
    },
    /// Devices, columns and latest values of every selected node.
    Snapshot {
        nodes: Vec<LiveNode>,
    },
    /// New values of one node, in the order of the columns of its last snapshot.
    Values(LiveValues),
    Event(EventBody),
    /// The reader was too slow; this many messages were left out.
    Lagged {
        dropped: u64,
    },
}

/// One node of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveNode {
    pub node: String,
    pub node_id: String,
    pub health: String,
    pub simulated: bool,
    /// Identifies the columns.
    pub table: String,
    /// `[id, scope, index, name]` of each device.
    pub devices: Vec<(String, String, u32, String)>,
    /// `[device position, metric]` of each column.
    pub columns: Vec<(u32, String)>,
    pub time: Option<String>,
    pub cells: Vec<Option<f64>>,
}

/// New values of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveValues {
    pub node: String,
    pub table: String,
    pub time: String,
    pub cells: Vec<Option<f64>>,
}

/// What a reader sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientMessage {
    Subscribe(Subscribe),
}

/// Which nodes to send; all when left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subscribe {
    #[serde(default)]
    pub nodes: Option<Vec<String>>,
    #[serde(default)]
    pub events: Option<bool>,
}
