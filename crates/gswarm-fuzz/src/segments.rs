//! Segments of journal and spool: every valid line is kept, everything else is named.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_node::fuzzed::open_spool;
use gswarm_store::entry::StoredRecord;
use gswarm_store::log::{Durability, scan_log, scan_segment, segment_name};
use gswarm_store::{Disk, SimDisk};
use gswarm_types::StorageId;
use uuid::Uuid;

use crate::files::{BODY_AT, disk_with, several};
use crate::store::{self, JOURNAL};

const SPOOL: &str = "/state/spool";

/// The files of a journal, opened twice.
pub fn journal_segment(bytes: &[u8]) {
    let files = several(bytes);
    let (memory, disk) = segments(JOURNAL, &files);
    for (number, file) in (1..).zip(&files) {
        check_scan(&memory, JOURNAL, number, file);
    }
    let shown = shown_records(&memory);
    let first = match store::open(&disk) {
        Ok(first) => first,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let records = store::records(&disk, &first.journal);
    if let Some(shown) = shown {
        assert_eq!(records, shown, "recovery keeps every valid record once");
    }
    let sessions = first.sessions.clone();
    let seqs = serde_json::to_string(&first.intake).expect("the intake can be written");
    drop(first);
    let second = store::open(&disk).expect("what opened once opens again");
    assert_eq!(store::records(&disk, &second.journal), records, "the second time");
    assert_eq!(second.sessions, sessions, "sessions the second time");
    let again = serde_json::to_string(&second.intake).expect("the intake can be written");
    assert_eq!(again, seqs, "what counts as stored the second time");
}

/// The files of a spool, opened twice.
pub fn spool_segment(bytes: &[u8]) {
    let files = several(bytes);
    let (memory, disk) = segments(SPOOL, &files);
    for (number, file) in (1..).zip(&files) {
        check_scan(&memory, SPOOL, number, file);
    }
    let mut crcs = BTreeSet::new();
    let scan = scan(&memory, SPOOL, Durability::Written, &mut |_, crc| {
        crcs.insert(crc);
    });
    let first = match open_spool(disk.clone(), Path::new(SPOOL)) {
        Ok(first) => first,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for sent in &first.records {
        assert!(crcs.contains(&sent.crc), "a record that stands on no valid line");
        if let gswarm_types::Body::Values(values) = &sent.record.body {
            let table = sent.table.as_ref().expect("values go out with their table");
            assert_eq!(table.digest(), values.table, "values of another table");
        }
    }
    let has_damage = scan.is_some_and(|damages| damages > 0);
    assert_eq!(first.damage.is_some(), has_damage, "damage is said");
    let second = open_spool(disk, Path::new(SPOOL)).expect("what opened once opens again");
    // It may find more: a file that told where the one before it ends is gone when it held nothing.
    for sent in &first.records {
        assert!(second.records.contains(sent), "lost the second time: {sent:?}");
    }
}

fn segments(dir: &str, files: &[Vec<u8>]) -> (SimDisk, Arc<dyn Disk>) {
    let path = |number: u64| PathBuf::from(dir).join(segment_name(number));
    disk_with((1..).zip(files).map(|(number, file)| (path(number), file.as_slice())))
}

/// Every byte of a segment stands in a valid line or in named damage, never in both.
fn check_scan(disk: &SimDisk, dir: &str, number: u64, file: &[u8]) {
    let path = Path::new(dir).join(segment_name(number));
    let mut covered: Vec<Range<usize>> = Vec::new();
    let scan = scan_segment(disk, &path, number, None, &mut |line| {
        let at = position(line.position.offset);
        let there = file.get(at..at + line.bytes.len());
        assert_eq!(there, Some(line.bytes), "a line is shown where it does not stand");
        assert_eq!(checksum(line.bytes), Some(line.crc), "a line is shown with a wrong checksum");
        covered.push(at..at + line.bytes.len());
    });
    let Ok(scan) = scan else { return };
    for damage in &scan.damage {
        assert_eq!(damage.segment, number);
        let at = position(damage.offset);
        covered.push(at..at + position(damage.bytes));
    }
    covered.push(file.len()..file.len());
    covered.sort_by_key(|range| range.start);
    let mut end = 0;
    for range in covered {
        assert!(range.start >= end, "damage is named where a line stands, or twice");
        assert!(range.end <= file.len(), "damage is named beyond the end");
        // Between them stand newlines and the log's own lines, which are not shown.
        for own in file[end..range.start].split(|byte| *byte == b'\n') {
            assert!(own.is_empty() || checksum(own).is_some(), "damage that nobody names");
        }
        end = range.end;
    }
}

fn position(number: u64) -> usize {
    usize::try_from(number).expect("inputs are small")
}

/// The checksum of a line when it is right.
fn checksum(line: &[u8]) -> Option<u32> {
    let digits = line.strip_prefix(br#"{"crc":""#)?.get(..8)?;
    let crc = crc32c::crc32c(line.get(BODY_AT..)?);
    (digits == format!("{crc:08x}").as_bytes()).then_some(crc)
}

/// How many places are damaged; `None` when the log cannot be read at all.
fn scan(
    disk: &SimDisk,
    dir: &str,
    durability: Durability,
    visit: &mut dyn FnMut(&[u8], u32),
) -> Option<usize> {
    let storage = StorageId::new(Uuid::nil());
    let visit = &mut |line: gswarm_store::log::LineAt<'_>| visit(line.bytes, line.crc);
    let scan = scan_log(disk, Path::new(dir), 0, durability, storage, visit).ok()?;
    Some(scan.damage.len())
}

/// The records on the valid lines of a journal.
fn shown_records(disk: &SimDisk) -> Option<Vec<String>> {
    let mut records = Vec::new();
    scan(disk, JOURNAL, Durability::Synced, &mut |line, _| {
        let json = line[BODY_AT..].strip_prefix(br#""record":"#);
        let json = json.and_then(|json| json.strip_suffix(b"}"));
        let record = json.and_then(|json| serde_json::from_slice::<StoredRecord>(json).ok());
        records.extend(record.as_ref().map(store::text));
    })?;
    records.sort();
    Some(records)
}
