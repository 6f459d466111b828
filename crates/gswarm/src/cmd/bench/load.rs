//! Many production agents in one process, each as on a machine of its own.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gswarm_api::Target;
use gswarm_device::sim::{COMMON_METRICS, SimDevices};
use gswarm_device::{Devices, Sample, SimSpec};
use gswarm_node::{
    Agent, AgentConfig, AgentParts, AgentStatus, Connect, Door, LinkState, SpoolLimits, TcpConnect,
    TlsConnect,
};
use gswarm_store::StdDisk;
use gswarm_tls::Token;
use gswarm_types::{AllowSet, Clock, Column, Micros, NodeId, NodeName, Period, Table};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::{host_port, micros};
use crate::args::bench::IngestArgs;
use crate::clock::SystemClock;

/// Agents that stop at a time: each delivers for two seconds at most.
const STOPS_MAX: usize = 100;
/// Agents whose acknowledgements are timed.
const TIMED_MAX: usize = 200;
/// Spreads the ticks evenly over the period, whatever the number of agents: the golden ratio.
const PHASE: f64 = 0.618_034;

/// How the agents are made.
pub(super) struct FleetPlan {
    nodes: u32,
    devices: String,
    all_metrics: bool,
    period: Period,
    host: String,
    port: u16,
    directory: PathBuf,
    /// With one every agent joins and speaks TLS.
    pub(super) token: Option<Token>,
}

impl FleetPlan {
    pub(super) fn new(args: &IngestArgs, target: &Target, directory: &Path) -> Self {
        let (host, port) = host_port(target);
        Self {
            nodes: args.nodes,
            devices: format!("{}xh100,seed={}", args.gpus, args.seed),
            all_metrics: args.all_metrics,
            period: args.freq,
            host,
            port,
            directory: directory.to_path_buf(),
            token: None,
        }
    }

    fn connect(&self, state_dir: &Path) -> Arc<dyn Connect> {
        let (host, port) = (self.host.clone(), self.port);
        match self.token.clone() {
            None => Arc::new(TcpConnect::new(host, port)),
            token => {
                let door = Door { host, port, state_dir: state_dir.to_path_buf(), token };
                Arc::new(TlsConnect::new(door, Arc::new(SystemClock)))
            },
        }
    }

    async fn start(&self, number: u32) -> anyhow::Result<Member> {
        let name = format!("bench{number:05}");
        let spec: SimSpec = self.devices.parse()?;
        let simulated = SimDevices::new(&spec, u64::from(number), &[]);
        let devices: Box<dyn Devices> =
            if self.all_metrics { Box::new(simulated) } else { Box::new(Narrow::new(simulated)) };
        let period = self.period.micros();
        let clock = Arc::new(MachineClock::new(phase(number, period)));
        let connect = self.connect(&self.directory.join(&name));
        let config = AgentConfig {
            node_name: NodeName::new(name.clone())?,
            hostname: name.clone(),
            state_dir: self.directory.join(&name),
            machine_id: format!("machine of {name}"),
            boot_id: format!("boot of {name}"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            period: None,
            allow: AllowSet::default(),
            resilient: true,
            simulated: true,
            limits: SpoolLimits::default(),
        };
        let parts = AgentParts {
            clock: clock.clone(),
            disk: Arc::new(StdDisk),
            connect,
            devices,
            seed: rand::random(),
            new_node_id: NodeId::new(Uuid::now_v7()),
        };
        let agent = Agent::start(config, parts).await?;
        let status = agent.status();
        Ok(Member { agent, status, clock })
    }
}

/// Where in the period the ticks of an agent fall.
fn phase(number: u32, period: Micros) -> Micros {
    let share = (f64::from(number) * PHASE).fract();
    #[expect(clippy::cast_possible_truncation, reason = "a part of a period")]
    #[expect(clippy::cast_precision_loss, reason = "a period is some seconds")]
    Micros((share * period.0 as f64) as i64)
}

/// The ten metrics of the simulated GPUs and nothing else.
#[derive(Debug)]
struct Narrow {
    inner: SimDevices,
    /// The full table that the narrow one was made from.
    full: Option<Arc<Table>>,
    table: Arc<Table>,
    chosen: Vec<usize>,
}

impl Narrow {
    fn new(inner: SimDevices) -> Self {
        Self { inner, full: None, table: Arc::default(), chosen: Vec::new() }
    }

    fn choose(&mut self, full: &Arc<Table>) {
        if self.full.as_ref().is_some_and(|known| Arc::ptr_eq(known, full)) {
            return;
        }
        let wanted = |column: &Column| COMMON_METRICS.contains(&column.metric.as_str());
        let columns = full.columns.iter().enumerate().filter(|(_, column)| wanted(column));
        let (chosen, columns): (Vec<usize>, Vec<Column>) =
            columns.map(|(at, column)| (at, column.clone())).unzip();
        self.table = Arc::new(Table { devices: full.devices.clone(), columns });
        self.chosen = chosen;
        self.full = Some(full.clone());
    }
}

impl Devices for Narrow {
    fn sample(&mut self, now: Micros) -> Sample {
        let sample = self.inner.sample(now);
        self.choose(&sample.table);
        let cell = |at: &usize| sample.cells.get(*at).copied().flatten();
        let cells = self.chosen.iter().map(cell).collect();
        Sample { table: self.table.clone(), cells, processes: None, ..sample }
    }
}

/// The clocks of one machine: it booted at a moment of its own.
#[derive(Debug)]
struct MachineClock {
    start: Instant,
    booted_before: Micros,
}

impl MachineClock {
    fn new(phase: Micros) -> Self {
        Self { start: Instant::now(), booted_before: Micros::from_secs(1_000) + phase }
    }
}

impl Clock for MachineClock {
    fn mono(&self) -> Micros {
        self.booted_before + micros(self.start.elapsed())
    }

    fn wall(&self) -> Micros {
        SystemClock.wall()
    }
}

/// An agent with what it says of itself, which outlives it.
struct Member {
    agent: Agent,
    status: watch::Receiver<AgentStatus>,
    clock: Arc<MachineClock>,
}

/// What one agent made and what became of it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) incarnation: String,
    pub(super) sampled: u64,
    pub(super) left_in_spool: u64,
    pub(super) dropped: u64,
    pub(super) ticks_skipped: u64,
}

/// Sums over all agents.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sampled: u64,
    pub(super) acked: u64,
}

/// All agents.
pub(super) struct Fleet {
    members: Vec<Member>,
    timings: JoinSet<Vec<u64>>,
    /// True while what is sampled is timed: the first and last records of an agent are due at no
    /// moment of their own.
    timing: Arc<AtomicBool>,
    metrics: usize,
}

impl Fleet {
    pub(super) async fn start(plan: &FleetPlan) -> anyhow::Result<Self> {
        let mut members = Vec::new();
        let mut timings = JoinSet::new();
        let timing = Arc::new(AtomicBool::new(false));
        let every = (plan.nodes as usize).div_ceil(TIMED_MAX);
        for number in 0..plan.nodes {
            let member = plan.start(number).await?;
            if (number as usize).is_multiple_of(every) {
                let (status, clock) = (member.status.clone(), member.clock.clone());
                timings.spawn(acknowledgements_us(status, clock, timing.clone()));
            }
            members.push(member);
        }
        let metrics = if plan.all_metrics { 0 } else { COMMON_METRICS.len() };
        Ok(Self { members, timings, timing, metrics })
    }

    /// Metrics of each GPU; 0 for all.
    pub(super) fn metrics(&self) -> usize {
        self.metrics
    }

    pub(super) async fn connected(&mut self) {
        let is_there = |status: &AgentStatus| matches!(status.link, LinkState::Connected { .. });
        for member in &mut self.members {
            // An agent that is over says so in its ledger.
            let _over = member.status.wait_for(is_there).await;
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for member in &self.members {
            let status = member.status.borrow();
            counts.sampled += status.records_sampled;
            counts.acked += status.records_acked;
        }
        counts
    }

    /// Latencies count for what is sampled between this and the next call.
    pub(super) fn time(&self, timing: bool) {
        self.timing.store(timing, Ordering::Relaxed);
    }

    /// Until the host has everything that was made up to now.
    pub(super) async fn delivered(&mut self) {
        for member in &mut self.members {
            let sampled = member.status.borrow().records_sampled;
            let has_all = |status: &AgentStatus| status.records_acked >= sampled;
            // An agent that is over says so in its ledger.
            let _over = member.status.wait_for(has_all).await;
        }
    }

    /// Stops everybody, a few at a time.
    pub(super) async fn stop(&mut self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.members.len());
        let mut members = std::mem::take(&mut self.members).into_iter();
        loop {
            let mut stopping = JoinSet::new();
            for Member { agent, status, .. } in members.by_ref().take(STOPS_MAX) {
                stopping.spawn(async move {
                    agent.stop().await;
                    status
                });
            }
            if stopping.is_empty() {
                return entries;
            }
            for status in stopping.join_all().await {
                entries.push(entry(&status.borrow()));
            }
        }
    }

    /// What was timed; after `stop`.
    pub(super) async fn latencies(&mut self) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(Ok(timed)) = self.timings.join_next().await {
            all.extend(timed);
        }
        all
    }
}

fn entry(status: &AgentStatus) -> Entry {
    Entry {
        incarnation: status.incarnation.to_string(),
        sampled: status.records_sampled,
        left_in_spool: status.spool_records as u64,
        dropped: status.spool_dropped + status.spool_errors,
        ticks_skipped: status.ticks_skipped,
    }
}

/// Microseconds from the moment for which each record was due to the agent's knowledge that the host
/// has it on disk.
async fn acknowledgements_us(
    mut status: watch::Receiver<AgentStatus>,
    clock: Arc<MachineClock>,
    timing: Arc<AtomicBool>,
) -> Vec<u64> {
    let mut waiting: VecDeque<(u64, Micros)> = VecDeque::new();
    let mut latencies = Vec::new();
    let mut sampled_before = 0;
    while status.changed().await.is_ok() {
        let now = clock.mono();
        let (sampled, acked, period) = {
            let status = status.borrow_and_update();
            (status.records_sampled, status.records_acked, status.period.micros())
        };
        // Ticks fall on multiples of the period.
        let due = Micros(now.0 - now.0.rem_euclid(period.0.max(1)));
        if timing.load(Ordering::Relaxed) {
            waiting.extend((sampled_before + 1..=sampled).map(|number| (number, due)));
        }
        sampled_before = sampled;
        while let Some((_, due)) = waiting.pop_front_if(|(number, _)| *number <= acked) {
            latencies.push(u64::try_from((now - due).0).unwrap_or(0));
        }
    }
    latencies
}
