//! A private key and the certificate that goes with it.

use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;
use crate::secret::Secret;
use crate::token::Fingerprint;

/// A private key in PEM.
#[derive(Debug, Clone)]
pub struct KeyFile(Secret);

/// Everything that one end shows of itself, and whom it trusts.
#[derive(Debug, Clone)]
pub struct Identity {
    pub key: KeyFile,
    /// In PEM, its own first.
    pub chain: String,
    /// In PEM.
    pub authority: String,
}

impl KeyFile {
    pub fn generate() -> Result<Self, TlsError> {
        Ok(Self(Secret::new(KeyPair::generate()?.serialize_pem())))
    }

    pub fn from_pem(text: &str) -> Result<Self, TlsError> {
        KeyPair::from_pem(text)?;
        Ok(Self(Secret::new(text)))
    }

    /// For a file that only its owner reads.
    pub fn pem(&self) -> &Secret {
        &self.0
    }

    /// What an authority needs to sign: the public key, and the proof of having the other half.
    pub fn request(&self) -> Result<String, TlsError> {
        let key = self.pair()?;
        Ok(CertificateParams::default().serialize_request(&key)?.pem()?)
    }

    /// Of the public half.
    pub fn fingerprint(&self) -> Result<Fingerprint, TlsError> {
        Ok(Fingerprint::of(&self.pair()?.subject_public_key_info()))
    }

    pub(crate) fn pair(&self) -> Result<KeyPair, TlsError> {
        Ok(KeyPair::from_pem(self.0.expose())?)
    }

    pub(crate) fn der(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(self.0.expose().as_bytes()).map_err(parse)
    }
}

pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(parse)?;
    if all.is_empty() {
        return Err(TlsError::Parse("nothing in it".to_owned()));
    }
    Ok(all)
}

pub(crate) fn parse(error: impl std::fmt::Display) -> TlsError {
    TlsError::Parse(error.to_string())
}

/// Of the first certificate in the text.
pub fn fingerprint_of(pem: &str) -> Result<Fingerprint, TlsError> {
    let all = certificates(pem)?;
    let first = all.first().ok_or_else(|| TlsError::Parse("nothing in it".to_owned()))?;
    Ok(Fingerprint::of(first))
}
