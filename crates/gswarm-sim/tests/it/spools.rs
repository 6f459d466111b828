//! Spools that hold what no agent should have written, lose power, overflow, or were copied.

use std::path::{Path, PathBuf};

use gswarm_node::{LinkState, SpoolLimits};
use gswarm_sim::{Cluster, Ledger};
use gswarm_store::log::segment_name;
use gswarm_store::{Disk, LineBuffer};
use gswarm_trial::{Trial, rounds};
use gswarm_types::Incarnation;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::trouble::{check_all_there, cluster_of, settle};
use super::{ALL, local, named, seconds};

const SPOOL: &str = "/agent/spool";
/// The run that left the spool.
const OLD: Incarnation = Incarnation(0xaa);

/// A spool whose first record is as given, and nine ordinary ones after it.
fn spool_with(head: &serde_json::Value, ledger: &Ledger) -> Vec<u8> {
    let storage = "00000000-0000-7000-8000-0000000000cc";
    let mut lines = LineBuffer::new();
    let header = json!({"format": 1, "storage": storage, "segment": 1, "prev_valid_bytes": 0});
    lines.push(&json!({ "header": header })).unwrap();
    lines
        .push(&json!({"incarnation": {"i": OLD.to_string(), "boot_id": "boot-0-0", "next": 1}}))
        .unwrap();
    for seq in 1..=10 {
        let mark = json!({"mark": {"name": format!("mark {seq}")}});
        let body = if seq == 1 { head } else { &mark };
        // The machine is up for 100 s when the simulation begins.
        let mono = 101_000_000 + seq;
        let record = json!({"i": OLD.to_string(), "s": seq, "m": mono, "w": mono, "b": body});
        let crc = lines.push(&json!({ "record": record })).unwrap();
        ledger.accept(OLD, seq, crc);
    }
    lines.as_bytes().to_vec()
}

/// The agent delivers the nine others and goes on recording, whatever stands in front of them.
async fn check_head(head: &serde_json::Value, trial: &mut Trial) {
    let mut cluster = Cluster::new(600);
    let handle = cluster.start_host().await.unwrap();
    handle.start_session(&local(), named(ALL)).await.unwrap();
    seconds(1).await;
    let machine = cluster.add_machine("node0", SpoolLimits::default(), None).unwrap();
    let disk = cluster.agent_disk(machine).unwrap().clone();
    // The identity first, for without one a spool is an orphan.
    cluster.start_agent(machine).await.unwrap();
    seconds(2).await;
    cluster.stop_agent(machine).await;
    for name in disk.list(Path::new(SPOOL)).unwrap() {
        disk.remove(&Path::new(SPOOL).join(name)).unwrap();
    }
    let path: PathBuf = Path::new(SPOOL).join(segment_name(1));
    disk.create(&path).unwrap().append(&spool_with(head, cluster.ledger())).unwrap();
    cluster.start_agent(machine).await.unwrap();
    trial.rounds += 1;
    trial.faults += 1;
    seconds(30).await;
    let status = cluster.agent_status(machine).unwrap();
    assert!(matches!(status.link, LinkState::Connected { .. }), "{status:?}");
    assert!(status.spool_records < 5, "it delivers: {status:?}");
    let account = settle(&mut cluster, 1, trial).await;
    let records = cluster.records(ALL).await.unwrap();
    let of_old = records.by_incarnation().remove(&OLD.to_string()).unwrap_or_default();
    let others: Vec<u64> = (2..=10).collect();
    assert_eq!(of_old, others);
    let gap = records.gaps.iter().any(|gap| {
        gap["incarnation"] == OLD.to_string() && gap["first_seq"] == 1 && gap["last_seq"] == 1
    });
    assert!(gap, "named: {:?}", records.gaps);
    assert_eq!((account.broken(), account.awaited), (0, 0), "{account:?}");
}

#[tokio::test(start_paused = true)]
async fn an_oversize_record_at_the_head_of_the_spool_holds_nothing_up() {
    let mut trial = Trial::new("a record that is too long stands first in a spool");
    let mut sizes = vec![1_100_000, 3_000_000];
    if gswarm_trial::is_long() {
        sizes.extend([1_048_576, 2_000_000, 4_100_000, 5_000_000, 7_000_000]);
    } else {
        sizes.push(5_000_000);
    }
    for bytes in sizes {
        let head = json!({"mark": {"name": "x".repeat(bytes)}});
        check_head(&head, &mut trial).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_record_at_the_head_of_the_spool_holds_nothing_up() {
    let mut trial = Trial::new("a record that cannot be decoded stands first in a spool");
    check_head(&json!({"dream": {"colour": "blue"}}), &mut trial).await;
    check_head(&json!(17), &mut trial).await;
    let no_table = json!({"values": {"d": "00000000000000ff", "v": [1]}});
    check_head(&no_table, &mut trial).await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_longer_than_the_spool_names_exactly_what_it_dropped() {
    let mut trial =
        Trial::new("partitions that are longer than the spool, with kills of the agent");
    for seed in 610..610 + rounds(3, 60) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 0).await;
        let limits =
            SpoolLimits { records_max: random.random_range(20..60), ..SpoolLimits::default() };
        cluster.add_agent("small", limits).await.unwrap();
        seconds(5).await;
        cluster.network(0).unwrap().partition();
        for _ in 0..3 {
            seconds(random.random_range(20..60)).await;
            if random.random_bool(0.5) {
                cluster.kill_agent(0);
                cluster.start_agent(0).await.unwrap();
                trial.faults += 1;
            }
        }
        cluster.network(0).unwrap().heal();
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 1;
        let account = settle(&mut cluster, 1, &mut trial).await;
        assert_eq!((account.broken(), account.awaited), (0, 0), "seed {seed}: {account:?}");
        let reasons: Vec<&String> = account.named.keys().collect();
        assert_eq!(reasons, ["spool_overflow"], "seed {seed}: {account:?}");
    }
}

/// What a node that loses power is promised: what the host had stays, and all else that is gone lies
/// in a gap, also when neither the host nor the disk ever held it.
#[tokio::test(start_paused = true)]
async fn what_a_node_loses_with_its_power_lies_in_a_gap() {
    let mut trial = Trial::new("nodes lose power, connected and partitioned");
    let mut gone = 0;
    for seed in 620..620 + rounds(4, 120) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 1).await;
        let mut acked = std::collections::BTreeSet::new();
        for _ in 0..4 {
            seconds(random.random_range(3..20)).await;
            let records = cluster.records(ALL).await.unwrap().records;
            acked.extend(records.into_iter().map(|record| (record.incarnation, record.seq)));
            if random.random_bool(0.6) {
                cluster.network(0).unwrap().partition();
                seconds(random.random_range(3..30)).await;
            }
            cluster.agent_power_loss(0, random.random());
            seconds(2).await;
            cluster.network(0).unwrap().heal();
            cluster.start_agent(0).await.unwrap();
            trial.rounds += 1;
            trial.faults += 1;
        }
        trial.seeds += 1;
        let account = settle(&mut cluster, 1, &mut trial).await;
        assert_eq!((account.broken(), account.awaited), (0, 0), "seed {seed}: {account:?}");
        gone += account.named.values().sum::<u64>();
        let kept = cluster.records(ALL).await.unwrap().records;
        let kept: std::collections::BTreeSet<_> =
            kept.into_iter().map(|record| (record.incarnation, record.seq)).collect();
        assert!(acked.is_subset(&kept), "seed {seed}: the host had it");
    }
    assert!(gone > 0, "no power loss took anything");
}

#[tokio::test(start_paused = true)]
async fn a_cloned_image_gets_its_own_identity_and_delivers_nothing_twice() {
    let mut trial = Trial::new("a state directory is copied to another machine");
    for seed in 630..630 + rounds(2, 40) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 1).await;
        seconds(random.random_range(3..20)).await;
        cluster.network(0).unwrap().partition();
        seconds(random.random_range(3..20)).await;
        let copy = cluster.clone_machine(0, true).unwrap();
        cluster.start_agent(copy).await.unwrap();
        cluster.network(0).unwrap().heal();
        seconds(30).await;
        let handle = cluster.handle().unwrap();
        assert_eq!(handle.nodes(&local()).await.unwrap().nodes.len(), 2, "seed {seed}");
        let aside = cluster.agent_disk(copy).unwrap().list(Path::new("/agent/spool-cloned-1"));
        assert!(!aside.unwrap().is_empty(), "seed {seed}: the copied spool is set aside");
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 1;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 100, seed);
    }
}

#[tokio::test(start_paused = true)]
async fn two_machines_with_one_identity_take_turns_and_lose_nothing() {
    let mut trial = Trial::new("a state directory is copied with its machine id");
    for seed in 640..640 + rounds(2, 40) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 1).await;
        seconds(random.random_range(3..20)).await;
        cluster.network(0).unwrap().partition();
        seconds(random.random_range(3..20)).await;
        let copy = cluster.clone_machine(0, false).unwrap();
        cluster.start_agent(copy).await.unwrap();
        seconds(random.random_range(3..20)).await;
        cluster.network(0).unwrap().heal();
        seconds(100).await;
        let waiting = [0, copy].map(|agent| cluster.agent_status(agent).unwrap().link);
        let refused = waiting.iter().filter(|link| matches!(link, LinkState::Waiting { .. }));
        assert_eq!(refused.count(), 1, "seed {seed}: {waiting:?}");
        // The one that is refused keeps recording and delivers once the other is gone.
        let first = if matches!(waiting[0], LinkState::Waiting { .. }) { copy } else { 0 };
        cluster.stop_agent(first).await;
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 1;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 200, seed);
    }
}
