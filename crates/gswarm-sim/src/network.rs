//! Connections inside the process that can be refused, cut and silenced.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gswarm_host::{Acceptor, PeerIdentity};
use gswarm_node::{BoxedIo, Connect};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes in flight on one connection, each way.
const PIPE_BYTES: usize = 256 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG_MAX: usize = 4_096;

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
    relays: TaskTracker,
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

    /// The host is gone: nothing listens and every connection breaks.
    pub fn host_down(&self) {
        *lock(&self.shared.listener) = None;
        self.cut();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connect for SimNetwork {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<BoxedIo>> + Send>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            if shared.partitioned.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let sender = lock(&shared.listener).clone().ok_or(io::ErrorKind::ConnectionRefused)?;
            let (agent_end, mut agent_side) = tokio::io::duplex(PIPE_BYTES);
            let (host_end, mut host_side) = tokio::io::duplex(PIPE_BYTES);
            sender.send(host_end).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            let cut = lock(&shared.open).clone();
            shared.relays.spawn(async move {
                tokio::select! {
                    // Either end closing is an ordinary end of the connection.
                    _ended = tokio::io::copy_bidirectional(&mut agent_side, &mut host_side) => {},
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
            Some(stream) => Ok((stream, PeerIdentity { address: None })),
            // Replaced by a newer listener: nothing will ever come.
            None => std::future::pending().await,
        }
    }
}
