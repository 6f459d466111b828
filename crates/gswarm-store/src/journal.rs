//! The host's record of everything: group commits into the segmented log, with checkpoints.

mod checkpoint;
mod recover;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_core::Intake;
use gswarm_types::{
    Body, Incarnation, Micros, NodeId, SessionId, SessionSpec, SessionState, StorageId, Table,
    TableDigest,
};

use crate::catalog::{Catalog, SegmentMeta, SegmentState};
use crate::disk::Disk;
use crate::entry::{Entry, FORMAT, StoredRecord, TableEntry};
use crate::line::LineBuffer;
use crate::log::Log;

use checkpoint::CheckpointRef;
pub use recover::{OpenError, Recovered, Unsaved};

/// When a segment is closed and the next one begun: at this size or at this age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLimits {
    pub bytes_max: u64,
    pub age_max: Micros,
}

impl Default for SegmentLimits {
    fn default() -> Self {
        Self { bytes_max: 64 * 1024 * 1024, age_max: Micros::from_secs(600) }
    }
}

/// Where the journal lies and how much room it leaves.
#[derive(Debug, Clone)]
pub struct JournalConfig {
    pub dir: PathBuf,
    /// Free bytes that are left for sealing, session files and deletes.
    pub disk_reserve_bytes: u64,
    pub segments: SegmentLimits,
    /// The identity of a data directory that is new.
    pub new_storage: StorageId,
}

/// A table that values refer to.
pub type TableKey = (NodeId, Incarnation, TableDigest);

/// Finds tables that the current segment does not carry yet.
pub trait TableSource {
    fn table(&self, key: &TableKey) -> Option<&Table>;
}

/// Why a batch is not on stable storage. The batch counts for nothing and may be tried again.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("only {free_bytes} bytes are free, {reserve_bytes} are kept in reserve")]
    Reserve { free_bytes: u64, reserve_bytes: u64 },
    #[error("cannot write to the journal")]
    Write(#[source] io::Error),
    #[error("cannot encode an entry")]
    Encode(#[from] serde_json::Error),
}

/// The writing end of the journal.
#[derive(Debug)]
pub struct Journal {
    disk: Arc<dyn Disk>,
    config: JournalConfig,
    storage: StorageId,
    log: Log,
    catalog: Catalog,
    active: SegmentMeta,
    /// Host time when the active segment began.
    began: Option<Micros>,
    tables: HashSet<TableKey>,
    /// Newest journaled state of each session, for the checkpoint.
    sessions: BTreeMap<SessionId, SessionSpec>,
    last_receipt: Option<Micros>,
    /// Recovery could not write the end of the last segment again: it stands only there.
    holds_unsaved: bool,
    buffer: LineBuffer,
}

impl Journal {
    pub fn storage(&self) -> StorageId {
        self.storage
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn dir(&self) -> &Path {
        &self.config.dir
    }

    /// Returns once every entry of the batch is on stable storage; on an error none of them counts.
    pub fn commit(&mut self, batch: &[Entry], tables: &dyn TableSource) -> Result<(), CommitError> {
        self.check_reserve()?;
        if !self.log.is_broken() {
            self.buffer.clear();
            let mark = self.log.sync_mark();
            self.buffer.push(&mark)?;
            let mut new_tables = Vec::new();
            encode(&mut self.buffer, batch, &self.tables, &mut new_tables, tables)?;
            let written = self.log.append(&self.buffer).and_then(|_| self.log.sync());
            match written {
                Ok(()) => {
                    self.tables.extend(new_tables);
                    self.note(batch);
                    return Ok(());
                },
                Err(error) => tracing::warn!(%error, "journal write failed, starting a segment"),
            }
        }
        self.roll_with(batch, tables)
    }

    /// Starts a new segment whose first lines are the batch.
    fn roll_with(&mut self, batch: &[Entry], tables: &dyn TableSource) -> Result<(), CommitError> {
        self.buffer.clear();
        let mut new_tables = Vec::new();
        encode(&mut self.buffer, batch, &HashSet::new(), &mut new_tables, tables)?;
        self.log.roll(&self.buffer).map_err(CommitError::Write)?;
        self.holds_unsaved = false;
        self.close_active();
        self.tables = new_tables.into_iter().collect();
        self.note(batch);
        Ok(())
    }

    fn close_active(&mut self) {
        // After a start on a full disk it was closed before, and may be sealed or gone by now.
        if self.active.state == SegmentState::Open {
            self.active.state = SegmentState::Closed;
            self.catalog.put(self.active.clone());
        }
        self.active = SegmentMeta::new(self.log.segment());
        self.began = None;
    }

    /// True when the active segment is large or old enough to be closed.
    pub fn is_due(&self, now: Micros) -> bool {
        let SegmentLimits { bytes_max, age_max } = self.config.segments;
        self.log.readable_bytes() >= bytes_max
            // A clock that was set back: its age cannot be told any more.
            || self.began.is_some_and(|began| now < began || now - began >= age_max)
    }

    /// Closes the active segment and writes a checkpoint, so that recovery starts after it.
    pub fn roll(&mut self, intake: &Intake) -> Result<(), CommitError> {
        self.check_reserve()?;
        self.roll_with(&[], &NoTables)?;
        self.checkpoint(intake);
        Ok(())
    }

    /// Writes what recovery would otherwise read from all closed segments. A failure costs only
    /// time at the next start.
    pub fn checkpoint(&self, intake: &Intake) {
        if self.holds_unsaved {
            // It would cover the last segment, whose end must be found again until it is safe.
            return;
        }
        let segments = self.catalog.segments().into_iter();
        let content = CheckpointRef {
            format: FORMAT,
            storage: self.storage,
            next_segment: self.log.segment(),
            segments: segments.filter(|meta| meta.state != SegmentState::Open).collect(),
            sessions: &self.sessions,
            last_receipt: self.last_receipt,
            intake,
        };
        if let Err(error) = checkpoint::write(self.disk.as_ref(), &self.config.dir, &content) {
            tracing::warn!(%error, "checkpoint not written");
        }
    }

    fn check_reserve(&self) -> Result<(), CommitError> {
        let reserve_bytes = self.config.disk_reserve_bytes;
        // A disk that cannot tell its free space still gets its chance to fail the write.
        match self.disk.free_bytes(&self.config.dir) {
            Ok(free_bytes) if free_bytes < reserve_bytes => {
                Err(CommitError::Reserve { free_bytes, reserve_bytes })
            },
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn note(&mut self, batch: &[Entry]) {
        for entry in batch {
            self.active.note_entry(entry);
            match entry {
                Entry::Record(record) => {
                    self.began.get_or_insert(record.receipt);
                    self.last_receipt = self.last_receipt.max(Some(record.receipt));
                },
                Entry::Session(spec) if spec.state == SessionState::Deleted => {
                    self.sessions.remove(&spec.id);
                },
                Entry::Session(spec) => {
                    self.sessions.insert(spec.id, (**spec).clone());
                },
                Entry::HostEvent(_)
                | Entry::Table(_)
                | Entry::Header(_)
                | Entry::Sync(_)
                | Entry::Incarnation(_) => {},
            }
        }
        self.active.bytes = self.log.readable_bytes();
        self.catalog.put(self.active.clone());
    }
}

/// Used where a batch holds no values.
struct NoTables;

impl TableSource for NoTables {
    fn table(&self, _key: &TableKey) -> Option<&Table> {
        None
    }
}

/// The table that a record's values need.
fn table_key(record: &StoredRecord) -> Option<TableKey> {
    match &record.body {
        Body::Values(values) => Some((record.node, record.incarnation, values.table)),
        _ => None,
    }
}

/// Lines of a batch, each table before its first use in the segment.
fn encode(
    buffer: &mut LineBuffer,
    batch: &[Entry],
    known: &HashSet<TableKey>,
    new: &mut Vec<TableKey>,
    tables: &dyn TableSource,
) -> Result<(), serde_json::Error> {
    let mut added: HashSet<TableKey> = HashSet::new();
    for entry in batch {
        if let Entry::Record(record) = entry
            && let Some(key) = table_key(record)
            && !known.contains(&key)
            && !added.contains(&key)
            && let Some(table) = tables.table(&key)
        {
            buffer.push(&Entry::Table(TableEntry::new(Some(key.0), key.1, table)))?;
            added.insert(key);
            new.push(key);
        }
        buffer.push(entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
