//! The real disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Append, Disk, ReadAt};

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct StdDisk;

impl Disk for StdDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        // A directory that a power loss takes away takes everything in it along.
        let missing: Vec<&Path> = dir.ancestors().take_while(|path| !path.is_dir()).collect();
        std::fs::create_dir_all(dir)?;
        for path in missing.into_iter().rev() {
            self.sync_dir(super::parent(path))?;
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let file = OpenOptions::new().create_new(true).append(true).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl Append for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}

impl ReadAt for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixture::{self, Tables};
    use crate::journal::{Journal, JournalConfig, SegmentLimits};
    use crate::reader::Reader;

    #[test]
    fn a_journal_on_a_real_disk() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("not/yet/there");
        let disk: Arc<dyn Disk> = Arc::new(StdDisk);
        for start in 1..4 {
            let new_storage = fixture::storage();
            let config = JournalConfig {
                dir: dir.clone(),
                disk_reserve_bytes: 1,
                segments: SegmentLimits::default(),
                new_storage,
            };
            let mut journal = Journal::open(disk.clone(), config).unwrap().journal;
            journal.commit(&[fixture::host_event(start)], &Tables::default()).unwrap();
            let reader = Reader::new(disk.clone(), &dir, journal.catalog().clone());
            let mut events = 0;
            for meta in journal.catalog().segments() {
                reader.visit(&meta, &mut |_| events += 1).unwrap();
            }
            assert_eq!(events, start);
        }
    }
}
