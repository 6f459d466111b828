//! Data of every format that was ever written by a release is still read.
//!
//! `released/<number>` holds a small recording as a version wrote it, with `expected.jsonl`, the
//! record export of its session. A change of any format adds a folder and leaves the old ones alone:
//! `cargo nextest run -p gswarm-store --run-ignored only writes_the_recording` makes one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::world::{Step, World};
use crate::catalog::SegmentState;
use crate::disk::{Disk, StdDisk, read_file};
use crate::export::{ExportFormat, ExportInput, export};
use crate::journal::{Journal, JournalConfig, SegmentLimits};
use crate::reader::Reader;
use crate::session_file;

/// Folders so far: 1 had sealed segments of format 1, 2 has those of format 2.
const RELEASED: u32 = 2;

fn folder(format: u32) -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.join("tests/released").join(format.to_string())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens a copy, since opening writes, and exports the session it holds.
fn exported(data: &Path, checkpoint: bool) -> (String, Vec<SegmentState>) {
    let dir = tempfile::tempdir().unwrap();
    copy(data, dir.path());
    let journal_dir = dir.path().join("journal");
    if !checkpoint {
        fs::remove_file(journal_dir.join("checkpoint.json")).unwrap();
    }
    let disk: Arc<dyn Disk> = Arc::new(StdDisk);
    let new_storage = "00000000-0000-7000-8000-00000000bbbb".parse().unwrap();
    let config = JournalConfig {
        dir: journal_dir.clone(),
        disk_reserve_bytes: 0,
        segments: SegmentLimits::default(),
        new_storage,
    };
    let recovered = Journal::open(disk.clone(), config).unwrap();
    assert_eq!(recovered.damage, Vec::new());
    assert_eq!(recovered.journal.storage(), crate::fixture::storage());
    let files = session_file::read_all(disk.as_ref(), &dir.path().join("sessions")).unwrap();
    assert_eq!(files.unreadable, Vec::<PathBuf>::new());
    let [spec] = files.sessions.as_slice() else { panic!("one session") };
    let catalog = recovered.journal.catalog().clone();
    let states = catalog.segments().iter().map(|meta| meta.state).collect();
    let input = ExportInput {
        spec: spec.clone(),
        now: gswarm_types::Micros(0),
        hold: gswarm_types::Micros(1_500_000),
        names: std::collections::BTreeMap::new(),
        nvlinks: std::collections::BTreeMap::new(),
        holes: [1, 2]
            .map(crate::fixture::node)
            .into_iter()
            .flat_map(|node| recovered.intake.holes(node).into_iter().map(move |h| (node, h)))
            .collect(),
        expired_until: None,
        simulated: false,
        scratch: dir.path().join("tmp"),
    };
    let mut out = Vec::new();
    let reader = Reader::new(disk, &journal_dir, catalog);
    export(&reader, &input, ExportFormat::Jsonl, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), states)
}

#[test]
fn every_released_format_is_read() {
    for format in 1..=RELEASED {
        let data = folder(format);
        let expected = fs::read_to_string(data.join("expected.jsonl")).unwrap();
        for checkpoint in [true, false] {
            let (found, states) = exported(&data, checkpoint);
            assert!(states.contains(&SegmentState::Sealed), "{states:?}");
            assert!(states.contains(&SegmentState::Closed), "{states:?}");
            assert_eq!(found, expected, "format {format}, checkpoint {checkpoint}");
        }
    }
}

#[test]
#[ignore = "writes into the sources; for the release of a new format"]
fn writes_the_recording_of_this_format() {
    let world = World::run(&[
        Step::Commit((0..16).collect()),
        Step::Commit(vec![9, 15, 12, 3, 1]),
        Step::Roll,
        Step::Seal,
        Step::Commit((0..16).rev().collect()),
        Step::Roll,
        Step::Commit(vec![9, 15, 9, 0]),
    ]);
    let data = folder(RELEASED);
    fs::create_dir_all(data.join("journal")).unwrap();
    let dir = Path::new(super::world::DIR);
    for name in world.disk.list(dir).unwrap() {
        let bytes = read_file(&world.disk, &dir.join(&name), 10_000_000).unwrap();
        fs::write(data.join("journal").join(name), bytes).unwrap();
    }
    let session = crate::fixture::session(1, 0, Some(60_000_000));
    fs::create_dir_all(data.join("sessions")).unwrap();
    session_file::write(&StdDisk, &data.join("sessions"), &session).unwrap();
    let (expected, _) = exported(&data, true);
    fs::write(data.join("expected.jsonl"), expected).unwrap();
}
