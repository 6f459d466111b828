//! The host as a whole.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gswarm_api::ErrorBody;
use gswarm_api::body::{
    HealthBody, HealthStatus, RetentionBody, SettingsBody, SettingsChange, StatusBody, StoppingBody,
};
use http::StatusCode;

use super::answer::{Answer, JsonBody, Refusal};
use super::door::By;
use crate::handle::Handle;

/// Health of the host; 503 when it takes no records
#[utoipa::path(get, path = "/api/v1/health", operation_id = "get_health", responses(
    (status = 200, body = HealthBody), (status = 503, body = HealthBody),
    (status = "4XX", body = ErrorBody)))]
pub(super) async fn health(
    State(handle): State<Handle>,
    By(caller): By,
) -> Result<Response, Refusal> {
    let body = handle.health(&caller).await?;
    let status = match body.status {
        HealthStatus::Ok | HealthStatus::Degraded => StatusCode::OK,
        HealthStatus::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((status, Json(body)).into_response())
}

/// State of the host
#[utoipa::path(get, path = "/api/v1/status", operation_id = "get_state", responses(
    (status = 200, body = StatusBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn status(State(handle): State<Handle>, By(caller): By) -> Answer<StatusBody> {
    Ok(Json(handle.status(&caller).await?))
}

/// What can be changed while the host runs
#[utoipa::path(get, path = "/api/v1/settings", operation_id = "get_settings", responses(
    (status = 200, body = SettingsBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn settings(State(handle): State<Handle>, By(caller): By) -> Answer<SettingsBody> {
    Ok(Json(handle.settings(&caller).await?))
}

/// Change settings; what is left out stays
#[utoipa::path(patch, path = "/api/v1/settings", operation_id = "change_settings", request_body(content = Option<SettingsChange>), responses(
    (status = 200, body = SettingsBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn change_settings(
    State(handle): State<Handle>,
    By(caller): By,
    JsonBody(change): JsonBody<SettingsChange>,
) -> Answer<SettingsBody> {
    Ok(Json(handle.change_settings(&caller, change).await?))
}

/// What retention would remove now
#[utoipa::path(get, path = "/api/v1/retention", operation_id = "get_retention", responses(
    (status = 200, body = RetentionBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn retention(
    State(handle): State<Handle>,
    By(caller): By,
) -> Answer<RetentionBody> {
    Ok(Json(handle.retention(&caller).await?))
}

/// Stop the host
#[utoipa::path(post, path = "/api/v1/host/stop", operation_id = "stop_host", responses(
    (status = 200, body = StoppingBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn stop_host(
    State(handle): State<Handle>,
    By(caller): By,
) -> Answer<StoppingBody> {
    Ok(Json(handle.stop_host(&caller).await?))
}
