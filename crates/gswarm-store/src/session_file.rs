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

#[cfg(test)]
mod tests {
    use gswarm_trial::{Trial, rounds};

    use super::*;
    use crate::disk::SimDisk;
    use crate::fixture;

    const DIR: &str = "/sessions";

    /// The n-th state of the session.
    fn state(revision: u32) -> SessionSpec {
        let mut spec = fixture::session(1, 0, None);
        spec.revision = revision;
        // Longer than a page, so that a power loss can tear it.
        spec.note = Some("x".repeat(5_000));
        spec
    }

    /// Writes the session three times and removes it, until a call fails; the last answered state.
    fn live(disk: &SimDisk) -> (u32, bool) {
        let dir = Path::new(DIR);
        for revision in 1..=3 {
            if write(disk, dir, &state(revision)).is_err() {
                return (revision - 1, false);
            }
        }
        (3, remove(disk, dir, state(1).id).is_ok())
    }

    #[test]
    fn what_was_answered_survives_power_loss_at_every_change() {
        let mut trial = Trial::new("power loss at every change of a session's file");
        let whole = SimDisk::new();
        assert_eq!(live(&whole), (3, true));
        for cut in 0..=whole.changes() {
            for seed in 0..rounds(20, 2_000) {
                trial.rounds += 1;
                trial.seeds += 1;
                trial.faults += 1;
                trial.records += 1;
                let disk = SimDisk::new();
                disk.cut_power_at(cut);
                let (answered, removed) = live(&disk);
                disk.power_loss(cut * 10_000 + seed);
                let files = read_all(&disk, Path::new(DIR)).unwrap();
                assert_eq!(files.unreadable, Vec::<PathBuf>::new(), "cut {cut} seed {seed}");
                // The state that was answered, or the one whose answer never came.
                let found = files.sessions.first().map_or(0, |spec| spec.revision);
                let may_be_gone = removed || answered == 3 || answered == 0;
                let is_kept = match found {
                    0 => may_be_gone,
                    found => !removed && (answered..=answered + 1).contains(&found),
                };
                trial.lost += u64::from(!is_kept);
                assert!(
                    is_kept,
                    "cut {cut} seed {seed}: {answered} was answered, {found} is there"
                );
                if let Some(spec) = files.sessions.first() {
                    assert_eq!(*spec, state(found), "cut {cut} seed {seed}");
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut trial = Trial::new("every byte of a session's file flipped");
        let disk = SimDisk::new();
        let file = path(Path::new(DIR), state(1).id);
        write(&disk, Path::new(DIR), &state(1)).unwrap();
        let len = read_file(&disk, &file, 100_000).unwrap().len();
        for at in 0..len {
            for bit in 0..u8::try_from(rounds(1, 8)).unwrap() {
                trial.rounds += 1;
                trial.faults += 1;
                trial.records += 1;
                assert!(disk.flip(&file, at, bit));
                let files = read_all(&disk, Path::new(DIR)).unwrap();
                trial.lost += files.sessions.len() as u64;
                assert_eq!((files.sessions, files.unreadable.len()), (vec![], 1), "byte {at}");
                assert!(disk.flip(&file, at, bit));
            }
        }
    }
}
