//! Nodes become members: with a token at once, without one when somebody approves.

use std::sync::Arc;

use gswarm_api::{ErrorCode, Failure};
use gswarm_core::{Asked, Certified, TokenRefusal};
use gswarm_tls::{Issued, Token};
use gswarm_types::{NodeId, NodeName};
use gswarm_wire::v1;
use gswarm_wire::v1::membership_server::{Membership, MembershipServer};
use tonic::{Request, Response, Status};

use super::{Access, no_authority, unauthenticated};
use crate::caller::{Authority as By, Caller};
use crate::handle::Handle;
use crate::serve::PeerIdentity;
use crate::stream::to_status;

/// The largest message: a request for a certificate is a few hundred bytes.
const MESSAGE_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct MembershipService {
    handle: Handle,
}

impl MembershipService {
    pub(crate) fn server(handle: Handle) -> MembershipServer<Self> {
        MembershipServer::new(Self { handle }).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl Membership for MembershipService {
    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinAnswer>, Status> {
        let peer = request.extensions().get::<PeerIdentity>().cloned();
        let answer = self.handle.join(peer.as_ref(), request.into_inner()).await;
        answer.map(Response::new).map_err(|failure| to_status(&failure))
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::JoinAnswer>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let Some(Caller { by: By::Certificate(node), .. }) = caller else {
            return Err(to_status(&unauthenticated("only a member can renew its certificate")));
        };
        let answer = self.handle.access().renew(node, &request.into_inner().request_pem).await;
        answer.map(Response::new).map_err(|failure| to_status(&failure))
    }
}

/// What the admin hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    Now,
    Waiting,
    StillWaiting,
}

impl Access {
    pub(crate) async fn join(
        self: &Arc<Self>,
        peer: Option<&PeerIdentity>,
        request: &v1::JoinRequest,
    ) -> Result<(v1::JoinAnswer, Joined), Failure> {
        let invalid = |text: String| Failure::invalid(text);
        let node: NodeId = request.node_id.parse().map_err(|e| invalid(format!("{e}")))?;
        let name = NodeName::new(request.node_name.as_str()).map_err(|e| invalid(e.to_string()))?;
        let token = match request.token.as_str() {
            "" => None,
            text => Some(self.join_token(text, peer)?),
        };
        let issued = self.sign(&request.request_pem, node)?;
        let key = issued.key.to_string();
        let address = peer
            .and_then(|peer| peer.address)
            .map_or_else(|| "this process".to_owned(), |address| address.to_string());
        let given = issued.clone();
        let joined = self
            .change(|book, now| {
                match &token {
                    Some(id) => {
                        // Looked at again: somebody may have used it up meanwhile.
                        let good = book.token(id).map_or(Ok(()), |token| token.check(now));
                        match good {
                            Ok(()) => book.count_use(id),
                            // The answer was lost on the way, and the same node asks again.
                            Err(TokenRefusal::Exhausted)
                                if book.has_just_joined(node, &key, now) => {},
                            Err(refusal) => return Err(super::not_good(refusal)),
                        }
                        book.may_join(node, &key, true).map_err(refused)?;
                    },
                    None => {
                        let asked = book.apply(node, name.clone(), &key, &address, now);
                        match asked.map_err(refused)? {
                            Asked::First => return Ok(Joined::Waiting),
                            Asked::Again => return Ok(Joined::StillWaiting),
                            Asked::Approved => {},
                        }
                    },
                }
                let Issued { serial, expires, .. } = given;
                book.certify(node, Certified { name, key, serial, expires }, now);
                Ok(Joined::Now)
            })
            .await?;
        match joined {
            Joined::Now => Ok((self.answer(issued)?, joined)),
            Joined::Waiting | Joined::StillWaiting => {
                Ok((v1::JoinAnswer { pending: true, ..Default::default() }, joined))
            },
        }
    }

    fn join_token(&self, text: &str, peer: Option<&PeerIdentity>) -> Result<String, Failure> {
        let known = text
            .parse::<Token>()
            .map_err(|error| unauthenticated(error.to_string()))
            .and_then(|token| self.right(&token))
            .and_then(|record| match record.check(self.now()) {
                Ok(()) | Err(TokenRefusal::Exhausted) => Ok(record),
                Err(refusal) => Err(super::not_good(refusal)),
            });
        let record = known.map_err(|failure| self.wrong(failure, peer))?;
        if record.role != gswarm_types::Role::Node {
            let message = format!(
                "this token is for people ({}), not for nodes: `gswarm token create` on the host \
                 makes one that joins",
                record.role
            );
            return Err(Failure::new(ErrorCode::PermissionDenied, message));
        }
        Ok(record.id)
    }

    async fn renew(
        self: &Arc<Self>,
        node: NodeId,
        request: &str,
    ) -> Result<v1::JoinAnswer, Failure> {
        // Each renewal is a write of the whole list.
        let left = self.book().ends(node).map(|ends| ends - self.now());
        if left.is_some_and(|left| left.0 > self.config.certificate_life.0 / 4 * 3) {
            let message = "the node's certificate is fresh: there is nothing to renew yet";
            return Err(Failure::new(ErrorCode::FailedPrecondition, message));
        }
        let issued = self.sign(request, node)?;
        let (key, given) = (issued.key.to_string(), issued.clone());
        self.change(|book, now| {
            let member = book.member(node).filter(|member| !member.removed && member.key == key);
            let Some(name) = member.map(|member| member.name.clone()) else {
                return Err(unauthenticated("a certificate is renewed for the same key only"));
            };
            let Issued { serial, expires, .. } = given;
            book.certify(node, Certified { name, key, serial, expires }, now);
            Ok(())
        })
        .await?;
        tracing::info!(target: "access", %node, "certificate renewed");
        self.answer(issued)
    }

    fn sign(&self, request: &str, node: NodeId) -> Result<Issued, Failure> {
        let authority = self.authority.as_ref().ok_or_else(no_authority)?;
        let life = self.config.certificate_life;
        authority
            .issue_node(request, node, self.now(), life)
            .map_err(|_| Failure::invalid("the request for a certificate is not right"))
    }

    fn answer(&self, issued: Issued) -> Result<v1::JoinAnswer, Failure> {
        let authority = self.authority.as_ref().ok_or_else(no_authority)?;
        Ok(v1::JoinAnswer {
            pending: false,
            certificate_pem: issued.certificate,
            authority_pem: authority.certificate().to_owned(),
            expires_us: issued.expires.0,
        })
    }
}

fn refused(refusal: gswarm_core::JoinRefusal) -> Failure {
    use gswarm_core::JoinRefusal::{OtherKey, Removed, TooMany, TooManyWait};
    let code = match &refusal {
        OtherKey(_) => ErrorCode::Conflict,
        Removed(_) => ErrorCode::PermissionDenied,
        TooMany | TooManyWait => ErrorCode::ResourceExhausted,
    };
    Failure::new(code, refusal.to_string())
}
