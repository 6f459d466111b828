//! A checkpoint: everything recovery needs to know of the closed segments.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_core::Intake;
use gswarm_types::StorageId;
use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, SegmentMeta, SegmentState};
use crate::disk::{Disk, read_file, write_atomic};
use crate::entry::FORMAT;
use crate::line::{self, LineBuffer};

const CHECKPOINT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    format: u32,
    pub(super) storage: StorageId,
    /// Segments below this one are covered.
    pub(super) next_segment: u64,
    pub(super) segments: Vec<SegmentMeta>,
    pub(super) intake: Intake,
}

#[derive(Serialize)]
struct CheckpointRef<'a> {
    format: u32,
    storage: StorageId,
    next_segment: u64,
    segments: Vec<SegmentMeta>,
    intake: &'a Intake,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("checkpoint.json")
}

pub(super) fn write(
    disk: &dyn Disk,
    dir: &Path,
    storage: StorageId,
    next_segment: u64,
    intake: &Intake,
    catalog: &Catalog,
) -> io::Result<()> {
    let segments =
        catalog.segments().into_iter().filter(|meta| meta.state != SegmentState::Open).collect();
    let mut buffer = LineBuffer::new();
    buffer.push(&CheckpointRef { format: FORMAT, storage, next_segment, segments, intake })?;
    write_atomic(disk, &path(dir), buffer.as_bytes())
}

/// `None` when there is none, it is damaged, or of another version: recovery reads the segments.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Option<Checkpoint> {
    let bytes = read_file(disk, &path(dir), CHECKPOINT_BYTES_MAX).ok()?;
    let text = bytes.strip_suffix(b"\n")?;
    line::checked(text)?;
    let checkpoint: Checkpoint = serde_json::from_slice(text).ok()?;
    (checkpoint.format == FORMAT).then_some(checkpoint)
}
