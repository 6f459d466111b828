//! Sessions: start, stop, capture, list, and what new ones show.

use gswarm_api::body::{
    CaptureRequest, SessionBody, SessionsBody, SettingsBody, SettingsChange, StartRequest,
    StatusBody, StopAllRequest, StopBody, StopRequest, StoppedBody,
};
use gswarm_api::timestamp::{parse_moment, parse_rfc3339, parse_span};
use gswarm_types::{Clock, JobId, SessionId, SessionName};
use uuid::Uuid;

use super::Context;
use crate::args::profiler::{CaptureArgs, SessionKey, StartArgs};
use crate::clock::SystemClock;
use crate::fault::Fault;
use crate::output::{Page, Table, Tone};
use crate::units;

pub(super) async fn start(context: &Context, args: StartArgs) -> anyhow::Result<()> {
    let request = start_request(args)?;
    let body = context.client()?.start_session(&request).await?;
    context.output.show(&body, |session| {
        let stop = context.stop_command(&session.name);
        Page::default()
            .line(format!("session `{}` started, a frame every {} ms", session.name, session.freq))
            .line(format!("it begins {}", begin(session)))
            .line(match &session.stop_at {
                Some(time) => {
                    format!("it stops by itself at {}, or with `{stop}`", units::time(time))
                },
                None => format!("stop it with `{stop}`"),
            })
    })
}

pub(super) async fn stop(context: &Context, key: &SessionKey) -> anyhow::Result<()> {
    let client = context.client()?;
    let request_id = Some(request_id());
    match session_key(key)? {
        Some(key) => {
            let body = client.stop_session(&key, &StopRequest { request_id }).await?;
            context.output.show(&body, |stopped| stopped_page(Page::default(), stopped))
        },
        None => {
            let body = client.stop_all(&StopAllRequest { request_id }).await?;
            context.output.show(&body, stop_all_page)
        },
    }
}

pub(super) async fn delete(context: &Context, key: &SessionKey) -> anyhow::Result<()> {
    let Some(key) = session_key(key)? else {
        return Err(Fault::invalid("which session is to be deleted?")
            .hint("say --name NAME or --session-id ID; `gswarm profiler sessions` lists them")
            .into());
    };
    let body = context.client()?.delete_session(&key).await?;
    context.output.show(&body, |session| {
        let page = Page::default().line(format!("session `{}` deleted", session.name));
        match &session.output_file {
            Some(file) => page.line(format!("its file stays: {file}")),
            None => page,
        }
    })
}

pub(super) async fn capture(context: &Context, args: CaptureArgs) -> anyhow::Result<()> {
    let now = SystemClock.wall();
    let from = parse_moment(&args.from, now)?;
    let to = args.to.as_deref().map(|to| parse_moment(to, now)).transpose()?;
    if from >= to.unwrap_or(now) {
        return Err(Fault::invalid("the capture would end before it begins")
            .hint("--from comes before --to; `30m` means thirty minutes ago")
            .into());
    }
    let request = CaptureRequest {
        name: checked_name(args.name)?,
        from: args.from,
        to: args.to,
        freq: args.freq.map(i64::from),
        nodes: args.nodes,
        gpus: args.gpus,
        user: args.user,
        job: checked_job(args.job)?,
        request_id: Some(request_id()),
    };
    let body = context.client()?.capture(&request).await?;
    context.output.show(&body, |stopped| stopped_page(Page::default(), stopped))
}

pub(super) async fn sessions(context: &Context) -> anyhow::Result<()> {
    let body = context.client()?.sessions().await?;
    context.output.show(&body, sessions_page)
}

/// Settings and open sessions; `--json` gives the status of the host.
pub(super) async fn status(context: &Context) -> anyhow::Result<()> {
    let client = context.client()?;
    let status = client.status().await?;
    if context.output.json {
        return context.output.json(&status);
    }
    let sessions = client.sessions().await?;
    context.output.page(&status_page(&status, sessions))
}

pub(super) async fn bandwidth(context: &Context, on: bool) -> anyhow::Result<()> {
    let change = SettingsChange { enable_bandwidth: Some(on), ..SettingsChange::default() };
    settings(context, &change).await
}

pub(super) async fn nvlink(context: &Context, on: bool) -> anyhow::Result<()> {
    let change = SettingsChange { enable_nvlink: Some(on), ..SettingsChange::default() };
    settings(context, &change).await
}

async fn settings(context: &Context, change: &SettingsChange) -> anyhow::Result<()> {
    let body = context.client()?.change_settings(change).await?;
    context
        .output
        .show(&body, |settings| Page::default().line(format!("new sessions: {}", shown(settings))))
}

/// The name or id that flags name; `None` when they name nothing.
pub(super) fn session_key(key: &SessionKey) -> anyhow::Result<Option<String>> {
    match (&key.name, &key.session_id) {
        (Some(name), _) => Ok(Some(SessionName::new(name.clone())?.to_string())),
        (None, Some(id)) => Ok(Some(id.parse::<SessionId>()?.to_string())),
        (None, None) => Ok(None),
    }
}

/// All sessions, newest last, as a table.
pub(super) fn sessions_page(body: &SessionsBody) -> Page {
    if body.sessions.is_empty() {
        return Page::default()
            .line("no session yet")
            .line("open one with `gswarm profiler start --name NAME`");
    }
    let mut table =
        Table::new(["NAME", "STATE", "FROM", "LENGTH>", "EVERY>", "FRAMES>", "FILE", "ID"]);
    for session in &body.sessions {
        table.row([
            session.name.clone(),
            state(session),
            units::time(&session.from),
            length(session),
            format!("{} ms", session.freq),
            session.frame_count.to_string(),
            units::or_dash(session.output_file.clone(), |file| file),
            session.id.clone(),
        ]);
    }
    Page::default().table(table)
}

fn status_page(status: &StatusBody, mut sessions: SessionsBody) -> Page {
    sessions.sessions.retain(|session| session.active);
    let page = Page::default()
        .line(format!(
            "{} ({} healthy), {}",
            units::count(status.nodes_total.into(), "node"),
            status.nodes_healthy,
            units::count(status.gpus_total.into(), "GPU")
        ))
        .line(format!(
            "new sessions: a frame every {} ms, {}",
            status.settings.session_period_ms,
            shown(&status.settings)
        ));
    if sessions.sessions.is_empty() {
        return page.line("no session is open; `gswarm profiler start --name NAME` opens one");
    }
    let open = sessions_page(&sessions);
    page.blank().then(open)
}

fn start_request(args: StartArgs) -> anyhow::Result<StartRequest> {
    if let Some(since) = &args.since {
        parse_moment(since, SystemClock.wall())?;
    }
    if let Some(duration) = &args.duration {
        parse_span(duration).map_err(|_| {
            Fault::invalid(format!("`{duration}` is not a span: write 90s, 10m or 2h"))
        })?;
    }
    let Reported { metrics, bandwidth, nvlink } = reported(args.report_metrics);
    Ok(StartRequest {
        name: checked_name(args.name)?,
        freq: args.freq.map(i64::from),
        since: args.since,
        duration: args.duration,
        nodes: args.nodes,
        gpus: args.gpus,
        user: args.user,
        job: checked_job(args.job)?,
        enable_bandwidth: (args.enable_bandwidth || bandwidth).then_some(true),
        enable_nvlink: (args.enable_nvlink || nvlink).then_some(true),
        report_metrics: metrics,
        tags: args.tags,
        note: args.note,
        request_id: Some(request_id()),
    })
}

/// What `-r` asks for, once the old tool's words are taken out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reported {
    metrics: Vec<String>,
    bandwidth: bool,
    nvlink: bool,
}

fn reported(names: Vec<String>) -> Reported {
    let mut reported = Reported::default();
    for name in names {
        match name.trim() {
            // Every frame has these; the heat map is drawn from the first.
            "" | "gpu_utilization" | "gpu_util" | "gpu_memory" | "gpu_bubble" => {},
            "gpu_dram_bandwidth" | "dram_bandwidth" => reported.bandwidth = true,
            "gpu_nvlink_bandwidth" | "gpu_bandwidth" => reported.nvlink = true,
            other => reported.metrics.push(other.to_owned()),
        }
    }
    reported
}

fn checked_name(name: Option<String>) -> anyhow::Result<Option<String>> {
    Ok(name.map(SessionName::new).transpose()?.map(String::from))
}

fn checked_job(id: Option<String>) -> anyhow::Result<Option<String>> {
    Ok(id.map(JobId::new).transpose()?.map(String::from))
}

/// A repeated request with the same id changes nothing.
fn request_id() -> String {
    Uuid::now_v7().to_string()
}

fn begin(session: &SessionBody) -> String {
    match &session.covered_from {
        Some(covered) if covered > &session.from => format!(
            "{}, but the recording reaches back to {} only",
            units::time(&session.from),
            units::time(covered)
        ),
        _ => units::time(&session.from),
    }
}

fn stop_all_page(body: &StopBody) -> Page {
    if body.stopped.is_empty() {
        return Page::default().line("no session was open");
    }
    body.stopped.iter().fold(Page::default(), stopped_page)
}

/// The last line is the path of the file, if there is one.
fn stopped_page(page: Page, stopped: &StoppedBody) -> Page {
    let session = &stopped.session;
    let page = page.line(format!(
        "session `{}` stopped: {} over {}",
        session.name,
        units::count(session.frame_count, "frame"),
        length(session)
    ));
    let page = match session.incomplete_nodes.as_slice() {
        [] => page,
        nodes => page.line(format!(
            "records of {} are still to come; the file is written again when they arrive",
            nodes.join(", ")
        )),
    };
    let page = match &stopped.export_note {
        Some(note) => page.line(note.clone()),
        None => page,
    };
    match &session.output_file {
        Some(file) => page.line(file.clone()),
        None => page,
    }
}

fn state(session: &SessionBody) -> String {
    if session.active {
        Tone::Good.paint("open")
    } else if session.incomplete_nodes.is_empty() {
        Tone::Quiet.paint("stopped")
    } else {
        Tone::Warning.paint("incomplete")
    }
}

fn length(session: &SessionBody) -> String {
    let until = match &session.until {
        Some(until) => parse_rfc3339(until).ok(),
        None => Some(SystemClock.wall()),
    };
    let from = parse_rfc3339(&session.from).ok();
    units::or_dash(from.zip(until), |(from, until)| units::span(until - from))
}

fn shown(settings: &SettingsBody) -> String {
    let word = |on: bool| if on { "shown" } else { "hidden" };
    format!(
        "PCIe bandwidth {}, NVLink bandwidth {}",
        word(settings.enable_bandwidth),
        word(settings.enable_nvlink)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_metric_words_still_mean_something() {
        let words =
            ["gpu_utilization", "gpu_memory", "gpu_dram_bandwidth", "gpu_bubble", "sm_activity"];
        let expected =
            Reported { metrics: vec!["sm_activity".to_owned()], bandwidth: true, nvlink: false };
        assert_eq!(reported(words.map(str::to_owned).into()), expected);
    }

    #[track_caller]
    fn check_key(name: Option<&str>, id: Option<&str>, expected: Option<Option<&str>>) {
        let key = SessionKey { name: name.map(str::to_owned), session_id: id.map(str::to_owned) };
        let got = session_key(&key).ok();
        assert_eq!(got.as_ref().map(Option::as_deref), expected);
    }

    #[test]
    fn keys_are_checked_before_anything_is_asked() {
        let id = "0192d3a0-0000-7000-8000-000000000001";
        check_key(Some("run1"), None, Some(Some("run1")));
        check_key(None, Some(id), Some(Some(id)));
        check_key(None, None, Some(None));
        check_key(Some("../../x"), None, None);
        check_key(Some(""), None, None);
        check_key(None, Some("7"), None);
    }
}
