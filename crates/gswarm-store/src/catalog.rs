//! Which segments exist, what they cover, and who is reading them.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gswarm_types::Micros;
use serde::{Deserialize, Serialize};

use crate::entry::Entry;

/// How a segment lies on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentState {
    /// Being written: JSONL, readable up to `bytes`.
    Open,
    /// Complete: JSONL.
    Closed,
    /// Parquet.
    Sealed,
}

/// What is known of one segment without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentMeta {
    pub number: u64,
    pub state: SegmentState,
    /// Bytes on disk; for JSONL also where its readable part ends.
    pub bytes: u64,
    pub records: u64,
    /// Host times of its records and host events.
    pub first_time: Option<Micros>,
    pub last_time: Option<Micros>,
    pub last_receipt: Option<Micros>,
    /// Checksum in the name of the sealed file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_crc: Option<u32>,
    /// Checksum of the pins it was cut down to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trimmed_to: Option<u32>,
}

impl SegmentMeta {
    pub fn new(number: u64) -> Self {
        Self {
            number,
            state: SegmentState::Open,
            bytes: 0,
            records: 0,
            first_time: None,
            last_time: None,
            last_receipt: None,
            sealed_crc: None,
            trimmed_to: None,
        }
    }

    /// Takes note of a record.
    pub fn note(&mut self, time: Micros, receipt: Micros) {
        self.records += 1;
        self.reach(time);
        self.last_receipt = Some(self.last_receipt.map_or(receipt, |last| last.max(receipt)));
    }

    /// Takes note of whatever has a host time.
    pub(crate) fn note_entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Record(record) => self.note(record.time, record.receipt),
            Entry::HostEvent(event) => self.reach(event.time),
            Entry::Header(_)
            | Entry::Sync(_)
            | Entry::Table(_)
            | Entry::Session(_)
            | Entry::Incarnation(_) => {},
        }
    }

    fn reach(&mut self, time: Micros) {
        self.first_time = Some(self.first_time.map_or(time, |first| first.min(time)));
        self.last_time = Some(self.last_time.map_or(time, |last| last.max(time)));
    }

    /// True when a record or host event of the window `from..until` may be in it.
    pub fn overlaps(&self, from: Micros, until: Micros) -> bool {
        match (self.first_time, self.last_time) {
            (Some(first), Some(last)) => first < until && last >= from,
            _ => false,
        }
    }
}

#[derive(Debug)]
struct Row {
    meta: SegmentMeta,
    readers: usize,
    /// Somebody replaces or removes it right now.
    is_taken: bool,
}

/// Shared by the writer, readers, the sealer and retention.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    rows: Mutex<BTreeMap<u64, Row>>,
    /// A taken segment was given back.
    given_back: Condvar,
}

/// While it lives, the segment is neither removed nor replaced.
#[derive(Debug)]
pub struct Lease {
    catalog: Catalog,
    meta: SegmentMeta,
}

impl Lease {
    /// The segment as it was when it was leased.
    pub fn meta(&self) -> &SegmentMeta {
        &self.meta
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(row) = self.catalog.rows().get_mut(&self.meta.number) {
            row.readers = row.readers.saturating_sub(1);
        }
    }
}

/// Gives a segment back even when the work on it panics.
struct Taken<'a> {
    catalog: &'a Catalog,
    number: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(row) = self.catalog.rows().get_mut(&self.number) {
            row.is_taken = false;
        }
        self.catalog.shared.given_back.notify_all();
    }
}

impl Catalog {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<u64, Row>> {
        self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or updates a segment.
    pub fn put(&self, meta: SegmentMeta) {
        let mut rows = self.rows();
        match rows.get_mut(&meta.number) {
            Some(row) => row.meta = meta,
            None => {
                rows.insert(meta.number, Row { meta, readers: 0, is_taken: false });
            },
        }
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentMeta> {
        self.rows().values().map(|row| row.meta.clone()).collect()
    }

    /// Leases every segment that passes, oldest first. Waits while one of them is being replaced,
    /// which takes a rename and a sync.
    pub fn lease(&self, mut wanted: impl FnMut(&SegmentMeta) -> bool) -> Vec<Lease> {
        let mut rows = self.rows();
        while rows.values().any(|row| row.is_taken && wanted(&row.meta)) {
            rows = self.shared.given_back.wait(rows).unwrap_or_else(PoisonError::into_inner);
        }
        let mut leases = Vec::new();
        for row in rows.values_mut().filter(|row| wanted(&row.meta)) {
            row.readers += 1;
            leases.push(Lease { catalog: self.clone(), meta: row.meta.clone() });
        }
        leases
    }

    /// Runs `act` with nobody reading the segment and nobody able to begin; `None` when somebody
    /// is reading. When `act` succeeds the row becomes what it returns, or goes.
    pub fn alone<E>(
        &self,
        number: u64,
        act: impl FnOnce(&SegmentMeta) -> Result<Option<SegmentMeta>, E>,
    ) -> Option<Result<(), E>> {
        let meta = {
            let mut rows = self.rows();
            let row = rows.get_mut(&number)?;
            if row.readers > 0 || row.is_taken {
                return None;
            }
            row.is_taken = true;
            row.meta.clone()
        };
        // The disk works without the lock: commits put their own segment meanwhile.
        let taken = Taken { catalog: self, number };
        let result = act(&meta);
        let mut rows = self.rows();
        let result = result.map(|meta| match meta {
            Some(meta) => {
                if let Some(row) = rows.get_mut(&number) {
                    row.meta = meta;
                }
            },
            None => {
                rows.remove(&number);
            },
        });
        drop(rows);
        drop(taken);
        Some(result)
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.rows().values().map(|row| row.meta.bytes).sum()
    }

    /// Host time of the oldest record that is kept.
    pub fn oldest(&self) -> Option<Micros> {
        self.rows().values().filter_map(|row| row.meta.first_time).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_keeps_a_segment() {
        let catalog = Catalog::default();
        catalog.put(SegmentMeta::new(1));
        let leases = catalog.lease(|_| true);
        assert!(catalog.alone(1, |_| Ok::<_, ()>(None)).is_none());
        drop(leases);
        assert_eq!(catalog.alone(1, |_| Ok::<_, ()>(None)), Some(Ok(())));
        assert!(catalog.segments().is_empty());
    }

    #[test]
    fn the_writer_goes_on_while_a_segment_is_replaced() {
        let catalog = Catalog::default();
        catalog.put(SegmentMeta::new(1));
        let result = catalog.alone(1, |meta| {
            catalog.put(SegmentMeta::new(2));
            assert!(catalog.alone(1, |_| Ok::<_, ()>(None)).is_none(), "taken once only");
            assert_eq!(catalog.lease(|meta| meta.number == 2).len(), 1);
            Ok::<_, ()>(Some(SegmentMeta { bytes: 7, ..meta.clone() }))
        });
        assert_eq!(result, Some(Ok(())));
        assert_eq!(catalog.bytes(), 7);
        assert_eq!(catalog.lease(|_| true).len(), 2);
    }

    #[test]
    fn a_reader_waits_until_the_segment_is_given_back() {
        let catalog = Catalog::default();
        catalog.put(SegmentMeta::new(1));
        std::thread::scope(|threads| {
            let reader = catalog.alone(1, |meta| {
                let reader = threads.spawn(|| catalog.lease(|_| true).len());
                Err::<Option<SegmentMeta>, _>((reader, meta.number))
            });
            let Some(Err((reader, 1))) = reader else { panic!("the work ran") };
            assert_eq!(reader.join().unwrap(), 1);
        });
    }
}
