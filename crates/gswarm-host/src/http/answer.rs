//! Answers: JSON bodies, and every failure in the same envelope.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gswarm_api::{ErrorBody, ErrorDetail, Failure};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde::de::DeserializeOwned;

use crate::access::Limits;

/// A failure on its way out.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Failure);

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

pub(super) type Answer<T> = Result<Json<T>, Refusal>;

/// Requests since the start; with the process id it names one request in logs.
static REQUESTS: AtomicU64 = AtomicU64::new(1);

pub(super) fn request_id() -> String {
    let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{number:x}", std::process::id())
}

pub(super) fn envelope(failure: Failure) -> (StatusCode, ErrorBody) {
    let status = StatusCode::from_u16(failure.code.http_status())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut details = BTreeMap::new();
    if let Some(reason) = failure.reason {
        details.insert("reason".to_owned(), reason.to_owned());
    }
    let request_id = request_id();
    if status.is_server_error() {
        tracing::warn!(%request_id, code = %failure.code, message = %failure.message, "request failed");
    }
    let error = ErrorDetail { code: failure.code, message: failure.message, details, request_id };
    (status, ErrorBody { error })
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, body) = envelope(self.0);
        (status, Json(body)).into_response()
    }
}

pub(super) async fn no_such_path(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(200).collect();
    Refusal(Failure::not_found(format!("there is nothing at `{path}`: see /api/v1/openapi.json")))
}

pub(super) async fn no_such_method(request: Request) -> Response {
    let message = format!("`{}` is not possible here", request.method());
    let (_, body) = envelope(Failure::invalid(message));
    (StatusCode::METHOD_NOT_ALLOWED, Json(body)).into_response()
}

/// Headers that keep browsers from guessing.
pub(super) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        // `data:` for the icon, which stands in the page itself.
        HeaderValue::from_static(
            "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
        ),
    );
    response
}

/// A JSON body; what is wrong with it is said in the envelope. An empty body and `null` are an empty object.
#[derive(Debug)]
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let depth = request.extensions().get::<Limits>().copied().unwrap_or_default().json_depth;
        let bytes = axum::body::Bytes::from_request(request, state)
            .await
            .map_err(|rejection| Refusal(Failure::invalid(rejection.body_text())))?;
        let is_nothing = matches!(bytes.trim_ascii(), b"" | b"null");
        let text: &[u8] = if is_nothing { b"{}" } else { &bytes };
        // An array would be taken as the fields in their order.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(Refusal(Failure::invalid(
                "the body is not right: it must be a JSON object",
            )));
        }
        if depth_of(text) > depth {
            let message = format!("the body is not right: it nests deeper than {depth} levels");
            return Err(Refusal(Failure::invalid(message)));
        }
        serde_json::from_slice(text)
            .map(Self)
            .map_err(|error| Refusal(Failure::invalid(format!("the body is not right: {error}"))))
    }
}

/// How deep arrays and objects lie in each other; brackets in strings do not count.
fn depth_of(text: &[u8]) -> usize {
    let (mut depth, mut most) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                most = most.max(depth);
            },
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {},
        }
    }
    most
}

/// Query parameters; what is wrong with them is said in the envelope.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        axum::extract::Query::<T>::from_request_parts(parts, state)
            .await
            .map(|query| Self(query.0))
            .map_err(|rejection| Refusal(Failure::invalid(rejection.body_text())))
    }
}

/// One path segment; undecodable ones are refused in the envelope.
#[derive(Debug)]
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        axum::extract::Path::<String>::from_request_parts(parts, state)
            .await
            .map(|path| Self(path.0))
            .map_err(|rejection| Refusal(Failure::invalid(rejection.body_text())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_what_is_nested_and_not_what_is_quoted() {
        for (text, depth) in [
            ("{}", 1),
            (r#"{"a":[1,[2]],"b":{}}"#, 3),
            (r#"{"a":"[[[[\\\"[["}"#, 1),
            (r#"{"a":"\\","b":[]}"#, 2),
            ("]]]]{", 1),
        ] {
            assert_eq!(depth_of(text.as_bytes()), depth, "{text}");
        }
    }
}
