//! What somebody may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a caller may do; each may do what the ones before it may, but for `Node`, which only speaks
/// for its own node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Delivers its own records.
    Node,
    /// Reads everything.
    Viewer,
    /// Somebody on the host's own machine who showed no token: also starts and stops sessions.
    Local,
    /// Also deletes sessions and changes settings.
    Operator,
    /// Also tokens, nodes, and the host itself.
    Admin,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no role: there are node, viewer, operator and admin")]
pub struct UnknownRole(String);

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Viewer => "viewer",
            Self::Local => "local",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    /// Only those that a token can give.
    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        match text {
            "node" => Ok(Self::Node),
            "viewer" => Ok(Self::Viewer),
            "operator" => Ok(Self::Operator),
            "admin" => Ok(Self::Admin),
            other => Err(UnknownRole(other.chars().take(64).collect())),
        }
    }
}
