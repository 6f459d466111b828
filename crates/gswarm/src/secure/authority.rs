//! The host's authority, in `<data directory>/security`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use gswarm_tls::{Authority, KeyFile};
use gswarm_types::Clock;

use super::{read_private, write_private};
use crate::clock::SystemClock;
use crate::fault::Fault;

/// The authority of the data directory; a new one for a new directory.
pub(crate) fn open(data_dir: &Path) -> anyhow::Result<Arc<Authority>> {
    let dir = data_dir.join("security");
    let (key_path, certificate_path) = (dir.join("authority.key"), dir.join("authority.pem"));
    let unreadable = || format!("the host's authority in `{}` cannot be used", dir.display());
    let key = read_private(&key_path).with_context(unreadable)?;
    let certificate = read_private(&certificate_path).with_context(unreadable)?;
    match (key, certificate) {
        (Some(key), Some(certificate)) => {
            let key = KeyFile::from_pem(&key).with_context(unreadable)?;
            Ok(Arc::new(Authority::load(key, certificate).with_context(unreadable)?))
        },
        (None, Some(_)) => {
            let message =
                format!("`{}` is gone, and with it the right to sign", key_path.display());
            let hint = format!(
                "bring it back from a backup, or remove `{}`: every node must then join again",
                dir.display()
            );
            Err(Fault::not_now(message).hint(hint).into())
        },
        (Some(_), None) if data_dir.join("access.json").try_exists().unwrap_or(true) => {
            let message = format!(
                "`{}` is gone: without it nobody knows whom the nodes trust",
                certificate_path.display()
            );
            let hint = format!(
                "bring it back (a copy is all that browsers need), or remove `{}` and \
                 `access.json`: every node must then join again",
                dir.display()
            );
            Err(Fault::not_now(message).hint(hint).into())
        },
        // A key alone: the host was killed before anybody saw its certificate.
        (_, None) => {
            let authority = Authority::create(SystemClock.wall()).with_context(unreadable)?;
            write_private(&key_path, authority.key().pem().expose()).with_context(unreadable)?;
            write_private(&certificate_path, authority.certificate()).with_context(unreadable)?;
            Ok(Arc::new(authority))
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path()).unwrap().fingerprint();
        assert_eq!(open(dir.path()).unwrap().fingerprint(), first);
        let key = dir.path().join("security/authority.key");
        std::fs::remove_file(&key).unwrap();
        let refused = open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("the right to sign"), "{refused}");
        std::fs::remove_file(dir.path().join("security/authority.pem")).unwrap();
        assert_ne!(open(dir.path()).unwrap().fingerprint(), first);
    }
}
