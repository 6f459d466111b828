//! `kill -9` of hosts and agents at random moments, and a count of every record afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use gswarm_api::body::StartRequest;
use gswarm_trial::{Trial, rounds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use crate::file::Frames;
use crate::fleet::{Fleet, JOIN};
use crate::process::DEADLINE;
use crate::site::{Site, run_file};
use crate::spool::Writer;

const NODES: usize = 3;
/// One round in so many waits for the host to seal: it does so every five seconds.
const SEAL_EVERY: u64 = 20;
/// Kills that may come too late on a busy machine before a round is over.
const SEAL_TRIES_MAX: u64 = 4;
/// A start takes about so long here: kills within it hit the recovery.
const START_MILLIS: u64 = 60;

/// Everything runs, and the ledger knows what each spool took so far.
struct Torture {
    fleet: Fleet,
    /// The ids of the sessions whose start the host has confirmed.
    promised: Vec<String>,
    hits: Hits,
}

/// Which moments the kills found.
#[derive(Debug, Default)]
struct Hits {
    kills: u64,
    /// The host had not yet said that it is ready.
    starting: u64,
    /// A segment was half sealed: the file lay there under its temporary name, or beside the lines.
    sealing: u64,
}

impl Torture {
    fn start() -> Self {
        let site = Site::simulated();
        // Segments close and are sealed all the time.
        let config = "host: {sim: true}\nstore: {segment_age: 1s}\n";
        fs::write(site.home().join("config.yaml"), config).unwrap();
        let mut fleet = Fleet::new(site);
        fleet.join(NODES);
        Self { fleet, promised: Vec::new(), hits: Hits::default() }
    }

    fn kill_host(&mut self) {
        let pid = self.fleet.host.as_ref().unwrap().pid();
        self.fleet.kill_host();
        self.hits.kills += 1;
        let is_ready = run_file(&self.fleet.site.data()).is_some_and(|run| run["pid"] == pid);
        self.hits.starting += u64::from(!is_ready);
    }

    /// Kills an agent, looks what its spool took, and starts it again.
    fn kill_agent(&mut self, number: usize) {
        self.fleet.agents.remove(number - 1).kill();
        self.hits.kills += 1;
        self.fleet.read_spool(number, Writer::Dead);
        let agent = self.fleet.site.agent(JOIN, number);
        self.fleet.agents.insert(number - 1, agent);
    }

    /// Moments right after a start are as likely as those in the middle of the work.
    fn wait(&self, random: &mut StdRng) {
        let millis = if random.random() {
            random.random_range(0..100)
        } else {
            random.random_range(100..800)
        };
        self.fleet.site.pause(Duration::from_millis(millis));
    }

    /// Opens a session that ends by itself during one of the next rounds, if there is a host to ask.
    fn promise(&mut self) {
        let duration = Some("1s".to_owned());
        let request = StartRequest { duration, freq: Some(100), ..StartRequest::default() };
        let started = self.fleet.site.ask(async |host| host.start_session(&request).await);
        self.promised.extend(started.ok().map(|session| session.id));
    }

    /// Every session that was confirmed has ended and has its whole file.
    #[track_caller]
    fn check_promised(&self) {
        let site = &self.fleet.site;
        for id in &self.promised {
            let file = site.until("the file of a session", || {
                let session = site.ask(async |host| host.session(id).await).unwrap();
                let done = !session.active && session.incomplete_nodes.is_empty();
                session.output_file.filter(|_| done)
            });
            let file = Frames::read(Path::new(&file));
            assert_eq!(file.json["session_id"], **id);
            assert_eq!(file.json["gaps"], serde_json::json!([]));
            assert_eq!(file.frames().len(), 10);
        }
        // Also those whose confirmation was lost: each has one file, and nothing half lies about.
        site.until("the files of all sessions", || {
            let sessions = site.ask(async |host| host.sessions().await).unwrap().sessions;
            let mut ended = sessions.iter().filter(|session| session.name != "all");
            let is_done = ended.all(|session| {
                !session.active
                    && session.incomplete_nodes.is_empty()
                    && session.output_file.is_some()
            });
            is_done.then_some(())
        });
        let files = site.files();
        assert!(files.iter().all(|file| file.ends_with(".json")), "{files:?}");
    }

    fn round(&mut self, number: u64, random: &mut StdRng) {
        self.promise();
        if number % SEAL_EVERY == SEAL_EVERY - 1 {
            self.kill_sealing();
            return;
        }
        self.wait(random);
        match random.random_range(0..6) {
            0 => {
                self.kill_host();
                self.fleet.start_host();
            },
            // Down together, and a while without a host.
            1 => {
                self.kill_host();
                self.kill_agent(random.random_range(1..=NODES));
                self.wait(random);
                self.fleet.start_host();
            },
            2 => self.kill_recovering(random),
            _ => self.kill_agent(random.random_range(1..=NODES)),
        }
    }

    /// Again and again before the host is up: recoveries of recoveries.
    fn kill_recovering(&mut self, random: &mut StdRng) {
        self.kill_host();
        for _ in 0..random.random_range(2..6) {
            self.fleet.start_host();
            let moment = Duration::from_millis(random.random_range(0..START_MILLIS));
            self.fleet.site.pause(moment);
            self.kill_host();
        }
        self.fleet.start_host();
    }

    /// Kills a host that seals; again when no such kill came in time so far.
    fn kill_sealing(&mut self) {
        for _ in 0..SEAL_TRIES_MAX {
            self.kill_at_sealing();
            self.fleet.start_host();
            if self.hits.sealing > 0 {
                return;
            }
        }
    }

    /// Waits until a segment is being sealed, and kills the host within the next moment.
    fn kill_at_sealing(&mut self) {
        let journal = self.fleet.site.data().join("journal");
        self.fleet.ready();
        // What an earlier kill left behind is no work of this host.
        let before = half_sealed(&journal);
        let give_up = Instant::now() + DEADLINE;
        // A file under its temporary name lives for a few milliseconds: no pause between looks.
        while half_sealed(&journal).is_subset(&before) {
            assert!(Instant::now() < give_up, "no segment was sealed");
        }
        self.kill_host();
        self.hits.sealing += u64::from(!half_sealed(&journal).is_subset(&before));
    }
}

/// Files of segments that are neither lines only nor a sealed file only.
fn half_sealed(journal: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(journal).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: BTreeSet<String> = names.collect();
    let lines: BTreeSet<String> =
        names.iter().filter_map(|name| Some(name.strip_suffix(".jsonl")?.to_owned())).collect();
    names.retain(|name| {
        let both = || name.split_once('-').is_some_and(|(segment, _)| lines.contains(segment));
        name.ends_with(".parquet.tmp") || name.ends_with(".parquet") && both()
    });
    names
}

#[test]
fn nothing_is_lost_doubled_or_disordered() {
    let mut trial = Trial::new("kill -9 of hosts and agents, also while they recover and seal");
    let seed = rand::random();
    println!("seed {seed}");
    trial.seeds = 1;
    let mut random = StdRng::seed_from_u64(seed);
    let mut torture = Torture::start();
    let rounds = rounds(50, 1_000);
    for number in 0..rounds {
        torture.round(number, &mut random);
        trial.rounds += 1;
        trial.faults = torture.hits.kills;
    }
    torture.fleet.settle();
    torture.check_promised();
    let store = torture.fleet.site.ask(async |host| host.status().await).unwrap().store;
    let Torture { mut fleet, promised, hits } = torture;
    println!("{hits:?}; {} sessions", promised.len());
    fleet.finish(&mut trial);
    assert!(trial.records > 4 * rounds, "too little load");
    assert!(promised.len() as u64 * 8 >= rounds, "only {} sessions", promised.len());
    assert!(store.segments_sealed > 0, "{store:?}");
    assert_eq!(store.quarantined_files, 0, "{store:?}");
    assert!(
        hits.starting > 0 || !gswarm_trial::is_long(),
        "{hits:?}: hardly a kill hit a host that recovers"
    );
    // Chance: only many rounds are sure to hit.
    let sealing = hits.sealing * SEAL_EVERY * 4 >= rounds || !gswarm_trial::is_long();
    assert!(sealing, "{hits:?}: hardly a kill hit a sealing");
}
