//! HTTP requests to a running host: each answer is one that the documents allow.

use std::cell::RefCell;

use axum::Router;
use axum::body::Body;
use gswarm_api::body::{
    CaptureRequest, ClientMessage, EventsBody, HealthBody, LatestBody, NodesBody, RetentionBody,
    SeriesBody, ServerMessage, SessionsBody, SettingsChange, StartRequest, StatusBody,
    StopAllRequest, StopBody, StopRequest,
};
use gswarm_api::{ErrorBody, ErrorCode};
use gswarm_host::{Host, PeerIdentity};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::host;

/// A host is replaced after this many requests: sessions gather in it.
const REQUESTS_MAX: u32 = 256;

/// `METHOD PATH?QUERY`, then the body from the next line on.
pub fn http_bodies(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let first = parts.next().unwrap_or_default();
    let body = parts.next().unwrap_or_default();
    check_bodies(body);
    let Ok(first) = std::str::from_utf8(first) else { return };
    let Some((method, path)) = first.split_once(' ') else { return };
    let (Ok(method), Ok(uri)) = (method.parse::<Method>(), path.parse::<Uri>()) else { return };
    if !uri.path().starts_with('/') || uri.path().starts_with("/gswarm") {
        // No request of HTTP, or one of gRPC, whose answers are no JSON.
        return;
    }
    let is_head = method == Method::HEAD;
    let mut request = Request::new(Body::from(body.to_vec()));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request.extensions_mut().insert(PeerIdentity::inside());
    let bearer = HeaderValue::from_static("Bearer gswl_fuzz");
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    RIG.with_borrow_mut(|rig| {
        if rig.as_ref().is_none_or(|rig| rig.requests >= REQUESTS_MAX) {
            *rig = Some(Rig::start());
        }
        if let Some(rig) = rig {
            rig.ask(request, is_head);
        }
    });
}

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

struct Rig {
    // Before the runtime, which must outlive it.
    _host: Host,
    router: Router,
    runtime: Runtime,
    requests: u32,
}

impl Rig {
    fn start() -> Self {
        let runtime = host::runtime();
        let host = runtime.block_on(host::start(host::released(None)));
        let host = host.expect("a host starts on what a release left");
        let router = gswarm_host::fuzzed::router(&host);
        Self { _host: host, router, runtime, requests: 0 }
    }

    fn ask(&mut self, request: Request<Body>, is_head: bool) {
        self.requests += 1;
        let router = self.router.clone();
        let (parts, body) = self.runtime.block_on(async move {
            let answer = router.oneshot(request).await.unwrap_or_else(|never| match never {});
            let (parts, body) = answer.into_parts();
            (parts, body.collect().await)
        });
        let body = body.expect("an answer that began comes to its end").to_bytes();
        let is_json = parts
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        if is_head {
            // The server cuts the body off.
        } else if parts.status.is_success() {
            assert!(!is_json || serde_json::from_slice::<serde_json::Value>(&body).is_ok());
        } else {
            check_failure(parts.status, is_json, &body);
        }
    }
}

/// A failure is the caller's, in the envelope, with the status of its kind.
fn check_failure(status: StatusCode, is_json: bool, body: &[u8]) {
    if status == StatusCode::NOT_MODIFIED {
        return;
    }
    let text = String::from_utf8_lossy(body);
    assert!(is_json, "{status} without JSON: {text}");
    let failure = serde_json::from_slice::<ErrorBody>(body);
    let failure = failure.unwrap_or_else(|error| panic!("{status} with {text}: {error}")).error;
    assert!(!failure.message.is_empty(), "a failure without a sentence");
    assert!(failure.code != ErrorCode::Internal, "a request broke the host: {text}");
    if status != StatusCode::METHOD_NOT_ALLOWED {
        assert_eq!(failure.code.http_status(), status.as_u16(), "{text}");
    }
}

/// Bodies of both directions, for a host may lie to its callers too.
fn check_bodies(body: &[u8]) {
    same_again::<StartRequest>(body);
    same_again::<CaptureRequest>(body);
    same_again::<StopRequest>(body);
    same_again::<StopAllRequest>(body);
    same_again::<SettingsChange>(body);
    same_again::<ClientMessage>(body);
    same_again::<ServerMessage>(body);
    same_again::<ErrorBody>(body);
    same_again::<StatusBody>(body);
    same_again::<HealthBody>(body);
    same_again::<NodesBody>(body);
    same_again::<SessionsBody>(body);
    same_again::<StopBody>(body);
    same_again::<EventsBody>(body);
    same_again::<LatestBody>(body);
    same_again::<SeriesBody>(body);
    same_again::<RetentionBody>(body);
}

/// What is accepted is written as something that is accepted and means the same.
fn same_again<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(body: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(body) else { return };
    let written = serde_json::to_vec(&value).expect("a body can be written");
    let again = serde_json::from_slice::<T>(&written).map_err(|error| error.to_string());
    assert_eq!(again, Ok(value), "a body that is written as another");
}
