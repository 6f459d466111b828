//! `kill -9` of hosts and agents at random moments, and a count of every record afterwards.

use std::path::Path;
use std::time::Duration;

use gswarm_api::body::StartRequest;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::file::{Frames, Records};
use crate::process::Process;
use crate::site::Site;
use crate::spool::{Ledger, Writer};

const ROUNDS: usize = 50;
const NODES: usize = 3;
const HOST: &str = "gswarm host start --port 8090 --single-port --freq 100 --base-freq 100";
const JOIN: &str = "gswarm join localhost:8090";

/// Everything runs, and the ledger knows what each spool took so far.
struct Torture {
    /// `None` while there is no host.
    host: Option<Process>,
    agents: Vec<Process>,
    ledger: Ledger,
    /// The ids of the sessions whose start the host has confirmed.
    promised: Vec<String>,
    site: Site,
}

impl Torture {
    fn start() -> Self {
        let site = Site::simulated();
        let host = site.host(HOST);
        // Before the first agent: no record is older than its window.
        site.run("gswarm profiler start --name all").worked();
        let agents = (1..=NODES).map(|number| site.agent(JOIN, number)).collect();
        site.connected(NODES);
        Self { site, host: Some(host), agents, ledger: Ledger::default(), promised: Vec::new() }
    }

    fn kill_host(&mut self) {
        self.host.take().unwrap().kill();
        for number in 1..=NODES {
            self.read_spool(number, Writer::Alive);
        }
    }

    fn start_host(&mut self) {
        self.host = Some(self.site.start(HOST, &[]));
    }

    /// Kills an agent, looks what its spool took, and starts it again.
    fn kill_agent(&mut self, number: usize) {
        self.agents.remove(number - 1).kill();
        self.read_spool(number, Writer::Dead);
        self.agents.insert(number - 1, self.site.agent(JOIN, number));
    }

    fn read_spool(&mut self, number: usize, writer: Writer) {
        let spool = self.site.state(&format!("node{number}")).join("spool");
        self.ledger.enter(&spool, writer);
    }

    /// Moments right after a start are as likely as those in the middle of the work.
    fn wait(&self, random: &mut StdRng) {
        let millis = if random.random() {
            random.random_range(0..200)
        } else {
            random.random_range(200..2_000)
        };
        self.site.pause(Duration::from_millis(millis));
    }

    /// Opens a session that ends by itself during one of the next rounds, if there is a host to ask.
    fn promise(&mut self) {
        let duration = Some("1s".to_owned());
        let request = StartRequest { duration, freq: Some(100), ..StartRequest::default() };
        let started = self.site.ask(async |host| host.start_session(&request).await);
        self.promised.extend(started.ok().map(|session| session.id));
    }

    /// Every session that was confirmed has ended and has its whole file.
    #[track_caller]
    fn check_promised(&self) {
        assert!(self.promised.len() * 4 >= ROUNDS, "only {} sessions", self.promised.len());
        for id in &self.promised {
            let file = self.site.until("the file of a session", || {
                let session = self.site.ask(async |host| host.session(id).await).unwrap();
                let done = !session.active && session.incomplete_nodes.is_empty();
                session.output_file.filter(|_| done)
            });
            let file = Frames::read(Path::new(&file));
            assert_eq!(file.json["session_id"], **id);
            assert_eq!(file.json["gaps"], serde_json::json!([]));
            assert_eq!(file.frames().len(), 10);
        }
        // Also those whose confirmation was lost: each has one file, and nothing half lies about.
        self.site.until("the files of all sessions", || {
            let sessions = self.site.ask(async |host| host.sessions().await).unwrap().sessions;
            let mut ended = sessions.iter().filter(|session| session.name != "all");
            let is_done = ended.all(|session| {
                !session.active
                    && session.incomplete_nodes.is_empty()
                    && session.output_file.is_some()
            });
            is_done.then_some(())
        });
        let files = self.site.files();
        assert!(files.iter().all(|file| file.ends_with(".json")), "{files:?}");
    }

    fn round(&mut self, random: &mut StdRng) {
        self.promise();
        self.wait(random);
        match random.random_range(0..4) {
            0 => {
                self.kill_host();
                self.start_host();
            },
            // Down together, and a while without a host.
            1 => {
                self.kill_host();
                self.kill_agent(random.random_range(1..=NODES));
                self.wait(random);
                self.start_host();
            },
            _ => self.kill_agent(random.random_range(1..=NODES)),
        }
    }

    /// Stops everything in order and exports all records.
    fn finish(mut self) -> (Site, Ledger) {
        let mut host = self.host.take().unwrap();
        self.site.ready(&mut host, &self.site.data());
        self.site.until("empty spools", || {
            let nodes = self.site.connected(NODES);
            nodes.iter().all(|node| node.spool_records.is_some_and(|held| held < 50)).then_some(())
        });
        self.check_promised();
        for agent in std::mem::take(&mut self.agents) {
            agent.interrupt(&self.site.runtime);
        }
        for number in 1..=NODES {
            self.read_spool(number, Writer::Dead);
        }
        self.site.run("gswarm profiler stop --name all").worked();
        self.site.run("gswarm profiler export --name all --format jsonl -o all.jsonl").worked();
        host.interrupt(&self.site.runtime);
        (self.site, self.ledger)
    }
}

#[test]
fn nothing_is_lost_doubled_or_disordered() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut torture = Torture::start();
    for _ in 0..ROUNDS {
        torture.round(&mut random);
    }
    let (site, ledger) = torture.finish();
    let records = Records::read(&site.work().join("all.jsonl"));
    println!(
        "{} incarnations and {} records in the ledger, {} in the export",
        ledger.incarnations(),
        ledger.records(),
        records.rows().count()
    );
    ledger.check(&records);
    assert!(ledger.records() > 10 * ROUNDS, "too little load");
}
