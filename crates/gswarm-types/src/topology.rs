//! How the devices of one node reach each other.

use serde::{Deserialize, Serialize};

/// What joins two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerKind {
    /// Direct NVLinks, or NVLinks to a switch.
    Nvlink,
    /// The same PCIe switch.
    PcieSwitch,
    /// The same PCIe host bridge.
    PcieHostBridge,
    /// The same CPU socket.
    SameSocket,
    /// Across CPU sockets.
    CrossSocket,
}

impl PeerKind {
    pub const ALL: [Self; 5] =
        [Self::Nvlink, Self::PcieSwitch, Self::PcieHostBridge, Self::SameSocket, Self::CrossSocket];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nvlink => "nvlink",
            Self::PcieSwitch => "pcie_switch",
            Self::PcieHostBridge => "pcie_host_bridge",
            Self::SameSocket => "same_socket",
            Self::CrossSocket => "cross_socket",
        }
    }
}

/// One end's view of a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerLink {
    /// Position of the local GPU in the devices of the current table.
    pub device: u32,
    /// Position of the remote GPU; `None` when the other end is an NVSwitch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<u32>,
    pub kind: PeerKind,
    /// Active NVLinks between the two; 0 for other kinds.
    pub links: u32,
    /// Sum of the links' own maximum, one direction; `None` where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_max: Option<u64>,
}
