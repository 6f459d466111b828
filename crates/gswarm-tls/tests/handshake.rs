//! Who gets through a handshake with whom; both ends in memory.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::sync::Arc;

use gswarm_tls::{
    Authority, Fingerprint, HOST_NAME, HostTrust, Identity, Introduced, KeyFile, Names,
    NodeCertificate, ServerCertificate, TlsError, client_config, node_certificate, server_config,
};
use gswarm_types::{Micros, NodeId};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

const DAY: Micros = Micros::from_secs(86_400);

fn now() -> Micros {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Micros(i64::try_from(since.as_micros()).unwrap())
}

fn node(number: u128) -> NodeId {
    NodeId::new(uuid::Uuid::from_u128(number))
}

struct Host {
    authority: Authority,
    shown: Arc<ServerCertificate>,
    config: Arc<ServerConfig>,
}

impl Host {
    fn new(at: Micros, life: Micros) -> Self {
        let authority = Authority::create(at).unwrap();
        let key = KeyFile::generate().unwrap();
        let names = Names {
            names: vec!["gpu-head".to_owned(), "not a name".to_owned()],
            addresses: vec!["10.0.0.7".parse().unwrap()],
        };
        let issued = authority.issue_host(&key, &names, at, life).unwrap();
        let shown = Arc::new(ServerCertificate::new(&key, &issued.certificate).unwrap());
        let config = server_config(Arc::clone(&shown), authority.certificate()).unwrap();
        Self { authority, shown, config: Arc::new(config) }
    }

    fn identity(&self, node: NodeId, at: Micros, life: Micros) -> Identity {
        let key = KeyFile::generate().unwrap();
        let issued = self.authority.issue_node(&key.request().unwrap(), node, at, life).unwrap();
        assert_eq!(issued.key, key.fingerprint().unwrap());
        let authority = self.authority.certificate().to_owned();
        Identity { key, chain: issued.certificate, authority }
    }

    fn trust(&self) -> HostTrust {
        HostTrust::Authority(self.authority.certificate().to_owned())
    }
}

/// Pumps until both are content or one is not; gives the node that the host saw.
fn shake(host: &Host, client: ClientConfig) -> Result<Option<NodeCertificate>, String> {
    let name = ServerName::try_from("whatever.example").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(&host.config)).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut bytes = wire.as_slice();
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets().map_err(|error| format!("host: {error}"))?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut bytes = wire.as_slice();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets().map_err(|error| format!("client: {error}"))?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    assert_eq!(client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    Ok(server.peer_certificates().and_then(|chain| node_certificate(&chain[0])))
}

fn config(trust: &HostTrust, identity: Option<&Identity>) -> (ClientConfig, Introduced) {
    client_config(trust, identity, &["h2"]).unwrap()
}

#[test]
fn nodes_are_known_by_their_certificates_and_others_come_in_without() {
    let host = Host::new(now(), DAY);
    let identity = host.identity(node(7), now(), DAY);
    let seen = shake(&host, config(&host.trust(), Some(&identity)).0).unwrap().unwrap();
    assert_eq!(seen.node, node(7));
    assert_eq!(seen.serial.len(), 32);
    assert_eq!(shake(&host, config(&host.trust(), None).0), Ok(None));
}

#[test]
fn only_the_right_authority_is_believed() {
    let (host, other) = (Host::new(now(), DAY), Host::new(now(), DAY));
    let refused = |trust: &HostTrust| shake(&host, config(trust, None).0).unwrap_err();
    assert!(refused(&other.trust()).contains("client: invalid peer certificate"));
    let wrong = HostTrust::Fingerprint(other.authority.fingerprint());
    assert!(refused(&wrong).contains("UnknownIssuer"));
    let right = HostTrust::Fingerprint(host.authority.fingerprint());
    let (client, introduced) = config(&right, None);
    shake(&host, client).unwrap();
    let learned = introduced.authority().unwrap();
    assert_eq!(introduced.fingerprint(), Some(host.authority.fingerprint()));
    shake(&host, config(&HostTrust::Authority(learned), None).0).unwrap();
    let (client, introduced) = config(&HostTrust::FirstUse, None);
    shake(&host, client).unwrap();
    assert_eq!(introduced.fingerprint(), Some(host.authority.fingerprint()));
}

#[test]
fn certificates_of_others_and_of_yesterday_are_refused() {
    let (host, other) = (Host::new(now(), DAY), Host::new(now(), DAY));
    let foreign = other.identity(node(7), now(), DAY);
    let refused = shake(&host, config(&host.trust(), Some(&foreign)).0).unwrap_err();
    assert!(refused.starts_with("host: invalid peer certificate"), "{refused}");
    let expired = host.identity(node(7), now() - Micros(20 * DAY.0), DAY);
    let refused = shake(&host, config(&host.trust(), Some(&expired)).0).unwrap_err();
    assert!(
        refused.starts_with("host: invalid peer certificate: certificate expired"),
        "{refused}"
    );
    let old = Host::new(now() - Micros(20 * DAY.0), DAY);
    let refused = shake(&old, config(&old.trust(), None).0).unwrap_err();
    assert!(refused.contains("certificate expired"), "{refused}");
}

/// A node that was given a certificate cannot pose as the host to other nodes.
#[test]
fn a_node_is_no_host() {
    let host = Host::new(now(), DAY);
    let identity = host.identity(node(7), now(), DAY);
    let chain = format!("{}{}", identity.chain, identity.authority);
    let shown = Arc::new(ServerCertificate::new(&identity.key, &chain).unwrap());
    let config_of_it = server_config(Arc::clone(&shown), host.authority.certificate()).unwrap();
    let trust = host.trust();
    let impostor = Host { shown, config: Arc::new(config_of_it), ..host };
    let refused = shake(&impostor, config(&trust, None).0).unwrap_err();
    assert!(refused.starts_with("client: invalid peer certificate"), "{refused}");
}

#[test]
fn a_new_certificate_is_shown_from_the_next_handshake_on() {
    let host = Host::new(now() - Micros(20 * DAY.0), DAY);
    shake(&host, config(&host.trust(), None).0).unwrap_err();
    let key = KeyFile::generate().unwrap();
    let issued = host.authority.issue_host(&key, &Names::default(), now(), DAY).unwrap();
    host.shown.replace(&key, &issued.certificate).unwrap();
    shake(&host, config(&host.trust(), None).0).unwrap();
}

#[test]
fn an_authority_comes_back_from_its_files_and_only_with_its_own_key() {
    let first = Authority::create(now()).unwrap();
    let key = KeyFile::from_pem(first.key().pem().expose()).unwrap();
    let again = Authority::load(key, first.certificate().to_owned()).unwrap();
    assert_eq!(again.fingerprint(), first.fingerprint());
    assert!(!format!("{first:?}").contains("PRIVATE"));
    let rubbish = |text: &str| KeyFile::from_pem(text).unwrap_err();
    assert!(matches!(rubbish("nothing"), TlsError::Make(_)));
    let other = || KeyFile::generate().unwrap();
    Authority::load(other(), "rubbish".to_owned()).unwrap_err();
    let refused = Authority::load(other(), first.certificate().to_owned()).unwrap_err();
    assert!(refused.to_string().contains("another certificate"), "{refused}");
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
    first.issue_node(request, node(1), now(), DAY).unwrap_err();
    assert_ne!(Fingerprint::of(b"a"), Fingerprint::of(HOST_NAME.as_bytes()));
}
