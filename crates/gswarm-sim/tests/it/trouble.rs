//! What every test of faults does: stop everything, export, and compare with the ledger.

use gswarm_api::body::StartRequest;
use gswarm_node::SpoolLimits;
use gswarm_sim::{Account, Cluster};
use gswarm_trial::Trial;

use super::{ALL, local, named, seconds};

/// Rare records: what is tried is the way they take, not how many there are.
const PERIOD_MS: i64 = 1_000;

/// A host with a session over everything, and agents.
pub(super) async fn cluster_of(seed: u64, agents: usize) -> Cluster {
    let mut cluster = Cluster::new(seed);
    let handle = cluster.start_host().await.unwrap();
    let request = StartRequest { freq: Some(PERIOD_MS), ..named(ALL) };
    handle.start_session(&local(), request).await.unwrap();
    for number in 0..agents {
        cluster.add_agent(&format!("node{number}"), SpoolLimits::default()).await.unwrap();
    }
    cluster
}

/// Stops the agents once they had time to deliver, then the session; the ledger against its export.
pub(super) async fn settle(cluster: &mut Cluster, agents: usize, trial: &mut Trial) -> Account {
    // The longest wait between two attempts of an agent is a minute.
    seconds(130).await;
    for agent in 0..agents {
        cluster.stop_agent(agent).await;
    }
    let handle = cluster.handle().unwrap();
    handle.stop_session(&local(), ALL.to_owned(), None).await.unwrap();
    let account = cluster.account(ALL).await.unwrap();
    count(trial, &account);
    account
}

pub(super) fn count(trial: &mut Trial, account: &Account) {
    trial.records += account.accepted;
    trial.lost += account.broken();
}

#[track_caller]
pub(super) fn check_all_there(account: &Account, at_least: u64, seed: u64) {
    assert!(account.is_complete(), "seed {seed}: {account:?}");
    assert!(account.exported >= at_least, "seed {seed}: only {} records", account.exported);
}
