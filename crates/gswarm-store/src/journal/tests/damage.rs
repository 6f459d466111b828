//! One flipped bit anywhere: never a wrong number, never more lost than the line it stood in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_trial::{Trial, rounds};

use super::world::{DIR, Step, World, open};
use crate::catalog::{Catalog, SegmentState};
use crate::disk::{Disk, SimDisk, read_file};
use crate::entry::Entry;
use crate::log::{Damage, segment_name};
use crate::reader::Reader;
use crate::sealed;

/// Segment 1 as written, 2 sealed, 3 closed, 4 begun: as a killed host leaves it.
fn recording() -> (SimDisk, Vec<Entry>) {
    let mut world = World::run(&[
        Step::Commit(vec![9, 3]),
        Step::Roll,
        Step::Commit(vec![15, 0]),
        Step::Roll,
        Step::Commit(vec![9]),
        Step::Commit(vec![10, 16]),
        Step::Roll,
        Step::Commit(vec![9, 6]),
    ]);
    let journal = world.journal.take().unwrap();
    let metas = journal.catalog().segments();
    let prepared = sealed::prepare(&world.disk, Path::new(DIR), &metas[1], journal.storage());
    sealed::finish(&world.disk, Path::new(DIR), &metas[1], &prepared.unwrap()).unwrap();
    let copy = world.disk.fork();
    let (read, failed) = readable(&copy, &open(&copy).unwrap());
    assert_eq!(failed, Vec::<u64>::new());
    (world.disk, read)
}

/// Entries in order, and the segments that refused to be read.
fn readable(disk: &SimDisk, recovered: &super::super::Recovered) -> (Vec<Entry>, Vec<u64>) {
    let catalog = recovered.journal.catalog();
    let mut all = Vec::new();
    let mut failed = Vec::new();
    for meta in catalog.segments() {
        match segment(disk, catalog, meta.number) {
            Some(entries) => all.extend(entries),
            None => failed.push(meta.number),
        }
    }
    (all, failed)
}

fn segment(disk: &SimDisk, catalog: &Catalog, number: u64) -> Option<Vec<Entry>> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let reader = Reader::new(disk, Path::new(DIR), catalog.clone());
    let lease = catalog.lease(|meta| meta.number == number).pop()?;
    let mut entries = Vec::new();
    reader.visit(lease.meta(), &mut |entry| entries.push(entry)).ok()?;
    if lease.meta().state == SegmentState::Sealed {
        entries = sealed::in_order(reader.disk().as_ref(), Path::new(DIR), lease.meta());
    }
    // A table may be written again in front of lines that are.
    entries.retain(|entry| !matches!(entry, Entry::Table(_)));
    Some(entries)
}

/// What the line around a byte says.
fn entry_at(bytes: &[u8], at: usize) -> Option<Entry> {
    let begin = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let end = at + bytes[at..].iter().position(|byte| *byte == b'\n')?;
    Entry::parse(&bytes[begin..end]).ok()
}

fn files(disk: &SimDisk) -> Vec<PathBuf> {
    let mut names = disk.list(Path::new(DIR)).unwrap();
    names.sort();
    names.iter().map(|name| Path::new(DIR).join(name)).collect()
}

/// Every so many bytes, and some bits of each.
fn flips(len: usize, every: u64, bits: u64) -> impl Iterator<Item = (usize, u8)> {
    let places = (0..len).step_by(usize::try_from(every).unwrap());
    places.flat_map(move |at| {
        (0..bits).map(move |more| (at, u8::try_from((at as u64 + 3 * more) % 8).unwrap()))
    })
}

/// The entries that are gone; the others stand once and in their order.
#[track_caller]
fn lost(original: &[Entry], read: &[Entry]) -> Vec<Entry> {
    let mut rest = read.iter().peekable();
    let mut lost = Vec::new();
    for entry in original.iter().filter(|entry| !matches!(entry, Entry::Table(_))) {
        if rest.next_if_eq(&entry).is_none() {
            lost.push(entry.clone());
        }
    }
    assert_eq!(rest.next(), None, "not in the original, or twice, or out of order");
    lost
}

#[track_caller]
fn check_named(disk: &SimDisk, damage: &[Damage]) {
    let aside = disk.list(&Path::new(DIR).join("quarantine")).unwrap();
    assert_eq!(aside.len(), damage.len(), "{aside:?} {damage:?}");
}

#[test]
fn a_flip_with_no_checkpoint_costs_at_most_its_line() {
    let mut trial = Trial::new("every byte of a small journal and its sealed file flipped");
    let (disk, original) = recording();
    disk.remove(&Path::new(DIR).join("checkpoint.json")).unwrap();
    for path in files(&disk) {
        let bytes = read_file(&disk, &path, 100_000).unwrap();
        let is_sealed = path.extension().is_some_and(|word| word == "parquet");
        let every = if is_sealed { rounds(41, 1) } else { 1 };
        for (at, bit) in flips(bytes.len(), every, rounds(1, 3)) {
            trial.rounds += 1;
            trial.faults += 1;
            trial.records += original.len() as u64;
            let copy = disk.fork();
            assert!(copy.flip(&path, at, bit));
            let recovered = open(&copy).unwrap();
            let (read, failed) = readable(&copy, &recovered);
            assert_eq!(failed, Vec::<u64>::new(), "{path:?} {at}");
            let gone = lost(&original, &read);
            let cut_off = recovered.torn_bytes;
            // Past its end a segment holds nothing that counts.
            let is_named = !recovered.damage.is_empty() || cut_off > 0;
            trial.lost += if is_named { 0 } else { gone.len() as u64 };
            assert!(gone.is_empty() || is_named, "{path:?} {at}: not named");
            check_named(&copy, &recovered.damage);
            assert_eq!(recovered.journal.storage(), crate::fixture::storage());
            if is_sealed {
                assert!(gone.len() <= 2, "{path:?} {at}: {gone:?}");
            } else {
                let here = entry_at(&bytes, at).filter(|_| bytes[at] != b'\n');
                assert!(gone.iter().all(|e| Some(e) == here.as_ref()), "{path:?} {at}: {gone:?}");
            }
            // It stays that way: the next start neither loses nor doubles anything.
            drop(recovered);
            if at % 16 == 0 {
                let (again, _) = readable(&copy, &open(&copy).unwrap());
                assert_eq!(again, read, "{path:?} {at}");
            }
        }
    }
}

#[test]
fn a_flip_behind_a_checkpoint_is_named_when_the_segment_is_sealed_or_read() {
    let mut trial = Trial::new("bytes behind a checkpoint flipped, then sealed or read");
    let (disk, original) = recording();
    drop(open(&disk).unwrap());
    for path in files(&disk) {
        let len = read_file(&disk, &path, 100_000).unwrap().len();
        for (at, bit) in flips(len, rounds(23, 3), 1) {
            trial.rounds += 1;
            trial.faults += 1;
            trial.records += original.len() as u64;
            let copy = disk.fork();
            assert!(copy.flip(&path, at, bit));
            let recovered = open(&copy).unwrap();
            let (read, failed) = readable(&copy, &recovered);
            let gone = lost(&original, &read);
            let mut named = recovered.damage.len() + failed.len();
            named += usize::from(recovered.torn_bytes > 0);
            for meta in recovered.journal.catalog().segments() {
                if meta.state != SegmentState::Closed {
                    continue;
                }
                let storage = recovered.journal.storage();
                let prepared = sealed::prepare(&copy, Path::new(DIR), &meta, storage).unwrap();
                named += prepared.damage.len();
                let meta = sealed::finish(&copy, Path::new(DIR), &meta, &prepared).unwrap();
                recovered.journal.catalog().put(meta);
            }
            trial.lost += if named > 0 { 0 } else { gone.len() as u64 };
            assert!(gone.is_empty() || named > 0, "{path:?} {at}: {gone:?}");
            assert_eq!(readable(&copy, &recovered).0, read, "sealing changes nothing");
        }
    }
}

#[test]
fn a_segment_that_a_failed_sync_ended_keeps_its_end_when_the_next_header_is_damaged() {
    let mut world = World::run(&[Step::Commit(vec![9]), Step::Commit(vec![12, 0])]);
    let fails_at = world.disk.changes() + 1;
    world.disk.fail_once_at(fails_at);
    assert!(world.commit(&[9, 15]), "goes into a new segment");
    world.journal = None;
    world.step(&Step::DeleteCheckpoint);
    let next = Path::new(DIR).join(segment_name(2));
    let bytes = read_file(&world.disk, &next, 100_000).unwrap();
    let header = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    for at in 0..header {
        let mut copy = world.fork();
        assert!(copy.disk.flip(&next, at, 1));
        copy.start();
    }
}
