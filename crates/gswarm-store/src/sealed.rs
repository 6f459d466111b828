//! Sealed segments: the same entries as Parquet, a fraction of the size.
//!
//! Values become one Parquet column per position (integers and floats apart) with the rows of one
//! source beside each other, so that each column holds series; every other entry is kept as its
//! JSON. Each row carries its ordinal, so the file gives back the very sequence of entries.

mod encode;
mod decode;

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gswarm_types::StorageId;
use parquet::errors::ParquetError;

use crate::catalog::{SegmentMeta, SegmentState};
use crate::disk::{Disk, read_file, remove_if_there, temporary_path};
use crate::entry::Entry;
use crate::log::{ScanError, scan_segment, segment_name, segment_number};

/// The largest sealed file that is read.
const SEALED_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Why a segment cannot be sealed or read.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("cannot write or read `{path}`")]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error("cannot write or read Parquet")]
    Parquet(#[from] ParquetError),
    #[error("an entry cannot be encoded")]
    Json(#[from] serde_json::Error),
    #[error("segment {0} did not read back as it was written")]
    ReadBack(u64),
    #[error("the sealed segment is damaged: {0}")]
    Damaged(&'static str),
    #[error("written by a newer gswarm (format {0})")]
    Newer(u32),
}

/// `0000000042-1a2b3c4d.parquet`: the name carries the CRC32C of the whole file, because Parquet
/// readers do not notice a flipped bit by themselves.
fn sealed_name(segment: u64, crc: u32) -> String {
    format!("{segment:010}-{crc:08x}.parquet")
}

/// Segment number and checksum in a file name.
fn parse_name(name: &str) -> Option<(u64, u32)> {
    let (digits, crc) = name.strip_suffix(".parquet")?.split_once('-')?;
    let well_formed = digits.len() == 10
        && crc.len() == 8
        && digits.bytes().all(|b| b.is_ascii_digit())
        && crc.bytes().all(|b| b.is_ascii_hexdigit());
    if !well_formed {
        return None;
    }
    Some((digits.parse().ok()?, u32::from_str_radix(crc, 16).ok()?))
}

/// Numbers of sealed segments, oldest first. Where the JSONL still exists it wins.
pub fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u64>> {
    let names = disk.list(dir)?;
    let lines: std::collections::HashSet<u64> =
        names.iter().filter_map(|name| segment_number(name)).collect();
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| parse_name(name))
        .map(|(number, _)| number)
        .filter(|number| !lines.contains(number))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// The file of a sealed segment and its checksum.
fn find(disk: &dyn Disk, dir: &Path, segment: u64) -> io::Result<(PathBuf, u32)> {
    let names = disk.list(dir)?;
    let found = names.iter().find_map(|name| {
        let (number, crc) = parse_name(name)?;
        (number == segment).then(|| (dir.join(name), crc))
    });
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

pub fn file_bytes(disk: &dyn Disk, dir: &Path, segment: u64) -> io::Result<u64> {
    disk.open(&find(disk, dir, segment)?.0)?.len()
}

/// Deletes a sealed segment.
pub fn remove(disk: &dyn Disk, dir: &Path, segment: u64) -> io::Result<()> {
    disk.remove(&find(disk, dir, segment)?.0)
}

/// Shows every entry in its order and returns the storage id.
pub fn read(
    disk: &dyn Disk,
    dir: &Path,
    segment: u64,
    visit: &mut dyn FnMut(Entry),
) -> Result<StorageId, SealError> {
    let file_error = |source| SealError::File { path: dir.to_owned(), source };
    let (path, crc) = find(disk, dir, segment).map_err(file_error)?;
    let bytes = read_file(disk, &path, SEALED_BYTES_MAX)
        .map_err(|source| SealError::File { path, source })?;
    if crc32c::crc32c(&bytes) != crc {
        return Err(SealError::Damaged("the checksum in its name does not match"));
    }
    decode::decode(Bytes::from(bytes), visit)
}

/// Moves a sealed file that cannot be read out of the way, where a person can look at it.
pub fn quarantine(disk: &dyn Disk, dir: &Path, segment: u64) {
    let aside = dir.join("quarantine");
    let moved = disk.create_dir_all(&aside).and_then(|()| {
        let (path, crc) = find(disk, dir, segment)?;
        disk.rename(&path, &aside.join(sealed_name(segment, crc)))?;
        disk.sync_dir(&aside)?;
        disk.sync_dir(dir)
    });
    if let Err(error) = moved {
        tracing::warn!(segment, %error, "damaged segment not moved aside");
    }
}

/// Writes the Parquet file of a closed segment, reads it back and compares. The JSONL stays;
/// `finish` replaces it once nobody reads it.
pub fn prepare(
    disk: &dyn Disk,
    dir: &Path,
    meta: &SegmentMeta,
    storage: StorageId,
) -> Result<Prepared, SealError> {
    let mut entries = Vec::new();
    let path = dir.join(segment_name(meta.number));
    let mut not_understood = None;
    scan_segment(disk, &path, meta.number, Some(meta.bytes), &mut |line| match Entry::parse(
        line.bytes,
    ) {
        Ok(entry) => entries.push(entry),
        Err(error) => not_understood = Some(error),
    })?;
    if let Some(error) = not_understood {
        return Err(error.into());
    }
    let bytes = Bytes::from(encode::encode(&entries, storage)?);
    let mut at = 0;
    let mut same = true;
    decode::decode(bytes.clone(), &mut |entry| {
        same &= entries.get(at) == Some(&entry);
        at += 1;
    })?;
    if !same || at != entries.len() {
        return Err(SealError::ReadBack(meta.number));
    }
    let crc = crc32c::crc32c(&bytes);
    let target = dir.join(sealed_name(meta.number, crc));
    let temporary = temporary_path(&target);
    let file_error = |source| SealError::File { path: temporary.clone(), source };
    remove_if_there(disk, &temporary).map_err(file_error)?;
    let mut file = disk.create(&temporary).map_err(file_error)?;
    file.append(&bytes).and_then(|()| file.sync()).map_err(file_error)?;
    // What the disk gives back, not what we hold, is compared before anything is deleted.
    let written = read_file(disk, &temporary, SEALED_BYTES_MAX).map_err(file_error)?;
    if written != bytes {
        return Err(SealError::ReadBack(meta.number));
    }
    Ok(Prepared { target, bytes: bytes.len() as u64 })
}

/// A sealed file under its temporary name.
#[derive(Debug, Clone)]
pub struct Prepared {
    target: PathBuf,
    pub bytes: u64,
}

/// Puts the prepared file in the place of the JSONL. Call with nobody reading the segment.
pub fn finish(
    disk: &dyn Disk,
    dir: &Path,
    meta: &SegmentMeta,
    prepared: &Prepared,
) -> Result<SegmentMeta, SealError> {
    let target = &prepared.target;
    let file_error = |source| SealError::File { path: target.clone(), source };
    disk.rename(&temporary_path(target), target).map_err(file_error)?;
    disk.sync_dir(dir).map_err(file_error)?;
    disk.remove(&dir.join(segment_name(meta.number))).map_err(file_error)?;
    disk.sync_dir(dir).map_err(file_error)?;
    Ok(SegmentMeta { state: SegmentState::Sealed, bytes: prepared.bytes, ..meta.clone() })
}

#[cfg(test)]
mod tests;
