//! Starting, stopping, being killed, and starting again.

use std::time::Duration;

use gswarm_node::LinkState;
use gswarm_store::Disk;
use gswarm_types::{Clock, Micros};
use gswarm_wire::v1;
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::v1::record::Body;
use tokio_util::task::TaskTracker;

use crate::fake_host::{Session, seqs};
use crate::rig::{Counting, Rig, wait_for};

/// Acknowledges everything until the agent goes; returns what came.
async fn acknowledge(mut session: Session) -> Vec<v1::Record> {
    let mut records = Vec::new();
    while let Some(message) = session.any().await {
        if let FromAgent::Records(batch) = message {
            let last = batch.records.last().unwrap().clone();
            records.extend(batch.records);
            session.ack(&last).await;
        }
    }
    records
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_delivers_the_end() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (hello, session) = rig.host.welcome().await;
    let tasks = TaskTracker::new();
    let host = tasks.spawn(acknowledge(session));
    wait_for(&agent, |status| status.records_acked >= 5).await;
    agent.stop().await;
    let records = host.await.unwrap();
    assert_eq!(records.last().unwrap().body, Some(Body::End(v1::End {})));
    assert_eq!(seqs(&records), (1..=records.len() as u64).collect::<Vec<_>>());
    let again = rig.agent().await;
    let (second, _session) = rig.host.welcome().await;
    assert_eq!(second.node_id, hello.node_id);
    assert_ne!(second.incarnation, hello.incarnation);
    assert_eq!(second.held.len(), 1, "{second:?}");
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn a_stop_without_a_host_takes_no_time_and_loses_nothing() {
    let mut rig = Rig::new();
    rig.host.network.set_down(true);
    let agent = rig.agent().await;
    wait_for(&agent, |status| status.records_sampled >= 10).await;
    let before = tokio::time::Instant::now();
    agent.stop().await;
    assert!(before.elapsed() <= Duration::from_secs(2));
    rig.host.network.set_down(false);
    let _again = rig.agent().await;
    let (hello, mut session) = rig.host.welcome().await;
    assert_eq!(hello.held.len(), 2);
    let records = session.records_until(|record| record.incarnation == hello.incarnation).await;
    let old: Vec<&v1::Record> =
        records.iter().filter(|record| record.incarnation != hello.incarnation).collect();
    assert!(old.len() >= 12);
    assert_eq!(old.last().unwrap().body, Some(Body::End(v1::End {})));
}

#[tokio::test(start_paused = true)]
async fn a_killed_agent_loses_nothing_that_was_written() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (first, mut session) = rig.host.welcome().await;
    let records = session.records(4).await;
    drop(agent);
    drop(session);
    rig.config.boot_id = "boot-2".to_owned();
    let _again = rig.agent().await;
    let (second, mut session) = rig.host.welcome().await;
    assert_eq!(second.node_id, first.node_id);
    let held: Vec<(u64, &str)> =
        second.held.iter().map(|held| (held.incarnation, held.boot_id.as_str())).collect();
    assert_eq!(held, [(first.incarnation, "boot-1"), (second.incarnation, "boot-2")]);
    let mut tables = Vec::new();
    let mut again: Vec<v1::Record> = Vec::new();
    while tables.len() < 2 {
        match session.next().await {
            FromAgent::Table(table) => tables.push(table.incarnation),
            FromAgent::Records(batch) => again.extend(batch.records),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(again[..4], records[..4]);
    assert_eq!(tables, [first.incarnation, second.incarnation]);
}

#[tokio::test(start_paused = true)]
async fn without_resilience_the_first_loss_ends_the_link() {
    let mut rig = Rig::new();
    rig.config.resilient = false;
    let agent = rig.agent().await;
    let (_, session) = rig.host.welcome().await;
    let waited = tokio::time::timeout(Duration::from_secs(20), agent.finished()).await;
    waited.expect_err("the connection still stands");
    session.fail(tonic::Status::unavailable("the host stops")).await;
    let reason = tokio::time::timeout(Duration::from_secs(20), agent.finished()).await.unwrap();
    assert!(reason.contains("the host stops"), "{reason}");
    assert_eq!(rig.host.network.dialled().len(), 1);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hanging_devices_do_not_silence_the_node() {
    let mut rig = Rig::new();
    let (gate, wait) = std::sync::mpsc::channel();
    let agent = rig.agent_with(Counting::new(Some(wait))).await;
    let (_, mut session) = rig.host.welcome().await;
    let mut beats = 0;
    // A blocked thread keeps paused time from advancing by itself.
    for _ in 0..300 {
        tokio::time::advance(Duration::from_millis(100)).await;
        let soon = tokio::time::timeout(Duration::ZERO, session.any());
        if let Ok(Some(FromAgent::Heartbeat(_))) = soon.await {
            beats += 1;
        }
    }
    assert!((5..=7).contains(&beats), "{beats}");
    assert!(matches!(agent.status().borrow().link, LinkState::Connected { .. }));
    drop(gate);
    let status = wait_for(&agent, |status| status.ticks_skipped > 0).await;
    assert!(status.ticks_skipped >= 25, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_a_tick_that_began_before_its_end() {
    let mut rig = Rig::new();
    let (gate, wait) = std::sync::mpsc::channel();
    let _agent = rig.agent_with(Counting::new(Some(wait))).await;
    let (hello, mut session) = rig.host.welcome().await;
    // The tick at one second begins and hangs; the flush ends after it.
    while rig.clock.mono() < Micros::from_millis(1_500) {
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    session.send(FromHost::Flush(v1::Flush { id: 9, until_mono_us: 1_400_000 })).await;
    for _ in 0..20 {
        tokio::time::advance(Duration::from_millis(10)).await;
        let soon = tokio::time::timeout(Duration::ZERO, session.any()).await;
        assert!(!matches!(soon, Ok(Some(FromAgent::Flushed(_)))), "its tick is not recorded yet");
    }
    drop(gate);
    let flushed = loop {
        if let FromAgent::Flushed(flushed) = session.next().await {
            break flushed;
        }
    };
    // Seq 1 is the start, seq 2 the tick that hung.
    assert_eq!((flushed.id, flushed.incarnation, flushed.seq), (9, hello.incarnation, 2));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_at_the_start_does_not_stop_the_agent() {
    let mut rig = Rig::new();
    drop(rig.agent().await);
    rig.disk.set_space_left(Some(0));
    let agent = rig.agent().await;
    let status = wait_for(&agent, |s| s.spool_errors >= 3 && s.last_error.is_some()).await;
    assert!(status.last_error.unwrap().contains("the spool cannot take a record"));
    rig.disk.set_space_left(None);
    let (_, mut session) = rig.host.welcome().await;
    let records = session.records_until(|record| matches!(record.body, Some(Body::Loss(_)))).await;
    let loss = records.iter().find_map(|record| match &record.body {
        Some(Body::Loss(loss)) => Some(loss),
        _ => None,
    });
    assert_eq!(loss.map(|loss| (loss.first, loss.reason.as_str())), Some((1, "spool_error")));
}

#[tokio::test(start_paused = true)]
async fn a_newer_spool_is_set_aside_and_named() {
    let mut rig = Rig::new();
    rig.host.network.set_down(true);
    rig.agent().await.stop().await;
    rig.host.network.set_down(false);
    let spool = rig.config.state_dir.join("spool");
    let path = spool.join("0000000099.jsonl");
    let body = r#""header":{"format":2,"storage":"00000000-0000-0000-0000-000000000001","segment":99,"prev_valid_bytes":0}}"#;
    let line = format!("{{\"crc\":\"{:08x}\",{body}\n", crc32c::crc32c(body.as_bytes()));
    rig.disk.create(&path).unwrap().append(line.as_bytes()).unwrap();
    let _again = rig.agent().await;
    let (hello, mut session) = rig.host.welcome().await;
    assert_eq!(hello.held.len(), 1);
    let named = |record: &v1::Record| matches!(&record.body, Some(Body::Event(event)) if event.message.contains("spool-newer-1"));
    session.records_until(named).await;
    assert!(!rig.disk.list(&rig.config.state_dir.join("spool-newer-1")).unwrap().is_empty());
    session.send(FromHost::Ping(v1::Ping { id: 1 })).await;
}
