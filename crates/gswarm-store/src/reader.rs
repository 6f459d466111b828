//! Reading entries of the recording, whatever form their segment has.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_types::Micros;

use crate::catalog::{Catalog, Lease, SegmentMeta, SegmentState};
use crate::disk::Disk;
use crate::entry::Entry;
use crate::log::{scan_segment, segment_name};
use crate::sealed::{self, SealError};

/// The reading end of a journal; cheap to clone, usable while the journal is written.
#[derive(Debug, Clone)]
pub struct Reader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    catalog: Catalog,
}

impl Reader {
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, catalog: Catalog) -> Self {
        Self { disk, dir: dir.to_owned(), catalog }
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Segments that may hold records of the window, kept from removal while leased.
    pub fn lease(&self, from: Micros, until: Micros) -> Vec<Lease> {
        self.catalog.lease(|meta| meta.overlaps(from, until))
    }

    /// Shows every entry of a leased segment in order. Damaged lines are left out; recovery and
    /// sealing have named them.
    pub fn visit(&self, meta: &SegmentMeta, visit: &mut dyn FnMut(Entry)) -> Result<(), SealError> {
        if meta.state == SegmentState::Sealed {
            sealed::read_known(self.disk.as_ref(), &self.dir, meta, visit)?;
            return Ok(());
        }
        let path = self.dir.join(segment_name(meta.number));
        scan_segment(self.disk.as_ref(), &path, meta.number, Some(meta.bytes), &mut |line| {
            if let Ok(entry) = Entry::parse(line.bytes) {
                visit(entry);
            }
        })?;
        Ok(())
    }
}
