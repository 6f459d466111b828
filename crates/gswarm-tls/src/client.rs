//! The other end of TLS: agents and commands.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore,
    SignatureScheme,
};

use crate::identity::{Identity, certificates};
use crate::token::Fingerprint;
use crate::{HOST_NAME, TlsError, provider};

/// Whom to take for the host.
#[derive(Debug, Clone)]
pub enum HostTrust {
    /// Whoever this authority (in PEM) signed for.
    Authority(String),
    /// Whoever an authority with this fingerprint signed for.
    Fingerprint(Fingerprint),
    /// Anybody, this once: what is learned is trusted from then on.
    FirstUse,
}

/// What a handshake told.
#[derive(Debug, Clone, Default)]
pub struct Introduced(Arc<OnceLock<CertificateDer<'static>>>);

impl Introduced {
    /// The authority of the host, in PEM.
    pub fn authority(&self) -> Option<String> {
        let der = self.0.get()?;
        let body = data_encoding::BASE64.encode(der);
        let lines: Vec<&str> =
            body.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
        let text = lines.join("\n");
        Some(format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"))
    }

    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.0.get().map(|der| Fingerprint::of(der))
    }
}

/// TLS 1.3 only; with an identity it is shown to the host. `protocols` as ALPN names them.
pub fn client_config(
    trust: &HostTrust,
    identity: Option<&Identity>,
    protocols: &[&str],
) -> Result<(ClientConfig, Introduced), TlsError> {
    let introduced = Introduced::default();
    let trust = match trust {
        HostTrust::Authority(pem) => {
            let der = certificates(pem)?.into_iter().next();
            Known::Authority(der.ok_or_else(|| TlsError::Parse("nothing in it".to_owned()))?)
        },
        HostTrust::Fingerprint(fingerprint) => Known::Fingerprint(*fingerprint),
        HostTrust::FirstUse => Known::Nothing,
    };
    let verifier = HostVerifier { trust, provider: provider(), introduced: introduced.clone() };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        Some(identity) => {
            builder.with_client_auth_cert(certificates(&identity.chain)?, identity.key.der()?)?
        },
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok((config, introduced))
}

#[derive(Debug)]
enum Known {
    Authority(CertificateDer<'static>),
    Fingerprint(Fingerprint),
    Nothing,
}

/// Finds the authority, then leaves the rest to the usual rules with that authority alone. The name
/// that was dialled does not matter: the authority signs for one host.
#[derive(Debug)]
struct HostVerifier {
    trust: Known,
    provider: Arc<CryptoProvider>,
    introduced: Introduced,
}

impl HostVerifier {
    fn authority<'a>(
        &'a self,
        shown: &'a [CertificateDer<'a>],
    ) -> Result<&'a CertificateDer<'a>, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        match &self.trust {
            Known::Authority(der) => Ok(der),
            Known::Fingerprint(wanted) => {
                shown.iter().find(|der| Fingerprint::of(der) == *wanted).ok_or_else(unknown)
            },
            Known::Nothing => shown.last().ok_or_else(unknown),
        }
    }
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _dialled: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = self.authority(intermediates)?.clone().into_owned();
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let usual = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&self.provider),
        )
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
        let name = ServerName::try_from(HOST_NAME).map_err(|e| Error::General(e.to_string()))?;
        let verified = usual.verify_server_cert(end_entity, &[], &name, ocsp_response, now)?;
        // A second handshake finds the same one.
        let _known = self.introduced.0.set(authority);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
