//! Bad roads between agents and host: partitions, lost answers, half-open streams, delay, a slow disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gswarm_node::{LinkState, SpoolLimits};
use gswarm_sim::Cluster;
use gswarm_store::{Disk, SimDisk};
use gswarm_trial::{Trial, rounds};
use gswarm_types::Period;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::trouble::{check_all_there, cluster_of, settle};
use super::{ALL, local, seconds};

async fn millis(random: &mut StdRng, most: u64) {
    tokio::time::sleep(Duration::from_millis(random.random_range(1..most))).await;
}

fn is_connected(cluster: &Cluster, agent: usize) -> bool {
    matches!(cluster.agent_status(agent).unwrap().link, LinkState::Connected { .. })
}

#[tokio::test(start_paused = true)]
async fn a_thousand_partitions_lose_nothing() {
    let mut trial = Trial::new("partitions that come and go, with delay");
    let seed = 200;
    trial.seeds = 1;
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = cluster_of(seed, 2).await;
    for _ in 0..rounds(40, 1_000) {
        let network = cluster.network(random.random_range(0..2)).unwrap();
        network.set_latency(Duration::from_millis(random.random_range(0..150)));
        network.partition();
        let lasting = if random.random_bool(0.1) { 30_000 } else { 3_000 };
        millis(&mut random, lasting).await;
        network.heal();
        millis(&mut random, 4_000).await;
        trial.rounds += 1;
        trial.faults += 1;
    }
    let account = settle(&mut cluster, 2, &mut trial).await;
    check_all_there(&account, 200, seed);
}

#[tokio::test(start_paused = true)]
async fn lost_acknowledgements_cost_nothing_but_another_delivery() {
    let mut trial =
        Trial::new("the host stores, its acknowledgements are lost, the connection breaks");
    for seed in 210..210 + rounds(1, 20) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        seconds(3).await;
        let mut unheard = 0;
        for _ in 0..25 {
            let network = cluster.network(random.random_range(0..2)).unwrap().clone();
            network.set_host_unheard(true);
            millis(&mut random, 6_000).await;
            let waiting = cluster.agent_status(0).unwrap().spool_records;
            unheard += waiting;
            network.cut();
            network.set_host_unheard(false);
            millis(&mut random, 4_000).await;
            trial.rounds += 1;
            trial.faults += 1;
        }
        assert!(unheard > 10, "seed {seed}: no record ever waited for its acknowledgement");
        trial.seeds += 1;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 100, seed);
    }
}

#[tokio::test(start_paused = true)]
async fn half_open_streams_are_noticed_and_replaced() {
    let mut trial = Trial::new("connections go dead without a word to either end");
    for seed in 220..220 + rounds(1, 20) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        seconds(3).await;
        for round in 0..8 {
            let agent = random.random_range(0..2);
            let before = cluster.network(agent).unwrap().connections();
            cluster.network(agent).unwrap().leave_half_open();
            if round % 3 == 2 {
                // The machine is back before the host knows that it was gone.
                millis(&mut random, 3_000).await;
                cluster.kill_agent(agent);
                cluster.start_agent(agent).await.unwrap();
            }
            seconds(100).await;
            assert!(is_connected(&cluster, agent), "seed {seed} round {round}");
            assert!(cluster.network(agent).unwrap().connections() > before, "it dialled again");
            assert!(cluster.agent_status(agent).unwrap().spool_records < 5, "it delivers");
            trial.rounds += 1;
            trial.faults += 1;
        }
        trial.seeds += 1;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 500, seed);
    }
}

/// Each sync takes so long from now on. The simulated time goes on meanwhile, a millisecond at a
/// time, while the disk's own thread waits.
fn slow_down(disk: &SimDisk, sync_ms: u64) {
    let runtime = tokio::runtime::Handle::current();
    let wait = move || {
        let (done, waiting) = std::sync::mpsc::channel::<()>();
        runtime.spawn(async move {
            for _ in 0..sync_ms {
                tokio::time::advance(Duration::from_millis(1)).await;
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            }
            drop(done);
        });
        // Ends when the task has let go of its end.
        let _done = waiting.recv();
    };
    disk.set_slow((sync_ms > 0).then(|| Arc::new(wait) as _));
}

#[tokio::test(start_paused = true)]
async fn stopping_again_does_not_wait_for_a_node_that_is_away() {
    let cluster = cluster_of(180, 2).await;
    seconds(10).await;
    cluster.network(0).unwrap().partition();
    seconds(2).await;
    let handle = cluster.handle().unwrap();
    let stop = || async {
        let caller = local();
        let stopping = handle.stop_session(&caller, ALL.to_owned(), None);
        tokio::time::timeout(Duration::from_secs(10), stopping).await.unwrap().unwrap()
    };
    let first = stop().await.session;
    assert_eq!(first.incomplete_nodes, ["node0"]);
    let again = stop().await.session;
    assert_eq!((again.revision, &again.output_file), (first.revision, &first.output_file));
    cluster.network(0).unwrap().heal();
    seconds(90).await;
    let complete = stop().await.session;
    assert!(complete.incomplete_nodes.is_empty() && complete.revision > first.revision);
}

/// There is always a commit under way, and always something that waits for the next one.
#[tokio::test(start_paused = true)]
async fn a_full_segment_is_closed_under_a_load_that_never_pauses() {
    let mut cluster = Cluster::new(170);
    cluster.config_mut().segments.bytes_max = 64 * 1024;
    cluster.start_host().await.unwrap();
    for name in ["node0", "node1", "node2"] {
        let period = Some(Period::from_millis(100).unwrap());
        cluster.add_agent_every(name, SpoolLimits::default(), period).await.unwrap();
    }
    slow_down(cluster.host_disk(), 300);
    seconds(60).await;
    slow_down(cluster.host_disk(), 0);
    let disk = cluster.host_disk();
    let names = disk.list(Path::new("/host/journal")).unwrap();
    let lines = names.iter().filter(|name| name.ends_with(".jsonl"));
    let sizes: Vec<u64> = lines
        .map(|name| disk.open(&Path::new("/host/journal").join(name)).unwrap().len().unwrap())
        .collect();
    assert!(names.len() > 5, "{names:?}");
    // One batch may go over.
    assert!(sizes.iter().all(|size| *size < 160 * 1024), "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_disk_delays_acknowledgements_and_loses_nothing() {
    let mut trial = Trial::new("every sync of the host takes seconds, connections break meanwhile");
    for seed in 230..230 + rounds(1, 25) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        seconds(3).await;
        slow_down(cluster.host_disk(), random.random_range(500..3_000));
        for round in 0..8 {
            millis(&mut random, 3_000).await;
            match round % 3 {
                0 => cluster.network(random.random_range(0..2)).unwrap().cut(),
                1 => cluster.host_disk().set_sync_fails(random.random_bool(0.5)),
                _ => cluster.host_disk().set_sync_fails(false),
            }
            trial.rounds += 1;
            trial.faults += 1;
        }
        cluster.host_disk().set_sync_fails(false);
        slow_down(cluster.host_disk(), 0);
        trial.seeds += 1;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 50, seed);
        let ingest = cluster.handle().unwrap().status(&local()).await.unwrap().ingest;
        assert!(ingest.commits > 10, "seed {seed}: {ingest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_while_the_sync_has_not_returned() {
    let mut trial = Trial::new("one sync that takes ten seconds");
    let mut cluster = cluster_of(240, 1).await;
    seconds(5).await;
    let acked = cluster.agent_status(0).unwrap().records_acked;
    assert!(acked > 3);
    slow_down(cluster.host_disk(), 10_000);
    seconds(4).await;
    let status = cluster.agent_status(0).unwrap();
    assert!(status.records_acked <= acked + 1, "{status:?}");
    assert!(status.spool_records >= 3, "{status:?}");
    slow_down(cluster.host_disk(), 0);
    (trial.rounds, trial.seeds, trial.faults) = (1, 1, 1);
    let account = settle(&mut cluster, 1, &mut trial).await;
    check_all_there(&account, 100, 240);
}

#[tokio::test(start_paused = true)]
async fn syncs_that_fail_for_a_while_lose_nothing() {
    let mut trial = Trial::new("fsync fails for seconds, again and again, also before power loss");
    for seed in 250..250 + rounds(2, 60) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        for round in 0..8 {
            millis(&mut random, 3_000).await;
            cluster.host_disk().set_sync_fails(true);
            millis(&mut random, 5_000).await;
            if round % 4 == 3 {
                cluster.host_disk().set_sync_fails(false);
                cluster.host_power_loss(random.random()).await;
                cluster.start_host().await.unwrap();
                trial.faults += 1;
            }
            cluster.host_disk().set_sync_fails(false);
            trial.rounds += 1;
            trial.faults += 1;
        }
        trial.seeds += 1;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 100, seed);
    }
}
