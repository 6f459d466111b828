//! Tokens, requests for certificates and certificates, as strangers send them.

use std::cell::RefCell;

use gswarm_tls::{Authority, Token, fingerprint_of, node_life};
use gswarm_types::{Micros, NodeId};

const DAY: Micros = Micros::from_secs(86_400);

thread_local! {
    static AUTHORITY: RefCell<Option<Authority>> = const { RefCell::new(None) };
}

/// A token that is taken is the text that its bearer has; whatever is signed speaks for the node
/// that was asked for and for nobody else.
pub fn credentials(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.reveal().expose(), text.trim(), "another token has the same meaning");
        assert!(token.hash().matches(&token));
    }
    // Neither may panic.
    let _unusable = fingerprint_of(&text);
    let _unusable = node_life(&text);
    let node: NodeId = "00000000-0000-7000-8000-000000000007".parse().expect("an id");
    AUTHORITY.with_borrow_mut(|authority| {
        let authority = authority.get_or_insert_with(|| Authority::create(DAY).expect("a key"));
        if let Ok(issued) = authority.issue_node(&text, node, DAY, DAY) {
            let life = node_life(&issued.certificate).expect("a certificate of a node");
            assert_eq!((life.node, life.ends), (node, DAY + DAY));
        }
    });
}
