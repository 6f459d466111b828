//! Records, acknowledgements, credit, tables, flushes and commands on one stream.

use std::time::Duration;

use gswarm_types::Table;
use gswarm_wire::v1;
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::command::Command;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::v1::record::Body;
use gswarm_wire::{UNACKED_RECORDS_MAX, record_from_wire, table_from_wire};

use crate::fake_host::{records_in, seqs, welcome};
use crate::rig::{Rig, wait_for};

#[tokio::test(start_paused = true)]
async fn the_hello_says_who_and_what() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (hello, _session) = rig.host.welcome().await;
    let status = agent.status().borrow().clone();
    assert_eq!(hello.node_id, status.node_id.to_string());
    assert_eq!(hello.incarnation, status.incarnation.0);
    assert_eq!((hello.node_name.as_str(), hello.boot_id.as_str()), ("gpu-01", "boot-1"));
    assert_eq!((hello.protocol_min, hello.protocol_max, hello.last_seq), (1, 1, 1));
    assert_eq!(
        (hello.allow, hello.min_period_ms, hello.simulated),
        (vec!["observe".to_owned()], 100, true)
    );
    let held = v1::HeldRange {
        boot_id: "boot-1".to_owned(),
        incarnation: hello.incarnation,
        oldest_held: 1,
        last: 1,
    };
    assert_eq!(hello.held, [held]);
}

#[tokio::test(start_paused = true)]
async fn records_come_once_with_their_table_first_and_acks_free_them() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (_, mut session) = rig.host.welcome().await;
    let mut table: Option<Table> = None;
    let mut records: Vec<v1::Record> = Vec::new();
    while records.len() < 6 {
        match session.next().await {
            FromAgent::Table(wire) => {
                assert!(table.is_none(), "a table is sent once");
                table = Some(table_from_wire(wire).unwrap());
            },
            FromAgent::Records(batch) => records.extend(batch.records),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seqs(&records), [1, 2, 3, 4, 5, 6]);
    assert!(matches!(&records[0].body, Some(Body::Event(event)) if event.kind == "agent_started"));
    let table = table.unwrap();
    assert_eq!(table.devices[1].id.0, "agent");
    for (place, record) in records.iter().enumerate().skip(1) {
        assert_eq!(record.mono_us % 1_000_000, 0, "ticks lie on the grid");
        assert_ne!(record.crc, 0);
        let record = record_from_wire(record.clone(), |_| Some(&table)).unwrap();
        let gswarm_types::Body::Values(values) = record.body else { panic!("{record:?}") };
        let cells = values.cells.as_slice();
        assert_eq!(cells.len(), 4);
        assert_eq!(cells[0], Some(f64::from(u32::try_from(place).unwrap())));
    }
    session.ack(&records[5]).await;
    let status = wait_for(&agent, |status| status.records_acked >= 6).await;
    assert!(status.spool_records <= 1, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn clocks_are_told_before_and_after_the_welcome() {
    let mut rig = Rig::new();
    let _agent = rig.agent().await;
    let mut session = rig.host.accept().await;
    let hello = session.hello().await;
    for id in [7, 8] {
        session.send(FromHost::TimeProbe(v1::TimeProbe { id })).await;
        let FromAgent::TimeEcho(echo) = session.next().await else { panic!() };
        assert_eq!(echo.id, id);
        assert_eq!(echo.wall_us - echo.mono_us, 1_700_000_000_000_000);
    }
    session.send(FromHost::Welcome(welcome(&hello, Vec::new()))).await;
    session.send(FromHost::TimeProbe(v1::TimeProbe { id: 9 })).await;
    loop {
        if let FromAgent::TimeEcho(echo) = session.next().await {
            assert_eq!(echo.id, 9);
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn credit_pauses_records_and_nothing_else() {
    let mut rig = Rig::new();
    let _agent = rig.agent().await;
    let mut session = rig.host.accept().await;
    let hello = session.hello().await;
    session.send(FromHost::Credit(v1::Credit { records: 0 })).await;
    session.send(FromHost::Welcome(welcome(&hello, Vec::new()))).await;
    let messages = session.within(Duration::from_secs(30)).await;
    let beats: Vec<&v1::Heartbeat> = messages
        .iter()
        .filter_map(|message| match message {
            FromAgent::Heartbeat(beat) => Some(beat),
            _ => None,
        })
        .collect();
    assert!((6..=7).contains(&beats.len()), "{}", beats.len());
    assert_eq!(beats.last().unwrap().held[0].oldest_held, 1);
    assert!(beats.last().unwrap().last_seq >= 25);
    assert_eq!(records_in(messages), []);
    session.send(FromHost::Credit(v1::Credit { records: 10 })).await;
    let records = records_in(session.within(Duration::from_secs(10)).await);
    assert_eq!(seqs(&records), (1..=10).collect::<Vec<u64>>());
    session.ack(&records[3]).await;
    let records = records_in(session.within(Duration::from_secs(10)).await);
    assert_eq!(seqs(&records), [11, 12, 13, 14]);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_contract_allows_is_unacknowledged() {
    let mut rig = Rig::new();
    rig.config.period = Some(gswarm_types::Period::MIN);
    let _agent = rig.agent().await;
    let (_, mut session) = rig.host.welcome().await;
    let mut records = Vec::new();
    // The host pings so that its silence does not end the stream.
    for id in 0..5 {
        session.send(FromHost::Ping(v1::Ping { id })).await;
        records.extend(records_in(session.within(Duration::from_secs(40)).await));
    }
    assert_eq!(records.len(), UNACKED_RECORDS_MAX);
    session.ack(&records[99]).await;
    let more = records_in(session.within(Duration::from_secs(5)).await);
    assert_eq!(more.len(), 100);
    assert_eq!(more[0].seq, 1_025);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_table_is_sent_again_with_what_needs_it() {
    let mut rig = Rig::new();
    let _agent = rig.agent().await;
    let (hello, mut session) = rig.host.welcome().await;
    let records = session.records(4).await;
    let Some(Body::Values(values)) = &records[1].body else { panic!() };
    let unknown = v1::TableUnknown { incarnation: hello.incarnation, digest: values.table };
    for _ in 0..3 {
        session.send(FromHost::TableUnknown(unknown)).await;
    }
    let FromAgent::Table(table) = session.next().await else { panic!() };
    assert_eq!(table.digest, values.table);
    let again = session.records(3).await;
    assert_eq!(seqs(&again)[..3], [2, 3, 4]);
    assert_eq!(again[0], records[1]);
    session.ack(&again[2]).await;
    let rest = session.within(Duration::from_secs(5)).await;
    assert!(!rest.iter().any(|message| matches!(message, FromAgent::Table(_))));
    assert!(seqs(&records_in(rest)).iter().all(|seq| *seq > 4));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_the_host_never_takes_does_not_make_a_storm() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (hello, mut session) = rig.host.welcome().await;
    let mut tables = 0;
    while let Some(message) = session.any().await {
        if let FromAgent::Table(table) = message {
            tables += 1;
            let incarnation = hello.incarnation;
            let unknown = v1::TableUnknown { incarnation, digest: table.digest };
            session.send(FromHost::TableUnknown(unknown)).await;
        }
    }
    assert_eq!(tables, 6);
    let status = wait_for(&agent, |status| status.last_error.is_some()).await;
    assert!(status.last_error.unwrap().contains("does not take table"));
}

#[tokio::test(start_paused = true)]
async fn a_flush_is_answered_behind_its_records() {
    let mut rig = Rig::new();
    let _agent = rig.agent().await;
    let mut session = rig.host.accept().await;
    let hello = session.hello().await;
    session.send(FromHost::Credit(v1::Credit { records: 0 })).await;
    session.send(FromHost::Welcome(welcome(&hello, Vec::new()))).await;
    session.within(Duration::from_secs(8)).await;
    // Seq 1 is the start, seq n + 1 the tick at n seconds.
    let flush = v1::Flush { id: 5, until_mono_us: 4_000_000 };
    session.send(FromHost::Flush(flush)).await;
    assert_eq!(records_in(session.within(Duration::from_secs(2)).await), []);
    session.send(FromHost::Credit(v1::Credit { records: 2 })).await;
    let records = session.records(2).await;
    session.ack(&records[1]).await;
    session.send(FromHost::Credit(v1::Credit { records: 100 })).await;
    let mut last = 0;
    let flushed = loop {
        match session.next().await {
            FromAgent::Records(batch) => last = batch.records.last().unwrap().seq,
            FromAgent::Flushed(flushed) => break flushed,
            other => assert!(matches!(other, FromAgent::Table(_))),
        }
    };
    assert_eq!((flushed.id, flushed.incarnation, flushed.seq), (5, hello.incarnation, 4));
    assert!(last >= 4);
}

#[tokio::test(start_paused = true)]
async fn the_period_follows_the_host() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let mut session = rig.host.accept().await;
    let hello = session.hello().await;
    let slow = v1::Welcome { period_ms: 5_000, ..welcome(&hello, Vec::new()) };
    session.send(FromHost::Welcome(slow)).await;
    let records = records_in(session.within(Duration::from_secs(50)).await);
    assert!((9..=13).contains(&records.len()), "{}", records.len());
    let command = Command::SetPeriod(v1::SetPeriod { period_ms: 100 });
    session.send(FromHost::Command(v1::Command { id: 3, command: Some(command) })).await;
    let messages = session.within(Duration::from_secs(10)).await;
    let result = v1::CommandResult { id: 3, ok: true, ..v1::CommandResult::default() };
    assert!(messages.contains(&FromAgent::CommandResult(result)));
    let records = records_in(messages);
    assert!((98..=102).contains(&records.len()), "{}", records.len());
    assert_eq!(agent.status().borrow().period.millis(), 100);
}

#[tokio::test(start_paused = true)]
async fn commands_outside_the_allow_list_are_refused_and_counted() {
    let mut rig = Rig::new();
    let agent = rig.agent().await;
    let (_, mut session) = rig.host.welcome().await;
    let unknown = Some(Command::Unknown("run_task".to_owned()));
    let too_fast = Some(Command::SetPeriod(v1::SetPeriod { period_ms: 1 }));
    let cases = [
        (unknown, "failed_precondition"),
        (None, "failed_precondition"),
        (too_fast, "invalid_argument"),
    ];
    for (id, (command, expected)) in (1..).zip(cases) {
        session.send(FromHost::Command(v1::Command { id, command })).await;
        let result = loop {
            if let FromAgent::CommandResult(result) = session.next().await {
                break result;
            }
        };
        assert_eq!((result.id, result.ok, result.error.as_str()), (id, false, expected));
        assert!(!result.message.is_empty());
    }
    assert_eq!(agent.status().borrow().commands_refused, 3);
}
