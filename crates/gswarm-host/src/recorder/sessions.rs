//! Starting sessions and changing settings.

use gswarm_api::body::{
    CaptureRequest, SessionBody, SettingsBody, SettingsChange, StartRequest, StoppedBody,
};
use gswarm_api::{Failure, timestamp};
use gswarm_core::{SessionError, StartPlan};
use gswarm_store::entry::Entry;
use gswarm_store::session_file;
use gswarm_types::metric::Metric;
use gswarm_types::{
    EventKind, JobId, Micros, NodeId, Period, Selection, SessionId, SessionName, SessionSpec,
    SessionState, Severity,
};
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::Recorder;
use super::commit::chain;
use super::message::ToAgent;
use crate::caller::Caller;

/// Estimated bytes of a session's line.
const SESSION_BYTES: usize = 600;
/// Tags and notes have limits so that a session stays a small file.
const TAGS_MAX: usize = 32;
const NOTE_CHARS_MAX: usize = 4_000;
const REQUEST_ID_CHARS_MAX: usize = 128;

/// Names of the earlier tools' `-r` option and what they mean here.
const OLD_METRIC_NAMES: [(&str, Option<&str>); 6] = [
    ("gpu_util", Some("gpu_utilization")),
    ("gpu_memory", None),
    ("gpu_bubble", None),
    ("gpu_dram_bandwidth", None),
    ("gpu_nvlink_bandwidth", None),
    ("gpu_bandwidth", None),
];

impl Recorder {
    pub(super) async fn start_session(
        &mut self,
        request: StartRequest,
        caller: &Caller,
    ) -> Result<SessionBody, Failure> {
        let now = self.time.now();
        let plan = self.plan(request, caller, now)?;
        let spec = self.book.plan_start(plan, now).map_err(refuse)?;
        if self.book.get(spec.id).is_none() {
            self.save(spec.clone()).await?;
            let message = format!("session `{}` started by {}", spec.name, spec.owner);
            tracing::info!(target: "profiler", session = %spec.name, id = %spec.id, "session started");
            self.event(None, EventKind::SessionStarted, Severity::Info, message);
            self.spread_periods();
        }
        Ok(self.session_body(&spec))
    }

    fn plan(
        &mut self,
        request: StartRequest,
        caller: &Caller,
        now: Micros,
    ) -> Result<StartPlan, Failure> {
        let name = self.name(request.name, now)?;
        let from = match &request.since {
            Some(text) => moment(text, now)?,
            None => now,
        };
        let stop_at = match &request.duration {
            Some(text) => {
                let span =
                    timestamp::parse_span(text).map_err(|e| Failure::invalid(e.to_string()))?;
                Some(now + span)
            },
            None => None,
        };
        let period = period(request.freq, self.settings.session_period)?;
        check_frames(from, now, period)?;
        let metrics = report_metrics(&request.report_metrics)?;
        check_texts(&request.tags, request.note.as_deref(), request.request_id.as_deref())?;
        let asks = |word: &str| request.report_metrics.iter().any(|metric| metric == word);
        Ok(StartPlan {
            id: SessionId::new(self.new_uuid()),
            name,
            from,
            until: None,
            expired_until: self.expiry.expired_until,
            stop_at,
            period,
            selection: Selection {
                nodes: self.resolve(request.nodes.as_deref())?,
                gpus: request.gpus,
                user: request.user,
                job: job(request.job)?,
            },
            bandwidth: request.enable_bandwidth.unwrap_or(self.settings.bandwidth)
                || asks("gpu_dram_bandwidth"),
            nvlink: request.enable_nvlink.unwrap_or(self.settings.nvlink)
                || asks("gpu_nvlink_bandwidth")
                || asks("gpu_bandwidth"),
            extra_metrics: metrics,
            owner: caller.principal.clone(),
            tags: request.tags,
            note: request.note,
            request_id: request.request_id,
        })
    }

    /// A session that is over from the start; its file follows as after a stop.
    pub(super) async fn capture(
        &mut self,
        request: CaptureRequest,
        caller: &Caller,
        reply: oneshot::Sender<Result<StoppedBody, Failure>>,
    ) {
        match self.capture_plan(request, caller).await {
            Ok(id) => self.begin_stop(id, reply),
            Err(failure) => {
                let _gone = reply.send(Err(failure));
            },
        }
    }

    async fn capture_plan(
        &mut self,
        request: CaptureRequest,
        caller: &Caller,
    ) -> Result<SessionId, Failure> {
        let now = self.time.now();
        let from = moment(&request.from, now)?;
        let until = match &request.to {
            Some(text) => moment(text, now)?.min(now),
            None => now,
        };
        check_texts(&[], None, request.request_id.as_deref())?;
        // What lies in the past was mostly sampled at the base rate.
        let period = period(request.freq, self.settings.base_period)?;
        check_frames(from, until, period)?;
        let plan = StartPlan {
            id: SessionId::new(self.new_uuid()),
            name: self.name(request.name, now)?,
            from,
            until: Some(until),
            expired_until: self.expiry.expired_until,
            stop_at: None,
            period,
            selection: Selection {
                nodes: self.resolve(request.nodes.as_deref())?,
                gpus: request.gpus,
                user: request.user,
                job: job(request.job)?,
            },
            bandwidth: self.settings.bandwidth,
            nvlink: self.settings.nvlink,
            extra_metrics: Vec::new(),
            owner: caller.principal.clone(),
            tags: Vec::new(),
            note: None,
            request_id: request.request_id,
        };
        let spec = self.book.plan_start(plan, now).map_err(refuse)?;
        let id = spec.id;
        if self.book.get(id).is_none() {
            self.save(spec).await?;
        }
        Ok(id)
    }

    /// The wished name, or one made from the time as the earlier tools did.
    fn name(&self, wish: Option<String>, now: Micros) -> Result<SessionName, Failure> {
        let invalid = |error: gswarm_types::NameError| Failure::invalid(error.to_string());
        if let Some(wish) = wish {
            return SessionName::new(wish).map_err(invalid);
        }
        let stamp = Timestamp::from_microsecond(now.0).unwrap_or_default();
        let base = stamp.strftime("profiling_%Y%m%d_%H%M%S").to_string();
        let mut name = base.clone();
        let mut number = 1;
        while self.book.open().any(|open| open.name.as_str() == name) {
            number += 1;
            name = format!("{base}-{number}");
        }
        SessionName::new(name).map_err(invalid)
    }

    /// Names to ids, once and for all.
    pub(super) fn resolve(&self, names: Option<&[String]>) -> Result<Option<Vec<NodeId>>, Failure> {
        let Some(names) = names else { return Ok(None) };
        if names.is_empty() {
            return Err(Failure::invalid("the list of nodes is empty: leave it out for all nodes"));
        }
        let found = names.iter().map(|name| {
            self.names.find(name).ok_or_else(|| {
                let known: Vec<&str> = self.names.iter().map(|(name, _)| name.as_str()).collect();
                Failure::not_found(format!(
                    "no node is called `{}`: known are {}",
                    name.escape_debug(),
                    if known.is_empty() { "none yet".to_owned() } else { known.join(", ") }
                ))
                .because("NODE_NOT_FOUND")
            })
        });
        found.collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// Writes the session's file, then counts it, then journals it.
    pub(super) async fn save(&mut self, spec: SessionSpec) -> Result<(), Failure> {
        let disk = self.disk.clone();
        let dir = self.config.data_dir.join("sessions");
        let copy = spec.clone();
        let written =
            tokio::task::spawn_blocking(move || session_file::write(disk.as_ref(), &dir, &copy))
                .await;
        match written {
            Ok(Ok(())) => {},
            Ok(Err(error)) => {
                let message = format!("cannot write the session's file: {error}");
                return Err(Failure::unavailable(message));
            },
            Err(error) => return Err(Failure::internal(chain(&error))),
        }
        self.batch.push(Entry::Session(Box::new(spec.clone())), SESSION_BYTES);
        self.book.put(spec);
        Ok(())
    }

    /// Removes a stopped session; its exported file is the user's and stays.
    pub(super) async fn delete_session(&mut self, key: &str) -> Result<SessionBody, Failure> {
        let mut spec = self.book.find(key).map_err(refuse)?.clone();
        if spec.state == SessionState::Active {
            let message = format!("session `{}` is running: stop it first", spec.name);
            let code = gswarm_api::ErrorCode::FailedPrecondition;
            return Err(Failure::new(code, message).because("SESSION_RUNNING"));
        }
        let body = self.session_body(&spec);
        let disk = self.disk.clone();
        let (dir, id) = (self.config.data_dir.join("sessions"), spec.id);
        let removed =
            tokio::task::spawn_blocking(move || session_file::remove(disk.as_ref(), &dir, id))
                .await;
        match removed {
            Ok(Ok(())) => {},
            Ok(Err(error)) => {
                let message = format!("cannot remove the session's file: {error}");
                return Err(Failure::unavailable(message));
            },
            Err(error) => return Err(Failure::internal(chain(&error))),
        }
        self.book.remove(id);
        self.stopping.remove(&id);
        spec.state = SessionState::Deleted;
        let message = format!("session `{}` deleted", spec.name);
        tracing::info!(target: "profiler", session = %spec.name, id = %id, "session deleted");
        self.batch.push(Entry::Session(Box::new(spec)), SESSION_BYTES);
        self.event(None, EventKind::SessionDeleted, Severity::Info, message);
        Ok(body)
    }

    /// Tells every node the rate that its sessions need now.
    pub(super) fn spread_periods(&mut self) {
        for node in self.nodes.values_mut() {
            let base = node.base_period.unwrap_or(self.settings.base_period);
            let period = self.book.period_of(node.id, base);
            if period != node.period {
                node.period = period;
                node.tell(ToAgent::SetPeriod(period));
            }
        }
    }

    pub(super) fn change_settings(
        &mut self,
        change: &SettingsChange,
    ) -> Result<SettingsBody, Failure> {
        let base_period = period(change.base_period_ms, self.settings.base_period)?;
        let session_period = period(change.session_period_ms, self.settings.session_period)?;
        self.settings.base_period = base_period;
        self.settings.session_period = session_period;
        self.settings.bandwidth = change.enable_bandwidth.unwrap_or(self.settings.bandwidth);
        self.settings.nvlink = change.enable_nvlink.unwrap_or(self.settings.nvlink);
        self.spread_periods();
        Ok(self.settings_body())
    }
}

fn period(millis: Option<i64>, default: Period) -> Result<Period, Failure> {
    match millis {
        Some(millis) => {
            Period::from_millis(millis).map_err(|error| Failure::invalid(error.to_string()))
        },
        None => Ok(default),
    }
}

fn job(id: Option<String>) -> Result<Option<JobId>, Failure> {
    id.map(JobId::new).transpose().map_err(|error| Failure::invalid(error.to_string()))
}

/// Frames that lie in the past when a session is made.
const FRAMES_MAX: i64 = 10_000_000;

fn check_frames(from: Micros, until: Micros, period: Period) -> Result<(), Failure> {
    let frames = (until - from).0 / period.micros().0.max(1);
    if frames <= FRAMES_MAX {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "the window would have {frames} frames, at most {FRAMES_MAX}: begin later or sample less often"
    )))
}

pub(super) fn moment(text: &str, now: Micros) -> Result<Micros, Failure> {
    timestamp::parse_moment(text, now).map_err(|error| Failure::invalid(error.to_string()))
}

fn check_texts(tags: &[String], note: Option<&str>, request: Option<&str>) -> Result<(), Failure> {
    if tags.len() > TAGS_MAX || tags.iter().any(|tag| tag.chars().count() > 128) {
        return Err(Failure::invalid(format!("at most {TAGS_MAX} tags of 128 characters each")));
    }
    if note.is_some_and(|note| note.chars().count() > NOTE_CHARS_MAX) {
        return Err(Failure::invalid(format!("a note has at most {NOTE_CHARS_MAX} characters")));
    }
    check_request(request)
}

pub(super) fn check_request(request: Option<&str>) -> Result<(), Failure> {
    if request.is_some_and(|id| id.is_empty() || id.chars().count() > REQUEST_ID_CHARS_MAX) {
        return Err(Failure::invalid(format!(
            "a request id has 1 to {REQUEST_ID_CHARS_MAX} characters"
        )));
    }
    Ok(())
}

/// Catalogue names to show in frames; the earlier tools' words are understood.
fn report_metrics(names: &[String]) -> Result<Vec<String>, Failure> {
    let mut out: Vec<String> = Vec::new();
    for name in names {
        let known = match OLD_METRIC_NAMES.iter().find(|(old, _)| old == name) {
            Some((_, new)) => new.and_then(Metric::find),
            None => Some(Metric::find(name).ok_or_else(|| unknown_metric(name))?),
        };
        // Utilisation and memory are in every frame.
        if let Some(metric) = known
            && metric.name != "gpu_utilization"
            && !out.iter().any(|have| have == metric.name)
        {
            out.push(metric.name.to_owned());
        }
    }
    Ok(out)
}

fn unknown_metric(name: &str) -> Failure {
    let known: Vec<&str> = gswarm_types::metric::CATALOGUE
        .iter()
        .filter(|metric| metric.scope == gswarm_types::Scope::Gpu)
        .map(|metric| metric.name)
        .collect();
    let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    Failure::invalid(format!("`{name}` is no metric: known are {}", known.join(", ")))
}

pub(super) fn refuse(error: SessionError) -> Failure {
    let message = error.to_string();
    match error {
        SessionError::Unknown(_) => Failure::not_found(message).because("SESSION_NOT_FOUND"),
        SessionError::Running(_) => Failure::conflict(message).because("SESSION_RUNNING"),
        SessionError::OtherRequest(_) => Failure::conflict(message),
        SessionError::Backwards => Failure::invalid(message),
        SessionError::TooMany(_) => Failure::new(gswarm_api::ErrorCode::ResourceExhausted, message),
    }
}
