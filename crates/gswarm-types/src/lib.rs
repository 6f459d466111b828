//! The vocabulary of gswarm: ids, units, the metric catalogue, records and sessions.
//!
//! Nothing here touches a clock, a socket, a file, a thread or a random number.

mod id;
mod name;
mod time;
pub mod metric;
mod table;
mod record;
mod event;
mod job;
mod process;
mod topology;
mod session;
mod allow;
mod role;

pub use allow::{Allow, AllowSet, UnknownAllow};
pub use event::{Event, EventKind, Severity};
pub use id::{DeviceId, Incarnation, NodeId, ParseIdError, SessionId, StorageId, TableDigest};
pub use job::{JOB_ID_CHARS_MAX, JobId, JobIdError};
pub use name::{NAME_CHARS_MAX, NameError, NodeName, SessionName};
pub use process::{ProcessKind, ProcessRow};
pub use record::{
    Body, Cells, Gap, GapReason, Mark, RECORD_BYTES_MAX, Record, SpoolLoss, TimeQuality, Values,
};
pub use role::{Role, UnknownRole};
pub use session::{Selection, SessionSpec, SessionState};
pub use table::{Column, DeviceInfo, MetricName, Scope, Table};
pub use time::{Clock, Micros, Period, PeriodError};
pub use topology::{PeerKind, PeerLink};
