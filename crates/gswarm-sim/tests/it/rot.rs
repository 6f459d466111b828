//! Bits that flip anywhere on a host's disk: no panic, no wrong record, everything lost is named.

use std::path::{Path, PathBuf};

use gswarm_api::body::StartRequest;
use gswarm_node::SpoolLimits;
use gswarm_sim::{Account, Cluster};
use gswarm_store::disk::read_file;
use gswarm_store::{Disk, SimDisk};
use gswarm_trial::{Trial, rounds};
use gswarm_types::Period;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::trouble::count;
use super::{ALL, local, named, seconds};

const SLOW: i64 = 20_000;

/// Segments of every kind, as a killed host leaves them.
async fn recording(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    let handle = cluster.start_host().await.unwrap();
    let request = StartRequest { freq: Some(SLOW), ..named(ALL) };
    handle.start_session(&local(), request).await.unwrap();
    let period = Some(Period::from_millis(SLOW).unwrap());
    cluster.add_agent_every("node0", SpoolLimits::default(), period).await.unwrap();
    seconds(1_500).await;
    cluster.stop_agent(0).await;
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    cluster.kill_host().await;
    cluster
}

/// Journal, sealed files and session: what has a checksum.
fn files(disk: &SimDisk) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["/host/journal", "/host/sessions"] {
        let names = disk.list(Path::new(dir)).unwrap();
        files.extend(names.iter().map(|name| Path::new(dir).join(name)));
    }
    files.sort();
    files
}

/// The host starts on the damaged disk and has the time to look at everything.
async fn account_of(cluster: &mut Cluster, disk: &SimDisk) -> Account {
    cluster.replace_host_disk(disk.clone());
    cluster.start_host().await.unwrap();
    // Reading finds what starting did not; what it finds is named by the time of the next export.
    let _first = cluster.account(ALL).await.unwrap();
    seconds(2).await;
    let account = cluster.account(ALL).await.unwrap();
    cluster.kill_host().await;
    account
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_anywhere_on_the_host_is_named_and_shows_nothing_wrong() {
    let mut trial = Trial::new("bits flip anywhere in the files of a host");
    let seed = 800;
    trial.seeds = 1;
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = recording(seed).await;
    let original = cluster.host_disk().fork();
    let whole = account_of(&mut cluster, &original.fork()).await;
    assert!(whole.is_complete() && whole.exported > 70, "{whole:?}");
    let paths = files(&original);
    let is_sealed = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "parquet");
    assert!(paths.iter().any(|path| is_sealed(&path)), "{paths:?}");
    for _ in 0..rounds(15, 500) {
        let disk = original.fork();
        let path = &paths[random.random_range(0..paths.len())];
        let len = read_file(&disk, path, 10_000_000).unwrap().len();
        let (at, bit) = (random.random_range(0..len), random.random_range(0..8));
        assert!(disk.flip(path, at, bit));
        let account = account_of(&mut cluster, &disk).await;
        trial.rounds += 1;
        trial.faults += 1;
        count(&mut trial, &account);
        let place = format!("{path:?} byte {at} bit {bit}");
        // The agent was not back since, so one line that is gone may still be called awaited.
        assert!(account.broken() == 0 && account.awaited <= 1, "{place}: {account:?}");
        let reasons: Vec<&String> = account.named.keys().collect();
        assert!(reasons.is_empty() || reasons == ["store_damaged"], "{place}: {account:?}");
    }
}
