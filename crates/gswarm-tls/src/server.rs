//! The host's end of TLS.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::RootCertStore;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use crate::identity::{KeyFile, certificates};
use crate::{TlsError, provider};

/// The certificate that a host shows; it can be replaced while connections are open.
#[derive(Debug)]
pub struct ServerCertificate {
    shown: RwLock<Arc<CertifiedKey>>,
}

impl ServerCertificate {
    /// `chain` is in PEM, its own first.
    pub fn new(key: &KeyFile, chain: &str) -> Result<Self, TlsError> {
        Ok(Self { shown: RwLock::new(certified(key, chain)?) })
    }

    /// From the next handshake on.
    pub fn replace(&self, key: &KeyFile, chain: &str) -> Result<(), TlsError> {
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = certified(key, chain)?;
        Ok(())
    }
}

fn certified(key: &KeyFile, chain: &str) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = CertifiedKey::from_der(certificates(chain)?, key.der()?, &provider())?;
    Ok(Arc::new(key))
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// TLS 1.3 only. A certificate of the authority makes a node; without one the door asks further.
pub fn server_config(
    certificate: Arc<ServerCertificate>,
    authority: &str,
) -> Result<ServerConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(authority)? {
        roots.add(root)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(crate::identity::parse)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
