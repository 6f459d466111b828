//! Processes that hold memory on a device.

use serde::{Deserialize, Serialize};

/// What a process uses the device for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    Compute,
    Graphics,
}

/// One process on one device. Command lines are not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Position in the devices of the current table.
    pub device: u32,
    pub pid: u32,
    /// Program name; `None` when the process is in another pid namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Device memory; `None` where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    pub kind: ProcessKind,
}
