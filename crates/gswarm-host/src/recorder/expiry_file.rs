//! `expired.json`: how far retention has taken the recording away.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_store::Disk;
use gswarm_types::Micros;
use serde::{Deserialize, Serialize};

use crate::small_file;

#[derive(Debug, Serialize, Deserialize)]
struct Expiry {
    /// Host time of the newest record that was removed, in microseconds.
    expired_until: Micros,
}

pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("expired.json")
}

/// `None` while nothing was ever removed.
pub(super) fn read(disk: &dyn Disk, data_dir: &Path) -> io::Result<Option<Micros>> {
    let expiry: Option<Expiry> = small_file::read(disk, &path(data_dir))?;
    Ok(expiry.map(|expiry| expiry.expired_until))
}

pub(super) fn write(disk: &dyn Disk, data_dir: &Path, until: Micros) -> io::Result<()> {
    small_file::write(disk, &path(data_dir), Expiry { expired_until: until })
}
