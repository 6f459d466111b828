//! The host as a whole: bare `gswarm`, `status`, `health`, `retention`, `version`.

use std::process::ExitCode;

use gswarm_api::body::{HealthBody, HealthStatus, RetentionBody, RetentionSegment, StatusBody};
use gswarm_api::timestamp::parse_rfc3339;
use gswarm_api::{ClientError, ErrorCode, Target};
use serde::Serialize;

use super::{Context, client};
use crate::args::RetentionArgs;
use crate::output::{Output, Page, Table, Tone, remark};
use crate::units;

/// What bare `gswarm --json` says when no host answers.
#[derive(Debug, Serialize)]
struct NoHost {
    running: bool,
    target: String,
}

#[derive(Debug, Serialize)]
struct VersionBody {
    version: &'static str,
}

pub(super) fn version(output: &Output) -> anyhow::Result<()> {
    let body = VersionBody { version: env!("CARGO_PKG_VERSION") };
    output.show(&body, |body| Page::default().line(format!("gswarm {}", body.version)))
}

/// Bare `gswarm`: the state and the next step.
pub(super) async fn overview(context: &Context) -> anyhow::Result<()> {
    let host = context.client()?;
    let agents = client::local_count(context);
    match host.status().await {
        Ok(body) => context.output.show(&body, |body| overview_page(host.target(), body, agents)),
        Err(ClientError::Unreachable { target, .. }) => {
            let body = NoHost { running: false, target: target.to_string() };
            context.output.show(&body, |_| nothing_page(&target, agents))
        },
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn status(context: &Context) -> anyhow::Result<()> {
    let client = context.client()?;
    let body = client.status().await?;
    context.output.show(&body, |body| status_page(client.target(), body))
}

/// Exit code 0 also when degraded, as `GET /health` answers 200 then.
pub(super) async fn health(context: &Context) -> anyhow::Result<ExitCode> {
    let body = context.client()?.health().await?;
    context.output.show(&body, health_page)?;
    Ok(match body.status {
        HealthStatus::Ok | HealthStatus::Degraded => ExitCode::SUCCESS,
        HealthStatus::Unavailable => ExitCode::from(ErrorCode::Unavailable.exit_code()),
    })
}

pub(super) async fn retention(context: &Context, args: &RetentionArgs) -> anyhow::Result<()> {
    if !args.dry_run {
        remark("retention runs by itself on the host; this only shows what it would remove now");
    }
    let body = context.client()?.retention().await?;
    context.output.show(&body, retention_page)
}

fn overview_page(target: &Target, body: &StatusBody, agents: usize) -> Page {
    let next = if body.nodes_total == 0 {
        format!("no node yet: run `gswarm join {target}` on each machine with GPUs")
    } else if body.sessions_active == 0 {
        "record: `gswarm profiler start --name NAME`; look: `gswarm nodes`".to_owned()
    } else {
        "see `gswarm profiler status`; `gswarm profiler stop` writes the files".to_owned()
    };
    Page::default()
        .line(format!("{} at {target}, {}", title(body), health_word(body.health)))
        .line(format!(
            "{} ({} healthy), {}, {} open",
            units::count(body.nodes_total.into(), "node"),
            body.nodes_healthy,
            units::count(body.gpus_total.into(), "GPU"),
            units::count(body.sessions_active.into(), "session"),
        ))
        .line(format!("agents on this machine: {agents}"))
        .blank()
        .line(format!("next: {next}"))
}

fn nothing_page(target: &Target, agents: usize) -> Page {
    Page::default()
        .line(format!("no host answers at {target}; agents on this machine: {agents}"))
        .blank()
        .line("next:")
        .facts([
            ("  gswarm up", "record this machine, host and agent in one process".to_owned()),
            ("  gswarm up --sim", "try it with simulated GPUs".to_owned()),
            ("  gswarm host start", "start a host for several machines".to_owned()),
            ("  gswarm join HOST", "send this machine's measurements to a host".to_owned()),
            ("  gswarm doctor", "look for what is wrong on this machine".to_owned()),
            ("  gswarm --help", "everything else".to_owned()),
        ])
}

fn title(body: &StatusBody) -> String {
    let simulated = if body.simulated { " (simulated devices)" } else { "" };
    let insecure = if body.insecure { " INSECURE: open to everyone on the network" } else { "" };
    format!("gswarm host {}{simulated}{insecure}", body.version)
}

pub(super) const fn health_word(health: HealthStatus) -> &'static str {
    match health {
        HealthStatus::Ok => "ok",
        HealthStatus::Degraded => "degraded",
        HealthStatus::Unavailable => "unavailable",
    }
}

fn health_cell(health: HealthStatus) -> String {
    let tone = match health {
        HealthStatus::Ok => Tone::Good,
        HealthStatus::Degraded => Tone::Warning,
        HealthStatus::Unavailable => Tone::Bad,
    };
    tone.paint(health_word(health))
}

fn status_page(target: &Target, body: &StatusBody) -> Page {
    let store = &body.store;
    let ingest = &body.ingest;
    Page::default().line(format!("{} at {target}", title(body))).facts([
        ("  health", health_cell(body.health)),
        ("  running", format!("{}, since {}", uptime(body), units::time(&body.started_at))),
        (
            "  nodes",
            format!(
                "{} ({} healthy), {}",
                body.nodes_total,
                body.nodes_healthy,
                units::count(body.gpus_total.into(), "GPU")
            ),
        ),
        ("  sessions", format!("{} open", body.sessions_active)),
        ("  sampling", sampling(body)),
        (
            "  recording",
            format!(
                "{} of {}, kept {} h, {}",
                units::bytes(store.bytes),
                units::bytes(store.budget_bytes),
                store.retention_hours,
                store.bytes_per_day.map_or_else(
                    || "growth not measured yet".to_owned(),
                    |bytes| format!("growing {}/day", units::bytes(bytes))
                ),
            ),
        ),
        ("  oldest", units::or_dash(store.oldest.as_deref(), units::time)),
        (
            "  stored",
            format!(
                "{}; {} sent twice, {} rejected",
                units::count(ingest.records_stored, "record"),
                ingest.records_duplicate,
                ingest.records_rejected
            ),
        ),
        ("  addresses", body.addresses.join(", ")),
        ("  data", body.data_dir.clone()),
        ("  output", body.output_dir.clone()),
    ])
}

fn uptime(body: &StatusBody) -> String {
    match (parse_rfc3339(&body.now), parse_rfc3339(&body.started_at)) {
        (Ok(now), Ok(started)) => units::span(now - started),
        _ => units::ABSENT.to_owned(),
    }
}

fn sampling(body: &StatusBody) -> String {
    let settings = &body.settings;
    let shown = |on: bool| if on { "shown" } else { "hidden" };
    format!(
        "every {} ms in sessions, every {} ms otherwise; PCIe bandwidth {}, NVLink {}",
        settings.session_period_ms,
        settings.base_period_ms,
        shown(settings.enable_bandwidth),
        shown(settings.enable_nvlink)
    )
}

fn health_page(body: &HealthBody) -> Page {
    let mut table = Table::new(["CHECK", "STATE", "DETAIL"]);
    for check in &body.checks {
        table.row([check.name.clone(), health_cell(check.status), check.message.clone()]);
    }
    let page = Page::default().line(format!(
        "gswarm host {} is {}",
        body.version,
        health_word(body.status)
    ));
    if table.is_empty() { page } else { page.table(table) }
}

fn retention_page(body: &RetentionBody) -> Page {
    let page = Page::default().line(format!(
        "{} of {} in use, {} held by sessions",
        units::bytes(body.bytes),
        units::bytes(body.budget_bytes),
        units::bytes(body.pinned_bytes)
    ));
    let page = match body.remove.as_slice() {
        [] => page.line("nothing would be removed now"),
        segments => page.line("would be removed now:").table(segments_table(segments)),
    };
    match body.trim.as_slice() {
        [] => page,
        segments => page
            .line("would be cut down to what sessions keep of them:")
            .table(segments_table(segments)),
    }
}

fn segments_table(segments: &[RetentionSegment]) -> Table {
    let mut table = Table::new(["SEGMENT>", "SIZE>", "FROM", "TO", "WHY"]);
    for segment in segments {
        table.row([
            segment.segment.to_string(),
            units::bytes(segment.bytes),
            units::or_dash(segment.first.as_deref(), units::time),
            units::or_dash(segment.last.as_deref(), units::time),
            segment.reason.clone(),
        ]);
    }
    table
}
