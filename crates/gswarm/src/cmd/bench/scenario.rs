//! What happens to the host while it is measured.

use std::time::Duration;

use gswarm_api::Client;
use gswarm_api::body::{StartRequest, StopRequest};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::load::Fleet;
use super::reader;
use super::report::Report;
use super::rig::Rig;
use crate::args::bench::{IngestArgs, Scenario};
use crate::output::remark;

/// How long the host is away before everybody comes back.
const AWAY: Duration = Duration::from_secs(10);
/// The session that asks for more, and the shortest period there is.
const BURST: &str = "bench-burst";
const PERIOD_MS_MIN: i64 = 100;
const SLOW_READERS: usize = 50;
const SESSIONS: usize = 100;
/// Nodes in each of the overlapping sessions.
const SESSION_NODES: u32 = 10;

/// One thing to do at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Kill,
    Revive,
    FasterRate,
    NormalRate,
    SlowReaders,
    Sessions,
}

/// The steps that are still to come, the next one last.
pub(super) struct Script {
    steps: Vec<(Duration, Step)>,
    period_ms: i64,
    nodes: u32,
    back_at: Option<Recovery>,
    readers: Vec<Box<dyn std::any::Any>>,
    sessions: Vec<String>,
}

/// The host is back, and the agents still hold what they recorded meanwhile.
struct Recovery {
    since: Instant,
    sampled: u64,
}

impl Script {
    pub(super) fn new(args: &IngestArgs, length: Duration) -> Self {
        let mut steps = match args.scenario {
            Scenario::Steady => Vec::new(),
            Scenario::Storm => {
                vec![(length / 3, Step::Kill), (length / 3 + AWAY, Step::Revive)]
            },
            Scenario::Burst => {
                vec![(length / 3, Step::FasterRate), (length / 2, Step::NormalRate)]
            },
            Scenario::SlowReaders => vec![(length / 4, Step::SlowReaders)],
            Scenario::HostKill => [1, 2, 3]
                .into_iter()
                .flat_map(|part| {
                    [(length / 4 * part, Step::Kill), (length / 4 * part, Step::Revive)]
                })
                .collect(),
            Scenario::Sessions => vec![(Duration::ZERO, Step::Sessions)],
        };
        steps.reverse();
        Self {
            steps,
            period_ms: args.freq.millis(),
            nodes: args.nodes,
            back_at: None,
            readers: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Does what is due.
    pub(super) async fn act(
        &mut self,
        now: Duration,
        rig: &mut Rig,
        fleet: &Fleet,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        while let Some((_, step)) = self.steps.pop_if(|(at, _)| *at <= now) {
            self.take(step, rig, fleet).await?;
        }
        let counts = fleet.counts();
        if self.back_at.as_ref().is_some_and(|back| counts.acked >= back.sampled)
            && let Some(back) = self.back_at.take()
        {
            let seconds = back.since.elapsed().as_secs_f64();
            report.recovery_seconds = Some(report.recovery_seconds.unwrap_or(0.0).max(seconds));
        }
        Ok(())
    }

    async fn take(&mut self, step: Step, rig: &mut Rig, fleet: &Fleet) -> anyhow::Result<()> {
        let client = rig.client()?;
        match step {
            Step::Kill => {
                remark("the host is killed");
                rig.kill();
            },
            Step::Revive => {
                rig.revive().await?;
                remark("the host is back");
                let sampled = fleet.counts().sampled;
                self.back_at = Some(Recovery { since: Instant::now(), sampled });
            },
            Step::FasterRate => {
                remark("ten times the rate");
                let freq = Some((self.period_ms / 10).max(PERIOD_MS_MIN));
                let name = Some(BURST.to_owned());
                let request = StartRequest { name, freq, ..StartRequest::default() };
                client.start_session(&request).await?;
            },
            Step::NormalRate => {
                remark("the rate of before");
                client.stop_session(BURST, &StopRequest::default()).await?;
            },
            Step::SlowReaders => {
                for _ in 0..SLOW_READERS {
                    self.readers.push(Box::new(reader::open(rig.target()).await?));
                }
                remark(&format!("{SLOW_READERS} readers that do not read"));
            },
            Step::Sessions => self.open_sessions(&client).await?,
        }
        Ok(())
    }

    async fn open_sessions(&mut self, client: &Client) -> anyhow::Result<()> {
        for number in 0..SESSIONS {
            let first = u32::try_from(number)? * SESSION_NODES % self.nodes;
            let chosen = (first..first + SESSION_NODES.min(self.nodes))
                .map(|node| format!("bench{:05}", node % self.nodes));
            let name = format!("bench-{number:03}");
            let request = StartRequest {
                name: Some(name.clone()),
                nodes: Some(chosen.collect()),
                freq: Some(self.period_ms),
                ..StartRequest::default()
            };
            client.start_session(&request).await?;
            self.sessions.push(name);
        }
        remark(&format!("{SESSIONS} sessions are open"));
        Ok(())
    }

    pub(super) async fn end(&mut self, rig: &Rig, report: &mut Report) -> anyhow::Result<()> {
        let mut stopping = JoinSet::new();
        for name in self.sessions.drain(..) {
            let client = rig.client()?;
            stopping
                .spawn(async move { client.stop_session(&name, &StopRequest::default()).await });
        }
        while let Some(stopped) = stopping.join_next().await {
            report.sessions_stopped += 1;
            let incomplete = !stopped??.session.incomplete_nodes.is_empty();
            report.sessions_incomplete += u64::from(incomplete);
        }
        self.readers.clear();
        Ok(())
    }
}
