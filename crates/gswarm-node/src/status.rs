//! What an agent tells about itself.

use std::time::Duration;

use gswarm_types::{Incarnation, NodeId, NodeName, Period, StorageId};

/// Where the connection to the host stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// Dialling, or waiting to dial again.
    Connecting {
        /// Attempts since the last acknowledgement, from 1.
        attempt: u32,
        /// Time until the next attempt; `None` while it runs.
        retry_in: Option<Duration>,
    },
    Connected {
        host_version: String,
        /// `None` when the host named none that could be read.
        storage_id: Option<StorageId>,
    },
    /// The host asks to come back later: another agent uses this identity.
    Waiting { reason: String },
    /// The host does not take this agent; tried again once a minute.
    Refused { reason: String },
}

/// One look at a running agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentStatus {
    pub node_id: NodeId,
    pub incarnation: Incarnation,
    /// As the host knows the node; as configured before the first connection.
    pub node_name: NodeName,
    pub link: LinkState,
    pub period: Period,
    /// Records made in this run, whether or not the spool could take them.
    pub records_sampled: u64,
    /// Records that the host acknowledged, of this run and of earlier ones.
    pub records_acked: u64,
    pub spool_records: usize,
    pub spool_bytes: u64,
    /// Records dropped because the spool was full.
    pub spool_dropped: u64,
    /// Records that the spool could not take or give back.
    pub spool_errors: u64,
    /// Ticks left out because the one before took too long.
    pub ticks_skipped: u64,
    pub commands_refused: u64,
    pub last_error: Option<String>,
}
