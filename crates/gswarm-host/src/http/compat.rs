//! The paths and fields of the earlier tools, over the same handle.
//!
//! They answered 200 with `success: false` on failure; here the status is right and `success` and
//! `message` stay in the body beside the error envelope.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gswarm_api::body::{SessionBody, StartRequest, StoppedBody};
use gswarm_api::{ErrorBody, ErrorDetail, Failure, timestamp};
use gswarm_types::Scope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{Answer, JsonBody, Refusal, envelope};
use super::door::By;
use crate::caller::Caller;
use crate::handle::Handle;
use crate::legacy::node_percents;
use crate::live::NodeValues;
use crate::recorder::SnapshotNode;

const GIGA: f64 = 1e9;

/// `GET /status`
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OldStatus {
    pub(crate) freq: i64,
    pub(crate) enable_bandwidth_profiling: bool,
    pub(crate) enable_nvlink_profiling: bool,
    pub(crate) is_profiling: bool,
    pub(crate) output_filename: String,
    pub(crate) frame_id_counter: u64,
    pub(crate) connected_clients: Vec<String>,
    pub(crate) total_gpus: usize,
    pub(crate) gpu_info: BTreeMap<String, Vec<OldGpu>>,
    pub(crate) active_sessions: Vec<OldSession>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OldGpu {
    id: String,
    name: String,
    physical_idx: u32,
    hostname: String,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OldSession {
    session_id: String,
    name: String,
    is_active: bool,
    start_time: String,
    end_time: Option<String>,
    frame_count: u64,
    output_file: String,
}

/// `GET /profiling/sessions`
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OldSessions {
    total_sessions: usize,
    active_sessions: usize,
    sessions: Vec<OldSession>,
}

/// `GET /clients`
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OldClients {
    total_clients: usize,
    clients: Vec<OldClient>,
}

#[derive(Debug, Serialize, ToSchema)]
struct OldClient {
    client_id: String,
    hostname: String,
    gpu_count: usize,
    gpus: Vec<OldGpu>,
    healthy: bool,
}

/// `GET /metrics/latest`
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OldLatest {
    timestamp: String,
    client_data: BTreeMap<String, OldClientData>,
}

#[derive(Debug, Serialize, ToSchema)]
struct OldClientData {
    timestamp: String,
    gpus_metrics: Vec<OldGpuMetric>,
    p2p_links: Vec<OldLink>,
    system_metrics: OldSystem,
}

#[derive(Debug, Serialize, ToSchema)]
struct OldGpuMetric {
    physical_idx: u32,
    name: String,
    /// Percent.
    gpu_util: Option<f64>,
    /// Percent.
    mem_util: Option<f64>,
    /// GB/s.
    dram_bw_gbps_rx: Option<f64>,
    dram_bw_gbps_tx: Option<f64>,
    nvlink_bw_gbps_rx: Option<f64>,
    nvlink_bw_gbps_tx: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct OldLink {
    local_gpu_physical_id: u32,
    local_gpu_name: String,
    /// `null` when the other end is an NVSwitch.
    remote_gpu_physical_id: Option<u32>,
    remote_gpu_name: String,
    r#type: String,
    aggregated_max_bandwidth_gbps: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct OldSystem {
    dram_util: Option<f64>,
    disk_util: Option<f64>,
}

/// `POST /profiling/start`
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct OldStart {
    name: Option<String>,
    report_metrics: Option<Vec<String>>,
    /// Milliseconds between samples.
    freq: Option<i64>,
}

/// `POST /profiling/stop`
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct OldStop {
    name: Option<String>,
}

/// What start and stop answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OldOutcome {
    pub(crate) success: bool,
    pub(crate) message: String,
    pub(crate) output_file: Option<String>,
    /// The files of all sessions that were stopped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) output_files: Vec<String>,
}

/// A failure with the old fields beside the envelope.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OldFailure {
    success: bool,
    message: String,
    output_file: Option<String>,
    error: ErrorDetail,
}

fn refuse(failure: Failure) -> Response {
    let message = failure.message.clone();
    let (status, body) = envelope(failure);
    let body = OldFailure { success: false, message, output_file: None, error: body.error };
    (status, Json(body)).into_response()
}

fn old_gpus(node: &SnapshotNode) -> Vec<OldGpu> {
    let Some(values) = node.latest.as_deref() else { return Vec::new() };
    let gpus = values.table.devices_of(Scope::Gpu).map(|(_, info)| OldGpu {
        id: format!("{}:{}:{}", node.name, info.index, info.name),
        name: info.name.clone(),
        physical_idx: info.index,
        hostname: node.hostname.clone(),
    });
    gpus.collect()
}

fn old_session(session: &SessionBody) -> OldSession {
    OldSession {
        session_id: session.id.clone(),
        name: session.name.clone(),
        is_active: session.active,
        start_time: session.from.clone(),
        end_time: session.until.clone(),
        frame_count: session.frame_count,
        output_file: output_name(session),
    }
}

fn output_name(session: &SessionBody) -> String {
    session.output_file.clone().unwrap_or_else(|| format!("{}.json", session.name))
}

pub(crate) async fn status(handle: &Handle, caller: &Caller) -> Result<OldStatus, Failure> {
    let settings = handle.settings(caller).await?;
    let sessions = handle.sessions(caller).await?.sessions;
    let snapshot = handle.snapshot(caller).await?;
    let active: Vec<&SessionBody> = sessions.iter().filter(|session| session.active).collect();
    let connected: Vec<&SnapshotNode> = snapshot.nodes.iter().filter(|n| n.connected).collect();
    let gpu_info: BTreeMap<String, Vec<OldGpu>> =
        connected.iter().map(|node| (node.name.clone(), old_gpus(node))).collect();
    Ok(OldStatus {
        freq: settings.session_period_ms,
        enable_bandwidth_profiling: settings.enable_bandwidth,
        enable_nvlink_profiling: settings.enable_nvlink,
        is_profiling: !active.is_empty(),
        output_filename: active.last().map(|session| output_name(session)).unwrap_or_default(),
        frame_id_counter: active.iter().map(|session| session.frame_count).max().unwrap_or(0),
        connected_clients: connected.iter().map(|node| node.name.clone()).collect(),
        total_gpus: gpu_info.values().map(Vec::len).sum(),
        gpu_info,
        active_sessions: active.into_iter().map(old_session).collect(),
    })
}

/// State as the earlier tools showed it
#[utoipa::path(get, path = "/status", operation_id = "old_status", responses(
    (status = 200, body = OldStatus), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn get_status(State(handle): State<Handle>, By(caller): By) -> Answer<OldStatus> {
    Ok(Json(status(&handle, &caller).await?))
}

/// Connected nodes and their GPUs
#[utoipa::path(get, path = "/clients", operation_id = "old_clients", responses(
    (status = 200, body = OldClients), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn get_clients(
    State(handle): State<Handle>,
    By(caller): By,
) -> Answer<OldClients> {
    let snapshot = handle.snapshot(&caller).await?;
    let connected = snapshot.nodes.iter().filter(|node| node.connected);
    let clients: Vec<OldClient> = connected
        .map(|node| {
            let gpus = old_gpus(node);
            OldClient {
                client_id: node.name.clone(),
                hostname: node.hostname.clone(),
                gpu_count: gpus.len(),
                gpus,
                healthy: node.health == gswarm_api::body::NodeHealth::Healthy,
            }
        })
        .collect();
    Ok(Json(OldClients { total_clients: clients.len(), clients }))
}

/// Latest values of every connected node
#[utoipa::path(get, path = "/metrics/latest", operation_id = "old_latest_metrics", responses(
    (status = 200, body = OldLatest), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn get_latest(State(handle): State<Handle>, By(caller): By) -> Answer<OldLatest> {
    let snapshot = handle.snapshot(&caller).await?;
    let data = snapshot.nodes.iter().filter_map(|node| {
        let values = node.latest.as_deref()?;
        Some((node.name.clone(), client_data(node, values)))
    });
    Ok(Json(OldLatest { timestamp: timestamp::rfc3339(snapshot.now), client_data: data.collect() }))
}

fn client_data(node: &SnapshotNode, values: &NodeValues) -> OldClientData {
    let gpus = values.table.devices_of(Scope::Gpu).map(|(position, info)| {
        let get = |metric: &str| {
            let place = values.table.position(position, metric)?;
            values.cells.get(place).copied().flatten()
        };
        let gigabytes = |metric: &str| get(metric).map(|value| value / GIGA);
        let memory = match (get("memory_used_bytes"), get("memory_total_bytes")) {
            (Some(used), Some(total)) if total > 0.0 => Some(used / total * 100.0),
            _ => get("memory_used_percent"),
        };
        OldGpuMetric {
            physical_idx: info.index,
            name: info.name.clone(),
            gpu_util: get("gpu_utilization"),
            mem_util: memory,
            dram_bw_gbps_rx: gigabytes("pcie_rx_bytes_per_second"),
            dram_bw_gbps_tx: gigabytes("pcie_tx_bytes_per_second"),
            nvlink_bw_gbps_rx: gigabytes("nvlink_rx_bytes_per_second"),
            nvlink_bw_gbps_tx: gigabytes("nvlink_tx_bytes_per_second"),
        }
    });
    let gpu =
        |position: u32| usize::try_from(position).ok().and_then(|at| values.table.devices.get(at));
    let links = node.topology.iter().filter_map(|link| {
        #[expect(clippy::cast_precision_loss, reason = "a bandwidth")]
        let gigabytes = link.bytes_per_second_max.map(|bytes| bytes as f64 / GIGA);
        let local = gpu(link.device)?;
        let remote = link.remote.and_then(gpu);
        Some(OldLink {
            local_gpu_physical_id: local.index,
            local_gpu_name: local.name.clone(),
            remote_gpu_physical_id: remote.map(|info| info.index),
            remote_gpu_name: remote.map_or_else(|| "nvswitch".to_owned(), |info| info.name.clone()),
            r#type: link.kind.as_str().to_owned(),
            aggregated_max_bandwidth_gbps: gigabytes,
        })
    });
    let (dram_util, disk_util) = node_percents(values);
    OldClientData {
        timestamp: timestamp::rfc3339(values.time),
        gpus_metrics: gpus.collect(),
        p2p_links: links.collect(),
        system_metrics: OldSystem { dram_util, disk_util },
    }
}

/// All sessions
#[utoipa::path(get, path = "/profiling/sessions", operation_id = "old_sessions", responses(
    (status = 200, body = OldSessions), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn get_sessions(
    State(handle): State<Handle>,
    By(caller): By,
) -> Answer<OldSessions> {
    let sessions = handle.sessions(&caller).await?.sessions;
    Ok(Json(OldSessions {
        total_sessions: sessions.len(),
        active_sessions: sessions.iter().filter(|session| session.active).count(),
        sessions: sessions.iter().map(old_session).collect(),
    }))
}

/// Start a session
#[utoipa::path(post, path = "/profiling/start", operation_id = "old_start", request_body(content = Option<OldStart>), responses(
    (status = 200, body = OldOutcome), (status = "4XX", body = OldFailure), (status = "5XX", body = OldFailure)))]
pub(super) async fn post_start(
    State(handle): State<Handle>,
    By(caller): By,
    body: Result<JsonBody<OldStart>, Refusal>,
) -> Response {
    let JsonBody(request) = match body {
        Ok(body) => body,
        Err(refusal) => return refuse(refusal.0),
    };
    let start = StartRequest {
        name: request.name,
        report_metrics: request.report_metrics.unwrap_or_default(),
        freq: request.freq,
        ..StartRequest::default()
    };
    match handle.start_session(&caller, start).await {
        Ok(session) => Json(OldOutcome {
            success: true,
            message: format!("profiling session `{}` started", session.name),
            output_file: Some(output_name(&session)),
            output_files: Vec::new(),
        })
        .into_response(),
        Err(failure) => refuse(failure),
    }
}

/// Stop one session, or all of them when no name is given
#[utoipa::path(post, path = "/profiling/stop", operation_id = "old_stop", request_body(content = Option<OldStop>), responses(
    (status = 200, body = OldOutcome), (status = "4XX", body = OldFailure), (status = "5XX", body = OldFailure)))]
pub(super) async fn post_stop(
    State(handle): State<Handle>,
    By(caller): By,
    body: Result<JsonBody<OldStop>, Refusal>,
) -> Response {
    let JsonBody(request) = match body {
        Ok(body) => body,
        Err(refusal) => return refuse(refusal.0),
    };
    match stop(&handle, &caller, request.name).await {
        Ok(outcome) => Json(outcome).into_response(),
        Err(failure) => refuse(failure),
    }
}

pub(crate) async fn stop(
    handle: &Handle,
    caller: &Caller,
    name: Option<String>,
) -> Result<OldOutcome, Failure> {
    let stopped: Vec<StoppedBody> = match name {
        Some(name) => vec![handle.stop_session(caller, name, None).await?],
        None => handle.stop_all(caller, None).await?.stopped,
    };
    let names: Vec<String> =
        stopped.iter().map(|body| format!("`{}`", body.session.name)).collect();
    let mut message = if names.is_empty() {
        "no session was running".to_owned()
    } else {
        format!("stopped {}", names.join(", "))
    };
    // The old body has no other place that says why there is no file.
    for note in stopped.iter().filter_map(|body| body.export_note.as_deref()) {
        message.push_str("; ");
        message.push_str(note);
    }
    let files: Vec<String> =
        stopped.iter().filter_map(|body| body.session.output_file.clone()).collect();
    Ok(OldOutcome {
        success: true,
        message,
        output_file: files.first().cloned(),
        output_files: files,
    })
}
