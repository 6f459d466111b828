//! Whatever is sealed comes back, and damage is noticed.

use std::sync::Arc;

use gswarm_trial::Trial;
use gswarm_types::{
    Body, Cells, Column, DeviceId, DeviceInfo, Event, EventKind, Incarnation, MetricName, Micros,
    NodeId, Scope, Severity, Table, TimeQuality, Values,
};
use proptest::prelude::*;

use super::*;
use crate::disk::SimDisk;
use crate::entry::{HostEvent, StoredRecord, TableEntry};

fn node() -> NodeId {
    "00000000-0000-7000-8000-000000000001".parse().unwrap()
}

fn storage() -> StorageId {
    "00000000-0000-7000-8000-0000000000aa".parse().unwrap()
}

fn table(width: u32) -> Table {
    let device = DeviceInfo {
        id: DeviceId("GPU-1".to_owned()),
        scope: Scope::Gpu,
        index: 0,
        name: "H200".to_owned(),
        parent: None,
        simulated: true,
    };
    let names = ["gpu_utilization", "sm_activity", "power_milliwatts", "tensor_activity"];
    let columns = (0..width)
        .map(|at| Column { device: 0, metric: MetricName::new(names[at as usize % 4]) })
        .collect();
    Table { devices: vec![device], columns }
}

fn values(seq: u64, table: &Table, cells: Vec<Option<f64>>) -> Entry {
    let at = i64::try_from(seq).unwrap();
    Entry::Record(StoredRecord {
        node: node(),
        time: Micros(1_000 + at),
        receipt: Micros(2_000 + at),
        quality: if seq.is_multiple_of(3) { TimeQuality::Wall } else { TimeQuality::Measured },
        crc: u32::try_from(seq).unwrap().wrapping_mul(2_654_435_761),
        incarnation: Incarnation(9),
        seq,
        mono: Micros(at),
        wall: Micros(-at),
        body: Body::Values(Values { table: table.digest(), cells: Cells::new(cells) }),
    })
}

fn event(seq: u64) -> Entry {
    let event = Event {
        kind: EventKind::Xid,
        severity: Severity::Error,
        device: None,
        code: Some(79),
        message: format!("fell off the bus {seq}"),
    };
    Entry::HostEvent(HostEvent { time: Micros(i64::try_from(seq).unwrap()), node: None, event })
}

#[track_caller]
fn check_round_trip(entries: &[Entry]) {
    let disk = Arc::new(SimDisk::new());
    let meta = closed_segment(&disk, entries);
    let encoded = from_lines::encode(disk.as_ref(), Path::new("/j"), &meta, storage()).unwrap();
    let decoder = decode::Decoder::new(encoded.bytes).unwrap();
    assert_eq!(decoder.storage(), storage());
    assert_eq!(decoder.prev_valid_bytes(), Some(0));
    let mut back = Vec::new();
    for number in 0..decoder.groups() {
        back.extend(decoder.group(number).unwrap());
    }
    let mut records = back.iter().skip_while(|(_, entry)| !matches!(entry, Entry::Record(_)));
    assert!(records.all(|(_, entry)| matches!(entry, Entry::Record(_))), "records stand last");
    back.sort_by_key(|(ordinal, _)| *ordinal);
    let back: Vec<Entry> = back.into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(back, entries);
}

#[test]
fn nothing_at_all() {
    check_round_trip(&[]);
}

#[test]
fn more_than_one_row_group() {
    let table = table(2);
    let mut entries = vec![Entry::Table(TableEntry::new(Some(node()), Incarnation(9), &table))];
    for seq in 1..=u64::try_from(encode::GROUP_ROWS_MAX).unwrap() + 10 {
        entries.push(values(seq, &table, vec![Some((seq % 100) as f64), Some(0.25)]));
    }
    check_round_trip(&entries);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn round_trip(rows in proptest::collection::vec(
        (0_u8..6, proptest::collection::vec(proptest::option::of(-1e6_f64..1e6), 0..7)), 0..60,
    )) {
        let small = table(3);
        let large = table(6);
        let mut entries = vec![
            Entry::Table(TableEntry::new(Some(node()), Incarnation(9), &small)),
            Entry::Table(TableEntry::new(Some(node()), Incarnation(9), &large)),
        ];
        for (seq, (kind, mut cells)) in rows.into_iter().enumerate() {
            let seq = seq as u64 + 1;
            let table = if kind % 2 == 0 { &small } else { &large };
            // Some rows fit their table, some hold fractions in integer columns or the wrong width.
            if kind < 4 {
                cells.resize(table.columns.len(), None);
                for (at, cell) in cells.iter_mut().enumerate() {
                    if at % 2 == 0 {
                        *cell = cell.map(f64::trunc);
                    }
                }
            }
            entries.push(if kind == 5 { event(seq) } else { values(seq, table, cells) });
        }
        check_round_trip(&entries);
    }
}

/// A closed JSONL segment on a simulated disk.
fn closed_segment(disk: &Arc<SimDisk>, entries: &[Entry]) -> SegmentMeta {
    use crate::line::LineBuffer;
    use crate::log::{Durability, Log, LogScan};
    let scan = LogScan {
        storage: storage(),
        last_segment: None,
        prev_valid_bytes: 0,
        tail: Vec::new(),
        damage: Vec::new(),
        segments: Vec::new(),
        torn_bytes: 0,
    };
    let disk: Arc<dyn Disk> = disk.clone();
    let mut lines = LineBuffer::new();
    for entry in entries {
        lines.push(entry).unwrap();
    }
    let log = Log::start(disk, Path::new("/j"), &scan, Durability::Synced, &lines).unwrap();
    SegmentMeta { bytes: log.readable_bytes(), state: SegmentState::Closed, ..SegmentMeta::new(1) }
}

#[test]
fn sealing_replaces_the_lines_and_every_flip_is_noticed() {
    let disk = Arc::new(SimDisk::new());
    let dir = Path::new("/j");
    let table = table(4);
    let mut entries = vec![Entry::Table(TableEntry::new(Some(node()), Incarnation(9), &table))];
    for seq in 1..40 {
        entries.push(values(seq, &table, vec![Some(seq as f64), Some(0.5), None, Some(1.5)]));
    }
    let meta = closed_segment(&disk, &entries);
    let prepared = prepare(disk.as_ref(), dir, &meta, storage()).unwrap();
    assert!(list(disk.as_ref(), dir).unwrap().is_empty(), "not sealed before finish");
    let sealed = finish(disk.as_ref(), dir, &meta, &prepared).unwrap();
    assert_eq!(list(disk.as_ref(), dir).unwrap(), vec![1]);
    assert_eq!(sealed.state, SegmentState::Sealed);
    let mut back = Vec::new();
    read(disk.as_ref(), dir, 1, &mut |entry| back.push(entry)).unwrap();
    assert_eq!(back, entries);
    let (path, _) = find(disk.as_ref(), dir, 1).unwrap().remove(0);
    let mut trial = Trial::new("every byte of a sealed file flipped");
    let bits: &[u8] = if gswarm_trial::is_long() { &[0, 1, 2, 3, 4, 5, 6, 7] } else { &[3] };
    for at in 0..usize::try_from(sealed.bytes).unwrap() {
        for bit in bits {
            trial.rounds += 1;
            trial.faults += 1;
            trial.records += 39;
            assert!(disk.flip(&path, at, *bit));
            // A number that is read although the file is not what was written would be wrong.
            let mut shown = 0;
            let noticed = read(disk.as_ref(), dir, 1, &mut |_| shown += 1);
            trial.lost += shown;
            assert!(noticed.is_err() && shown == 0, "byte {at} bit {bit}");
            assert!(disk.flip(&path, at, *bit));
        }
    }
}

#[test]
fn a_file_that_the_library_panics_on_is_damaged() {
    let path = "tests/released/1/journal/0000000001-db678d60.parquet";
    let mut bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    // A column begins before the file; the checksum in the name fits.
    bytes[1_851] ^= 0x4d;
    let disk = SimDisk::new();
    let dir = Path::new("/j");
    let name = sealed_name(1, crc32c::crc32c(&bytes));
    crate::disk::write_atomic(&disk, &dir.join(name), &bytes).unwrap();
    let error = read(&disk, dir, 1, &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "the sealed segment is damaged: its content makes no sense");
}

#[test]
fn a_segment_is_cut_down_to_what_is_wanted() {
    let disk = Arc::new(SimDisk::new());
    let dir = Path::new("/j");
    let (small, large) = (table(2), table(4));
    let mut entries = vec![
        Entry::Table(TableEntry::new(Some(node()), Incarnation(9), &small)),
        Entry::Table(TableEntry::new(Some(node()), Incarnation(9), &large)),
        event(5),
    ];
    for seq in 1..=20 {
        entries.push(if seq <= 10 {
            values(seq, &small, vec![Some(seq as f64), Some(0.5)])
        } else {
            values(seq, &large, vec![Some(seq as f64), None, None, Some(1.5)])
        });
    }
    let meta = closed_segment(&disk, &entries);
    let prepared = prepare(disk.as_ref(), dir, &meta, storage()).unwrap();
    let meta = finish(disk.as_ref(), dir, &meta, &prepared).unwrap();
    assert!(trim(disk.as_ref(), dir, &meta, &|_| true).unwrap().is_none(), "all is wanted");
    let wanted = |entry: &Entry| matches!(entry, Entry::Record(r) if r.seq > 15);
    let (prepared, left) = trim(disk.as_ref(), dir, &meta, &wanted).unwrap().unwrap();
    let trimmed = finish(disk.as_ref(), dir, &SegmentMeta { ..left }, &prepared).unwrap();
    assert_eq!(trimmed.records, 5);
    assert_eq!((trimmed.first_time, trimmed.last_time), (Some(Micros(1_016)), Some(Micros(1_020))));
    assert!(trimmed.bytes < meta.bytes);
    let mut back = Vec::new();
    read_known(disk.as_ref(), dir, &trimmed, &mut |entry| back.push(entry)).unwrap();
    let mut expected = vec![entries[1].clone()];
    expected.extend(entries.iter().skip(18).cloned());
    assert_eq!(back, expected, "the table of what is left stays, the other goes");
    assert_eq!(find(disk.as_ref(), dir, 1).unwrap().len(), 1, "the larger file is gone");
}
