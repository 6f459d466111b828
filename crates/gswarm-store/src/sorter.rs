//! Sorting more than fits in memory: sorted runs on disk, then one merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, ReadAt, fill, remove_if_there};

/// Bytes held before a run is written; few in tests, so that their exports come from runs.
const RUN_BYTES_MAX: usize = if cfg!(test) { 1_024 } else { 64 * 1024 * 1024 };
/// How much of each run is read at a time while merging.
const READ_BYTES: usize = 256 * 1024;
/// Key, payload length.
const HEAD_BYTES: usize = KEY_BYTES + 4;
const KEY_BYTES: usize = 40;

/// Sorts as bytes do.
pub(crate) type SortKey = [u8; KEY_BYTES];

/// Takes payloads in any order and gives them back in the order of their keys.
#[derive(Debug)]
pub(crate) struct Sorter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    stem: String,
    items: Vec<(SortKey, Vec<u8>)>,
    bytes: usize,
    runs: Vec<PathBuf>,
    run_bytes_max: usize,
}

impl Sorter {
    /// `stem` names the run files, which are removed when the merge is dropped.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, stem: String) -> Self {
        // Two exports of one session may run beside each other.
        static SORTERS: AtomicU64 = AtomicU64::new(0);
        let stem = format!("{stem}-{}", SORTERS.fetch_add(1, Ordering::Relaxed));
        Self {
            disk,
            dir: dir.to_owned(),
            stem,
            items: Vec::new(),
            bytes: 0,
            runs: Vec::new(),
            run_bytes_max: RUN_BYTES_MAX,
        }
    }

    pub(crate) fn push(&mut self, key: SortKey, payload: Vec<u8>) -> io::Result<()> {
        self.bytes += payload.len() + HEAD_BYTES + size_of::<(SortKey, Vec<u8>)>();
        self.items.push((key, payload));
        if self.bytes >= self.run_bytes_max { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.items.sort_unstable_by_key(|item| item.0);
        self.disk.create_dir_all(&self.dir)?;
        let path = self.dir.join(format!("{}-{}.run", self.stem, self.runs.len()));
        remove_if_there(self.disk.as_ref(), &path)?;
        let mut file = self.disk.create(&path)?;
        self.runs.push(path);
        let mut buffer = Vec::with_capacity(READ_BYTES + 4_096);
        for (key, payload) in self.items.drain(..) {
            let len = u32::try_from(payload.len()).map_err(io::Error::other)?;
            buffer.extend_from_slice(&key);
            buffer.extend_from_slice(&len.to_le_bytes());
            buffer.extend_from_slice(&payload);
            if buffer.len() >= READ_BYTES {
                file.append(&buffer)?;
                buffer.clear();
            }
        }
        self.bytes = 0;
        file.append(&buffer)
    }

    /// Everything in order.
    pub(crate) fn merge(mut self) -> io::Result<Merge> {
        self.items.sort_unstable_by_key(|item| item.0);
        let mut runs = Vec::with_capacity(self.runs.len());
        for path in &self.runs {
            runs.push(Run { file: self.disk.open(path)?, at: 0, buffer: Vec::new(), start: 0 });
        }
        let mut items = std::mem::take(&mut self.items);
        items.reverse();
        let mut merge = Merge { runs, items, heap: BinaryHeap::new(), _files: self };
        for number in 0..=merge.runs.len() {
            merge.refill(number)?;
        }
        Ok(merge)
    }
}

impl Drop for Sorter {
    fn drop(&mut self) {
        for path in &self.runs {
            // A left-over run is removed when the host starts.
            let _left_behind = self.disk.remove(path);
        }
    }
}

/// The sorted stream.
#[derive(Debug)]
pub(crate) struct Merge {
    runs: Vec<Run>,
    /// The part that never left memory, last first.
    items: Vec<(SortKey, Vec<u8>)>,
    heap: BinaryHeap<Reverse<(SortKey, usize, Vec<u8>)>>,
    _files: Sorter,
}

impl Merge {
    pub(crate) fn next(&mut self) -> io::Result<Option<(SortKey, Vec<u8>)>> {
        let Some(Reverse((key, source, payload))) = self.heap.pop() else { return Ok(None) };
        self.refill(source)?;
        Ok(Some((key, payload)))
    }

    fn refill(&mut self, source: usize) -> io::Result<()> {
        let item = match self.runs.get_mut(source) {
            Some(run) => run.next()?,
            None => self.items.pop(),
        };
        if let Some((key, payload)) = item {
            self.heap.push(Reverse((key, source, payload)));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Run {
    file: Box<dyn ReadAt>,
    at: u64,
    buffer: Vec<u8>,
    start: usize,
}

impl Run {
    fn next(&mut self) -> io::Result<Option<(SortKey, Vec<u8>)>> {
        if !self.have(HEAD_BYTES)? {
            return Ok(None);
        }
        let head = self.buffer.get(self.start..self.start + HEAD_BYTES).unwrap_or_default();
        let (key, len) = head.split_at_checked(KEY_BYTES).unwrap_or_default();
        let key = SortKey::try_from(key).map_err(io::Error::other)?;
        let len = u32::from_le_bytes(len.try_into().map_err(io::Error::other)?) as usize;
        if !self.have(HEAD_BYTES + len)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = self.start + HEAD_BYTES;
        let payload = self.buffer.get(from..from + len).unwrap_or_default().to_vec();
        self.start = from + len;
        Ok(Some((key, payload)))
    }

    /// True when this many bytes are in the buffer.
    fn have(&mut self, bytes: usize) -> io::Result<bool> {
        if self.buffer.len() - self.start >= bytes {
            return Ok(true);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let held = self.buffer.len();
        self.buffer.resize(bytes.max(READ_BYTES), 0);
        let read = match self.buffer.get_mut(held..) {
            Some(room) => fill(self.file.as_ref(), room, self.at)?,
            None => 0,
        };
        self.at += read as u64;
        self.buffer.truncate(held + read);
        Ok(self.buffer.len() >= bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk::SimDisk;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn sorts_like_a_vector(items in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..120), run in 50_usize..2_000) {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
            let mut sorter = Sorter::new(disk.clone(), Path::new("/t"), "x".to_owned());
            sorter.run_bytes_max = run;
            let mut expected = Vec::new();
            for (at, (number, payload)) in items.iter().enumerate() {
                let mut key = [0; KEY_BYTES];
                key[..2].copy_from_slice(&number.to_be_bytes());
                key[2..10].copy_from_slice(&(at as u64).to_be_bytes());
                expected.push((key, payload.clone()));
                sorter.push(key, payload.clone()).unwrap();
            }
            expected.sort();
            let mut merge = sorter.merge().unwrap();
            let mut got = Vec::new();
            while let Some(item) = merge.next().unwrap() {
                got.push(item);
            }
            prop_assert_eq!(got, expected);
            drop(merge);
            prop_assert!(disk.list(Path::new("/t")).unwrap().is_empty());
        }
    }
}
