//! Doors to parsers inside this crate for `gswarm-fuzz`; nobody else calls them.

use std::path::Path;
use std::sync::Arc;

use gswarm_store::Disk;
use gswarm_store::log::ScanError;
use gswarm_types::{Incarnation, Micros, NodeId, Record, StorageId, Table};
use uuid::Uuid;

use crate::spool::{BatchLimits, Spool, SpoolLimits, SpoolParts, Times};
use crate::state::{self, StateError};

/// What a spool would send to a host.
#[derive(Debug, Clone, PartialEq)]
pub struct SpoolContent {
    /// In the order of sending.
    pub records: Vec<SpooledRecord>,
    /// The damage in words, `None` when there was none.
    pub damage: Option<String>,
}

/// One record with the checksum of its line and the table of its values.
#[derive(Debug, Clone, PartialEq)]
pub struct SpooledRecord {
    pub record: Record,
    pub crc: u32,
    pub table: Option<Arc<Table>>,
}

/// Opens the spool of a directory as an agent does and reads everything that is to be sent.
pub fn open_spool(disk: Arc<dyn Disk>, dir: &Path) -> Result<SpoolContent, ScanError> {
    let mut spool = Spool::open(SpoolParts {
        disk,
        dir: dir.to_owned(),
        limits: SpoolLimits::default(),
        storage: StorageId::new(Uuid::nil()),
        incarnation: Incarnation(u64::MAX),
        boot_id: "fuzz".to_owned(),
    })?;
    let limits = BatchLimits { records_max: usize::MAX, bytes_max: usize::MAX };
    let batch = spool.read_batch(0, limits, Times { mono: Micros(1), wall: Micros(1) });
    let records = batch.records.into_iter().map(|outgoing| SpooledRecord {
        record: outgoing.record,
        crc: outgoing.crc,
        table: outgoing.table.map(|(_, table)| table),
    });
    Ok(SpoolContent { records: records.collect(), damage: spool.damage() })
}

/// Who a node is, as its state directory says.
pub fn open_state(
    disk: &dyn Disk,
    state_dir: &Path,
    new_node_id: NodeId,
) -> Result<NodeId, StateError> {
    state::open(disk, state_dir, "machine", new_node_id).map(|state| state.node_id)
}
