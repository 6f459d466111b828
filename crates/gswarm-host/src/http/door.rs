//! One route with what it needs, and who the caller is.

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use gswarm_api::{ErrorCode, Failure};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::answer::Refusal;
use crate::caller::{Authority, Caller, Role};
use crate::handle::{Handle, not_enough};
use crate::serve::PeerIdentity;

/// What a caller must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing is shown and nothing is changed without asking further.
    Nothing,
    /// At least this.
    Role(Role),
}

pub(super) struct Door {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    service: MethodRouter<Handle>,
}

impl Door {
    pub(super) fn new(
        method: Method,
        path: &'static str,
        role: Role,
        service: MethodRouter<Handle>,
    ) -> Self {
        Self { method, path, needs: Needs::Role(role), service }
    }

    /// For what anybody may have.
    pub(super) fn open(method: Method, path: &'static str, service: MethodRouter<Handle>) -> Self {
        Self { method, path, needs: Needs::Nothing, service }
    }

    /// The service behind the check of the caller.
    pub(super) fn guarded(self, handle: Handle) -> MethodRouter<Handle> {
        debug_assert!(self.path.starts_with('/'), "{} {}", self.method, self.path);
        let state = (handle, self.needs);
        self.service.layer(from_fn_with_state(state, admit))
    }
}

async fn admit(
    State((handle, needs)): State<(Handle, Needs)>,
    mut request: Request,
    next: Next,
) -> Response {
    match check(&handle, needs, &request) {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            let limits = handle.access().config().limits;
            request.extensions_mut().insert(limits);
            let answer = tokio::time::timeout(limits.answer_time, next.run(request)).await;
            answer.unwrap_or_else(|_| {
                let seconds = limits.answer_time.as_secs();
                Refusal(Failure::unavailable(format!("no answer within {seconds} s")))
                    .into_response()
            })
        },
        Err(failure) => Refusal(failure).into_response(),
    }
}

fn check(handle: &Handle, needs: Needs, request: &Request) -> Result<Option<Caller>, Failure> {
    let access = handle.access();
    let peer = request.extensions().get::<PeerIdentity>();
    access.check_rate(peer)?;
    let site = Site::of(request);
    let origins = &access.config().cors_origins;
    site.check_origin(origins)?;
    if request.headers().get(header::CONTENT_ENCODING).is_some_and(|kind| kind != "identity") {
        return Err(Failure::invalid("a compressed body is not taken: send it as it is"));
    }
    if peer.is_some_and(|peer| peer.legacy) && is_new(request.uri().path()) {
        let message = "old clients may use the old paths only: use TLS and a token";
        return Err(Failure::new(ErrorCode::Unauthenticated, message));
    }
    let Needs::Role(role) = needs else { return Ok(None) };
    let caller = access.caller(peer, request.headers())?;
    match caller.by {
        Authority::Place | Authority::OldClient => {
            site.check_host(&access.config().allowed_hosts)?;
        },
        Authority::Token | Authority::Cookie | Authority::Certificate(_) => {},
    }
    if caller.role < role {
        return Err(not_enough(&caller, role));
    }
    Ok(Some(caller))
}

fn is_new(path: &str) -> bool {
    path.starts_with("/api/")
}

/// Which page and which name a request speaks of.
struct Site<'a> {
    host: Option<&'a str>,
    origin: Option<&'a str>,
    fetch_site: Option<&'a str>,
    /// A page that came in plain text is not ours then.
    encrypted: bool,
}

impl<'a> Site<'a> {
    fn of(request: &'a Request) -> Self {
        let headers = request.headers();
        let authority = request.uri().authority().map(http::uri::Authority::as_str);
        Self {
            host: text(headers, &header::HOST).or(authority),
            origin: text(headers, &header::ORIGIN),
            fetch_site: text(headers, &HeaderName::from_static("sec-fetch-site")),
            encrypted: request.extensions().get::<PeerIdentity>().is_some_and(|p| p.encrypted),
        }
    }

    /// A browser says which page asks; only our own may, and those that the host was told of.
    fn check_origin(&self, allowed: &[String]) -> Result<(), Failure> {
        let Some(origin) = self.origin else {
            // Newer browsers say it also where they send no origin.
            return match self.fetch_site {
                Some("cross-site" | "same-site") => Err(other_site("another site")),
                _ => Ok(()),
            };
        };
        let plain = origin.strip_prefix("http://").filter(|_| !self.encrypted);
        let site = plain.or_else(|| origin.strip_prefix("https://"));
        let is_own = site.is_some() && site == self.host;
        if is_own || allowed.iter().any(|known| known.trim_end_matches('/') == origin) {
            return Ok(());
        }
        Err(other_site(origin))
    }

    /// A page of a name that somebody else gave to this address looks like our own page; so callers
    /// who need no token must use a name that nobody else can give.
    fn check_host(&self, allowed: &[String]) -> Result<(), Failure> {
        let Some(host) = self.host else { return Ok(()) };
        let name = name_of(host);
        let is_address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        let is_ours = name.eq_ignore_ascii_case("localhost")
            || allowed.iter().any(|known| known.eq_ignore_ascii_case(name));
        if is_address || is_ours {
            return Ok(());
        }
        let name: String = name.chars().take(100).flat_map(char::escape_debug).collect();
        let message = format!(
            "this host does not know itself as `{name}`: use its address or localhost, or add the \
             name to `http.allowed_hosts` on the host"
        );
        Err(Failure::new(ErrorCode::PermissionDenied, message).because("HOST_NAME"))
    }
}

fn other_site(origin: &str) -> Failure {
    let origin: String = origin.chars().take(100).flat_map(char::escape_debug).collect();
    let message = format!(
        "requests of other sites' pages are refused ({origin}): `http.cors_origins` on the host \
         names those that may ask"
    );
    Failure::new(ErrorCode::PermissionDenied, message).because("ORIGIN")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())
}

/// Without the port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Answers the question that a browser asks before a request of a page that may ask.
pub(super) async fn cors(State(handle): State<Handle>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let allowed = &handle.access().config().cors_origins;
    let known = origin.filter(|origin| {
        origin.to_str().is_ok_and(|o| allowed.iter().any(|known| known.trim_end_matches('/') == o))
    });
    let Some(origin) = known else { return next.run(request).await };
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first {
        http::StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    if asks_first {
        let methods = HeaderValue::from_static("GET, POST, PATCH, DELETE");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let names = HeaderValue::from_static("Authorization, Content-Type");
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
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

#[cfg(test)]
mod tests {
    use super::*;

    fn site<'a>(host: &'a str, origin: Option<&'a str>) -> Site<'a> {
        Site { host: Some(host), origin, fetch_site: None, encrypted: false }
    }

    #[test]
    fn pages_of_others_are_refused() {
        let allowed = ["https://grafana.example".to_owned()];
        let check = |host, origin| site(host, origin).check_origin(&allowed).is_ok();
        assert!(check("a:8090", None));
        assert!(check("a:8090", Some("http://a:8090")));
        assert!(check("a:8090", Some("https://a:8090")));
        assert!(check("a:8090", Some("https://grafana.example")));
        for origin in
            ["http://a", "http://b:8090", "null", "", "file://", "https://grafana.example.evil"]
        {
            assert!(!check("a:8090", Some(origin)), "{origin}");
        }
        let over_tls = Site { encrypted: true, ..site("a", Some("http://a")) };
        assert!(over_tls.check_origin(&[]).is_err());
        let fetched = |word| Site { fetch_site: Some(word), ..site("a", None) }.check_origin(&[]);
        assert!(fetched("same-origin").is_ok() && fetched("none").is_ok());
        assert!(fetched("cross-site").is_err() && fetched("same-site").is_err());
    }

    #[test]
    fn names_that_others_gave_are_refused() {
        let allowed = ["gpu-head".to_owned()];
        let check = |host| site(host, None).check_host(&allowed).is_ok();
        for host in [
            "localhost:8090",
            "LOCALHOST",
            "127.0.0.1:1",
            "[::1]:8090",
            "gpu-head:8091",
            "10.1.2.3",
        ] {
            assert!(check(host), "{host}");
        }
        for host in ["evil.example:8090", "localhost.evil.example", "127.0.0.1.nip.io", ""] {
            assert!(!check(host), "{host}");
        }
        let refused = site("evil.example", None).check_host(&[]).unwrap_err();
        assert!(refused.message.contains("http.allowed_hosts"), "{refused}");
    }
}
