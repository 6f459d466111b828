//! Entries that wait for the next commit, and who hears of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gswarm_store::entry::Entry;
use gswarm_store::journal::TableKey;
use gswarm_types::{Incarnation, NodeId, Table};
use tokio::time::Instant;

use super::message::StreamId;

/// What one commit makes durable.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    bytes: usize,
    opened: Option<Instant>,
    /// The tables that its values refer to.
    pub(super) tables: HashMap<TableKey, Arc<Table>>,
    /// The last record of each stream in this batch.
    pub(super) acks: HashMap<StreamId, (NodeId, Incarnation, u64)>,
}

impl Batch {
    /// `bytes` is an estimate of the encoded size.
    pub(super) fn push(&mut self, entry: Entry, bytes: usize) {
        self.bytes += bytes;
        self.opened.get_or_insert_with(Instant::now);
        self.entries.push(entry);
    }

    /// Everything that the stream sent up to this record is acknowledged with this batch.
    pub(super) fn acknowledge(
        &mut self,
        stream: StreamId,
        node: NodeId,
        incarnation: Incarnation,
        seq: u64,
    ) {
        self.opened.get_or_insert_with(Instant::now);
        self.acks.insert(stream, (node, incarnation, seq));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.acks.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes >= bytes_max
    }

    /// When to commit; `None` while there is nothing.
    pub(super) fn due(&self, after: Duration, bytes_max: usize) -> Option<Instant> {
        let opened = self.opened?;
        Some(if self.is_full(bytes_max) { opened } else { opened + after })
    }
}
