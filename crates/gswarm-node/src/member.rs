//! A member of the cluster: its key, its certificate, and how it gets them.

mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gswarm_tls::{
    Fingerprint, HOST_NAME, HostTrust, Identity, Introduced, KeyFile, Life, Token, client_config,
    node_life,
};
use gswarm_types::{Clock, Micros};
use gswarm_wire::v1;
use gswarm_wire::v1::membership_client::MembershipClient;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::connect::{BoxedIo, Connect, Connecting, NotReady, Preparing, TcpConnect, Who};
use files::Files;

/// From dialling to the host's answer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time between looks at the certificate.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(3_600);
const LOOK_EVERY_MIN: Duration = Duration::from_secs(1);
/// A certificate is renewed once less than this share of its life is left.
const RENEW_SHARE: i64 = 3;

/// What a node needs to be let in.
#[derive(Debug, Clone)]
pub struct Door {
    pub host: String,
    pub port: u16,
    /// The agent's state directory.
    pub state_dir: PathBuf,
    /// Without one somebody has to approve the node.
    pub token: Option<Token>,
}

/// Dials over TLS and shows the node's certificate; gets one first where there is none.
#[derive(Debug)]
pub struct TlsConnect {
    tcp: TcpConnect,
    address: String,
    token: Option<Token>,
    files: Files,
    clock: Arc<dyn Clock>,
    /// What is shown at the next dial.
    current: Mutex<Option<Current>>,
    /// The host does not want the certificate that is on disk: the token gets another.
    rejoin: AtomicBool,
    /// One certificate is asked for at a time.
    preparing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Current {
    config: Arc<ClientConfig>,
    life: Life,
    authority: Fingerprint,
}

/// True when the state directory holds a certificate.
pub fn has_joined(state_dir: &Path) -> bool {
    Files::new(state_dir).has_certificate()
}

impl TlsConnect {
    pub fn new(door: Door, clock: Arc<dyn Clock>) -> Self {
        let tcp = TcpConnect::new(door.host, door.port);
        Self {
            address: tcp.describe(),
            tcp,
            token: door.token,
            files: Files::new(&door.state_dir),
            clock,
            current: Mutex::new(None),
            rejoin: AtomicBool::new(false),
            preparing: tokio::sync::Mutex::new(()),
        }
    }

    fn current(&self) -> Option<Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, current: Option<Current>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }

    async fn get_ready(&self, who: &Who) -> Result<(), NotReady> {
        let _alone = self.preparing.lock().await;
        if self.current().is_none() && !self.rejoin.load(Ordering::Relaxed) {
            self.keep(self.kept(who));
        }
        let now = self.clock.wall();
        match self.current().filter(|current| current.life.ends > now) {
            None => self.join(who).await,
            Some(current) if is_old(&current.life, now) => {
                // There is time: the next look tries again.
                if let Err(reason) = self.renew(&current).await {
                    tracing::warn!(?reason, "the certificate could not be renewed yet");
                }
                Ok(())
            },
            Some(_) => Ok(()),
        }
    }

    /// The identity on disk, if it is this node's and of the host that the token is from.
    fn kept(&self, who: &Who) -> Option<Current> {
        let identity = self.files.read().ok().flatten()?;
        let current = current(&identity).ok()?;
        let is_own = current.life.node == who.node;
        let is_same = self.token.as_ref().is_none_or(|t| t.authority() == current.authority);
        (is_own && is_same).then_some(current)
    }

    /// The node's key. A copied identity or another host begins with a new one.
    fn key(&self, who: &Who) -> Result<KeyFile, NotReady> {
        let kept = self.files.key_of(who.node).map_err(unusable)?;
        match kept {
            Some(key) => Ok(key),
            None => self.files.new_key(who.node).map_err(unusable),
        }
    }

    async fn join(&self, who: &Who) -> Result<(), NotReady> {
        let key = self.key(who)?;
        let trust = match &self.token {
            Some(token) => HostTrust::Fingerprint(token.authority()),
            None => self.files.authority().map_or(HostTrust::FirstUse, HostTrust::Authority),
        };
        let (config, introduced) = client_config(&trust, None, &["h2"]).map_err(unusable)?;
        let request = v1::JoinRequest {
            token: self.token.as_ref().map_or_else(String::new, |t| t.reveal().expose().to_owned()),
            node_id: who.node.to_string(),
            node_name: who.name.to_string(),
            request_pem: key.request().map_err(unusable)?,
        };
        let mut client = MembershipClient::new(self.channel(Arc::new(config)).await?);
        let answered = client.join(request).await;
        let answer = answered.map_err(|status| self.refused(&status))?.into_inner();
        let host = introduced.fingerprint();
        if answer.pending {
            // Whoever approves has compared this host: no other may take its place meanwhile.
            if let Some(authority) = introduced.authority() {
                self.files.keep_authority(&authority).map_err(unusable)?;
            }
            return Err(self.pending(who, &key, &introduced));
        }
        self.take(key, answer, host).await
    }

    fn pending(&self, who: &Who, key: &KeyFile, introduced: &Introduced) -> NotReady {
        let brief = |print: Option<Fingerprint>| print.map_or_else(String::new, |p| p.brief());
        NotReady::Pending(format!(
            "waiting to be let in; on the host: gswarm nodes approve {} (key {}; the host's own is {})",
            who.name,
            brief(key.fingerprint().ok()),
            brief(introduced.fingerprint()),
        ))
    }

    async fn renew(&self, current: &Current) -> Result<(), NotReady> {
        let key = self.files.key_of(current.life.node).map_err(unusable)?;
        let key = key.ok_or_else(|| NotReady::Lost("the node's key is gone".to_owned()))?;
        let request = v1::RenewRequest { request_pem: key.request().map_err(unusable)? };
        let channel = self.channel(Arc::clone(&current.config)).await?;
        let answered = MembershipClient::new(channel).renew(request).await;
        let answer = answered.map_err(|status| self.refused(&status))?.into_inner();
        self.take(key, answer, Some(current.authority)).await?;
        tracing::info!("certificate renewed");
        Ok(())
    }

    /// Takes a certificate from the host that was spoken to, and from no other.
    async fn take(
        &self,
        key: KeyFile,
        answer: v1::JoinAnswer,
        host: Option<Fingerprint>,
    ) -> Result<(), NotReady> {
        let identity =
            Identity { key, chain: answer.certificate_pem, authority: answer.authority_pem };
        let current = current(&identity).map_err(unusable)?;
        if Some(current.authority) != host {
            let message = "the host gave a certificate of another authority than its own";
            return Err(NotReady::Refused(message.to_owned()));
        }
        let files = self.files.clone();
        let written = tokio::task::spawn_blocking(move || files.write(&identity)).await;
        written.map_err(unusable)?.map_err(unusable)?;
        self.keep(Some(current));
        Ok(())
    }

    async fn channel(&self, config: Arc<ClientConfig>) -> Result<Channel, NotReady> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))
            .unwrap_or_else(|_| Endpoint::from_static("http://gswarm"))
            .timeout(JOIN_TIMEOUT);
        let dialling = self.tcp.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let connecting = dial(&dialling, Arc::clone(&config));
            async move { connecting.await.map(TokioIo::new) }
        });
        let dialled = endpoint.connect_with_connector(connector).await;
        dialled.map_err(|error| {
            let text = crate::link::chain(&error);
            self.explain(&text).unwrap_or(NotReady::Lost(text))
        })
    }

    fn refused(&self, status: &Status) -> NotReady {
        let text = status.message().to_owned();
        match status.code() {
            Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Internal => {
                self.explain(&text).unwrap_or(NotReady::Lost(text))
            },
            Code::ResourceExhausted => NotReady::Lost(text),
            _ => NotReady::Refused(text),
        }
    }
}

impl Connect for TlsConnect {
    fn prepare<'a>(&'a self, who: &'a Who) -> Preparing<'a> {
        Box::pin(self.get_ready(who))
    }

    fn rejected(&self) -> bool {
        // Once: a token that does not help now does not help later either.
        let again = self.token.is_some() && !self.rejoin.swap(true, Ordering::Relaxed);
        if again {
            self.keep(None);
        }
        again
    }

    fn prepare_every(&self) -> Option<Duration> {
        let life = self.current().map_or(Micros::ZERO, |c| c.life.ends - c.life.begins);
        let share = Duration::from_micros(u64::try_from(life.0 / 12).unwrap_or(0));
        Some(share.clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX))
    }

    fn explain(&self, error: &str) -> Option<NotReady> {
        let at = &self.address;
        if error.contains("UnknownIssuer") || error.contains("BadSignature") {
            let whose = match &self.token {
                Some(_) => "the token is from another host",
                None => "this node knows another host, or the host was set up anew",
            };
            return Some(NotReady::Refused(format!(
                "{at} is not the host that this node trusts: {whose}; `gswarm token create` on the \
                 right host prints the line to join it"
            )));
        }
        if error.contains("InvalidContentType") || error.contains("corrupt message") {
            return Some(NotReady::Refused(format!(
                "{at} does not speak TLS: it serves its own machine only, or was started with \
                 --insecure; on a network you trust, join it with --insecure as well"
            )));
        }
        if error.contains("certificate expired") || error.contains("NotValidYet") {
            return Some(NotReady::Refused(format!(
                "the certificate of {at} is not of this time: compare the clocks of both machines"
            )));
        }
        // The host did not like ours.
        let alert = error.contains("received fatal alert");
        alert.then(|| {
            NotReady::Refused(format!(
                "{at} does not take this node's certificate: join again with a new token"
            ))
        })
    }

    fn connect(&self) -> Connecting {
        match self.current() {
            Some(current) => dial(&self.tcp, current.config),
            None => Box::pin(std::future::ready(Err(io::Error::other("no certificate yet")))),
        }
    }

    fn describe(&self) -> String {
        self.address.clone()
    }
}

fn dial(tcp: &TcpConnect, config: Arc<ClientConfig>) -> Connecting {
    let dialling = tcp.dial();
    Box::pin(async move {
        let stream = dialling.await?;
        let name = ServerName::try_from(HOST_NAME).map_err(io::Error::other)?;
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
        Ok(Box::new(stream) as BoxedIo)
    })
}

fn current(identity: &Identity) -> Result<Current, gswarm_tls::TlsError> {
    let nobody = || gswarm_tls::TlsError::Parse("it speaks for no node".to_owned());
    let life = node_life(&identity.chain).ok_or_else(nobody)?;
    let trust = HostTrust::Authority(identity.authority.clone());
    let (config, _) = client_config(&trust, Some(identity), &["h2"])?;
    let authority = gswarm_tls::fingerprint_of(&identity.authority)?;
    Ok(Current { config: Arc::new(config), life, authority })
}

fn is_old(life: &Life, now: Micros) -> bool {
    let whole = (life.ends - life.begins).0;
    (life.ends - now).0 < whole / RENEW_SHARE
}

fn unusable(error: impl std::error::Error) -> NotReady {
    NotReady::Lost(format!("the node's own certificate: {}", crate::link::chain(&error)))
}
