//! Runs what a plan describes: a host, an agent, or both in one process.

mod listen;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use gswarm_api::body::{SessionsBody, StoreBody, TokenRequest};
use gswarm_api::{ErrorCode, Target};
use gswarm_device::OpenOptions;
use gswarm_host::{
    AccessConfig, Caller, Host, HostConfig, HostParts, RetentionConfig, Settings, StartError,
};
use gswarm_node::{
    Agent, AgentConfig, AgentParts, AgentStatus, Connect, Door, LinkState, SpoolLimits, TcpConnect,
    TlsConnect,
};
use gswarm_store::journal::SegmentLimits;
use gswarm_store::{DirLock, LockError, StdDisk};
use gswarm_tls::Secret;
use gswarm_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::banner;
use crate::clock::SystemClock;
use crate::fault::Fault;
use crate::output::remark;
use crate::paths;
use crate::plan::{AgentPlan, ExportFormat, HostPlan, UpPlan, Way};
use crate::process::{self, RunFile, RunGuard};
use crate::secure::{self, LocalToken};

/// Free bytes that ingest leaves on a large disk.
const DISK_RESERVE_BYTES: u64 = 1024 * 1024 * 1024;
/// The share of a small disk that ingest leaves, as a divisor.
const DISK_RESERVE_SHARE: u64 = 20;

/// Runs a host until it is told to stop.
pub(crate) async fn run_host(plan: HostPlan) -> anyhow::Result<()> {
    let running = RunningHost::start(&plan).await?;
    let token = running.first_token(&plan).await;
    remark(&banner::host(&plan, &running.addresses, &running.store().await?, token.as_ref()));
    tokio::select! {
        () = told_to_stop() => {},
        () = running.host.stop_requested() => {},
    }
    running.stop().await;
    Ok(())
}

/// Runs an agent until it is told to stop.
pub(crate) async fn run_agent(plan: AgentPlan) -> anyhow::Result<()> {
    let running = RunningAgent::start(&plan).await?;
    remark(&banner::agent(&plan));
    let mut status = running.agent.status();
    let ended = tokio::select! {
        () = told_to_stop() => None,
        reason = running.agent.finished() => Some(reason),
        () = narrate(&mut status, &plan) => None,
        reason = refused_token(running.agent.status(), &plan) => {
            running.agent.stop().await;
            return Err(Fault::new(ErrorCode::Unauthenticated, reason).into());
        },
    };
    running.agent.stop().await;
    match ended {
        None => Ok(()),
        Some(reason) => Err(Fault::new(ErrorCode::Unavailable, reason)
            .hint("without --no-resilient the agent keeps recording and comes back by itself")
            .into()),
    }
}

/// A token that the host does not want helps nobody: the user is still there and can be told. Once
/// a connection stood, the agent stays whatever happens; then this never returns.
async fn refused_token(mut status: watch::Receiver<AgentStatus>, plan: &AgentPlan) -> String {
    let has_token = matches!(plan.way, Way::Tls { token: Some(_) });
    let joined_before = gswarm_node::has_joined(&plan.state_dir);
    if has_token && !joined_before {
        // No guard of the status outlives a turn: its sender would wait for it.
        loop {
            let link = status.borrow_and_update().link.clone();
            match link {
                LinkState::Refused { reason } => return reason,
                LinkState::Connected { .. } => break,
                LinkState::Connecting { .. } | LinkState::Waiting { .. } => {},
            }
            if status.changed().await.is_err() {
                break;
            }
        }
    }
    std::future::pending().await
}

/// Runs a host and its agents in this process until told to stop.
pub(crate) async fn run_up(plan: UpPlan) -> anyhow::Result<()> {
    let host = RunningHost::start(&plan.host).await?;
    let mut agents = Vec::with_capacity(plan.agents.len());
    for agent in &plan.agents {
        let mut agent = agent.clone();
        if agent.target.port() == 0
            && let Some(address) = host.addresses.first()
        {
            agent.target = Target::new(agent.target.host(), address.port());
        }
        agents.push(RunningAgent::start(&agent).await?);
    }
    let token = host.first_token(&plan.host).await;
    remark(&banner::host(&plan.host, &host.addresses, &host.store().await?, token.as_ref()));
    remark(&banner::up(&plan));
    tokio::select! {
        () = told_to_stop() => {},
        () = host.host.stop_requested() => {},
    }
    for agent in agents {
        agent.agent.stop().await;
    }
    host.stop().await;
    Ok(())
}

/// A host with its lock, its listeners and its run file.
struct RunningHost {
    host: Host,
    addresses: Vec<SocketAddr>,
    _token: Option<LocalToken>,
    _run: RunGuard,
    _lock: DirLock,
}

impl RunningHost {
    async fn start(plan: &HostPlan) -> anyhow::Result<Self> {
        process::raise_file_limit();
        // Before the lock, which makes the data directory: a port that was taken meanwhile leaves
        // nothing behind. Who connects already waits for `serve`.
        let listeners = listen::bind(plan).await?;
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let lock = DirLock::acquire(&plan.data_dir).map_err(locked)?;
        let authority = secure::open_authority(&plan.data_dir)?;
        let mut config = host_config(plan, addresses.iter().map(ToString::to_string).collect())?;
        let token = LocalToken::generate();
        config.access.local_token = Some(token.clone());
        let parts = HostParts { authority: Some(Arc::clone(&authority)), ..parts() };
        let host = Host::start(config, parts).await.map_err(unstartable)?;
        if plan.access.insecure {
            let places: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            tracing::warn!(
                target: "access",
                addresses = places.join(", "),
                "INSECURE: everybody who reaches this host may read and operate it"
            );
        }
        let fingerprint = authority.fingerprint();
        listen::serve(&host, plan, listeners, authority)?;
        let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
        let shown = (!plan.access.insecure).then_some(fingerprint);
        let token = LocalToken::announce(&plan.home, &ports, &token, shown).inspect_err(|error| {
            tracing::warn!(%error, "the token of this machine cannot be written");
        });
        let run = RunFile::of_host(addresses.iter().map(ToString::to_string).collect())?;
        let run = run.announce(&plan.data_dir)?;
        Ok(Self { host, addresses, _token: token.ok(), _run: run, _lock: lock })
    }

    /// A token for the first nodes, made where somebody sees it: it must not stand in a log.
    async fn first_token(&self, plan: &HostPlan) -> Option<Secret> {
        if !plan.is_encrypted() || !std::io::stderr().is_terminal() {
            return None;
        }
        let request =
            TokenRequest { note: Some("host start".to_owned()), ..TokenRequest::default() };
        match self.host.handle().create_token(&Caller::local(), request).await {
            Ok(token) => Some(Secret::new(token.secret)),
            Err(failure) => {
                remark(&format!("no token yet: {failure}"));
                None
            },
        }
    }

    async fn store(&self) -> anyhow::Result<StoreBody> {
        Ok(self.host.handle().status(&Caller::local()).await?.store)
    }

    async fn stop(self) {
        remark("stopping: what is held is being made durable");
        self.host.stop().await;
    }
}

fn parts() -> HostParts {
    HostParts {
        clock: Arc::new(SystemClock),
        disk: Arc::new(StdDisk),
        seed: rand::random(),
        give_back: gswarm_driver::memory::give_back,
        authority: None,
    }
}

fn host_config(plan: &HostPlan, addresses: Vec<String>) -> anyhow::Result<HostConfig> {
    paths::make_private(&plan.data_dir)?;
    let disk = rustix::fs::statvfs(&plan.data_dir)?;
    let disk_bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
    let budget = plan
        .retention
        .budget_bytes
        .unwrap_or_else(|| RetentionConfig::BUDGET_BYTES_MAX.min(disk_bytes / 20));
    Ok(HostConfig {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_dir: plan.data_dir.clone(),
        output_dir: plan.output_dir.clone(),
        simulated: plan.simulated,
        settings: Settings {
            base_period: plan.settings.base_period,
            session_period: plan.settings.session_period,
            bandwidth: plan.settings.bandwidth,
            nvlink: plan.settings.nvlink,
        },
        retention: RetentionConfig { keep: plan.retention.keep, budget_bytes: budget },
        segments: plan.segments,
        access: plan.access.clone(),
        disk_reserve_bytes: DISK_RESERVE_BYTES.min(disk_bytes / DISK_RESERVE_SHARE),
        addresses,
    })
}

/// An agent with its lock and its run file.
struct RunningAgent {
    agent: Agent,
    _run: RunGuard,
    _lock: DirLock,
}

impl RunningAgent {
    async fn start(plan: &AgentPlan) -> anyhow::Result<Self> {
        let lock = DirLock::acquire(&plan.state_dir).map_err(locked)?;
        let spec = plan.devices.clone();
        let options = OpenOptions {
            extra_metrics: plan.extra_metrics.clone(),
            nvml_library: plan.nvml_library.clone(),
            node_seed: seed_of(plan.node_name.as_str()),
            ..OpenOptions::default()
        };
        // Opening a driver can block for seconds.
        let devices =
            tokio::task::spawn_blocking(move || gswarm_device::open(&spec, options)).await?;
        let devices = devices.map_err(|error| {
            Fault::new(ErrorCode::FailedPrecondition, chain(&error)).hint(
                "`gswarm doctor` says what is missing; `--devices none` records the machine only",
            )
        })?;
        let config = AgentConfig {
            node_name: plan.node_name.clone(),
            hostname: paths::hostname(),
            state_dir: plan.state_dir.clone(),
            machine_id: paths::machine_id(),
            boot_id: paths::boot_id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            period: plan.period,
            allow: plan.allow.clone(),
            resilient: plan.resilient,
            simulated: plan.devices.is_simulated(),
            limits: SpoolLimits::default(),
        };
        let parts = AgentParts {
            clock: Arc::new(SystemClock),
            disk: Arc::new(StdDisk),
            connect: connector(plan),
            devices,
            seed: rand::random(),
            new_node_id: NodeId::new(uuid::Uuid::now_v7()),
        };
        let agent = Agent::start(config, parts).await?;
        let run = RunFile::of_agent(plan.node_name.to_string(), plan.target.to_string())?;
        let run = run.announce(&plan.state_dir)?;
        Ok(Self { agent, _run: run, _lock: lock })
    }
}

fn connector(plan: &AgentPlan) -> Arc<dyn Connect> {
    let (host, port) = (plan.target.host().to_owned(), plan.target.port());
    match &plan.way {
        Way::Plain => Arc::new(TcpConnect::new(host, port)),
        Way::Tls { token } => {
            let door = Door { host, port, state_dir: plan.state_dir.clone(), token: token.clone() };
            Arc::new(TlsConnect::new(door, Arc::new(SystemClock)))
        },
    }
}

/// Simulated devices of equal specs differ from node to node, and stay the same for one node.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Says on the terminal when the link comes, goes or is refused; never returns.
async fn narrate(status: &mut watch::Receiver<AgentStatus>, plan: &AgentPlan) {
    let mut said = String::new();
    loop {
        let line = link_line(&status.borrow_and_update().clone(), plan);
        if let Some(line) = line
            && line != said
        {
            remark(&line);
            said = line;
        }
        if status.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// `None` for what needs no words.
fn link_line(status: &AgentStatus, plan: &AgentPlan) -> Option<String> {
    let target = &plan.target;
    match &status.link {
        LinkState::Connected { host_version, .. } => {
            let renamed = if status.node_name == plan.node_name {
                String::new()
            } else {
                format!(
                    " as `{}`: the host knows another machine as `{}`",
                    status.node_name, plan.node_name
                )
            };
            Some(format!("connected to {target} (host {host_version}){renamed}"))
        },
        LinkState::Connecting { attempt: 1, .. } => None,
        LinkState::Connecting { .. } => {
            let why = status.last_error.as_deref().unwrap_or("no answer");
            Some(format!(
                "no host at {target} ({why}); records wait on disk, trying again\n  \
                 on the host: gswarm host start   (for other machines: --listen 0.0.0.0)"
            ))
        },
        LinkState::Waiting { reason } => Some(format!("{target} asks to wait: {reason}")),
        LinkState::Refused { reason } => Some(format!("{target} refuses: {reason}")),
    }
}

/// Ctrl-C or a polite kill.
async fn told_to_stop() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => {
                signals.recv().await;
            },
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {},
        () = terminated => {},
    }
}

/// A directory of the wrong kind is the user's to settle; the rest stands as it is.
fn unstartable(error: StartError) -> anyhow::Error {
    match error {
        StartError::Kind { .. } => Fault::not_now(error.to_string()).into(),
        other => anyhow::Error::new(other),
    }
}

fn locked(error: LockError) -> anyhow::Error {
    match error {
        LockError::Taken { .. } => Fault::conflict(error.to_string())
            .hint("stop the other process, or choose another directory")
            .into(),
        LockError::Io { .. } => anyhow::Error::new(error),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let part = source.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = source.source();
    }
    text
}

/// A host over a data directory that nobody else uses, without listeners.
async fn open_offline(data_dir: &Path) -> anyhow::Result<(Host, DirLock)> {
    let lock = DirLock::acquire(data_dir).map_err(locked)?;
    let simulated = gswarm_host::is_simulated_data(&StdDisk, data_dir)?.unwrap_or(false);
    let config = HostConfig {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_dir: data_dir.to_owned(),
        output_dir: PathBuf::from("."),
        simulated,
        settings: Settings::default(),
        retention: RetentionConfig { budget_bytes: u64::MAX, ..RetentionConfig::default() },
        segments: SegmentLimits::default(),
        access: AccessConfig::default(),
        disk_reserve_bytes: 0,
        addresses: Vec::new(),
    };
    Ok((Host::start(config, parts()).await?, lock))
}

/// The sessions of a data directory that no host has open.
pub(crate) async fn recover_offline(data_dir: &Path) -> anyhow::Result<SessionsBody> {
    let (host, _lock) = open_offline(data_dir).await?;
    let sessions = host.handle().sessions(&Caller::local()).await;
    host.stop().await;
    Ok(sessions?)
}

/// Writes a session of a data directory that no host has open to `out`; gives the bytes written.
pub(crate) async fn export_offline(
    data_dir: &Path,
    key: &str,
    format: ExportFormat,
    out: &Path,
) -> anyhow::Result<u64> {
    let (host, _lock) = open_offline(data_dir).await?;
    let written = export_to(&host, key, format, out).await;
    host.stop().await;
    written
}

async fn export_to(
    host: &Host,
    key: &str,
    format: ExportFormat,
    out: &Path,
) -> anyhow::Result<u64> {
    let format = format.as_str().parse().context("the store does not know the format")?;
    let mut export = host.handle().export(&Caller::local(), key.to_owned(), format).await?;
    let mut file = tokio::fs::File::create(out).await?;
    let mut bytes = 0;
    while let Some(piece) = export.pieces.recv().await {
        let piece = piece?;
        bytes += piece.len() as u64;
        file.write_all(&piece).await?;
    }
    file.sync_all().await?;
    Ok(bytes)
}
