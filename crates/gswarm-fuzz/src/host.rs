//! A host over a disk in memory, with a clock that goes on by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gswarm_host::{
    AccessConfig, Host, HostConfig, HostParts, RetentionConfig, Settings, StartError,
};
use gswarm_store::Disk;
use gswarm_store::journal::SegmentLimits;
use gswarm_tls::Secret;
use gswarm_types::{Clock, Micros};
use tokio::runtime::Runtime;

use crate::files::disk_with;

pub(crate) const DATA: &str = "/data";

/// What a release left behind, for a host that has something to show.
const RELEASED: &[(&str, &[u8])] = &[
    (
        "journal/0000000001-db678d60.parquet",
        include_bytes!("../../gswarm-store/tests/released/1/journal/0000000001-db678d60.parquet"),
    ),
    (
        "journal/0000000002.jsonl",
        include_bytes!("../../gswarm-store/tests/released/1/journal/0000000002.jsonl"),
    ),
    (
        "journal/0000000003.jsonl",
        include_bytes!("../../gswarm-store/tests/released/1/journal/0000000003.jsonl"),
    ),
    (
        "journal/checkpoint.json",
        include_bytes!("../../gswarm-store/tests/released/1/journal/checkpoint.json"),
    ),
    (
        "sessions/00000000-0000-7000-8000-000000000101.json",
        include_bytes!(
            "../../gswarm-store/tests/released/1/sessions/00000000-0000-7000-8000-000000000101.json"
        ),
    ),
];

/// A disk with the recording of a release, and one more file or another content of one.
pub(crate) fn released(also: Option<(&str, &[u8])>) -> Arc<dyn Disk> {
    let files = RELEASED.iter().copied().filter(|(name, _)| also.is_none_or(|a| a.0 != *name));
    let data = PathBuf::from(DATA);
    disk_with(files.chain(also).map(|(name, bytes)| (data.join(name), bytes))).1
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without sockets")
}

/// Makes a request one of the host's own admin.
pub(crate) const LOCAL_TOKEN: &str = "gswl_fuzz";

pub(crate) async fn start(disk: Arc<dyn Disk>) -> Result<Host, StartError> {
    let config = HostConfig {
        version: "fuzz".to_owned(),
        data_dir: PathBuf::from(DATA),
        output_dir: PathBuf::from("/out"),
        simulated: false,
        settings: Settings::default(),
        retention: RetentionConfig::default(),
        access: AccessConfig {
            local_token: Some(Secret::new(LOCAL_TOKEN)),
            ..AccessConfig::default()
        },
        disk_reserve_bytes: 0,
        segments: SegmentLimits::default(),
        addresses: Vec::new(),
    };
    let clock = Arc::new(StepClock::default());
    Host::start(config, HostParts { clock, disk, seed: 1, give_back: || {}, authority: None }).await
}

/// A millisecond later each time that somebody looks: the same input meets the same times.
#[derive(Debug, Default)]
struct StepClock {
    millis: AtomicI64,
}

impl Clock for StepClock {
    fn mono(&self) -> Micros {
        Micros::from_millis(self.millis.fetch_add(1, Ordering::Relaxed))
    }

    fn wall(&self) -> Micros {
        Micros::from_secs(1_767_225_600) + self.mono()
    }
}
