//! Things that happened at an instant: faults, losses, changes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::id::DeviceId;

/// How much attention an event asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// What happened; kinds of newer versions are kept by their word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Cow<'_, str>", into = "String")]
pub enum EventKind {
    AgentStarted,
    AgentStopped,
    Xid,
    EccUncorrected,
    RowRemap,
    GpuLost,
    GpuFound,
    GpuUnresponsive,
    GpuResponsive,
    DriverError,
    DriverSlow,
    SpoolOverflow,
    SpoolDamaged,
    ClockStep,
    CommandRefused,
    NodeConnected,
    NodeDisconnected,
    NodeUnhealthy,
    NodeHealthy,
    NodeConflict,
    StoreDamaged,
    StoreFull,
    StoreRecovered,
    OverBudget,
    SessionStarted,
    SessionStopped,
    SessionDeleted,
    SessionLong,
    Other(String),
}

const KIND_WORDS: [(EventKind, &str); 28] = [
    (EventKind::AgentStarted, "agent_started"),
    (EventKind::AgentStopped, "agent_stopped"),
    (EventKind::Xid, "xid"),
    (EventKind::EccUncorrected, "ecc_uncorrected"),
    (EventKind::RowRemap, "row_remap"),
    (EventKind::GpuLost, "gpu_lost"),
    (EventKind::GpuFound, "gpu_found"),
    (EventKind::GpuUnresponsive, "gpu_unresponsive"),
    (EventKind::GpuResponsive, "gpu_responsive"),
    (EventKind::DriverError, "driver_error"),
    (EventKind::DriverSlow, "driver_slow"),
    (EventKind::SpoolOverflow, "spool_overflow"),
    (EventKind::SpoolDamaged, "spool_damaged"),
    (EventKind::ClockStep, "clock_step"),
    (EventKind::CommandRefused, "command_refused"),
    (EventKind::NodeConnected, "node_connected"),
    (EventKind::NodeDisconnected, "node_disconnected"),
    (EventKind::NodeUnhealthy, "node_unhealthy"),
    (EventKind::NodeHealthy, "node_healthy"),
    (EventKind::NodeConflict, "node_conflict"),
    (EventKind::StoreDamaged, "store_damaged"),
    (EventKind::StoreFull, "store_full"),
    (EventKind::StoreRecovered, "store_recovered"),
    (EventKind::OverBudget, "over_budget"),
    (EventKind::SessionStarted, "session_started"),
    (EventKind::SessionStopped, "session_stopped"),
    (EventKind::SessionDeleted, "session_deleted"),
    (EventKind::SessionLong, "session_long"),
];

impl EventKind {
    /// The word on wire and disk.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(word) => word,
            known => KIND_WORDS.iter().find(|(kind, _)| kind == known).map_or("other", |(_, w)| w),
        }
    }
}

impl From<Cow<'_, str>> for EventKind {
    fn from(word: Cow<'_, str>) -> Self {
        KIND_WORDS
            .iter()
            .find(|(_, known)| *known == word)
            .map_or_else(|| Self::Other(word.into_owned()), |(kind, _)| kind.clone())
    }
}

impl From<EventKind> for String {
    fn from(kind: EventKind) -> Self {
        kind.as_str().to_owned()
    }
}

/// One event of a node, or of the host itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub kind: EventKind,
    pub severity: Severity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// XID number, error code or count, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_word() {
        for (kind, word) in &KIND_WORDS {
            assert_eq!(kind.as_str(), *word);
            assert_eq!(&EventKind::from(Cow::Borrowed(*word)), kind);
        }
        let newer = EventKind::from(Cow::Borrowed("from_the_future"));
        assert_eq!(newer.as_str(), "from_the_future");
    }
}
