//! One process per directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Held for as long as the process uses the directory; the kernel releases it at any exit.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// Why the directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("`{path}` is in use by another gswarm process{owner}")]
    Taken { path: PathBuf, owner: String },
    #[error("cannot lock `{path}`")]
    Io { path: PathBuf, source: io::Error },
}

impl DirLock {
    /// Locks the directory and leaves the owner's process id in the lock file.
    pub fn acquire(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join("lock");
        let io_error = |source| LockError::Io { path: path.clone(), source };
        std::fs::create_dir_all(dir).map_err(io_error)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {},
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let read = file.read_to_string(&mut pid).is_ok();
                let pid = pid.trim();
                let owner = if read && !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()) {
                    format!(" (pid {pid})")
                } else {
                    String::new()
                };
                return Err(LockError::Taken { path: dir.to_owned(), owner });
            },
            Err(TryLockError::Error(source)) => return Err(io_error(source)),
        }
        file.set_len(0).map_err(io_error)?;
        file.rewind().map_err(io_error)?;
        match writeln!(file, "{}", std::process::id()) {
            // On a full disk the lock holds all the same; only the owner's number is not told.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(io_error(error)),
            Ok(()) | Err(_) => Ok(Self { _file: file }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let held = DirLock::acquire(&path).unwrap();
        let taken = DirLock::acquire(&path).unwrap_err().to_string();
        let owner = std::process::id();
        let expected =
            format!("`{}` is in use by another gswarm process (pid {owner})", path.display());
        assert_eq!(taken, expected);
        drop(held);
        let again = DirLock::acquire(&path).unwrap();
        // A process that died left its number behind, a longer one perhaps.
        drop(again);
        std::fs::write(path.join("lock"), "99999999999\n").unwrap();
        let _held = DirLock::acquire(&path).unwrap();
        let text = std::fs::read_to_string(path.join("lock")).unwrap();
        assert_eq!(text, format!("{owner}\n"));
    }
}
