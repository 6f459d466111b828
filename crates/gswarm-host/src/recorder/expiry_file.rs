//! `expired.json`: how far retention has taken the recording away.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_store::Disk;
use gswarm_store::disk::{read_file, write_atomic};
use gswarm_types::Micros;
use serde::{Deserialize, Serialize};

const FORMAT: u32 = 1;
const EXPIRY_BYTES_MAX: u64 = 4_096;

#[derive(Debug, Serialize, Deserialize)]
struct ExpiryFile {
    format: u32,
    /// Host time of the newest record that was removed, in microseconds.
    expired_until: Micros,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("expired.json")
}

/// `None` while nothing was ever removed.
pub(super) fn read(disk: &dyn Disk, data_dir: &Path) -> Option<Micros> {
    let bytes = read_file(disk, &path(data_dir), EXPIRY_BYTES_MAX).ok()?;
    let file: ExpiryFile = serde_json::from_slice(&bytes).ok()?;
    Some(file.expired_until)
}

pub(super) fn write(disk: &dyn Disk, data_dir: &Path, until: Micros) -> io::Result<()> {
    let bytes = serde_json::to_vec(&ExpiryFile { format: FORMAT, expired_until: until })?;
    write_atomic(disk, &path(data_dir), &bytes)
}
