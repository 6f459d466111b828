//! Damaged bytes, kept where a person can look at them.

use std::path::Path;

use crate::disk::{Disk, fill, write_atomic};
use crate::log::{Damage, segment_name};

/// The most that is copied of one damaged place.
const QUARANTINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Copies what could not be read, named after the place it stood. A place that cannot be copied is
/// still named in the damage and in the log.
pub(crate) fn keep(disk: &dyn Disk, journal: &Path, damage: &[Damage]) {
    let dir = journal.join("quarantine");
    if damage.is_empty() {
        return;
    }
    if let Err(error) = disk.create_dir_all(&dir) {
        tracing::warn!(%error, "no place for damaged lines");
        return;
    }
    for item in damage {
        tracing::error!(item.segment, item.offset, item.bytes, "damaged lines");
        let source = journal.join(segment_name(item.segment));
        let name = format!("{:010}-{}.damaged", item.segment, item.offset);
        let copy = disk.open(&source).and_then(|file| {
            let len = usize::try_from(item.bytes.min(QUARANTINE_BYTES_MAX)).unwrap_or(0);
            let mut bytes = vec![0; len];
            let filled = fill(file.as_ref(), &mut bytes, item.offset)?;
            bytes.truncate(filled);
            write_atomic(disk, &dir.join(name), &bytes)
        });
        if let Err(error) = copy {
            tracing::warn!(item.segment, %error, "damage not copied aside");
        }
    }
}
