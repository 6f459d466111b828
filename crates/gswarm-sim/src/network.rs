//! Connections inside the process that can be refused, cut, silenced, slowed and left half open.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gswarm_host::{Acceptor, PeerIdentity};
use gswarm_node::{BoxedIo, Connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes in flight on one connection, each way.
const PIPE_BYTES: usize = 256 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG_MAX: usize = 4_096;
/// Bytes that travel together.
const SEGMENT_BYTES: usize = 16 * 1024;

/// The way from one agent to the host.
#[derive(Debug, Clone)]
pub struct SimNetwork {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where the host listens; `None` while it is down.
    listener: Mutex<Option<mpsc::Sender<DuplexStream>>>,
    /// Ends every open connection when cancelled; replaced by a fresh one each time.
    open: Mutex<CancellationToken>,
    partitioned: AtomicBool,
    flow: watch::Sender<Flow>,
    relays: TaskTracker,
}

/// What passes on open connections. Bytes that do not pass wait, as TCP would send them again.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    /// Connections made so far; each has the number of those before it.
    connections: u64,
    /// Older connections carry nothing any more, and neither end is told.
    dead_below: u64,
    /// Nothing that the host says arrives.
    host_unheard: bool,
    /// How long each piece is on its way.
    latency: Duration,
}

/// The way that a pump carries bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToHost,
    ToAgent,
}

/// The host's end.
#[derive(Debug)]
pub struct SimAcceptor {
    connections: mpsc::Receiver<DuplexStream>,
}

impl Default for SimNetwork {
    fn default() -> Self {
        Self::new()
    }
}

impl SimNetwork {
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                listener: Mutex::new(None),
                open: Mutex::new(CancellationToken::new()),
                partitioned: AtomicBool::new(false),
                flow: watch::channel(Flow::default()).0,
                relays: TaskTracker::new(),
            }),
        }
    }

    /// A listener for a host that starts now; the one before hears nothing any more.
    pub fn listen(&self) -> SimAcceptor {
        let (sender, connections) = mpsc::channel(BACKLOG_MAX);
        *lock(&self.shared.listener) = Some(sender);
        SimAcceptor { connections }
    }

    /// No connection passes until `heal`; open ones break.
    pub fn partition(&self) {
        self.shared.partitioned.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub fn heal(&self) {
        self.shared.partitioned.store(false, Ordering::SeqCst);
    }

    /// Breaks every open connection.
    pub fn cut(&self) {
        let mut open = lock(&self.shared.open);
        open.cancel();
        *open = CancellationToken::new();
    }

    /// Every open connection goes dead without a word to either end; new ones work.
    pub fn leave_half_open(&self) {
        self.shared.flow.send_modify(|flow| flow.dead_below = flow.connections);
    }

    /// While set, what the agent sends arrives and what the host answers does not.
    pub fn set_host_unheard(&self, unheard: bool) {
        self.shared.flow.send_modify(|flow| flow.host_unheard = unheard);
    }

    /// How long each piece of bytes takes from now on, each way.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.flow.send_modify(|flow| flow.latency = latency);
    }

    /// Connections that were ever made.
    pub fn connections(&self) -> u64 {
        self.shared.flow.borrow().connections
    }

    /// The host is gone: nothing listens and every connection breaks.
    pub fn host_down(&self) {
        *lock(&self.shared.listener) = None;
        self.cut();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries bytes both ways until both ends have said their last.
async fn relay(agent: DuplexStream, host: DuplexStream, number: u64, flow: watch::Receiver<Flow>) {
    let (from_agent, to_agent) = tokio::io::split(agent);
    let (from_host, to_host) = tokio::io::split(host);
    // Either end breaking is an ordinary end of the connection.
    let _ended = tokio::try_join!(
        pump(from_agent, to_host, Way::ToHost, number, flow.clone()),
        pump(from_host, to_agent, Way::ToAgent, number, flow),
    );
}

async fn pump(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    way: Way,
    number: u64,
    mut flow: watch::Receiver<Flow>,
) -> io::Result<()> {
    let mut piece = vec![0; SEGMENT_BYTES];
    loop {
        let read = from.read(&mut piece).await?;
        let passes =
            |flow: &Flow| number >= flow.dead_below && !(way == Way::ToAgent && flow.host_unheard);
        let latency = match flow.wait_for(passes).await {
            Ok(flow) => flow.latency,
            Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match piece.get(..read) {
            Some(bytes) if read > 0 => to.write_all(bytes).await?,
            _ => return to.shutdown().await,
        }
    }
}

impl Connect for SimNetwork {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<BoxedIo>> + Send>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            if shared.partitioned.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let sender = lock(&shared.listener).clone().ok_or(io::ErrorKind::ConnectionRefused)?;
            let (agent_end, agent_side) = tokio::io::duplex(PIPE_BYTES);
            let (host_end, host_side) = tokio::io::duplex(PIPE_BYTES);
            sender.send(host_end).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            let cut = lock(&shared.open).clone();
            let mut number = 0;
            shared.flow.send_modify(|flow| {
                number = flow.connections;
                flow.connections += 1;
            });
            let flow = shared.flow.subscribe();
            shared.relays.spawn(async move {
                tokio::select! {
                    () = relay(agent_side, host_side, number, flow) => {},
                    () = cut.cancelled() => {},
                }
            });
            let io: BoxedIo = Box::new(agent_end);
            Ok(io)
        })
    }

    fn describe(&self) -> String {
        "the simulated network".to_owned()
    }
}

impl Acceptor for SimAcceptor {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, PeerIdentity)> {
        match self.connections.recv().await {
            Some(stream) => Ok((stream, PeerIdentity::inside())),
            // Replaced by a newer listener: nothing will ever come.
            None => std::future::pending().await,
        }
    }
}
