//! Who belongs to the cluster: tokens, nodes with certificates, and nodes that wait for approval.
//!
//! Secrets never come here: a token is known by its id and the hash of its secret, a node by its id
//! and the fingerprint of its key.

use std::collections::BTreeMap;

use gswarm_types::{Micros, NodeId, NodeName, Role};
use serde::{Deserialize, Serialize};

/// Tokens that may exist at a time; expired and revoked ones are forgotten first.
const TOKENS_MAX: usize = 10_000;
/// Nodes that may have certificates.
const MEMBERS_MAX: usize = 50_000;
/// Nodes that may wait for approval, in all and from one address.
const APPLICANTS_MAX: usize = 256;
const APPLICANTS_PER_ADDRESS_MAX: usize = 16;
/// Somebody who waits for approval asks again within seconds; who does not is forgotten.
const APPLICANT_FORGOTTEN_AFTER: Micros = Micros::from_secs(3_600);
/// An expired token is listed for this long, so that people see why it is refused.
const TOKEN_FORGOTTEN_AFTER: Micros = Micros::from_secs(30 * 86_400);
/// A node whose answer was lost may ask again for this long with a token that it used up.
const JOIN_REPEATED_FOR: Micros = Micros::from_secs(600);
/// Certificates of one node that count at a time: the newest, and those it may still use.
const CERTIFICATES_MAX: usize = 4;

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    pub id: String,
    /// Of the secret, in hex.
    pub hash: String,
    pub role: Role,
    pub created: Micros,
    pub expires: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    #[serde(default)]
    pub uses: u32,
    #[serde(default)]
    pub revoked: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A node that was let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub name: NodeName,
    /// Fingerprint of its key, in hex.
    pub key: String,
    pub joined: Micros,
    #[serde(default)]
    certificates: Vec<Certificate>,
    #[serde(default)]
    pub removed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Certificate {
    serial: String,
    expires: Micros,
}

/// A certificate that a node was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    pub name: NodeName,
    /// Fingerprint of its key, in hex.
    pub key: String,
    pub serial: String,
    pub expires: Micros,
}

/// A node without a token that asks to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    pub name: NodeName,
    pub key: String,
    pub address: String,
    pub since: Micros,
    pub last_asked: Micros,
    pub approved: bool,
}

/// What became of somebody who asks without a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    First,
    Again,
    Approved,
}

/// Why nobody is approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApproveRefusal {
    Nobody,
    /// Several wait under this name: their ids and keys.
    Several(Vec<(NodeId, String)>),
}

/// Why a token is not good; each says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    #[error("this host does not know the token: make one on it with `gswarm token create`")]
    Unknown,
    #[error("the token was revoked: make another on the host with `gswarm token create`")]
    Revoked,
    #[error("the token has expired: make another on the host with `gswarm token create`")]
    Expired,
    #[error(
        "the token was used as often as it may be: make another on the host with `gswarm token create`"
    )]
    Exhausted,
}

/// Why a node does not get a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    #[error(
        "a node with this identity (`{0}`) has joined with another key: if this is that machine, \
         run `gswarm nodes remove {0}` on the host; if it is a copy of it, give this one a state \
         directory of its own with --state-dir"
    )]
    OtherKey(NodeName),
    #[error("`{0}` was removed from the cluster: join again with a new token")]
    Removed(NodeName),
    #[error("too many nodes: this host gives certificates to {MEMBERS_MAX} at most")]
    TooMany,
    #[error("too many nodes wait for approval: approve or wait, or join with a token")]
    TooManyWait,
}

/// Everything about who belongs here. Changes count once they are on disk, which is the caller's
/// business: change a copy, write it, keep it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessBook {
    #[serde(default)]
    tokens: Vec<TokenRecord>,
    #[serde(default)]
    members: BTreeMap<NodeId, Member>,
    #[serde(skip)]
    applicants: BTreeMap<NodeId, Applicant>,
}

impl AccessBook {
    /// `None` when there are too many.
    pub fn add_token(&mut self, token: TokenRecord, now: Micros) -> Option<()> {
        let gone = |token: &TokenRecord| now - token.expires > TOKEN_FORGOTTEN_AFTER;
        self.tokens.retain(|token| !gone(token));
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.retain(|token| !token.revoked && token.expires > now);
        }
        (self.tokens.len() < TOKENS_MAX).then(|| self.tokens.push(token))
    }

    /// Oldest first.
    pub fn tokens(&self) -> &[TokenRecord] {
        &self.tokens
    }

    /// The token of this id, whatever its state: its hash must be compared in any case.
    pub fn token(&self, id: &str) -> Option<&TokenRecord> {
        self.tokens.iter().find(|token| token.id == id)
    }

    /// False when there is no such token.
    pub fn revoke(&mut self, id: &str) -> bool {
        let token = self.tokens.iter_mut().find(|token| token.id == id);
        token.map(|token| token.revoked = true).is_some()
    }

    pub fn count_use(&mut self, id: &str) {
        if let Some(token) = self.tokens.iter_mut().find(|token| token.id == id) {
            token.uses = token.uses.saturating_add(1);
        }
    }

    /// Whether a certificate may be given for this key. With a token a node that was removed may
    /// come back, and whoever has the key may always have it renewed.
    pub fn may_join(&self, node: NodeId, key: &str, with_token: bool) -> Result<(), JoinRefusal> {
        match self.members.get(&node) {
            Some(member) if member.removed && !with_token => {
                Err(JoinRefusal::Removed(member.name.clone()))
            },
            Some(member) if !member.removed && member.key != key => {
                Err(JoinRefusal::OtherKey(member.name.clone()))
            },
            Some(_) => Ok(()),
            None if self.members.len() >= MEMBERS_MAX => Err(JoinRefusal::TooMany),
            None => Ok(()),
        }
    }

    /// True for a node that joined with this key a moment ago.
    pub fn has_just_joined(&self, node: NodeId, key: &str, now: Micros) -> bool {
        self.members.get(&node).is_some_and(|member| {
            !member.removed && member.key == key && now - member.joined < JOIN_REPEATED_FOR
        })
    }

    /// The node was given a certificate.
    pub fn certify(&mut self, node: NodeId, given: Certified, now: Micros) {
        let Certified { name, key, serial, expires } = given;
        self.applicants.remove(&node);
        let member = self.members.entry(node).or_insert_with(|| Member {
            name: name.clone(),
            key: key.clone(),
            joined: now,
            certificates: Vec::new(),
            removed: false,
        });
        if member.key != key || member.removed {
            member.certificates.clear();
            member.joined = now;
        }
        member.name = name;
        member.key = key;
        member.removed = false;
        member.certificates.retain(|certificate| certificate.expires > now);
        member.certificates.push(Certificate { serial, expires });
        let excess = member.certificates.len().saturating_sub(CERTIFICATES_MAX);
        member.certificates.drain(..excess);
    }

    /// True for a certificate that was given to this node, not taken back, and not over.
    pub fn holds(&self, node: NodeId, serial: &str, now: Micros) -> bool {
        let is_it = |known: &Certificate| known.serial == serial && known.expires > now;
        self.members
            .get(&node)
            .is_some_and(|member| !member.removed && member.certificates.iter().any(is_it))
    }

    /// When the node's newest certificate ends.
    pub fn ends(&self, node: NodeId) -> Option<Micros> {
        let member = self.members.get(&node).filter(|member| !member.removed)?;
        member.certificates.iter().map(|certificate| certificate.expires).max()
    }

    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }

    pub fn members(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.members.iter().map(|(node, member)| (*node, member))
    }

    /// Nodes of this name or id, members and those who wait: names need not be their own.
    pub fn find(&self, key: &str) -> Vec<NodeId> {
        let by_id: Option<NodeId> = key.parse().ok();
        let members = self.members.iter().map(|(node, member)| (*node, &member.name));
        let applicants = self.applicants.iter().map(|(node, applicant)| (*node, &applicant.name));
        let mut found: Vec<NodeId> = members
            .chain(applicants)
            .filter(|(node, name)| Some(*node) == by_id || name.as_str() == key)
            .map(|(node, _)| node)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Takes its certificates back. False when it has none.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let waited = self.applicants.remove(&node).is_some();
        match self.members.get_mut(&node) {
            Some(member) if !member.removed => {
                member.removed = true;
                member.certificates.clear();
                true
            },
            _ => waited,
        }
    }

    /// Somebody without a token asks.
    pub fn apply(
        &mut self,
        node: NodeId,
        name: NodeName,
        key: &str,
        address: &str,
        now: Micros,
    ) -> Result<Asked, JoinRefusal> {
        self.may_join(node, key, false)?;
        self.applicants.retain(|_, a| now - a.last_asked < APPLICANT_FORGOTTEN_AFTER);
        if let Some(applicant) = self.applicants.get_mut(&node) {
            // What was approved is a key: another one must be approved anew.
            if applicant.key != key {
                return Err(JoinRefusal::OtherKey(applicant.name.clone()));
            }
            applicant.last_asked = now;
            return Ok(if applicant.approved { Asked::Approved } else { Asked::Again });
        }
        let neighbours = self.applicants.values().filter(|a| a.address == address).count();
        if self.applicants.len() >= APPLICANTS_MAX || neighbours >= APPLICANTS_PER_ADDRESS_MAX {
            return Err(JoinRefusal::TooManyWait);
        }
        let applicant = Applicant {
            name,
            key: key.to_owned(),
            address: address.to_owned(),
            since: now,
            last_asked: now,
            approved: false,
        };
        self.applicants.insert(node, applicant);
        Ok(Asked::First)
    }

    pub fn applicants(&self) -> impl Iterator<Item = (NodeId, &Applicant)> {
        self.applicants.iter().map(|(node, applicant)| (*node, applicant))
    }

    /// Lets in who waits under this name or id. A name may be anybody's: among several only the id
    /// says who is meant.
    pub fn approve(&mut self, key: &str) -> Result<(NodeId, &Applicant), ApproveRefusal> {
        let matches = |node: &NodeId, applicant: &Applicant| {
            applicant.name.as_str() == key || node.to_string() == key
        };
        let found: Vec<(NodeId, String)> = self
            .applicants
            .iter()
            .filter(|(node, applicant)| matches(node, applicant))
            .map(|(node, applicant)| (*node, applicant.key.clone()))
            .collect();
        let node = match found.as_slice() {
            [] => return Err(ApproveRefusal::Nobody),
            [(node, _)] => *node,
            _ => return Err(ApproveRefusal::Several(found)),
        };
        let applicant = self.applicants.get_mut(&node).ok_or(ApproveRefusal::Nobody)?;
        applicant.approved = true;
        Ok((node, applicant))
    }
}

impl TokenRecord {
    pub fn check(&self, now: Micros) -> Result<(), TokenRefusal> {
        if self.revoked {
            Err(TokenRefusal::Revoked)
        } else if now >= self.expires {
            Err(TokenRefusal::Expired)
        } else if self.max_uses.is_some_and(|max| self.uses >= max) {
            Err(TokenRefusal::Exhausted)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const DAY: Micros = Micros::from_secs(86_400);

    fn node(number: u128) -> NodeId {
        NodeId::new(Uuid::from_u128(number))
    }

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn token(id: &str, max_uses: Option<u32>) -> TokenRecord {
        TokenRecord {
            id: id.to_owned(),
            hash: "00".to_owned(),
            role: Role::Node,
            created: Micros::ZERO,
            expires: DAY,
            max_uses,
            uses: 0,
            revoked: false,
            note: None,
        }
    }

    fn certified(name_of: &str, key: &str, serial: &str, expires: Micros) -> Certified {
        let name = name(name_of);
        Certified { name, key: key.to_owned(), serial: serial.to_owned(), expires }
    }

    #[test]
    fn a_token_is_good_until_it_is_not() {
        let mut book = AccessBook::default();
        book.add_token(token("a", Some(2)), Micros::ZERO).unwrap();
        book.add_token(token("b", None), Micros::ZERO).unwrap();
        let check = |book: &AccessBook, id: &str, now| book.token(id).unwrap().check(now);
        assert_eq!(check(&book, "a", DAY - Micros(1)), Ok(()));
        assert_eq!(check(&book, "a", DAY), Err(TokenRefusal::Expired));
        book.count_use("a");
        book.count_use("a");
        assert_eq!(check(&book, "a", Micros(1)), Err(TokenRefusal::Exhausted));
        assert!(book.revoke("b") && !book.revoke("c"));
        assert_eq!(check(&book, "b", Micros(1)), Err(TokenRefusal::Revoked));
        // Long after its end it is forgotten.
        book.add_token(token("c", None), Micros(40 * DAY.0)).unwrap();
        assert_eq!(book.tokens().len(), 1);
    }

    #[test]
    fn there_is_an_end_to_tokens() {
        let mut book = AccessBook::default();
        for number in 0..TOKENS_MAX {
            book.add_token(token(&number.to_string(), None), Micros::ZERO).unwrap();
        }
        assert_eq!(book.add_token(token("one more", None), Micros::ZERO), None);
        book.revoke("7");
        book.add_token(token("one more", None), Micros::ZERO).unwrap();
    }

    #[test]
    fn an_identity_belongs_to_its_key() {
        let mut book = AccessBook::default();
        assert_eq!(book.may_join(node(1), "k1", true), Ok(()));
        book.certify(node(1), certified("n1", "k1", "s1", DAY), Micros::ZERO);
        assert!(book.holds(node(1), "s1", Micros(7)) && !book.holds(node(1), "s2", Micros(7)));
        assert!(!book.holds(node(2), "s1", Micros(7)));
        assert!(book.has_just_joined(node(1), "k1", Micros(9)));
        assert!(
            !book.has_just_joined(node(1), "k1", DAY)
                && !book.has_just_joined(node(1), "k2", Micros(9))
        );
        assert_eq!(book.may_join(node(1), "k2", true), Err(JoinRefusal::OtherKey(name("n1"))));
        assert_eq!(book.may_join(node(1), "k1", false), Ok(()));
        // Renewed: both are good until the old one ends.
        book.certify(node(1), certified("n1", "k1", "s2", DAY + DAY), Micros(5));
        assert!(book.holds(node(1), "s1", Micros(7)) && book.holds(node(1), "s2", Micros(7)));
        book.certify(node(1), certified("n1", "k1", "s3", DAY + DAY), DAY);
        assert!(!book.holds(node(1), "s1", DAY) && book.holds(node(1), "s3", DAY));
        assert!(!book.holds(node(1), "s3", DAY + DAY), "it is over");
    }

    #[test]
    fn who_was_removed_comes_back_with_a_token_only() {
        let mut book = AccessBook::default();
        book.certify(node(1), certified("n1", "k1", "s1", DAY), Micros::ZERO);
        assert_eq!(book.find("n1"), [node(1)]);
        assert!(book.remove(node(1)) && !book.remove(node(1)) && !book.remove(node(9)));
        assert!(!book.holds(node(1), "s1", Micros(7)));
        assert_eq!(book.may_join(node(1), "k1", false), Err(JoinRefusal::Removed(name("n1"))));
        assert_eq!(book.may_join(node(1), "k9", true), Ok(()));
        book.certify(node(1), certified("n1", "k9", "s9", DAY), Micros(9));
        assert!(book.holds(node(1), "s9", Micros(7)) && !book.holds(node(1), "s1", Micros(7)));
    }

    #[test]
    fn without_a_token_somebody_must_approve() {
        let mut book = AccessBook::default();
        let ask = |book: &mut AccessBook, key: &str, now| {
            book.apply(node(1), name("n1"), key, "10.0.0.1", now)
        };
        assert_eq!(ask(&mut book, "k1", Micros(1)), Ok(Asked::First));
        assert_eq!(ask(&mut book, "k1", Micros(1)), Ok(Asked::Again));
        assert_eq!(book.approve("n2"), Err(ApproveRefusal::Nobody));
        // A stranger under the same name: the name alone lets nobody in.
        book.apply(node(0), name("n1"), "k0", "10.0.0.9", Micros(1)).unwrap();
        assert!(matches!(book.approve("n1"), Err(ApproveRefusal::Several(all)) if all.len() == 2));
        assert_eq!(book.approve(&node(0).to_string()).unwrap().0, node(0));
        book.remove(node(0));
        assert_eq!(book.approve("n1").unwrap().0, node(1));
        // Somebody else with the same identity gets nothing of it.
        assert_eq!(ask(&mut book, "k2", Micros(2)), Err(JoinRefusal::OtherKey(name("n1"))));
        assert_eq!(ask(&mut book, "k1", Micros(3)), Ok(Asked::Approved));
        // Who does not come back for it has to ask again.
        assert_eq!(ask(&mut book, "k2", DAY), Ok(Asked::First));
        book.certify(node(1), certified("n1", "k2", "s", DAY + DAY), DAY);
        assert_eq!(book.applicants().count(), 0);
    }

    #[test]
    fn the_queue_of_applicants_is_bounded() {
        let mut book = AccessBook::default();
        let mut waiting = 0;
        for number in 0..2_000_u32 {
            let address = format!("10.0.{}.1", number % 50);
            let asked =
                book.apply(node(number.into()), name(&format!("n{number}")), "k", &address, DAY);
            waiting += usize::from(asked == Ok(Asked::First));
        }
        assert_eq!(waiting, APPLICANTS_MAX);
        let mut book = AccessBook::default();
        for number in 0..100_u128 {
            let _full = book.apply(node(number), name("n"), "k", "10.0.0.1", DAY);
        }
        assert_eq!(book.applicants().count(), APPLICANTS_PER_ADDRESS_MAX);
    }

    #[test]
    fn survives_its_file_without_those_who_wait() {
        let mut book = AccessBook::default();
        book.add_token(token("a", Some(1)), Micros::ZERO).unwrap();
        book.certify(node(1), certified("n1", "k1", "s1", DAY), Micros::ZERO);
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<AccessBook>(&text).unwrap(), book);
        book.apply(node(2), name("n2"), "k2", "::1", Micros::ZERO).unwrap();
        assert_eq!(serde_json::to_string(&book).unwrap(), text);
    }
}
