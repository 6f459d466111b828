//! The single owner of the host's state: takes records in, commits them, answers questions.
//!
//! Records wait while a commit runs; questions do not. A session's file is the truth about it and
//! is written before the answer; its journal line follows with the next batch.

mod message;
mod node;
mod batch;
mod join;
mod commit;
mod sessions;
mod stopping;
mod upkeep;
mod damage;
mod bodies;
mod node_file;
mod expiry_file;
mod begin;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gswarm_core::{Health, Intake, NameBook, SessionBook};
use gswarm_store::Disk;
use gswarm_store::entry::{Entry, HostEvent};
use gswarm_store::journal::Journal;
use gswarm_store::log::Damage;
use gswarm_store::reader::Reader;
use gswarm_types::{Event, EventKind, Micros, NodeId, SessionId, Severity};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::clock::HostTime;
use crate::config::{HostConfig, Settings};
use crate::live::{Happening, Live, LiveEvent};

pub use begin::StartError;
pub(crate) use begin::start;
pub(crate) use bodies::{device_bodies, event_body, value_of};
pub(crate) use message::{
    Call, Ingest, Join, Joined, RecordBatch, SeriesQuery, Snapshot, SnapshotNode, StreamClock,
    StreamId, ToAgent,
};

use batch::Batch;
use commit::{Chore, Committed};
use expiry_file::Expiry;
use node::Node;
use stopping::Stopping;

/// Messages from streams that may wait.
pub(crate) const INGEST_QUEUE_MAX: usize = 512;
/// Questions that may wait.
pub(crate) const CALL_QUEUE_MAX: usize = 256;
/// Messages that may wait for a disk that does not take records.
const PARKED_MAX: usize = 2_048;
/// A batch is committed after this long, however small it is.
const COMMIT_AFTER: Duration = Duration::from_millis(10);
/// A batch is committed at once at this size.
const COMMIT_BYTES: usize = 1024 * 1024;
/// How long the disk is left alone after it refused a batch.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Events that are remembered for `/api/v1/events`.
const EVENTS_MAX: usize = 10_000;

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) stored: u64,
    pub(crate) duplicate: u64,
    pub(crate) rejected: u64,
    pub(crate) commits: u64,
    pub(crate) commit_failures: u64,
    pub(crate) bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Recorder {
    config: HostConfig,
    settings: Settings,
    disk: Arc<dyn Disk>,
    time: HostTime,
    live: Live,
    reader: Reader,
    storage: gswarm_types::StorageId,
    /// `None` while a commit runs.
    journal: Option<Journal>,
    commit: Option<JoinHandle<Committed>>,
    retry_at: Option<Instant>,
    batch: Batch,
    /// Records, and the ends of their streams, that came while a commit ran.
    parked: VecDeque<Ingest>,
    /// The batch that the disk refused, to be tried again.
    refused: Option<Batch>,
    trouble: Option<String>,
    intake: Intake,
    book: SessionBook,
    health: Health,
    names: NameBook,
    nodes: HashMap<NodeId, Node>,
    stopping: HashMap<SessionId, Stopping>,
    events: VecDeque<LiveEvent>,
    counters: Counters,
    quarantined: u64,
    over_budget: bool,
    /// Files of sessions that neither they nor the journal can tell anything about.
    unreadable_sessions: Vec<PathBuf>,
    /// Damaged segments that are being looked into, and who waits for it.
    surveys: HashMap<u64, Vec<oneshot::Sender<()>>>,
    /// Work on the journal besides commits.
    chore: Option<Chore>,
    /// A segment was full since the last look at retention.
    grew: bool,
    /// The last sealed segment that was read to see that it is whole.
    scrubbed: u64,
    /// Retention took everything before this.
    expiry: Expiry,
    started: Micros,
    random: StdRng,
    next_flush: u64,
    tasks: TaskTracker,
    calls: mpsc::WeakSender<Call>,
    give_back: fn(),
    upkeep: Option<JoinHandle<()>>,
    ticks: u64,
    stop_wish: watch::Sender<bool>,
}

impl Recorder {
    pub(crate) async fn run(
        mut self,
        mut ingest: mpsc::Receiver<Ingest>,
        mut calls: mpsc::Receiver<Call>,
        stop: CancellationToken,
    ) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let free = self.commit.is_none() && self.retry_at.is_none();
            let commit_at = self.batch.due(COMMIT_AFTER, COMMIT_BYTES);
            let retry_at = self.retry_at;
            // In no fixed order: questions must not starve records, nor records the tick.
            tokio::select! {
                () = stop.cancelled() => break,
                done = finished(&mut self.commit), if self.commit.is_some() => self.committed(done),
                () = until(commit_at), if free && commit_at.is_some() => self.start_commit(),
                () = until(retry_at), if retry_at.is_some() => self.retry_commit(),
                Some(call) = calls.recv() => self.call(call).await,
                Some(message) = ingest.recv(), if self.has_room(free) => {
                    self.receive(message, free).await;
                },
                _ = tick.tick() => self.tick().await,
            }
        }
        self.close(&mut ingest).await;
    }

    fn has_room(&self, free: bool) -> bool {
        if free && self.parked.is_empty() {
            !self.batch.is_full(COMMIT_BYTES)
        } else {
            self.parked.len() < PARKED_MAX
        }
    }

    /// Heartbeats, joins and answers are heard at once; records wait while a commit runs.
    async fn receive(&mut self, message: Ingest, free: bool) {
        let busy = !free || !self.parked.is_empty();
        match message {
            Ingest::Records(_) | Ingest::Leave { .. } if busy => self.parked.push_back(message),
            message => self.take(message).await,
        }
    }

    /// Takes what waited, as far as the next batch goes.
    fn unpark(&mut self) {
        while !self.batch.is_full(COMMIT_BYTES)
            && let Some(message) = self.parked.pop_front()
        {
            match message {
                Ingest::Records(batch) => self.records(batch),
                Ingest::Leave { stream, node } => self.leave(stream, node),
                _ => {},
            }
        }
    }

    /// Makes what is held durable. What does not get there was not acknowledged.
    async fn close(&mut self, ingest: &mut mpsc::Receiver<Ingest>) {
        ingest.close();
        // The checkpoint below says it all.
        self.chore = None;
        if self.commit.is_some() {
            let done = finished(&mut self.commit).await;
            self.chore = None;
            self.committed(done);
        }
        if !self.batch.is_empty() && self.retry_at.is_none() {
            self.start_commit();
            let done = finished(&mut self.commit).await;
            self.committed(done);
        }
        if let Some(upkeep) = self.upkeep.take()
            && let Err(error) = upkeep.await
        {
            tracing::error!(%error, "upkeep ended badly");
        }
        if let Some(journal) = &self.journal {
            journal.checkpoint(&self.intake);
        }
    }

    /// Journals an event of the host itself and tells it to watchers.
    fn event(
        &mut self,
        node: Option<NodeId>,
        kind: EventKind,
        severity: Severity,
        message: String,
    ) {
        let event = Event { kind, severity, device: None, code: None, message };
        let time = self.time.now();
        self.batch.push(Entry::HostEvent(HostEvent { time, node, event: event.clone() }), 160);
        self.remember_event(time, node, event);
    }

    /// Names what could not be read and was set aside.
    fn damaged(&mut self, damage: &[Damage]) {
        self.quarantined += damage.len() as u64;
        for place in damage {
            let message = format!(
                "segment {} is damaged at byte {} ({} bytes): set aside, the rest was kept",
                place.segment, place.offset, place.bytes
            );
            self.event(None, EventKind::StoreDamaged, Severity::Error, message);
        }
    }

    fn remember_event(&mut self, time: Micros, node: Option<NodeId>, event: Event) {
        let node = node.map(|id| self.node_name(id));
        let live = LiveEvent { time, node, event };
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(live.clone());
        self.live.tell(Happening::Event(Arc::new(live)));
    }

    fn node_name(&self, id: NodeId) -> String {
        self.nodes.get(&id).map_or_else(|| id.to_string(), |node| node.name.to_string())
    }

    /// A new id whose order is the order of time.
    fn new_uuid(&mut self) -> Uuid {
        let millis = u64::try_from(self.time.now().0 / 1_000).unwrap_or(0);
        let random: [u8; 10] = self.random.random();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}

/// Waits for the running commit.
async fn finished(commit: &mut Option<JoinHandle<Committed>>) -> Option<Committed> {
    let handle = commit.as_mut()?;
    let done = handle.await;
    *commit = None;
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::error!(%error, "the commit ended badly");
            None
        },
    }
}

/// Never, when there is no moment.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
