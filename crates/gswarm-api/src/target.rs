//! Where a host is: `HOST`, `HOST:PORT` or `http://HOST:PORT`.

use std::fmt;
use std::str::FromStr;

/// The port that is meant when none is said; every port of a host serves everything.
pub const DEFAULT_PORT: u16 = 8090;

/// The address of a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    host: String,
    port: u16,
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address: write HOST, HOST:PORT or http://HOST:PORT")]
pub struct TargetError {
    text: String,
}

impl Target {
    /// The host of this machine at its default port.
    pub fn local() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }
    }

    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same with the address that hosts listen on where the name may mean another as well:
    /// somebody else may listen there.
    #[must_use]
    pub fn on_this_machine(&self) -> Self {
        let host = if self.host == "localhost" { "127.0.0.1" } else { &self.host };
        Self::new(host, self.port)
    }

    /// True when the address names this machine only.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// `http://HOST:PORT`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{self}")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError { text: text.chars().take(256).collect() };
        let bare = text.strip_prefix("http://").unwrap_or(text);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        let (host, port) = split_port(bare).ok_or_else(wrong)?;
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
            None => DEFAULT_PORT,
        };
        let host_is_fine = !host.is_empty()
            && host
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%'));
        if host_is_fine { Ok(Self { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

/// Host and port; IPv6 addresses stand in brackets, or bare without a port.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None if after.is_empty() => Some((host, None)),
            None => None,
        };
    }
    if text.matches(':').count() > 1 {
        return Some((text, None));
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(text.parse::<Target>().ok().map(|t| t.to_string()).as_deref(), expected);
    }

    #[test]
    fn addresses() {
        check("master-node", Some("master-node:8090"));
        check("master-node:8091", Some("master-node:8091"));
        check("http://10.0.0.1:9010/", Some("10.0.0.1:9010"));
        check("::1", Some("[::1]:8090"));
        check("[::1]:8091", Some("[::1]:8091"));
        for bad in ["", ":8090", "a:b", "a:0", "a:99999", "a b", "[::1", "a/b", "https://a"] {
            check(bad, None);
        }
    }
}
