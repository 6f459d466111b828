//! A closed segment of lines to the content of its sealed file, in memory of one row group.
//!
//! The first pass notes where each line stands and whose it is, the second encodes the records of
//! one incarnation after the other: a series compresses best beside itself.

use std::collections::HashMap;
use std::path::Path;

use bytes::Bytes;
use gswarm_types::{Incarnation, NodeId, StorageId};
use serde::Deserialize;

use super::SealError;
use super::decode::Decoder;
use super::encode::{Encoder, Sources};
use crate::catalog::SegmentMeta;
use crate::disk::{Disk, ReadAt, fill};
use crate::entry::Entry;
use crate::line::{self, LineBuffer};
use crate::log::{Damage, read_header, scan_segment, segment_name};

/// The content of a sealed file and the lines that could not be part of it.
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    pub(super) damage: Vec<Damage>,
}

/// Where a line stands.
#[derive(Clone, Copy)]
struct Place {
    /// 0 for entries that are no records, else one per incarnation.
    lane: u32,
    len: u32,
    crc: u32,
    ordinal: i64,
    offset: u64,
}

/// What the first pass needs of a record.
#[derive(Deserialize)]
struct Owner {
    #[serde(rename = "n")]
    node: NodeId,
    #[serde(rename = "i")]
    incarnation: Incarnation,
}

#[derive(Default)]
struct Index {
    places: Vec<Place>,
    lanes: HashMap<(NodeId, Incarnation), u32>,
    sources: Sources,
    not_understood: Option<serde_json::Error>,
}

impl Index {
    fn line(&mut self, bytes: &[u8], offset: u64, crc: u32) {
        match self.lane(bytes) {
            Ok(lane) => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let ordinal = i64::try_from(self.places.len()).unwrap_or(i64::MAX);
                self.places.push(Place { lane, len, crc, ordinal, offset });
            },
            Err(error) => self.not_understood = Some(error),
        }
    }

    fn lane(&mut self, bytes: &[u8]) -> Result<u32, serde_json::Error> {
        if let Some((b"record", value)) = line::tagged(bytes) {
            let owner: Owner = serde_json::from_slice(value)?;
            let next = u32::try_from(self.lanes.len() + 1).unwrap_or(u32::MAX);
            return Ok(*self.lanes.entry((owner.node, owner.incarnation)).or_insert(next));
        }
        if let Entry::Table(table) = Entry::parse(bytes)? {
            self.sources.add(&table);
        }
        Ok(0)
    }
}

/// Encodes the segment and checks that it reads back as the same lines.
pub(super) fn encode(
    disk: &dyn Disk,
    dir: &Path,
    meta: &SegmentMeta,
    storage: StorageId,
) -> Result<Encoded, SealError> {
    let path = dir.join(segment_name(meta.number));
    let mut index = Index::default();
    let scan = scan_segment(disk, &path, meta.number, Some(meta.bytes), &mut |line| {
        index.line(line.bytes, line.position.offset, line.crc);
    })?;
    if let Some(error) = index.not_understood {
        return Err(error.into());
    }
    let mut places = index.places;
    places.sort_by_key(|place| (place.lane, place.ordinal));
    let prev_valid_bytes = read_header(disk, &path)?.map(|header| header.prev_valid_bytes);
    let mut encoder = Encoder::new(index.sources, storage, prev_valid_bytes)?;
    let file = disk.open(&path).map_err(|source| SealError::File { path: path.clone(), source })?;
    for group in places.chunks(encoder.group_rows()) {
        let mut entries = Vec::with_capacity(group.len());
        for place in group {
            let line = read_line(file.as_ref(), place)
                .map_err(|source| SealError::File { path: path.clone(), source })?;
            entries.push((place.ordinal, Entry::parse(&line)?));
        }
        encoder.group(&entries)?;
    }
    let bytes = Bytes::from(encoder.finish()?);
    compare(&bytes, &places, file.as_ref(), meta.number)?;
    Ok(Encoded { bytes, damage: scan.damage })
}

fn read_line(file: &dyn ReadAt, place: &Place) -> std::io::Result<Vec<u8>> {
    let mut line = vec![0; usize::try_from(place.len).unwrap_or(0)];
    let filled = fill(file, &mut line, place.offset)?;
    line.truncate(filled);
    Ok(line)
}

/// What was encoded must give the very lines again, or at least the same entries.
fn compare(
    bytes: &Bytes,
    places: &[Place],
    file: &dyn ReadAt,
    segment: u64,
) -> Result<(), SealError> {
    let decoder = Decoder::new(bytes.clone())?;
    let mut line = LineBuffer::new();
    let mut expected = places.iter();
    for number in 0..decoder.groups() {
        for (ordinal, entry) in decoder.group(number)? {
            let place = expected.next().filter(|place| place.ordinal == ordinal);
            let place = place.ok_or(SealError::ReadBack(segment))?;
            line.clear();
            // A line of another version may be spelt differently and say the same.
            let same = line.push(&entry)? == place.crc
                || read_line(file, place)
                    .ok()
                    .and_then(|line| Entry::parse(&line).ok())
                    .is_some_and(|written| written == entry);
            if !same {
                return Err(SealError::ReadBack(segment));
            }
        }
    }
    if expected.next().is_some() { Err(SealError::ReadBack(segment)) } else { Ok(()) }
}
