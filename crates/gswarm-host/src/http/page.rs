//! The first page: live values in a browser, the old greeting for scripts.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gswarm_api::Failure;
use http::{HeaderMap, header};

use super::answer::{Refusal, Segment};
use crate::handle::Handle;

const INDEX: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/app.js");
const STYLE: &str = include_str!("page/style.css");

/// Browsers get the page, scripts the JSON of the earlier tools.
pub(super) async fn root(State(handle): State<Handle>, headers: HeaderMap) -> Response {
    let wants_page = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"));
    if wants_page {
        return ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], INDEX).into_response();
    }
    let body = serde_json::json!({
        "message": "gswarm profiler",
        "version": handle.version(),
    });
    Json(body).into_response()
}

pub(super) async fn asset(Segment(name): Segment) -> Result<Response, Refusal> {
    let (kind, text) = match name.as_str() {
        "app.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "style.css" => ("text/css; charset=utf-8", STYLE),
        _ => return Err(Refusal(Failure::not_found("there is no such file"))),
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
