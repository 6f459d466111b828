//! Reading a log: every valid line wherever it stands, and the damage by name.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_types::StorageId;

use super::{Durability, Position, segment_name, segment_number};
use crate::disk::{Disk, ReadAt};
use crate::entry::{Entry, FORMAT, Header};
use crate::line;

/// Longest line that is looked for; a longer run without newline is damage.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How much is read at a time.
const READ_BYTES: usize = 256 * 1024;

/// Why a log cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "`{path}` was written by a newer gswarm (format {format}); this one reads up to {FORMAT}"
    )]
    Newer { path: PathBuf, format: u32 },
}

/// Bytes that are no valid line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub segment: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// A valid line, without its newline.
#[derive(Debug, Clone, Copy)]
pub struct LineAt<'a> {
    pub position: Position,
    pub bytes: &'a [u8],
    pub crc: u32,
}

/// What one segment holds.
#[derive(Debug, Clone, Default)]
pub struct SegmentScan {
    pub header: Option<Header>,
    pub damage: Vec<Damage>,
    /// The last claim of a sync mark.
    pub synced: Option<u64>,
    /// End of the last valid line.
    pub valid_bytes: u64,
    pub file_bytes: u64,
}

/// What a directory of segments holds, for the writer that goes on after it.
#[derive(Debug, Clone)]
pub struct LogScan {
    pub storage: StorageId,
    pub last_segment: Option<u64>,
    /// Where the last segment ends from now on.
    pub prev_valid_bytes: u64,
    /// Valid lines of the last segment past that end; they must be written again.
    pub tail: Vec<Vec<u8>>,
    pub damage: Vec<Damage>,
    /// Number and length of each segment, oldest first.
    pub segments: Vec<(u64, u64)>,
    /// Bytes at the very end that were no whole line: a write that was cut off.
    pub torn_bytes: u64,
}

/// Scans one segment up to `end` (its whole file when `None`), showing each valid line.
pub fn scan_segment(
    disk: &dyn Disk,
    path: &Path,
    segment: u64,
    end: Option<u64>,
    visit: &mut dyn FnMut(LineAt<'_>),
) -> Result<SegmentScan, ScanError> {
    let read_error = |source| ScanError::Read { path: path.to_owned(), source };
    let file = disk.open(path).map_err(read_error)?;
    let file_bytes = file.len().map_err(read_error)?;
    let end = end.unwrap_or(file_bytes).min(file_bytes);
    let mut scan = SegmentScan { file_bytes: end, ..SegmentScan::default() };
    let mut lines = Lines::new(file.as_ref(), end);
    while let Some((offset, bytes, whole)) = lines.next_line().map_err(read_error)? {
        let after = offset + bytes.len() as u64 + u64::from(whole);
        let checked = if whole { line::checked(bytes) } else { None };
        let Some(crc) = checked else {
            note_damage(&mut scan.damage, segment, offset, after - offset);
            continue;
        };
        scan.valid_bytes = after;
        // Header and sync marks are short and rare; only they are parsed here.
        if is_control(bytes) {
            match Entry::parse(bytes) {
                Ok(Entry::Header(header)) if header.format > FORMAT => {
                    return Err(ScanError::Newer { path: path.to_owned(), format: header.format });
                },
                Ok(Entry::Header(header)) if offset == 0 => scan.header = Some(header),
                Ok(Entry::Sync(mark)) => scan.synced = scan.synced.max(Some(mark.bytes)),
                _ => {},
            }
            continue;
        }
        visit(LineAt { position: Position { segment, offset }, bytes, crc });
    }
    Ok(scan)
}

fn is_control(bytes: &[u8]) -> bool {
    let body = bytes.get(18..).unwrap_or_default();
    body.starts_with(b"\"header\":") || body.starts_with(b"\"sync\":")
}

fn note_damage(damage: &mut Vec<Damage>, segment: u64, offset: u64, bytes: u64) {
    match damage.last_mut() {
        Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
        _ => damage.push(Damage { segment, offset, bytes }),
    }
}

/// Scans every segment from `from_segment` on. Lines past a segment's end, as the next header
/// tells it, are not shown: they stand again in the next segment.
pub fn scan_log(
    disk: &dyn Disk,
    dir: &Path,
    from_segment: u64,
    durability: Durability,
    new_storage: StorageId,
    visit: &mut dyn FnMut(LineAt<'_>),
) -> Result<LogScan, ScanError> {
    let read_error = |source| ScanError::Read { path: dir.to_owned(), source };
    let mut numbers: Vec<u64> = disk
        .list(dir)
        .map_err(read_error)?
        .iter()
        .filter_map(|name| segment_number(name))
        .collect();
    numbers.sort_unstable();
    let mut scan = LogScan {
        storage: new_storage,
        last_segment: numbers.last().copied(),
        prev_valid_bytes: 0,
        tail: Vec::new(),
        damage: Vec::new(),
        segments: Vec::new(),
        torn_bytes: 0,
    };
    for (place, number) in numbers.iter().enumerate() {
        let path = dir.join(segment_name(*number));
        let next = numbers.get(place + 1).copied();
        if *number < from_segment {
            let bytes = disk.open(&path).and_then(|file| file.len()).map_err(read_error)?;
            scan.segments.push((*number, bytes));
            continue;
        }
        match next {
            Some(next) => {
                let end = end_of(disk, dir, *number, next, durability)?;
                let found = scan_segment(disk, &path, *number, end, visit)?;
                scan.absorb(*number, &found);
            },
            None => scan.last(disk, &path, *number, durability, visit)?,
        }
    }
    Ok(scan)
}

impl LogScan {
    fn absorb(&mut self, number: u64, found: &SegmentScan) {
        if let Some(header) = &found.header {
            self.storage = header.storage;
        }
        self.damage.extend(found.damage.iter().cloned());
        self.segments.push((number, found.file_bytes));
    }

    /// The last segment: decides where it ends and which lines must be written again.
    fn last(
        &mut self,
        disk: &dyn Disk,
        path: &Path,
        number: u64,
        durability: Durability,
        visit: &mut dyn FnMut(LineAt<'_>),
    ) -> Result<(), ScanError> {
        let mut lines: Vec<(u64, Vec<u8>)> = Vec::new();
        // The first pass finds the last sync mark; only lines past it need to be held.
        let probe = scan_segment(disk, path, number, None, &mut |_| {})?;
        let end = match durability {
            Durability::Synced => probe.synced.unwrap_or(0),
            Durability::Written => probe.valid_bytes,
        };
        let found = scan_segment(disk, path, number, None, &mut |line| {
            if line.position.offset >= end {
                lines.push((line.position.offset, line.bytes.to_vec()));
            }
            visit(line);
        })?;
        self.absorb(number, &found);
        if let Some((_, bytes)) = self.segments.last_mut() {
            *bytes = end;
        }
        // What is torn at the very end is a cut-off write, not damage.
        self.damage.retain(|damage| {
            let torn = damage.segment == number && damage.offset >= found.valid_bytes;
            if torn {
                self.torn_bytes += damage.bytes;
            }
            !torn
        });
        self.prev_valid_bytes = end;
        self.tail = lines.into_iter().map(|(_, bytes)| bytes).collect();
        Ok(())
    }
}

/// Where a segment ends: as the next header says, else as its own last sync mark says.
fn end_of(
    disk: &dyn Disk,
    dir: &Path,
    number: u64,
    next: u64,
    durability: Durability,
) -> Result<Option<u64>, ScanError> {
    let next_path = dir.join(segment_name(next));
    if let Some(header) = read_header(disk, &next_path)?
        && header.segment == number + 1
    {
        return Ok(Some(header.prev_valid_bytes));
    }
    if durability == Durability::Written {
        return Ok(None);
    }
    let path = dir.join(segment_name(number));
    Ok(scan_segment(disk, &path, number, None, &mut |_| {})?.synced)
}

/// The header of a segment, `None` when it is damaged.
fn read_header(disk: &dyn Disk, path: &Path) -> Result<Option<Header>, ScanError> {
    let read_error = |source| ScanError::Read { path: path.to_owned(), source };
    let file = disk.open(path).map_err(read_error)?;
    let mut lines = Lines::new(file.as_ref(), file.len().map_err(read_error)?);
    let Some((_, bytes, true)) = lines.next_line().map_err(read_error)? else { return Ok(None) };
    if line::checked(bytes).is_none() {
        return Ok(None);
    }
    match Entry::parse(bytes) {
        Ok(Entry::Header(header)) => Ok(Some(header)),
        _ => Ok(None),
    }
}

/// Splits a file into lines with one reused buffer.
struct Lines<'a> {
    file: &'a dyn ReadAt,
    end: u64,
    /// File offset of `buffer[start]`.
    offset: u64,
    buffer: Vec<u8>,
    start: usize,
}

impl<'a> Lines<'a> {
    fn new(file: &'a dyn ReadAt, end: u64) -> Self {
        Self { file, end, offset: 0, buffer: Vec::new(), start: 0 }
    }

    /// Offset, bytes without newline, and whether a newline followed.
    fn next_line(&mut self) -> io::Result<Option<(u64, &[u8], bool)>> {
        let mut searched = 0;
        loop {
            let held = self.buffer.get(self.start..).unwrap_or_default();
            let found = held.get(searched..).and_then(|rest| rest.iter().position(|b| *b == b'\n'));
            if let Some(at) = found {
                return Ok(Some(self.take(searched + at, true)));
            }
            searched = held.len();
            if searched >= LINE_BYTES_MAX {
                return Ok(Some(self.take(searched, false)));
            }
            if !self.read_more()? {
                let rest = searched;
                return Ok(if rest == 0 { None } else { Some(self.take(rest, false)) });
            }
        }
    }

    fn take(&mut self, len: usize, newline: bool) -> (u64, &[u8], bool) {
        let offset = self.offset;
        let start = self.start;
        let skipped = len + usize::from(newline);
        self.start += skipped;
        self.offset += skipped as u64;
        (offset, self.buffer.get(start..start + len).unwrap_or_default(), newline)
    }

    fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let at = self.offset + self.buffer.len() as u64;
        let want =
            usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX).min(READ_BYTES);
        if want == 0 {
            return Ok(false);
        }
        let old = self.buffer.len();
        self.buffer.resize(old + want, 0);
        let read = match self.buffer.get_mut(old..) {
            Some(room) => crate::disk::fill(self.file, room, at)?,
            None => 0,
        };
        self.buffer.truncate(old + read);
        Ok(read > 0)
    }
}
