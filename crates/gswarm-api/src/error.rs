//! The closed set of error kinds; the kind alone picks HTTP status, gRPC code and exit code.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, in the words of every edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    InvalidArgument,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    Conflict,
    FailedPrecondition,
    ResourceExhausted,
    Unavailable,
    Internal,
}

impl ErrorCode {
    pub const ALL: [Self; 9] = [
        Self::InvalidArgument,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::Conflict,
        Self::FailedPrecondition,
        Self::ResourceExhausted,
        Self::Unavailable,
        Self::Internal,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::FailedPrecondition => "failed_precondition",
            Self::ResourceExhausted => "resource_exhausted",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidArgument => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::FailedPrecondition => 412,
            Self::ResourceExhausted => 429,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }

    /// The number of the gRPC status.
    pub const fn grpc_code(self) -> i32 {
        match self {
            Self::InvalidArgument => 3,
            Self::Unauthenticated => 16,
            Self::PermissionDenied => 7,
            Self::NotFound => 5,
            Self::Conflict => 6,
            Self::FailedPrecondition => 9,
            Self::ResourceExhausted => 8,
            Self::Unavailable => 14,
            Self::Internal => 13,
        }
    }

    pub const fn exit_code(self) -> u8 {
        match self {
            Self::InvalidArgument => 2,
            Self::Unauthenticated => 3,
            Self::PermissionDenied => 4,
            Self::NotFound => 5,
            Self::Conflict => 6,
            Self::FailedPrecondition => 7,
            Self::ResourceExhausted => 8,
            Self::Unavailable => 9,
            Self::Internal => 1,
        }
    }

    /// The kind that an HTTP status stands for.
    pub fn from_http_status(status: u16) -> Self {
        Self::ALL.into_iter().find(|code| code.http_status() == status).unwrap_or(match status {
            405 | 406 | 408 | 411 | 413..=417 | 422 | 431 => Self::InvalidArgument,
            502 | 504 => Self::Unavailable,
            _ => Self::Internal,
        })
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error on its way to an edge: a kind and a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: ErrorCode,
    pub message: String,
    /// The finer word for programs, such as `SESSION_NOT_FOUND`.
    pub reason: Option<&'static str>,
}

impl Failure {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), reason: None }
    }

    #[must_use]
    pub fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }
}

/// The body of every failed HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// What stands inside `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    pub code: ErrorCode,
    pub message: String,
    #[serde(default)]
    pub details: BTreeMap<String, String>,
    pub request_id: String,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_is_told_apart_at_every_edge() {
        let all = ErrorCode::ALL;
        assert_eq!(all.iter().map(|c| c.http_status()).collect::<HashSet<_>>().len(), all.len());
        assert_eq!(all.iter().map(|c| c.grpc_code()).collect::<HashSet<_>>().len(), all.len());
        assert_eq!(all.iter().map(|c| c.exit_code()).collect::<HashSet<_>>().len(), all.len());
        for code in all {
            assert_eq!(ErrorCode::from_http_status(code.http_status()), code);
        }
        assert_eq!(ErrorCode::from_http_status(422), ErrorCode::InvalidArgument);
    }
}
