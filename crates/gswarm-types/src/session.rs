//! A session: a named window over the recording.

use serde::{Deserialize, Serialize};

use crate::id::{NodeId, SessionId};
use crate::job::JobId;
use crate::name::SessionName;
use crate::process::ProcessRow;
use crate::time::{Micros, Period};

/// Which part of the recording a session shows. Empty lists select everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selection {
    /// Nodes, resolved from names when the session was created; `None` selects all, also later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeId>>,
    /// GPU indices on each node; `None` selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<u32>>,
    /// Only GPUs that a process of this user holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only GPUs that a process of this job holds; with a user, one that is of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

impl Selection {
    /// True when the node belongs to the session.
    pub fn has_node(&self, node: NodeId) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node))
    }

    /// True when the GPU index belongs to the session.
    pub fn has_gpu(&self, index: u32) -> bool {
        self.gpus.as_ref().is_none_or(|gpus| gpus.contains(&index))
    }

    /// True when only GPUs that certain processes hold belong to the session.
    pub fn is_by_process(&self) -> bool {
        self.user.is_some() || self.job.is_some()
    }

    /// True when the process is of the wanted user and of the wanted job.
    pub fn has_process(&self, row: &ProcessRow) -> bool {
        let is_of_user = self.user.as_ref().is_none_or(|user| row.user.as_ref() == Some(user));
        let job = self.job.as_ref().map(JobId::as_str);
        is_of_user && job.is_none_or(|job| row.job.as_deref() == Some(job))
    }
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The window is open.
    Active,
    /// The window is closed; nodes may still deliver records of it.
    Stopped,
    /// Its owner removed it; only the journal still names it.
    Deleted,
}

/// One session as it stands in `sessions/<id>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpec {
    pub id: SessionId,
    pub name: SessionName,
    pub state: SessionState,
    pub created: Micros,
    /// First instant of the window; earlier than `created` for `--since`.
    pub from: Micros,
    /// First instant after the window; `None` while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Micros>,
    /// What lay before this was already gone when the session was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered_from: Option<Micros>,
    /// When to stop by itself (`--for`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_at: Option<Micros>,
    #[serde(rename = "period_ms")]
    pub period: Period,
    #[serde(default)]
    pub selection: Selection,
    /// Show GPU to host traffic in exports.
    #[serde(default)]
    pub bandwidth: bool,
    /// Show NVLink traffic in exports.
    #[serde(default)]
    pub nvlink: bool,
    /// Catalogue names to add to each frame.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_metrics: Vec<String>,
    pub owner: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Rises each time late records change the file.
    #[serde(default)]
    pub revision: u32,
    /// Nodes whose records of the window have not all arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<NodeId>,
    /// Where the automatic export went, once it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file: Option<String>,
    /// Checksum of that file, to notice that somebody changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_crc: Option<u32>,
    /// The request that made the session: repeated, it makes no second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The request that stopped it: repeated, it stops no later session of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_request_id: Option<String>,
}

impl SessionSpec {
    /// True when the instant lies in the window.
    pub fn covers(&self, time: Micros) -> bool {
        time >= self.from && self.until.is_none_or(|until| time < until)
    }
}
