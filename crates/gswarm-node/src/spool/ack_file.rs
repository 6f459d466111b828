//! `ack.json`: up to where the host has each incarnation, so that a restart sends little twice.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use gswarm_store::disk::{read_file, write_atomic};
use gswarm_store::{Disk, LineBuffer};
use gswarm_types::Incarnation;
use serde::{Deserialize, Serialize};

use super::lines::is_checked_line;

/// One checked line; format 1 had no checksum.
const FORMAT: u32 = 2;
const UNCHECKED_FORMAT: u32 = 1;
const BYTES_MAX: u64 = 1024 * 1024;
const NAME: &str = "ack.json";

#[derive(Debug, Serialize, Deserialize)]
struct AckFile {
    format: u32,
    acked: Vec<Acked>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Acked {
    incarnation: Incarnation,
    through: u64,
}

/// Only a help: without it records are offered again and the host says that it has them.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> BTreeMap<Incarnation, u64> {
    let file = match read_file(disk, &dir.join(NAME), BYTES_MAX) {
        Ok(bytes) => parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(_) => None,
    };
    match file {
        Some(file) => {
            file.acked.into_iter().map(|acked| (acked.incarnation, acked.through)).collect()
        },
        None => {
            tracing::warn!(file = NAME, "acknowledgements of the last run could not be read");
            BTreeMap::new()
        },
    }
}

/// `None` when it is damaged or newer. A wrong number here would pass records off as delivered.
fn parse(bytes: &[u8]) -> Option<AckFile> {
    let file: AckFile = serde_json::from_slice(bytes).ok()?;
    match file.format {
        FORMAT => is_checked_line(bytes.strip_suffix(b"\n")?).then_some(file),
        UNCHECKED_FORMAT => (!bytes.starts_with(b"{\"crc\"")).then_some(file),
        _ => None,
    }
}

pub(super) fn write(
    disk: &dyn Disk,
    dir: &Path,
    acked: impl Iterator<Item = (Incarnation, u64)>,
) -> io::Result<()> {
    let acked = acked.map(|(incarnation, through)| Acked { incarnation, through }).collect();
    let mut line = LineBuffer::new();
    line.push(&AckFile { format: FORMAT, acked })?;
    write_atomic(disk, &dir.join(NAME), line.as_bytes())
}

#[cfg(test)]
mod tests {
    use gswarm_store::SimDisk;

    use super::*;

    #[track_caller]
    fn check(content: &[u8], expected: &[(Incarnation, u64)]) {
        let disk = SimDisk::new();
        write_atomic(&disk, &Path::new("/s").join(NAME), content).unwrap();
        let found = read(&disk, Path::new("/s"));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_what_was_written_is_believed() {
        let disk = SimDisk::new();
        let dir = Path::new("/s");
        write(&disk, dir, [(Incarnation(9), 49)].into_iter()).unwrap();
        let bytes = read_file(&disk, &dir.join(NAME), BYTES_MAX).unwrap();
        check(&bytes, &[(Incarnation(9), 49)]);
        let text = String::from_utf8(bytes).unwrap();
        check(text.replace("49", "69").as_bytes(), &[]);
        check(text.replace("\"format\":2", "\"format\":3").as_bytes(), &[]);
        // As earlier versions wrote it.
        let old = br#"{"format":1,"acked":[{"incarnation":"0000000000000009","through":49}]}"#;
        check(old, &[(Incarnation(9), 49)]);
    }
}
