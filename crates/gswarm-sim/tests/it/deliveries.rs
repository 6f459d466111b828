//! Records that come twice, out of order, and while their batch is not committed.

use std::collections::BTreeSet;

use gswarm_node::SpoolLimits;
use gswarm_sim::Cluster;
use gswarm_trial::{Trial, rounds};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tonic::Status;

use super::raw_agent::{INCARNATION, RawAgent, crc};
use super::trouble::{check_all_there, count};
use super::{ALL, local, named, seconds};

const RECORDS: u64 = 60;

async fn cluster(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    let handle = cluster.start_host().await.unwrap();
    handle.start_session(&local(), named(ALL)).await.unwrap();
    cluster.add_machine("raw", SpoolLimits::default(), None).unwrap();
    for seq in 1..=RECORDS {
        cluster.ledger().accept(INCARNATION, seq, crc(seq));
    }
    // The marks are made in the first milliseconds after boot: within the window.
    seconds(1).await;
    cluster
}

async fn stored(cluster: &Cluster) -> BTreeSet<u64> {
    cluster.records(ALL).await.unwrap().records.iter().map(|record| record.seq).collect()
}

/// Any records in any order, some of them several times, until the stream breaks or is enough.
async fn babble(agent: &mut RawAgent, random: &mut StdRng, faults: &mut u64) -> Result<(), Status> {
    let mut order: Vec<u64> = (1..=RECORDS).collect();
    order.shuffle(random);
    order.truncate(random.random_range(1..40));
    for seqs in order.chunks(5) {
        agent.send(seqs).await?;
        for _ in 0..random.random_range(0..3) {
            // At once: its batch is not committed yet.
            agent.send(seqs).await?;
            *faults += 1;
        }
        agent.listen(random.random_range(0..30)).await?;
    }
    Ok(())
}

async fn delivered_once(seed: u64, trial: &mut Trial) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = cluster(seed).await;
    let mut acked = BTreeSet::new();
    for round in 0..12 {
        let network = cluster.network(0).unwrap().clone();
        if let Ok(mut agent) = RawAgent::connect(&network, RECORDS).await {
            // A stream that breaks is what the next round is for.
            let _broken = babble(&mut agent, &mut random, &mut trial.faults).await;
            acked.extend(agent.acked);
        }
        network.cut();
        trial.faults += 1;
        if round % 4 == 3 {
            cluster.host_power_loss(random.random()).await;
            cluster.start_host().await.unwrap();
            let kept = stored(&cluster).await;
            let gone: Vec<&u64> = acked.difference(&kept).collect();
            trial.lost += gone.len() as u64;
            assert!(gone.is_empty(), "seed {seed}: acknowledged and gone {gone:?}");
        }
    }
    assert!(!acked.is_empty(), "seed {seed}: nothing was ever acknowledged");
    let network = cluster.network(0).unwrap().clone();
    let mut agent = RawAgent::connect(&network, RECORDS).await.unwrap();
    agent.send(&(1..=RECORDS).collect::<Vec<_>>()).await.unwrap();
    agent.listen(2_000).await.unwrap();
    assert!(agent.is_settled(), "seed {seed}: duplicates are acknowledged as well");
    let handle = cluster.handle().unwrap();
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    let account = cluster.account(ALL).await.unwrap();
    count(trial, &account);
    check_all_there(&account, RECORDS, seed);
}

#[tokio::test(start_paused = true)]
async fn duplicated_and_reordered_records_are_stored_once() {
    let mut trial =
        Trial::new("records are sent several times and in any order, over broken streams");
    for seed in 500..500 + rounds(6, 300) {
        trial.rounds += 12;
        trial.seeds += 1;
        delivered_once(seed, &mut trial).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_inside_an_uncommitted_batch_is_neither_stored_nor_acknowledged() {
    let mut trial = Trial::new("the same records again while their batch cannot be committed");
    for seed in 510..510 + rounds(3, 100) {
        let mut random = StdRng::seed_from_u64(seed);
        let cluster = cluster(seed).await;
        let mut agent = RawAgent::connect(cluster.network(0).unwrap(), RECORDS).await.unwrap();
        cluster.host_disk().set_sync_fails(true);
        let seqs: Vec<u64> = (1..=RECORDS).collect();
        for _ in 0..4 {
            agent.send(&seqs).await.unwrap();
            agent.listen(random.random_range(1..1_500)).await.unwrap();
            trial.faults += 1;
        }
        assert_eq!(agent.acked, BTreeSet::new(), "seed {seed}: nothing is synced");
        cluster.host_disk().set_sync_fails(false);
        agent.listen(5_000).await.unwrap();
        assert!(agent.is_settled(), "seed {seed}: all are acknowledged once they are stored");
        let ingest = cluster.handle().unwrap().status(&local()).await.unwrap().ingest;
        assert_eq!(ingest.records_duplicate, 3 * RECORDS, "seed {seed}");
        let handle = cluster.handle().unwrap();
        handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
        let account = cluster.account(ALL).await.unwrap();
        count(&mut trial, &account);
        check_all_there(&account, RECORDS, seed);
        trial.rounds += 1;
        trial.seeds += 1;
    }
}
