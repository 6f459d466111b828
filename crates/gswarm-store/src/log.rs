//! The segmented log under journal and spool: numbered files of checked lines.
//!
//! A segment is never appended to after a crash or a failed sync. What is not known to be on
//! stable storage is written again into a new segment, and that segment's header says where the
//! old one ends.

mod scan;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_types::StorageId;

use crate::disk::{Append, Disk, remove_if_there, temporary_path};
use crate::entry::{Entry, FORMAT, Header, SyncMark};
use crate::line::LineBuffer;

pub use scan::{Damage, LineAt, LogScan, ScanError, SegmentScan, scan_log, scan_segment};
pub(crate) use scan::{Plan, read_header, scan_planned};

/// When a write counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once synced: survives power loss.
    Synced,
    /// Once written: survives the process.
    Written,
}

/// Where lines went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub segment: u64,
    pub offset: u64,
}

/// The writing end of a log.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    storage: StorageId,
    durability: Durability,
    segment: u64,
    file: Box<dyn Append>,
    /// Length in bytes up to the last whole line.
    len: u64,
    /// Bytes known to be on stable storage.
    synced: u64,
    /// The file's end is unknown: only a new segment helps.
    broken: bool,
}

/// `0000000042.jsonl`
pub fn segment_name(segment: u64) -> String {
    format!("{segment:010}.jsonl")
}

/// The number in a segment's file name.
pub fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".jsonl")?;
    (digits.len() == 10 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

impl Log {
    /// Starts the segment after the last one of the scan. `initial` holds lines that must not be
    /// lost from the end of the old segment, which from now on ends at `scan.prev_valid_bytes`.
    pub fn start(
        disk: Arc<dyn Disk>,
        dir: &Path,
        scan: &LogScan,
        durability: Durability,
        initial: &LineBuffer,
    ) -> io::Result<Self> {
        let segment = scan.last_segment.map_or(1, |last| last + 1);
        let header = Header {
            format: FORMAT,
            storage: scan.storage,
            segment,
            prev_valid_bytes: scan.prev_valid_bytes,
        };
        let (file, len) = create_segment(disk.as_ref(), dir, durability, &header, initial)?;
        let storage = scan.storage;
        let dir = dir.to_owned();
        Ok(Self { disk, dir, storage, durability, segment, file, len, synced: len, broken: false })
    }

    /// A log that cannot begin its next segment yet: nothing is written until `roll` succeeds.
    pub(crate) fn ended(disk: Arc<dyn Disk>, dir: &Path, scan: &LogScan, last: u64) -> Self {
        Self {
            disk,
            dir: dir.to_owned(),
            storage: scan.storage,
            durability: Durability::Synced,
            segment: last,
            file: Box::new(NoFile),
            len: scan.prev_valid_bytes,
            synced: scan.prev_valid_bytes,
            broken: true,
        }
    }

    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// Bytes of the active segment that readers may rely on.
    pub fn readable_bytes(&self) -> u64 {
        match self.durability {
            Durability::Synced => self.synced,
            Durability::Written => self.len,
        }
    }

    /// True when the last write left the file in an unknown state.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Appends whole lines; on failure the file is cut back to the last good line.
    pub fn append(&mut self, lines: &LineBuffer) -> io::Result<Position> {
        let position = Position { segment: self.segment, offset: self.len };
        if self.broken {
            return Err(io::Error::other("the segment ended after a failed write"));
        }
        match self.file.append(lines.as_bytes()) {
            Ok(()) => {
                self.len += lines.len() as u64;
                Ok(position)
            },
            Err(error) => {
                if self.file.truncate(self.len).is_err() {
                    self.broken = true;
                }
                Err(error)
            },
        }
    }

    /// Returns once all appended lines are on stable storage. After a failure only `restart`
    /// helps: the kernel may have dropped the pages and would report success next time.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the segment ended after a failed write"));
        }
        match self.file.sync() {
            Ok(()) => {
                self.synced = self.len;
                Ok(())
            },
            Err(error) => {
                // What counts once written is there as long as the process can read it back.
                self.broken = self.durability == Durability::Synced;
                Err(error)
            },
        }
    }

    /// A line that tells recovery how far the last sync reached; goes in front of a batch.
    pub fn sync_mark(&self) -> Entry {
        Entry::Sync(SyncMark { bytes: self.synced })
    }

    /// Ends the segment where its synced (or written) part ends and begins the next one.
    pub fn roll(&mut self, initial: &LineBuffer) -> io::Result<()> {
        let end = self.readable_bytes();
        if self.durability == Durability::Synced && !self.broken {
            self.close_mark();
        }
        let header = Header {
            format: FORMAT,
            storage: self.storage,
            segment: self.segment + 1,
            prev_valid_bytes: end,
        };
        let created =
            create_segment(self.disk.as_ref(), &self.dir, self.durability, &header, initial);
        // The new segment may stand there although creating it failed, and its header ends this
        // one: nothing may be appended here any more.
        self.broken |= created.is_err();
        let (file, len) = created?;
        self.segment += 1;
        self.file = file;
        self.len = len;
        self.synced = len;
        self.broken = false;
        Ok(())
    }

    /// Tells a reader where this segment ends even when the next header is damaged. Only a help:
    /// the next header says the same, so a failure here loses nothing.
    fn close_mark(&mut self) {
        let mut buffer = LineBuffer::new();
        let written = buffer.push(&self.sync_mark()).is_ok() && self.append(&buffer).is_ok();
        if !written || self.sync().is_err() {
            tracing::debug!(segment = self.segment, "closing mark not written");
        }
    }
}

/// Stands where a broken log has no file to write to.
#[derive(Debug)]
struct NoFile;

impl Append for NoFile {
    fn append(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Err(io::Error::other("the log has no open segment"))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.append(&[])
    }

    fn truncate(&mut self, _len: u64) -> io::Result<()> {
        self.append(&[])
    }
}

/// A complete new segment under its final name, as durable as asked.
fn create_segment(
    disk: &dyn Disk,
    dir: &Path,
    durability: Durability,
    header: &Header,
    initial: &LineBuffer,
) -> io::Result<(Box<dyn Append>, u64)> {
    let path = dir.join(segment_name(header.segment));
    let temporary = temporary_path(&path);
    remove_if_there(disk, &temporary)?;
    let mut front = LineBuffer::new();
    front.push(&Entry::Header(header.clone()))?;
    let mut back = LineBuffer::new();
    // Once more, far from the first: where the segment before ends must not hang on one sector.
    back.push(&Entry::Header(header.clone()))?;
    if durability == Durability::Synced {
        let bytes = (front.len() + initial.len() + back.len()) as u64;
        // True by the time anybody sees the file under its final name.
        back.push(&Entry::Sync(SyncMark { bytes }))?;
    }
    let mut file = disk.create(&temporary)?;
    let written = file
        .append(front.as_bytes())
        .and_then(|()| file.append(initial.as_bytes()))
        .and_then(|()| file.append(back.as_bytes()));
    let written = match durability {
        Durability::Synced => written.and_then(|()| file.sync()),
        Durability::Written => written,
    };
    if let Err(error) = written {
        // Best effort: the next attempt removes what this one left.
        let _left_behind = disk.remove(&temporary);
        return Err(error);
    }
    disk.rename(&temporary, &path)?;
    if durability == Durability::Synced {
        disk.sync_dir(dir)?;
    }
    Ok((file, (front.len() + initial.len() + back.len()) as u64))
}

#[cfg(test)]
mod tests;
