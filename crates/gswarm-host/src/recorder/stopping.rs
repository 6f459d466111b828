//! Stopping sessions: close the window, wait for the last records, write the file, mend it later.

use std::collections::HashMap;

use gswarm_api::Failure;
use gswarm_api::body::{StopBody, StoppedBody};
use gswarm_core::{ClockStep, Intake, Listed};
use gswarm_store::export::{ExportInput, Nvlink, damaged_segments};
use gswarm_store::reader::Reader;
use gswarm_types::{
    EventKind, Incarnation, Micros, NodeId, SessionId, SessionSpec, SessionState, Severity,
};
use tokio::sync::{mpsc, oneshot};

use super::message::ToAgent;
use super::sessions::check_request;
use super::{Call, Recorder};
use crate::caller::Caller;
use crate::export_job::{self, ExportOrder, Exported};

/// How long a stop waits for nodes that have not delivered yet.
const WAIT_FOR: Micros = Micros::from_secs(5);

type StopReply = oneshot::Sender<Result<StoppedBody, Failure>>;

/// A session whose last records or file are still to come.
#[derive(Debug)]
pub(super) struct Stopping {
    waits: HashMap<NodeId, Wait>,
    /// Waiting ends then, on the monotonic clock; `None` once the file is being written.
    deadline: Option<Micros>,
    replies: Vec<StopReply>,
    /// The revision that is being written; it counts once its file is there.
    writing: Option<Revision>,
}

impl Stopping {
    /// False once the result was given and only nodes that are away could add to it, perhaps in
    /// days: whoever asks then gets what there is.
    fn is_about_to_answer(&self) -> bool {
        self.deadline.is_some() || self.writing.is_some()
    }
}

/// What a file will say of itself.
#[derive(Debug, Clone)]
struct Revision {
    number: u32,
    incomplete: Vec<NodeId>,
}

/// What is still expected of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    /// The answer to a flush.
    Flush(u64),
    /// These seqs, stored or known never to come.
    Seqs(Vec<(Incarnation, u64)>),
    /// The node to come back.
    Return,
}

/// True when every run that the agent last listed ended cleanly, also before a restart of the host.
fn is_over(intake: &Intake, node: NodeId) -> bool {
    let mut listed = intake.sources_of(node).filter(|(_, source)| source.is_listed()).peekable();
    listed.peek().is_some() && listed.all(|(_, source)| source.ended().is_some())
}

/// Damage in the window is named before its file is written.
async fn name_damage(
    reader: &Reader,
    calls: &mpsc::WeakSender<Call>,
    id: SessionId,
    mut order: ExportOrder,
) -> ExportOrder {
    let (look, input) = (reader.clone(), order.input.clone());
    let looked = tokio::task::spawn_blocking(move || damaged_segments(&look, &input)).await;
    let damaged = looked.unwrap_or_default();
    for segment in &damaged {
        let (reply, named) = oneshot::channel();
        let Some(calls) = calls.upgrade() else { return order };
        if calls.send(Call::Unreadable(*segment, reply)).await.is_ok() {
            let _stopping = named.await;
        }
    }
    if !damaged.is_empty()
        && let Some(calls) = calls.upgrade()
    {
        let (reply, answer) = oneshot::channel();
        let _stopping = calls.send(Call::ExportInput(id.to_string(), reply)).await;
        if let Ok(Ok(mut input)) = answer.await {
            input.spec = order.input.spec;
            order.input = input;
        }
    }
    order
}

impl Recorder {
    pub(super) async fn stop_session(
        &mut self,
        key: &str,
        request: Option<String>,
        reply: StopReply,
    ) {
        let found = check_request(request.as_deref()).and_then(|()| {
            // The same request again means what it stopped, whatever has the name by now.
            let before = request.as_deref().map(|request| self.book.stopped_by(request));
            match before.unwrap_or_default().first() {
                Some(id) => Ok(*id),
                None => self.book.find(key).map_err(super::sessions::refuse).map(|spec| spec.id),
            }
        });
        match found {
            Ok(id) => self.stop_by_id(id, request, reply).await,
            Err(failure) => {
                let _gone = reply.send(Err(failure));
            },
        }
    }

    /// The clock was set back: no window can hold what was recorded before and after. Each open
    /// session ends where the clock had come to, and one with the same name goes on from `now`.
    pub(super) async fn divide_sessions(&mut self, step: ClockStep, now: Micros) {
        let before = now - step.by;
        if before <= now {
            return;
        }
        let open: Vec<SessionSpec> = self.book.open().cloned().collect();
        for spec in open {
            let (reply, _nobody) = oneshot::channel();
            // By the clock of today it was created before the one that goes on.
            let ended = SessionSpec { created: spec.created + step.by, ..spec.clone() };
            self.stop_at(ended, before, None, reply).await;
            let next = SessionSpec {
                id: SessionId::new(self.new_uuid()),
                created: now,
                from: now,
                covered_from: None,
                stop_at: spec.stop_at.map(|stop_at| stop_at + step.by),
                request_id: None,
                ..spec
            };
            let name = next.name.clone();
            if let Err(failure) = self.save(next).await {
                let message = format!("session `{name}` does not go on: {}", failure.message);
                self.event(None, EventKind::ClockStep, Severity::Error, message);
            }
        }
        self.spread_periods();
    }

    async fn stop_by_id(&mut self, id: SessionId, request: Option<String>, reply: StopReply) {
        let Some(spec) = self.book.get(id).cloned() else { return };
        if spec.state == SessionState::Stopped {
            // Stopping a stopped session gives its result, or joins those who wait for it.
            match self.stopping.get_mut(&id).filter(|stopping| stopping.is_about_to_answer()) {
                Some(stopping) => stopping.replies.push(reply),
                None => {
                    let body = StoppedBody { session: self.session_body(&spec), export_note: None };
                    let _gone = reply.send(Ok(body));
                },
            }
            return;
        }
        let now = self.time.now();
        self.stop_at(spec, now, request, reply).await;
    }

    async fn stop_at(
        &mut self,
        spec: SessionSpec,
        now: Micros,
        request: Option<String>,
        reply: StopReply,
    ) {
        let id = spec.id;
        let mut closed = spec;
        closed.state = SessionState::Stopped;
        // A window is never empty, however fast the stop came.
        let end = closed.stop_at.map_or(now, |stop_at| stop_at.min(now));
        closed.until = Some(end.max(closed.from + Micros(1)));
        closed.stop_request_id = request;
        if let Err(failure) = self.save(closed.clone()).await {
            let _gone = reply.send(Err(failure));
            return;
        }
        let message = format!("session `{}` stopped", closed.name);
        tracing::info!(target: "profiler", session = %closed.name, id = %id, "session stopped");
        self.event(None, EventKind::SessionStopped, Severity::Info, message);
        self.spread_periods();
        self.begin_stop(id, reply);
    }

    pub(super) async fn stop_all(
        &mut self,
        caller: &Caller,
        request: Option<String>,
        reply: oneshot::Sender<Result<StopBody, Failure>>,
    ) {
        if let Err(failure) = check_request(request.as_deref()) {
            let _gone = reply.send(Err(failure));
            return;
        }
        let is_theirs = |spec: &&SessionSpec| {
            spec.state == SessionState::Active && spec.owner == caller.principal
        };
        let before = request.as_deref().map(|request| self.book.stopped_by(request));
        let mut meant = before.unwrap_or_default();
        if meant.is_empty() {
            meant = self.book.iter().filter(is_theirs).map(|spec| spec.id).collect();
        }
        let mut waiting = Vec::with_capacity(meant.len());
        for id in meant {
            let (sender, receiver) = oneshot::channel();
            self.stop_by_id(id, request.clone(), sender).await;
            waiting.push(receiver);
        }
        self.tasks.spawn(async move {
            let mut stopped = Vec::with_capacity(waiting.len());
            for receiver in waiting {
                match receiver.await {
                    Ok(Ok(body)) => stopped.push(body),
                    Ok(Err(failure)) => {
                        let _gone = reply.send(Err(failure));
                        return;
                    },
                    Err(_) => {},
                }
            }
            let _gone = reply.send(Ok(StopBody { stopped }));
        });
    }

    /// The window is closed: asks the nodes for their last records.
    pub(super) fn begin_stop(&mut self, id: SessionId, reply: StopReply) {
        let Some(spec) = self.book.get(id).cloned() else { return };
        let stopping = self.stopping.get_mut(&id).filter(|stopping| stopping.is_about_to_answer());
        if let Some(stopping) = stopping {
            stopping.replies.push(reply);
            return;
        }
        if spec.revision > 0 {
            let body = StoppedBody { session: self.session_body(&spec), export_note: None };
            let _gone = reply.send(Ok(body));
            return;
        }
        let deadline = Some(self.time.mono() + WAIT_FOR);
        let waits = self.ask_for_last(&spec);
        let stopping = Stopping { waits, deadline, replies: vec![reply], writing: None };
        self.stopping.insert(id, stopping);
        self.check_stopping();
    }

    fn ask_for_last(&mut self, spec: &SessionSpec) -> HashMap<NodeId, Wait> {
        let until = spec.until.unwrap_or(Micros(i64::MAX));
        let mut waits = HashMap::new();
        for node in self.nodes.values_mut() {
            if !spec.selection.has_node(node.id) || node.legacy {
                continue;
            }
            if node.stream.is_some() {
                self.next_flush += 1;
                node.tell(ToAgent::Flush { id: self.next_flush, until });
            }
            if node.stream.is_some() {
                waits.insert(node.id, Wait::Flush(self.next_flush));
            } else if node.last_seen.is_some_and(|seen| seen >= spec.from)
                && !self.health.is_stopped(node.id)
                && !is_over(&self.intake, node.id)
            {
                // It was there during the session and is not now: it may hold records.
                waits.insert(node.id, Wait::Return);
            }
        }
        waits
    }

    pub(super) fn flushed(&mut self, node: NodeId, id: u64, incarnation: Incarnation, seq: u64) {
        for stopping in self.stopping.values_mut() {
            if stopping.waits.get(&node) == Some(&Wait::Flush(id)) {
                stopping.waits.insert(node, Wait::Seqs(vec![(incarnation, seq)]));
            }
        }
        self.check_stopping();
    }

    /// A node came back: sessions that lack its records wait for what it lists.
    pub(super) fn expect_late(&mut self, node: NodeId, held: &[Listed]) {
        let seqs: Vec<(Incarnation, u64)> =
            held.iter().map(|item| (item.incarnation, item.last)).collect();
        let lacking: Vec<SessionId> = self
            .book
            .iter()
            .filter(|spec| spec.incomplete.contains(&node))
            .map(|spec| spec.id)
            .collect();
        for id in lacking {
            let stopping = self.stopping.entry(id).or_insert_with(|| Stopping {
                waits: HashMap::new(),
                deadline: None,
                replies: Vec::new(),
                writing: None,
            });
            stopping.waits.insert(node, Wait::Seqs(seqs.clone()));
        }
        for stopping in self.stopping.values_mut() {
            // The answer to a flush was lost with the stream it was asked on.
            if matches!(stopping.waits.get(&node), Some(Wait::Return | Wait::Flush(_))) {
                stopping.waits.insert(node, Wait::Seqs(seqs.clone()));
            }
        }
    }

    /// Moves every stopping session on as far as it can go.
    pub(super) fn check_stopping(&mut self) {
        let now = self.time.mono();
        let mut ready = Vec::new();
        for (id, stopping) in &mut self.stopping {
            let before = stopping.waits.len();
            let (intake, nodes) = (&self.intake, &self.nodes);
            stopping.waits.retain(|node, wait| match wait {
                Wait::Seqs(seqs) => !seqs.iter().all(|(incarnation, seq)| {
                    intake
                        .source(*node, *incarnation)
                        .is_none_or(|source| source.is_settled(*seq, *incarnation))
                }),
                Wait::Flush(_) | Wait::Return => true,
            });
            for (node, wait) in &mut stopping.waits {
                let gone = nodes.get(node).is_none_or(|node| node.stream.is_none());
                if gone && matches!(wait, Wait::Flush(_)) {
                    *wait = Wait::Return;
                }
            }
            let settled = stopping.waits.is_empty();
            let in_first_wait = stopping.deadline.is_some();
            let only_absent = stopping.waits.values().all(|wait| *wait == Wait::Return);
            let waited = stopping.deadline.is_some_and(|deadline| now >= deadline);
            let changed = stopping.waits.len() < before;
            if stopping.writing.is_none()
                && ((in_first_wait && (settled || waited || only_absent))
                    || (!in_first_wait && changed))
            {
                ready.push(*id);
            }
        }
        for id in ready {
            self.write_out(id);
        }
    }

    /// Exports the session as it stands; who is missing is listed.
    fn write_out(&mut self, id: SessionId) {
        let Some(mut changed) = self.book.get(id).cloned() else { return };
        let Some(stopping) = self.stopping.get_mut(&id) else { return };
        stopping.deadline = None;
        changed.revision += 1;
        changed.incomplete = stopping.waits.keys().copied().collect();
        changed.incomplete.sort_unstable();
        let incomplete = changed.incomplete.clone();
        stopping.writing = Some(Revision { number: changed.revision, incomplete });
        let order = ExportOrder {
            input: self.export_input(&changed),
            output_dir: self.config.output_dir.clone(),
            previous: changed.output_file.clone().zip(changed.output_crc),
        };
        let reader = self.reader.clone();
        let calls = self.calls.clone();
        let give_back = self.give_back;
        self.tasks.spawn(async move {
            let order = name_damage(&reader, &calls, id, order).await;
            let exported = export_job::run(reader, order).await;
            drop(tokio::task::spawn_blocking(give_back));
            if let Some(calls) = calls.upgrade() {
                let _stopping = calls.send(Call::Exported(id, exported)).await;
            }
        });
    }

    pub(super) async fn exported(&mut self, id: SessionId, exported: Exported) {
        let written = self.stopping.get_mut(&id).and_then(|stopping| stopping.writing.take());
        if let (Some(mut changed), Some(written)) = (self.book.get(id).cloned(), written) {
            changed.revision = written.number;
            changed.incomplete = written.incomplete;
            if let Some((file, crc)) = &exported.file {
                changed.output_file = Some(file.clone());
                changed.output_crc = Some(*crc);
            }
            if let Err(failure) = self.save(changed.clone()).await {
                tracing::error!(session = %id, %failure, "session not saved after its export");
                // The file is there all the same; a restart would write it once more.
                self.book.put(changed);
            }
        }
        let file = exported.file.as_ref().map(|(file, _)| file.as_str());
        tracing::info!(target: "profiler", id = %id, file, note = exported.note, "session exported");
        let Some(mut stopping) = self.stopping.remove(&id) else { return };
        let Some(spec) = self.book.get(id).cloned() else { return };
        for reply in std::mem::take(&mut stopping.replies) {
            let body = StoppedBody {
                session: self.session_body(&spec),
                export_note: exported.note.clone(),
            };
            let _gone = reply.send(Ok(body));
        }
        // A node that answered while the file was being written makes the next revision.
        let settled_since = spec.incomplete.iter().any(|node| !stopping.waits.contains_key(node));
        if !stopping.waits.is_empty() || settled_since {
            self.stopping.insert(id, stopping);
            if settled_since {
                self.write_out(id);
            }
        }
        self.check_stopping();
    }

    /// Sessions that a crash left without their file get it now.
    pub(super) fn resume_exports(&mut self) {
        let unfinished: Vec<SessionId> = self
            .book
            .iter()
            .filter(|spec| spec.state == SessionState::Stopped && spec.output_file.is_none())
            .filter(|spec| spec.revision == 0)
            .map(|spec| spec.id)
            .collect();
        for id in unfinished {
            let (reply, _nobody) = oneshot::channel();
            self.begin_stop(id, reply);
        }
    }

    /// Everything an export needs, as things stand now.
    pub(super) fn export_input(&self, spec: &SessionSpec) -> ExportInput {
        let from_past = spec.from < spec.created;
        let longest =
            if from_past { spec.period.max(self.settings.base_period) } else { spec.period };
        ExportInput {
            spec: spec.clone(),
            now: self.time.now(),
            hold: Micros(longest.micros().0 * 3 / 2),
            names: self.nodes.values().map(|node| (node.id, node.name.to_string())).collect(),
            nvlinks: self
                .nodes
                .values()
                .filter_map(|node| {
                    let table = &node.latest.as_ref()?.table;
                    Some((node.id, Nvlink::of(table, &node.topology)))
                })
                .filter(|(_, links)| !links.is_empty())
                .collect(),
            holes: self
                .nodes
                .keys()
                .filter(|node| spec.selection.has_node(**node))
                .flat_map(|node| self.intake.holes(*node).into_iter().map(|hole| (*node, hole)))
                // What is merely on its way at the end is no gap.
                .filter(|(_, hole)| hole.is_final || hole.to.is_some())
                .collect(),
            expired_until: spec.covered_from,
            simulated: self.config.simulated,
            scratch: self.config.data_dir.join("tmp"),
        }
    }
}
