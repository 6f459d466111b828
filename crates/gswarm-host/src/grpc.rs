//! The gRPC doors: every method with what it needs in one table.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use gswarm_types::Role;
use http::Version;
use tonic::Status;

use crate::caller::Caller;
use crate::handle::{Handle, not_enough};
use crate::serve::PeerIdentity;
use crate::stream::to_status;

/// Every method; `None` for what anybody may call.
pub(crate) const METHODS: [(&str, Option<Role>); 13] = [
    ("/gswarm.v1.Recorder/Stream", Some(Role::Node)),
    ("/gswarm.v1.Membership/Join", None),
    ("/gswarm.v1.Membership/Renew", Some(Role::Node)),
    ("/gswarm_profiler.ProfilerService/Connect", Some(Role::Local)),
    ("/gswarm_profiler.ProfilerService/StreamMetrics", Some(Role::Local)),
    ("/gswarm_profiler.ProfilerService/GetStatus", Some(Role::Viewer)),
    ("/gswarm_profiler.ProfilerService/StartProfiling", Some(Role::Local)),
    ("/gswarm_profiler.ProfilerService/StopProfiling", Some(Role::Local)),
    ("/gswarm_profiler.ProfilerService/Exit", Some(Role::Admin)),
    ("/gswarm_profiler.ProfilerService/ReadClusterStatus", Some(Role::Viewer)),
    ("/gswarm_profiler.ProfilerService/ReadNodeStatus", Some(Role::Viewer)),
    ("/gswarm_profiler.ProfilerService/SetBandwidthProfiling", Some(Role::Local)),
    ("/gswarm_profiler.ProfilerService/SetNVLinkProfiling", Some(Role::Local)),
];

/// What old clients speak.
const OLD_SERVICE: &str = "/gswarm_profiler.";

const MEMBERSHIP: &str = "/gswarm.v1.Membership/";
/// From the head of a request to join to the end of its answer.
const JOIN_TIME: Duration = Duration::from_secs(15);

/// Stands before every service.
pub(crate) async fn admit(
    State(handle): State<Handle>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    match check(&handle, &request) {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            if !path.starts_with(MEMBERSHIP) {
                return next.run(request).await;
            }
            // Anybody may ask, so nobody may take long.
            let answer = tokio::time::timeout(JOIN_TIME, next.run(request)).await;
            answer.unwrap_or_else(|_| Status::deadline_exceeded("that took too long").into_http())
        },
        Err(status) => status.into_http(),
    }
}

fn check(handle: &Handle, request: &Request) -> Result<Option<Caller>, Status> {
    let path = request.uri().path();
    let Some((_, needs)) = METHODS.iter().find(|(method, _)| *method == path) else {
        return Err(Status::unimplemented("there is no such method"));
    };
    // No page of a browser can speak HTTP/2 without TLS: it could pose as an agent otherwise.
    if request.version() != Version::HTTP_2 {
        return Err(Status::failed_precondition("gRPC needs HTTP/2"));
    }
    let headers = request.headers();
    let is_page =
        headers.contains_key(http::header::ORIGIN) || headers.contains_key("sec-fetch-site");
    let kind = headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if is_page || !kind.is_some_and(|kind| kind.starts_with("application/grpc")) {
        return Err(Status::permission_denied("this is for agents and programs, not for pages"));
    }
    let peer = request.extensions().get::<PeerIdentity>();
    if peer.is_some_and(|peer| peer.legacy) && !path.starts_with(OLD_SERVICE) {
        return Err(Status::unauthenticated(
            "agents join with TLS: `gswarm join HOST --token ...`",
        ));
    }
    handle.access().check_rate(peer).map_err(|failure| to_status(&failure))?;
    let Some(role) = *needs else { return Ok(None) };
    let caller = handle.access().caller(peer, request.headers());
    let caller = caller.map_err(|failure| to_status(&failure))?;
    if caller.role < role {
        return Err(to_status(&not_enough(&caller, role)));
    }
    Ok(Some(caller))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_stands_in_the_table() {
        let mut listed: Vec<&str> = METHODS.iter().map(|(method, _)| *method).collect();
        let mut all = gswarm_wire::METHODS.to_vec();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
    }
}
