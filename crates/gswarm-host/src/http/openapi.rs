//! The OpenAPI 3.1 document, generated from the handlers.

use axum::Json;
use utoipa::OpenApi;

use super::{access, compat, event, live, metrics, node, session, status};

#[derive(OpenApi)]
#[openapi(
    info(title = "gswarm", description = "Recorder of GPU clusters"),
    paths(
        status::health,
        status::status,
        status::settings,
        status::change_settings,
        status::retention,
        status::stop_host,
        access::whoami,
        access::login,
        access::tokens,
        access::create_token,
        access::revoke_token,
        access::approve,
        access::remove,
        node::list,
        node::one,
        session::list,
        session::start,
        session::capture,
        session::stop_all,
        session::one,
        session::stop,
        session::delete,
        session::export,
        metrics::range,
        metrics::latest,
        metrics::catalogue,
        event::list,
        live::open,
        compat::get_status,
        compat::get_clients,
        compat::get_latest,
        compat::get_sessions,
        compat::post_start,
        compat::post_stop
    )
)]
struct Document;

/// This document.
pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doors that are pages, the document itself or a second path of a documented one.
    const NOT_IN_DOCUMENT: [&str; 4] = ["/", "/assets/{name}", "/health", "/api/v1/openapi.json"];

    #[test]
    fn every_door_is_documented() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        for door in super::super::doors() {
            if NOT_IN_DOCUMENT.contains(&door.path) {
                continue;
            }
            let method = door.method.as_str().to_lowercase();
            assert!(document["paths"][door.path][&method].is_object(), "{method} {}", door.path);
        }
    }
}
