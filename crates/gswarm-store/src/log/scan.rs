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
    /// The last piece of damage has no newline and ends the file: a write that was cut off.
    pub is_torn: bool,
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
    let mut lines = Lines::new(file.as_ref(), end);
    let scan = SegmentScan { file_bytes: end, ..SegmentScan::default() };
    let mut taker = Taker { path, segment, scan, visit };
    while let Some((offset, bytes, whole)) = lines.next_line().map_err(read_error)? {
        let after = offset + bytes.len() as u64 + u64::from(whole);
        let is_last = after == end;
        // A whole line whose newline alone was cut off is whole.
        if let Some(crc) = line::checked(bytes).filter(|_| whole || is_last) {
            taker.line(offset, after, bytes, crc)?;
        } else {
            taker.damaged(offset, after, bytes)?;
            if is_last && !whole {
                taker.torn(offset, after);
            }
        }
    }
    Ok(taker.scan)
}

/// Takes the lines of one segment in.
struct Taker<'a> {
    path: &'a Path,
    segment: u64,
    scan: SegmentScan,
    visit: &'a mut dyn FnMut(LineAt<'_>),
}

impl Taker<'_> {
    fn line(&mut self, offset: u64, after: u64, bytes: &[u8], crc: u32) -> Result<(), ScanError> {
        self.scan.valid_bytes = after;
        // Header and sync marks are short and rare; only they are parsed here.
        if !is_control(bytes) {
            let position = Position { segment: self.segment, offset };
            (self.visit)(LineAt { position, bytes, crc });
            return Ok(());
        }
        if let Some(format) = format_of(bytes).filter(|format| *format > FORMAT) {
            return Err(ScanError::Newer { path: self.path.to_owned(), format });
        }
        match Entry::parse(bytes) {
            Ok(Entry::Header(header)) => {
                self.scan.header.get_or_insert(header);
            },
            Ok(Entry::Sync(mark)) => self.scan.synced = self.scan.synced.max(Some(mark.bytes)),
            _ => {},
        }
        Ok(())
    }

    /// Keeps what is whole between newlines that were lost, and notes the rest.
    fn damaged(&mut self, offset: u64, after: u64, bytes: &[u8]) -> Result<(), ScanError> {
        let has_newline = after > offset + bytes.len() as u64;
        let mut from = offset;
        for (at, piece) in line::pieces(bytes) {
            // Without the next line in sight the byte that was a newline is still at the end.
            let shorter = piece.split_last().map_or(piece, |(_, shorter)| shorter);
            let whole = [piece, shorter].into_iter().find_map(|p| Some((p, line::checked(p)?)));
            let Some((piece, crc)) = whole else { continue };
            let begin = offset + at as u64;
            let end = begin + piece.len() as u64;
            if begin > from {
                note_damage(&mut self.scan.damage, self.segment, from, begin - from);
            }
            self.line(begin, (end + 1).min(after), piece, crc)?;
            from = if has_newline && end + 1 == after { after } else { end };
        }
        if from < after {
            note_damage(&mut self.scan.damage, self.segment, from, after - from);
        }
        Ok(())
    }

    /// Sets the last piece apart from damage that may stand right before it.
    fn torn(&mut self, offset: u64, after: u64) {
        let Some(last) = self.scan.damage.last_mut() else { return };
        if self.scan.valid_bytes > offset || last.offset + last.bytes != after {
            return;
        }
        last.bytes = offset - last.offset;
        if last.bytes == 0 {
            self.scan.damage.pop();
        }
        let torn = Damage { segment: self.segment, offset, bytes: after - offset };
        self.scan.damage.push(torn);
        self.scan.is_torn = true;
    }
}

/// The format that a header claims, even when this version understands nothing else of it.
fn format_of(bytes: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Claim {
        format: u32,
    }
    let (kind, value) = line::tagged(bytes)?;
    let claim: Claim = (kind == b"header").then(|| serde_json::from_slice(value).ok()).flatten()?;
    Some(claim.format)
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
    let plan = Plan {
        durability,
        new_storage,
        is_known: &|number| number < from_segment,
        told_end: &|_| None,
    };
    scan_planned(disk, dir, &plan, visit)
}

/// What the caller of a scan knows already.
pub(crate) struct Plan<'a> {
    pub(crate) durability: Durability,
    pub(crate) new_storage: StorageId,
    /// Segments that need not be read.
    pub(crate) is_known: &'a dyn Fn(u64) -> bool,
    /// Where a segment ends when the next one is no longer there as lines.
    pub(crate) told_end: &'a dyn Fn(u64) -> Option<u64>,
}

pub(crate) fn scan_planned(
    disk: &dyn Disk,
    dir: &Path,
    plan: &Plan<'_>,
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
        storage: plan.new_storage,
        last_segment: numbers.last().copied(),
        prev_valid_bytes: 0,
        tail: Vec::new(),
        damage: Vec::new(),
        segments: Vec::new(),
        torn_bytes: 0,
    };
    for (place, number) in numbers.iter().enumerate() {
        let path = dir.join(segment_name(*number));
        if (plan.is_known)(*number) {
            let bytes = disk.open(&path).and_then(|file| file.len()).map_err(read_error)?;
            scan.segments.push((*number, bytes));
            continue;
        }
        let end = match ((plan.told_end)(*number), numbers.get(place + 1)) {
            (Some(end), _) => Some(end),
            (None, Some(next)) => end_of(disk, dir, *number, *next, plan.durability)?,
            (None, None) => {
                scan.last(disk, dir, plan.durability, visit)?;
                break;
            },
        };
        let found = scan_segment(disk, &path, *number, end, visit)?;
        scan.absorb(*number, &found);
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
        dir: &Path,
        durability: Durability,
        visit: &mut dyn FnMut(LineAt<'_>),
    ) -> Result<(), ScanError> {
        let Some(number) = self.last_segment else { return Ok(()) };
        let path = &dir.join(segment_name(number));
        // The first pass finds the last sync mark; only lines past it need to be held.
        let probe = scan_segment(disk, path, number, None, &mut |_| {})?;
        let end = match durability {
            Durability::Synced => probe.synced.unwrap_or(0),
            Durability::Written => probe.valid_bytes,
        };
        let found = scan_segment(disk, path, number, None, &mut |line| {
            // Also a line that the end cuts in two: a mark may stand in the wrong place.
            if line.position.offset + line.bytes.len() as u64 > end {
                self.tail.push(line.bytes.to_vec());
            }
            visit(line);
        })?;
        self.absorb(number, &found);
        if let Some((_, bytes)) = self.segments.last_mut() {
            *bytes = end;
        }
        // What is torn at the very end is a cut-off write, not damage.
        if found.is_torn {
            self.torn_bytes = self.damage.pop().map_or(0, |damage| damage.bytes);
        }
        self.prev_valid_bytes = end;
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
    // A header that stands in another file than its own says nothing of this one.
    if let Some(header) = read_header(disk, &next_path)?
        && header.segment == number + 1
        && header.segment == next
    {
        return Ok(Some(header.prev_valid_bytes));
    }
    if durability == Durability::Written {
        return Ok(None);
    }
    let path = dir.join(segment_name(number));
    Ok(scan_segment(disk, &path, number, None, &mut |_| {})?.synced)
}

/// The header of a segment, `None` when both its copies are damaged.
pub(crate) fn read_header(disk: &dyn Disk, path: &Path) -> Result<Option<Header>, ScanError> {
    let read_error = |source| ScanError::Read { path: path.to_owned(), source };
    let file = disk.open(path).map_err(read_error)?;
    let mut lines = Lines::new(file.as_ref(), file.len().map_err(read_error)?);
    if let Some((_, bytes, true)) = lines.next_line().map_err(read_error)?
        && line::checked(bytes).is_some()
        && let Ok(Entry::Header(header)) = Entry::parse(bytes)
    {
        return Ok(Some(header));
    }
    Ok(scan_segment(disk, path, 0, None, &mut |_| {})?.header)
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
