//! Who asks, and what they may do.

use gswarm_types::NodeId;

pub use gswarm_types::Role;

/// Somebody at a door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Owner of the sessions they start.
    pub principal: String,
    pub role: Role,
    /// Why they may do that.
    pub by: Authority,
    /// Id of the token that they showed.
    pub token: Option<String>,
}

/// What a role rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// Where the caller is: this machine, or the network of an insecure host. A browser there can be
    /// made to ask by any page, so that the door looks at Host and Origin.
    Place,
    /// A token that the request shows.
    Token,
    /// A token that a browser adds by itself.
    Cookie,
    /// The certificate of this node.
    Certificate(NodeId),
    /// An old client from a network that the host was told of.
    OldClient,
}

impl Caller {
    /// The admin of the host's own machine.
    pub fn local() -> Self {
        Self { principal: "local".to_owned(), role: Role::Admin, by: Authority::Token, token: None }
    }

    /// True when records of this node may come from this caller. `is_member` says whether the node
    /// has a certificate: then nothing less will do, and without one a certificate is worth nothing.
    pub(crate) fn may_deliver(&self, node: NodeId, is_member: bool) -> bool {
        match self.by {
            Authority::Certificate(own) => own == node && is_member,
            Authority::Place => !is_member,
            Authority::Token | Authority::Cookie | Authority::OldClient => false,
        }
    }
}
