//! The control plane: records what agents send and answers everybody who asks.

mod caller;
mod access;
mod config;
mod clock;
mod kind_file;
mod small_file;
mod live;
mod recorder;
mod export_job;
mod handle;
mod stream;
mod legacy;
mod http;
mod grpc;
mod serve;
mod tls;
#[doc(hidden)]
pub mod fuzzed;

use std::sync::Arc;

use gswarm_store::Disk;
use gswarm_tls::Authority;
use gswarm_types::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use access::{AccessConfig, Limits};
pub use caller::{Caller, Role};
pub use config::{HostConfig, RetentionConfig, Settings};
pub use handle::{ExportStream, Handle};
pub use kind_file::is_simulated_data;
pub use recorder::StartError;
pub use serve::{Acceptor, PeerIdentity, TcpAcceptor};
pub use tls::{Network, PlainFrom, TlsAcceptor};

/// A running host. Dropping it does not stop it: call `stop`.
#[derive(Debug)]
pub struct Host {
    handle: Handle,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What the outside world gives a host.
#[derive(Debug, Clone)]
pub struct HostParts {
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    /// For ids; from the operating system in production.
    pub seed: u64,
    /// Signs the certificates of nodes; without one nobody can join.
    pub authority: Option<Arc<Authority>>,
    /// Called after work that needed much memory, to give it back to the system.
    pub give_back: fn(),
}

impl Host {
    /// Recovers the recording and starts to take records; nothing listens yet.
    pub async fn start(config: HostConfig, parts: HostParts) -> Result<Self, StartError> {
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let handle = recorder::start(config, parts, stop.clone(), &tasks).await?;
        Ok(Self { handle, stop, tasks })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves gRPC, HTTP and WebSocket on everything that the acceptor yields.
    pub fn serve<A: Acceptor>(&self, acceptor: A) {
        let router = http::router(self.handle.clone());
        let limits = self.handle.access().config().limits;
        self.tasks.spawn(serve::run(acceptor, router, limits, self.stop.clone()));
    }

    /// Runs beside the host, as long as it does.
    pub fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {},
                () = work => {},
            }
        });
    }

    /// Resolves when somebody asked the host to stop.
    pub async fn stop_requested(&self) {
        self.handle.stop_requested().await;
    }

    /// Takes no new work, makes what it holds durable, returns.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
