//! Events.

use axum::Json;
use axum::extract::State;
use gswarm_api::ErrorBody;
use gswarm_api::body::EventsBody;
use serde::Deserialize;

use super::answer::{Answer, Params};
use super::door::By;
use crate::handle::Handle;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParams {
    /// Span (`10m`) or RFC 3339 time; everything that is remembered when left out
    since: Option<String>,
}

/// The newest events of nodes and host, oldest first
#[utoipa::path(get, path = "/api/v1/events", operation_id = "list_events", params(EventParams), responses(
    (status = 200, body = EventsBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn list(
    State(handle): State<Handle>,
    By(caller): By,
    Params(params): Params<EventParams>,
) -> Answer<EventsBody> {
    Ok(Json(handle.events(&caller, params.since).await?))
}
