//! Starting and stopping an agent: what it is made of and who waits for whom.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gswarm_device::Devices;
use gswarm_store::Disk;
use gswarm_store::log::ScanError;
use gswarm_types::{
    AllowSet, Body, Clock, Event, EventKind, Incarnation, NodeId, NodeName, Period, Severity,
    StorageId,
};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::connect::Connect;
use crate::link::{Introduction, Link, new_incarnation};
use crate::sampler::Sampler;
use crate::spool::{SharedSpool, Spool, SpoolLimits, SpoolParts, Times, damage_event};
use crate::state::{self, StateError};
use crate::status::{AgentStatus, LinkState};

/// How long a tick that has begun may hold up the stop.
const LAST_TICK_MAX: Duration = Duration::from_secs(2);
/// How long a clean stop tries to deliver what is held.
const DELIVER_MAX: Duration = Duration::from_secs(2);

/// What an agent is told.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    pub node_name: NodeName,
    pub hostname: String,
    pub state_dir: PathBuf,
    /// Empty when the machine does not tell.
    pub machine_id: String,
    pub boot_id: String,
    pub version: String,
    /// The rate when no session asks for more; the host's base rate when `None`.
    pub period: Option<Period>,
    pub allow: AllowSet,
    /// Comes back after a lost connection; otherwise the first loss ends the link.
    pub resilient: bool,
    /// The devices are simulated or replayed.
    pub simulated: bool,
    pub limits: SpoolLimits,
}

/// What an agent works with; production and tests pass different ones.
#[derive(Debug)]
pub struct AgentParts {
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    pub connect: Arc<dyn Connect>,
    pub devices: Box<dyn Devices>,
    /// Randomness for incarnations and waits, from the machine in production.
    pub seed: u64,
    /// Used when the state directory names none.
    pub new_node_id: NodeId,
}

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the identity of the node cannot be read or written")]
    State(#[from] StateError),
    #[error("the spool cannot be read")]
    Spool(#[from] ScanError),
    #[error("the runtime is stopping")]
    Runtime,
}

/// A running agent. Dropping it ends its tasks without the courtesy of `stop`.
#[derive(Debug)]
pub struct Agent {
    clock: Arc<dyn Clock>,
    spool: SharedSpool,
    status: Arc<watch::Sender<AgentStatus>>,
    finished: watch::Receiver<Option<String>>,
    sampling: TaskTracker,
    linking: TaskTracker,
    stop_sampling: DropGuard,
    stop_linking: DropGuard,
}

/// What was found in the state directory.
struct Opened {
    node_id: NodeId,
    spool: Spool,
    /// What was wrong with it.
    findings: Vec<Event>,
}

impl Agent {
    /// Recovers the state directory, records the start, and begins to sample and to deliver.
    pub async fn start(config: AgentConfig, parts: AgentParts) -> Result<Self, StartError> {
        let AgentParts { clock, disk, connect, devices, seed, new_node_id } = parts;
        let mut random = StdRng::seed_from_u64(seed);
        let incarnation = new_incarnation(&mut random);
        let at = Times { mono: clock.mono(), wall: clock.wall() };
        let (opened, config) = tokio::task::spawn_blocking(move || {
            let opened = open(&config, &disk, incarnation, new_node_id);
            opened.map(|opened| (start_record(opened, &config, at), config))
        })
        .await
        .map_err(|_| StartError::Runtime)??;
        let period = config.period.unwrap_or(Period::BASE);
        let status = Arc::new(watch::Sender::new(first_status(&config, &opened, incarnation)));
        let spool = SharedSpool::new(opened.spool, Arc::clone(&status));
        let (period_tx, period_rx) = watch::channel(period);
        let (finished_tx, finished) = watch::channel(None);
        let (ticking_tx, ticking) = watch::channel(None);
        let link = Link {
            introduction: introduction(&config, opened.node_id),
            resilient: config.resilient,
            clock: Arc::clone(&clock),
            connect,
            spool: spool.clone(),
            period: period_tx,
            status: Arc::clone(&status),
            ticking,
            finished: finished_tx,
            random,
        };
        let sampler = Sampler::new(
            Arc::clone(&clock),
            spool.clone(),
            period_rx,
            Arc::clone(&status),
            ticking_tx,
            (devices, config.simulated),
        );
        let (stop_sampling, stop_linking) = (CancellationToken::new(), CancellationToken::new());
        let (sampling, linking) = (TaskTracker::new(), TaskTracker::new());
        sampling.spawn(sampler.run(stop_sampling.clone()));
        linking.spawn(link.run(stop_linking.clone()));
        sampling.close();
        linking.close();
        Ok(Self {
            clock,
            spool,
            status,
            finished,
            sampling,
            linking,
            stop_sampling: stop_sampling.drop_guard(),
            stop_linking: stop_linking.drop_guard(),
        })
    }

    /// The agent as it is now and whenever it changes.
    pub fn status(&self) -> watch::Receiver<AgentStatus> {
        self.status.subscribe()
    }

    /// Resolves with the reason when the link is over: only without `resilient`.
    pub async fn finished(&self) -> String {
        let mut finished = self.finished.clone();
        // Bound to a name so that the borrow ends before `pending`.
        let reason = match finished.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone(),
            Err(_) => None,
        };
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Stops cleanly: the last tick, the end record, a short try to deliver, what the host has.
    pub async fn stop(self) {
        drop(self.stop_sampling);
        if tokio::time::timeout(LAST_TICK_MAX, self.sampling.wait()).await.is_err() {
            tracing::warn!("the devices did not answer before the stop");
        }
        let at = Times { mono: self.clock.mono(), wall: self.clock.wall() };
        let ended = self.spool.run(move |spool| {
            let stopped = event(EventKind::AgentStopped, "the agent stopped");
            if let Err(error) = spool.append(at, Body::Event(stopped)) {
                tracing::warn!(%error, "the stop could not be recorded");
            }
            spool.end(at);
        });
        if let Err(error) = ended.await {
            tracing::error!(%error, "the spool could not be ended");
        }
        if tokio::time::timeout(DELIVER_MAX, delivered(&self.spool, &self.status)).await.is_err() {
            tracing::info!("records remain in the spool for the next start");
        }
        drop(self.stop_linking);
        self.linking.wait().await;
        if let Err(error) = self.spool.run(|spool| spool.persist_acks()).await {
            tracing::error!(%error, "acknowledgements could not be written down");
        }
    }
}

/// Resolves when nothing is held, or when no host takes it.
async fn delivered(spool: &SharedSpool, status: &watch::Sender<AgentStatus>) {
    let mut view = spool.view();
    let mut status = status.subscribe();
    let empty = view.wait_for(|view| view.records == 0);
    let unreachable = status.wait_for(|status| {
        matches!(
            status.link,
            LinkState::Connecting { retry_in: Some(_), .. }
                | LinkState::Waiting { .. }
                | LinkState::Refused { .. }
        )
    });
    tokio::select! {
        _ = empty => {},
        _ = unreachable => {},
    }
}

/// Identity and spool; a spool that cannot be read is set aside.
fn open(
    config: &AgentConfig,
    disk: &Arc<dyn Disk>,
    incarnation: Incarnation,
    new_node_id: NodeId,
) -> Result<Opened, StartError> {
    let node = state::open(disk.as_ref(), &config.state_dir, &config.machine_id, new_node_id)?;
    let mut findings: Vec<Event> = node.notes.into_iter().map(state_event).collect();
    let parts = || SpoolParts {
        disk: Arc::clone(disk),
        dir: state::spool_dir(&config.state_dir),
        limits: config.limits,
        storage: StorageId::new(Uuid::from_bytes(*node.node_id.as_bytes())),
        incarnation,
        boot_id: config.boot_id.clone(),
    };
    let spool = match Spool::open(parts()) {
        Ok(spool) => spool,
        Err(error) => {
            let word = match &error {
                ScanError::Newer { .. } => "newer",
                ScanError::Read { .. } => "unreadable",
            };
            let Ok(note) = state::set_aside(disk.as_ref(), &config.state_dir, word) else {
                return Err(error.into());
            };
            let note = note.unwrap_or_default();
            findings.push(damage_event(format!("{error}; {note}")));
            Spool::open(parts())?
        },
    };
    findings.extend(spool.damage().map(damage_event));
    Ok(Opened { node_id: node.node_id, spool, findings })
}

/// The first records of the incarnation: the start, and what was wrong with what was found.
fn start_record(mut opened: Opened, config: &AgentConfig, at: Times) -> Opened {
    let message = format!("agent {} started on {}", config.version, config.hostname);
    let started = event(EventKind::AgentStarted, &message);
    let findings = std::mem::take(&mut opened.findings);
    for finding in &findings {
        tracing::warn!(state_dir = %config.state_dir.display(), finding.message, "state recovered");
    }
    for event in std::iter::once(started).chain(findings) {
        if let Err(error) = opened.spool.append(at, Body::Event(event)) {
            tracing::warn!(%error, "the start could not be recorded");
        }
    }
    opened
}

fn first_status(config: &AgentConfig, opened: &Opened, incarnation: Incarnation) -> AgentStatus {
    let view = opened.spool.view();
    AgentStatus {
        node_id: opened.node_id,
        incarnation,
        node_name: config.node_name.clone(),
        link: LinkState::Connecting { attempt: 1, retry_in: None },
        period: config.period.unwrap_or(Period::BASE),
        records_sampled: view.counters.minted,
        records_acked: 0,
        spool_records: view.records,
        spool_bytes: view.bytes,
        spool_dropped: view.counters.dropped,
        spool_errors: view.counters.errors,
        ticks_skipped: 0,
        commands_refused: 0,
        last_error: None,
    }
}

fn introduction(config: &AgentConfig, node_id: NodeId) -> Introduction {
    Introduction {
        node_id,
        node_name: config.node_name.clone(),
        hostname: config.hostname.clone(),
        version: config.version.clone(),
        boot_id: config.boot_id.clone(),
        allow: config.allow.clone(),
        simulated: config.simulated,
        base_period: config.period,
    }
}

fn event(kind: EventKind, message: &str) -> Event {
    Event { kind, severity: Severity::Info, device: None, code: None, message: message.to_owned() }
}

fn state_event(message: String) -> Event {
    let kind = EventKind::Other("state_recovered".to_owned());
    Event { kind, severity: Severity::Warning, device: None, code: None, message }
}
