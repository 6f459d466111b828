//! Whole clusters under simulated time, network and disk.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

#[path = "it/trouble.rs"]
mod trouble;
#[path = "it/deaths.rs"]
mod deaths;
#[path = "it/roads.rs"]
mod roads;
#[path = "it/raw_agent.rs"]
mod raw_agent;
#[path = "it/deliveries.rs"]
mod deliveries;
#[path = "it/spools.rs"]
mod spools;
#[path = "it/hosts.rs"]
mod hosts;
#[path = "it/clocks.rs"]
mod clocks;
#[path = "it/keeping.rs"]
mod keeping;
#[path = "it/rot.rs"]
mod rot;
#[path = "it/upkeep.rs"]
mod upkeep;

use std::time::Duration;

use gswarm_api::body::{CaptureRequest, HealthStatus, NodeHealth, SettingsChange, StartRequest};
use gswarm_host::Caller;
use gswarm_node::SpoolLimits;
use gswarm_sim::{Cluster, Records};
use gswarm_store::export::ExportFormat;
use gswarm_types::Period;

const ALL: &str = "all";

fn local() -> Caller {
    Caller::local()
}

fn named(name: &str) -> StartRequest {
    StartRequest { name: Some(name.to_owned()), ..StartRequest::default() }
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

/// A host with a session over everything, and agents.
async fn cluster(seed: u64, agents: usize, request: StartRequest) -> Cluster {
    let mut cluster = Cluster::new(seed);
    let handle = cluster.start_host().await.unwrap();
    handle.start_session(&local(), request).await.unwrap();
    for number in 0..agents {
        cluster.add_agent(&format!("node{number}"), SpoolLimits::default()).await.unwrap();
    }
    cluster
}

/// Every incarnation is there from 1 on without hole, repetition or disorder.
#[track_caller]
fn check_complete(records: &Records, seed: u64) {
    for (incarnation, seqs) in records.by_incarnation() {
        let expected: Vec<u64> = (1..=seqs.len() as u64).collect();
        assert_eq!(seqs, expected, "seed {seed}: incarnation {incarnation}");
    }
    for pair in records.records.windows(2) {
        if pair[0].incarnation == pair[1].incarnation {
            assert!(pair[0].time <= pair[1].time, "seed {seed}: time runs backwards {pair:?}");
        }
    }
    assert!(records.gaps.is_empty(), "seed {seed}: {:?}", records.gaps);
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_a_session_is_exact() {
    let request = StartRequest { freq: Some(200), ..named(ALL) };
    let cluster = cluster(1, 2, request).await;
    // Past the start of the agents and the order to sample faster.
    seconds(3).await;
    let handle = cluster.handle().unwrap();
    let request = StartRequest { freq: Some(200), ..named("exact") };
    handle.start_session(&local(), request).await.unwrap();
    seconds(10).await;
    handle.stop_session(&local(), "exact".to_owned(), None).await.unwrap();
    let records = cluster.records("exact").await.unwrap();
    let values = records.values();
    assert_eq!(values, 2 * 50, "5 records a second from each of 2 nodes for 10 s");
    let spacing: Vec<i64> = records
        .records
        .windows(2)
        .filter(|pair| pair[0].incarnation == pair[1].incarnation)
        .filter(|pair| pair[0].is_values && pair[1].is_values)
        .map(|pair| pair[1].time.0 - pair[0].time.0)
        .collect();
    assert!(spacing.iter().all(|gap| *gap == 200_000), "{spacing:?}");
}

/// Cuts the last 24 to 4 seconds out: the values of each node and the steps between them.
async fn rates(cluster: &Cluster, name: &str, expected: &[(&str, usize, i64)]) {
    let request = CaptureRequest {
        name: Some(name.to_owned()),
        from: "24s".to_owned(),
        to: Some("4s".to_owned()),
        ..CaptureRequest::default()
    };
    cluster.handle().unwrap().capture(&local(), request).await.unwrap();
    let records = cluster.records(name).await.unwrap();
    for (node, count, step_us) in expected {
        let values = records.records.iter().filter(|r| r.node == *node && r.is_values);
        let times: Vec<i64> = values.map(|record| record.time.0).collect();
        assert_eq!(times.len(), *count, "{name}: {node}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == *step_us), "{name}: {times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_keeps_its_own_rate_until_a_session_asks_for_more() {
    let mut cluster = Cluster::new(10);
    let handle = cluster.start_host().await.unwrap();
    let own = Some(Period::from_millis(2_000).unwrap());
    cluster.add_agent_every("own", SpoolLimits::default(), own).await.unwrap();
    cluster.add_agent("plain", SpoolLimits::default()).await.unwrap();
    let base = [("own", 10, 2_000_000), ("plain", 20, 1_000_000)];
    seconds(30).await;
    rates(&cluster, "before", &base).await;
    let request = StartRequest { freq: Some(500), ..named("faster") };
    handle.start_session(&local(), request).await.unwrap();
    seconds(30).await;
    rates(&cluster, "during", &[("own", 40, 500_000), ("plain", 40, 500_000)]).await;
    handle.stop_session(&local(), "faster".to_owned(), None).await.unwrap();
    seconds(30).await;
    rates(&cluster, "after", &base).await;
    // What the host says for everybody does not reach a node that has its own.
    let change = SettingsChange { base_period_ms: Some(4_000), ..SettingsChange::default() };
    handle.change_settings(&local(), change).await.unwrap();
    seconds(30).await;
    rates(&cluster, "changed", &[("own", 10, 2_000_000), ("plain", 5, 4_000_000)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_can_begin_in_the_past() {
    let cluster = cluster(2, 1, named(ALL)).await;
    seconds(60).await;
    let handle = cluster.handle().unwrap();
    let request = StartRequest { since: Some("30s".to_owned()), ..named("past") };
    handle.start_session(&local(), request).await.unwrap();
    seconds(2).await;
    let stopped = handle.stop_session(&local(), "past".to_owned(), None).await.unwrap();
    assert!(stopped.session.output_file.is_some());
    let values = cluster.records("past").await.unwrap().values();
    assert!((60..=68).contains(&values), "{values} records in 32 s at 2 Hz");
    let request = CaptureRequest {
        name: Some("cut".to_owned()),
        from: "50s".to_owned(),
        to: Some("40s".to_owned()),
        ..CaptureRequest::default()
    };
    handle.capture(&local(), request).await.unwrap();
    assert_eq!(cluster.records("cut").await.unwrap().values(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_partition_loses_nothing_and_times_are_kept() {
    let cluster = cluster(3, 3, named(ALL)).await;
    seconds(5).await;
    cluster.network(1).unwrap().partition();
    seconds(45).await;
    let handle = cluster.handle().unwrap();
    let node = handle.node(&local(), "node1".to_owned()).await.unwrap();
    assert_eq!(node.health, NodeHealth::Unhealthy, "silent for more than 30 s");
    cluster.network(1).unwrap().heal();
    seconds(90).await;
    let node = handle.node(&local(), "node1".to_owned()).await.unwrap();
    assert_eq!(node.health, NodeHealth::Healthy);
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    let records = cluster.records(ALL).await.unwrap();
    check_complete(&records, 3);
    let times: Vec<i64> = records
        .records
        .iter()
        .filter(|r| r.node == "node1" && r.is_values)
        .map(|r| r.time.0)
        .collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 1_010_000), "no hole in time");
}

#[tokio::test(start_paused = true)]
async fn a_partition_longer_than_the_spool_leaves_exactly_the_named_gap() {
    let mut cluster = Cluster::new(4);
    let handle = cluster.start_host().await.unwrap();
    handle.start_session(&local(), named(ALL)).await.unwrap();
    let limits = SpoolLimits { records_max: 40, ..SpoolLimits::default() };
    cluster.add_agent("small", limits).await.unwrap();
    seconds(5).await;
    cluster.network(0).unwrap().partition();
    seconds(120).await;
    cluster.network(0).unwrap().heal();
    seconds(90).await;
    let dropped = cluster.agent_status(0).unwrap().spool_dropped;
    assert!(dropped > 0);
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    let records = cluster.records(ALL).await.unwrap();
    let seqs = records.by_incarnation().into_values().next().unwrap();
    let missing: Vec<u64> = (1..=*seqs.last().unwrap()).filter(|seq| !seqs.contains(seq)).collect();
    let named: u64 = records.gaps.iter().map(|gap| gap["records"].as_u64().unwrap()).sum();
    assert_eq!(missing.len() as u64, named, "{:?}", records.gaps);
    assert_eq!(missing.len() as u64, dropped);
    for gap in &records.gaps {
        assert_eq!(gap["reason"], "spool_overflow");
        assert_eq!(gap["final"], true);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_returns_after_stop_completes_the_file() {
    let cluster = cluster(5, 2, named(ALL)).await;
    seconds(10).await;
    cluster.network(1).unwrap().partition();
    seconds(10).await;
    let handle = cluster.handle().unwrap();
    let stopped = handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    assert_eq!(stopped.session.revision, 1);
    assert_eq!(stopped.session.incomplete_nodes, vec!["node1".to_owned()]);
    let before = cluster.records(ALL).await.unwrap().records.len();
    cluster.network(1).unwrap().heal();
    seconds(90).await;
    let session = handle.session(&local(), ALL.to_owned()).await.unwrap();
    assert_eq!(session.revision, 2);
    assert_eq!(session.output_file, stopped.session.output_file, "the same file, completed");
    assert!(session.incomplete_nodes.is_empty());
    let records = cluster.records(ALL).await.unwrap();
    assert!(records.records.len() > before);
    check_complete(&records, 5);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_acknowledgements_and_recovers_by_itself() {
    let cluster = cluster(6, 2, named(ALL)).await;
    seconds(5).await;
    cluster.host_disk().set_space_left(Some(100));
    seconds(20).await;
    let handle = cluster.handle().unwrap();
    let health = handle.health(&local()).await.unwrap();
    assert_eq!(health.status, HealthStatus::Unavailable, "reads are served: {health:?}");
    let waiting = cluster.agent_status(0).unwrap().spool_records;
    assert!(waiting > 5, "{waiting} records wait on the node");
    cluster.host_disk().set_space_left(None);
    seconds(20).await;
    assert_ne!(handle.health(&local()).await.unwrap().status, HealthStatus::Unavailable);
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    check_complete(&cluster.records(ALL).await.unwrap(), 6);
}

#[tokio::test(start_paused = true)]
async fn names_clash_by_machine_and_agents_by_identity() {
    let mut cluster = cluster(8, 1, named(ALL)).await;
    cluster.add_agent("node0", SpoolLimits::default()).await.unwrap();
    seconds(5).await;
    let handle = cluster.handle().unwrap();
    let nodes = handle.nodes(&local()).await.unwrap().nodes;
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, vec!["node0", "node0-2"]);
}

#[tokio::test(start_paused = true)]
async fn frames_have_one_row_per_period() {
    let cluster = cluster(9, 1, named(ALL)).await;
    seconds(5).await;
    let handle = cluster.handle().unwrap();
    let request = StartRequest { freq: Some(500), ..named("frames") };
    handle.start_session(&local(), request).await.unwrap();
    seconds(10).await;
    handle.stop_session(&local(), "frames".to_owned(), None).await.unwrap();
    let bytes = cluster.export("frames", ExportFormat::Json).await.unwrap();
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let frames = json["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 20);
    for frame in &frames[1..] {
        assert_eq!(frame["gpu_util"].as_array().unwrap().len(), 2);
        assert!(frame["gpu_util"][0].is_number(), "{frame}");
        assert!(frame["gpu_memory"][1].is_number(), "{frame}");
    }
    assert_eq!(json["summary_by_device"].as_object().unwrap().len(), 2);
}
