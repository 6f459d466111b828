//! Processes and machines that die at any moment, alone and together.

use std::time::Duration;

use gswarm_sim::Cluster;
use gswarm_trial::{Trial, rounds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::seconds;
use super::trouble::{check_all_there, cluster_of, settle};

const AGENTS: usize = 3;

/// Random kills of host and agents, power losses of the host, cuts: nothing missing, nothing twice.
#[tokio::test(start_paused = true)]
async fn whatever_dies_nothing_is_lost() {
    let mut trial = Trial::new("host and agents die, the host loses power, connections break");
    for seed in 100..100 + rounds(4, 40) {
        trial.seeds += 1;
        torture(seed, 30, &mut trial).await;
    }
}

async fn torture(seed: u64, rounds: u64, trial: &mut Trial) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = cluster_of(seed, AGENTS).await;
    for _ in 0..rounds {
        let pause = Duration::from_millis(random.random_range(1..3_000));
        tokio::time::sleep(pause).await;
        misfortune(&mut cluster, &mut random).await;
        trial.faults += 1;
    }
    trial.rounds += rounds;
    let account = settle(&mut cluster, AGENTS, trial).await;
    check_all_there(&account, 300, seed);
}

async fn misfortune(cluster: &mut Cluster, random: &mut StdRng) {
    let agent = random.random_range(0..AGENTS);
    match random.random_range(0..9) {
        0 => {
            cluster.kill_host().await;
            seconds(random.random_range(0..4)).await;
            cluster.start_host().await.unwrap();
        },
        1 => {
            cluster.host_power_loss(random.random()).await;
            cluster.start_host().await.unwrap();
        },
        // Killed, started on what the page cache shows, then powerless with nothing synced since.
        2 => {
            cluster.kill_host().await;
            cluster.start_host().await.unwrap();
            cluster.host_power_loss(random.random()).await;
            cluster.start_host().await.unwrap();
        },
        3 => {
            cluster.stop_host().await;
            cluster.start_host().await.unwrap();
        },
        // The power goes in the middle of whatever the host writes next.
        4 => {
            let disk = cluster.host_disk().clone();
            disk.cut_power_at(disk.changes() + random.random_range(0..12));
            tokio::time::sleep(Duration::from_millis(random.random_range(1..2_500))).await;
            cluster.host_power_loss(random.random()).await;
            cluster.start_host().await.unwrap();
        },
        5 | 6 => {
            cluster.kill_agent(agent);
            cluster.start_agent(agent).await.unwrap();
        },
        7 => {
            cluster.stop_agent(agent).await;
            cluster.start_agent(agent).await.unwrap();
        },
        _ => cluster.network(agent).unwrap().cut(),
    }
}
