//! The only way in: every door calls these methods, each with the caller it speaks for.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gswarm_api::body::{
    CaptureRequest, EventsBody, HealthBody, LatestBody, LatestNode, NodeBody, NodesBody,
    RetentionBody, SeriesBody, SessionBody, SessionsBody, SettingsBody, SettingsChange,
    StartRequest, StatusBody, StopBody, StoppedBody, StoppingBody,
};
use gswarm_api::{ErrorCode, Failure, timestamp};
use gswarm_store::export::{self, ExportFormat, ExportInput};
use gswarm_store::reader::Reader;
use gswarm_types::{SessionId, SessionName};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::caller::{Caller, Role};
use crate::clock::HostTime;
use crate::live::{Happening, Live};
use crate::recorder::{Call, Ingest, Snapshot, StreamId};

mod file;
mod members;
mod series;

pub(crate) use series::SeriesRequest;

/// Pieces of an export that may wait for a slow reader.
const EXPORT_PIECES_MAX: usize = 8;
const EXPORT_PIECE_BYTES: usize = 64 * 1024;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    inner: Arc<Inner>,
    streams: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) calls: mpsc::Sender<Call>,
    pub(crate) ingest: mpsc::Sender<Ingest>,
    pub(crate) reader: Reader,
    pub(crate) time: HostTime,
    pub(crate) live: Live,
    pub(crate) stop_wished: watch::Receiver<bool>,
    pub(crate) give_back: fn(),
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) version: String,
    pub(crate) simulated: bool,
    pub(crate) access: Arc<Access>,
}

/// An export on its way.
#[derive(Debug)]
pub struct ExportStream {
    pub name: String,
    pub size_estimate: u64,
    /// An error is the last piece; without one the export is complete.
    pub pieces: mpsc::Receiver<io::Result<Bytes>>,
}

impl Handle {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), streams: Arc::new(AtomicU64::new(1)) }
    }

    async fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Result<T, Failure> {
        let (reply, answer) = oneshot::channel();
        let stopping = || Failure::unavailable("the host is stopping");
        self.inner.calls.send(call(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }

    pub async fn status(&self, caller: &Caller) -> Result<StatusBody, Failure> {
        need(caller, Role::Viewer)?;
        self.ask(Call::Status).await
    }

    pub async fn health(&self, caller: &Caller) -> Result<HealthBody, Failure> {
        need(caller, Role::Viewer)?;
        self.ask(Call::Health).await
    }

    pub async fn nodes(&self, caller: &Caller) -> Result<NodesBody, Failure> {
        need(caller, Role::Viewer)?;
        Ok(self.with_members(self.ask(Call::Nodes).await?))
    }

    pub async fn node(&self, caller: &Caller, name: String) -> Result<NodeBody, Failure> {
        need(caller, Role::Viewer)?;
        let node = self.ask(|reply| Call::Node(name, reply)).await??;
        let mut body = self.with_members(NodesBody {
            nodes: vec![node],
            waiting: Vec::new(),
            silent_members: Vec::new(),
        });
        body.nodes.pop().ok_or_else(|| Failure::internal("the node is gone"))
    }

    pub async fn latest(&self, caller: &Caller) -> Result<LatestBody, Failure> {
        let snapshot = self.snapshot(caller).await?;
        let nodes = snapshot.nodes.iter().filter_map(|node| {
            let latest = node.latest.as_deref()?;
            Some(LatestNode {
                node: node.name.clone(),
                node_id: node.id.to_string(),
                time: timestamp::rfc3339(latest.time),
                devices: crate::recorder::device_bodies(latest),
            })
        });
        Ok(LatestBody { time: timestamp::rfc3339(snapshot.now), nodes: nodes.collect() })
    }

    pub(crate) async fn snapshot(&self, caller: &Caller) -> Result<Snapshot, Failure> {
        need(caller, Role::Viewer)?;
        self.ask(Call::Snapshot).await
    }

    pub async fn events(
        &self,
        caller: &Caller,
        since: Option<String>,
    ) -> Result<EventsBody, Failure> {
        need(caller, Role::Viewer)?;
        self.ask(|reply| Call::Events { since, reply }).await?
    }

    pub async fn sessions(&self, caller: &Caller) -> Result<SessionsBody, Failure> {
        need(caller, Role::Viewer)?;
        self.ask(Call::Sessions).await
    }

    pub async fn session(&self, caller: &Caller, key: String) -> Result<SessionBody, Failure> {
        need(caller, Role::Viewer)?;
        check_key(&key)?;
        self.ask(|reply| Call::Session(key, reply)).await?
    }

    pub async fn start_session(
        &self,
        caller: &Caller,
        request: StartRequest,
    ) -> Result<SessionBody, Failure> {
        need(caller, Role::Local)?;
        let caller = caller.clone();
        self.ask(|reply| Call::Start(Box::new(request), caller, reply)).await?
    }

    pub async fn capture(
        &self,
        caller: &Caller,
        request: CaptureRequest,
    ) -> Result<StoppedBody, Failure> {
        need(caller, Role::Local)?;
        let caller = caller.clone();
        let stopped = self.ask(|reply| Call::Capture(Box::new(request), caller, reply)).await??;
        self.look_for_file(None, stopped).await
    }

    /// The same request again gives the result of what it stopped.
    pub async fn stop_session(
        &self,
        caller: &Caller,
        key: String,
        request: Option<String>,
    ) -> Result<StoppedBody, Failure> {
        need(caller, Role::Local)?;
        check_key(&key)?;
        let asked = key.clone();
        let stopped = self.ask(|reply| Call::Stop(asked, request, reply)).await??;
        self.look_for_file(Some(key), stopped).await
    }

    /// Repeated requests are answered from the book; the disk may have changed since.
    async fn look_for_file(
        &self,
        key: Option<String>,
        stopped: StoppedBody,
    ) -> Result<StoppedBody, Failure> {
        let disk = self.inner.reader.disk().clone();
        let look = move || file::look_for(disk.as_ref(), key.as_deref(), stopped);
        let looked = tokio::task::spawn_blocking(look).await;
        looked.map_err(|_| Failure::internal("the look for the file ended badly"))
    }

    pub async fn stop_all(
        &self,
        caller: &Caller,
        request: Option<String>,
    ) -> Result<StopBody, Failure> {
        need(caller, Role::Local)?;
        let caller = caller.clone();
        self.ask(|reply| Call::StopAll(caller, request, reply)).await?
    }

    pub async fn delete_session(
        &self,
        caller: &Caller,
        key: String,
    ) -> Result<SessionBody, Failure> {
        need(caller, Role::Operator)?;
        check_key(&key)?;
        self.ask(|reply| Call::Delete(key, reply)).await?
    }

    pub async fn settings(&self, caller: &Caller) -> Result<SettingsBody, Failure> {
        need(caller, Role::Viewer)?;
        self.ask(Call::Settings).await
    }

    pub async fn change_settings(
        &self,
        caller: &Caller,
        change: SettingsChange,
    ) -> Result<SettingsBody, Failure> {
        // What files show is part of recording sessions; how nodes sample is not.
        let shows_only = change.base_period_ms.is_none() && change.session_period_ms.is_none();
        need(caller, if shows_only { Role::Local } else { Role::Operator })?;
        self.ask(|reply| Call::ChangeSettings(change, reply)).await?
    }

    pub async fn retention(&self, caller: &Caller) -> Result<RetentionBody, Failure> {
        need(caller, Role::Viewer)?;
        self.ask(Call::Retention).await
    }

    /// Values of one metric over time.
    pub(crate) async fn series(
        &self,
        caller: &Caller,
        request: SeriesRequest,
    ) -> Result<SeriesBody, Failure> {
        need(caller, Role::Viewer)?;
        let nodes = request.nodes.clone();
        let query = self.ask(|reply| Call::Series { nodes, reply }).await??;
        let reader = self.inner.reader.clone();
        let now = self.inner.time.now();
        let read =
            tokio::task::spawn_blocking(move || series::read(&reader, &query, &request, now));
        read.await.map_err(|_| Failure::internal("the query ended badly"))?
    }

    /// Streams a session; the export stops when the reader goes away.
    pub async fn export(
        &self,
        caller: &Caller,
        key: String,
        format: ExportFormat,
    ) -> Result<ExportStream, Failure> {
        need(caller, Role::Viewer)?;
        check_key(&key)?;
        let reader = self.inner.reader.clone();
        let input = self.export_input(key).await?;
        let (sender, pieces) = mpsc::channel(EXPORT_PIECES_MAX);
        let name = input.spec.name.to_string();
        let size_estimate = export::size_estimate(&reader, &input);
        let give_back = self.inner.give_back;
        self.inner.tasks.spawn_blocking(move || {
            let mut pipe = Pipe { sender: sender.clone(), buffer: Vec::new() };
            let done = export::export(&reader, &input, format, &mut pipe)
                .map_err(io::Error::other)
                .and_then(|_| pipe.flush());
            if let Err(error) = done {
                tracing::info!(%error, "export ended early");
                let _gone = sender.blocking_send(Err(error));
            }
            give_back();
        });
        Ok(ExportStream { name, size_estimate, pieces })
    }

    /// What an export shows; damage in its window is named before it begins.
    async fn export_input(&self, key: String) -> Result<ExportInput, Failure> {
        let again = key.clone();
        let input = self.ask(|reply| Call::ExportInput(key, reply)).await??;
        let reader = self.inner.reader.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let damaged = export::damaged_segments(&reader, &input);
            (input, damaged)
        });
        let (input, damaged) =
            looked.await.map_err(|_| Failure::internal("the export ended badly"))?;
        if damaged.is_empty() {
            return Ok(input);
        }
        for segment in damaged {
            self.ask(|reply| Call::Unreadable(segment, reply)).await?;
        }
        self.ask(|reply| Call::ExportInput(again, reply)).await?
    }

    pub async fn stop_host(&self, caller: &Caller) -> Result<StoppingBody, Failure> {
        need(caller, Role::Admin)?;
        self.ask(Call::StopHost).await?;
        Ok(StoppingBody { stopping: true })
    }

    pub(crate) async fn stop_requested(&self) {
        let mut wished = self.inner.stop_wished.clone();
        // The sender lives in the recorder: its end means stopping too.
        let _recorder_gone = wished.wait_for(|wished| *wished).await;
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Happening> {
        self.inner.live.listen()
    }

    pub(crate) fn ingest(&self) -> &mpsc::Sender<Ingest> {
        &self.inner.ingest
    }

    pub(crate) fn time(&self) -> &HostTime {
        &self.inner.time
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }

    pub(crate) fn stop_token(&self) -> &CancellationToken {
        &self.inner.stop
    }

    pub(crate) fn version(&self) -> &str {
        &self.inner.version
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.inner.simulated
    }

    pub(crate) fn is_insecure(&self) -> bool {
        self.inner.access.config().insecure
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.inner.access
    }

    pub(crate) fn new_stream(&self) -> StreamId {
        StreamId(self.streams.fetch_add(1, Ordering::Relaxed))
    }
}

/// Every method says whom it is for.
fn need(caller: &Caller, role: Role) -> Result<(), Failure> {
    if caller.role >= role { Ok(()) } else { Err(not_enough(caller, role)) }
}

/// Says what would be needed.
pub(crate) fn not_enough(caller: &Caller, role: Role) -> Failure {
    // Nobody can be given `local`; the next one can.
    let role = role.max(Role::Viewer);
    let role = if role == Role::Local { Role::Operator } else { role };
    let article = if role == Role::Viewer { "a" } else { "an" };
    let message = match caller.role {
        Role::Local => format!(
            "this needs the rights of {article} {role}: use `gswarm` as the user who started the host, or \
             log in with a token"
        ),
        own => {
            format!("this needs the rights of {article} {role}; `{}` is {own}", caller.principal)
        },
    };
    Failure::new(ErrorCode::PermissionDenied, message)
}

/// What can be neither a name nor an id is a mistake of the caller; nothing needs to be looked up.
fn check_key(key: &str) -> Result<(), Failure> {
    if key.parse::<SessionId>().is_ok() {
        return Ok(());
    }
    SessionName::new(key).map(|_| ()).map_err(|error| Failure::invalid(error.to_string()))
}

/// From a blocking writer to an async reader, with a limit in between.
struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= EXPORT_PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
