//! Who asks, and what they may do.

use crate::serve::PeerIdentity;

/// What a caller may do; each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Viewer,
    Operator,
    Admin,
}

/// Somebody at a door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Owner of the sessions they start.
    pub principal: String,
    pub role: Role,
}

impl Caller {
    /// Callers on this machine are its admin; others, which only an insecure host lets in, may
    /// operate sessions.
    pub(crate) fn of(peer: Option<&PeerIdentity>) -> Self {
        if peer.is_some_and(PeerIdentity::is_local) {
            Self::local()
        } else {
            Self { principal: "network".to_owned(), role: Role::Operator }
        }
    }

    /// A caller on this machine.
    pub fn local() -> Self {
        Self { principal: "local".to_owned(), role: Role::Admin }
    }
}
