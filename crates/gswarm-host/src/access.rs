//! Who may come in: by certificate, by token, or by being on the host's own machine.
//!
//! The decisions are those of `gswarm_core::AccessBook`; here are its file, the authority that signs,
//! and what a request shows of its sender.

mod rate;
mod membership;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gswarm_api::{ErrorCode, Failure};
use gswarm_core::{AccessBook, TokenRecord, TokenRefusal};
use gswarm_store::Disk;
use gswarm_tls::{Authority, Secret, Token, TokenHash};
use gswarm_types::{Clock, Micros, Role};
use http::{HeaderMap, header};

use crate::caller::{Authority as By, Caller};
use crate::serve::PeerIdentity;
use crate::small_file;

pub(crate) use membership::{Joined, MembershipService};
use rate::Rates;

/// The name of the cookie that a browser gets for its token.
pub(crate) const COOKIE: &str = "gswarm_token";
/// What the token of the host's own machine begins with.
const LOCAL_PREFIX: &str = "gswl_";
const FILE: &str = "access.json";

/// How a host treats strangers.
#[derive(Debug, Clone)]
pub struct AccessConfig {
    /// Listens beyond this machine without encryption or logins.
    pub insecure: bool,
    /// Names, besides its own, under which browsers and commands may ask without a token.
    pub allowed_hosts: Vec<String>,
    /// Other sites whose pages may ask, such as `https://grafana.example`.
    pub cors_origins: Vec<String>,
    /// Makes a caller of this machine its admin.
    pub local_token: Option<Secret>,
    /// How long certificates last.
    pub certificate_life: Micros,
    pub limits: Limits,
}

/// How much a stranger may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of a request's head.
    pub header_bytes: usize,
    /// Arrays and objects within each other in a body.
    pub json_depth: usize,
    /// Connections to one listener.
    pub connections: usize,
    /// Connections from one address; this machine is exempt.
    pub connections_per_address: usize,
    /// Requests a second from one address; this machine is exempt.
    pub requests_per_second: u32,
    /// Wrong tokens a minute from one address.
    pub failures_per_minute: u32,
    /// Time to send a request's head.
    pub header_time: std::time::Duration,
    /// Time to answer, or to begin a long answer.
    pub answer_time: std::time::Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1024 * 1024,
            header_bytes: 64 * 1024,
            json_depth: 32,
            connections: 16_384,
            connections_per_address: 4_096,
            requests_per_second: 200,
            failures_per_minute: 30,
            header_time: std::time::Duration::from_secs(15),
            answer_time: std::time::Duration::from_secs(60),
        }
    }
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self {
            insecure: false,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            local_token: None,
            certificate_life: Micros::from_secs(90 * 86_400),
            limits: Limits::default(),
        }
    }
}

/// Asked at every door.
#[derive(Debug)]
pub(crate) struct Access {
    config: AccessConfig,
    authority: Option<Arc<Authority>>,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Replaced as a whole once the change is on disk.
    book: RwLock<Arc<AccessBook>>,
    /// Held by whoever changes the book.
    changing: Arc<tokio::sync::Mutex<()>>,
    rates: Mutex<Rates>,
}

/// When a change counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    OnDisk,
    AtOnce,
}

/// A new token, with the secret that is told once.
#[derive(Debug)]
pub(crate) struct NewToken {
    pub(crate) record: TokenRecord,
    pub(crate) secret: Secret,
}

impl Access {
    pub(crate) fn open(
        config: AccessConfig,
        authority: Option<Arc<Authority>>,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
        data_dir: &std::path::Path,
    ) -> std::io::Result<Self> {
        let path = data_dir.join(FILE);
        let book: AccessBook = small_file::read(disk.as_ref(), &path)?.unwrap_or_default();
        let rates = Mutex::new(Rates::new(&config.limits));
        let book = RwLock::new(Arc::new(book));
        let changing = Arc::default();
        Ok(Self { config, authority, clock, disk, path, book, changing, rates })
    }

    pub(crate) fn config(&self) -> &AccessConfig {
        &self.config
    }

    pub(crate) fn book(&self) -> Arc<AccessBook> {
        Arc::clone(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn now(&self) -> Micros {
        self.clock.wall()
    }

    /// Changes the book; the change counts when it is on disk.
    pub(crate) async fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut AccessBook, Micros) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.change_with(Counts::OnDisk, change).await
    }

    /// Takes something away: in force at once, also when the disk does not take it.
    pub(crate) async fn take_away<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut AccessBook, Micros) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.change_with(Counts::AtOnce, change).await
    }

    /// Whoever asked may go away meanwhile: what was begun is finished all the same, and nobody
    /// changes anything before it is.
    async fn change_with<T>(
        self: &Arc<Self>,
        counts: Counts,
        change: impl FnOnce(&mut AccessBook, Micros) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let alone = Arc::clone(&self.changing).lock_owned().await;
        let before = self.book();
        let mut book = AccessBook::clone(&before);
        let outcome = change(&mut book, self.now())?;
        let book = Arc::new(book);
        // Those who wait are not in the file.
        if before.tokens() == book.tokens() && before.members().eq(book.members()) {
            self.replace(book);
            return Ok(outcome);
        }
        if counts == Counts::AtOnce {
            self.replace(Arc::clone(&book));
        }
        let access = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || {
            let written = small_file::write(access.disk.as_ref(), &access.path, book.as_ref());
            if written.is_ok() {
                access.replace(book);
            }
            drop(alone);
            written
        });
        let written = written.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|error| {
            let until = match counts {
                Counts::OnDisk => "nothing was changed",
                Counts::AtOnce => "it is in force until the host stops",
            };
            Failure::unavailable(format!("`{FILE}` cannot be written ({error}): {until}"))
        })?;
        Ok(outcome)
    }

    fn replace(&self, book: Arc<AccessBook>) {
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = book;
    }

    pub(crate) async fn create_token(
        self: &Arc<Self>,
        role: Role,
        life: Micros,
        max_uses: Option<u32>,
        note: Option<String>,
    ) -> Result<NewToken, Failure> {
        let authority = self.authority.as_ref().ok_or_else(no_authority)?;
        let token = Token::generate(authority.fingerprint())
            .map_err(|error| Failure::internal(error.to_string()))?;
        let now = self.now();
        let record = TokenRecord {
            id: token.id().to_string(),
            hash: token.hash().to_hex(),
            role,
            created: now,
            expires: now + life,
            max_uses,
            uses: 0,
            revoked: false,
            note,
        };
        let kept = record.clone();
        self.change(|book, now| {
            book.add_token(kept, now).ok_or_else(|| {
                let message = "too many tokens: revoke some with `gswarm token revoke ID`";
                Failure::new(ErrorCode::ResourceExhausted, message)
            })
        })
        .await?;
        Ok(NewToken { record, secret: token.reveal() })
    }

    /// Who sends the request, by the strongest thing it shows.
    pub(crate) fn caller(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
    ) -> Result<Caller, Failure> {
        if let Some(shown) = bearer(headers) {
            return self.by_token(shown, peer);
        }
        if let Some(shown) = cookie(headers) {
            let caller = self.by_token(shown, peer)?;
            return Ok(Caller { by: By::Cookie, ..caller });
        }
        if let Some(certificate) = peer.and_then(|peer| peer.certificate.as_ref()) {
            let book = self.book();
            if !book.holds(certificate.node, &certificate.serial, self.now()) {
                return Err(unauthenticated(
                    "this node's certificate is no longer good here: join again with a new token",
                ));
            }
            let name = book.member(certificate.node).map(|member| member.name.to_string());
            return Ok(Caller {
                principal: format!("node:{}", name.unwrap_or_default()),
                role: Role::Node,
                by: By::Certificate(certificate.node),
                token: None,
            });
        }
        let peer = peer.ok_or_else(|| unauthenticated("the caller is not known"))?;
        if peer.is_local() {
            return Ok(Caller {
                principal: "local".to_owned(),
                role: Role::Local,
                by: By::Place,
                token: None,
            });
        }
        if peer.legacy {
            return Ok(Caller {
                principal: "legacy".to_owned(),
                role: Role::Local,
                by: By::OldClient,
                token: None,
            });
        }
        if self.config.insecure && !peer.encrypted {
            return Ok(Caller {
                principal: "network".to_owned(),
                role: Role::Operator,
                by: By::Place,
                token: None,
            });
        }
        Err(unauthenticated(
            "this host wants to know who you are: `gswarm login HOST` (on the host, \
             `gswarm token create --role viewer` makes a token)",
        ))
    }

    /// Compares the secret in any case, so that the time it takes tells nothing. A right token is
    /// always taken: only wrong ones are counted.
    pub(crate) fn by_token(
        &self,
        shown: &str,
        peer: Option<&PeerIdentity>,
    ) -> Result<Caller, Failure> {
        // Readable by everybody on the way.
        if peer.is_some_and(|peer| peer.legacy) {
            return Err(unauthenticated("a token over plain text is not taken: use https://"));
        }
        self.look_up(shown, peer).map_err(|failure| self.wrong(failure, peer))
    }

    /// Counts a wrong token; after too many there is another answer.
    fn wrong(&self, failure: Failure, peer: Option<&PeerIdentity>) -> Failure {
        match self.check_failures(peer) {
            Ok(()) => {
                self.count_failure(peer);
                failure
            },
            Err(too_many) => too_many,
        }
    }

    /// False once the token that the caller showed is no longer good.
    pub(crate) fn is_still_good(&self, caller: &Caller) -> bool {
        let Some(id) = &caller.token else { return true };
        self.book().token(id).is_some_and(|record| record.check(self.now()).is_ok())
    }

    fn look_up(&self, shown: &str, peer: Option<&PeerIdentity>) -> Result<Caller, Failure> {
        if shown.starts_with(LOCAL_PREFIX) {
            let is_it = self.config.local_token.as_ref().is_some_and(|own| own.matches(shown));
            if is_it && peer.is_some_and(PeerIdentity::is_local) {
                return Ok(Caller::local());
            }
            return Err(unauthenticated(
                "the token of the host's machine is not this one: it changes at every start",
            ));
        }
        let token: Token = shown
            .parse()
            .map_err(|error: gswarm_tls::TokenError| unauthenticated(error.to_string()))?;
        let record = self.known(&token)?;
        let who = record.note.as_deref().unwrap_or(&record.id);
        let token = Some(record.id.clone());
        Ok(Caller { principal: format!("token:{who}"), role: record.role, by: By::Token, token })
    }

    /// The record of a token that is right and still good.
    fn known(&self, token: &Token) -> Result<TokenRecord, Failure> {
        let record = self.right(token)?;
        record.check(self.now()).map_err(not_good)?;
        Ok(record)
    }

    /// The record of a token that is right, whatever its state.
    fn right(&self, token: &Token) -> Result<TokenRecord, Failure> {
        let book = self.book();
        let record = book.token(&token.id().to_string());
        let hash = record.and_then(|record| TokenHash::from_hex(&record.hash));
        let is_right = hash.is_some_and(|hash| hash.matches(token));
        record.filter(|_| is_right).cloned().ok_or_else(|| not_good(TokenRefusal::Unknown))
    }

    fn rates(&self) -> std::sync::MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Too many requests, or too many wrong tokens.
    pub(crate) fn check_rate(&self, peer: Option<&PeerIdentity>) -> Result<(), Failure> {
        let Some(address) = peer.filter(|peer| !peer.is_local()).and_then(|peer| peer.address)
        else {
            return Ok(());
        };
        if self.rates().take(address, self.clock.mono()) {
            return Ok(());
        }
        let message = format!(
            "more than {} requests a second from {address}: slow down, or raise \
             `http.requests_per_second` on the host",
            self.config.limits.requests_per_second
        );
        Err(Failure::new(ErrorCode::ResourceExhausted, message).because("RATE"))
    }

    fn check_failures(&self, peer: Option<&PeerIdentity>) -> Result<(), Failure> {
        let Some(address) = peer.and_then(|peer| peer.address) else { return Ok(()) };
        if self.rates().may_try(address, self.clock.mono()) {
            return Ok(());
        }
        let message = "too many wrong tokens from this address: wait a minute";
        Err(Failure::new(ErrorCode::ResourceExhausted, message).because("FAILURES"))
    }

    fn count_failure(&self, peer: Option<&PeerIdentity>) {
        if let Some(address) = peer.and_then(|peer| peer.address) {
            self.rates().failed(address, self.clock.mono());
            tracing::warn!(target: "access", %address, "a wrong token");
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE && !value.is_empty()).then_some(value)
    })
}

fn unauthenticated(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::Unauthenticated, message)
}

fn no_authority() -> Failure {
    Failure::new(ErrorCode::FailedPrecondition, "this host has no authority to sign with")
}

fn not_good(refusal: TokenRefusal) -> Failure {
    unauthenticated(refusal.to_string()).because(reason(refusal))
}

fn reason(refusal: TokenRefusal) -> &'static str {
    use TokenRefusal::{Exhausted, Expired, Revoked, Unknown};
    match refusal {
        Unknown => "TOKEN_UNKNOWN",
        Revoked => "TOKEN_REVOKED",
        Expired => "TOKEN_EXPIRED",
        Exhausted => "TOKEN_EXHAUSTED",
    }
}

#[cfg(test)]
mod tests {
    use gswarm_store::SimDisk;

    use super::*;

    #[derive(Debug)]
    struct Noon;

    impl Clock for Noon {
        fn mono(&self) -> Micros {
            Micros(1)
        }

        fn wall(&self) -> Micros {
            Micros::from_secs(43_200)
        }
    }

    fn open(disk: &SimDisk) -> Arc<Access> {
        let (clock, disk) = (Arc::new(Noon), Arc::new(disk.clone()));
        let data = std::path::Path::new("/data");
        disk.create_dir_all(data).unwrap();
        Arc::new(Access::open(AccessConfig::default(), None, clock, disk, data).unwrap())
    }

    fn token(id: &str) -> TokenRecord {
        TokenRecord {
            id: id.to_owned(),
            hash: "00".to_owned(),
            role: Role::Viewer,
            created: Micros::ZERO,
            expires: Micros::from_secs(86_400),
            max_uses: None,
            uses: 0,
            revoked: false,
            note: None,
        }
    }

    #[tokio::test]
    async fn what_is_given_counts_on_disk_only_and_what_is_taken_at_once() {
        let disk = SimDisk::new();
        let access = open(&disk);
        let add = |id: &'static str| {
            access.change(move |book, now| book.add_token(token(id), now).ok_or_else(no_authority))
        };
        add("kept").await.unwrap();
        disk.set_space_left(Some(0));
        let refused = add("lost").await.unwrap_err();
        assert!(refused.message.contains("nothing was changed"), "{refused}");
        assert!(access.book().token("lost").is_none());
        let revoked = access.take_away(|book, _| Ok(book.revoke("kept"))).await.unwrap_err();
        assert!(revoked.message.contains("in force until the host stops"), "{revoked}");
        assert!(access.book().token("kept").unwrap().revoked);
        // The disk never heard of it; once there is room, the next change tells it everything.
        disk.set_space_left(None);
        assert!(!open(&disk).book().token("kept").unwrap().revoked);
        add("later").await.unwrap();
        assert!(open(&disk).book().token("kept").unwrap().revoked);
    }
}
