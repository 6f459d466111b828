//! What a node's certificate says.

use gswarm_types::{Micros, NodeId};
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::certificates;

const NODE_URI: &str = "gswarm://node/";

/// A certificate that the handshake has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCertificate {
    pub node: NodeId,
    pub serial: String,
}

pub(crate) fn node_uri(node: NodeId) -> String {
    format!("{NODE_URI}{node}")
}

/// The node that a verified certificate speaks for; `None` for one that speaks for no node.
pub fn node_certificate(certificate: &CertificateDer<'_>) -> Option<NodeCertificate> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let node = names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(NODE_URI)?.parse().ok(),
        _ => None,
    })?;
    Some(NodeCertificate { node, serial: data_encoding::HEXLOWER.encode(certificate.raw_serial()) })
}

/// What a node's own certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub node: NodeId,
    pub begins: Micros,
    pub ends: Micros,
}

/// Of a certificate in PEM; `None` for one that speaks for no node.
pub fn node_life(pem: &str) -> Option<Life> {
    let chain = certificates(pem).ok()?;
    let own = chain.first()?;
    let (_, certificate) = X509Certificate::from_der(own).ok()?;
    let validity = certificate.validity();
    Some(Life {
        node: node_certificate(own)?.node,
        begins: Micros::from_secs(validity.not_before.timestamp()),
        ends: Micros::from_secs(validity.not_after.timestamp()),
    })
}
