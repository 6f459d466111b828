//! Clocks that jump by hours and years, on nodes and on the host.

use std::path::Path;

use gswarm_api::body::{SessionBody, StartRequest};
use gswarm_node::SpoolLimits;
use gswarm_sim::{Cluster, Records};
use gswarm_store::Disk;
use gswarm_trial::{Trial, rounds};
use gswarm_types::{Micros, Period};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::trouble::{check_all_there, cluster_of, settle};
use super::{ALL, local, named, seconds};

const HOUR: i64 = 3_600;
/// From the beginning of 2026 into the middle of 2035.
const NINE_YEARS: i64 = 9 * 365 * 24 * HOUR + 180 * 24 * HOUR;

fn hours(count: i64) -> Micros {
    Micros::from_secs(count * HOUR)
}

/// Times of each incarnation in the order of their seqs never run backwards.
#[track_caller]
fn check_order(records: &Records, seed: u64) {
    for pair in records.records.windows(2) {
        let same = pair[0].incarnation == pair[1].incarnation;
        assert!(!same || pair[0].time <= pair[1].time, "seed {seed}: {pair:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_of_nodes_that_jump_change_no_time() {
    let mut trial = Trial::new("wall clocks of nodes jump by hours, both ways, with reboots");
    for seed in 400..400 + rounds(2, 40) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        for _ in 0..8 {
            seconds(random.random_range(2..10)).await;
            let agent = random.random_range(0..2);
            let error = hours(random.random_range(-30..30));
            cluster.agent_clock(agent).unwrap().set_wall_error(error);
            if random.random_bool(0.3) {
                cluster.kill_agent(agent);
                cluster.start_agent(agent).await.unwrap();
            }
            trial.rounds += 1;
            trial.faults += 1;
        }
        trial.seeds += 1;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 200, seed);
        let records = cluster.records(ALL).await.unwrap();
        check_order(&records, seed);
        let times = || records.records.iter().map(|record| record.time);
        let lasted = times().max().unwrap() - times().min().unwrap();
        assert!(lasted < Micros::from_secs(400), "seed {seed}: {lasted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_clock_that_jumps_ahead_is_followed_slowly_and_loses_nothing() {
    let mut trial = Trial::new("the host's wall clock jumps ahead by hours");
    for seed in 410..410 + rounds(1, 15) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        seconds(random.random_range(5..30)).await;
        cluster.host_clock().set_wall_error(hours(random.random_range(1..40)));
        seconds(random.random_range(5..30)).await;
        cluster.host_clock().set_wall_error(hours(random.random_range(1..40)));
        cluster.kill_host().await;
        cluster.start_host().await.unwrap();
        (trial.rounds, trial.seeds) = (trial.rounds + 1, trial.seeds + 1);
        trial.faults += 3;
        let account = settle(&mut cluster, 2, &mut trial).await;
        check_all_there(&account, 200, seed);
        check_order(&cluster.records(ALL).await.unwrap(), seed);
    }
}

/// Starts a session, lets it record, stops it: everything that the spools took meanwhile is in it.
async fn check_session(cluster: &Cluster, name: &str, trial: &mut Trial) {
    let handle = cluster.handle().unwrap();
    let before = cluster.ledger().keys();
    let request = StartRequest { freq: Some(1_000), ..named(name) };
    handle.start_session(&local(), request).await.unwrap();
    seconds(60).await;
    handle.stop_session(&local(), name.to_owned(), None).await.unwrap();
    let records = cluster.records(name).await.unwrap();
    let account = cluster.ledger().account(&records);
    assert_eq!((&account.doubled, &account.foreign), (&vec![], &vec![]), "{name}");
    let first = records.records.iter().map(|record| record.seq).min().unwrap();
    let last = records.records.iter().map(|record| record.seq).max().unwrap();
    let lost = account.lost.iter().filter(|key| !before.contains(*key));
    let lost = lost.filter(|key| (first..=last).contains(&key.1)).count() as u64;
    trial.records += account.exported;
    trial.lost += lost;
    assert_eq!(lost, 0, "{name}: {account:?}");
    assert!(account.exported >= 58, "{name}: {account:?}");
}

#[tokio::test(start_paused = true)]
async fn clocks_of_2035_are_corrected_and_every_session_is_whole() {
    let mut trial = Trial::new("agent and host believe in 2035 and are corrected, with restarts");
    for seed in 420..420 + rounds(2, 20) {
        let mut cluster = Cluster::new(seed);
        cluster.host_clock().set_wall_error(Micros::from_secs(NINE_YEARS));
        cluster.start_host().await.unwrap();
        cluster.add_agent("node0", SpoolLimits::default()).await.unwrap();
        cluster.agent_clock(0).unwrap().set_wall_error(Micros::from_secs(NINE_YEARS));
        seconds(5).await;
        check_session(&cluster, "in-2035", &mut trial).await;
        let wrong = cluster.records("in-2035").await.unwrap();
        cluster.agent_clock(0).unwrap().set_wall_error(Micros::ZERO);
        cluster.host_clock().set_wall_error(Micros::ZERO);
        seconds(5).await;
        let events = cluster.handle().unwrap().events(&local(), None).await.unwrap().events;
        assert!(events.iter().any(|event| event.kind == "clock_step"), "seed {seed}");
        check_session(&cluster, "in-2026", &mut trial).await;
        // With and without the process, with and without what was not synced.
        if seed.is_multiple_of(2) {
            cluster.kill_host().await;
        } else {
            cluster.host_power_loss(seed).await;
        }
        cluster.start_host().await.unwrap();
        cluster.kill_agent(0);
        cluster.start_agent(0).await.unwrap();
        seconds(5).await;
        check_session(&cluster, "after-restart", &mut trial).await;
        // What was recorded in 2035 can still be had under its own time.
        assert_eq!(cluster.records("in-2035").await.unwrap().records, wrong.records);
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 4;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_open_when_the_clock_is_set_back_goes_on_under_its_name() {
    let mut trial = Trial::new("the host's clock is set back under an open session");
    for seed in 440..440 + rounds(2, 20) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = Cluster::new(seed);
        cluster.host_clock().set_wall_error(hours(random.random_range(2..80_000)));
        let handle = cluster.start_host().await.unwrap();
        cluster.add_agent("node0", SpoolLimits::default()).await.unwrap();
        seconds(5).await;
        let request =
            StartRequest { freq: Some(1_000), duration: Some("300s".to_owned()), ..named("work") };
        let first = handle.start_session(&local(), request).await.unwrap();
        seconds(100).await;
        cluster.host_clock().set_wall_error(Micros::ZERO);
        seconds(10).await;
        let before = cluster.records(&first.id).await.unwrap();
        assert!((98..=104).contains(&before.values()), "seed {seed}: {}", before.values());
        // It stops by itself when it would have.
        seconds(170).await;
        let active = |sessions: Vec<SessionBody>| {
            let work = sessions.into_iter().filter(|session| session.name == "work");
            work.filter(|session| session.active).count()
        };
        let sessions = handle.sessions(&local()).await.unwrap().sessions;
        assert_eq!(active(sessions), 1, "seed {seed}");
        seconds(40).await;
        let sessions = handle.sessions(&local()).await.unwrap().sessions;
        assert_eq!(active(sessions), 0, "seed {seed}");
        let after = cluster.records("work").await.unwrap();
        assert!((195..=204).contains(&after.values()), "seed {seed}: {}", after.values());
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 1;
        trial.records += (before.records.len() + after.records.len()) as u64;
    }
}

#[tokio::test(start_paused = true)]
async fn segments_of_2035_are_sealed_and_expire_like_others() {
    let mut trial = Trial::new("a recording of 2035 is sealed and expires after the correction");
    let mut cluster = Cluster::new(430);
    cluster.config_mut().retention.keep = Micros::from_secs(3_600);
    cluster.host_clock().set_wall_error(Micros::from_secs(NINE_YEARS));
    let handle = cluster.start_host().await.unwrap();
    let period = Some(Period::from_millis(10_000).unwrap());
    cluster.add_agent_every("node0", SpoolLimits::default(), period).await.unwrap();
    seconds(1_500).await;
    let of_2035 = segments(&cluster);
    assert!(of_2035.len() >= 3, "{of_2035:?}");
    cluster.host_clock().set_wall_error(Micros::ZERO);
    // Everything of 2035 is followed by an hour of 2026, and then by retention.
    seconds(2 * 3_600).await;
    let kept = segments(&cluster);
    trial.rounds = 1;
    trial.faults = 2;
    trial.records = cluster.ledger().len() as u64;
    assert!(kept.iter().all(|name| !of_2035.contains(name)), "{of_2035:?} {kept:?}");
    let lines = kept.iter().filter(|name| name.ends_with(".jsonl")).count();
    assert!(lines <= 2, "segments are closed and sealed as before: {kept:?}");
    assert!((6..=9).contains(&kept.len()), "an hour in pieces of ten minutes: {kept:?}");
    assert!(handle.status(&local()).await.unwrap().store.oldest.unwrap().as_str() < "2027");
    // That it expired takes nothing away from windows of today.
    let request = StartRequest { since: Some("20m".to_owned()), freq: Some(10_000), ..named(ALL) };
    let session = handle.start_session(&local(), request).await.unwrap();
    assert_eq!(session.covered_from.as_ref(), Some(&session.from), "{session:?}");
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    let shown = cluster.records(ALL).await.unwrap();
    assert!(shown.gaps.is_empty() && shown.values() >= 119, "{} {:?}", shown.values(), shown.gaps);
}

/// Numbers of the segments on the host's disk, and how they lie there.
fn segments(cluster: &Cluster) -> Vec<String> {
    let mut names = cluster.host_disk().list(Path::new("/host/journal")).unwrap();
    names.retain(|name| name.starts_with('0'));
    names.sort();
    names
}
