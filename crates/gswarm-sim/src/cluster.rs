//! A host and its agents that can be started, killed and asked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gswarm_device::sim::SimDevices;
use gswarm_device::{Devices, SimSpec};
use gswarm_host::{
    AccessConfig, Caller, Handle, Host, HostConfig, HostParts, RetentionConfig, Settings,
};
use gswarm_node::{Agent, AgentConfig, AgentParts, AgentStatus, SpoolLimits};
use gswarm_store::journal::SegmentLimits;
use gswarm_store::{Disk, SimDisk};
use gswarm_types::{AllowSet, Micros, NodeId, NodeName, Period};
use serde_json::Value;
use uuid::Uuid;

use crate::clock::SimClock;
use crate::ledger::{Account, Ledger, LedgerDisk};
use crate::network::SimNetwork;

/// Why a simulated cluster cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("the host does not start")]
    Host(#[from] gswarm_host::StartError),
    #[error("an agent does not start")]
    Agent(#[from] gswarm_node::StartError),
    #[error("the host refuses")]
    Refused(#[from] gswarm_api::Failure),
    #[error("the devices cannot be made")]
    Devices(#[from] gswarm_device::SimSpecError),
    #[error("the name is no name")]
    Name(#[from] gswarm_types::NameError),
    #[error("the export broke off")]
    Export(#[from] std::io::Error),
    #[error("the export is not JSON")]
    Json(#[from] serde_json::Error),
    #[error("the cluster has no such agent or no host")]
    Missing,
}

/// One machine with an agent.
#[derive(Debug)]
struct Machine {
    name: NodeName,
    machine_id: String,
    clock: Arc<SimClock>,
    disk: SimDisk,
    network: SimNetwork,
    boot: u32,
    starts: u64,
    agent: Option<Agent>,
    /// The disk as the running agent sees it.
    agent_disk: Option<LedgerDisk>,
    limits: SpoolLimits,
    /// `--freq` of the agent.
    period: Option<Period>,
}

impl Machine {
    /// Without warning; the connections break, and nothing more reaches the disk.
    fn end_process(&mut self) {
        if let Some(disk) = self.agent_disk.take() {
            disk.kill();
        }
        self.network.cut();
        self.agent = None;
    }
}

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    seed: u64,
    host_clock: Arc<SimClock>,
    host_disk: SimDisk,
    host_starts: u64,
    host: Option<Host>,
    host_config: HostConfig,
    machines: Vec<Machine>,
    ledger: Ledger,
}

/// One record of an export.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordLine {
    pub node: String,
    pub incarnation: String,
    pub seq: u64,
    pub time: Micros,
    pub is_values: bool,
    /// The agent's checksum of the record in its spool.
    pub crc: u32,
}

/// A record export, taken apart.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// In the order of the export.
    pub records: Vec<RecordLine>,
    pub gaps: Vec<Value>,
}

impl Records {
    /// Seqs of each incarnation, in order.
    pub fn by_incarnation(&self) -> BTreeMap<String, Vec<u64>> {
        let mut out: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for record in &self.records {
            out.entry(record.incarnation.clone()).or_default().push(record.seq);
        }
        out
    }

    /// How many records hold values.
    pub fn values(&self) -> usize {
        self.records.iter().filter(|record| record.is_values).count()
    }
}

impl Cluster {
    /// Nothing runs yet.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            host_clock: Arc::new(SimClock::new(Micros::from_secs(1_000), Micros::ZERO)),
            host_disk: SimDisk::new(),
            host_starts: 0,
            host: None,
            host_config: HostConfig {
                version: "sim".to_owned(),
                data_dir: PathBuf::from("/host"),
                output_dir: PathBuf::from("/out"),
                simulated: true,
                settings: Settings::default(),
                retention: RetentionConfig::default(),
                segments: SegmentLimits::default(),
                access: AccessConfig::default(),
                disk_reserve_bytes: 0,
                addresses: Vec::new(),
            },
            machines: Vec::new(),
            ledger: Ledger::default(),
        }
    }

    /// What every spool of the cluster accepted.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ledger against the record export of a session.
    pub async fn account(&self, key: &str) -> Result<Account, ClusterError> {
        Ok(self.ledger.account(&self.records(key).await?))
    }

    pub fn config_mut(&mut self) -> &mut HostConfig {
        &mut self.host_config
    }

    pub fn host_disk(&self) -> &SimDisk {
        &self.host_disk
    }

    /// The host goes on with another disk, an empty one or an older copy. It must be down.
    pub fn replace_host_disk(&mut self, disk: SimDisk) {
        self.host_disk = disk;
    }

    pub fn host_clock(&self) -> &SimClock {
        &self.host_clock
    }

    pub async fn start_host(&mut self) -> Result<Handle, ClusterError> {
        self.host_starts += 1;
        let disk: Arc<dyn Disk> = Arc::new(self.host_disk.clone());
        let parts = HostParts {
            authority: None,
            clock: self.host_clock.clone(),
            disk,
            seed: self.seed ^ self.host_starts.rotate_left(32),
            give_back: || {},
        };
        let host = Host::start(self.host_config.clone(), parts).await?;
        for machine in &self.machines {
            host.serve(machine.network.listen());
        }
        let handle = host.handle();
        self.host = Some(host);
        Ok(handle)
    }

    pub fn handle(&self) -> Result<Handle, ClusterError> {
        self.host.as_ref().map(Host::handle).ok_or(ClusterError::Missing)
    }

    /// A clean stop.
    pub async fn stop_host(&mut self) {
        for machine in &self.machines {
            machine.network.host_down();
        }
        if let Some(host) = self.host.take() {
            host.stop().await;
        }
    }

    /// The host's machine loses power now: what was not synced is gone.
    pub async fn host_power_loss(&mut self, seed: u64) {
        // No change reaches the disk from here on; the dead host's tasks may still run down.
        self.host_disk.cut_power_at(self.host_disk.changes());
        self.stop_host().await;
        self.host_disk.power_loss(seed);
    }

    /// The host's process dies now: its files stay as the kernel has them.
    pub async fn kill_host(&mut self) {
        self.host_disk.cut_power_at(self.host_disk.changes());
        self.stop_host().await;
        self.host_disk.revive();
    }

    /// Adds a machine and starts its agent.
    pub async fn add_agent(
        &mut self,
        name: &str,
        limits: SpoolLimits,
    ) -> Result<usize, ClusterError> {
        self.add_agent_every(name, limits, None).await
    }

    /// Adds a machine and starts its agent with a base rate of its own.
    pub async fn add_agent_every(
        &mut self,
        name: &str,
        limits: SpoolLimits,
        period: Option<Period>,
    ) -> Result<usize, ClusterError> {
        let number = self.add_machine(name, limits, period)?;
        self.start_agent(number).await?;
        Ok(number)
    }

    /// Adds a machine whose agent does not run yet.
    pub fn add_machine(
        &mut self,
        name: &str,
        limits: SpoolLimits,
        period: Option<Period>,
    ) -> Result<usize, ClusterError> {
        let number = self.machines.len();
        let ahead = i64::try_from(number).unwrap_or(0) + 1;
        let network = SimNetwork::new();
        if let Some(host) = &self.host {
            host.serve(network.listen());
        }
        self.machines.push(Machine {
            name: NodeName::new(name)?,
            machine_id: format!("machine-{number}"),
            // Machines booted at different times, with clocks that are off.
            clock: Arc::new(SimClock::new(
                Micros::from_secs(100 * ahead),
                Micros::from_millis(250 * ahead),
            )),
            disk: SimDisk::new(),
            network,
            boot: 0,
            starts: 0,
            agent: None,
            agent_disk: None,
            limits,
            period,
        });
        Ok(number)
    }

    /// Adds a machine with a copy of another one's disk, whose agent does not run yet. An image that
    /// was made before the first boot has an id of its own, a copy of a running machine has not.
    pub fn clone_machine(
        &mut self,
        number: usize,
        own_machine_id: bool,
    ) -> Result<usize, ClusterError> {
        let original = self.machines.get(number).ok_or(ClusterError::Missing)?;
        let (name, limits, period) = (original.name.to_string(), original.limits, original.period);
        let (disk, id) = (original.disk.fork(), original.machine_id.clone());
        let copy = self.add_machine(&name, limits, period)?;
        let machine = self.machines.get_mut(copy).ok_or(ClusterError::Missing)?;
        machine.disk = disk;
        if !own_machine_id {
            machine.machine_id = id;
        }
        Ok(copy)
    }

    pub async fn start_agent(&mut self, number: usize) -> Result<(), ClusterError> {
        let seed = self.seed;
        let machine = self.machines.get_mut(number).ok_or(ClusterError::Missing)?;
        machine.starts += 1;
        let spec: SimSpec = format!("2xh100,seed={seed}").parse()?;
        let node_seed = seed ^ (number as u64).rotate_left(20);
        let devices: Box<dyn Devices> = Box::new(SimDevices::new(&spec, node_seed, &[]));
        let agent_disk = LedgerDisk::new(machine.disk.clone(), self.ledger.clone());
        machine.agent_disk = Some(agent_disk.clone());
        let disk: Arc<dyn Disk> = Arc::new(agent_disk);
        let config = AgentConfig {
            node_name: machine.name.clone(),
            hostname: machine.name.to_string(),
            state_dir: PathBuf::from("/agent"),
            machine_id: machine.machine_id.clone(),
            boot_id: format!("boot-{number}-{}", machine.boot),
            version: "sim".to_owned(),
            period: machine.period,
            allow: AllowSet::default(),
            resilient: true,
            simulated: true,
            limits: machine.limits,
        };
        let parts = AgentParts {
            clock: machine.clock.clone(),
            disk,
            connect: Arc::new(machine.network.clone()),
            devices,
            seed: node_seed ^ machine.starts.rotate_left(40),
            new_node_id: NodeId::new(Uuid::from_u64_pair(seed | 1 << 60, number as u64 + 1)),
        };
        machine.agent = Some(Agent::start(config, parts).await?);
        Ok(())
    }

    /// The agent's process dies now; its files stay as the kernel has them.
    pub fn kill_agent(&mut self, number: usize) {
        if let Some(machine) = self.machines.get_mut(number) {
            machine.end_process();
        }
    }

    /// The agent's machine loses power now and boots again: what was not synced is gone.
    pub fn agent_power_loss(&mut self, number: usize, seed: u64) {
        if let Some(machine) = self.machines.get_mut(number) {
            machine.end_process();
            machine.disk.power_loss(seed);
            machine.clock.reboot();
            machine.boot += 1;
        }
    }

    pub async fn stop_agent(&mut self, number: usize) {
        if let Some(agent) = self.machines.get_mut(number).and_then(|m| m.agent.take()) {
            agent.stop().await;
        }
    }

    pub fn network(&self, number: usize) -> Result<&SimNetwork, ClusterError> {
        self.machines.get(number).map(|machine| &machine.network).ok_or(ClusterError::Missing)
    }

    pub fn agent_disk(&self, number: usize) -> Result<&SimDisk, ClusterError> {
        self.machines.get(number).map(|machine| &machine.disk).ok_or(ClusterError::Missing)
    }

    pub fn agent_clock(&self, number: usize) -> Result<&SimClock, ClusterError> {
        self.machines.get(number).map(|machine| &*machine.clock).ok_or(ClusterError::Missing)
    }

    pub fn agent_status(&self, number: usize) -> Result<AgentStatus, ClusterError> {
        let agent = self.machines.get(number).and_then(|machine| machine.agent.as_ref());
        Ok(agent.ok_or(ClusterError::Missing)?.status().borrow().clone())
    }

    /// The record export of a session.
    pub async fn records(&self, key: &str) -> Result<Records, ClusterError> {
        let format = gswarm_store::export::ExportFormat::Jsonl;
        let bytes = self.export(key, format).await?;
        let mut out = Records::default();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut value: Value = serde_json::from_slice(line)?;
            if let Some(record) = value.get("record") {
                out.records.push(RecordLine {
                    node: text(record, "node"),
                    incarnation: text(record, "i"),
                    seq: record.get("s").and_then(Value::as_u64).unwrap_or(0),
                    time: Micros(record.get("t").and_then(Value::as_i64).unwrap_or(0)),
                    is_values: record.get("b").is_some_and(|body| body.get("values").is_some()),
                    crc: record
                        .get("c")
                        .and_then(Value::as_u64)
                        .and_then(|crc| crc.try_into().ok())
                        .unwrap_or(0),
                });
            } else if let Some(gap) = value.get_mut("gap") {
                out.gaps.push(gap.take());
            }
        }
        Ok(out)
    }

    /// An export as bytes.
    pub async fn export(
        &self,
        key: &str,
        format: gswarm_store::export::ExportFormat,
    ) -> Result<Vec<u8>, ClusterError> {
        let handle = self.handle()?;
        let mut export = handle.export(&Caller::local(), key.to_owned(), format).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = export.pieces.recv().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
