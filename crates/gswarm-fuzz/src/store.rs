//! A journal over a disk in memory: what goes in must come out, as lines and sealed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_store::catalog::SegmentState;
use gswarm_store::entry::{Entry, StoredRecord};
use gswarm_store::journal::{
    Journal, JournalConfig, OpenError, Recovered, SegmentLimits, TableKey, TableSource,
};
use gswarm_store::reader::Reader;
use gswarm_store::sealed;
use gswarm_store::{Disk, SimDisk};
use gswarm_types::{StorageId, Table};
use uuid::Uuid;

pub(crate) const JOURNAL: &str = "/data/journal";

#[derive(Default)]
pub(crate) struct Tables(pub(crate) HashMap<TableKey, Table>);

impl TableSource for Tables {
    fn table(&self, key: &TableKey) -> Option<&Table> {
        self.0.get(key)
    }
}

pub(crate) fn open(disk: &Arc<dyn Disk>) -> Result<Recovered, OpenError> {
    Journal::open(
        disk.clone(),
        JournalConfig {
            dir: PathBuf::from(JOURNAL),
            disk_reserve_bytes: 0,
            segments: SegmentLimits::default(),
            new_storage: StorageId::new(Uuid::nil()),
        },
    )
}

/// Every record that can be read of a journal, in an order that does not depend on segments.
pub(crate) fn records(disk: &Arc<dyn Disk>, journal: &Journal) -> Vec<String> {
    let reader = Reader::new(disk.clone(), journal.dir(), journal.catalog().clone());
    let mut records = Vec::new();
    for lease in reader.catalog().lease(|_| true) {
        reader
            .visit(lease.meta(), &mut |entry| {
                if let Entry::Record(record) = entry {
                    records.push(text(&record));
                }
            })
            .expect("a segment of the catalog can be read");
    }
    records.sort();
    records
}

pub(crate) fn text(record: &StoredRecord) -> String {
    serde_json::to_string(record).expect("records can be written")
}

/// Commits the records, opens the journal again and finds the same; then the same once sealed.
pub(crate) fn check_stored(stored: &[StoredRecord], tables: &Tables, seal: bool) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut expected: Vec<String> = stored.iter().map(text).collect();
    expected.sort();
    let mut recovered = open(&disk).expect("an empty journal opens");
    let batch: Vec<Entry> = stored.iter().cloned().map(Entry::Record).collect();
    recovered.journal.commit(&batch, tables).expect("the disk in memory takes the batch");
    assert_eq!(records(&disk, &recovered.journal), expected, "as committed");
    drop(recovered);
    let mut again = open(&disk).expect("what was committed opens");
    assert_eq!(again.damage, [], "nothing was damaged");
    assert_eq!(records(&disk, &again.journal), expected, "as recovered");
    if seal {
        again.journal.roll(&again.intake).expect("the disk in memory takes a segment");
        seal_all(&disk, &again.journal);
        assert_eq!(records(&disk, &again.journal), expected, "as sealed");
    }
}

fn seal_all(disk: &Arc<dyn Disk>, journal: &Journal) {
    let dir = Path::new(JOURNAL);
    for meta in journal.catalog().segments() {
        if meta.state != SegmentState::Closed {
            continue;
        }
        let prepared = sealed::prepare(disk.as_ref(), dir, &meta, journal.storage())
            .expect("what the host wrote can be sealed");
        let sealed = sealed::finish(disk.as_ref(), dir, &meta, &prepared)
            .expect("the disk in memory takes the sealed file");
        journal.catalog().put(sealed);
    }
}
