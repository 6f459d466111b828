//! A checkpoint: everything recovery needs to know of the closed segments.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gswarm_core::Intake;
use gswarm_types::{Micros, SessionId, SessionSpec, StorageId};
use serde::{Deserialize, Serialize};

use crate::catalog::SegmentMeta;
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
    /// Newest journaled state of each session, so that an unreadable file can be rebuilt.
    #[serde(default)]
    pub(super) sessions: Vec<SessionSpec>,
    pub(super) last_receipt: Option<Micros>,
    pub(super) intake: Intake,
}

/// What a checkpoint is made of.
#[derive(Serialize)]
pub(super) struct CheckpointRef<'a> {
    pub(super) format: u32,
    pub(super) storage: StorageId,
    pub(super) next_segment: u64,
    pub(super) segments: Vec<SegmentMeta>,
    #[serde(serialize_with = "as_list")]
    pub(super) sessions: &'a BTreeMap<SessionId, SessionSpec>,
    pub(super) last_receipt: Option<Micros>,
    pub(super) intake: &'a Intake,
}

fn as_list<S: serde::Serializer>(
    sessions: &BTreeMap<SessionId, SessionSpec>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sessions.values())
}

fn path(dir: &Path) -> PathBuf {
    dir.join("checkpoint.json")
}

pub(super) fn write(disk: &dyn Disk, dir: &Path, content: &CheckpointRef<'_>) -> io::Result<()> {
    let mut buffer = LineBuffer::new();
    buffer.push(content)?;
    write_atomic(disk, &path(dir), buffer.as_bytes())
}

/// `None` when there is none, it is damaged, or of another version: recovery reads the segments.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Option<Checkpoint> {
    let bytes = match read_file(disk, &path(dir), CHECKPOINT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, "checkpoint cannot be read, reading all segments");
            return None;
        },
    };
    let checkpoint = parse(&bytes).filter(|checkpoint| checkpoint.format == FORMAT);
    if checkpoint.is_none() {
        tracing::warn!("checkpoint is damaged or of another version, reading all segments");
    }
    checkpoint
}

fn parse(bytes: &[u8]) -> Option<Checkpoint> {
    let text = bytes.strip_suffix(b"\n")?;
    line::checked(text)?;
    serde_json::from_slice(text).ok()
}
