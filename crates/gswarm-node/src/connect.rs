//! How an agent reaches its host; passed in, so that tests and the simulator pass others.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use gswarm_types::{NodeId, NodeName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Both directions of a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection of any kind.
pub type BoxedIo = Box<dyn Io>;

/// A connection on its way.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<BoxedIo>> + Send>>;

/// Why the host cannot be dialled yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotReady {
    /// The host could not be asked.
    Lost(String),
    /// Somebody has to let this node in.
    Pending(String),
    /// The host, or this node, does not want the other.
    Refused(String),
}

/// The node on whose behalf a host is dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    pub node: NodeId,
    pub name: NodeName,
}

/// Getting ready.
pub type Preparing<'a> = Pin<Box<dyn Future<Output = Result<(), NotReady>> + Send + 'a>>;

/// Dials the host; called again for each attempt.
pub trait Connect: Send + Sync + fmt::Debug + 'static {
    /// Called before each attempt and now and then in between.
    fn prepare<'a>(&'a self, _who: &'a Who) -> Preparing<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How often to prepare while connected; `None` where that makes no sense.
    fn prepare_every(&self) -> Option<Duration> {
        None
    }

    /// The host did not accept what was shown; true when there is something else to show.
    fn rejected(&self) -> bool {
        false
    }

    /// A sentence of our own for an error of the connection, where there is one.
    fn explain(&self, _error: &str) -> Option<NotReady> {
        None
    }

    fn connect(&self) -> Connecting;
    /// The host's address, for messages and for the `:authority` of requests.
    fn describe(&self) -> String;
}

/// Dials over plain TCP.
#[derive(Debug, Clone)]
pub struct TcpConnect {
    host: String,
    port: u16,
}

impl TcpConnect {
    /// `host` is a name or an address; IPv6 addresses may come in brackets.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        let host: String = host.into();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        Self { host: bare.map_or_else(|| host.clone(), str::to_owned), port }
    }

    pub(crate) fn dial(&self) -> impl Future<Output = io::Result<TcpStream>> + Send + 'static {
        let address = (self.host.clone(), self.port);
        async move {
            let dialled = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
            let stream = dialled.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }
}

impl Connect for TcpConnect {
    fn connect(&self) -> Connecting {
        let dialling = self.dial();
        Box::pin(async move { Ok(Box::new(dialling.await?) as BoxedIo) })
    }

    fn describe(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_people_write_them() {
        for (host, expected) in
            [("gpu-01", "gpu-01:8090"), ("10.0.0.1", "10.0.0.1:8090"), ("::1", "[::1]:8090")]
        {
            assert_eq!(TcpConnect::new(host, 8090).describe(), expected);
        }
        assert_eq!(TcpConnect::new("[::1]", 1).describe(), "[::1]:1");
    }

    #[tokio::test]
    async fn a_listener_is_reached_and_its_absence_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = TcpConnect::new("127.0.0.1", listener.local_addr().unwrap().port());
        let (dialled, accepted) = tokio::join!(connect.connect(), listener.accept());
        drop(dialled.unwrap());
        drop((accepted, listener));
        assert!(connect.connect().await.is_err());
    }
}
