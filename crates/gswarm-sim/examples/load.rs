//! Many production agents in one process, each as on a machine of its own: the load of a benchmark.
//!
//! `load HOST PORT AGENTS DIRECTORY` prints one line of JSON when every agent is connected, and the
//! ledger of what each made as another one after a clean stop (SIGTERM or Ctrl-C).

use std::collections::VecDeque;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gswarm_device::SimSpec;
use gswarm_device::sim::SimDevices;
use gswarm_node::{
    Agent, AgentConfig, AgentParts, AgentStatus, LinkState, SpoolLimits, TcpConnect,
};
use gswarm_store::StdDisk;
use gswarm_types::{AllowSet, Clock, Micros, NodeId, NodeName};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

const DEVICES: &str = "8xh100,seed=7";
/// Threads that may wait for the disk; few, because all agents share two cores with the host.
const BLOCKING_THREADS_MAX: usize = 4;
/// Agents that stop at a time: each delivers for two seconds at most.
const STOPS_MAX: usize = 50;
/// One agent in so many has its acknowledgements timed.
const TIMED_EVERY: usize = 10;
/// Spreads the ticks evenly over the second, whatever the number of agents: the golden ratio.
const PHASE_STEP_US: i64 = 618_034;

/// What the command line says.
struct Load {
    host: String,
    port: u16,
    agents: usize,
    directory: PathBuf,
}

/// The clocks of one machine: it booted at a moment of its own.
#[derive(Debug)]
struct MachineClock {
    start: Instant,
    booted_before: Micros,
}

/// An agent with what it says of itself, which outlives it.
struct Member {
    agent: Agent,
    status: watch::Receiver<AgentStatus>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let load = Load::parse(std::env::args().skip(1).collect())?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?
        .block_on(load.run())
}

impl Load {
    fn parse(words: Vec<String>) -> Result<Self, Box<dyn Error>> {
        let [host, port, agents, directory] =
            <[String; 4]>::try_from(words).map_err(|_| "usage: load HOST PORT AGENTS DIRECTORY")?;
        let directory = PathBuf::from(directory);
        Ok(Self { host, port: port.parse()?, agents: agents.parse()?, directory })
    }

    async fn run(self) -> Result<(), Box<dyn Error>> {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut members = Vec::with_capacity(self.agents);
        let mut timings = JoinSet::new();
        for number in 0..self.agents {
            let agent = self.start(number).await?;
            let status = agent.status();
            if number % TIMED_EVERY == 0 {
                timings.spawn(acknowledgements_us(status.clone()));
            }
            members.push(Member { agent, status });
        }
        let everybody = tokio::select! {
            connected = connected(&mut members) => connected,
            _ = terminated.recv() => false,
        };
        say(&json!({ "connected": everybody, "agents": members.len() }))?;
        if everybody {
            tokio::select! {
                _ = terminated.recv() => {},
                _ = tokio::signal::ctrl_c() => {},
            }
        }
        let ledger = stop(members).await;
        let mut latencies_us = Vec::new();
        while let Some(timed) = timings.join_next().await {
            latencies_us.extend(timed?);
        }
        latencies_us.sort_unstable();
        say(&json!({ "ledger": ledger, "latency_us": percentiles(&latencies_us) }))
    }

    async fn start(&self, number: usize) -> Result<Agent, Box<dyn Error>> {
        let name = format!("node{number:04}");
        let phase = i64::try_from(number)?.wrapping_mul(PHASE_STEP_US).rem_euclid(1_000_000);
        let spec: SimSpec = DEVICES.parse()?;
        let node_seed = u64::try_from(number)?;
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
            clock: Arc::new(MachineClock {
                start: Instant::now(),
                booted_before: Micros::from_secs(1_000) + Micros(phase),
            }),
            disk: Arc::new(StdDisk),
            connect: Arc::new(TcpConnect::new(self.host.clone(), self.port)),
            devices: Box::new(SimDevices::new(&spec, node_seed, &[])),
            seed: rand::random(),
            new_node_id: NodeId::new(Uuid::now_v7()),
        };
        Ok(Agent::start(config, parts).await?)
    }
}

impl Clock for MachineClock {
    fn mono(&self) -> Micros {
        self.booted_before + micros(self.start.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the injected clock of the load")]
    fn wall(&self) -> Micros {
        micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

fn micros(duration: Duration) -> Micros {
    Micros(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

/// False when an agent is over before it was connected.
async fn connected(members: &mut [Member]) -> bool {
    for member in members {
        let is_there = |status: &AgentStatus| matches!(status.link, LinkState::Connected { .. });
        if member.status.wait_for(is_there).await.is_err() {
            return false;
        }
    }
    true
}

/// Microseconds from each record on this disk to the host's word that it is on that one.
async fn acknowledgements_us(mut status: watch::Receiver<AgentStatus>) -> Vec<u64> {
    let mut waiting: VecDeque<(u64, Instant)> = VecDeque::new();
    let mut latencies = Vec::new();
    let mut sampled_before = 0;
    while status.changed().await.is_ok() {
        let now = Instant::now();
        let (sampled, acked) = {
            let status = status.borrow_and_update();
            (status.records_sampled, status.records_acked)
        };
        waiting.extend((sampled_before + 1..=sampled).map(|number| (number, now)));
        sampled_before = sampled;
        while let Some((_, made)) = waiting.pop_front_if(|(number, _)| *number <= acked) {
            latencies.push(u64::try_from((now - made).as_micros()).unwrap_or(u64::MAX));
        }
    }
    latencies
}

/// Stops everybody, a few at a time; what each made and what became of it.
async fn stop(members: Vec<Member>) -> Vec<Value> {
    let mut ledger = Vec::with_capacity(members.len());
    let mut members = members.into_iter();
    loop {
        let mut stopping = JoinSet::new();
        for Member { agent, status } in members.by_ref().take(STOPS_MAX) {
            stopping.spawn(async move {
                agent.stop().await;
                status
            });
        }
        if stopping.is_empty() {
            return ledger;
        }
        for status in stopping.join_all().await {
            ledger.push(entry(&status.borrow()));
        }
    }
}

fn entry(status: &AgentStatus) -> Value {
    json!({
        "node": status.node_name.as_str(),
        "node_id": status.node_id.to_string(),
        "incarnation": status.incarnation.to_string(),
        "sampled": status.records_sampled,
        "acked": status.records_acked,
        "left_in_spool": status.spool_records,
        "dropped": status.spool_dropped,
        "errors": status.spool_errors,
        "ticks_skipped": status.ticks_skipped,
        "last_error": status.last_error,
    })
}

/// `null` where nothing was timed.
fn percentiles(sorted: &[u64]) -> Value {
    let at = |share: usize| sorted.get((sorted.len() * share / 1_000).min(sorted.len() - 1));
    match sorted.last() {
        None => Value::Null,
        Some(max) => json!({
            "count": sorted.len(),
            "p50": at(500),
            "p99": at(990),
            "p999": at(999),
            "max": max,
        }),
    }
}

fn say(value: &Value) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()?;
    Ok(())
}
