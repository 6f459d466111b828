//! Tokens and members.

use std::collections::HashSet;

use gswarm_api::body::{
    NewTokenBody, NodesBody, RemovedBody, SilentBody, TokenBody, TokenRequest, TokensBody,
    WaitingBody, WhoBody,
};
use gswarm_api::{ErrorCode, Failure, timestamp};
use gswarm_core::{ApproveRefusal, TokenRecord, TokenRefusal};
use gswarm_tls::Fingerprint;
use gswarm_types::{EventKind, Micros, NodeId, Role, Severity};
use gswarm_wire::v1;

use super::{Handle, need};
use crate::access::Joined;
use crate::caller::Caller;
use crate::recorder::Call;
use crate::serve::PeerIdentity;

/// How long a token lasts that does not say.
const TOKEN_LIFE: Micros = Micros::from_secs(86_400);
/// The longest life of a token.
const TOKEN_LIFE_MAX: Micros = Micros::from_secs(10 * 365 * 86_400);
/// The most nodes that one token lets in.
const USES_MAX: u32 = 1_000_000;
const NOTE_CHARS_MAX: usize = 100;

impl Handle {
    pub fn whoami(&self, caller: &Caller) -> WhoBody {
        WhoBody { principal: caller.principal.clone(), role: caller.role.to_string() }
    }

    pub async fn create_token(
        &self,
        caller: &Caller,
        request: TokenRequest,
    ) -> Result<NewTokenBody, Failure> {
        need(caller, Role::Admin)?;
        let role = request.role.as_deref().unwrap_or("node");
        let role: Role = role.parse().map_err(|e| Failure::invalid(format!("{e}")))?;
        let life = match request.life.as_deref() {
            None => TOKEN_LIFE,
            Some(text) => {
                timestamp::parse_span(text).map_err(|e| Failure::invalid(e.to_string()))?
            },
        };
        if life <= Micros::ZERO || life > TOKEN_LIFE_MAX {
            return Err(Failure::invalid("a token lasts for more than nothing and at most 3650d"));
        }
        if request.max_uses.is_some_and(|uses| !(1..=USES_MAX).contains(&uses)) {
            return Err(Failure::invalid(format!("a token may be used 1 to {USES_MAX} times")));
        }
        if request.max_uses.is_some() && role != Role::Node {
            return Err(Failure::invalid("only tokens for nodes have a number of uses"));
        }
        let note = request.note.filter(|note| !note.is_empty());
        if let Some(note) = &note
            && (note.chars().count() > NOTE_CHARS_MAX || note.chars().any(char::is_control))
        {
            return Err(Failure::invalid(format!(
                "a note has at most {NOTE_CHARS_MAX} characters and stays on one line"
            )));
        }
        let new = self.access().create_token(role, life, request.max_uses, note).await?;
        let message = format!("token {} ({role}) made by {}", new.record.id, caller.principal);
        self.tell_event(None, EventKind::Other("token_created".to_owned()), message).await?;
        let token = self.token_body(&new.record);
        Ok(NewTokenBody { token, secret: new.secret.expose().to_owned() })
    }

    pub fn tokens(&self, caller: &Caller) -> Result<TokensBody, Failure> {
        need(caller, Role::Admin)?;
        let book = self.access().book();
        Ok(TokensBody { tokens: book.tokens().iter().map(|t| self.token_body(t)).collect() })
    }

    pub async fn revoke_token(&self, caller: &Caller, id: String) -> Result<TokenBody, Failure> {
        need(caller, Role::Admin)?;
        let record = self
            .access()
            .take_away(|book, _| {
                if !book.revoke(&id) {
                    let id: String = id.chars().take(64).flat_map(char::escape_debug).collect();
                    let message =
                        format!("there is no token `{id}`: `gswarm token list` shows all");
                    return Err(Failure::not_found(message).because("TOKEN_NOT_FOUND"));
                }
                book.token(&id).cloned().ok_or_else(|| Failure::internal("the token is gone"))
            })
            .await?;
        let message = format!("token {} revoked by {}", record.id, caller.principal);
        self.tell_event(None, EventKind::Other("token_revoked".to_owned()), message).await?;
        Ok(self.token_body(&record))
    }

    fn token_body(&self, record: &TokenRecord) -> TokenBody {
        let state = match record.check(self.access().now()) {
            Ok(()) => "good",
            Err(TokenRefusal::Expired) => "expired",
            Err(TokenRefusal::Exhausted) => "used_up",
            Err(TokenRefusal::Revoked | TokenRefusal::Unknown) => "revoked",
        };
        TokenBody {
            id: record.id.clone(),
            role: record.role.to_string(),
            state: state.to_owned(),
            created: timestamp::rfc3339(record.created),
            expires: timestamp::rfc3339(record.expires),
            uses: record.uses,
            max_uses: record.max_uses,
            note: record.note.clone(),
        }
    }

    /// What the book adds to the nodes that the recorder knows.
    pub(super) fn with_members(&self, mut body: NodesBody) -> NodesBody {
        let book = self.access().book();
        for node in &mut body.nodes {
            let id: Option<NodeId> = node.node_id.parse().ok();
            if let Some(member) = id.and_then(|id| book.member(id)) {
                node.member = !member.removed;
                if member.removed {
                    node.health = gswarm_api::body::NodeHealth::Removed;
                }
            }
        }
        body.waiting = book.applicants().map(waiting_body).collect();
        let heard: HashSet<&str> = body.nodes.iter().map(|node| node.node_id.as_str()).collect();
        body.silent_members = book
            .members()
            .filter(|(id, member)| !member.removed && !heard.contains(id.to_string().as_str()))
            .map(|(id, member)| SilentBody {
                name: member.name.to_string(),
                node_id: id.to_string(),
                joined: timestamp::rfc3339(member.joined),
            })
            .collect();
        body
    }

    pub async fn approve_node(
        &self,
        caller: &Caller,
        name: String,
    ) -> Result<WaitingBody, Failure> {
        need(caller, Role::Admin)?;
        let approved = self
            .access()
            .change(|book, _| {
                book.approve(&name)
                    .map(waiting_body)
                    .map_err(|refusal| not_approved(&name, refusal))
            })
            .await?;
        let message = format!("`{}` approved by {}", approved.name, caller.principal);
        self.tell_event(None, EventKind::Other("node_approved".to_owned()), message).await?;
        Ok(approved)
    }

    pub async fn remove_node(&self, caller: &Caller, name: String) -> Result<RemovedBody, Failure> {
        need(caller, Role::Admin)?;
        // By the name that the recorder gave it, else by the one it joined with.
        let known = self.ask(|reply| Call::Node(name.clone(), reply)).await?;
        let id = match &known {
            Ok(node) => node.node_id.parse().ok(),
            Err(_) => match self.access().book().find(&name).as_slice() {
                [] => None,
                [id] => Some(*id),
                several => {
                    let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
                    let message =
                        format!("several nodes go by this name: say which, {}", ids.join(" or "));
                    return Err(Failure::new(ErrorCode::Conflict, message));
                },
            },
        };
        let Some(id) = id else {
            return Err(known.err().unwrap_or_else(|| Failure::not_found("there is no such node")));
        };
        let removed = self.access().take_away(|book, _| Ok(book.remove(id))).await;
        // Whatever the disk says; but nobody is sent away who has nothing that could be taken back.
        if !matches!(removed, Ok(false)) {
            self.ask(|reply| Call::Disconnect(id, reply)).await?;
        }
        let removed = removed?;
        if !removed {
            let message = format!(
                "`{name}` has no certificate to take back: it comes from this machine or over an \
                 insecure listener"
            );
            return Err(Failure::new(ErrorCode::FailedPrecondition, message));
        }
        let message = format!("removed by {}", caller.principal);
        self.tell_event(Some(id), EventKind::Other("node_removed".to_owned()), message).await?;
        Ok(RemovedBody { name, node_id: id.to_string() })
    }

    /// Anybody may ask; what they get depends on what they show.
    pub(crate) async fn join(
        &self,
        peer: Option<&PeerIdentity>,
        request: v1::JoinRequest,
    ) -> Result<v1::JoinAnswer, Failure> {
        let (answer, joined) = self.access().join(peer, &request).await?;
        let (kind, message) = match joined {
            Joined::Now => ("node_joined", format!("`{}` joined", request.node_name)),
            Joined::StillWaiting => return Ok(answer),
            Joined::Waiting => (
                "node_waiting",
                format!("`{0}` waits: `gswarm nodes approve {0}` lets it in", request.node_name),
            ),
        };
        self.tell_event(None, EventKind::Other(kind.to_owned()), message).await?;
        Ok(answer)
    }

    async fn tell_event(
        &self,
        node: Option<NodeId>,
        kind: EventKind,
        message: String,
    ) -> Result<(), Failure> {
        tracing::info!(target: "access", "{message}");
        let severity = Severity::Info;
        self.ask(|reply| Call::Event { node, kind, severity, message, reply }).await
    }
}

fn not_approved(name: &str, refusal: ApproveRefusal) -> Failure {
    let name: String = name.chars().take(160).flat_map(char::escape_debug).collect();
    match refusal {
        ApproveRefusal::Nobody => {
            let message = format!("no node `{name}` waits: `gswarm nodes` shows who does");
            Failure::not_found(message).because("NODE_NOT_WAITING")
        },
        ApproveRefusal::Several(all) => {
            let all: Vec<String> = all
                .iter()
                .map(|(id, key)| {
                    let key: Option<Fingerprint> = key.parse().ok();
                    format!("{id} (key {})", key.map_or_else(String::new, |key| key.brief()))
                })
                .collect();
            let message = format!(
                "several nodes wait as `{name}`: approve by id, after a look at the key that the \
                 machine shows: {}",
                all.join(", ")
            );
            Failure::new(ErrorCode::Conflict, message)
        },
    }
}

fn waiting_body((id, applicant): (NodeId, &gswarm_core::Applicant)) -> WaitingBody {
    let key: Option<Fingerprint> = applicant.key.parse().ok();
    WaitingBody {
        name: applicant.name.to_string(),
        node_id: id.to_string(),
        key: key.map_or_else(String::new, |key| key.brief()),
        address: applicant.address.clone(),
        since: timestamp::rfc3339(applicant.since),
        approved: applicant.approved,
    }
}
