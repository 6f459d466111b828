//! What streams and doors say to the recorder, and what it says to agents.

use std::collections::HashMap;
use std::sync::Arc;

use gswarm_api::Failure;
use gswarm_api::body::{
    CaptureRequest, EventsBody, HealthBody, NodeBody, NodesBody, RetentionBody, SessionBody,
    SessionsBody, SettingsBody, SettingsChange, StartRequest, StatusBody, StopBody, StoppedBody,
};
use gswarm_core::{ClockOffset, Listed};
use gswarm_store::catalog::SegmentMeta;
use gswarm_store::export::ExportInput;
use gswarm_store::log::Damage;
use gswarm_types::{
    AllowSet, EventKind, Incarnation, Micros, NodeId, NodeName, Period, Record, SessionId,
    Severity, StorageId, Table, TableDigest,
};
use tokio::sync::{mpsc, oneshot};

use super::damage::Survey;
use crate::caller::Caller;
use crate::export_job::Exported;
use crate::live::NodeValues;

/// One connection of one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamId(pub(crate) u64);

/// What the recorder says to the agent of a stream.
#[derive(Debug)]
pub(crate) enum ToAgent {
    Ack {
        incarnation: Incarnation,
        seq: u64,
    },
    Credit(u32),
    SetPeriod(Period),
    Flush {
        id: u64,
        until: Micros,
    },
    Ping,
    /// The stream is over; the reason is told to the agent.
    Close(Failure),
}

/// Ranges of seqs.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) incarnation: Incarnation,
    pub(crate) intervals: Vec<(u64, u64)>,
    pub(crate) last_seq: u64,
    pub(crate) last_crc: u32,
}

/// An agent introduces itself.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) stream: StreamId,
    pub(crate) node: NodeId,
    pub(crate) name: NodeName,
    pub(crate) hostname: String,
    pub(crate) version: String,
    pub(crate) allow: AllowSet,
    pub(crate) simulated: bool,
    pub(crate) legacy: bool,
    /// The node's own base rate, where its agent was given one.
    pub(crate) base_period: Option<Period>,
    pub(crate) incarnation: Incarnation,
    pub(crate) held: Vec<Listed>,
    pub(crate) clock: Option<StreamClock>,
    pub(crate) outbox: mpsc::Sender<ToAgent>,
    pub(crate) reply: oneshot::Sender<Result<Joined, Failure>>,
}

/// The host's answer to an introduction.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) name: NodeName,
    pub(crate) storage: StorageId,
    pub(crate) held: Vec<Held>,
    pub(crate) period: Period,
}

/// How the clocks of a node and of the host relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamClock {
    /// Host time minus the node's time since boot.
    pub(crate) offset: Micros,
    /// Host time minus the node's wall clock.
    pub(crate) wall_offset: Micros,
    /// Half the round trip of the best probe.
    pub(crate) error: Micros,
}

/// Records in the order they were sent.
#[derive(Debug)]
pub(crate) struct RecordBatch {
    pub(crate) stream: StreamId,
    pub(crate) node: NodeId,
    /// Record, its checksum in the spool, and how its time is found.
    pub(crate) records: Vec<(Record, u32, ClockOffset)>,
}

/// From streams, in order.
#[derive(Debug)]
pub(crate) enum Ingest {
    Join(Box<Join>),
    Table { node: NodeId, incarnation: Incarnation, digest: TableDigest, table: Arc<Table> },
    Records(RecordBatch),
    Beat { stream: StreamId, node: NodeId, held: Vec<Listed> },
    Clock { node: NodeId, clock: StreamClock },
    Flushed { node: NodeId, id: u64, incarnation: Incarnation, seq: u64 },
    CommandRefused { node: NodeId, message: String },
    Leave { stream: StreamId, node: NodeId },
}

/// The latest of everything, for snapshots of watchers and compatibility pages.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) now: Micros,
    pub(crate) nodes: Vec<SnapshotNode>,
}

#[derive(Debug, Clone)]
pub(crate) struct SnapshotNode {
    pub(crate) name: String,
    pub(crate) id: NodeId,
    pub(crate) hostname: String,
    pub(crate) health: gswarm_api::body::NodeHealth,
    pub(crate) connected: bool,
    pub(crate) simulated: bool,
    pub(crate) latest: Option<Arc<NodeValues>>,
    pub(crate) topology: Vec<gswarm_types::PeerLink>,
}

/// What a range of values is asked for.
#[derive(Debug, Clone)]
pub(crate) struct SeriesQuery {
    pub(crate) nodes: Option<Vec<NodeId>>,
    pub(crate) names: HashMap<NodeId, String>,
}

type Reply<T> = oneshot::Sender<T>;

/// Questions and orders.
#[derive(Debug)]
pub(crate) enum Call {
    Status(Reply<StatusBody>),
    Health(Reply<HealthBody>),
    Nodes(Reply<NodesBody>),
    Node(String, Reply<Result<NodeBody, Failure>>),
    /// Ends the stream of a node that was removed.
    Disconnect(NodeId, Reply<()>),
    Event {
        node: Option<NodeId>,
        kind: EventKind,
        severity: Severity,
        message: String,
        reply: Reply<()>,
    },
    Snapshot(Reply<Snapshot>),
    Events {
        since: Option<String>,
        reply: Reply<Result<EventsBody, Failure>>,
    },
    Sessions(Reply<SessionsBody>),
    Session(String, Reply<Result<SessionBody, Failure>>),
    Start(Box<StartRequest>, Caller, Reply<Result<SessionBody, Failure>>),
    Capture(Box<CaptureRequest>, Caller, Reply<Result<StoppedBody, Failure>>),
    Stop(String, Option<String>, Reply<Result<StoppedBody, Failure>>),
    StopAll(Caller, Option<String>, Reply<Result<StopBody, Failure>>),
    Delete(String, Reply<Result<SessionBody, Failure>>),
    Settings(Reply<SettingsBody>),
    ChangeSettings(SettingsChange, Reply<Result<SettingsBody, Failure>>),
    Retention(Reply<RetentionBody>),
    ExportInput(String, Reply<Result<ExportInput, Failure>>),
    Series {
        nodes: Option<Vec<String>>,
        reply: Reply<Result<SeriesQuery, Failure>>,
    },
    /// An export that the recorder asked for is done.
    Exported(SessionId, Exported),
    /// Sealing found lines that cannot be read.
    Damaged(SegmentMeta, Vec<Damage>),
    /// A sealed segment is not what was written.
    Unreadable(u64, Reply<()>),
    /// What such a segment cost is known.
    Surveyed(Survey),
    StopHost(Reply<()>),
}
