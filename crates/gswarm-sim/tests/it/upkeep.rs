//! What happens to a recording over hours: retention, damage, full disks, sessions that go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gswarm_api::body::{HealthStatus, StartRequest};
use gswarm_core::PIN_LEAD;
use gswarm_host::Caller;
use gswarm_sim::{Cluster, Records};
use gswarm_store::Disk;
use gswarm_store::disk::{read_file, write_atomic};
use gswarm_types::Micros;

use super::{ALL, check_complete, cluster, local, named, seconds};

fn files(cluster: &Cluster, dir: &str, ending: &str) -> Vec<PathBuf> {
    let mut names = cluster.host_disk().list(Path::new(dir)).unwrap_or_default();
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names.iter().map(|name| Path::new(dir).join(name)).collect()
}

fn sealed(cluster: &Cluster) -> Vec<PathBuf> {
    files(cluster, "/host/journal", ".parquet")
}

/// Every seq from 1 on is exported once or lies in one gap; returns how many lie in gaps, by reason.
#[track_caller]
fn check_accounted(records: &Records) -> BTreeMap<String, u64> {
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let mut seqs = records.by_incarnation();
    for gap in &records.gaps {
        let Some(incarnation) = gap["incarnation"].as_str() else { continue };
        let (first, last) = (gap["first_seq"].as_u64().unwrap(), gap["last_seq"].as_u64().unwrap());
        seqs.entry(incarnation.to_owned()).or_default().extend(first..=last);
        *reasons.entry(gap["reason"].as_str().unwrap().to_owned()).or_default() += last - first + 1;
    }
    for (incarnation, mut all) in seqs {
        all.sort_unstable();
        let expected: Vec<u64> = (1..=all.len() as u64).collect();
        assert_eq!(all, expected, "{incarnation}");
    }
    reasons
}

async fn has_event(cluster: &Cluster, kind: &str, word: &str) -> bool {
    let events = cluster.handle().unwrap().events(&local(), None).await.unwrap().events;
    events.iter().any(|event| event.kind == kind && event.message.contains(word))
}

#[tokio::test(start_paused = true)]
async fn what_a_session_keeps_outlives_retention_and_nothing_else_does() {
    let mut cluster = Cluster::new(20);
    cluster.config_mut().retention.keep = Micros::from_secs(1_800);
    let handle = cluster.start_host().await.unwrap();
    for name in ["node0", "node1"] {
        cluster.add_agent(name, gswarm_node::SpoolLimits::default()).await.unwrap();
    }
    seconds(60).await;
    let mut request = StartRequest { freq: Some(1_000), ..named("kept") };
    request.nodes = Some(vec!["node0".to_owned()]);
    handle.start_session(&local(), request).await.unwrap();
    seconds(120).await;
    handle.stop_session(&local(), "kept".to_owned(), None).await.unwrap();
    let before = cluster.records("kept").await.unwrap();
    seconds(900).await;
    let whole: u64 = handle.status(&local()).await.unwrap().store.bytes;
    seconds(3_600).await;
    let after = cluster.records("kept").await.unwrap();
    assert_eq!(after.records, before.records, "the session is as it was");
    assert!(after.records.len() >= 120, "{}", after.records.len());
    let oldest = handle.status(&local()).await.unwrap().store.oldest;
    assert!(oldest.is_some_and(|time| time.as_str() < "2026-01-01T00:10:00"), "still there");
    // Everything else of that time is gone, also of the node that was kept.
    let request = StartRequest { since: Some("90m".to_owned()), ..named("everything") };
    let session = handle.start_session(&local(), request).await.unwrap();
    assert!(session.covered_from > Some(session.from.clone()), "{session:?}");
    seconds(2).await;
    handle.stop_session(&local(), "everything".to_owned(), None).await.unwrap();
    let all = cluster.records("everything").await.unwrap();
    let covered = all.records.iter().filter(|record| record.time.0 > 0);
    let early: Vec<_> = covered
        .filter(|record| record.time < before.records[0].time + Micros::from_secs(600))
        .collect();
    assert!(early.iter().all(|record| record.node == "node0"), "{:?}", early.first());
    let began = before.records[0].time;
    let lead = early.iter().filter(|record| record.time < began);
    assert!(lead.clone().all(|record| record.time >= began - PIN_LEAD - Micros::from_secs(1)));
    assert_eq!(early.len(), before.records.len() + lead.count(), "cut down to the session");
    // Without the session the rest goes as well.
    handle.delete_session(&local(), "kept".to_owned()).await.unwrap();
    handle.delete_session(&local(), "everything".to_owned()).await.unwrap();
    handle.session(&local(), "kept".to_owned()).await.unwrap_err();
    seconds(120).await;
    let oldest = handle.status(&local()).await.unwrap().store.oldest;
    assert!(oldest.is_some_and(|time| time.as_str() > "2026-01-01T00:40:00"), "it went");
    assert!(handle.status(&local()).await.unwrap().store.bytes < 4 * whole);
    // The session does not come back, and the recording goes on.
    cluster.kill_host().await;
    let handle = cluster.start_host().await.unwrap();
    handle.session(&local(), "kept".to_owned()).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_damaged_sealed_segment_becomes_a_named_gap() {
    let mut cluster = cluster(21, 2, StartRequest { freq: Some(1_000), ..named(ALL) }).await;
    seconds(1_300).await;
    let files = sealed(&cluster);
    assert!(files.len() >= 2, "{files:?}");
    let whole = cluster.records(ALL).await.unwrap();
    assert!(check_accounted(&whole).is_empty());
    assert!(cluster.host_disk().flip(&files[0], 1_000, 2));
    let torn = cluster.records(ALL).await.unwrap();
    let reasons = check_accounted(&torn);
    let lost = (whole.records.len() - torn.records.len()) as u64;
    assert!(lost > 500, "{lost}");
    // A few more came in meanwhile.
    assert!(reasons["store_damaged"] >= lost && reasons.len() == 1, "{reasons:?} of {lost}");
    assert!(has_event(&cluster, "store_damaged", "records are lost and named").await);
    assert_eq!(
        cluster.handle().unwrap().health(&local()).await.unwrap().status,
        HealthStatus::Degraded
    );
    // It stays that way, with and without a checkpoint.
    seconds(5).await;
    cluster.kill_host().await;
    cluster.start_host().await.unwrap();
    assert_eq!(check_accounted(&cluster.records(ALL).await.unwrap()), reasons);
    cluster.kill_host().await;
    cluster.host_disk().remove(Path::new("/host/journal/checkpoint.json")).unwrap();
    cluster.start_host().await.unwrap();
    seconds(120).await;
    let again = check_accounted(&cluster.records(ALL).await.unwrap());
    assert_eq!(again.values().sum::<u64>(), reasons["store_damaged"], "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sealed_segment_that_rots_unread_is_found_by_itself() {
    let cluster = cluster(22, 1, StartRequest { freq: Some(1_000), ..named(ALL) }).await;
    seconds(1_300).await;
    let files = sealed(&cluster);
    assert!(cluster.host_disk().flip(&files[1], 500, 2));
    seconds(180).await;
    assert!(has_event(&cluster, "store_damaged", "records are lost and named").await);
    let reasons = check_accounted(&cluster.records(ALL).await.unwrap());
    assert!(reasons["store_damaged"] > 0 && reasons.len() == 1, "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_line_is_named_when_its_segment_is_sealed() {
    let cluster = cluster(23, 1, StartRequest { freq: Some(1_000), ..named(ALL) }).await;
    seconds(300).await;
    let lines = files(&cluster, "/host/journal", ".jsonl");
    let text = read_file(cluster.host_disk(), &lines[0], 10_000_000).unwrap();
    let at = text.windows(9).skip(40_000).position(|word| word == b"\"record\":").unwrap();
    assert!(cluster.host_disk().flip(&lines[0], 40_000 + at + 20, 1));
    seconds(700).await;
    assert!(!sealed(&cluster).is_empty());
    let reasons = check_accounted(&cluster.records(ALL).await.unwrap());
    assert_eq!(reasons, BTreeMap::from([("store_damaged".to_owned(), 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_somebody_removed_is_named() {
    let mut cluster = cluster(24, 1, StartRequest { freq: Some(1_000), ..named(ALL) }).await;
    seconds(1_300).await;
    cluster.stop_host().await;
    cluster.host_disk().remove(&sealed(&cluster)[0]).unwrap();
    cluster.start_host().await.unwrap();
    seconds(120).await;
    let reasons = check_accounted(&cluster.records(ALL).await.unwrap());
    assert!(reasons["store_damaged"] > 500 && reasons.len() == 1, "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_session_holds_everything_until_the_disk_is_nearly_full() {
    let mut cluster = Cluster::new(25);
    cluster.config_mut().retention.keep = Micros::from_secs(1_200);
    cluster.config_mut().disk_reserve_bytes = 100_000_000;
    let file = Path::new("/host/sessions/00000000-0000-7000-8000-000000000777.json");
    cluster.host_disk().create_dir_all(file.parent().unwrap()).unwrap();
    write_atomic(cluster.host_disk(), file, b"scrambled").unwrap();
    let handle = cluster.start_host().await.unwrap();
    cluster.add_agent("node0", gswarm_node::SpoolLimits::default()).await.unwrap();
    assert!(has_event(&cluster, "store_damaged", "cannot be read").await);
    seconds(3_600).await;
    let oldest = handle.status(&local()).await.unwrap().store.oldest.unwrap();
    assert!(oldest.as_str() < "2026-01-01T00:05:00", "nothing was removed: {oldest}");
    cluster.host_disk().set_space_left(Some(50_000_000));
    seconds(130).await;
    cluster.host_disk().set_space_left(None);
    let oldest = handle.status(&local()).await.unwrap().store.oldest.unwrap();
    assert!(oldest.as_str() > "2026-01-01T00:30:00", "retention goes on: {oldest}");
    assert!(has_event(&cluster, "store_damaged", "sessions/quarantine").await);
    assert_eq!(files(&cluster, "/host/sessions/quarantine", ".json").len(), 1);
    assert!(files(&cluster, "/host/sessions", ".json").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_starts_on_a_full_disk() {
    let mut cluster = cluster(26, 2, named(ALL)).await;
    seconds(10).await;
    cluster.kill_host().await;
    cluster.host_disk().set_space_left(Some(10));
    let handle = cluster.start_host().await.unwrap();
    let shown = cluster.records(ALL).await.unwrap();
    assert!(shown.records.len() > 20, "what was recorded can be read: {}", shown.records.len());
    seconds(20).await;
    assert_eq!(handle.health(&local()).await.unwrap().status, HealthStatus::Unavailable);
    cluster.host_disk().set_space_left(None);
    seconds(90).await;
    assert_ne!(handle.health(&local()).await.unwrap().status, HealthStatus::Unavailable);
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    check_complete(&cluster.records(ALL).await.unwrap(), 26);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_stop_stops_no_later_session() {
    let cluster = cluster(27, 1, named("run")).await;
    let handle = cluster.handle().unwrap();
    seconds(5).await;
    let request = || Some("r-1".to_owned());
    let first = handle.stop_session(&local(), "run".to_owned(), request()).await.unwrap();
    handle.start_session(&local(), named("run")).await.unwrap();
    seconds(5).await;
    let again = handle.stop_session(&local(), "run".to_owned(), request()).await.unwrap();
    assert_eq!(again.session.id, first.session.id);
    assert!(handle.session(&local(), "run".to_owned()).await.unwrap().active);
    let all = || Some("r-2".to_owned());
    assert_eq!(handle.stop_all(&local(), all()).await.unwrap().stopped.len(), 1);
    handle.start_session(&local(), named("run")).await.unwrap();
    assert_eq!(handle.stop_all(&local(), all()).await.unwrap().stopped.len(), 1);
    let newest = handle.session(&local(), "run".to_owned()).await.unwrap();
    assert!(newest.active, "the repeated request meant the one before");
    let refused = handle.delete_session(&local(), "run".to_owned()).await.unwrap_err();
    assert_eq!(refused.code, gswarm_api::ErrorCode::FailedPrecondition);
}

#[tokio::test(start_paused = true)]
async fn stopping_without_a_name_stops_only_ones_own() {
    let cluster = cluster(28, 1, named("of-the-machine")).await;
    let handle = cluster.handle().unwrap();
    let caller = |name: &str| Caller { principal: name.to_owned(), ..local() };
    for (owner, name) in [("ann", "ann-1"), ("ann", "ann-2"), ("bob", "bob-1")] {
        handle.start_session(&caller(owner), named(name)).await.unwrap();
    }
    seconds(3).await;
    let stopped = handle.stop_all(&caller("ann"), None).await.unwrap().stopped;
    let mut names: Vec<&str> = stopped.iter().map(|s| s.session.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ann-1", "ann-2"]);
    let sessions = handle.sessions(&local()).await.unwrap().sessions;
    let open = sessions.iter().filter(|session| session.active);
    let mut open: Vec<&str> = open.map(|session| session.name.as_str()).collect();
    open.sort_unstable();
    assert_eq!(open, ["bob-1", "of-the-machine"]);
    assert_eq!(sessions.iter().find(|s| s.name == "bob-1").unwrap().owner, "bob");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_stays_open_for_a_day_is_mentioned() {
    let mut cluster = Cluster::new(29);
    let handle = cluster.start_host().await.unwrap();
    handle.start_session(&local(), named("forgotten")).await.unwrap();
    seconds(86_000).await;
    assert!(!has_event(&cluster, "session_long", "forgotten").await);
    seconds(600).await;
    assert!(has_event(&cluster, "session_long", "`forgotten` is open for more than a day").await);
}
