//! What lies on disk: the segmented log, the journal, sealed segments, sessions and exports.

pub mod disk;
mod line;
mod time_text;
mod lock;
pub mod entry;
pub mod log;
mod quarantine;
pub mod catalog;
pub mod journal;
pub mod sealed;
pub mod session_file;
pub mod reader;
pub mod survey;
mod sorter;
pub mod export;
#[cfg(test)]
mod fixture;

pub use disk::{Disk, SimDisk, StdDisk};
pub use line::LineBuffer;
pub use lock::{DirLock, LockError};
