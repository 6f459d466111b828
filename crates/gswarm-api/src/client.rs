//! The typed client that the commands use.

use bytes::Bytes;
use gswarm_tls::{HOST_NAME, HostTrust, Secret, TlsError, client_config};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::{
    CaptureRequest, CatalogueBody, EventsBody, HealthBody, LatestBody, NewTokenBody, NodeBody,
    NodesBody, RemovedBody, RetentionBody, SessionBody, SessionsBody, SettingsBody, SettingsChange,
    StartRequest, StatusBody, StopAllRequest, StopBody, StopRequest, StoppedBody, StoppingBody,
    TokenBody, TokenRequest, TokensBody, WaitingBody, WhoBody,
};
use crate::error::{ErrorBody, ErrorCode};
use crate::target::Target;

/// The largest answer that is read into memory; exports are streamed instead.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no gswarm host answers at {target}")]
    Unreachable { target: Target, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{trouble}")]
    Stranger { target: Target, trouble: String },
    #[error("{message}")]
    Refused { code: ErrorCode, message: String, reason: Option<String> },
    #[error("the answer of {target} is not one of a gswarm host")]
    Answer { target: Target, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the connection to {target} broke off")]
    Broken { target: Target, source: Box<dyn std::error::Error + Send + Sync> },
}

impl ClientError {
    /// The kind that picks the exit code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => ErrorCode::Unavailable,
            Self::Stranger { .. } => ErrorCode::Unauthenticated,
            Self::Refused { code, .. } => *code,
            Self::Answer { .. } => ErrorCode::Internal,
        }
    }
}

/// Talks to one host.
#[derive(Debug, Clone)]
pub struct Client {
    target: Target,
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    encrypted: bool,
    bearer: Option<Secret>,
}

/// How a client shows who it is, and whom it takes for the host.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Plain text without one.
    pub trust: Option<HostTrust>,
    /// A token.
    pub bearer: Option<Secret>,
}

/// A streamed body with its size where the host knows it.
#[derive(Debug)]
pub struct Download {
    pub bytes_total: Option<u64>,
    target: Target,
    body: Incoming,
}

impl Client {
    pub fn new(target: Target, credentials: Credentials) -> Result<Self, TlsError> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let encrypted = credentials.trust.is_some();
        let trust = credentials.trust.unwrap_or(HostTrust::FirstUse);
        let (config, _) = client_config(&trust, None, &[])?;
        let name = rustls::pki_types::ServerName::try_from(HOST_NAME)
            .map_err(|error| TlsError::Parse(error.to_string()))?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .with_server_name_resolver(FixedServerNameResolver::new(name))
            .enable_http1()
            .wrap_connector(connector);
        let http = HyperClient::builder(TokioExecutor::new()).build(connector);
        Ok(Self { target, http, encrypted, bearer: credentials.bearer })
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub async fn whoami(&self) -> Result<WhoBody, ClientError> {
        self.get("/api/v1/whoami").await
    }

    pub async fn tokens(&self) -> Result<TokensBody, ClientError> {
        self.get("/api/v1/tokens").await
    }

    pub async fn create_token(&self, request: &TokenRequest) -> Result<NewTokenBody, ClientError> {
        self.send(Method::POST, "/api/v1/tokens", request).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<TokenBody, ClientError> {
        let path = format!("/api/v1/tokens/{}", escape(id));
        self.send(Method::DELETE, &path, &serde_json::json!({})).await
    }

    pub async fn approve_node(&self, name: &str) -> Result<WaitingBody, ClientError> {
        let path = format!("/api/v1/nodes/{}/approve", escape(name));
        self.send(Method::POST, &path, &serde_json::json!({})).await
    }

    pub async fn remove_node(&self, name: &str) -> Result<RemovedBody, ClientError> {
        let path = format!("/api/v1/nodes/{}", escape(name));
        self.send(Method::DELETE, &path, &serde_json::json!({})).await
    }

    pub async fn status(&self) -> Result<StatusBody, ClientError> {
        self.get("/api/v1/status").await
    }

    pub async fn health(&self) -> Result<HealthBody, ClientError> {
        // A host in trouble answers 503 with the same body: both are answers.
        let (status, bytes) = self.call(Method::GET, "/api/v1/health", None).await?;
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(body),
            Err(_) if !status.is_success() => Err(self.refusal(status, &bytes)),
            Err(source) => {
                Err(ClientError::Answer { target: self.target.clone(), source: source.into() })
            },
        }
    }

    pub async fn nodes(&self) -> Result<NodesBody, ClientError> {
        self.get("/api/v1/nodes").await
    }

    pub async fn node(&self, name: &str) -> Result<NodeBody, ClientError> {
        self.get(&format!("/api/v1/nodes/{}", escape(name))).await
    }

    pub async fn latest(&self) -> Result<LatestBody, ClientError> {
        self.get("/api/v1/metrics/latest").await
    }

    pub async fn catalogue(&self) -> Result<CatalogueBody, ClientError> {
        self.get("/api/v1/metrics/catalogue").await
    }

    /// `since` is a span or RFC 3339.
    pub async fn events(&self, since: Option<&str>) -> Result<EventsBody, ClientError> {
        match since {
            Some(since) => self.get(&format!("/api/v1/events?since={}", escape(since))).await,
            None => self.get("/api/v1/events").await,
        }
    }

    pub async fn sessions(&self) -> Result<SessionsBody, ClientError> {
        self.get("/api/v1/sessions").await
    }

    /// `key` is a name (the newest of that name) or an id.
    pub async fn session(&self, key: &str) -> Result<SessionBody, ClientError> {
        self.get(&format!("/api/v1/sessions/{}", escape(key))).await
    }

    pub async fn start_session(&self, request: &StartRequest) -> Result<SessionBody, ClientError> {
        self.send(Method::POST, "/api/v1/sessions", request).await
    }

    pub async fn capture(&self, request: &CaptureRequest) -> Result<StoppedBody, ClientError> {
        self.send(Method::POST, "/api/v1/sessions/capture", request).await
    }

    pub async fn stop_session(
        &self,
        key: &str,
        request: &StopRequest,
    ) -> Result<StoppedBody, ClientError> {
        self.send(Method::POST, &format!("/api/v1/sessions/{}/stop", escape(key)), request).await
    }

    pub async fn stop_all(&self, request: &StopAllRequest) -> Result<StopBody, ClientError> {
        self.send(Method::POST, "/api/v1/sessions/stop", request).await
    }

    pub async fn delete_session(&self, key: &str) -> Result<SessionBody, ClientError> {
        let path = format!("/api/v1/sessions/{}", escape(key));
        self.send(Method::DELETE, &path, &serde_json::json!({})).await
    }

    pub async fn settings(&self) -> Result<SettingsBody, ClientError> {
        self.get("/api/v1/settings").await
    }

    pub async fn change_settings(
        &self,
        change: &SettingsChange,
    ) -> Result<SettingsBody, ClientError> {
        self.send(Method::PATCH, "/api/v1/settings", change).await
    }

    pub async fn retention(&self) -> Result<RetentionBody, ClientError> {
        self.get("/api/v1/retention").await
    }

    pub async fn stop_host(&self) -> Result<StoppingBody, ClientError> {
        self.send(Method::POST, "/api/v1/host/stop", &serde_json::json!({})).await
    }

    /// `format` is json, legacy-json, jsonl or parquet.
    pub async fn export(&self, key: &str, format: &str) -> Result<Download, ClientError> {
        let path = format!("/api/v1/sessions/{}/export?format={}", escape(key), escape(format));
        let response = self.request(Method::GET, &path, None).await?;
        let status = response.status();
        let bytes_total = response
            .headers()
            .get("x-gswarm-size-estimate")
            .or_else(|| response.headers().get(http::header::CONTENT_LENGTH))
            .and_then(|value| value.to_str().ok()?.parse().ok());
        if status.is_success() {
            Ok(Download { bytes_total, target: self.target.clone(), body: response.into_body() })
        } else {
            let bytes = self.collect(response.into_body()).await?;
            Err(self.refusal(status, &bytes))
        }
    }

    /// Any path with its JSON as it came, for `--json` and for scripts.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let (status, bytes) = self.call(Method::GET, path, None).await?;
        self.parse(status, &bytes)
    }

    async fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|source| ClientError::Answer {
            target: self.target.clone(),
            source: source.into(),
        })?;
        let (status, bytes) = self.call(method, path, Some(bytes.into())).await?;
        self.parse(status, &bytes)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let response = self.request(method, path, body).await?;
        let status = response.status();
        Ok((status, self.collect(response.into_body()).await?))
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<http::Response<Incoming>, ClientError> {
        let answer = |source: http::Error| ClientError::Answer {
            target: self.target.clone(),
            source: source.into(),
        };
        let uri = Uri::builder()
            .scheme(if self.encrypted { "https" } else { "http" })
            .authority(self.target.on_this_machine().to_string())
            .path_and_query(path)
            .build()
            .map_err(answer)?;
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(bearer) = &self.bearer {
            let mut value = http::HeaderValue::try_from(format!("Bearer {}", bearer.expose()))
                .map_err(|error| answer(error.into()))?;
            value.set_sensitive(true);
            request = request.header(http::header::AUTHORIZATION, value);
        }
        let request = request
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json")
            .body(Full::new(body.unwrap_or_default()))
            .map_err(answer)?;
        self.http.request(request).await.map_err(|source| {
            let target = self.target.clone();
            if let Some(trouble) = tls_trouble(&source) {
                ClientError::Stranger { target, trouble }
            } else if source.is_connect() {
                ClientError::Unreachable { target, source: source.into() }
            } else {
                ClientError::Broken { target, source: source.into() }
            }
        })
    }

    async fn collect(&self, body: Incoming) -> Result<Bytes, ClientError> {
        Limited::new(body, ANSWER_BYTES_MAX)
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .map_err(|source| ClientError::Broken { target: self.target.clone(), source })
    }

    fn parse<T: DeserializeOwned>(
        &self,
        status: StatusCode,
        bytes: &Bytes,
    ) -> Result<T, ClientError> {
        if !status.is_success() {
            return Err(self.refusal(status, bytes));
        }
        serde_json::from_slice(bytes).map_err(|source| ClientError::Answer {
            target: self.target.clone(),
            source: source.into(),
        })
    }

    fn refusal(&self, status: StatusCode, bytes: &Bytes) -> ClientError {
        match serde_json::from_slice::<ErrorBody>(bytes) {
            Ok(body) => ClientError::Refused {
                code: body.error.code,
                message: body.error.message,
                reason: body.error.details.get("reason").cloned(),
            },
            Err(_) if bytes.starts_with(b"this host speaks TLS") => ClientError::Stranger {
                target: self.target.clone(),
                trouble: format!(
                    "{} speaks TLS and wants to know who you are: log in",
                    self.target
                ),
            },
            Err(_) => ClientError::Refused {
                code: ErrorCode::from_http_status(status.as_u16()),
                message: format!("{} answered {status} without saying why", self.target),
                reason: None,
            },
        }
    }
}

impl Download {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                },
                Err(source) => {
                    let target = self.target.clone();
                    return Some(Err(ClientError::Broken { target, source: source.into() }));
                },
            }
        }
    }
}

/// What a failed handshake means, in words.
fn tls_trouble(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && let Some(inner) =
                io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            return Some(match inner {
                rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
                    "this is not the host that you logged in to: log in again with a token of it"
                        .to_owned()
                },
                rustls::Error::InvalidMessage(_) => {
                    "the host does not speak TLS: it was started anew, with --insecure or for its \
                     own machine only"
                        .to_owned()
                },
                other => format!("no secure connection: {other}"),
            });
        }
        cause = error.source();
    }
    None
}

/// Percent-encodes what cannot stand in a path segment or a query value.
fn escape(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}
