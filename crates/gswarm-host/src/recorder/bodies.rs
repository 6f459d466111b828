//! The recorder's state as the bodies that doors give out.

use std::collections::BTreeMap;

use gswarm_api::body::{
    CheckBody, DeviceBody, EventBody, EventsBody, GapBody, HealthBody, HealthStatus, IngestBody,
    NodeBody, NodeHealth, NodesBody, PeerLinkBody, ProcessBody, RetentionBody, RetentionSegment,
    SessionBody, SessionsBody, SettingsBody, StatusBody, StoreBody,
};
use gswarm_api::{Failure, timestamp};
use gswarm_core::Removal;
use gswarm_store::catalog::SegmentState;
use gswarm_types::{Micros, NodeId, ProcessKind, SessionSpec, SessionState};

use super::Recorder;
use super::message::{Call, SeriesQuery, Snapshot, SnapshotNode};
use super::node::Node;
use super::sessions::{moment, refuse};
use crate::live::{LiveEvent, NodeValues};

/// Events in one answer.
const EVENTS_SHOWN_MAX: usize = 1_000;
/// Time that must have passed before growth is extrapolated.
const GROWTH_AFTER: Micros = Micros::from_secs(60);

impl Recorder {
    pub(super) async fn call(&mut self, call: Call) {
        // Whoever asked may have gone: every send may fail and that is fine.
        match call {
            Call::Status(reply) => drop(reply.send(self.status_body())),
            Call::Health(reply) => drop(reply.send(self.health_body())),
            Call::Nodes(reply) => drop(reply.send(self.nodes_body())),
            Call::Node(name, reply) => drop(reply.send(self.node_by_name(&name))),
            Call::Disconnect(node, reply) => {
                self.disconnect(node);
                let _gone = reply.send(());
            },
            Call::Event { node, kind, severity, message, reply } => {
                self.event(node, kind, severity, message);
                let _gone = reply.send(());
            },
            Call::Snapshot(reply) => drop(reply.send(self.snapshot())),
            Call::Events { since, reply } => drop(reply.send(self.events_body(since.as_deref()))),
            Call::Sessions(reply) => drop(reply.send(self.sessions_body())),
            Call::Session(key, reply) => {
                let found = self.book.find(&key).map_err(refuse);
                drop(reply.send(found.map(|spec| self.session_body(spec))));
            },
            Call::Start(request, caller, reply) => {
                let started = self.start_session(*request, &caller).await;
                drop(reply.send(started));
            },
            Call::Capture(request, caller, reply) => self.capture(*request, &caller, reply).await,
            Call::Stop(key, request, reply) => self.stop_session(&key, request, reply).await,
            Call::StopAll(caller, request, reply) => {
                self.stop_all(&caller, request, reply).await;
            },
            Call::Delete(key, reply) => drop(reply.send(self.delete_session(&key).await)),
            Call::Settings(reply) => drop(reply.send(self.settings_body())),
            Call::ChangeSettings(change, reply) => {
                drop(reply.send(self.change_settings(&change)));
            },
            Call::Retention(reply) => drop(reply.send(self.retention_body())),
            Call::ExportInput(key, reply) => {
                let found = self.book.find(&key).map_err(refuse);
                drop(reply.send(found.map(|spec| self.export_input(spec))));
            },
            Call::Series { nodes, reply } => {
                let resolved = self.resolve(nodes.as_deref());
                drop(reply.send(resolved.map(|nodes| self.series_query(nodes))));
            },
            Call::Exported(id, exported) => self.exported(id, exported).await,
            Call::Damaged(meta, damage) => self.damaged_lines(&meta, &damage),
            Call::Unreadable(segment, reply) => self.unreadable(segment, reply),
            Call::Surveyed(survey) => self.surveyed(&survey),
            Call::StopHost(reply) => {
                self.stop_wish.send_replace(true);
                let _gone = reply.send(());
            },
        }
    }

    fn status_body(&self) -> StatusBody {
        let healthy = self.nodes.values().filter(|n| self.node_health(n) == NodeHealth::Healthy);
        StatusBody {
            version: self.config.version.clone(),
            storage_id: self.storage.to_string(),
            simulated: self.config.simulated,
            insecure: self.config.access.insecure,
            started_at: timestamp::rfc3339(self.started),
            now: timestamp::rfc3339(self.time.now()),
            addresses: self.config.addresses.clone(),
            data_dir: self.config.data_dir.to_string_lossy().into_owned(),
            output_dir: self.config.output_dir.to_string_lossy().into_owned(),
            settings: self.settings_body(),
            nodes_total: count(self.nodes.len()),
            nodes_healthy: count(healthy.count()),
            gpus_total: count(self.nodes.values().map(Node::gpu_count).sum()),
            sessions_active: count(self.book.open().count()),
            health: self.health_body().status,
            ingest: IngestBody {
                records_stored: self.counters.stored,
                records_duplicate: self.counters.duplicate,
                records_rejected: self.counters.rejected,
                commits: self.counters.commits,
                commit_failures: self.counters.commit_failures,
            },
            store: self.store_body(),
        }
    }

    pub(super) fn settings_body(&self) -> SettingsBody {
        SettingsBody {
            base_period_ms: self.settings.base_period.millis(),
            session_period_ms: self.settings.session_period.millis(),
            enable_bandwidth: self.settings.bandwidth,
            enable_nvlink: self.settings.nvlink,
        }
    }

    fn store_body(&self) -> StoreBody {
        let segments = self.reader.catalog().segments();
        let sealed = segments.iter().filter(|meta| meta.state == SegmentState::Sealed).count();
        let up = self.time.now() - self.started;
        let kept_bytes: u64 = segments.iter().map(|meta| meta.bytes).sum();
        let kept_for = self.reader.catalog().oldest().map(|oldest| self.started - oldest);
        // What came in since the start; right after it, what is kept over the time it covers.
        let per_day = per_day(self.counters.bytes, up)
            .or_else(|| kept_for.and_then(|span| per_day(kept_bytes, span)));
        StoreBody {
            segments: segments.len() as u64,
            segments_sealed: sealed as u64,
            bytes: kept_bytes,
            budget_bytes: self.config.retention.budget_bytes,
            retention_hours: u64::try_from(self.config.retention.keep.0 / 3_600_000_000)
                .unwrap_or(0),
            oldest: self.reader.catalog().oldest().map(timestamp::rfc3339),
            bytes_per_day: per_day,
            quarantined_files: self.quarantined,
        }
    }

    pub(super) fn health_body(&self) -> HealthBody {
        let mut checks = vec![match &self.trouble {
            Some(message) => check("journal", HealthStatus::Unavailable, message.clone()),
            None => check("journal", HealthStatus::Ok, "takes records".to_owned()),
        }];
        let silent = self.nodes.values().filter(|n| self.node_health(n) == NodeHealth::Unhealthy);
        let silent: Vec<String> = silent.map(|node| node.name.to_string()).collect();
        checks.push(if silent.is_empty() {
            check("nodes", HealthStatus::Ok, "every known node delivers".to_owned())
        } else {
            check("nodes", HealthStatus::Degraded, format!("silent: {}", silent.join(", ")))
        });
        checks.push(if self.over_budget {
            let message = "sessions pin more than the budget: delete or export some".to_owned();
            check("retention", HealthStatus::Degraded, message)
        } else {
            check("retention", HealthStatus::Ok, "within the budget".to_owned())
        });
        checks.push(if self.unreadable_sessions.is_empty() {
            check("sessions", HealthStatus::Ok, "every session can be read".to_owned())
        } else {
            let message = format!(
                "{} session files cannot be read: nothing is removed while there is room",
                self.unreadable_sessions.len()
            );
            check("sessions", HealthStatus::Degraded, message)
        });
        checks.push(if self.quarantined > 0 {
            let message = format!("{} damaged places were set aside", self.quarantined);
            check("recording", HealthStatus::Degraded, message)
        } else {
            check("recording", HealthStatus::Ok, "no damage found".to_owned())
        });
        let worst = |status| checks.iter().any(|check: &CheckBody| check.status == status);
        let status = if worst(HealthStatus::Unavailable) {
            HealthStatus::Unavailable
        } else if worst(HealthStatus::Degraded) {
            HealthStatus::Degraded
        } else {
            HealthStatus::Ok
        };
        HealthBody { status, version: self.config.version.clone(), checks }
    }

    fn node_health(&self, node: &Node) -> NodeHealth {
        match self.health.is_healthy(node.id) {
            None => NodeHealth::Unseen,
            Some(_) if self.health.is_stopped(node.id) => NodeHealth::Stopped,
            Some(true) => NodeHealth::Healthy,
            Some(false) => NodeHealth::Unhealthy,
        }
    }

    fn nodes_body(&self) -> NodesBody {
        let mut nodes: Vec<NodeBody> = self.nodes.values().map(|n| self.node_body(n)).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        NodesBody { nodes, waiting: Vec::new(), silent_members: Vec::new() }
    }

    fn node_by_name(&self, name: &str) -> Result<NodeBody, Failure> {
        let by_id = name.parse::<NodeId>().ok();
        let node = self.nodes.values().find(|n| n.name.as_str() == name || Some(n.id) == by_id);
        node.map(|node| self.node_body(node)).ok_or_else(|| {
            let name: String = name.chars().take(160).flat_map(char::escape_debug).collect();
            Failure::not_found(format!("no node is called `{name}`: `gswarm nodes` lists them"))
                .because("NODE_NOT_FOUND")
        })
    }

    fn node_body(&self, node: &Node) -> NodeBody {
        let silence = self.health.silence(node.id, self.time.mono());
        let spool = node.latest.as_deref().and_then(|latest| value_of(latest, "spool_records"));
        NodeBody {
            name: node.name.to_string(),
            node_id: node.id.to_string(),
            hostname: node.hostname.clone(),
            health: self.node_health(node),
            connected: node.stream.is_some(),
            agent_version: node.version.clone(),
            legacy: node.legacy,
            simulated: node.simulated,
            member: false,
            allow: node.allow.iter().map(|allow| allow.as_str().to_owned()).collect(),
            silent_seconds: silence.map(Micros::as_secs_f64),
            last_seen: node.last_seen.map(timestamp::rfc3339),
            clock_offset_us: node.clock.map(|clock| -clock.wall_offset.0),
            clock_error_us: node.clock.map(|clock| clock.error.0),
            period_ms: node.period.millis(),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            spool_records: spool.map(|value| value as u64),
            records_stored: node.stored,
            commands_refused: node.commands_refused,
            devices: node.latest.as_deref().map_or_else(Vec::new, device_bodies),
            processes: processes(node),
            peer_links: links(node),
            gaps: self.gaps(node),
        }
    }

    fn gaps(&self, node: &Node) -> Vec<GapBody> {
        self.intake
            .holes(node.id)
            .into_iter()
            .filter(|hole| hole.is_final)
            .map(|hole| GapBody {
                node: node.name.to_string(),
                node_id: node.id.to_string(),
                incarnation: hole.incarnation.to_string(),
                first_seq: hole.first,
                last_seq: hole.last,
                records: hole.records(),
                reason: hole.reason.as_str().to_owned(),
                from: hole.from.map(timestamp::rfc3339),
                to: hole.to.map(timestamp::rfc3339),
                is_final: hole.is_final,
            })
            .collect()
    }

    fn snapshot(&self) -> Snapshot {
        let mut nodes: Vec<SnapshotNode> = self
            .nodes
            .values()
            .map(|node| SnapshotNode {
                name: node.name.to_string(),
                id: node.id,
                hostname: node.hostname.clone(),
                health: self.node_health(node),
                connected: node.stream.is_some(),
                simulated: node.simulated,
                latest: node.latest.clone(),
                topology: node.topology.clone(),
            })
            .collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Snapshot { now: self.time.now(), nodes }
    }

    fn events_body(&self, since: Option<&str>) -> Result<EventsBody, Failure> {
        let since = since.map(|text| moment(text, self.time.now())).transpose()?;
        let wanted = self.events.iter().filter(|event| since.is_none_or(|t| event.time >= t));
        let all: Vec<EventBody> = wanted.map(event_body).collect();
        let skip = all.len().saturating_sub(EVENTS_SHOWN_MAX);
        Ok(EventsBody { events: all.into_iter().skip(skip).collect() })
    }

    fn sessions_body(&self) -> SessionsBody {
        SessionsBody { sessions: self.book.iter().map(|spec| self.session_body(spec)).collect() }
    }

    pub(super) fn session_body(&self, spec: &SessionSpec) -> SessionBody {
        let until = spec.until.unwrap_or_else(|| self.time.now());
        let frames = (until - spec.from).0.max(0) / spec.period.micros().0.max(1);
        let covered = spec.covered_from.unwrap_or(spec.from);
        SessionBody {
            id: spec.id.to_string(),
            name: spec.name.to_string(),
            active: spec.state == SessionState::Active,
            created: timestamp::rfc3339(spec.created),
            from: timestamp::rfc3339(spec.from),
            until: spec.until.map(timestamp::rfc3339),
            stop_at: spec.stop_at.map(timestamp::rfc3339),
            covered_from: Some(timestamp::rfc3339(covered)),
            freq: spec.period.millis(),
            enable_bandwidth: spec.bandwidth,
            enable_nvlink: spec.nvlink,
            report_metrics: spec.extra_metrics.clone(),
            nodes: spec
                .selection
                .nodes
                .as_ref()
                .map(|nodes| nodes.iter().map(|node| self.node_name(*node)).collect()),
            gpus: spec.selection.gpus.clone(),
            user: spec.selection.user.clone(),
            job: spec.selection.job.clone().map(String::from),
            owner: spec.owner.clone(),
            tags: spec.tags.clone(),
            note: spec.note.clone(),
            revision: spec.revision,
            incomplete_nodes: spec.incomplete.iter().map(|node| self.node_name(*node)).collect(),
            output_file: spec.output_file.clone(),
            frame_count: u64::try_from(frames).unwrap_or(0),
            simulated: self.config.simulated,
        }
    }

    fn retention_body(&self) -> RetentionBody {
        let (plan, segments) = self.retention_plan(self.time.now());
        let row = |removal: &Removal| {
            let meta = segments.iter().find(|meta| meta.number == removal.number)?;
            Some(RetentionSegment {
                segment: meta.number,
                bytes: meta.bytes,
                first: meta.first_time.map(timestamp::rfc3339),
                last: meta.last_time.map(timestamp::rfc3339),
                reason: removal.reason.as_str().to_owned(),
            })
        };
        RetentionBody {
            budget_bytes: self.config.retention.budget_bytes,
            bytes: self.reader.catalog().bytes(),
            pinned_bytes: plan.bytes_pinned,
            remove: plan.remove.iter().filter_map(row).collect(),
            trim: plan.trim.iter().filter_map(row).collect(),
        }
    }

    fn series_query(&self, nodes: Option<Vec<NodeId>>) -> SeriesQuery {
        SeriesQuery {
            nodes,
            names: self.nodes.values().map(|node| (node.id, node.name.to_string())).collect(),
        }
    }
}

/// Bytes a day; `None` over too short a time.
fn per_day(bytes: u64, span: Micros) -> Option<u64> {
    if span < GROWTH_AFTER {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let per_second = bytes as f64 / span.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
    let day = (per_second * 86_400.0) as u64;
    Some(day)
}

fn check(name: &str, status: HealthStatus, message: String) -> CheckBody {
    CheckBody { name: name.to_owned(), status, message }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(crate) fn event_body(event: &LiveEvent) -> EventBody {
    EventBody {
        time: timestamp::rfc3339(event.time),
        node: event.node.clone(),
        kind: event.event.kind.as_str().to_owned(),
        severity: match event.event.severity {
            gswarm_types::Severity::Info => "info",
            gswarm_types::Severity::Warning => "warning",
            gswarm_types::Severity::Error => "error",
        }
        .to_owned(),
        device: event.event.device.as_ref().map(|device| device.0.clone()),
        code: event.event.code,
        message: event.event.message.clone(),
    }
}

/// The latest value of a metric that a node has once.
pub(crate) fn value_of(values: &NodeValues, metric: &str) -> Option<f64> {
    let place = values.table.columns.iter().position(|column| column.metric.as_str() == metric)?;
    values.cells.get(place).copied().flatten()
}

pub(crate) fn device_bodies(values: &NodeValues) -> Vec<DeviceBody> {
    let mut devices: Vec<DeviceBody> = values
        .table
        .devices
        .iter()
        .map(|info| DeviceBody {
            id: info.id.0.clone(),
            scope: info.scope.as_str().to_owned(),
            index: info.index,
            name: info.name.clone(),
            simulated: info.simulated,
            values: BTreeMap::new(),
        })
        .collect();
    for (column, cell) in values.table.columns.iter().zip(&values.cells) {
        let device = usize::try_from(column.device).ok().and_then(|at| devices.get_mut(at));
        if let Some(device) = device {
            device.values.insert(column.metric.to_string(), *cell);
        }
    }
    devices
}

fn gpu_index(node: &Node, position: u32) -> Option<u32> {
    let table = &node.latest.as_ref()?.table;
    table.devices.get(usize::try_from(position).ok()?).map(|info| info.index)
}

fn processes(node: &Node) -> Vec<ProcessBody> {
    let rows = node.processes.iter().filter_map(|row| {
        Some(ProcessBody {
            gpu_index: gpu_index(node, row.device)?,
            pid: row.pid,
            name: row.name.clone(),
            user: row.user.clone(),
            job: row.job.clone(),
            memory_bytes: row.memory_bytes,
            kind: match row.kind {
                ProcessKind::Compute => "compute",
                ProcessKind::Graphics => "graphics",
            }
            .to_owned(),
        })
    });
    rows.collect()
}

fn links(node: &Node) -> Vec<PeerLinkBody> {
    let rows = node.topology.iter().filter_map(|link| {
        Some(PeerLinkBody {
            gpu_index: gpu_index(node, link.device)?,
            remote_gpu_index: link.remote.and_then(|remote| gpu_index(node, remote)),
            kind: link.kind.as_str().to_owned(),
            links: link.links,
            bytes_per_second_max: link.bytes_per_second_max,
        })
    });
    rows.collect()
}
