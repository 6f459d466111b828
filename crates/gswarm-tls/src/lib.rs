//! Who is who on the network: the host's own authority, its tokens, and TLS 1.3 on both ends.
//!
//! A host signs its own certificate and one for each node. Everybody else trusts that one authority
//! and nothing besides: whom a name server or a public authority believes does not matter here.

mod secret;
mod token;
mod authority;
mod identity;
mod peer;
mod server;
mod client;

pub use authority::{Authority, Issued, Names};
pub use client::{HostTrust, Introduced, client_config};
pub use identity::{Identity, KeyFile, fingerprint_of};
pub use peer::{Life, NodeCertificate, node_certificate, node_life};
pub use secret::Secret;
pub use server::{ServerCertificate, server_config};
pub use token::{Fingerprint, Token, TokenError, TokenHash, TokenId};

/// The name that every host's certificate carries besides its own: agents and commands ask for it,
/// so that a host may be reached under any name or address.
pub const HOST_NAME: &str = "gswarm";

/// What went wrong with a key or a certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("cannot use a certificate or its key")]
    Use(#[from] rustls::Error),
    #[error("this is no certificate or key: {0}")]
    Parse(String),
}

fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}
