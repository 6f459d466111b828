//! One router on every listener, for HTTP/1, HTTP/2 and gRPC alike.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use gswarm_tls::NodeCertificate;
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

use crate::access::Limits;

/// The smallest buffer that the HTTP library takes.
const HTTP1_BUFFER_MIN: usize = 8_192;
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
    /// Over TLS.
    pub encrypted: bool,
    /// Plain text from a network whose old clients are let in.
    pub legacy: bool,
    /// The node that the handshake showed.
    pub certificate: Option<NodeCertificate>,
}

impl PeerIdentity {
    /// Somebody who sent nothing but bytes.
    pub fn plain(address: IpAddr) -> Self {
        Self { address: Some(address), encrypted: false, legacy: false, certificate: None }
    }

    /// The other end of a pipe inside this process.
    pub fn inside() -> Self {
        Self { address: None, encrypted: false, legacy: false, certificate: None }
    }

    /// True for callers on this machine.
    pub fn is_local(&self) -> bool {
        self.address.is_none_or(|address| address.to_canonical().is_loopback())
    }
}

/// Who shares an address: of IPv6 one machine has a whole network.
pub(crate) fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
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
        Ok((stream, PeerIdentity::plain(address.ip())))
    }
}

/// Accepts until told to stop, then lets open requests finish for a moment.
pub(crate) async fn run<A: Acceptor>(
    mut acceptor: A,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(limits.connections));
    let crowd = Crowd::new(limits.connections_per_address);
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
                let Some(place) = crowd.enter(&peer) else {
                    tracing::warn!(target: "access", ?peer, "too many connections from one address");
                    continue;
                };
                let router = router.clone();
                let (stop, cut) = (stop.clone(), cut.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = connection(io, peer, router, limits, stop) => {},
                        () = cut.cancelled() => {},
                    }
                    drop((permit, place));
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

/// Connections by address.
#[derive(Debug, Clone)]
pub(crate) struct Crowd {
    most: usize,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection of an address; given back when it ends.
#[derive(Debug)]
pub(crate) struct Place {
    crowd: Crowd,
    address: Option<IpAddr>,
}

impl Crowd {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the address has enough of them.
    pub(crate) fn enter(&self, peer: &PeerIdentity) -> Option<Place> {
        let address = peer.address.filter(|_| !peer.is_local()).map(household);
        if let Some(address) = address {
            let mut counts = self.counts();
            let count = counts.entry(address).or_default();
            if *count >= self.most {
                return None;
            }
            *count += 1;
        }
        Some(Place { crowd: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut counts = self.crowd.counts();
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

async fn connection<I>(
    io: I,
    peer: PeerIdentity,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let asking = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Incoming>| {
        asking.store(true, Ordering::Relaxed);
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
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(limits.header_bytes.max(HTTP1_BUFFER_MIN));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(HTTP2_STREAMS_MAX);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    tokio::pin!(serving);
    // Who connects and asks nothing takes up room that others need.
    let first_request = tokio::time::sleep(limits.header_time);
    tokio::pin!(first_request);
    let mut stopping = false;
    loop {
        tokio::select! {
            () = first_request.as_mut(), if !first_request.is_elapsed() => {
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
            },
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
