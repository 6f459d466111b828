//! `expired.json`: how far retention has taken the recording away.

use std::io;
use std::path::{Path, PathBuf};

use gswarm_store::Disk;
use gswarm_types::Micros;
use serde::{Deserialize, Serialize};

use crate::small_file;

/// Removed segments whose numbers are remembered: many more than go between two checkpoints.
const REMOVED_MAX: usize = 4_096;

/// What retention took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Expiry {
    /// Host time of the newest record that was removed, in microseconds; `None` while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expired_until: Option<Micros>,
    /// Numbers of the last segments that went: a start that does not find them need not wonder.
    #[serde(default)]
    removed: Vec<u64>,
}

impl Expiry {
    pub(super) fn remove(&mut self, segments: impl Iterator<Item = u64>) {
        self.removed.extend(segments);
        let excess = self.removed.len().saturating_sub(REMOVED_MAX);
        self.removed.drain(..excess);
    }

    /// True when retention took the segment, or everything of its time.
    pub(super) fn took(&self, number: u64, last_time: Option<Micros>) -> bool {
        self.removed.contains(&number) || last_time <= self.expired_until
    }
}

pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("expired.json")
}

/// Empty while nothing was ever removed.
pub(super) fn read(disk: &dyn Disk, data_dir: &Path) -> io::Result<Expiry> {
    Ok(small_file::read(disk, &path(data_dir))?.unwrap_or_default())
}

pub(super) fn write(disk: &dyn Disk, data_dir: &Path, expiry: &Expiry) -> io::Result<()> {
    small_file::write(disk, &path(data_dir), expiry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_is_known_by_its_number_or_its_time() {
        let mut expiry = Expiry { expired_until: Some(Micros(100)), ..Expiry::default() };
        assert!(expiry.took(7, Some(Micros(100))) && !expiry.took(7, Some(Micros(101))));
        // A clock that was ahead: the times of the segment say nothing.
        expiry.remove([7].into_iter());
        assert!(expiry.took(7, Some(Micros(i64::MAX))) && !expiry.took(8, Some(Micros(101))));
        expiry.remove(10..20_000);
        assert_eq!(expiry.removed.len(), REMOVED_MAX);
        assert!(expiry.took(19_999, Some(Micros(101))));
        // Files of before know no numbers.
        let old: Expiry = serde_json::from_str(r#"{"expired_until":5}"#).unwrap();
        assert_eq!(old.expired_until, Some(Micros(5)));
    }
}
