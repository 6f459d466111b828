//! Torn tails, lines of newer versions, and where a segment ends.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::catalog::{SegmentMeta, SegmentState};
use crate::disk::{SimDisk, read_file};
use crate::entry::HostEvent;
use crate::fixture;
use crate::journal::{Journal, JournalConfig, SegmentLimits};
use crate::reader::Reader;
use crate::sealed;

const DIR: &str = "/log";

fn scan(disk: &SimDisk, durability: Durability) -> (LogScan, Vec<Vec<u8>>) {
    let mut lines = Vec::new();
    let new = fixture::storage();
    let visit = &mut |line: LineAt<'_>| lines.push(line.bytes.to_vec());
    let scan = scan_log(disk, Path::new(DIR), 0, durability, new, visit).unwrap();
    (scan, lines)
}

fn start(disk: &SimDisk, durability: Durability) -> Log {
    let (found, _) = scan(disk, durability);
    let mut initial = LineBuffer::new();
    for line in &found.tail {
        initial.push_raw(line);
    }
    Log::start(Arc::new(disk.clone()), Path::new(DIR), &found, durability, &initial).unwrap()
}

fn append(log: &mut Log, codes: std::ops::Range<i64>) {
    let mut lines = LineBuffer::new();
    for code in codes {
        lines.push(&fixture::host_event(code)).unwrap();
    }
    log.append(&lines).unwrap();
}

/// The codes of the events in the lines.
fn codes(lines: &[Vec<u8>]) -> Vec<i64> {
    let events = lines.iter().map(|line| match Entry::parse(line).unwrap() {
        Entry::HostEvent(HostEvent { event, .. }) => event.code.unwrap(),
        other => panic!("{other:?}"),
    });
    events.collect()
}

/// A disk on which the file has only this content.
fn with_content(disk: &SimDisk, name: &str, bytes: &[u8]) -> SimDisk {
    let copy = disk.fork();
    let path = Path::new(DIR).join(name);
    crate::disk::write_atomic(&copy, &path, bytes).unwrap();
    copy
}

#[track_caller]
fn check_every_length(durability: Durability) {
    let disk = SimDisk::new();
    let mut log = start(&disk, durability);
    append(&mut log, 0..2);
    log.sync().unwrap();
    log.roll(&LineBuffer::new()).unwrap();
    append(&mut log, 2..5);
    let name = segment_name(2);
    let bytes = read_file(&disk, &Path::new(DIR).join(&name), 100_000).unwrap();
    for len in 0..=bytes.len() {
        let copy = with_content(&disk, &name, &bytes[..len]);
        let (found, lines) = scan(&copy, durability);
        let whole = bytes[..len].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(found.damage, vec![], "a cut-off write is no damage: {len}");
        let codes_found = codes(&lines);
        let expected: Vec<i64> = (0..i64::try_from(codes_found.len()).unwrap()).collect();
        assert_eq!(codes_found, expected, "{len}");
        assert!(codes_found.len() >= 2, "{len}: the segment before is whole");
        // A line is there as soon as its last byte but the newline is.
        let in_second = codes_found.len() - 2;
        let control = bytes[..len]
            .split(|b| *b == b'\n')
            .take(whole)
            .filter(|line| matches!(Entry::parse(line), Ok(Entry::Header(_) | Entry::Sync(_))));
        let lines_whole = whole - control.count();
        assert!((lines_whole..=lines_whole + 1).contains(&in_second), "{len}: {in_second}");
        // The next start goes on in a new segment and keeps them all, once.
        let mut next = start(&copy, durability);
        append(&mut next, 90..91);
        drop(next);
        let (_, lines) = scan(&copy, durability);
        let after: Vec<i64> = expected.iter().copied().chain([90]).collect();
        assert_eq!(codes(&lines), after, "{len}");
    }
}

#[test]
fn torn_at_every_length() {
    check_every_length(Durability::Written);
    check_every_length(Durability::Synced);
}

#[test]
fn a_spool_needs_no_sync_to_survive_its_process() {
    let disk = SimDisk::new();
    let mut log = start(&disk, Durability::Written);
    append(&mut log, 0..3);
    drop(log);
    let mut log = start(&disk, Durability::Written);
    append(&mut log, 3..4);
    drop(log);
    assert_eq!(codes(&scan(&disk, Durability::Written).1), [0, 1, 2, 3]);
}

#[test]
fn a_short_write_is_cut_back() {
    let disk = SimDisk::new();
    let mut log = start(&disk, Durability::Written);
    append(&mut log, 0..2);
    disk.set_space_left(Some(30));
    let mut lines = LineBuffer::new();
    lines.push(&fixture::host_event(7)).unwrap();
    log.append(&lines).unwrap_err();
    disk.set_space_left(None);
    append(&mut log, 2..3);
    let (found, lines) = scan(&disk, Durability::Written);
    assert_eq!((codes(&lines), found.damage, found.torn_bytes), (vec![0, 1, 2], vec![], 0));
}

#[test]
fn a_line_longer_than_any_is_damage_and_the_next_one_is_found() {
    let disk = SimDisk::new();
    let mut log = start(&disk, Durability::Written);
    append(&mut log, 0..1);
    let mut lines = LineBuffer::new();
    lines.push_raw(&vec![b'x'; 9 * 1024 * 1024]);
    log.append(&lines).unwrap();
    append(&mut log, 1..2);
    let (found, lines) = scan(&disk, Durability::Written);
    assert_eq!(codes(&lines), [0, 1]);
    assert_eq!(found.damage.iter().map(|damage| damage.bytes).sum::<u64>(), 9 * 1024 * 1024 + 1);
}

#[derive(serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Newer {
    Dream { colour: &'static str },
    Header { format: u32, home: &'static str },
}

fn journal(disk: &SimDisk) -> Result<crate::journal::Recovered, crate::journal::OpenError> {
    let new_storage = fixture::storage();
    let config = JournalConfig {
        dir: DIR.into(),
        disk_reserve_bytes: 0,
        segments: SegmentLimits::default(),
        new_storage,
    };
    Journal::open(Arc::new(disk.clone()), config)
}

/// Host events that a reader of the journal finds.
fn readable_events(disk: &SimDisk, journal: &Journal) -> usize {
    let catalog = journal.catalog().clone();
    let reader = Reader::new(Arc::new(disk.clone()), Path::new(DIR), catalog.clone());
    let mut events = 0;
    for meta in catalog.segments() {
        let visit = &mut |entry| events += usize::from(matches!(entry, Entry::HostEvent(_)));
        reader.visit(&meta, visit).unwrap();
    }
    events
}

#[test]
fn a_line_that_a_mark_cuts_in_two_is_written_again() {
    let disk = SimDisk::new();
    let mut log = start(&disk, Durability::Synced);
    append(&mut log, 0..1);
    let mut lines = LineBuffer::new();
    lines.push(&Entry::Sync(SyncMark { bytes: log.len - 10 })).unwrap();
    log.append(&lines).unwrap();
    append(&mut log, 1..2);
    drop(log);
    for _ in 0..2 {
        assert_eq!(readable_events(&disk, &journal(&disk).unwrap().journal), 2);
    }
}

#[test]
fn a_header_in_the_wrong_file_ends_no_other() {
    let disk = SimDisk::new();
    let mut log = start(&disk, Durability::Written);
    append(&mut log, 0..2);
    let mut lines = LineBuffer::new();
    let storage = fixture::storage();
    let header = Header { format: FORMAT, storage, segment: 2, prev_valid_bytes: 10 };
    lines.push(&Entry::Header(header)).unwrap();
    let copied = with_content(&disk, &segment_name(3), lines.as_bytes());
    assert_eq!(codes(&scan(&copied, Durability::Written).1), [0, 1]);
}

#[test]
fn a_line_of_an_unknown_kind_is_kept() {
    let disk = SimDisk::new();
    let mut log = start(&disk, Durability::Synced);
    append(&mut log, 0..1);
    let mut lines = LineBuffer::new();
    lines.push(&Newer::Dream { colour: "blue" }).unwrap();
    log.append(&lines).unwrap();
    append(&mut log, 1..2);
    drop(log);
    for _ in 0..2 {
        let recovered = journal(&disk).unwrap();
        assert_eq!(recovered.damage, vec![]);
        assert_eq!(readable_events(&disk, &recovered.journal), 2, "readable beside it");
        let dreams = scan(&disk, Durability::Synced).1;
        let dreams = dreams.iter().filter(|line| line.windows(7).any(|w| w == b"\"dream\""));
        assert_eq!(dreams.count(), 1);
    }
    // In a closed segment it keeps the segment from being sealed.
    let closed: Vec<SegmentMeta> = journal(&disk).unwrap().journal.catalog().segments();
    let refusals = closed.iter().filter(|meta| meta.state == SegmentState::Closed).filter(|meta| {
        let sealed = sealed::prepare(&disk, DIR.as_ref(), meta, fixture::storage());
        matches!(sealed, Err(sealed::SealError::Json(_)))
    });
    assert_eq!(refusals.count(), 1);
}

#[test]
fn a_newer_format_is_refused_with_its_number() {
    let disk = SimDisk::new();
    drop(start(&disk, Durability::Synced));
    let mut lines = LineBuffer::new();
    lines.push(&Newer::Header { format: 2, home: "unknown to this version" }).unwrap();
    let newer = with_content(&disk, &segment_name(2), lines.as_bytes());
    let error = journal(&newer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/log/0000000002.jsonl` was written by a newer gswarm (format 2); this one reads up to 1"
    );
}
