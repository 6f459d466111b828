//! The host's own authority: signs its certificate and those of its nodes, and nothing else.

use std::net::IpAddr;

use gswarm_types::{Micros, NodeId};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateSigningRequestParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::{KeyFile, certificates};
use crate::peer::node_uri;
use crate::token::Fingerprint;
use crate::{HOST_NAME, TlsError};

/// An authority outlives the machines it speaks for.
const AUTHORITY_LIFE: Micros = Micros::from_secs(20 * 365 * 86_400);
/// Clocks of nodes may be behind by this much, or by the life of the certificate if that is less.
const CLOCK_GRACE: Micros = Micros::from_secs(86_400);
const SERIAL_BYTES: usize = 16;

#[derive(Debug)]
pub struct Authority {
    key: KeyFile,
    certificate: String,
    fingerprint: Fingerprint,
}

/// Under which names and addresses browsers may know a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub names: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

/// A certificate that was just signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// In PEM.
    pub certificate: String,
    pub serial: String,
    pub expires: Micros,
    /// Of the public key that was signed.
    pub key: Fingerprint,
}

impl Authority {
    pub fn create(now: Micros) -> Result<Self, TlsError> {
        let key = KeyFile::generate()?;
        let mut params = params("gswarm authority", now, AUTHORITY_LIFE)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key.pair()?)?.pem();
        Self::load(key, certificate)
    }

    pub fn load(key: KeyFile, certificate: String) -> Result<Self, TlsError> {
        let der = certificates(&certificate)?;
        let own = der.first().ok_or_else(|| TlsError::Parse("nothing in it".to_owned()))?;
        let fingerprint = Fingerprint::of(own);
        let (_, parsed) = X509Certificate::from_der(own).map_err(crate::identity::parse)?;
        if parsed.public_key().raw != key.pair()?.subject_public_key_info() {
            return Err(TlsError::Parse("the key belongs to another certificate".to_owned()));
        }
        Ok(Self { key, certificate, fingerprint })
    }

    pub fn key(&self) -> &KeyFile {
        &self.key
    }

    /// In PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The host's own certificate, with the authority behind it: whoever has only the fingerprint
    /// of the authority finds it there.
    pub fn issue_host(
        &self,
        key: &KeyFile,
        names: &Names,
        now: Micros,
        life: Micros,
    ) -> Result<Issued, TlsError> {
        let mut params = params(HOST_NAME, now, life)?;
        let own = [HOST_NAME.to_owned(), "localhost".to_owned()];
        let dns = own.iter().chain(&names.names);
        let dns = dns.filter_map(|name| Some(SanType::DnsName(name.as_str().try_into().ok()?)));
        let addresses = names.addresses.iter().map(|address| SanType::IpAddress(*address));
        params.subject_alt_names = dns.chain(addresses).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = key.pair()?;
        let mut issued = self.sign(params, &pair, now, life)?;
        issued.certificate.push_str(&self.certificate);
        Ok(issued)
    }

    /// A node's certificate. Only the key of the request counts; what else it asks for does not.
    pub fn issue_node(
        &self,
        request: &str,
        node: NodeId,
        now: Micros,
        life: Micros,
    ) -> Result<Issued, TlsError> {
        // Checks the signature as well: the sender has the private half.
        let request = CertificateSigningRequestParams::from_pem(request)?;
        let mut params = params(&node.to_string(), now, life)?;
        let uri = node_uri(node);
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, &request.public_key, now, life)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
        now: Micros,
        life: Micros,
    ) -> Result<Issued, TlsError> {
        let mut serial = [0; SERIAL_BYTES];
        let random = SystemRandom::new().fill(&mut serial);
        random.map_err(|_| TlsError::Parse("the system gives no random numbers".to_owned()))?;
        // Positive, and never shorter than it looks.
        serial[0] = (serial[0] & 0x7f) | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let issuer: Issuer<'_, KeyPair> =
            Issuer::from_ca_cert_pem(&self.certificate, self.key.pair()?)?;
        let certificate: Certificate = params.signed_by(key, &issuer)?;
        Ok(Issued {
            certificate: certificate.pem(),
            serial: data_encoding::HEXLOWER.encode(&serial),
            expires: now + life,
            key: Fingerprint::of(&key.subject_public_key_info()),
        })
    }
}

fn params(name: &str, now: Micros, life: Micros) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "gswarm");
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = moment(now - CLOCK_GRACE.min(life))?;
    params.not_after = moment(now + life)?;
    Ok(params)
}

fn moment(at: Micros) -> Result<OffsetDateTime, TlsError> {
    OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1_000_000)).map_err(crate::identity::parse)
}
