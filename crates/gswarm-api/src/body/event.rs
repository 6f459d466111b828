//! Events of nodes and of the host itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /api/v1/events`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventsBody {
    /// Oldest first.
    pub events: Vec<EventBody>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventBody {
    pub time: String,
    /// `null` for events of the host itself.
    pub node: Option<String>,
    pub kind: String,
    /// info, warning or error.
    pub severity: String,
    pub device: Option<String>,
    pub code: Option<i64>,
    pub message: String,
}
