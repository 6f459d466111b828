//! A host without a store: each stream is handed to the test, message by message.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gswarm_node::{BoxedIo, Connect, Connecting};
use gswarm_wire::v1;
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::v1::recorder_server::{Recorder, RecorderServer};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

/// Longer than anything the agent waits for.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct FakeHost {
    pub(crate) network: Arc<Network>,
    streams: mpsc::Receiver<Session>,
    refusals: Arc<Mutex<VecDeque<Status>>>,
    _tasks: TaskTracker,
}

/// The way to the host; a test may cut it.
#[derive(Debug)]
pub(crate) struct Network {
    connections: mpsc::Sender<io::Result<DuplexStream>>,
    down: AtomicBool,
    dialled: Mutex<Vec<Instant>>,
}

/// One stream of an agent.
#[derive(Debug)]
pub(crate) struct Session {
    tx: mpsc::Sender<Result<v1::HostMessage, Status>>,
    rx: Streaming<v1::AgentMessage>,
    pub(crate) heartbeats: Vec<v1::Heartbeat>,
}

#[derive(Debug)]
struct Service {
    streams: mpsc::Sender<Session>,
    refusals: Arc<Mutex<VecDeque<Status>>>,
}

type HostStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::HostMessage, Status>> + Send>>;

#[tonic::async_trait]
impl Recorder for Service {
    type StreamStream = HostStream;

    async fn stream(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<HostStream>, Status> {
        let refusal = self.refusals.lock().unwrap().pop_front();
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let (tx, messages) = mpsc::channel(64);
        let session = Session { tx, rx: request.into_inner(), heartbeats: Vec::new() };
        self.streams.send(session).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

impl FakeHost {
    pub(crate) fn start() -> Self {
        let (connections, incoming) = mpsc::channel(8);
        let (streams_tx, streams) = mpsc::channel(8);
        let refusals = Arc::new(Mutex::new(VecDeque::new()));
        let service = Service { streams: streams_tx, refusals: Arc::clone(&refusals) };
        let tasks = TaskTracker::new();
        tasks.spawn(
            tonic::transport::Server::builder()
                .add_service(RecorderServer::new(service))
                .serve_with_incoming(ReceiverStream::new(incoming)),
        );
        let network =
            Network { connections, down: AtomicBool::new(false), dialled: Mutex::new(Vec::new()) };
        Self { network: Arc::new(network), streams, refusals, _tasks: tasks }
    }

    /// The next stream that an agent opens.
    pub(crate) async fn accept(&mut self) -> Session {
        tokio::time::timeout(PATIENCE, self.streams.recv()).await.expect("no stream").unwrap()
    }

    /// The next stream, past hello and welcome.
    pub(crate) async fn welcome(&mut self) -> (v1::Hello, Session) {
        let mut session = self.accept().await;
        let hello = session.hello().await;
        session.send(FromHost::Welcome(welcome(&hello, Vec::new()))).await;
        (hello, session)
    }

    pub(crate) fn refuse_next(&self, status: Status) {
        self.refusals.lock().unwrap().push_back(status);
    }
}

pub(crate) fn welcome(hello: &v1::Hello, held: Vec<v1::HeldByHost>) -> v1::Welcome {
    v1::Welcome {
        protocol: 1,
        host_version: "9.9.9".to_owned(),
        storage_id: "00000000-0000-0000-0000-000000000007".to_owned(),
        node_name: hello.node_name.clone(),
        held,
        period_ms: 0,
    }
}

impl Network {
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    pub(crate) fn dialled(&self) -> Vec<Instant> {
        self.dialled.lock().unwrap().clone()
    }
}

impl Connect for Network {
    fn connect(&self) -> Connecting {
        self.dialled.lock().unwrap().push(Instant::now());
        let down = self.down.load(Ordering::SeqCst);
        let connections = self.connections.clone();
        Box::pin(async move {
            if down {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let sent = connections.send(Ok(theirs)).await;
            sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(Box::new(ours) as BoxedIo)
        })
    }

    fn describe(&self) -> String {
        "host.test:8090".to_owned()
    }
}

impl Session {
    pub(crate) async fn send(&self, message: FromHost) {
        self.tx.send(Ok(v1::HostMessage { message: Some(message) })).await.unwrap();
    }

    pub(crate) async fn ack(&self, record: &v1::Record) {
        let ack = v1::Ack { incarnation: record.incarnation, seq: record.seq };
        self.send(FromHost::Ack(ack)).await;
    }

    pub(crate) async fn fail(&self, status: Status) {
        self.tx.send(Err(status)).await.unwrap();
    }

    /// The next message, heartbeats included; `None` when the agent is gone.
    pub(crate) async fn any(&mut self) -> Option<FromAgent> {
        let message = tokio::time::timeout(PATIENCE, self.rx.message()).await.expect("no message");
        message.ok().flatten().and_then(|message| message.message)
    }

    /// The next message that is no heartbeat.
    pub(crate) async fn next(&mut self) -> FromAgent {
        loop {
            match self.any().await.expect("the agent closed the stream") {
                FromAgent::Heartbeat(heartbeat) => self.heartbeats.push(heartbeat),
                other => return other,
            }
        }
    }

    pub(crate) async fn hello(&mut self) -> v1::Hello {
        match self.next().await {
            FromAgent::Hello(hello) => hello,
            other => panic!("{other:?} instead of hello"),
        }
    }

    /// Records until the test is satisfied; tables are let pass.
    pub(crate) async fn records_until(
        &mut self,
        mut enough: impl FnMut(&v1::Record) -> bool,
    ) -> Vec<v1::Record> {
        let mut records = Vec::new();
        loop {
            if let FromAgent::Records(batch) = self.next().await {
                let done = batch.records.iter().any(&mut enough);
                records.extend(batch.records);
                if done {
                    return records;
                }
            }
        }
    }

    pub(crate) async fn records(&mut self, count: usize) -> Vec<v1::Record> {
        let mut seen = 0;
        self.records_until(|_| {
            seen += 1;
            seen >= count
        })
        .await
    }

    /// Everything that comes within the time.
    pub(crate) async fn within(&mut self, time: Duration) -> Vec<FromAgent> {
        let until = Instant::now() + time;
        let mut messages = Vec::new();
        while let Ok(Ok(Some(message))) = tokio::time::timeout_at(until, self.rx.message()).await {
            messages.extend(message.message);
        }
        messages
    }
}

/// The records among messages.
pub(crate) fn records_in(messages: Vec<FromAgent>) -> Vec<v1::Record> {
    let records = messages.into_iter().filter_map(|message| match message {
        FromAgent::Records(batch) => Some(batch.records),
        _ => None,
    });
    records.flatten().collect()
}

pub(crate) fn seqs(records: &[v1::Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}
