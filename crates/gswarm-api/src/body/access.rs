//! Tokens, members, and who is asking.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /api/v1/whoami`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoBody {
    pub principal: String,
    /// node, viewer, local, operator or admin.
    pub role: String,
}

/// `POST /api/v1/login`
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    #[serde(default)]
    pub token: String,
}

impl std::fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginRequest { token: (secret) }")
    }
}

/// `POST /api/v1/tokens`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// node (the default), viewer, operator or admin.
    #[serde(default)]
    pub role: Option<String>,
    /// How long it is good for, such as `24h` or `30d`; a day where it says nothing.
    #[serde(default)]
    pub life: Option<String>,
    /// How many nodes may join with it; any number where it says nothing.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_uses: Option<u32>,
    /// What it is for; shown in the list and as the owner of sessions.
    #[serde(default)]
    pub note: Option<String>,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenBody {
    pub id: String,
    pub role: String,
    /// good, expired, revoked or used_up.
    pub state: String,
    pub created: String,
    pub expires: String,
    pub uses: u32,
    pub max_uses: Option<u32>,
    pub note: Option<String>,
}

/// The only time that a token is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewTokenBody {
    pub token: TokenBody,
    pub secret: String,
}

impl std::fmt::Debug for NewTokenBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTokenBody").field("token", &self.token).finish_non_exhaustive()
    }
}

/// `GET /api/v1/tokens`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokensBody {
    pub tokens: Vec<TokenBody>,
}

/// A node without a token that waits until somebody approves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingBody {
    pub name: String,
    pub node_id: String,
    /// Fingerprint of its key, as the node itself shows it.
    pub key: String,
    pub address: String,
    pub since: String,
    pub approved: bool,
}

/// `DELETE /api/v1/nodes/{name}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedBody {
    pub name: String,
    pub node_id: String,
}

/// A node that joined and was never heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilentBody {
    pub name: String,
    pub node_id: String,
    pub joined: String,
}
