//! Text that must not show up in logs.

use std::fmt;

use subtle::ConstantTimeEq;

/// A password, a token, a private key. Printing it shows that there is one, and no more.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the wire and for files that only their owner reads.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes as long for a good guess as for a bad one.
    pub fn matches(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "(secret) Some((secret))");
        assert!(secret.matches("hunter2") && !secret.matches("hunter") && !secret.matches(""));
    }
}
