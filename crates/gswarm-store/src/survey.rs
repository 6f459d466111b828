//! What can really be read of the recording, to tell what a damaged file cost.

use std::collections::BTreeMap;

use gswarm_core::{IntervalSet, SourceKey};

use crate::entry::Entry;
use crate::reader::Reader;

/// The seqs of every record that can be read, in all segments but perhaps one.
pub fn readable_seqs(reader: &Reader, but: Option<u64>) -> BTreeMap<SourceKey, IntervalSet> {
    let mut found: BTreeMap<SourceKey, IntervalSet> = BTreeMap::new();
    for lease in reader.catalog().lease(|meta| Some(meta.number) != but) {
        let visited = reader.visit(lease.meta(), &mut |entry| {
            if let Entry::Record(record) = entry {
                let key = (record.node, record.incarnation);
                found.entry(key).or_default().insert(record.seq, record.time);
            }
        });
        if let Err(error) = visited {
            // Its records count as lost too, for nobody can read them; it is named when it is read.
            tracing::error!(segment = lease.meta().number, %error, "segment cannot be read");
        }
    }
    found
}
