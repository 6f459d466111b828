//! One small file per session: the truth about it.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_types::{SessionId, SessionSpec};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, read_file, remove_if_there, write_atomic};
use crate::entry::FORMAT;
use crate::line::{self, LineBuffer};

const SESSION_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What stands in `sessions/<id>.json`: one checked line.
#[derive(Serialize, Deserialize)]
struct SessionFile {
    format: u32,
    session: SessionSpec,
}

/// Sessions that could be read, and files that could not.
#[derive(Debug, Default)]
pub struct SessionFiles {
    pub sessions: Vec<SessionSpec>,
    pub unreadable: Vec<PathBuf>,
}

fn path(dir: &Path, id: SessionId) -> PathBuf {
    dir.join(format!("{id}.json"))
}

pub fn write(disk: &dyn Disk, dir: &Path, session: &SessionSpec) -> io::Result<()> {
    let mut buffer = LineBuffer::new();
    buffer.push(&SessionFile { format: FORMAT, session: session.clone() })?;
    write_atomic(disk, &path(dir, session.id), buffer.as_bytes())
}

/// Removes a session for good.
pub fn remove(disk: &dyn Disk, dir: &Path, id: SessionId) -> io::Result<()> {
    remove_if_there(disk, &path(dir, id))?;
    disk.sync_dir(dir)
}

/// Moves a file that nobody can read to where a person can look at it.
pub fn quarantine(disk: &dyn Disk, file: &Path) -> io::Result<()> {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else { return Ok(()) };
    let aside = dir.join("quarantine");
    disk.create_dir_all(&aside)?;
    disk.rename(file, &aside.join(name))?;
    disk.sync_dir(&aside)?;
    disk.sync_dir(dir)
}

pub fn read_all(disk: &dyn Disk, dir: &Path) -> io::Result<SessionFiles> {
    disk.create_dir_all(dir)?;
    let mut files = SessionFiles::default();
    for name in disk.list(dir)? {
        let path = dir.join(&name);
        if !name.ends_with(".json") {
            continue;
        }
        match read_one(disk, &path) {
            Some(session) => files.sessions.push(session),
            None => files.unreadable.push(path),
        }
    }
    Ok(files)
}

fn read_one(disk: &dyn Disk, path: &Path) -> Option<SessionSpec> {
    let bytes = read_file(disk, path, SESSION_BYTES_MAX).ok()?;
    let text = bytes.strip_suffix(b"\n")?;
    line::checked(text)?;
    let file: SessionFile = serde_json::from_slice(text).ok()?;
    (file.format <= FORMAT).then_some(file.session)
}
