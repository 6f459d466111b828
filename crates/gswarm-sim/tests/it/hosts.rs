//! Hosts that lost their memory: wiped, restored to an older copy, powerless while sessions change.

use std::collections::BTreeMap;

use gswarm_api::body::StartRequest;
use gswarm_sim::{Account, Cluster, RecordKey};
use gswarm_store::SimDisk;
use gswarm_trial::{Trial, rounds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::trouble::{cluster_of, settle};
use super::{ALL, local, named, seconds};

async fn exported(cluster: &Cluster) -> Vec<RecordKey> {
    let records = cluster.records(ALL).await.unwrap().records;
    records.into_iter().map(|record| (record.incarnation, record.seq)).collect()
}

/// What is missing is exactly what another host acknowledged, and it is called that.
#[track_caller]
fn check_not_on_this_host(account: &Account, may_miss: u64, seed: u64) {
    assert_eq!((account.broken(), account.awaited), (0, 0), "seed {seed}: {account:?}");
    let named: Vec<&String> = account.named.keys().collect();
    assert_eq!(named, ["not_on_this_host"], "seed {seed}");
    let missing = account.named["not_on_this_host"];
    assert!((1..=may_miss).contains(&missing), "seed {seed}: {missing} of {may_miss}");
}

#[tokio::test(start_paused = true)]
async fn a_wiped_host_names_what_it_never_had_and_gets_everything_else() {
    let mut trial = Trial::new("the host's disk is replaced by an empty one");
    for seed in 300..300 + rounds(2, 60) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        seconds(random.random_range(5..40)).await;
        // What waits on the node while the host goes must reach the next one.
        cluster.network(0).unwrap().partition();
        seconds(random.random_range(3..20)).await;
        let had = exported(&cluster).await;
        cluster.stop_host().await;
        cluster.replace_host_disk(SimDisk::new());
        let handle = cluster.start_host().await.unwrap();
        let request =
            StartRequest { freq: Some(1_000), since: Some("10m".to_owned()), ..named(ALL) };
        handle.start_session(&local(), request).await.unwrap();
        cluster.network(0).unwrap().heal();
        seconds(20).await;
        let account = settle(&mut cluster, 2, &mut trial).await;
        // A stop of the host commits a last batch that the export before it did not show.
        check_not_on_this_host(&account, had.len() as u64 + 10, seed);
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_restored_to_an_older_copy_names_what_it_lost() {
    let mut trial = Trial::new("the host goes back to an older copy of its disk, same storage id");
    for seed in 310..310 + rounds(2, 60) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut cluster = cluster_of(seed, 2).await;
        seconds(random.random_range(5..40)).await;
        let copy = cluster.host_disk().fork();
        let before = exported(&cluster).await;
        seconds(random.random_range(5..40)).await;
        // What waits on the node meanwhile must not be taken for delivered.
        cluster.network(0).unwrap().partition();
        seconds(random.random_range(15..30)).await;
        let had = exported(&cluster).await;
        cluster.kill_host().await;
        copy.power_loss(random.random());
        cluster.replace_host_disk(copy);
        cluster.start_host().await.unwrap();
        cluster.network(0).unwrap().heal();
        seconds(20).await;
        let account = settle(&mut cluster, 2, &mut trial).await;
        let between = (had.len() - before.len()) as u64;
        check_not_on_this_host(&account, between + 5, seed);
        trial.rounds += 1;
        trial.seeds += 1;
        trial.faults += 1;
    }
}

/// One thing that a person does with sessions, and what must be so once it is answered.
async fn act(cluster: &Cluster, step: usize, expected: &mut BTreeMap<String, bool>) -> bool {
    let Ok(handle) = cluster.handle() else { return false };
    let name = format!("s{}", step / 3);
    let done = match step % 3 {
        0 => handle.start_session(&local(), named(&name)).await.is_ok(),
        1 => handle.stop_session(&local(), name.clone(), None).await.is_ok(),
        // Every other one is deleted.
        _ if step.is_multiple_of(2) => handle.delete_session(&local(), name.clone()).await.is_ok(),
        _ => return true,
    };
    if done && step % 3 == 2 {
        expected.remove(&name);
    } else if done {
        expected.insert(name, step.is_multiple_of(3));
    }
    done
}

const STEPS: usize = 12;

/// Plays until the power goes; what was answered, and the step that was not.
async fn play(cluster: &Cluster) -> (BTreeMap<String, bool>, Option<usize>) {
    let mut expected = BTreeMap::new();
    for step in 0..STEPS {
        if !act(cluster, step, &mut expected).await {
            return (expected, Some(step));
        }
    }
    (expected, None)
}

#[tokio::test(start_paused = true)]
async fn sessions_that_were_answered_survive_power_loss_at_any_change() {
    let mut trial = Trial::new("the host loses power while sessions start, stop and go");
    let mut whole = Cluster::new(320);
    whole.start_host().await.unwrap();
    let begin = whole.host_disk().changes();
    assert_eq!(play(&whole).await.1, None);
    let end = whole.host_disk().changes();
    for cut in begin..=end {
        for more in 0..rounds(1, 12) {
            let seed = cut * 100 + more;
            let mut cluster = Cluster::new(320);
            cluster.start_host().await.unwrap();
            cluster.host_disk().cut_power_at(cut);
            let (expected, unanswered) = play(&cluster).await;
            cluster.host_power_loss(seed).await;
            let handle = cluster.start_host().await.unwrap();
            let found = handle.sessions(&local()).await.unwrap().sessions;
            let found: BTreeMap<String, bool> =
                found.into_iter().map(|session| (session.name, session.active)).collect();
            let unsure = unanswered.map(|step| format!("s{}", step / 3));
            let is_kept = |name: &String| unsure.as_ref() == Some(name);
            let names = expected.keys().chain(found.keys()).filter(|name| !is_kept(name));
            let wrong: Vec<&String> =
                names.filter(|name| expected.get(*name) != found.get(*name)).collect();
            trial.rounds += 1;
            trial.seeds += 1;
            trial.faults += 1;
            trial.records += expected.len() as u64;
            trial.lost += wrong.len() as u64;
            assert!(wrong.is_empty(), "cut {cut} seed {seed}: {wrong:?} of {expected:?} {found:?}");
        }
    }
}
