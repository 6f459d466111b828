//! One route with its minimum role, and who the caller is.

use axum::extract::{FromRequestParts, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use gswarm_api::{ErrorCode, Failure};
use http::request::Parts;
use http::{HeaderValue, Method, header};

use super::answer::Refusal;
use crate::caller::{Caller, Role};
use crate::handle::Handle;
use crate::serve::PeerIdentity;

pub(super) struct Door {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) role: Role,
    service: MethodRouter<Handle>,
}

impl Door {
    pub(super) fn new(
        method: Method,
        path: &'static str,
        role: Role,
        service: MethodRouter<Handle>,
    ) -> Self {
        Self { method, path, role, service }
    }

    /// The service behind the check of the role.
    pub(super) fn guarded(self) -> MethodRouter<Handle> {
        debug_assert!(self.path.starts_with('/'), "{} {}", self.method, self.path);
        let role = self.role;
        self.service.layer(from_fn(move |request, next| admit(role, request, next)))
    }
}

async fn admit(role: Role, mut request: Request, next: Next) -> Response {
    let caller = Caller::of(request.extensions().get::<PeerIdentity>());
    if caller.role < role {
        let message = "this needs more rights than a caller from the network has: ask on the host";
        return Refusal(Failure::new(ErrorCode::PermissionDenied, message)).into_response();
    }
    if is_cross_site(&request) {
        let message = "requests of other sites' pages are refused";
        return Refusal(Failure::new(ErrorCode::PermissionDenied, message)).into_response();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// A browser says which page asks; only our own may.
fn is_cross_site(request: &Request) -> bool {
    let header =
        |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(origin) = header(header::ORIGIN) else { return false };
    let host = header(header::HOST).or_else(|| request.uri().authority().map(|a| a.as_str()));
    let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    site.is_none() || site != host
}

/// The caller that the door let in.
pub(super) struct By(pub(super) Caller);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        // The door put it there; without a door nobody is anybody.
        parts.extensions.get::<Caller>().cloned().map(Self).ok_or_else(|| {
            Refusal(Failure::new(ErrorCode::Unauthenticated, "the caller is not known"))
        })
    }
}
