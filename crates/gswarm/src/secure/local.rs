//! The token of the host's own machine: whoever can read it started the host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gswarm_tls::{Fingerprint, HostTrust, Secret};
use serde::{Deserialize, Serialize};

use super::{read_private, write_private};
use crate::process::Identity;

/// `hosts/<port>.json` in the user's gswarm directory.
#[derive(Serialize, Deserialize)]
struct LocalFile {
    #[serde(flatten)]
    host: Identity,
    token: String,
    /// Fingerprint of the host's authority; `None` where it speaks no TLS.
    #[serde(default)]
    authority: Option<String>,
}

/// What a command needs to be the admin of a host on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) token: Secret,
    /// Whoever else took the port meanwhile does not have it.
    pub(crate) trust: Option<HostTrust>,
}

/// The files of a running host; they go with it.
#[derive(Debug)]
pub(crate) struct LocalToken {
    paths: Vec<PathBuf>,
}

impl LocalToken {
    /// A token that nobody has seen.
    pub(crate) fn generate() -> Secret {
        let bytes: [u8; 32] = rand::random();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Secret::new(format!("gswl_{hex}"))
    }

    /// Tells it to commands of the same user.
    pub(crate) fn announce(
        root: &Path,
        ports: &[u16],
        token: &Secret,
        authority: Option<Fingerprint>,
    ) -> io::Result<Self> {
        let file = LocalFile {
            host: Identity::own()?,
            token: token.expose().to_owned(),
            authority: authority.map(|authority| authority.to_string()),
        };
        let text = serde_json::to_string(&file)?;
        let mut paths = Vec::with_capacity(ports.len());
        for port in ports {
            let path = path(root, *port);
            write_private(&path, &text)?;
            paths.push(path);
        }
        Ok(Self { paths })
    }
}

impl Drop for LocalToken {
    fn drop(&mut self) {
        for path in &self.paths {
            // One that stays behind names a process that is gone, which every reader checks.
            let _left_behind = fs::remove_file(path);
        }
    }
}

fn path(root: &Path, port: u16) -> PathBuf {
    root.join("hosts").join(format!("{port}.json"))
}

/// The token of the host that this user runs at the port.
pub(crate) fn read(root: &Path, port: u16) -> Option<Own> {
    let text = read_private(&path(root, port)).ok().flatten()?;
    let file: LocalFile = serde_json::from_str(&text).ok()?;
    let trust = match file.authority {
        Some(text) => Some(HostTrust::Fingerprint(text.parse().ok()?)),
        None => None,
    };
    file.host.is_alive().then(|| Own { token: Secret::new(file.token), trust })
}
