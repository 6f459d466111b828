//! Taking records, committing them, and telling everybody that they are safe.

use std::collections::HashMap;
use std::sync::Arc;

use gswarm_core::Admission;
use gswarm_store::entry::{Entry, Stamp, StoredRecord};
use gswarm_store::journal::{CommitError, Journal, TableKey, TableSource};
use gswarm_types::{Body, EventKind, NodeId, Record, Severity, Table};
use tokio::time::Instant;

use super::message::{Ingest, RecordBatch, ToAgent};
use super::{Batch, RETRY_AFTER, Recorder};
use crate::live::{Happening, NodeValues};

/// Estimated bytes of an entry besides its cells, and per cell.
const ENTRY_BYTES: usize = 220;
const CELL_BYTES: usize = 6;
/// Credit of a stream in good times.
pub(super) const CREDIT_FULL: u32 = 1_024;

/// A commit that came back from the disk.
#[derive(Debug)]
pub(super) struct Committed {
    journal: Journal,
    /// `None` after a chore.
    batch: Option<Batch>,
    result: Result<(), CommitError>,
}

/// Work on the journal that needs no batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    Checkpoint,
    /// A new segment, with a checkpoint.
    Roll,
}

/// The tables that a batch refers to.
#[derive(Debug)]
struct BatchTables<'a>(&'a HashMap<TableKey, Arc<Table>>);

impl TableSource for BatchTables<'_> {
    fn table(&self, key: &TableKey) -> Option<&Table> {
        self.0.get(key).map(Arc::as_ref)
    }
}

impl Recorder {
    pub(super) async fn take(&mut self, message: Ingest) {
        match message {
            Ingest::Join(join) => self.join(join).await,
            Ingest::Table { node, incarnation, digest, table } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.put_table(incarnation, digest, table);
                }
            },
            Ingest::Records(records) => self.records(records),
            Ingest::Beat { stream, node, held } => self.heartbeat(stream, node, &held),
            Ingest::Clock { node, clock } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.clock = Some(clock);
                }
                self.beat(node);
            },
            Ingest::Flushed { node, id, incarnation, seq } => {
                self.flushed(node, id, incarnation, seq);
            },
            Ingest::CommandRefused { node, message } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.commands_refused += 1;
                }
                self.event(Some(node), EventKind::CommandRefused, Severity::Warning, message);
            },
            Ingest::Leave { stream, node } => self.leave(stream, node),
        }
    }

    pub(super) fn records(&mut self, batch: RecordBatch) {
        let receipt = self.time.now();
        let fenced = self
            .nodes
            .get(&batch.node)
            .is_none_or(|node| node.stream.as_ref().is_none_or(|stream| stream.id != batch.stream));
        // A stream that was replaced is not heard: its agent sends everything again.
        if fenced {
            return;
        }
        self.beat(batch.node);
        for (record, crc, offset) in batch.records {
            let (incarnation, seq) = (record.incarnation, record.seq);
            match self.intake.admit(batch.node, &record, crc, offset, receipt) {
                Admission::Duplicate => self.counters.duplicate += 1,
                Admission::Store { time, quality } => {
                    if matches!(record.body, Body::Rejected { .. }) {
                        self.counters.rejected += 1;
                    }
                    let bytes = ENTRY_BYTES + CELL_BYTES * cells(&record.body);
                    self.keep_table(batch.node, &record);
                    let stamp = Stamp { node: batch.node, time, receipt, quality, crc };
                    let stored = StoredRecord::new(record, stamp);
                    self.batch.push(Entry::Record(stored), bytes);
                },
            }
            self.batch.acknowledge(batch.stream, batch.node, incarnation, seq);
        }
    }

    /// The table goes with the batch: by the time of the commit the node may know others.
    fn keep_table(&mut self, id: NodeId, record: &Record) {
        let Body::Values(values) = &record.body else { return };
        let key = (id, record.incarnation, values.table);
        if !self.batch.tables.contains_key(&key)
            && let Some(node) = self.nodes.get(&id)
            && let Some(table) = node.table(&(record.incarnation, values.table))
        {
            self.batch.tables.insert(key, table.clone());
        }
    }

    pub(super) fn start_commit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.launch(batch);
    }

    /// The disk refused the batch: once more, with everything in it.
    pub(super) fn retry_commit(&mut self) {
        self.retry_at = None;
        if let Some(batch) = self.refused.take() {
            self.launch(batch);
        }
    }

    fn launch(&mut self, batch: Batch) {
        let Some(mut journal) = self.journal.take() else {
            self.refused = Some(batch);
            return;
        };
        self.commit = Some(tokio::task::spawn_blocking(move || {
            let result = if batch.entries.is_empty() {
                Ok(())
            } else {
                journal.commit(&batch.entries, &BatchTables(&batch.tables))
            };
            Committed { journal, batch: Some(batch), result }
        }));
    }

    /// Asks for a chore; it is done as soon as no record waits for a commit.
    pub(super) fn wish(&mut self, chore: Chore) {
        self.chore = self.chore.max(Some(chore));
        self.start_chore();
    }

    /// What the checkpoint says must be what the segments hold: no batch may be half way.
    pub(super) fn start_chore(&mut self) {
        let is_quiet = self.commit.is_none() && self.retry_at.is_none() && self.batch.is_empty();
        if !is_quiet || self.chore.is_none() {
            return;
        }
        let (Some(mut journal), Some(chore)) = (self.journal.take(), self.chore.take()) else {
            return;
        };
        let intake = self.intake.clone();
        self.commit = Some(tokio::task::spawn_blocking(move || {
            match chore {
                Chore::Checkpoint => journal.checkpoint(&intake),
                Chore::Roll => {
                    if let Err(error) = journal.roll(&intake) {
                        tracing::warn!(%error, "segment not closed");
                    }
                },
            }
            Committed { journal, batch: None, result: Ok(()) }
        }));
    }

    pub(super) fn committed(&mut self, done: Option<Committed>) {
        let Some(done) = done else {
            // The journal went down with the commit: only a new start can recover it.
            self.trouble = Some("the journal broke: the host stops".to_owned());
            self.stop_wish.send_replace(true);
            return;
        };
        self.journal = Some(done.journal);
        match (done.result, done.batch) {
            (Ok(()), Some(batch)) => {
                self.intake.commit();
                self.counters.commits += 1;
                self.counters.bytes += batch.bytes() as u64;
                self.recovered_from_trouble();
                self.stored(batch);
                // Under load a tick seldom finds the journal at rest: this is the moment.
                self.roll_if_due(self.time.now());
                self.take_up();
                self.check_stopping();
            },
            (Err(error), Some(batch)) => {
                self.counters.commit_failures += 1;
                self.in_trouble(&error);
                // Nothing of it counts; nothing of it is forgotten either.
                self.refused = Some(batch);
                self.retry_at = Some(Instant::now() + RETRY_AFTER);
            },
            (_, None) => self.take_up(),
        }
    }

    /// What waited, unless the journal is busy again.
    fn take_up(&mut self) {
        if self.commit.is_none() {
            self.unpark();
        }
    }

    fn in_trouble(&mut self, error: &CommitError) {
        let message = chain(error);
        if self.trouble.is_none() {
            tracing::error!(%message, "the journal does not take records");
            self.remember_event(
                self.time.now(),
                None,
                gswarm_types::Event {
                    kind: EventKind::StoreFull,
                    severity: Severity::Error,
                    device: None,
                    code: None,
                    message: message.clone(),
                },
            );
            self.credit(0);
        }
        self.trouble = Some(message);
    }

    fn recovered_from_trouble(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the journal takes records again");
            let message = "the journal takes records again".to_owned();
            self.event(None, EventKind::StoreRecovered, Severity::Info, message);
            self.credit(CREDIT_FULL);
        }
    }

    fn credit(&mut self, records: u32) {
        for node in self.nodes.values_mut() {
            node.tell(ToAgent::Credit(records));
        }
    }

    /// Everything in the batch is on stable storage.
    fn stored(&mut self, batch: Batch) {
        for (stream, (node, incarnation, seq)) in batch.acks {
            if let Some(node) = self.nodes.get_mut(&node)
                && node.stream.as_ref().is_some_and(|connected| connected.id == stream)
            {
                node.tell(ToAgent::Ack { incarnation, seq });
            }
        }
        for entry in batch.entries {
            if let Entry::Record(record) = entry {
                self.counters.stored += 1;
                self.show(record);
            }
        }
    }

    /// Makes a stored record visible.
    fn show(&mut self, record: StoredRecord) {
        let StoredRecord { node: id, time, incarnation, seq, body, .. } = record;
        self.intake.note_body(id, incarnation, seq, &body, time);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.stored += 1;
        node.last_seen = node.last_seen.max(Some(time));
        match body {
            Body::Values(values) => {
                let Some(table) = node.table(&(incarnation, values.table)).cloned() else { return };
                // Late records of the past do not replace what is newer.
                if node.latest.as_ref().is_some_and(|latest| latest.time > time) {
                    return;
                }
                let values = Arc::new(NodeValues {
                    name: node.name.to_string(),
                    table,
                    time,
                    cells: values.cells.as_slice().to_vec(),
                });
                node.latest = Some(values.clone());
                self.live.tell(Happening::Values(values));
            },
            Body::Processes(rows) => node.processes = rows,
            Body::Topology(links) => node.topology = links,
            Body::Event(event) => self.remember_event(time, Some(id), event),
            Body::End => self.health.stopped(id),
            Body::Mark(_) | Body::Loss(_) | Body::Opaque { .. } | Body::Rejected { .. } => {},
        }
    }
}

fn cells(body: &Body) -> usize {
    match body {
        Body::Values(values) => values.cells.as_slice().len(),
        _ => 16,
    }
}

/// The error and its causes in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
