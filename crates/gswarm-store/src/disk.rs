//! The few things the store asks of a disk, so that tests can take the power away.

mod std_disk;
mod sim_disk;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use sim_disk::{PowerLoss, SimDisk};
pub use std_disk::StdDisk;

/// A disk with directories. Calls block; async callers use blocking threads.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// A new empty file; fails when it exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>>;
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>>;
    /// Replaces the target when it exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Names of the files (not directories) in the directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Bytes an ordinary program may still write.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// A file that grows at its end.
pub trait Append: Send + fmt::Debug {
    /// Writes all bytes or fails; after a failure the end of the file is unknown.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns once everything appended is on stable storage.
    fn sync(&mut self) -> io::Result<()>;
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}

/// A file that is read at any place.
pub trait ReadAt: Send + Sync + fmt::Debug {
    fn len(&self) -> io::Result<u64>;
    /// Reads up to the buffer's length; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
}

/// The whole file, refused above `bytes_max`.
pub fn read_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let len = file.len()?;
    if len > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("`{}` has {len} bytes, at most {bytes_max} are read", path.display()),
        ));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let filled = fill(file.as_ref(), &mut bytes, 0)?;
    bytes.truncate(filled);
    Ok(bytes)
}

/// Fills the buffer from the offset on as far as the file goes.
pub fn fill(file: &dyn ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {},
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Replaces a small file so that a crash leaves the old or the new content, never a mix.
pub fn write_atomic(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = parent(path);
    let temporary = temporary_path(path);
    remove_if_there(disk, &temporary)?;
    let mut file = disk.create(&temporary)?;
    file.append(bytes)?;
    file.sync()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(dir)
}

/// The name a file has while it is being written.
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Removes a file that may be gone already.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
