//! A file of procfs that stays open between reads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Enough for the first lines of any file that is read only in part, and for all of `meminfo`.
const HEAD_BYTES: usize = 4 * 1024;
/// Beyond this a file is cut: thousands of interfaces still fit.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// One file that is read again and again.
#[derive(Debug)]
pub(super) struct ProcFile {
    path: PathBuf,
    /// `None` until it could be opened.
    file: Option<File>,
}

impl ProcFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// The beginning of the file, with one system call; `None` when it cannot be read.
    pub(super) fn head<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        buffer.resize(buffer.len().max(HEAD_BYTES), 0);
        let length = self.read_at(buffer.get_mut(..HEAD_BYTES)?, 0)?;
        buffer.get(..length)
    }

    /// The whole file; `None` when it cannot be read.
    pub(super) fn whole<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let mut length = 0;
        loop {
            if length == buffer.len() {
                if length >= FILE_BYTES_MAX {
                    break;
                }
                buffer.resize((length * 2).clamp(HEAD_BYTES, FILE_BYTES_MAX), 0);
            }
            // procfs hands out lists a page at a time: only an empty read is the end.
            let offset = u64::try_from(length).ok()?;
            match self.read_at(buffer.get_mut(length..)?, offset)? {
                0 => break,
                read => length += read,
            }
        }
        buffer.get(..length)
    }

    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let read = self.file.as_ref()?.read_at(buffer, offset).ok();
        if read.is_none() {
            self.file = None;
        }
        read
    }
}
