//! A host with a few agents under load, and the ledger of what their spools took.

use std::path::PathBuf;

use gswarm_trial::Trial;

use crate::file::Records;
use crate::process::Process;
use crate::site::Site;
use crate::spool::{Ledger, Writer, records_in};

/// Everybody takes ten records a second.
pub(crate) const HOST: &str =
    "gswarm host start --port 8090 --single-port --freq 100 --base-freq 100";
pub(crate) const JOIN: &str = "gswarm join localhost:8090";

/// Fields end in this order: processes before the directory that they write to.
pub(crate) struct Fleet {
    /// `None` while there is no host.
    pub(crate) host: Option<Process>,
    /// The agent of node N is at N - 1.
    pub(crate) agents: Vec<Process>,
    pub(crate) ledger: Ledger,
    pub(crate) site: Site,
    /// How the host is started, and with what in its environment.
    line: String,
    environment: Vec<(&'static str, String)>,
    data: PathBuf,
}

impl Fleet {
    /// A host alone, with the session `all` in which every record of its agents will be.
    pub(crate) fn new(site: Site) -> Self {
        let data = site.data();
        Self::with_host(site, HOST.to_owned(), Vec::new(), data)
    }

    pub(crate) fn with_host(
        site: Site,
        line: String,
        environment: Vec<(&'static str, String)>,
        data: PathBuf,
    ) -> Self {
        let (agents, ledger) = Default::default();
        let mut fleet = Self { host: None, agents, ledger, site, line, environment, data };
        fleet.start_host();
        fleet.ready();
        // Before the first agent: no record is older than its window.
        fleet.site.run("gswarm profiler start --name all").worked();
        fleet
    }

    /// As many agents, straight to the host.
    pub(crate) fn join(&mut self, count: usize) {
        self.agents = (1..=count).map(|number| self.site.agent(JOIN, number)).collect();
        self.site.connected(count);
    }

    pub(crate) fn start_host(&mut self) {
        let environment: Vec<(&str, &str)> =
            self.environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.host = Some(self.site.start(&self.line, &environment));
    }

    /// Waits until the host answers.
    #[track_caller]
    pub(crate) fn ready(&mut self) {
        self.site.ready(self.host.as_mut().unwrap(), &self.data);
    }

    pub(crate) fn kill_host(&mut self) {
        self.host.take().unwrap().kill();
        self.read_spools();
    }

    fn spool(&self, number: usize) -> PathBuf {
        self.site.state(&format!("node{number}")).join("spool")
    }

    pub(crate) fn read_spool(&mut self, number: usize, writer: Writer) {
        self.ledger.enter(&self.spool(number), writer);
    }

    /// What living agents have taken so far.
    pub(crate) fn read_spools(&mut self) {
        for number in 1..=self.agents.len() {
            self.read_spool(number, Writer::Alive);
        }
    }

    /// Waits until every spool took some more records: the agents go on, whatever the host does.
    #[track_caller]
    pub(crate) fn agents_go_on(&self) {
        let spools: Vec<PathBuf> =
            (1..=self.agents.len()).map(|number| self.spool(number)).collect();
        let before: Vec<usize> = spools.iter().map(|spool| records_in(spool)).collect();
        let grown = |(spool, before): (&PathBuf, &usize)| records_in(spool) >= before + 4;
        self.site
            .until("records in the spools", || spools.iter().zip(&before).all(grown).then_some(()));
    }

    /// How many records the host has taken since it started.
    pub(crate) fn stored(&self) -> u64 {
        self.site.ask(async |host| host.status().await).unwrap().ingest.records_stored
    }

    /// Waits until the host has taken so many more records than now.
    #[track_caller]
    pub(crate) fn stores(&self, more: u64) {
        let before = self.stored();
        self.site.until("more records", || (self.stored() >= before + more).then_some(()));
    }

    /// Waits until everybody is connected and no node has much that the host has not.
    #[track_caller]
    pub(crate) fn settle(&self) {
        let count = self.agents.len();
        self.site.until("empty spools", || {
            let nodes = self.site.connected(count);
            nodes.iter().all(|node| node.spool_records.is_some_and(|held| held < 50)).then_some(())
        });
    }

    /// Stops everything in order, exports all records and compares them with the ledger.
    #[track_caller]
    pub(crate) fn finish(&mut self, trial: &mut Trial) -> Records {
        for agent in &mut self.agents {
            agent.check_running();
        }
        let agents = std::mem::take(&mut self.agents);
        let count = agents.len();
        for agent in agents {
            agent.interrupt(&self.site.runtime);
        }
        for number in 1..=count {
            self.read_spool(number, Writer::Dead);
        }
        self.site.run("gswarm profiler stop --name all").worked();
        self.site.run("gswarm profiler export --name all --format jsonl -o all.jsonl").worked();
        self.host.take().unwrap().interrupt(&self.site.runtime);
        let records = Records::read(&self.site.work().join("all.jsonl"));
        println!(
            "{} incarnations and {} records in the ledger, {} in the export",
            self.ledger.incarnations(),
            self.ledger.records(),
            records.rows().count()
        );
        self.ledger.check(&records, trial);
        records
    }
}
