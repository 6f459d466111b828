//! `nodes.json`: which names belong to which machines, written before a name is told.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_api::Failure;
use gswarm_core::NameBook;
use gswarm_store::Disk;
use serde::{Deserialize, Serialize};

use super::Recorder;
use super::commit::chain;
use crate::small_file;

#[derive(Debug, Serialize, Deserialize)]
struct Nodes {
    names: NameBook,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("nodes.json")
}

/// An empty book when there is no file.
pub(super) fn read(disk: &dyn Disk, data_dir: &Path) -> io::Result<NameBook> {
    let nodes: Option<Nodes> = small_file::read(disk, &path(data_dir))?;
    Ok(nodes.map_or_else(NameBook::default, |nodes| nodes.names))
}

impl Recorder {
    pub(super) async fn write_nodes(&mut self) -> Result<(), Failure> {
        let nodes = Nodes { names: self.names.clone() };
        let disk = self.disk.clone();
        let path = path(&self.config.data_dir);
        let written =
            tokio::task::spawn_blocking(move || small_file::write(disk.as_ref(), &path, nodes))
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
