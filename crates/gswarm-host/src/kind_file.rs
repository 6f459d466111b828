//! `kind.json`: whether a data directory holds real or simulated devices. They never mix.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_store::Disk;
use serde::{Deserialize, Serialize};

use crate::small_file;

#[derive(Debug, Serialize, Deserialize)]
struct Kind {
    simulated: bool,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("kind.json")
}

/// True for simulated devices; `None` for a directory that nobody used yet.
pub fn is_simulated_data(disk: &dyn Disk, data_dir: &Path) -> io::Result<Option<bool>> {
    let kind: Option<Kind> = small_file::read(disk, &path(data_dir))?;
    Ok(kind.map(|kind| kind.simulated))
}

pub(crate) fn write(disk: &dyn Disk, data_dir: &Path, simulated: bool) -> io::Result<()> {
    small_file::write(disk, &path(data_dir), Kind { simulated })
}
