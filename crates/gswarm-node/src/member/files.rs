//! The node's key and certificate on disk: for its own user only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gswarm_tls::{Identity, KeyFile, node_life};
use gswarm_types::NodeId;

/// A key or a certificate is a few hundred bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("identity") }
    }

    pub(super) fn has_certificate(&self) -> bool {
        self.dir.join("certificate.pem").try_exists().unwrap_or(false)
    }

    /// `None` when the node has not joined.
    pub(super) fn read(&self) -> io::Result<Option<Identity>> {
        let all =
            (self.text("key.pem")?, self.text("certificate.pem")?, self.text("authority.pem")?);
        let (Some(key), Some(chain), Some(authority)) = all else { return Ok(None) };
        let key = KeyFile::from_pem(&key).map_err(io::Error::other)?;
        Ok(Some(Identity { key, chain, authority }))
    }

    /// The authority of the host that this node joined.
    pub(super) fn authority(&self) -> Option<String> {
        self.text("authority.pem").ok().flatten()
    }

    /// The key, unless it belongs to another node: a copied directory.
    pub(super) fn key_of(&self, node: NodeId) -> io::Result<Option<KeyFile>> {
        let owner = self.text("node")?;
        let of_it = self.text("certificate.pem")?.and_then(|pem| node_life(&pem));
        let is_own = owner.is_some_and(|owner| owner.trim() == node.to_string())
            && of_it.is_none_or(|life| life.node == node);
        if !is_own {
            return Ok(None);
        }
        let key = self.text("key.pem")?;
        key.map(|pem| KeyFile::from_pem(&pem).map_err(io::Error::other)).transpose()
    }

    /// Forgets everything of before.
    pub(super) fn new_key(&self, node: NodeId) -> io::Result<KeyFile> {
        let key = KeyFile::generate().map_err(io::Error::other)?;
        for name in ["certificate.pem", "authority.pem"] {
            match fs::remove_file(self.dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {},
            }
        }
        self.put("key.pem", key.pem().expose())?;
        self.put("node", &node.to_string())?;
        Ok(key)
    }

    /// Whom to trust until there is a certificate.
    pub(super) fn keep_authority(&self, pem: &str) -> io::Result<()> {
        if self.authority().as_deref() == Some(pem) {
            return Ok(());
        }
        self.put("authority.pem", pem)
    }

    /// The certificate last: it is what makes the rest count.
    pub(super) fn write(&self, identity: &Identity) -> io::Result<()> {
        self.put("authority.pem", &identity.authority)?;
        self.put("certificate.pem", &identity.chain)
    }

    fn put(&self, name: &str, text: &str) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let path = self.dir.join(name);
        let temporary = self.dir.join(format!("{name}.tmp"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.dir)?.sync_all()
    }

    fn text(&self, name: &str) -> io::Result<Option<String>> {
        let path = self.dir.join(name);
        let bytes = match fs::metadata(&path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if bytes > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        fs::read_to_string(path).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use uuid::Uuid;

    fn node(number: u128) -> NodeId {
        NodeId::new(Uuid::from_u128(number))
    }

    #[test]
    fn a_key_is_for_its_owner_and_its_node_only() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new(dir.path());
        assert!(files.key_of(node(1)).unwrap().is_none() && !files.has_certificate());
        let key = files.new_key(node(1)).unwrap();
        let mode = |name: &str| {
            let path = dir.path().join("identity").join(name);
            fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode(""), mode("key.pem"), mode("node")), (0o700, 0o600, 0o600));
        let again = files.key_of(node(1)).unwrap().unwrap();
        assert_eq!(again.fingerprint().unwrap(), key.fingerprint().unwrap());
        // Copied to another machine, whose node has another id.
        assert!(files.key_of(node(2)).unwrap().is_none());
        assert!(files.read().unwrap().is_none());
    }
}
