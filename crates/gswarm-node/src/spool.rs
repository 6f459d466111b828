//! The spool: every record on local disk from the moment it is made until the host has it.
//!
//! Only an index is in memory. Each segment names its incarnation and carries the tables that its
//! records use, so that segments can be deleted one by one.

mod ack_file;
mod cut;
mod index;
mod lines;
mod losses;
mod read;
mod recover;
mod settle;
mod shared;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gswarm_store::disk::ReadAt;
use gswarm_store::entry::TableEntry;
use gswarm_store::log::{Durability, Log, LogScan, Position, ScanError, segment_name};
use gswarm_store::{Disk, LineBuffer};
use gswarm_types::{
    Body, GapReason, Incarnation, Micros, RECORD_BYTES_MAX, Record, StorageId, Table, TableDigest,
};

use self::index::{Held, Index};
use self::lines::{IncarnationMark, LineOut};
use self::losses::Losses;
use self::settle::cut_event;

pub(crate) use self::index::HeldRange;
pub(crate) use self::read::{Agreement, Batch, BatchLimits, FlushTarget, Outgoing};
pub(crate) use self::settle::damage_event;
pub(crate) use self::shared::{SharedSpool, SpoolView};

/// A segment ends at this size at the latest, so that acknowledged ones can go.
const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A segment ends after this many records at the latest.
const SEGMENT_RECORDS_MAX: usize = 1_000;
/// A full spool lets go of its records in about this many steps.
const SEGMENTS_PER_SPOOL: usize = 16;
/// Newest records whose checksums are remembered after they left, to compare with the host's.
const RECENT_MAX: usize = 1_024;
/// Newest records that need not be read back from disk.
const FRESH_MAX: usize = 4;

/// How much a spool may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolLimits {
    pub records_max: usize,
    pub bytes_max: u64,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self { records_max: 10_000, bytes_max: 256 * 1024 * 1024 }
    }
}

/// When a record was made, on both clocks of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) mono: Micros,
    pub(crate) wall: Micros,
}

/// What a spool needs to open.
#[derive(Debug)]
pub(crate) struct SpoolParts {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) limits: SpoolLimits,
    pub(crate) storage: StorageId,
    pub(crate) incarnation: Incarnation,
    pub(crate) boot_id: String,
}

/// Why a record is not in the spool. Its seq is a hole that will be explained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    #[error("the spool cannot take a record")]
    Write(#[from] io::Error),
    #[error("the agent has stopped")]
    Ended,
}

/// Numbers since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) minted: u64,
    pub(crate) acked: u64,
    pub(crate) dropped: u64,
    pub(crate) errors: u64,
}

#[derive(Debug)]
pub(crate) struct Spool {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    limits: SpoolLimits,
    segment_records_max: usize,
    segment_bytes_max: u64,
    /// `None` until the first write succeeds.
    log: Option<Log>,
    /// Where the log begins.
    scan: LogScan,
    segment_records: usize,
    index: Index,
    tables: BTreeMap<TableDigest, Arc<Table>>,
    /// Reasons that no record names yet.
    losses: Losses,
    incarnation: Incarnation,
    boot_id: String,
    next_seq: u64,
    recent: VecDeque<(u64, u32)>,
    /// The newest records by ordinal, as long as they have not been sent: most are sent at once.
    fresh: VecDeque<(u64, Record)>,
    lines: LineBuffer,
    reader: Option<(u64, Box<dyn ReadAt>)>,
    counters: Counters,
    /// A segment began, so that reasons and acknowledgements are due to be written.
    rolled: bool,
    /// The incarnation changed: the next record begins a segment.
    roll_due: bool,
    overflowing: bool,
    ended: bool,
}

impl Spool {
    /// Recovers what the directory holds and begins an incarnation after it.
    pub(crate) fn open(parts: SpoolParts) -> Result<Self, ScanError> {
        let SpoolParts { disk, dir, limits, storage, incarnation, boot_id } = parts;
        let read_error = |source| ScanError::Read { path: dir.clone(), source };
        disk.create_dir_all(&dir).map_err(read_error)?;
        let acked = ack_file::read(disk.as_ref(), &dir);
        let recovered = recover::recover(disk.as_ref(), &dir, acked, storage, &boot_id)?;
        let share = limits.bytes_max / SEGMENTS_PER_SPOOL as u64;
        let mut spool = Self {
            segment_records_max: (limits.records_max / SEGMENTS_PER_SPOOL)
                .clamp(1, SEGMENT_RECORDS_MAX),
            segment_bytes_max: share.clamp(1, SEGMENT_BYTES_MAX),
            disk,
            dir,
            limits,
            log: None,
            scan: recovered.scan,
            segment_records: 0,
            index: recovered.index,
            tables: recovered.tables,
            losses: Losses::default(),
            incarnation,
            boot_id,
            next_seq: 1,
            recent: VecDeque::new(),
            fresh: VecDeque::new(),
            lines: LineBuffer::new(),
            reader: None,
            counters: Counters::default(),
            rolled: false,
            roll_due: false,
            overflowing: false,
            ended: false,
        };
        for loss in recovered.missing {
            spool.losses.add(loss);
        }
        spool.index.begin_group(incarnation, &spool.boot_id);
        // What nobody has named yet is found again at the next start, as long as its files are here.
        if spool.losses.is_empty() {
            spool.remove_segments(&spool.index.emptied(None));
        }
        Ok(spool)
    }

    /// What the recovery found broken, in words; `None` when all was well.
    pub(crate) fn damage(&self) -> Option<String> {
        let bytes: u64 = self.scan.damage.iter().map(|damage| damage.bytes).sum();
        let first = self.scan.damage.first()?;
        Some(format!(
            "{bytes} bytes in {} places of the spool were damaged, first in `{}` at byte {}",
            self.scan.damage.len(),
            segment_name(first.segment),
            first.offset
        ))
    }

    /// Makes a table known; every segment that uses it will carry it.
    pub(crate) fn offer_table(&mut self, digest: TableDigest, table: &Arc<Table>) {
        self.tables.entry(digest).or_insert_with(|| Arc::clone(table));
    }

    /// Mints a seq and writes the record. Whatever happens, the seq is used up.
    pub(crate) fn append(&mut self, at: Times, body: Body) -> Result<u64, AppendError> {
        if self.ended {
            return Err(AppendError::Ended);
        }
        let put = self.put(at, body);
        if put.is_ok() {
            self.settle(at, false);
        }
        Ok(put?)
    }

    /// The last record of the incarnation; nothing can be appended after it.
    pub(crate) fn end(&mut self, at: Times) {
        if self.ended {
            return;
        }
        self.settle(at, true);
        // Over the limit by a few rather than without their reason.
        while !self.losses.is_empty() && self.write_losses(at) {}
        if self.put(at, Body::End).is_err() {
            tracing::warn!("the end of the recording could not be written");
        }
        self.remove_segments(&self.index.emptied(self.active()));
        self.ended = true;
    }

    /// Gives the reasons for everything that was lost so far, before a host is told what is held.
    pub(crate) fn explain(&mut self, at: Times) {
        self.settle(at, true);
    }

    /// The host has everything up to this ordinal.
    pub(crate) fn ack_through(&mut self, ordinal: u64, at: Times) {
        let freed = self.index.free_through(ordinal);
        self.acked(freed, at);
    }

    /// The same without a look at the disk; false when that is needed.
    pub(crate) fn ack_in_memory(&mut self, ordinal: u64) -> bool {
        if self.needs_reasons() {
            return false;
        }
        // Files that this empties go with the next record.
        let freed = self.index.free_through(ordinal);
        self.counters.acked += freed as u64;
        self.overflowing &= freed == 0;
        true
    }

    /// The host has had these for longer than this stream.
    pub(crate) fn ack_held(
        &mut self,
        incarnation: Incarnation,
        intervals: &[(u64, u64)],
        at: Times,
    ) {
        let freed = self.index.free_where(|held| {
            held.incarnation == incarnation
                && intervals.iter().any(|(first, last)| (*first..=*last).contains(&held.seq))
        });
        self.acked(freed.len(), at);
    }

    fn acked(&mut self, freed: usize, at: Times) {
        self.counters.acked += freed as u64;
        self.overflowing &= freed == 0;
        self.settle(at, false);
    }

    /// Goes on under another incarnation, from seq 1.
    pub(crate) fn renew(&mut self, incarnation: Incarnation) {
        if self.ended {
            return;
        }
        self.incarnation = incarnation;
        self.next_seq = 1;
        self.recent.clear();
        self.roll_due = true;
        self.index.begin_group(incarnation, &self.boot_id);
    }

    /// Remembers on disk what the host has.
    pub(crate) fn persist_acks(&self) {
        if !self.losses.is_empty() {
            // Dropped records without a written reason are found again at the next start.
            return;
        }
        let through = self
            .index
            .ranges()
            .into_iter()
            .map(|range| (range.incarnation, range.oldest_held.saturating_sub(1)));
        if let Err(error) = ack_file::write(self.disk.as_ref(), &self.dir, through) {
            tracing::warn!(%error, "acknowledgements could not be written down");
        }
    }

    fn put(&mut self, at: Times, body: Body) -> io::Result<u64> {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.counters.minted += 1;
        self.index.note_last(seq);
        let record =
            Record { incarnation: self.incarnation, seq, mono: at.mono, wall: at.wall, body };
        match self.write(record) {
            Ok(None) => Ok(seq),
            Ok(Some(gone)) => {
                self.put(at, Body::Event(cut_event(seq, gone)))?;
                Ok(seq)
            },
            Err(error) => {
                self.counters.errors += 1;
                self.losses.add_seq(self.incarnation, seq, GapReason::SpoolError);
                Err(error)
            },
        }
    }

    /// Writes the record, with its table if the segment lacks it. Returns how much was cut off.
    fn write(&mut self, mut record: Record) -> io::Result<Option<usize>> {
        let segment = self.ready_segment()?;
        let table = match &record.body {
            Body::Values(values) => Some(values.table),
            _ => None,
        };
        let new_table = table.filter(|digest| !self.index.has_table(segment, *digest));
        let mut cut = None;
        let (crc, record_at) = loop {
            self.lines.clear();
            if let Some(digest) = new_table {
                let table = self.tables.get(&digest).ok_or(io::ErrorKind::InvalidInput)?;
                let entry = TableEntry::new(None, self.incarnation, table);
                self.lines.push(&LineOut::Table(&entry))?;
            }
            let record_at = self.lines.len();
            let crc = self.lines.push(&LineOut::Record(&record))?;
            if self.lines.len() - record_at <= RECORD_BYTES_MAX {
                break (crc, record_at);
            }
            let (body, gone) = cut::halve(record.body).ok_or(io::ErrorKind::FileTooLarge)?;
            record.body = body;
            cut = Some(cut.unwrap_or(0) + gone);
        };
        let log = self.log.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut position = log.append(&self.lines)?;
        self.index.grow_segment(segment, self.lines.len() as u64);
        if let Some(digest) = new_table {
            self.index.add_table(segment, digest);
        }
        position.offset += record_at as u64;
        self.hold(record, position, crc, self.lines.len() - record_at - 1);
        Ok(cut)
    }

    fn hold(&mut self, record: Record, at: Position, crc: u32, len: usize) {
        let (table, loss) = match &record.body {
            Body::Values(values) => (Some(values.table), None),
            Body::Loss(loss) => (None, Some(*loss)),
            _ => (None, None),
        };
        let held = Held {
            ordinal: 0,
            incarnation: record.incarnation,
            seq: record.seq,
            mono: record.mono,
            at,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            crc,
            table,
        };
        let ordinal = self.index.next_ordinal();
        self.index.push(held, loss);
        self.segment_records += 1;
        self.recent.push_back((record.seq, crc));
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        self.fresh.push_back((ordinal, record));
        if self.fresh.len() > FRESH_MAX {
            self.fresh.pop_front();
        }
    }

    /// The segment that takes the next record; begins one where that is due.
    fn ready_segment(&mut self) -> io::Result<u64> {
        let is_due = self.log.as_ref().is_none_or(|log| {
            self.roll_due
                || log.is_broken()
                || self.segment_records >= self.segment_records_max
                || log.readable_bytes() >= self.segment_bytes_max
        });
        if is_due {
            self.begin_segment()?;
        }
        self.log.as_ref().map(Log::segment).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        // Written before the record that needs it, whose seq is already minted.
        let next = self.next_seq.saturating_sub(1);
        let mark =
            IncarnationMark { incarnation: self.incarnation, boot_id: self.boot_id.clone(), next };
        let mut initial = LineBuffer::new();
        initial.push(&LineOut::Incarnation(&mark))?;
        match &mut self.log {
            Some(log) => log.roll(&initial)?,
            None => {
                let disk = Arc::clone(&self.disk);
                let log = Log::start(disk, &self.dir, &self.scan, Durability::Written, &initial)?;
                self.log = Some(log);
            },
        }
        if let Some(log) = &mut self.log {
            // Rare, and what makes a power loss known: the next start sees that this run was there.
            if let Err(error) = log.sync().and_then(|()| self.disk.sync_dir(&self.dir)) {
                tracing::warn!(%error, "the beginning of a spool segment is not on stable storage");
            }
            self.index.set_segment_bytes(log.segment(), log.readable_bytes());
        }
        self.segment_records = 0;
        self.roll_due = false;
        self.rolled = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
