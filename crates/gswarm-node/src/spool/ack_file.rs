//! `ack.json`: up to where the host has each incarnation, so that a restart sends little twice.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use gswarm_store::Disk;
use gswarm_store::disk::{read_file, write_atomic};
use gswarm_types::Incarnation;
use serde::{Deserialize, Serialize};

const FORMAT: u32 = 1;
const BYTES_MAX: u64 = 1024 * 1024;
const NAME: &str = "ack.json";

#[derive(Debug, Serialize, Deserialize)]
struct AckFile {
    format: u32,
    acked: Vec<Acked>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Acked {
    incarnation: Incarnation,
    through: u64,
}

/// Only a help: without it records are offered again and the host says that it has them.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> BTreeMap<Incarnation, u64> {
    let file = match read_file(disk, &dir.join(NAME), BYTES_MAX) {
        Ok(bytes) => serde_json::from_slice::<AckFile>(&bytes).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(_) => None,
    };
    match file {
        Some(file) if file.format <= FORMAT => {
            file.acked.into_iter().map(|acked| (acked.incarnation, acked.through)).collect()
        },
        _ => {
            tracing::warn!(file = NAME, "acknowledgements of the last run could not be read");
            BTreeMap::new()
        },
    }
}

pub(super) fn write(
    disk: &dyn Disk,
    dir: &Path,
    acked: impl Iterator<Item = (Incarnation, u64)>,
) -> io::Result<()> {
    let acked = acked.map(|(incarnation, through)| Acked { incarnation, through }).collect();
    let bytes = serde_json::to_vec(&AckFile { format: FORMAT, acked })?;
    write_atomic(disk, &dir.join(NAME), &bytes)
}
