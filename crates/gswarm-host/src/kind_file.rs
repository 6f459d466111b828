//! `kind.json`: whether a data directory holds real or simulated devices. They never mix.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_store::Disk;
use gswarm_store::disk::{read_file, write_atomic};
use serde::{Deserialize, Serialize};

const FORMAT: u32 = 1;
const KIND_BYTES_MAX: u64 = 4_096;

#[derive(Debug, Serialize, Deserialize)]
struct KindFile {
    format: u32,
    simulated: bool,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("kind.json")
}

/// True for simulated devices; `None` for a directory that nobody used yet.
pub fn is_simulated_data(disk: &dyn Disk, data_dir: &Path) -> io::Result<Option<bool>> {
    match read_file(disk, &path(data_dir), KIND_BYTES_MAX) {
        Ok(bytes) => {
            let file: KindFile = serde_json::from_slice(&bytes)?;
            Ok(Some(file.simulated))
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn write(disk: &dyn Disk, data_dir: &Path, simulated: bool) -> io::Result<()> {
    let bytes = serde_json::to_vec(&KindFile { format: FORMAT, simulated })?;
    write_atomic(disk, &path(data_dir), &bytes)
}
