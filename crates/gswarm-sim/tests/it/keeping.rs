//! Retention against everything else: nodes that were away, captures, seals and exports meanwhile.

use gswarm_api::body::{CaptureRequest, StartRequest};
use gswarm_node::SpoolLimits;
use gswarm_sim::{Cluster, Records};
use gswarm_trial::{Trial, rounds};
use gswarm_types::{Micros, Period};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::trouble::{count, settle};
use super::{ALL, local, named, seconds};

/// A host that keeps so much, and nodes that sample every few seconds.
async fn cluster_of(seed: u64, agents: usize, keep_s: i64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.config_mut().retention.keep = Micros::from_secs(keep_s);
    cluster.start_host().await.unwrap();
    for number in 0..agents {
        let period = Some(Period::from_millis(5_000).unwrap());
        let name = format!("node{number}");
        cluster.add_agent_every(&name, SpoolLimits::default(), period).await.unwrap();
    }
    cluster
}

async fn start(cluster: &Cluster, name: &str) {
    let request = StartRequest { freq: Some(5_000), ..named(name) };
    cluster.handle().unwrap().start_session(&local(), request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_for_longer_than_retention_still_delivers_everything() {
    let mut trial = Trial::new("a node is away for longer than the host keeps records");
    for seed in 700..700 + rounds(1, 10) {
        let mut cluster = cluster_of(seed, 2, 1_800).await;
        start(&cluster, ALL).await;
        seconds(60).await;
        cluster.network(0).unwrap().partition();
        // Longer than retention, with the host dying in between and the agent as well.
        seconds(4_000).await;
        cluster.kill_host().await;
        cluster.start_host().await.unwrap();
        seconds(1_000).await;
        cluster.kill_agent(0);
        cluster.start_agent(0).await.unwrap();
        cluster.network(0).unwrap().heal();
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 3;
        let account = settle(&mut cluster, 2, &mut trial).await;
        // The session keeps what it covers, also what came an hour late.
        assert!(account.is_complete(), "seed {seed}: {account:?}");
        assert!(account.exported > 2_000, "seed {seed}: {}", account.exported);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_late_node_delivers_is_kept_from_its_receipt_on() {
    let mut trial = Trial::new("a node is away for longer than retention, and no session asks");
    let cluster = cluster_of(710, 1, 1_800).await;
    seconds(60).await;
    cluster.network(0).unwrap().partition();
    seconds(5_000).await;
    cluster.network(0).unwrap().heal();
    seconds(90).await;
    // Everything is older than retention by its own time and new by its receipt.
    seconds(900).await;
    let request = CaptureRequest {
        name: Some(ALL.to_owned()),
        from: "80m".to_owned(),
        freq: Some(5_000),
        ..CaptureRequest::default()
    };
    cluster.handle().unwrap().capture(&local(), request).await.unwrap();
    let records = cluster.records(ALL).await.unwrap();
    let account = cluster.ledger().account(&records);
    assert_eq!((&account.doubled, &account.foreign), (&vec![], &vec![]));
    // All of the last 80 minutes but for what the window leaves out before it.
    let first = records.records.first().map_or(0, |record| record.seq);
    // What was made after the capture ended is not in it.
    let end = records.records.last().map_or(0, |record| record.seq);
    let missing = account.lost.iter().filter(|(_, seq)| (first..=end).contains(seq)).count();
    let newest = cluster.ledger().keys().into_iter().map(|(_, seq)| seq).max().unwrap();
    let last = records.records.last().map_or(0, |record| record.seq);
    (trial.rounds, trial.seeds, trial.faults) = (1, 1, 1);
    count(&mut trial, &account);
    trial.lost = missing as u64;
    assert!(first < newest - 900 && last + 5 > newest, "{first}..{last} of {newest}");
    assert_eq!(missing, 0, "{:?}", account.lost);
}

/// Every seq between the first and the last is there once.
#[track_caller]
fn holes(records: &Records) -> u64 {
    let mut holes = 0;
    for (_, seqs) in records.by_incarnation() {
        let (Some(first), Some(last)) = (seqs.first(), seqs.last()) else { continue };
        let whole = usize::try_from(last - first + 1).unwrap();
        assert!(seqs.len() <= whole && seqs.is_sorted(), "nothing twice, nothing out of order");
        holes += (whole - seqs.len()) as u64;
    }
    holes
}

/// Cuts the last minutes out and reads them, while segments go; nothing may be missing between.
async fn capture(cluster: &Cluster, name: String, minutes: u64) -> Records {
    let request = CaptureRequest {
        name: Some(name.clone()),
        from: format!("{minutes}m"),
        freq: Some(5_000),
        ..CaptureRequest::default()
    };
    cluster.handle().unwrap().capture(&local(), request).await.unwrap();
    cluster.records(&name).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn retention_takes_nothing_from_captures_seals_and_exports_that_run_meanwhile() {
    let mut trial = Trial::new("captures and exports while segments are sealed and removed");
    for seed in 720..720 + rounds(1, 4) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2, 900).await;
        start(&cluster, "kept").await;
        seconds(300).await;
        let handle = cluster.handle().unwrap();
        handle.stop_session(&local(), "kept".to_owned(), None).await.unwrap();
        let kept = cluster.records("kept").await.unwrap();
        seconds(1_150).await;
        for round in 0..rounds(5, 30) {
            // Retention looks once a minute, sealing every five seconds: at any moment of both.
            tokio::time::sleep(std::time::Duration::from_millis(random.random_range(1..90_000)))
                .await;
            // All of it within what is kept.
            let minutes = random.random_range(2..14);
            let (all, again, cut) = tokio::join!(
                cluster.records("kept"),
                cluster.records("kept"),
                capture(&cluster, format!("cut-{round}"), minutes),
            );
            let (all, again) = (all.unwrap(), again.unwrap());
            let missing = holes(&cut);
            trial.rounds += 1;
            trial.faults += 1;
            trial.records += (all.records.len() + again.records.len() + cut.records.len()) as u64;
            trial.lost += missing + (kept.records.len() - all.records.len()) as u64;
            assert_eq!(missing, 0, "seed {seed} round {round}: holes in what a capture shows");
            assert_eq!(all.records, kept.records, "seed {seed} round {round}");
            assert_eq!(again.records, kept.records, "seed {seed} round {round}");
            if random.random_bool(0.5) {
                handle.delete_session(&local(), format!("cut-{round}")).await.unwrap();
            }
        }
        trial.seeds += 1;
        let request =
            StartRequest { since: Some("1h".to_owned()), freq: Some(5_000), ..named(ALL) };
        let session = handle.start_session(&local(), request).await.unwrap();
        assert!(session.covered_from > Some(session.from), "seed {seed}: nothing was removed");
        // The host's files are what the captures said they are, also for another process.
        cluster.kill_host().await;
        cluster.start_host().await.unwrap();
        assert_eq!(cluster.records("kept").await.unwrap().records, kept.records, "seed {seed}");
    }
}
