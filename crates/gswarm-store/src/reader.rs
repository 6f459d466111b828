//! Reading entries of the recording, whatever form their segment has.

use std::io;
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

    /// False when a sealed segment is not what was written. Damaged lines of others were named when
    /// they were found.
    pub fn is_whole(&self, meta: &SegmentMeta) -> bool {
        meta.state != SegmentState::Sealed
            || match sealed::verify(self.disk.as_ref(), &self.dir, meta) {
                Ok(()) => true,
                // A disk that does not answer now may answer later.
                Err(SealError::File { source, .. }) => source.kind() != io::ErrorKind::NotFound,
                Err(_) => false,
            }
    }

    /// Moves a segment that is not whole out of the recording; false when somebody reads it.
    pub fn set_aside(&self, number: u64) -> bool {
        let moved = self.catalog.alone(number, |meta| {
            sealed::quarantine(self.disk.as_ref(), &self.dir, meta.number);
            Ok::<_, ()>(None)
        });
        moved.is_some()
    }

    /// Shows every entry of a leased segment; the records of one incarnation in their order. Damaged lines are left out; recovery and
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
