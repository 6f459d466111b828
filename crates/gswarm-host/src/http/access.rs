//! Tokens, members, logins.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gswarm_api::body::{
    LoginRequest, NewTokenBody, RemovedBody, TokenBody, TokenRequest, TokensBody, WaitingBody,
    WhoBody,
};
use gswarm_api::{ErrorBody, Failure};
use http::{Extensions, HeaderValue, header};

use super::answer::{Answer, JsonBody, Refusal, Segment};
use super::door::By;
use crate::access::COOKIE;
use crate::handle::Handle;
use crate::serve::PeerIdentity;

/// Who the caller is taken for
#[utoipa::path(get, path = "/api/v1/whoami", operation_id = "whoami", responses(
    (status = 200, body = WhoBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn whoami(State(handle): State<Handle>, By(caller): By) -> Answer<WhoBody> {
    Ok(Json(handle.whoami(&caller)))
}

/// Gives a browser a cookie for its token
#[utoipa::path(post, path = "/api/v1/login", operation_id = "login", request_body(content = Option<LoginRequest>), responses(
    (status = 200, body = WhoBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn login(
    State(handle): State<Handle>,
    extensions: Extensions,
    JsonBody(request): JsonBody<LoginRequest>,
) -> Result<Response, Refusal> {
    let peer = extensions.get::<PeerIdentity>();
    let wrong = || Refusal(Failure::invalid("`token` is not a token"));
    let caller = handle.access().by_token(request.token.trim(), peer)?;
    let body = handle.whoami(&caller);
    let secure = if peer.is_some_and(|peer| peer.encrypted) { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict{secure}", request.token.trim());
    let mut cookie = HeaderValue::try_from(cookie).map_err(|_| wrong())?;
    cookie.set_sensitive(true);
    Ok(([(header::SET_COOKIE, cookie)], Json(body)).into_response())
}

/// All tokens, without their secrets
#[utoipa::path(get, path = "/api/v1/tokens", operation_id = "list_tokens", responses(
    (status = 200, body = TokensBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn tokens(State(handle): State<Handle>, By(caller): By) -> Answer<TokensBody> {
    Ok(Json(handle.tokens(&caller)?))
}

/// Make a token; its secret is told this once
#[utoipa::path(post, path = "/api/v1/tokens", operation_id = "create_token", request_body(content = Option<TokenRequest>), responses(
    (status = 200, body = NewTokenBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn create_token(
    State(handle): State<Handle>,
    By(caller): By,
    JsonBody(request): JsonBody<TokenRequest>,
) -> Answer<NewTokenBody> {
    Ok(Json(handle.create_token(&caller, request).await?))
}

/// Take a token back
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", operation_id = "revoke_token", params(("id" = String, Path, description = "Id of the token")), responses(
    (status = 200, body = TokenBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn revoke_token(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(id): Segment,
) -> Answer<TokenBody> {
    Ok(Json(handle.revoke_token(&caller, id).await?))
}

/// Let a node in that waits
#[utoipa::path(post, path = "/api/v1/nodes/{name}/approve", operation_id = "approve_node", params(("name" = String, Path, description = "Name or id")), responses(
    (status = 200, body = WaitingBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn approve(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(name): Segment,
) -> Answer<WaitingBody> {
    Ok(Json(handle.approve_node(&caller, name).await?))
}

/// Take a node's certificate back
#[utoipa::path(delete, path = "/api/v1/nodes/{name}", operation_id = "remove_node", params(("name" = String, Path, description = "Name or id")), responses(
    (status = 200, body = RemovedBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn remove(
    State(handle): State<Handle>,
    By(caller): By,
    Segment(name): Segment,
) -> Answer<RemovedBody> {
    Ok(Json(handle.remove_node(&caller, name).await?))
}
