//! A directory in use: is it there, writable, local, and is there room?

use std::io;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::Finding;
use crate::paths::{nearest_existing, network_file_system};
use crate::units;

/// Below this the host stops taking records.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Below this a day of recording may not fit.
const FREE_BYTES_WANTED: u64 = 10_000_000_000;

pub(super) fn findings(area: &'static str, path: &Path) -> Vec<Finding> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let existing = nearest_existing(&absolute);
    let shown = absolute.components().collect::<std::path::PathBuf>();
    let there = if existing == absolute { "" } else { " (made when needed)" };
    let mut findings = vec![match writable(existing) {
        Ok(()) => Finding::ok(area, format!("{}{there}{}", shown.display(), room_text(existing))),
        Err(error) => Finding::error(
            area,
            format!("`{}` cannot be written: {error}", existing.display()),
            format!("`chown` it to this user, or choose another directory with {}", flag(area)),
        ),
    }];
    if matches!(area, "data" | "state") {
        findings.extend(room(area, existing));
        findings.extend(network_file_system(&absolute).map(|kind| {
            Finding::warning(
                area,
                format!("`{}` is on a network file system ({kind})", shown.display()),
                format!("put it on a local disk with {}", flag(area)),
            )
        }));
    }
    findings
}

/// How the user moves a directory.
fn flag(area: &str) -> &'static str {
    match area {
        "data" => "`host start --data-dir DIR` or store.data_dir",
        "state" => "`client connect --state-dir DIR` or agent.state_dir",
        "output" => "`host start --output-dir DIR` or host.output_dir",
        _ => "log.dir in the configuration",
    }
}

fn writable(directory: &Path) -> io::Result<()> {
    Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

fn room_text(directory: &Path) -> String {
    free_bytes(directory).map(|bytes| format!(", {} free", units::bytes(bytes))).unwrap_or_default()
}

fn room(area: &'static str, directory: &Path) -> Option<Finding> {
    room_finding(area, free_bytes(directory)?)
}

fn room_finding(area: &'static str, free: u64) -> Option<Finding> {
    let fix = format!("free some space, or choose another disk with {}", flag(area));
    let message = format!("only {} are free", units::bytes(free));
    match free {
        ..FREE_BYTES_MIN => Some(Finding::error(area, message, fix)),
        FREE_BYTES_MIN..FREE_BYTES_WANTED if area == "data" => {
            Some(Finding::warning(area, message, fix))
        },
        _ => None,
    }
}

/// What an ordinary user may still write.
fn free_bytes(directory: &Path) -> Option<u64> {
    let status = statvfs(directory).ok()?;
    status.f_bavail.checked_mul(status.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn little_room_is_named() {
        let level = |area, free| room_finding(area, free).map(|finding| finding.level);
        assert_eq!(level("data", 1 << 20), Some(Level::Error));
        assert_eq!(level("data", 5_000_000_000), Some(Level::Warning));
        assert_eq!(level("state", 5_000_000_000), None);
        assert_eq!(level("data", 50_000_000_000), None);
    }

    #[test]
    fn directories_that_are_not_there_yet_are_fine() {
        let directory = tempfile::tempdir().unwrap();
        let findings = findings("log", &directory.path().join("a/b"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("made when needed"));
        assert_eq!(findings[0].level, Level::Ok);
    }
}
