//! A listener that speaks TLS, and tells plain text what to do instead.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gswarm_tls::node_certificate;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::serve::{Acceptor, Crowd, PeerIdentity};

/// Handshakes that may be under way on one listener.
const HANDSHAKES_MAX: usize = 512;
/// The same from one address; this machine is exempt.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;
/// From the connection to the end of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first byte of every TLS connection: a handshake record.
const TLS_RECORD: u8 = 0x16;

/// Addresses such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no network such as 10.0.0.0/8 or fd00::/8")]
pub struct NetworkError(String);

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.bits);
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            },
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.bits);
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            },
            _ => false,
        }
    }
}

impl std::str::FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.chars().take(64).collect());
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        (bits <= most).then_some(Self { address, bits }).ok_or_else(wrong)
    }
}

/// From where plain text is taken; from this machine it always is.
#[derive(Debug, Clone, Default)]
pub struct PlainFrom {
    /// Old clients, which know no TLS.
    pub legacy: Vec<Network>,
}

type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// TLS for everybody but this machine and old clients from known networks.
#[derive(Debug)]
pub struct TlsAcceptor {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    plain: Arc<PlainFrom>,
    handshakes: JoinSet<io::Result<(Stream, PeerIdentity)>>,
    crowd: Crowd,
}

impl TlsAcceptor {
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>, plain: PlainFrom) -> Self {
        Self {
            listener,
            config,
            plain: Arc::new(plain),
            handshakes: JoinSet::new(),
            crowd: Crowd::new(HANDSHAKES_PER_ADDRESS_MAX),
        }
    }
}

impl Acceptor for TlsAcceptor {
    type Io = Stream;

    async fn accept(&mut self) -> io::Result<(Self::Io, PeerIdentity)> {
        loop {
            tokio::select! {
                // What went wrong was said where it happened: nothing that would slow down the others.
                Some(done) = self.handshakes.join_next() => if let Ok(Ok(ready)) = done {
                    return Ok(ready);
                },
                accepted = self.listener.accept(), if self.handshakes.len() < HANDSHAKES_MAX => {
                    let (stream, address) = accepted?;
                    let Some(place) = self.crowd.enter(&PeerIdentity::plain(address.ip())) else {
                        tracing::debug!(%address, "too many handshakes from one address");
                        continue;
                    };
                    let (config, plain) = (Arc::clone(&self.config), Arc::clone(&self.plain));
                    self.handshakes.spawn(async move {
                        let greeted = greet(stream, address, config, &plain);
                        let greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, greeted).await;
                        drop(place);
                        let greeted = greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                        greeted.inspect_err(|error| {
                            tracing::debug!(%address, %error, "no handshake");
                        })
                    });
                },
            }
        }
    }
}

async fn greet(
    mut stream: TcpStream,
    address: SocketAddr,
    config: Arc<ServerConfig>,
    plain: &PlainFrom,
) -> io::Result<(Stream, PeerIdentity)> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let peer = PeerIdentity::plain(address.ip());
    if first != [TLS_RECORD] {
        let legacy = plain.legacy.iter().any(|network| network.contains(address.ip()));
        if peer.is_local() || legacy {
            let legacy = legacy && !peer.is_local();
            return Ok((Either::Left(stream), PeerIdentity { legacy, ..peer }));
        }
        tracing::warn!(target: "access", %address, "plain text refused: this host speaks TLS");
        refuse(&mut stream).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await?;
    let chain = stream.get_ref().1.peer_certificates();
    let certificate = chain.and_then(|chain| chain.first()).and_then(node_certificate);
    let peer = PeerIdentity { encrypted: true, certificate, ..peer };
    Ok((Either::Right(Box::new(stream)), peer))
}

/// An answer that people can read; old gRPC clients see a broken connection.
async fn refuse(stream: &mut TcpStream) -> io::Result<()> {
    let body = "this host speaks TLS: use https://, log in with `gswarm login HOST`, or join with \
                `gswarm join HOST --token ...`; `gswarm host start --legacy-from NETWORK` lets old \
                clients in\n";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(network: &str, address: &str, expected: bool) {
        let network: Network = network.parse().unwrap();
        assert_eq!(network.contains(address.parse().unwrap()), expected, "{network:?} {address}");
    }

    #[test]
    fn networks_hold_their_addresses() {
        check("10.0.0.0/8", "10.255.1.2", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("10.1.2.3", "10.1.2.3", true);
        check("10.1.2.3", "10.1.2.4", false);
        check("0.0.0.0/0", "8.8.8.8", true);
        check("0.0.0.0/0", "::1", false);
        check("10.0.0.0/8", "::ffff:10.1.1.1", true);
        check("fd00::/8", "fd12::1", true);
        check("::/0", "fd12::1", true);
        for wrong in ["10.0.0.0/33", "ten", "10.0.0.0/x", "", "::/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
