//! Inputs as files: several in one input, with checksums that can be made right.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_store::disk::write_atomic;
use gswarm_store::{Disk, SimDisk};

/// Stands between two files of one input.
const BETWEEN: &[u8] = b"\n==\n";
/// `{"crc":"`
const CRC_AT: usize = 8;
/// `{"crc":"xxxxxxxx",`
pub(crate) const BODY_AT: usize = 18;

/// An input whose first byte says how the rest is taken.
///
/// No fuzzer guesses a checksum: where the first byte is odd (`1`), every line gets the right one,
/// so that what lies behind the check is reached. Where it is even (`0`), the bytes are as they are.
pub(crate) fn several(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some((first, rest)) = bytes.split_first() else { return Vec::new() };
    let files = split(rest);
    if first & 1 == 1 { files.iter().map(|file| with_checksums(file)).collect() } else { files }
}

fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut files = vec![Vec::new()];
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(BETWEEN) {
            files.push(Vec::new());
            rest = after;
            continue;
        }
        if let Some(file) = files.last_mut() {
            file.push(*byte);
        }
        rest = after;
    }
    files
}

/// The same lines, each that begins like a line of a log with its right checksum.
pub(crate) fn with_checksums(file: &[u8]) -> Vec<u8> {
    let lines: Vec<Vec<u8>> = file.split(|byte| *byte == b'\n').map(with_checksum).collect();
    lines.join(&b'\n')
}

fn with_checksum(line: &[u8]) -> Vec<u8> {
    let mut line = line.to_vec();
    if !line.starts_with(br#"{"crc":""#) {
        return line;
    }
    if let Some(body) = line.get(BODY_AT..) {
        let digits = format!("{:08x}", crc32c::crc32c(body));
        if let Some(place) = line.get_mut(CRC_AT..CRC_AT + digits.len()) {
            place.copy_from_slice(digits.as_bytes());
        }
    }
    line
}

/// A disk in memory with these files.
pub(crate) fn disk_with<'a>(
    files: impl IntoIterator<Item = (PathBuf, &'a [u8])>,
) -> (SimDisk, Arc<dyn Disk>) {
    let disk = SimDisk::new();
    for (path, bytes) in files {
        write_atomic(&disk, &path, bytes).expect("the disk in memory takes files");
    }
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    (disk, shared)
}

/// A directory of real files for parsers that open a path; it goes with the thread.
pub(crate) fn with_real_file<T>(bytes: &[u8], act: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static DIR: tempfile::TempDir = tempfile::tempdir().expect("a directory for inputs");
    }
    DIR.with(|dir| {
        let path = dir.path().join("input");
        std::fs::write(&path, bytes).expect("the input can be written");
        act(&path)
    })
}

/// Text for a terminal holds nothing that steers it.
#[track_caller]
pub(crate) fn check_printable(text: &str) {
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!text.chars().any(steers), "control characters in {text:?}");
}
