//! A sealed segment cut down to what is still wanted of it.

use std::collections::HashSet;
use std::path::Path;

use bytes::Bytes;
use gswarm_types::{Body, Incarnation, NodeId, TableDigest};

use super::decode::Decoder;
use super::encode::{Encoder, Sources};
use super::{Prepared, SealError, checked_content, place_beside};
use crate::catalog::SegmentMeta;
use crate::disk::Disk;
use crate::entry::{Entry, StoredRecord};

type TableKey = (NodeId, Incarnation, TableDigest);

/// Which records and host events stay.
pub type Wanted<'a> = &'a dyn Fn(&Entry) -> bool;

/// Writes the smaller file beside the segment's own; `finish` puts it in its place. Ordinals stay
/// what they were. `None` when everything is wanted.
pub fn trim(
    disk: &dyn Disk,
    dir: &Path,
    meta: &SegmentMeta,
    wanted: Wanted<'_>,
) -> Result<Option<(Prepared, SegmentMeta)>, SealError> {
    let decoder = Decoder::new(checked_content(disk, dir, meta)?)?;
    let (sources, used, dropped) = survey(&decoder, wanted)?;
    if !dropped {
        return Ok(None);
    }
    let mut encoder = Encoder::new(sources, decoder.storage(), decoder.prev_valid_bytes())?;
    let mut left = SegmentMeta { state: meta.state, ..SegmentMeta::new(meta.number) };
    let mut count = 0;
    let mut group = Vec::new();
    for number in 0..decoder.groups() {
        for (ordinal, entry) in decoder.group(number)? {
            if stays(&entry, &used, wanted) {
                left.note_entry(&entry);
                group.push((ordinal, entry));
                count += 1;
            }
            if group.len() == encoder.group_rows() {
                encoder.group(&group)?;
                group.clear();
            }
        }
    }
    if !group.is_empty() {
        encoder.group(&group)?;
    }
    let bytes = Bytes::from(encoder.finish()?);
    compare(&decoder, &bytes, count, meta.number, &used, wanted)?;
    let prepared = place_beside(disk, dir, meta.number, &bytes, Vec::new())?;
    Ok(Some((prepared, left)))
}

/// The tables that wanted values use, and whether anything is not wanted.
fn survey(
    decoder: &Decoder,
    wanted: Wanted<'_>,
) -> Result<(Sources, HashSet<TableKey>, bool), SealError> {
    let mut used = HashSet::new();
    let mut tables = Vec::new();
    let mut dropped = false;
    for number in 0..decoder.groups() {
        for (_, entry) in decoder.group(number)? {
            match &entry {
                Entry::Record(record) if wanted(&entry) => used.extend(table_key(record)),
                Entry::Record(_) => dropped = true,
                Entry::HostEvent(_) => dropped |= !wanted(&entry),
                Entry::Table(table) => tables.push(table.clone()),
                _ => {},
            }
        }
    }
    let mut sources = Sources::default();
    for table in tables {
        if table.node.is_some_and(|node| used.contains(&(node, table.incarnation, table.digest))) {
            sources.add(&table);
        }
    }
    Ok((sources, used, dropped))
}

fn table_key(record: &StoredRecord) -> Option<TableKey> {
    match &record.body {
        Body::Values(values) => Some((record.node, record.incarnation, values.table)),
        _ => None,
    }
}

fn stays(entry: &Entry, used: &HashSet<TableKey>, wanted: Wanted<'_>) -> bool {
    match entry {
        Entry::Record(_) | Entry::HostEvent(_) => wanted(entry),
        Entry::Table(table) => {
            table.node.is_some_and(|n| used.contains(&(n, table.incarnation, table.digest)))
        },
        // States of sessions are the way to rebuild an unreadable file.
        Entry::Session(_) | Entry::Header(_) | Entry::Sync(_) | Entry::Incarnation(_) => true,
    }
}

/// Everything wanted of the old file stands in the new one.
fn compare(
    old: &Decoder,
    bytes: &Bytes,
    count: usize,
    segment: u64,
    used: &HashSet<TableKey>,
    wanted: Wanted<'_>,
) -> Result<(), SealError> {
    let new = Decoder::new(bytes.clone())?;
    let mut held = Vec::new().into_iter();
    let mut next_group = 0;
    let mut same = 0;
    for number in 0..old.groups() {
        for row in old.group(number)? {
            if !stays(&row.1, used, wanted) {
                continue;
            }
            if held.len() == 0 && next_group < new.groups() {
                held = new.group(next_group)?.into_iter();
                next_group += 1;
            }
            if held.next() != Some(row) {
                return Err(SealError::ReadBack(segment));
            }
            same += 1;
        }
    }
    let complete = same == count && held.len() == 0 && next_group == new.groups();
    if complete { Ok(()) } else { Err(SealError::ReadBack(segment)) }
}
