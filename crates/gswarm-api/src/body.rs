//! Request and answer bodies of `/api/v1`.
//!
//! Times are RFC 3339 in UTC. Absent numbers are `null`, never 0.

mod status;
mod node;
mod session;
mod event;
mod metrics;
mod live;
mod access;

pub use access::{
    LoginRequest, NewTokenBody, RemovedBody, SilentBody, TokenBody, TokenRequest, TokensBody,
    WaitingBody, WhoBody,
};
pub use event::{EventBody, EventsBody};
pub use live::{ClientMessage, LiveNode, LiveValues, ServerMessage, Subscribe};
pub use metrics::{
    CatalogueBody, LatestBody, LatestNode, MetricBody, SeriesBody, SeriesPoint, SeriesRow,
};
pub use node::{DeviceBody, GapBody, NodeBody, NodeHealth, NodesBody, PeerLinkBody, ProcessBody};
pub use session::{
    CaptureRequest, SessionBody, SessionsBody, StartRequest, StopAllRequest, StopBody, StopRequest,
    StoppedBody,
};
pub use status::{
    CheckBody, HealthBody, HealthStatus, IngestBody, RetentionBody, RetentionSegment, SettingsBody,
    SettingsChange, StatusBody, StoppingBody, StoreBody,
};
