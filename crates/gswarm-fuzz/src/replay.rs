//! Files of sessions read back: played as devices, and shown as numbers.

use std::path::Path;

use gswarm_device::Devices;
use gswarm_device::replay::{ReplayDevices, ReplayError, ReplaySpec};
use gswarm_types::Micros;

use crate::files::{check_printable, with_real_file};

/// A file to replay and to analyse.
pub fn replay_import(bytes: &[u8]) {
    with_real_file(bytes, |path| {
        replay(path);
        match gswarm::fuzzed::analyze(path) {
            Ok(page) => check_printable(&page),
            Err(printed) => {
                assert!(printed.starts_with("error: "), "an error without a sentence");
                check_printable(&printed);
            },
        }
    });
}

fn replay(path: &Path) {
    let spec = |node| ReplaySpec { path: path.to_owned(), node };
    match ReplayDevices::open(&spec(None)) {
        Ok(devices) => check_played(devices),
        Err(ReplayError::SeveralNodes { nodes, .. }) => {
            assert!(nodes.len() > 1, "one node is not several");
            for node in nodes {
                match ReplayDevices::open(&spec(Some(node.clone()))) {
                    Ok(devices) => check_played(devices),
                    Err(ReplayError::SeveralNodes { .. } | ReplayError::UnknownNode { .. }) => {
                        panic!("the file names `{node}` and does not know it")
                    },
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Whatever the time: one finite number or none for each column, of devices that are not real.
fn check_played(mut devices: ReplayDevices) {
    for now in [0, 1, 500_000, 1_000_000, 86_400_000_000, i64::MAX, i64::MIN] {
        let sample = devices.sample(Micros(now));
        assert_eq!(sample.cells.len(), sample.table.columns.len(), "one cell for each column");
        assert!(sample.table.is_consistent(), "a column of a device that is not there");
        assert!(sample.table.devices.iter().all(|device| device.simulated), "taken for real");
        assert!(sample.cells.iter().flatten().all(|cell| cell.is_finite()), "not a number");
    }
}
