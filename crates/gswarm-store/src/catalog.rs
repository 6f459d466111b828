//! Which segments exist, what they cover, and who is reading them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gswarm_types::Micros;
use serde::{Deserialize, Serialize};

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
    /// Host times of its records.
    pub first_time: Option<Micros>,
    pub last_time: Option<Micros>,
    pub last_receipt: Option<Micros>,
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
        }
    }

    /// Takes note of a record.
    pub fn note(&mut self, time: Micros, receipt: Micros) {
        self.records += 1;
        self.first_time = Some(self.first_time.map_or(time, |first| first.min(time)));
        self.last_time = Some(self.last_time.map_or(time, |last| last.max(time)));
        self.last_receipt = Some(self.last_receipt.map_or(receipt, |last| last.max(receipt)));
    }

    /// True when a record of the window `from..until` may be in it.
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
}

/// Shared by the writer, readers, the sealer and retention.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    rows: Arc<Mutex<BTreeMap<u64, Row>>>,
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

impl Catalog {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<u64, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or updates a segment.
    pub fn put(&self, meta: SegmentMeta) {
        let mut rows = self.rows();
        match rows.get_mut(&meta.number) {
            Some(row) => row.meta = meta,
            None => {
                rows.insert(meta.number, Row { meta, readers: 0 });
            },
        }
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentMeta> {
        self.rows().values().map(|row| row.meta.clone()).collect()
    }

    /// Leases every segment that passes, oldest first.
    pub fn lease(&self, mut wanted: impl FnMut(&SegmentMeta) -> bool) -> Vec<Lease> {
        let mut rows = self.rows();
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
        let mut rows = self.rows();
        let row = rows.get_mut(&number)?;
        if row.readers > 0 {
            return None;
        }
        Some(match act(&row.meta) {
            Ok(Some(meta)) => {
                row.meta = meta;
                Ok(())
            },
            Ok(None) => {
                rows.remove(&number);
                Ok(())
            },
            Err(error) => Err(error),
        })
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
}
