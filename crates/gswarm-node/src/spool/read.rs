//! What the link asks of the spool: records in order, and where things stand.

use std::io;
use std::sync::Arc;

use gswarm_store::disk::fill;
use gswarm_store::log::segment_name;
use gswarm_types::{Incarnation, Micros, RECORD_BYTES_MAX, Record, Table, TableDigest};

use super::index::Held;
use super::lines::read_back;
use super::shared::SpoolView;
use super::{Spool, Times};

/// A record on its way to the host.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) ordinal: u64,
    pub(crate) record: Record,
    /// Of the line on disk.
    pub(crate) crc: u32,
    /// What the record's values belong to; other records have none.
    pub(crate) table: Option<(TableDigest, Arc<Table>)>,
}

/// Some records in the order of the spool.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) records: Vec<Outgoing>,
    /// Where the next batch begins.
    pub(crate) cursor: u64,
}

/// How much one batch may hold; it holds at least one record if there is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    pub(crate) records_max: usize,
    pub(crate) bytes_max: usize,
}

/// What must have been sent before a flush can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushTarget {
    pub(crate) incarnation: Incarnation,
    /// The last record made before the asked time; 0 when there is none.
    pub(crate) seq: u64,
    /// The cursor must be here or beyond.
    pub(crate) cursor: u64,
}

/// Whether host and spool mean the same record by the same seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreement {
    Same,
    Different,
}

impl Spool {
    /// Records from the cursor on that are still in memory; `None` when the disk has to be asked.
    pub(crate) fn fresh_batch(&mut self, cursor: u64, limits: BatchLimits) -> Option<Batch> {
        let wanted = self.wanted(cursor, limits);
        let is_fresh = |held: &Held| self.fresh.iter().any(|(ordinal, _)| *ordinal == held.ordinal);
        let next = wanted.last().filter(|_| wanted.iter().all(is_fresh))?.ordinal + 1;
        let records = wanted.iter().map(|held| self.take_fresh(held)).collect::<Option<_>>()?;
        Some(Batch { records, cursor: next })
    }

    /// Sent once, it is read from disk should it be needed again.
    fn take_fresh(&mut self, held: &Held) -> Option<Outgoing> {
        let place = self.fresh.iter().position(|(ordinal, _)| *ordinal == held.ordinal)?;
        let table = match held.table {
            Some(digest) => Some((digest, Arc::clone(self.tables.get(&digest)?))),
            None => None,
        };
        let (ordinal, record) = self.fresh.remove(place)?;
        Some(Outgoing { ordinal, record, crc: held.crc, table })
    }

    fn wanted(&self, cursor: u64, limits: BatchLimits) -> Vec<Held> {
        let mut wanted = Vec::new();
        let mut bytes = 0;
        for held in self.index.from(cursor).take(limits.records_max) {
            bytes += usize::try_from(held.len).unwrap_or(usize::MAX);
            if bytes > limits.bytes_max && !wanted.is_empty() {
                break;
            }
            wanted.push(*held);
        }
        wanted
    }

    /// Reads records from the cursor on. What cannot be read back is given up, by name.
    pub(crate) fn read_batch(&mut self, cursor: u64, limits: BatchLimits, at: Times) -> Batch {
        let wanted = self.wanted(cursor, limits);
        let mut batch = Batch {
            records: Vec::with_capacity(wanted.len()),
            cursor: wanted
                .last()
                .map_or_else(|| self.index.next_ordinal(), |held| held.ordinal + 1),
        };
        let mut damaged = Vec::new();
        for held in wanted {
            match self.read_one(&held) {
                Some(outgoing) => batch.records.push(outgoing),
                None => damaged.push(held),
            }
        }
        if !damaged.is_empty() {
            self.lose_damaged(&damaged, at);
        }
        batch
    }

    fn read_one(&mut self, held: &Held) -> Option<Outgoing> {
        // No agent writes such a line, and no message could carry it: it would stop all behind it.
        if held.len as usize > RECORD_BYTES_MAX {
            tracing::warn!(seq = held.seq, bytes = held.len, "record too long to be sent");
            return None;
        }
        let line = match self.read_line(held) {
            Ok(line) => line,
            Err(error) => {
                tracing::warn!(%error, seq = held.seq, "record not read back");
                return None;
            },
        };
        let record = read_back(&line, held.crc)?;
        let table = match held.table {
            Some(digest) => Some((digest, Arc::clone(self.tables.get(&digest)?))),
            None => None,
        };
        Some(Outgoing { ordinal: held.ordinal, record, crc: held.crc, table })
    }

    fn read_line(&mut self, held: &Held) -> io::Result<Vec<u8>> {
        let segment = held.at.segment;
        if self.reader.as_ref().is_none_or(|(open, _)| *open != segment) {
            let file = self.disk.open(&self.dir.join(segment_name(segment)))?;
            self.reader = Some((segment, file));
        }
        let (_, file) = self.reader.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut line = vec![0; usize::try_from(held.len).unwrap_or(0)];
        let read = fill(file.as_ref(), &mut line, held.at.offset)?;
        if read == line.len() { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The place of the first held record that uses the table.
    pub(crate) fn first_using(&self, incarnation: Incarnation, digest: TableDigest) -> Option<u64> {
        self.index
            .from(0)
            .find(|held| held.incarnation == incarnation && held.table == Some(digest))
            .map(|held| held.ordinal)
    }

    /// The last record of the running incarnation that was made before the time.
    pub(crate) fn flush_target(&self, until: Micros) -> FlushTarget {
        let current =
            || self.index.newest_first().take_while(|h| h.incarnation == self.incarnation);
        let last = self.next_seq - 1;
        match current().find(|held| held.mono < until) {
            Some(held) => FlushTarget {
                incarnation: self.incarnation,
                seq: held.seq,
                cursor: held.ordinal + 1,
            },
            // Everything before the oldest held record has reached the host or has its reason.
            None => FlushTarget {
                incarnation: self.incarnation,
                seq: current().last().map_or(last, |oldest| oldest.seq.saturating_sub(1)),
                cursor: 0,
            },
        }
    }

    /// Compares the host's newest record of the running incarnation with ours.
    pub(crate) fn compare(&self, seq: u64, crc: u32) -> Agreement {
        if seq >= self.next_seq {
            return Agreement::Different;
        }
        let ours = self.recent.iter().rev().find(|(recent, _)| *recent == seq);
        match ours {
            Some((_, ours)) if *ours != crc => Agreement::Different,
            Some(_) | None => Agreement::Same,
        }
    }

    pub(crate) fn view(&self) -> SpoolView {
        SpoolView {
            incarnation: self.incarnation,
            last_seq: self.next_seq - 1,
            next_ordinal: self.index.next_ordinal(),
            records: self.index.len(),
            bytes: self.index.bytes(self.active()),
            counters: self.counters,
            held: self.index.ranges(),
        }
    }
}
