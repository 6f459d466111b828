//! The small files beside the segments: read, refused with a reason, or replaced, never half.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_host::is_simulated_data;
use gswarm_node::fuzzed::{open_spool, open_state};
use gswarm_store::Disk;
use gswarm_types::NodeId;
use uuid::Uuid;

use crate::files::{disk_with, with_checksums};
use crate::host::{self, DATA, released};
use crate::store;

const STATE: &str = "/state";
const SPOOL: &[(&str, &[u8])] = &[
    (
        "0000000001.jsonl",
        include_bytes!("../../gswarm-node/tests/released/1/spool/0000000001.jsonl"),
    ),
    (
        "0000000002.jsonl",
        include_bytes!("../../gswarm-node/tests/released/1/spool/0000000002.jsonl"),
    ),
];

/// A line with the name of the file, then its content; tried as it is and with right checksums.
pub fn checkpoint_and_small_files(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (Some(name), Some(content)) = (parts.next(), parts.next()) else { return };
    let corrected = with_checksums(content);
    small_file(name, content);
    if corrected != content {
        small_file(name, &corrected);
    }
}

fn small_file(name: &[u8], content: &[u8]) {
    match name {
        b"checkpoint" => checkpoint(content),
        b"kind" => kind(content),
        b"nodes" => host_starts("nodes.json", content),
        b"expired" => host_starts("expired.json", content),
        b"session" => {
            host_starts("sessions/00000000-0000-7000-8000-000000000101.json", content);
        },
        b"node" => node(content),
        b"ack" => acknowledgements(content),
        _ => {},
    }
}

/// Whatever a checkpoint says, the journal opens, and the second time as the first.
fn checkpoint(content: &[u8]) {
    let disk = released(Some(("journal/checkpoint.json", content)));
    let first = match store::open(&disk) {
        Ok(first) => first,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let records = store::records(&disk, &first.journal);
    drop(first);
    let second = store::open(&disk).expect("what opened once opens again");
    assert_eq!(store::records(&disk, &second.journal), records, "the second time");
}

fn kind(content: &[u8]) {
    let (disk, shared) = disk_with([(PathBuf::from(DATA).join("kind.json"), content)]);
    if let Ok(simulated) = is_simulated_data(&disk, Path::new(DATA)) {
        let said: serde_json::Value = serde_json::from_slice(content).expect("it was read");
        assert_eq!(said["simulated"].as_bool(), simulated, "the file says something else");
    }
    check_host(&shared);
}

fn host_starts(name: &str, content: &[u8]) {
    check_host(&released(Some((name, content))));
}

/// A host refuses with a reason, or starts, and then starts again with what it wrote.
fn check_host(disk: &Arc<dyn Disk>) {
    host::runtime().block_on(async {
        match host::start(disk.clone()).await {
            Ok(first) => {
                first.stop().await;
                let second = host::start(disk.clone()).await;
                second.expect("a host that started once starts again").stop().await;
            },
            Err(gswarm_host::StartError::Panicked) => panic!("recovery ended badly"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// A node is the one its file names, or a new one for good.
fn node(content: &[u8]) {
    let (disk, _) = disk_with([(PathBuf::from(STATE).join("node.json"), content)]);
    let id = |number| NodeId::new(Uuid::from_u128(number));
    match open_state(&disk, Path::new(STATE), id(1)) {
        Ok(first) => {
            let second = open_state(&disk, Path::new(STATE), id(2)).ok();
            assert_eq!(second, Some(first), "the second time");
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Acknowledgements take records away, in order, and never add any.
fn acknowledgements(content: &[u8]) {
    let dir = Path::new(STATE).join("spool");
    let spool = |also: Option<(&'static str, &[u8])>| {
        let files: Vec<_> = SPOOL.iter().copied().chain(also).collect();
        let (_, disk) = disk_with(files.iter().map(|(name, bytes)| (dir.join(name), *bytes)));
        open_spool(disk, &dir).expect("the released spool opens").records
    };
    let all = spool(None);
    let mut rest = all.iter();
    for record in spool(Some(("ack.json", content))) {
        assert!(rest.any(|one| *one == record), "a record that was not there before");
    }
}
