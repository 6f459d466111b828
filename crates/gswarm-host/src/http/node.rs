//! Nodes.

use axum::Json;
use axum::extract::State;
use gswarm_api::ErrorBody;
use gswarm_api::body::{NodeBody, NodesBody};

use super::answer::{Answer, Segment};
use super::door::By;
use crate::handle::Handle;

/// All nodes with their devices and latest values
#[utoipa::path(get, path = "/api/v1/nodes", operation_id = "list_nodes", responses(
    (status = 200, body = NodesBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn list(State(handle): State<Handle>, By(caller): By) -> Answer<NodesBody> {
    Ok(Json(handle.nodes(&caller).await?))
}

/// One node by name or id
#[utoipa::path(get, path = "/api/v1/nodes/{name}", operation_id = "get_node", params(("name" = String, Path, description = "Name or id")), responses(
    (status = 200, body = NodeBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn one(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(name): Segment,
) -> Answer<NodeBody> {
    Ok(Json(handle.node(&caller, name).await?))
}
