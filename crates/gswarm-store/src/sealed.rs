//! Sealed segments: the same entries as Parquet, a fraction of the size.
//!
//! Values become one Parquet column per position with the rows of one incarnation beside each other,
//! so that each column holds series; every other entry is kept as its JSON. Each row carries its ordinal: the very sequence of entries can be had back.

mod numbers;
mod encode;
mod decode;
mod from_lines;
mod trim;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gswarm_types::StorageId;
use parquet::errors::ParquetError;

use crate::catalog::{SegmentMeta, SegmentState};
use crate::disk::{Disk, read_file, remove_if_there, temporary_path};
use crate::entry::Entry;
use crate::log::{Damage, ScanError, segment_name, segment_number};
use crate::quarantine;

pub use trim::{Wanted, trim};

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
pub(crate) fn parse_name(name: &str) -> Option<(u64, u32)> {
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
    let lines: HashSet<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
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

/// The files of a sealed segment and their checksums: one, or more where sealing was cut off
/// before the lines were gone and a later version sealed them again.
fn find(disk: &dyn Disk, dir: &Path, segment: u64) -> io::Result<Vec<(PathBuf, u32)>> {
    let names = disk.list(dir)?;
    let found: Vec<_> = names
        .iter()
        .filter_map(|name| {
            let (number, crc) = parse_name(name)?;
            (number == segment).then(|| (dir.join(name), crc))
        })
        .collect();
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

pub fn file_bytes(disk: &dyn Disk, dir: &Path, segment: u64) -> io::Result<u64> {
    let mut bytes = 0;
    for (path, _) in find(disk, dir, segment)? {
        bytes += disk.open(&path)?.len()?;
    }
    Ok(bytes)
}

/// Deletes a sealed segment.
pub fn remove(disk: &dyn Disk, dir: &Path, segment: u64) -> io::Result<()> {
    for (path, _) in find(disk, dir, segment)? {
        disk.remove(&path)?;
    }
    Ok(())
}

/// Shows every entry in its order and returns the storage id.
pub fn read(
    disk: &dyn Disk,
    dir: &Path,
    segment: u64,
    visit: &mut dyn FnMut(Entry),
) -> Result<StorageId, SealError> {
    decode::decode(content(disk, dir, segment)?.0, visit)
}

/// The same, without a look at the directory when the catalog knows the file's name.
pub(crate) fn read_known(
    disk: &dyn Disk,
    dir: &Path,
    meta: &SegmentMeta,
    visit: &mut dyn FnMut(Entry),
) -> Result<StorageId, SealError> {
    decode::decode(checked_content(disk, dir, meta)?, visit)
}

/// Fails when the file of a sealed segment is not what was written.
pub fn verify(disk: &dyn Disk, dir: &Path, meta: &SegmentMeta) -> Result<(), SealError> {
    checked_content(disk, dir, meta).map(|_| ())
}

fn checked_content(disk: &dyn Disk, dir: &Path, meta: &SegmentMeta) -> Result<Bytes, SealError> {
    match meta.sealed_crc {
        Some(crc) => checked(disk, &dir.join(sealed_name(meta.number, crc)), crc),
        None => content(disk, dir, meta.number).map(|(bytes, _)| bytes),
    }
}

/// The checksum in the name of the file that holds what it should.
pub(crate) fn checksum(disk: &dyn Disk, dir: &Path, segment: u64) -> Result<u32, SealError> {
    content(disk, dir, segment).map(|(_, crc)| crc)
}

/// Where the segment before a sealed one ends, as its header said.
pub(crate) fn prev_valid_bytes(
    disk: &dyn Disk,
    dir: &Path,
    segment: u64,
) -> Result<Option<u64>, SealError> {
    Ok(decode::Decoder::new(content(disk, dir, segment)?.0)?.prev_valid_bytes())
}

/// The first file of the segment that is undamaged.
fn content(disk: &dyn Disk, dir: &Path, segment: u64) -> Result<(Bytes, u32), SealError> {
    let file_error = |source| SealError::File { path: dir.to_owned(), source };
    let mut failed = SealError::Damaged("there is no such file");
    for (path, crc) in find(disk, dir, segment).map_err(file_error)? {
        match checked(disk, &path, crc) {
            Ok(bytes) => return Ok((bytes, crc)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn checked(disk: &dyn Disk, path: &Path, crc: u32) -> Result<Bytes, SealError> {
    let bytes = read_file(disk, path, SEALED_BYTES_MAX)
        .map_err(|source| SealError::File { path: path.to_owned(), source })?;
    if crc32c::crc32c(&bytes) != crc {
        return Err(SealError::Damaged("the checksum in its name does not match"));
    }
    Ok(Bytes::from(bytes))
}

/// Moves a sealed file that cannot be read out of the way, where a person can look at it.
pub fn quarantine(disk: &dyn Disk, dir: &Path, segment: u64) {
    let aside = dir.join("quarantine");
    let moved = disk.create_dir_all(&aside).and_then(|()| {
        for (path, crc) in find(disk, dir, segment)? {
            disk.rename(&path, &aside.join(sealed_name(segment, crc)))?;
        }
        disk.sync_dir(&aside)?;
        disk.sync_dir(dir)
    });
    if let Err(error) = moved {
        tracing::warn!(segment, %error, "damaged segment not moved aside");
    }
}

/// Writes the Parquet file of a closed segment, reads it back and compares. The JSONL stays;
/// `finish` replaces it once nobody reads it. Damaged lines are copied aside and named, for they
/// go with the JSONL. Lines of a kind this version does not know keep their segment from being
/// sealed.
pub fn prepare(
    disk: &dyn Disk,
    dir: &Path,
    meta: &SegmentMeta,
    storage: StorageId,
) -> Result<Prepared, SealError> {
    let encoded = from_lines::encode(disk, dir, meta, storage)?;
    quarantine::keep(disk, dir, &encoded.damage);
    place_beside(disk, dir, meta.number, &encoded.bytes, encoded.damage)
}

/// Writes the content under the temporary name of its final place.
fn place_beside(
    disk: &dyn Disk,
    dir: &Path,
    segment: u64,
    bytes: &Bytes,
    damage: Vec<Damage>,
) -> Result<Prepared, SealError> {
    let crc = crc32c::crc32c(bytes);
    let target = dir.join(sealed_name(segment, crc));
    let temporary = temporary_path(&target);
    if let Err(error) = write_and_compare(disk, &temporary, bytes, segment) {
        // Best effort: opening the journal removes what is left.
        let _left_behind = disk.remove(&temporary);
        return Err(error);
    }
    Ok(Prepared { target, crc, bytes: bytes.len() as u64, damage })
}

/// What the disk gives back, not what we hold, is compared before anything is deleted.
fn write_and_compare(
    disk: &dyn Disk,
    path: &Path,
    bytes: &Bytes,
    segment: u64,
) -> Result<(), SealError> {
    let file_error = |source| SealError::File { path: path.to_owned(), source };
    remove_if_there(disk, path).map_err(file_error)?;
    let mut file = disk.create(path).map_err(file_error)?;
    file.append(bytes).and_then(|()| file.sync()).map_err(file_error)?;
    let written = read_file(disk, path, SEALED_BYTES_MAX).map_err(file_error)?;
    if written == *bytes { Ok(()) } else { Err(SealError::ReadBack(segment)) }
}

/// A sealed file under its temporary name.
#[derive(Debug, Clone)]
pub struct Prepared {
    target: PathBuf,
    crc: u32,
    pub bytes: u64,
    /// Lines of the segment that could not be read; copies lie in `quarantine`.
    pub damage: Vec<Damage>,
}

/// Puts the prepared file in the place of whatever the segment was: lines or a larger file. Call
/// with nobody reading the segment.
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
    if meta.state == SegmentState::Sealed {
        for (path, _) in find(disk, dir, meta.number).map_err(file_error)? {
            if path != *target {
                disk.remove(&path).map_err(file_error)?;
            }
        }
    } else {
        disk.remove(&dir.join(segment_name(meta.number))).map_err(file_error)?;
    }
    // What it was is gone for every reader; should a power loss bring lines back, they win, and a
    // larger sealed file is as good as the smaller one.
    if let Err(error) = disk.sync_dir(dir) {
        tracing::warn!(segment = meta.number, %error, "removal of what was sealed not synced");
    }
    Ok(SegmentMeta {
        state: SegmentState::Sealed,
        bytes: prepared.bytes,
        sealed_crc: Some(prepared.crc),
        ..meta.clone()
    })
}

/// The entries as they came.
#[cfg(test)]
pub(crate) fn in_order(disk: &dyn Disk, dir: &Path, meta: &SegmentMeta) -> Vec<Entry> {
    let decoder = decode::Decoder::new(checked_content(disk, dir, meta).unwrap()).unwrap();
    let groups = (0..decoder.groups()).flat_map(|number| decoder.group(number).unwrap());
    let mut rows: Vec<(i64, Entry)> = groups.collect();
    rows.sort_by_key(|(ordinal, _)| *ordinal);
    rows.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests;
