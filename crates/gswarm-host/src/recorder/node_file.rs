//! `nodes.json`: which names belong to which machines, written before a name is told.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_api::Failure;
use gswarm_core::NameBook;
use gswarm_store::Disk;
use gswarm_store::disk::{read_file, write_atomic};
use serde::{Deserialize, Serialize};

use super::Recorder;
use super::commit::chain;

const FORMAT: u32 = 1;
const NODES_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
struct NodesFile {
    format: u32,
    names: NameBook,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("nodes.json")
}

/// An empty book when there is no file.
pub(super) fn read(disk: &dyn Disk, data_dir: &Path) -> io::Result<NameBook> {
    match read_file(disk, &path(data_dir), NODES_BYTES_MAX) {
        Ok(bytes) => {
            let file: NodesFile = serde_json::from_slice(&bytes)?;
            if file.format > FORMAT {
                return Err(io::Error::other("written by a newer gswarm"));
            }
            Ok(file.names)
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(NameBook::default()),
        Err(error) => Err(error),
    }
}

impl Recorder {
    pub(super) async fn write_nodes(&mut self) -> Result<(), Failure> {
        let file = NodesFile { format: FORMAT, names: self.names.clone() };
        let disk = self.disk.clone();
        let path = path(&self.config.data_dir);
        let written = tokio::task::spawn_blocking(move || {
            let bytes = serde_json::to_vec_pretty(&file)?;
            write_atomic(disk.as_ref(), &path, &bytes)
        })
        .await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::unavailable(format!(
                "the host cannot write its list of nodes: {error}"
            ))),
            Err(error) => Err(Failure::internal(chain(&error))),
        }
    }
}
