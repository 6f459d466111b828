//! The HTTP door: every route with its minimum role in one table, one file per resource.

mod answer;
mod door;
mod access;
mod status;
mod node;
mod session;
mod metrics;
mod event;
mod live;
mod page;
pub(crate) mod compat;
mod openapi;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post};
use http::Method;

use crate::access::MembershipService;
use crate::caller::Role;
use crate::grpc;
use crate::handle::Handle;
use crate::legacy::LegacyService;
use crate::stream::RecorderService;

use door::Door;

/// A login is a token: strangers need not send more.
const LOGIN_BYTES_MAX: usize = 4_096;

/// Everything that can be asked over HTTP.
#[rustfmt::skip]
fn doors() -> Vec<Door> {
    vec![
        Door::open(Method::GET, "/", get(page::root)),
        Door::open(Method::GET, "/assets/{name}", get(page::asset)),
        Door::new(Method::GET, "/health", Role::Viewer, get(status::health)),
        Door::new(Method::GET, "/api/v1/health", Role::Viewer, get(status::health)),
        Door::new(Method::GET, "/api/v1/status", Role::Viewer, get(status::status)),
        Door::new(Method::GET, "/api/v1/settings", Role::Viewer, get(status::settings)),
        Door::new(Method::PATCH, "/api/v1/settings", Role::Operator, patch(status::change_settings)),
        Door::new(Method::GET, "/api/v1/retention", Role::Viewer, get(status::retention)),
        Door::new(Method::POST, "/api/v1/host/stop", Role::Admin, post(status::stop_host)),
        Door::open(Method::POST, "/api/v1/login", post(access::login).layer(DefaultBodyLimit::max(LOGIN_BYTES_MAX))),
        Door::new(Method::GET, "/api/v1/whoami", Role::Viewer, get(access::whoami)),
        Door::new(Method::GET, "/api/v1/tokens", Role::Admin, get(access::tokens)),
        Door::new(Method::POST, "/api/v1/tokens", Role::Admin, post(access::create_token)),
        Door::new(Method::DELETE, "/api/v1/tokens/{id}", Role::Admin, delete(access::revoke_token)),
        Door::new(Method::GET, "/api/v1/nodes", Role::Viewer, get(node::list)),
        Door::new(Method::GET, "/api/v1/nodes/{name}", Role::Viewer, get(node::one)),
        Door::new(Method::DELETE, "/api/v1/nodes/{name}", Role::Admin, delete(access::remove)),
        Door::new(Method::POST, "/api/v1/nodes/{name}/approve", Role::Admin, post(access::approve)),
        Door::new(Method::GET, "/api/v1/sessions", Role::Viewer, get(session::list)),
        Door::new(Method::POST, "/api/v1/sessions", Role::Local, post(session::start)),
        Door::new(Method::POST, "/api/v1/sessions/capture", Role::Local, post(session::capture)),
        Door::new(Method::POST, "/api/v1/sessions/stop", Role::Local, post(session::stop_all)),
        Door::new(Method::GET, "/api/v1/sessions/{key}", Role::Viewer, get(session::one)),
        Door::new(Method::DELETE, "/api/v1/sessions/{key}", Role::Operator, delete(session::delete)),
        Door::new(Method::POST, "/api/v1/sessions/{key}/stop", Role::Local, post(session::stop)),
        Door::new(Method::GET, "/api/v1/sessions/{key}/export", Role::Viewer, get(session::export)),
        Door::new(Method::GET, "/api/v1/metrics", Role::Viewer, get(metrics::range)),
        Door::new(Method::GET, "/api/v1/metrics/latest", Role::Viewer, get(metrics::latest)),
        Door::new(Method::GET, "/api/v1/metrics/catalogue", Role::Viewer, get(metrics::catalogue)),
        Door::new(Method::GET, "/api/v1/events", Role::Viewer, get(event::list)),
        Door::new(Method::GET, "/api/v1/live", Role::Viewer, get(live::open)),
        Door::new(Method::GET, "/api/v1/openapi.json", Role::Viewer, get(openapi::document)),
        Door::new(Method::GET, "/status", Role::Viewer, get(compat::get_status)),
        Door::new(Method::GET, "/clients", Role::Viewer, get(compat::get_clients)),
        Door::new(Method::GET, "/metrics/latest", Role::Viewer, get(compat::get_latest)),
        Door::new(Method::GET, "/profiling/sessions", Role::Viewer, get(compat::get_sessions)),
        Door::new(Method::POST, "/profiling/start", Role::Local, post(compat::post_start)),
        Door::new(Method::POST, "/profiling/stop", Role::Local, post(compat::post_stop)),
    ]
}

/// HTTP, WebSocket and both gRPC services on one router.
pub(crate) fn router(handle: Handle) -> Router {
    let mut router: Router<Handle> = Router::new();
    for door in doors() {
        router = router.route(door.path, door.guarded(handle.clone()));
    }
    let grpc = tonic::service::Routes::new(RecorderService::server(handle.clone()))
        .add_service(MembershipService::server(handle.clone()))
        .add_service(LegacyService::server(handle.clone()))
        .prepare()
        .into_axum_router();
    let grpc = grpc_only(grpc).route_layer(from_fn_with_state(handle.clone(), grpc::admit));
    router
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::no_such_method)
        .layer(DefaultBodyLimit::max(handle.access().config().limits.body_bytes))
        .layer(from_fn_with_state(handle.clone(), door::cors))
        .layer(axum::middleware::from_fn(answer::headers))
        .with_state(handle)
        .merge(grpc)
}

/// Only the routes of the services, not the fallback that tonic brings.
fn grpc_only(grpc: Router) -> Router {
    grpc.reset_fallback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use door::Needs;

    #[test]
    fn every_door_stands_once() {
        let mut seen = std::collections::HashSet::new();
        for door in doors() {
            assert!(seen.insert((door.method.clone(), door.path)), "{} {}", door.method, door.path);
        }
    }

    #[test]
    fn whatever_changes_something_needs_more_than_a_viewer() {
        for door in doors().into_iter().filter(|door| door.path != "/api/v1/login") {
            let reads = door.method == Method::GET && door.path != "/api/v1/tokens";
            let is_harmless = matches!(door.needs, Needs::Nothing | Needs::Role(Role::Viewer));
            assert_eq!(is_harmless, reads, "{} {}", door.method, door.path);
        }
    }

    #[test]
    fn only_pages_and_the_login_need_nothing() {
        let open: Vec<&str> = doors()
            .iter()
            .filter(|door| door.needs == Needs::Nothing)
            .map(|door| door.path)
            .collect();
        assert_eq!(open, ["/", "/assets/{name}", "/api/v1/login"]);
    }
}
