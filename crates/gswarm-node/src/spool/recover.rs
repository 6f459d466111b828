//! Reading the spool back: every valid record that the host has not, and what is missing between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use gswarm_store::Disk;
use gswarm_store::log::{Durability, LineAt, LogScan, ScanError, scan_log, segment_number};
use gswarm_types::{
    Body, GapReason, Incarnation, Record, SpoolLoss, StorageId, Table, TableDigest,
};

use super::index::{Held, Index};
use super::lines::{IncarnationMark, LineIn, parse};

/// What the disk held.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) index: Index,
    pub(super) tables: BTreeMap<TableDigest, Arc<Table>>,
    pub(super) scan: LogScan,
    pub(super) missing: Vec<SpoolLoss>,
}

#[derive(Debug, Default)]
struct Reader {
    acked: BTreeMap<Incarnation, u64>,
    index: Index,
    tables: BTreeMap<TableDigest, Arc<Table>>,
    boots: BTreeMap<Incarnation, String>,
    /// Runs of seqs that ought to be there.
    missing: Vec<(Incarnation, u64, u64)>,
    /// Losses that were named before.
    named: Vec<SpoolLoss>,
    expect: Option<(Incarnation, u64)>,
    segment: u64,
    /// Incarnations whose last record says that it is one.
    ended: BTreeSet<Incarnation>,
    /// The highest seq of each incarnation that the disk held.
    last: BTreeMap<Incarnation, u64>,
    /// Segments that have a file, whatever is in it.
    present: BTreeSet<u64>,
    /// The segment before has a file with nothing readable in it.
    after_ruin: bool,
}

/// `acked` gives the last seq of each incarnation up to which everything was acknowledged.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    acked: BTreeMap<Incarnation, u64>,
    storage: StorageId,
    boot_id: &str,
) -> Result<Recovered, ScanError> {
    let read_error = |source| ScanError::Read { path: dir.to_owned(), source };
    let names = disk.list(dir).map_err(read_error)?;
    let present = names.iter().filter_map(|name| segment_number(name)).collect();
    let mut reader = Reader { acked, present, ..Reader::default() };
    let visit = &mut |line: LineAt<'_>| reader.visit(&line);
    let scan = scan_log(disk, dir, 0, Durability::Written, storage, visit)?;
    for (segment, bytes) in &scan.segments {
        reader.index.set_segment_bytes(*segment, *bytes);
    }
    let orphans = reader.drop_without_table();
    reader.index.lend_tables();
    let reason =
        if scan.damage.is_empty() { GapReason::SpoolError } else { GapReason::SpoolDamaged };
    let mut missing: Vec<SpoolLoss> = reader
        .missing
        .iter()
        .filter_map(|(incarnation, first, last)| reader.unnamed(*incarnation, *first, *last))
        .map(|(incarnation, first, last)| SpoolLoss { incarnation, first, last, reason })
        .collect();
    missing.extend(orphans);
    missing.extend(reader.open_ends(boot_id));
    Ok(Recovered { index: reader.index, tables: reader.tables, scan, missing })
}

impl Reader {
    fn visit(&mut self, line: &LineAt<'_>) {
        if line.position.segment != self.segment {
            // What lay between two files that do not follow each other was let go on purpose; what
            // lay in a file that a power loss emptied was not.
            let is_next = line.position.segment == self.segment + 1;
            self.after_ruin = !is_next && self.present.contains(&(line.position.segment - 1));
            if !is_next && !self.after_ruin {
                self.expect = None;
            }
            self.segment = line.position.segment;
        }
        match parse(line.bytes) {
            Some(LineIn::Record(record)) => self.record(line, &record),
            Some(LineIn::Table(entry)) => {
                let digest = entry.digest;
                let table = entry.into_table();
                if table.digest() == digest {
                    self.index.add_table(self.segment, digest);
                    self.tables.entry(digest).or_insert_with(|| Arc::new(table));
                }
            },
            Some(LineIn::Incarnation(mark)) => self.mark(mark),
            None => {},
        }
    }

    fn mark(&mut self, mark: IncarnationMark) {
        if self.after_ruin && self.expect.is_none_or(|(before, _)| before != mark.incarnation) {
            // Nobody knows where it began; hosts look only for what they miss.
            self.expect = Some((mark.incarnation, 1));
        }
        self.miss_until(mark.incarnation, mark.next);
        self.expect = Some((mark.incarnation, mark.next));
        self.note_last(mark.incarnation, mark.next.saturating_sub(1));
        self.boots.insert(mark.incarnation, mark.boot_id);
    }

    fn note_last(&mut self, incarnation: Incarnation, seq: u64) {
        let last = self.last.entry(incarnation).or_default();
        *last = seq.max(*last);
    }

    fn record(&mut self, line: &LineAt<'_>, record: &Record) {
        let (incarnation, seq) = (record.incarnation, record.seq);
        let expected = self.expect.filter(|(expected, _)| *expected == incarnation);
        if expected.is_some_and(|(_, next)| seq < next) {
            return;
        }
        self.miss_until(incarnation, seq);
        self.expect = Some((incarnation, seq.saturating_add(1)));
        self.note_last(incarnation, seq);
        let loss = match &record.body {
            Body::Loss(loss) => Some(*loss),
            _ => None,
        };
        self.named.extend(loss);
        if matches!(record.body, Body::End) {
            self.ended.insert(incarnation);
        }
        if self.acked.get(&incarnation).is_some_and(|through| seq <= *through) {
            return;
        }
        let boot_id = self.boots.get(&incarnation).map_or("", String::as_str);
        self.index.begin_group(incarnation, boot_id);
        let held = Held {
            ordinal: 0,
            incarnation,
            seq,
            mono: record.mono,
            at: line.position,
            len: u32::try_from(line.bytes.len()).unwrap_or(u32::MAX),
            crc: line.crc,
            table: match &record.body {
                Body::Values(values) => Some(values.table),
                _ => None,
            },
        };
        self.index.push(held, loss);
    }

    /// Notes what should have come before this seq.
    fn miss_until(&mut self, incarnation: Incarnation, seq: u64) {
        if let Some((expected, next)) = self.expect
            && expected == incarnation
            && next < seq
        {
            self.missing.push((incarnation, next, seq - 1));
        }
    }

    /// Values whose table is nowhere to be found cannot be sent.
    fn drop_without_table(&mut self) -> Vec<SpoolLoss> {
        let tables = &self.tables;
        let gone = self
            .index
            .free_where(|held| held.table.is_some_and(|digest| !tables.contains_key(&digest)));
        gone.iter()
            .map(|held| SpoolLoss {
                incarnation: held.incarnation,
                first: held.seq,
                last: held.seq,
                reason: GapReason::SpoolDamaged,
            })
            .collect()
    }

    /// Runs of an earlier boot that did not end in peace: the node may have lost power, and with it
    /// what its kernel had not yet written.
    fn open_ends(&self, boot_id: &str) -> Vec<SpoolLoss> {
        let crashed = self.boots.iter().filter(|(incarnation, boot)| {
            *boot != boot_id
                && !self.ended.contains(incarnation)
                && !self
                    .named
                    .iter()
                    .any(|loss| loss.incarnation == **incarnation && loss.is_open())
        });
        crashed
            .map(|(incarnation, _)| SpoolLoss {
                incarnation: *incarnation,
                first: self.last.get(incarnation).copied().unwrap_or(0).saturating_add(1),
                last: SpoolLoss::OPEN_END,
                reason: GapReason::NodeCrash,
            })
            .collect()
    }

    /// The part of a missing run that was neither acknowledged nor given a reason.
    fn unnamed(
        &self,
        incarnation: Incarnation,
        first: u64,
        last: u64,
    ) -> Option<(Incarnation, u64, u64)> {
        let acked = self.acked.get(&incarnation).copied().unwrap_or(0);
        let first = first.max(acked.saturating_add(1));
        let named = self.named.iter().any(|loss| {
            loss.incarnation == incarnation && loss.first <= first && loss.last >= last
        });
        (first <= last && !named).then_some((incarnation, first, last))
    }
}
