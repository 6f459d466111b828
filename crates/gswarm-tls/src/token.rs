//! Tokens: `gsw_` and 80 letters, which carry a number, a secret and whom to trust.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use crate::secret::Secret;

const PREFIX: &str = "gsw_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 20;
const HASH_BYTES: usize = 32;
const CHECK_BYTES: usize = 2;
const BYTES: usize = ID_BYTES + SECRET_BYTES + HASH_BYTES + CHECK_BYTES;
/// What is longer than this is not read at all.
const TEXT_BYTES_MAX: usize = 256;

/// SHA-256 of a certificate or a public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; HASH_BYTES]);

/// Names a token where its secret must not stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId([u8; ID_BYTES]);

/// What a host keeps of a token: enough to know it again, not enough to use it.
#[derive(Debug, Clone, Copy)]
pub struct TokenHash([u8; HASH_BYTES]);

/// A token as its bearer has it.
#[derive(Clone)]
pub struct Token {
    id: TokenId,
    secret: [u8; SECRET_BYTES],
    authority: Fingerprint,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokenError {
    #[error("a token begins with `gsw_`")]
    Prefix,
    #[error("the token is not whole: copy all {} letters of it", PREFIX.len() + BYTES.div_ceil(3) * 4)]
    Length,
    #[error("the token has a letter that was mistyped or lost")]
    Check,
    #[error("the system gives no random numbers")]
    Random,
}

impl Token {
    /// A new one for the host with this authority.
    pub fn generate(authority: Fingerprint) -> Result<Self, TokenError> {
        let random = SystemRandom::new();
        let mut id = [0; ID_BYTES];
        let mut secret = [0; SECRET_BYTES];
        random.fill(&mut id).map_err(|_| TokenError::Random)?;
        random.fill(&mut secret).map_err(|_| TokenError::Random)?;
        Ok(Self { id: TokenId(id), secret, authority })
    }

    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The authority of the host that made it.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    pub fn hash(&self) -> TokenHash {
        TokenHash(sha256(&self.secret))
    }

    /// The whole token, to be shown once.
    pub fn reveal(&self) -> Secret {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(&self.authority.0);
        let check = sha256(&bytes);
        bytes.extend(check.iter().take(CHECK_BYTES));
        Secret::new(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes)))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let body = text.strip_prefix(PREFIX).ok_or(TokenError::Prefix)?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(TokenError::Length);
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !body.bytes().all(is_letter) {
            return Err(TokenError::Check);
        }
        let bytes = BASE64URL_NOPAD.decode(body.as_bytes()).map_err(|_| TokenError::Length)?;
        let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| TokenError::Length)?;
        let (id, rest) = split::<ID_BYTES>(&bytes)?;
        let (secret, rest) = split::<SECRET_BYTES>(rest)?;
        let (authority, check) = split::<HASH_BYTES>(rest)?;
        let expected = sha256(bytes.get(..BYTES - CHECK_BYTES).unwrap_or_default());
        if expected.get(..CHECK_BYTES) != Some(check) {
            return Err(TokenError::Check);
        }
        Ok(Self { id: TokenId(id), secret, authority: Fingerprint(authority) })
    }
}

fn split<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), TokenError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(TokenError::Length)?;
    Ok((*head, rest))
}

impl TokenHash {
    /// Takes as long for a good guess as for a bad one.
    pub fn matches(&self, token: &Token) -> bool {
        self.0.ct_eq(&token.hash().0).into()
    }

    pub fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }
}

impl Fingerprint {
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }

    /// The beginning, for people to compare.
    pub fn brief(&self) -> String {
        let pairs: Vec<String> = self.0.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        pairs.join(":")
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.brief())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| TokenError::Check)?;
        Ok(Self(bytes.try_into().map_err(|_| TokenError::Length)?))
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| TokenError::Check)?;
        Ok(Self(bytes.try_into().map_err(|_| TokenError::Length)?))
    }
}

fn sha256(bytes: &[u8]) -> [u8; HASH_BYTES] {
    let mut out = [0; HASH_BYTES];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of_another() -> Token {
        Token::generate(Fingerprint::of(b"authority")).unwrap()
    }

    fn token() -> Token {
        Token::generate(Fingerprint::of(b"authority")).unwrap()
    }

    #[test]
    fn a_token_survives_its_text() {
        let token = token();
        let text = token.reveal().expose().to_owned();
        assert_eq!(text.len(), 84);
        let read: Token = format!(" {text}\n").parse().unwrap();
        assert_eq!((read.id(), read.authority()), (token.id(), Fingerprint::of(b"authority")));
        assert!(token.hash().matches(&read));
        let hash = TokenHash::from_hex(&token.hash().to_hex()).unwrap();
        assert!(hash.matches(&read) && !hash.matches(&token_of_another()));
        assert_eq!(token.id().to_string().parse(), Ok(token.id()));
        let shown = format!("{token:?} {:?}", token.hash().to_hex());
        assert!(!text.contains(&shown) && shown.contains(&token.id().to_string()));
    }

    #[test]
    fn every_wrong_letter_is_noticed_and_named() {
        let text = token().reveal().expose().to_owned();
        for at in 4..text.len() {
            for letter in [b'A', b'B'] {
                let mut wrong = text.clone().into_bytes();
                if wrong[at] == letter {
                    continue;
                }
                wrong[at] = letter;
                let wrong = String::from_utf8(wrong).unwrap();
                let id = text.parse::<Token>().unwrap().id();
                // One change in 65,536 slips through the check and is then unknown to the host.
                if let Ok(read) = wrong.parse::<Token>() {
                    assert!(read.id() != id || at >= 12, "letter {at}");
                }
            }
        }
        let error = |text: &str| text.parse::<Token>().unwrap_err();
        assert_eq!(error("hello"), TokenError::Prefix);
        assert_eq!(error(text.get(..60).unwrap()), TokenError::Length);
        assert_eq!(error(&format!("{}!", text.get(..83).unwrap())), TokenError::Check);
        assert_eq!(error(&format!("gsw_{}", "A".repeat(100_000))), TokenError::Length);
        assert_eq!(error("gsw_"), TokenError::Length);
        assert!(error(text.get(..60).unwrap()).to_string().contains("84 letters"));
    }
}
