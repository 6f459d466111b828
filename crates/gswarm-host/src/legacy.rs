//! The earlier Python tools' gRPC service over the same handle.
//!
//! Its streams carry no seq: the host numbers on receipt, so exactly-once does not apply to them.

pub(crate) mod convert;

use std::sync::Arc;
use std::time::Duration;

use gswarm_api::body::{SettingsChange, StartRequest};
use gswarm_api::{ErrorCode, Failure};
use gswarm_core::{ClockOffset, Listed};
use gswarm_types::{
    AllowSet, Body, Incarnation, Micros, NodeName, PeerLink, Record, Table, Values,
};
use gswarm_wire::legacy;
use gswarm_wire::legacy::profiler_service_server::{ProfilerService, ProfilerServiceServer};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status, Streaming};

use crate::caller::Caller;
use crate::handle::Handle;
use crate::http::compat;
use crate::recorder::{Ingest, Join, RecordBatch, ToAgent};
use crate::stream::to_status;

pub(crate) use convert::node_percents;

/// A legacy stream from which nothing comes for this long is dead.
const SILENCE_MAX: Duration = Duration::from_secs(3_700);
/// How long the end of a stream waits for a disk that does not take records.
const STORED_WAIT: Duration = Duration::from_secs(10);
/// The largest message of an old client.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct LegacyService {
    handle: Handle,
}

impl LegacyService {
    pub(crate) fn server(handle: Handle) -> ProfilerServiceServer<Self> {
        ProfilerServiceServer::new(Self { handle }).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// Who calls; the door put it there.
fn caller<T>(request: &Request<T>) -> Caller {
    let known = request.extensions().get::<Caller>().cloned();
    known.unwrap_or_else(|| Caller {
        principal: "nobody".to_owned(),
        role: gswarm_types::Role::Node,
        by: crate::caller::Authority::Place,
        token: None,
    })
}

/// Old clients look at `success`, not at the status.
fn outcome(result: Result<String, Failure>) -> (bool, String) {
    match result {
        Ok(message) => (true, message),
        Err(failure) => (false, failure.message),
    }
}

#[tonic::async_trait]
impl ProfilerService for LegacyService {
    async fn connect(
        &self,
        request: Request<legacy::InitialInfo>,
    ) -> Result<Response<legacy::ConnectResponse>, Status> {
        let info = request.into_inner();
        let message =
            format!("{} with {} GPUs is welcome", info.hostname.escape_debug(), info.gpus.len());
        Ok(Response::new(legacy::ConnectResponse { success: true, message }))
    }

    async fn stream_metrics(
        &self,
        request: Request<Streaming<legacy::MetricsUpdate>>,
    ) -> Result<Response<legacy::Empty>, Status> {
        let mut inbound = request.into_inner();
        let mut stream: Option<LegacyStream> = None;
        let ended = loop {
            let next = tokio::select! {
                next = tokio::time::timeout(SILENCE_MAX, inbound.message()) => next,
                () = self.handle.stop_token().cancelled() => {
                    break Err(Status::unavailable("the host is stopping"));
                },
            };
            let update = match next {
                Ok(Ok(Some(update))) => update,
                Ok(Ok(None)) | Err(_) => break Ok(()),
                Ok(Err(status)) => break Err(status),
            };
            if stream.is_none() {
                match LegacyStream::begin(&self.handle, &update).await {
                    Ok(begun) => stream = Some(begun),
                    Err(failure) => break Err(to_status(&failure)),
                }
            }
            if let Some(stream) = &mut stream
                && let Err(status) = stream.take(&self.handle, &update).await
            {
                break Err(status);
            }
        };
        if let Some(mut stream) = stream {
            stream.stored().await;
            let leave = Ingest::Leave { stream: stream.join.0, node: stream.join.1 };
            let _stopping = self.handle.ingest().send(leave).await;
        }
        ended.map(|()| Response::new(legacy::Empty {}))
    }

    async fn get_status(
        &self,
        request: Request<legacy::Empty>,
    ) -> Result<Response<legacy::StatusResponse>, Status> {
        let caller = caller(&request);
        let status = compat::status(&self.handle, &caller).await.map_err(|f| to_status(&f))?;
        let sessions = serde_json::to_string(&status.active_sessions).unwrap_or_default();
        Ok(Response::new(legacy::StatusResponse {
            freq: i32::try_from(status.freq).unwrap_or(i32::MAX),
            enable_bandwidth_profiling: status.enable_bandwidth_profiling,
            enable_nvlink_profiling: status.enable_nvlink_profiling,
            is_profiling: status.is_profiling,
            output_filename: status.output_filename,
            frame_id_counter: i32::try_from(status.frame_id_counter).unwrap_or(i32::MAX),
            connected_clients: status.connected_clients,
            active_sessions_json: sessions,
        }))
    }

    async fn start_profiling(
        &self,
        request: Request<legacy::StartProfilingRequest>,
    ) -> Result<Response<legacy::StartProfilingResponse>, Status> {
        let caller = caller(&request);
        let request = request.into_inner();
        let start = StartRequest {
            name: (!request.name.is_empty()).then_some(request.name),
            report_metrics: request.report_metrics,
            ..StartRequest::default()
        };
        let started = self.handle.start_session(&caller, start).await;
        let name = started.as_ref().map(|session| session.name.clone()).unwrap_or_default();
        let (success, message) =
            outcome(started.map(|s| format!("profiling session `{}` started", s.name)));
        let output_file = if success { format!("{name}.json") } else { String::new() };
        Ok(Response::new(legacy::StartProfilingResponse { success, message, output_file }))
    }

    async fn stop_profiling(
        &self,
        request: Request<legacy::StopProfilingRequest>,
    ) -> Result<Response<legacy::StopProfilingResponse>, Status> {
        let caller = caller(&request);
        let name = request.into_inner().name;
        let name = (!name.is_empty()).then_some(name);
        let stopped = compat::stop(&self.handle, &caller, name).await;
        let (success, message) = outcome(stopped.map(|stopped| stopped.message));
        Ok(Response::new(legacy::StopProfilingResponse { success, message }))
    }

    async fn exit(
        &self,
        request: Request<legacy::Empty>,
    ) -> Result<Response<legacy::Empty>, Status> {
        let caller = caller(&request);
        self.handle.stop_host(&caller).await.map_err(|failure| to_status(&failure))?;
        Ok(Response::new(legacy::Empty {}))
    }

    async fn read_cluster_status(
        &self,
        request: Request<legacy::Empty>,
    ) -> Result<Response<legacy::ClusterStatusResponse>, Status> {
        let caller = caller(&request);
        let snapshot =
            self.handle.snapshot(&caller).await.map_err(|failure| to_status(&failure))?;
        Ok(Response::new(legacy::ClusterStatusResponse {
            success: true,
            message: format!("{} nodes", snapshot.nodes.len()),
            cluster_id: "gswarm".to_owned(),
            nodes: snapshot.nodes.iter().map(convert::node_status).collect(),
        }))
    }

    async fn read_node_status(
        &self,
        request: Request<legacy::ReadNodeStatusRequest>,
    ) -> Result<Response<legacy::NodeStatusResponse>, Status> {
        let caller = caller(&request);
        let wanted = request.into_inner().node_id;
        let snapshot =
            self.handle.snapshot(&caller).await.map_err(|failure| to_status(&failure))?;
        let node = snapshot.nodes.iter().find(|n| n.name == wanted || n.id.to_string() == wanted);
        Ok(Response::new(match node {
            Some(node) => legacy::NodeStatusResponse {
                success: true,
                message: String::new(),
                node_status: Some(convert::node_status(node)),
            },
            None => legacy::NodeStatusResponse {
                success: false,
                message: "no node of that name is known".to_owned(),
                node_status: None,
            },
        }))
    }

    async fn set_bandwidth_profiling(
        &self,
        request: Request<legacy::SetBandwidthProfilingRequest>,
    ) -> Result<Response<legacy::SetBandwidthProfilingResponse>, Status> {
        let caller = caller(&request);
        let enable_bandwidth = Some(request.into_inner().enable);
        let change = SettingsChange { enable_bandwidth, ..SettingsChange::default() };
        let changed = self.handle.change_settings(&caller, change).await;
        let (success, message) = outcome(changed.map(|_| "done".to_owned()));
        Ok(Response::new(legacy::SetBandwidthProfilingResponse { success, message }))
    }

    async fn set_nv_link_profiling(
        &self,
        request: Request<legacy::SetNvLinkProfilingRequest>,
    ) -> Result<Response<legacy::SetNvLinkProfilingResponse>, Status> {
        let caller = caller(&request);
        let enable_nvlink = Some(request.into_inner().enable);
        let change = SettingsChange { enable_nvlink, ..SettingsChange::default() };
        let changed = self.handle.change_settings(&caller, change).await;
        let (success, message) = outcome(changed.map(|_| "done".to_owned()));
        Ok(Response::new(legacy::SetNvLinkProfilingResponse { success, message }))
    }
}

/// One old client that streams.
struct LegacyStream {
    join: (crate::recorder::StreamId, gswarm_types::NodeId),
    incarnation: Incarnation,
    seq: u64,
    table: Option<Arc<Table>>,
    links: Vec<PeerLink>,
    orders: mpsc::Receiver<ToAgent>,
}

impl LegacyStream {
    async fn begin(handle: &Handle, update: &legacy::MetricsUpdate) -> Result<Self, Failure> {
        let node = convert::node_id(&update.hostname);
        if handle.access().book().member(node).is_some() {
            let message = "a node that has joined speaks for itself";
            return Err(Failure::new(ErrorCode::PermissionDenied, message));
        }
        let stream = handle.new_stream();
        let now = handle.time().now();
        // Unique enough: microseconds of the start and the number of the stream.
        let incarnation = Incarnation(now.0.cast_unsigned().rotate_left(16) ^ stream.0);
        let (outbox, orders) = mpsc::channel(1_024);
        let (reply, answer) = oneshot::channel();
        let join = Join {
            stream,
            node,
            name: NodeName::from_hostname(&update.hostname),
            hostname: update.hostname.chars().take(256).collect(),
            version: "legacy".to_owned(),
            allow: AllowSet::default(),
            simulated: false,
            legacy: true,
            base_period: None,
            incarnation,
            held: vec![Listed { incarnation, oldest_held: 1, last: 0 }],
            clock: None,
            outbox,
            reply,
        };
        let stopping = || Failure::unavailable("the host is stopping");
        handle.ingest().send(Ingest::Join(Box::new(join))).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())??;
        Ok(Self {
            join: (stream, node),
            incarnation,
            seq: 0,
            table: None,
            links: Vec::new(),
            orders,
        })
    }

    /// Waits until the last record is on stable storage: the answer to the stream says so.
    async fn stored(&mut self) {
        while self.seq > 0 {
            match tokio::time::timeout(STORED_WAIT, self.orders.recv()).await {
                Ok(Some(ToAgent::Ack { seq, .. })) if seq >= self.seq => return,
                Ok(Some(_)) => {},
                Ok(None) | Err(_) => return,
            }
        }
    }

    async fn take(
        &mut self,
        handle: &Handle,
        update: &legacy::MetricsUpdate,
    ) -> Result<(), Status> {
        while let Ok(order) = self.orders.try_recv() {
            // Old clients understand no orders; a stream that was replaced ends.
            if let ToAgent::Close(failure) = order {
                return Err(to_status(&failure));
            }
        }
        let (table, cells) = convert::values(update);
        let digest = table.digest();
        let (stream, node) = self.join;
        let stopping = || Status::unavailable("the host is stopping");
        if self.table.as_ref().is_none_or(|known| **known != table) {
            let table = Arc::new(table);
            self.table = Some(table.clone());
            let incarnation = self.incarnation;
            let message = Ingest::Table { node, incarnation, digest, table };
            handle.ingest().send(message).await.map_err(|_| stopping())?;
        }
        let mut bodies = vec![Body::Values(Values { table: digest, cells })];
        let links = convert::links(update);
        if links != self.links {
            bodies.push(Body::Topology(links.clone()));
            self.links = links;
        }
        let wall = update.timestamp.and_then(convert::wall);
        let records = bodies.into_iter().map(|body| self.record(handle, wall, body)).collect();
        let batch = RecordBatch { stream, node, records };
        handle.ingest().send(Ingest::Records(batch)).await.map_err(|_| stopping())
    }

    fn record(
        &mut self,
        handle: &Handle,
        wall: Option<Micros>,
        body: Body,
    ) -> (Record, u32, ClockOffset) {
        self.seq += 1;
        let record = Record {
            incarnation: self.incarnation,
            seq: self.seq,
            mono: handle.time().mono(),
            wall: wall.unwrap_or_else(|| handle.time().now()),
            body,
        };
        let offset = match wall {
            Some(_) => ClockOffset::Wall(Micros::ZERO),
            None => ClockOffset::Receipt,
        };
        (record, 0, offset)
    }
}
