//! One router on every listener, for HTTP/1, HTTP/2 and gRPC alike.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Connections that may be open on one listener.
const CONNECTIONS_MAX: usize = 16_384;
/// How long a client may take to send its request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// Streams that one HTTP/2 connection may have open.
const HTTP2_STREAMS_MAX: u32 = 64;
/// How long open requests may go on after the host was told to stop.
const GRACE: Duration = Duration::from_secs(3);
/// A pause after a failed accept, so that running out of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end, as far as the listener knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// `None` for connections inside one process.
    pub address: Option<IpAddr>,
}

impl PeerIdentity {
    /// True for callers on this machine.
    pub fn is_local(&self) -> bool {
        self.address.is_none_or(|address| address.to_canonical().is_loopback())
    }
}

/// A listener: real sockets, or in-memory pipes in tests and simulations.
pub trait Acceptor: Send + 'static {
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, PeerIdentity)>> + Send;
}

/// TCP without TLS.
#[derive(Debug)]
pub struct TcpAcceptor {
    listener: TcpListener,
}

impl TcpAcceptor {
    pub fn new(listener: TcpListener) -> Self {
        Self { listener }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Acceptor for TcpAcceptor {
    type Io = tokio::net::TcpStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, PeerIdentity)> {
        let (stream, address) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, PeerIdentity { address: Some(address.ip()) }))
    }
}

/// Accepts until told to stop, then lets open requests finish for a moment.
pub(crate) async fn run<A: Acceptor>(mut acceptor: A, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let room = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Ok((io, peer)) => {
                let Ok(permit) = room.clone().try_acquire_owned() else {
                    tracing::warn!("connection refused: too many are open");
                    continue;
                };
                let router = router.clone();
                let (stop, cut) = (stop.clone(), cut.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = connection(io, peer, router, stop) => {},
                        () = cut.cancelled() => {},
                    }
                    drop(permit);
                });
            },
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            },
        }
    }
    connections.close();
    if tokio::time::timeout(GRACE, connections.wait()).await.is_err() {
        tracing::debug!(open = connections.len(), "connections cut off");
        cut.cancel();
        connections.wait().await;
    }
}

async fn connection<I>(io: I, peer: PeerIdentity, router: Router, stop: CancellationToken)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        let peer = peer.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            let answer: Result<_, Infallible> = router.oneshot(request).await;
            answer
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(HTTP2_STREAMS_MAX);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    tokio::pin!(serving);
    let mut stopping = false;
    loop {
        tokio::select! {
            done = serving.as_mut() => {
                if let Err(error) = done {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            },
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            },
        }
    }
}
