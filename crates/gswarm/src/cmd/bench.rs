//! `gswarm bench ingest`: simulated agents against a host, and a ledger of every record.

mod load;
mod rig;
mod reader;
mod scenario;
mod ledger;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use gswarm_api::body::{StartRequest, StopRequest, TokenRequest};
use gswarm_api::{Client, ErrorCode, Target};
use gswarm_types::{Clock, Micros};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Context;
use crate::args::bench::{IngestArgs, Scenario};
use crate::clock::SystemClock;
use crate::fault::Fault;
use crate::output::remark;

use ledger::Audit;
use load::{Fleet, FleetPlan};
use report::{Latency, Report};
use rig::Rig;

/// Threads that may wait for the disk: all agents share the cores with the host.
const BLOCKING_THREADS_MAX: usize = 4;
/// The session over everything, whose export is compared with the ledger.
const SESSION: &str = "bench-everything";
/// How long agents may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the host may take to store what the agents hold when the time is over.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);
/// Time between two looks at the host and the disk.
const WATCH_EVERY: Duration = Duration::from_millis(500);

pub(super) fn ingest(context: &Context, args: &IngestArgs) -> anyhow::Result<ExitCode> {
    raise_file_limit(args.nodes)?;
    // One thread carries some 4,000 agents.
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .context("cannot start the runtime")?
        .block_on(Box::pin(run(context, args)))
}

async fn run(context: &Context, args: &IngestArgs) -> anyhow::Result<ExitCode> {
    let workshop = Workshop::make(args.dir.as_deref())?;
    let mut rig = match &context.host {
        Some(_) => {
            let target = context.target()?;
            let shown = context.credentials(&target)?;
            Rig::remote(target, shown, args.scenario)?
        },
        None => Rig::start(workshop.path()).await?,
    };
    let interrupted = tokio::signal::ctrl_c();
    let outcome = tokio::select! {
        outcome = Box::pin(measure(args, &mut rig, workshop.path())) => outcome,
        _ = interrupted => Err(Fault::new(ErrorCode::Unavailable, "interrupted").into()),
    };
    rig.stop().await;
    let report = outcome?;
    context.output.show(&report, Report::page)?;
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(args: &IngestArgs, rig: &mut Rig, dir: &Path) -> anyhow::Result<Report> {
    let client = rig.client()?;
    open_session(&client, args).await?;
    let mut plan = FleetPlan::new(args, rig.target(), &dir.join("agents"));
    if args.tls {
        plan.token = Some(client.create_token(&TokenRequest::default()).await?.secret.parse()?);
    }
    let mut fleet = Fleet::start(&plan).await?;
    remark(&format!("{} agents start", args.nodes));
    tokio::time::timeout(CONNECT_TIMEOUT, fleet.connected())
        .await
        .map_err(|_| not_in_time("not every agent is connected", CONNECT_TIMEOUT))?;
    remark(&format!("all are connected; measuring for {}", crate::units::span(args.duration)));
    let mut readers = JoinSet::new();
    let visible = reader::watch_latency(rig, &mut readers);
    let mut report = Report::new(args, fleet.metrics());
    watch(args, rig, &mut fleet, dir, &mut report).await?;
    remark("the agents deliver the rest and stop");
    tokio::time::timeout(DRAIN_TIMEOUT, fleet.delivered())
        .await
        .map_err(|_| not_in_time("not every record is acknowledged", DRAIN_TIMEOUT))?;
    let entries = fleet.stop().await;
    readers.abort_all();
    report.visible = Latency::of(&visible.take());
    report.ack = Latency::of(&fleet.latencies().await);
    let client = rig.client()?;
    client.stop_session(SESSION, &StopRequest::default()).await?;
    remark("comparing the export with what the agents made");
    let audit = Audit::of(&client, SESSION, &entries).await?;
    report.settle(&entries, audit, rig);
    Ok(report)
}

/// The window from before the first record on, at the rate that was asked for.
async fn open_session(client: &Client, args: &IngestArgs) -> anyhow::Result<()> {
    let status = client.status().await?;
    if !status.simulated {
        let message = "the host records real devices: simulated load does not belong there";
        return Err(Fault::not_now(message)
            .hint("start one with `gswarm host start --sim`")
            .into());
    }
    let freq = Some(args.freq.millis());
    let name = Some(SESSION.to_owned());
    client.start_session(&StartRequest { name, freq, ..StartRequest::default() }).await?;
    Ok(())
}

/// The measured time: the scenario on one side, looks at host and disk on the other.
async fn watch(
    args: &IngestArgs,
    rig: &mut Rig,
    fleet: &mut Fleet,
    dir: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let length = Duration::from_micros(u64::try_from(args.duration.0).unwrap_or(0));
    let mut disk = rig::DiskProbe::open(dir)?;
    let mut scenario = scenario::Script::new(args, length);
    let before = fleet.counts();
    let start = Instant::now();
    rig.reset_cost();
    fleet.time(true);
    let mut tick = tokio::time::interval(WATCH_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while start.elapsed() < length {
        tick.tick().await;
        disk.sync().await?;
        rig.look();
        scenario.act(start.elapsed(), rig, fleet, report).await?;
    }
    fleet.time(false);
    scenario.end(rig, report).await?;
    let after = fleet.counts();
    report.seconds = start.elapsed().as_secs_f64();
    report.records_in_window = after.acked - before.acked;
    report.fdatasync = Latency::of(disk.taken_us());
    rig.cost(report);
    Ok(())
}

fn not_in_time(what: &str, limit: Duration) -> anyhow::Error {
    let message = format!("{what} after {} seconds", limit.as_secs());
    Fault::new(ErrorCode::Unavailable, message).into()
}

/// Two descriptors for each agent, its spool and its connection. The host inherits the limit.
fn raise_file_limit(nodes: u32) -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = u64::from(nodes) * 2 + 512;
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map(|most| most.max(needed));
    // Only root may go beyond what the shell allows.
    if setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).is_ok() {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < needed) {
        let message = format!(
            "{nodes} agents need {needed} open files, and this shell allows {}",
            limit.maximum.unwrap_or(0)
        );
        return Err(Fault::not_now(message).hint("raise it with `ulimit -Hn` as root").into());
    }
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, all).context("cannot raise the number of open files")
}

/// A directory that is gone afterwards.
struct Workshop {
    path: PathBuf,
}

impl Workshop {
    fn make(parent: Option<&Path>) -> anyhow::Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let name = format!("gswarm-bench-{}-{}", std::process::id(), SystemClock.wall().0);
        let path = parent.join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the directory `{}`", path.display()))?;
        Ok(Self { path })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            remark(&format!("`{}` is left behind: {error}", self.path.display()));
        }
    }
}

fn micros(duration: Duration) -> Micros {
    Micros(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

/// Where scenarios that end the host make no sense.
fn needs_own_host(scenario: Scenario) -> bool {
    matches!(scenario, Scenario::Storm | Scenario::HostKill)
}

fn host_port(target: &Target) -> (String, u16) {
    (target.host().to_owned(), target.port())
}
