//! Keys and tokens on this machine: files that only their owner reads.

mod authority;
mod credentials;
mod local;
mod prompt;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(crate) use authority::open as open_authority;
pub(crate) use credentials::Credentials;
pub(crate) use local::{LocalToken, read as read_local_token};
pub(crate) use prompt::ask_secret;

/// The largest of these files.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Writes a file that nobody but its owner can read, as a whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = parent.join(format!(".{name}.{}.tmp", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let _left_behind = fs::remove_file(&temporary);
    let mut file = options.open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(parent)?.sync_all()
}

/// `None` when there is no such file. One that others can read is refused.
pub(crate) fn read_private(path: &Path) -> io::Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("others can read `{0}`: run `chmod 600 {0}`", path.display()),
        ));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    fs::read_to_string(path).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/secret");
        assert_eq!(read_private(&path).unwrap(), None);
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(read_private(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = read_private(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }
}
