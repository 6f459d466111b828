//! Small files of the data directory: JSON with a version, replaced as a whole.

use std::io;
use std::path::Path;

use gswarm_store::Disk;
use gswarm_store::disk::{read_file, write_atomic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The format that this version writes; older ones are read, newer ones refused.
const FORMAT: u32 = 1;
const SMALL_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Deserialize)]
struct Claim {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    content: T,
}

/// `None` when there is no such file.
pub(crate) fn read<T: DeserializeOwned>(disk: &dyn Disk, path: &Path) -> io::Result<Option<T>> {
    let bytes = match read_file(disk, path, SMALL_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Looked at first: the rest of a newer file may mean anything.
    let claim: Claim = serde_json::from_slice(&bytes)?;
    if claim.format > FORMAT {
        return Err(io::Error::other(format!(
            "`{}` was written by a newer gswarm (format {}); this one reads up to {FORMAT}",
            path.display(),
            claim.format
        )));
    }
    let file: Versioned<T> = serde_json::from_slice(&bytes)?;
    Ok(Some(file.content))
}

pub(crate) fn write<T: Serialize>(disk: &dyn Disk, path: &Path, content: T) -> io::Result<()> {
    let bytes = serde_json::to_vec_pretty(&Versioned { format: FORMAT, content })?;
    write_atomic(disk, path, &bytes)
}

#[cfg(test)]
mod tests {
    use gswarm_store::SimDisk;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Content {
        number: u32,
    }

    #[test]
    fn newer_files_are_refused_and_damaged_ones_are_not_empty() {
        let disk = SimDisk::new();
        let path = Path::new("/data/small.json");
        disk.create_dir_all(Path::new("/data")).unwrap();
        assert_eq!(read::<Content>(&disk, path).unwrap(), None);
        write(&disk, path, Content { number: 7 }).unwrap();
        assert_eq!(read(&disk, path).unwrap(), Some(Content { number: 7 }));
        write_atomic(&disk, path, br#"{"format":2,"other":true}"#).unwrap();
        let refused = read::<Content>(&disk, path).unwrap_err().to_string();
        assert!(refused.contains("newer gswarm (format 2)"), "{refused}");
        write_atomic(&disk, path, b"{").unwrap();
        read::<Content>(&disk, path).unwrap_err();
    }
}
