//! Sessions.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use gswarm_api::body::{
    CaptureRequest, SessionBody, SessionsBody, StartRequest, StopAllRequest, StopBody, StopRequest,
    StoppedBody,
};
use gswarm_api::{ErrorBody, Failure};
use gswarm_store::export::ExportFormat;
use http::{StatusCode, header};
use serde::Deserialize;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::{Answer, JsonBody, Params, Refusal, Segment};
use super::door::By;
use crate::handle::Handle;

/// All sessions, oldest first
#[utoipa::path(get, path = "/api/v1/sessions", operation_id = "list_sessions", responses(
    (status = 200, body = SessionsBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn list(State(handle): State<Handle>, By(caller): By) -> Answer<SessionsBody> {
    Ok(Json(handle.sessions(&caller).await?))
}

/// Start a session
#[utoipa::path(post, path = "/api/v1/sessions", operation_id = "start_session", request_body(content = Option<StartRequest>), responses(
    (status = 201, body = SessionBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn start(
    State(handle): State<Handle>,
    By(caller): By,
    JsonBody(request): JsonBody<StartRequest>,
) -> Result<(StatusCode, Json<SessionBody>), Refusal> {
    let session = handle.start_session(&caller, request).await?;
    Ok((StatusCode::CREATED, Json(session)))
}

/// Cut a session out of what was already recorded
#[utoipa::path(post, path = "/api/v1/sessions/capture", operation_id = "capture_session", request_body = CaptureRequest, responses(
    (status = 201, body = StoppedBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn capture(
    State(handle): State<Handle>,
    By(caller): By,
    JsonBody(request): JsonBody<CaptureRequest>,
) -> Result<(StatusCode, Json<StoppedBody>), Refusal> {
    let stopped = handle.capture(&caller, request).await?;
    Ok((StatusCode::CREATED, Json(stopped)))
}

/// Stop all sessions of the caller
#[utoipa::path(post, path = "/api/v1/sessions/stop", operation_id = "stop_all_sessions", request_body(content = Option<StopAllRequest>), responses(
    (status = 200, body = StopBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn stop_all(
    State(handle): State<Handle>,
    By(caller): By,
    JsonBody(request): JsonBody<StopAllRequest>,
) -> Answer<StopBody> {
    Ok(Json(handle.stop_all(&caller, request.request_id).await?))
}

/// One session by name (the newest of that name) or id
#[utoipa::path(get, path = "/api/v1/sessions/{key}", operation_id = "get_session", params(("key" = String, Path, description = "Name or id")), responses(
    (status = 200, body = SessionBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn one(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(key): Segment,
) -> Answer<SessionBody> {
    Ok(Json(handle.session(&caller, key).await?))
}

/// Stop one session; stopping a stopped one gives its result again
#[utoipa::path(post, path = "/api/v1/sessions/{key}/stop", operation_id = "stop_session", params(("key" = String, Path, description = "Name or id")),
    request_body(content = Option<StopRequest>), responses(
    (status = 200, body = StoppedBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn stop(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(key): Segment,
    JsonBody(request): JsonBody<StopRequest>,
) -> Answer<StoppedBody> {
    Ok(Json(handle.stop_session(&caller, key, request.request_id).await?))
}

/// Delete a stopped session; its exported file stays, what only it kept of the recording may go
#[utoipa::path(delete, path = "/api/v1/sessions/{key}", operation_id = "delete_session", params(("key" = String, Path, description = "Name or id")), responses(
    (status = 200, body = SessionBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn delete(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(key): Segment,
) -> Answer<SessionBody> {
    Ok(Json(handle.delete_session(&caller, key).await?))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportParams {
    /// json, legacy-json, jsonl or parquet; json when left out
    format: Option<String>,
}

/// The session's data, streamed
#[utoipa::path(get, path = "/api/v1/sessions/{key}/export", operation_id = "export_session", params(
    ("key" = String, Path, description = "Name or id"), ExportParams), responses(
    (status = 200, description = "JSON, JSON lines or Parquet", content(
        (Object = "application/json"), (String = "application/x-ndjson"),
        (String = "application/vnd.apache.parquet"))),
    (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn export(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(key): Segment,
    Params(params): Params<ExportParams>,
) -> Result<Response, Refusal> {
    let format: ExportFormat = params
        .format
        .as_deref()
        .unwrap_or("json")
        .parse()
        .map_err(|error| Failure::invalid(format!("{error}")))?;
    let export = handle.export(&caller, key, format).await?;
    let (kind, ending) = match format {
        ExportFormat::Json | ExportFormat::LegacyJson => ("application/json", "json"),
        ExportFormat::Jsonl => ("application/x-ndjson", "jsonl"),
        ExportFormat::Parquet => ("application/vnd.apache.parquet", "parquet"),
    };
    Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{}.{ending}\"", export.name),
        )
        .header("x-gswarm-size-estimate", export.size_estimate)
        .body(Body::from_stream(ReceiverStream::new(export.pieces)))
        .map_err(|error| Refusal(Failure::internal(error.to_string())))
}
