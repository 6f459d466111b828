//! Who this node is: `node.json` in the state directory, and what is done with a copied one.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_store::Disk;
use gswarm_store::disk::{read_file, write_atomic};
use gswarm_types::NodeId;
use serde::{Deserialize, Serialize};

/// The format that this version writes; older ones are read, newer ones refused.
const FORMAT: u32 = 1;
const NODE_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Spools that can be set aside for one reason.
const SET_ASIDE_MAX: u32 = 1_000;
const NODE_FILE: &str = "node.json";
const SPOOL_DIR: &str = "spool";

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{path}`")]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "`{path}` was written by a newer gswarm (format {format}); this one reads up to {FORMAT}"
    )]
    Newer { path: PathBuf, format: u32 },
}

/// The node's identity and what had to be said while it was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) node_id: NodeId,
    /// Sentences for the log and for the host.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NodeFile {
    format: u32,
    node_id: NodeId,
    machine_id: String,
}

#[derive(Debug, Deserialize)]
struct FormatOnly {
    format: u32,
}

pub(crate) fn spool_dir(state_dir: &Path) -> PathBuf {
    state_dir.join(SPOOL_DIR)
}

/// Reads the identity, or makes one. A copied state directory gets a new identity, and what its
/// spool holds is set aside unsent: the machine it came from delivers it.
pub(crate) fn open(
    disk: &dyn Disk,
    state_dir: &Path,
    machine_id: &str,
    new_node_id: NodeId,
) -> Result<NodeState, StateError> {
    let path = state_dir.join(NODE_FILE);
    let write_error = |source| StateError::Write { path: path.clone(), source };
    disk.create_dir_all(state_dir).map_err(write_error)?;
    let mut notes = Vec::new();
    let word = match read(disk, &path)? {
        Found::Node(node) if is_same_machine(&node.machine_id, machine_id) => {
            return Ok(NodeState { node_id: node.node_id, notes });
        },
        Found::Node(node) => {
            notes.push(format!(
                "the state directory was copied from another machine: {new_node_id} replaces {}",
                node.node_id
            ));
            "cloned"
        },
        Found::Unreadable => {
            let aside = state_dir.join(format!("{NODE_FILE}.unreadable"));
            disk.rename(&path, &aside).map_err(write_error)?;
            notes.push(format!(
                "`{}` could not be read: the node is now {new_node_id}",
                path.display()
            ));
            "orphaned"
        },
        Found::Nothing => "orphaned",
    };
    notes.extend(set_aside(disk, state_dir, word).map_err(write_error)?);
    let node = NodeFile { format: FORMAT, node_id: new_node_id, machine_id: machine_id.to_owned() };
    let bytes = serde_json::to_vec(&node).map_err(|error| write_error(error.into()))?;
    write_atomic(disk, &path, &bytes).map_err(write_error)?;
    Ok(NodeState { node_id: new_node_id, notes })
}

enum Found {
    Node(NodeFile),
    Unreadable,
    Nothing,
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Found, StateError> {
    let bytes = match read_file(disk, path, NODE_FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(Found::Unreadable),
        Err(source) => return Err(StateError::Read { path: path.to_owned(), source }),
    };
    match serde_json::from_slice::<FormatOnly>(&bytes) {
        Ok(FormatOnly { format }) if format > FORMAT => {
            Err(StateError::Newer { path: path.to_owned(), format })
        },
        _ => Ok(serde_json::from_slice(&bytes).map_or(Found::Unreadable, Found::Node)),
    }
}

/// A machine that does not tell its id cannot be told from another.
fn is_same_machine(stored: &str, now: &str) -> bool {
    stored == now || stored.is_empty() || now.is_empty()
}

/// Renames the spool to `spool-<word>-<n>`. Returns a sentence about it when there was one.
pub(crate) fn set_aside(
    disk: &dyn Disk,
    state_dir: &Path,
    word: &str,
) -> io::Result<Option<String>> {
    let from = spool_dir(state_dir);
    match disk.list(&from) {
        Ok(names) if names.is_empty() => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A directory that cannot be listed can still be renamed.
        Ok(_) | Err(_) => {},
    }
    let to = (1..=SET_ASIDE_MAX)
        .map(|number| state_dir.join(format!("{SPOOL_DIR}-{word}-{number}")))
        .find(|to| disk.list(to).map_or(true, |names| names.is_empty()))
        .ok_or_else(|| {
            io::Error::other(format!("{SET_ASIDE_MAX} spools were set aside already"))
        })?;
    match disk.rename(&from, &to) {
        Ok(()) => {},
        // A disk that knows only files.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            disk.create_dir_all(&to)?;
            for name in disk.list(&from)? {
                disk.rename(&from.join(&name), &to.join(&name))?;
            }
        },
        Err(error) => return Err(error),
    }
    disk.sync_dir(state_dir)?;
    Ok(Some(format!("records in the spool were set aside unsent in `{}`", to.display())))
}

#[cfg(test)]
mod tests {
    use gswarm_store::{SimDisk, StdDisk};
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> NodeId {
        NodeId::new(Uuid::from_u128(number))
    }

    fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
        disk.create_dir_all(path.parent().unwrap()).unwrap();
        write_atomic(disk, path, bytes).unwrap();
    }

    #[track_caller]
    fn check_identity(disk: &dyn Disk, dir: &Path) {
        let open = |machine: &str, new| open(disk, dir, machine, id(new)).unwrap();
        assert_eq!(open("a", 1), NodeState { node_id: id(1), notes: vec![] });
        assert_eq!(open("a", 2).node_id, id(1));
        assert_eq!(open("", 2).node_id, id(1));
        put(disk, &spool_dir(dir).join("0000000001.jsonl"), b"held");
        let cloned = open("b", 3);
        assert_eq!(cloned.node_id, id(3));
        assert_eq!(cloned.notes.len(), 2, "{:?}", cloned.notes);
        assert!(cloned.notes[1].contains("spool-cloned-1"), "{:?}", cloned.notes);
        assert!(disk.list(&spool_dir(dir)).map_or(true, |names| names.is_empty()));
        assert_eq!(disk.list(&dir.join("spool-cloned-1")).unwrap(), ["0000000001.jsonl"]);
        put(disk, &spool_dir(dir).join("0000000001.jsonl"), b"held");
        assert!(open("c", 4).notes[1].contains("spool-cloned-2"));
        assert_eq!(open("c", 5), NodeState { node_id: id(4), notes: vec![] });
    }

    #[test]
    fn a_copied_directory_gets_a_new_identity() {
        check_identity(&SimDisk::new(), Path::new("/state"));
        let dir = tempfile::tempdir().unwrap();
        check_identity(&StdDisk, &dir.path().join("state"));
    }

    #[test]
    fn what_cannot_be_read_is_replaced_and_what_is_newer_refused() {
        let disk = SimDisk::new();
        let dir = Path::new("/state");
        put(&disk, &dir.join(NODE_FILE), b"{");
        put(&disk, &spool_dir(dir).join("0000000001.jsonl"), b"held");
        let state = open(&disk, dir, "a", id(1)).unwrap();
        assert_eq!(state.node_id, id(1));
        assert!(state.notes[1].contains("spool-orphaned-1"), "{:?}", state.notes);
        let newer = format!(r#"{{"format":2,"node_id":"{}"}}"#, id(1));
        put(&disk, &dir.join(NODE_FILE), newer.as_bytes());
        let error = open(&disk, dir, "a", id(2)).unwrap_err();
        assert!(error.to_string().contains("newer gswarm (format 2)"), "{error}");
    }
}
