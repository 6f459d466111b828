//! The HTTP contract: bodies, error kinds and the typed client.

pub mod body;
mod error;
mod target;
mod client;
pub mod timestamp;

pub use client::{Client, ClientError, Credentials, Download};
pub use error::{ErrorBody, ErrorCode, ErrorDetail, Failure};
pub use target::{DEFAULT_PORT, Target, TargetError};
