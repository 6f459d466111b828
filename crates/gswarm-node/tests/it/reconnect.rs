//! Lost connections, refusals, back-off, and what is sent again afterwards.

use std::time::Duration;

use gswarm_node::{LinkState, SpoolLimits};
use gswarm_wire::v1;
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::v1::record::Body;
use tonic::Status;

use crate::fake_host::{seqs, welcome};
use crate::rig::{Rig, wait_for};

#[tokio::test(start_paused = true)]
async fn what_was_not_acknowledged_is_sent_again() {
    let mut rig = Rig::new();
    let _agent = rig.agent().await;
    let (_, mut session) = rig.host.welcome().await;
    let records = session.records(5).await;
    session.ack(&records[1]).await;
    session.records(1).await;
    drop(session);
    let (hello, mut session) = rig.host.welcome().await;
    assert_eq!(hello.held[0].oldest_held, 3);
    let again = session.records(3).await;
    assert_eq!(again[..3], records[2..5]);
}

#[tokio::test(start_paused = true)]
async fn what_the_host_has_already_is_not_sent() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (hello, mut session) = rig.host.welcome().await;
    let records = session.records(6).await;
    drop(session);
    let mut session = rig.host.accept().await;
    session.hello().await;
    let held = v1::HeldByHost {
        incarnation: hello.incarnation,
        intervals: vec![v1::Interval { first: 1, last: 2 }, v1::Interval { first: 4, last: 5 }],
        last_stored_seq: 5,
        last_stored_crc: records[4].crc,
    };
    session.send(FromHost::Welcome(welcome(&hello, vec![held]))).await;
    let again = session.records(3).await;
    assert_eq!(seqs(&again)[..3], [3, 6, 7]);
    assert_eq!(agent.status().borrow().records_acked, 4);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_means_other_records_gets_a_new_incarnation() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (first, mut session) = rig.host.welcome().await;
    let records = session.records(4).await;
    drop(session);
    let mut session = rig.host.accept().await;
    session.hello().await;
    let held = v1::HeldByHost {
        incarnation: first.incarnation,
        intervals: vec![v1::Interval { first: 1, last: 4 }],
        last_stored_seq: 4,
        last_stored_crc: !records[3].crc,
    };
    session.send(FromHost::Welcome(welcome(&first, vec![held]))).await;
    let (second, mut session) = rig.host.welcome().await;
    assert_ne!(second.incarnation, first.incarnation);
    assert_eq!(second.held.len(), 2);
    assert_eq!(second.held[0].incarnation, first.incarnation);
    let records = session.records_until(|record| record.incarnation == second.incarnation).await;
    assert_eq!(records[0].incarnation, first.incarnation);
    assert_eq!(records.last().unwrap().seq, 1);
    assert_eq!(agent.status().borrow().incarnation.0, second.incarnation);
}

#[tokio::test(start_paused = true)]
async fn waits_double_to_a_minute_and_an_ack_resets_them() {
    let mut rig = Rig::new();
    rig.host.network.set_down(true);
    let agent = rig.agent().await;
    let attempt = |attempts: u32| move |status: &gswarm_node::AgentStatus| matches!(&status.link, LinkState::Connecting { attempt, retry_in: Some(_) } if *attempt > attempts);
    wait_for(&agent, attempt(8)).await;
    let dialled = rig.host.network.dialled();
    let waits: Vec<f64> =
        dialled.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    for (wait, expected) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]) {
        assert!((0.7..=1.3).contains(&(wait / expected)), "{waits:?}");
    }
    let error = agent.status().borrow().last_error.clone().unwrap();
    assert!(error.contains("refused"), "{error}");
    rig.host.network.set_down(false);
    let (_, mut session) = rig.host.welcome().await;
    let records = session.records(1).await;
    session.ack(&records[0]).await;
    wait_for(&agent, |status| status.records_acked > 0).await;
    rig.host.network.set_down(true);
    drop(session);
    wait_for(&agent, |s| matches!(s.link, LinkState::Connecting { attempt: 2, retry_in: Some(_) }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn refusals_are_shown_and_tried_again_slowly() {
    let mut rig = Rig::new();
    rig.host.refuse_next(Status::failed_precondition("this host takes no simulated nodes"));
    rig.host.refuse_next(Status::permission_denied("the node was removed"));
    let agent = rig.agent().await;
    for sentence in ["this host takes no simulated nodes", "the node was removed"] {
        let refused = LinkState::Refused { reason: sentence.to_owned() };
        wait_for(&agent, |status| status.link == refused).await;
    }
    rig.host.welcome().await;
    let dialled = rig.host.network.dialled();
    assert!(dialled.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(45)));
    assert!(agent.status().borrow().records_sampled > 80, "recording goes on");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_waited_out_while_recording_goes_on() {
    let mut rig = Rig::new();
    rig.host.refuse_next(Status::already_exists("gpu-01 is connected from 10.0.0.7"));
    let agent = rig.agent().await;
    let waiting = LinkState::Waiting { reason: "gpu-01 is connected from 10.0.0.7".to_owned() };
    wait_for(&agent, |status| status.link == waiting).await;
    let (_, mut session) = rig.host.welcome().await;
    session.records(2).await;
    session.fail(Status::already_exists("replaced")).await;
    wait_for(&agent, |status| matches!(status.link, LinkState::Waiting { .. })).await;
    rig.host.welcome().await;
}

#[tokio::test(start_paused = true)]
async fn silent_hosts_are_left() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let silent = rig.host.accept().await;
    let status = wait_for(&agent, |status| status.last_error.is_some()).await;
    assert!(status.last_error.unwrap().contains("within 30 s"));
    let (_, session) = rig.host.welcome().await;
    let gone = |status: &gswarm_node::AgentStatus| {
        status.last_error.as_ref().is_some_and(|error| error.contains("silent for 60 s"))
    };
    wait_for(&agent, gone).await;
    drop((silent, session));
    rig.host.welcome().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_spool_drops_the_oldest_and_says_so() {
    let mut rig = Rig::new();
    rig.config.limits = SpoolLimits { records_max: 100, bytes_max: 1 << 20 };
    rig.host.network.set_down(true);
    let agent = rig.agent().await;
    let status = wait_for(&agent, |status| status.records_sampled > 500).await;
    assert_eq!(status.spool_records, 100);
    rig.host.network.set_down(false);
    let (hello, mut session) = rig.host.welcome().await;
    let oldest = hello.held[0].oldest_held;
    assert!(oldest > 400, "{hello:?}");
    let records = session.records_until(|record| record.seq >= hello.last_seq).await;
    assert_eq!(records[0].seq, oldest);
    let covered = records.iter().any(|record| {
        matches!(&record.body, Some(Body::Loss(loss))
            if loss.first == 1 && loss.last + 2 >= oldest && loss.reason == "spool_overflow")
    });
    assert!(covered, "{records:?}");
    let event = |record: &v1::Record| matches!(&record.body, Some(Body::Event(event)) if event.kind == "spool_overflow");
    assert!(records.iter().filter(|record| event(record)).count() <= 1);
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_at_once() {
    let mut rig = Rig::new();
    let _agent = rig.agent().await;
    let (_, mut session) = rig.host.welcome().await;
    session.within(Duration::from_millis(100)).await;
    session.send(FromHost::Ping(v1::Ping { id: 1 })).await;
    let messages = session.within(Duration::from_millis(100)).await;
    assert!(messages.iter().any(|message| matches!(message, FromAgent::Heartbeat(_))));
}
