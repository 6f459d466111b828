//! A disk in memory that forgets what was not synced, fills up and fails on command.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Append, Disk, ReadAt};

/// The unit in which unsynced bytes reach the platter, in any order.
const PAGE_BYTES: usize = 4_096;

/// Shared by every handle; clones see the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Inode>,
    /// What a program sees.
    names: BTreeMap<PathBuf, usize>,
    /// What a power loss leaves, plus the beginning of what is pending in each directory, and some
    /// of the removals behind it.
    durable: BTreeMap<PathBuf, usize>,
    pending: Vec<NameChange>,
    slow: Option<Slow>,
    /// Rises at each power loss: handles of before are dead.
    era: u64,
    /// Operations that change the disk since the start.
    changes: u64,
    /// The power goes at this many changes.
    cut_at: Option<u64>,
    /// This one change fails, and only it.
    fail_at: Option<u64>,
    space_left: Option<u64>,
    sync_fails: bool,
}

#[derive(Debug, Default, Clone)]
struct Inode {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

/// A change of one directory. A rename into another directory is two of them: its new name may be
/// on stable storage while the old one still is as well, but never neither.
#[derive(Debug, Clone)]
enum NameChange {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    /// The old name goes once the new one is there.
    UnlinkMoved {
        from: PathBuf,
        to: PathBuf,
        inode: usize,
    },
}

/// What a slow disk waits for in each sync.
#[derive(Clone)]
struct Slow(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

/// What a power loss did, for messages of failing tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerLoss {
    pub bytes_forgotten: u64,
    pub names_forgotten: usize,
}

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// Every change from the given count on fails, as if the machine were gone.
    pub fn cut_power_at(&self, changes: u64) {
        self.state().cut_at = Some(changes);
    }

    /// The change with this count fails without doing anything; the ones after it work.
    pub fn fail_once_at(&self, changes: u64) {
        self.state().fail_at = Some(changes);
    }

    /// Another disk with the same content, its power and its space unharmed. Handles stay behind.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.state();
        let copy = State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable: state.durable.clone(),
            pending: state.pending.clone(),
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(copy)) }
    }

    /// Changes so far, to choose a moment for `cut_power_at`.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// `None` is a disk without end.
    pub fn set_space_left(&self, bytes: Option<u64>) {
        self.state().space_left = bytes;
    }

    /// A failing sync also forgets the unsynced bytes, as Linux does: syncing again would lie.
    pub fn set_sync_fails(&self, fails: bool) {
        self.state().sync_fails = fails;
    }

    /// Each sync of a file calls this on its own thread before it takes effect: the time it takes is
    /// the time that the disk takes.
    pub fn set_slow(&self, wait: Option<Arc<dyn Fn() + Send + Sync>>) {
        self.state().slow = wait.map(Slow);
    }

    /// Forgets what was not synced, in an order that the seed decides, and revives the disk. Each
    /// directory keeps the beginning of its changes, whatever the others keep.
    pub fn power_loss(&self, seed: u64) -> PowerLoss {
        let mut random = StdRng::seed_from_u64(seed);
        let mut state = self.state();
        let mut loss = PowerLoss { bytes_forgotten: 0, names_forgotten: 0 };
        let pending = std::mem::take(&mut state.pending);
        let mut left: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for change in &pending {
            *left.entry(dir_of(change).to_owned()).or_default() += 1;
        }
        for count in left.values_mut() {
            *count = random.random_range(0..=*count);
        }
        for change in pending {
            match left.get_mut(dir_of(&change)) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    apply(&mut state.durable, change);
                },
                // A removal may overtake what was done to other names before it: nothing but a sync of
                // the directory orders the two.
                _ if matches!(change, NameChange::Unlink(_)) && random.random_bool(0.25) => {
                    apply(&mut state.durable, change);
                },
                Some(_) | None => loss.names_forgotten += 1,
            }
        }
        state.names = state.durable.clone();
        for inode in &mut state.files {
            let before = inode.bytes.len();
            inode.bytes = after_power_loss(inode, &mut random);
            inode.synced.clone_from(&inode.bytes);
            loss.bytes_forgotten += before.saturating_sub(inode.bytes.len()) as u64;
        }
        state.era += 1;
        state.cut_at = None;
        loss
    }

    /// Takes changes again without forgetting any: the process died, not the machine.
    pub fn revive(&self) {
        let mut state = self.state();
        state.cut_at = None;
        state.era += 1;
    }

    /// Flips one bit of a file, for damage that nobody wrote.
    pub fn flip(&self, path: &Path, offset: usize, bit: u8) -> bool {
        let mut state = self.state();
        let Some(inode) = state.names.get(path).copied() else { return false };
        let Some(file) = state.files.get_mut(inode) else { return false };
        let Some(byte) = file.bytes.get_mut(offset) else { return false };
        *byte ^= 1 << (bit % 8);
        if let Some(byte) = file.synced.get_mut(offset) {
            *byte ^= 1 << (bit % 8);
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The synced bytes, then pages of the rest that each made it or did not.
fn after_power_loss(inode: &Inode, random: &mut StdRng) -> Vec<u8> {
    let mut bytes = inode.synced.clone();
    if inode.bytes.len() <= bytes.len() {
        return bytes;
    }
    let reached = random.random_range(bytes.len()..=inode.bytes.len());
    while bytes.len() < reached {
        let start = bytes.len();
        let end = ((start / PAGE_BYTES + 1) * PAGE_BYTES).min(reached);
        // The page that holds the synced end may also keep its old content.
        if random.random_bool(0.2) {
            bytes.resize(end, 0);
        } else {
            bytes.extend_from_slice(inode.bytes.get(start..end).unwrap_or_default());
        }
    }
    bytes
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: NameChange) {
    match change {
        NameChange::Link(path, inode) => {
            names.insert(path, inode);
        },
        NameChange::Unlink(path) => {
            names.remove(&path);
        },
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        },
        NameChange::UnlinkMoved { from, to, inode } => {
            if names.get(&from) == Some(&inode) && names.get(&to) == Some(&inode) {
                names.remove(&from);
            }
        },
    }
}

/// The directory whose sync makes the change durable.
fn dir_of(change: &NameChange) -> &Path {
    let path = match change {
        NameChange::Link(path, _)
        | NameChange::Unlink(path)
        | NameChange::Rename(_, path)
        | NameChange::UnlinkMoved { from: path, .. } => path,
    };
    path.parent().unwrap_or(path)
}

impl State {
    fn change(&mut self) -> io::Result<()> {
        if self.cut_at.is_some_and(|at| self.changes >= at) {
            return Err(io::Error::other("the simulated machine has no power"));
        }
        self.changes += 1;
        if self.fail_at == Some(self.changes - 1) {
            return Err(io::Error::other("simulated failure of one call"));
        }
        Ok(())
    }

    fn rename_pending(&mut self, change: NameChange) {
        apply(&mut self.names, change.clone());
        self.pending.push(change);
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let mut state = self.state();
        state.change()?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.files.len();
        state.files.push(Inode::default());
        state.rename_pending(NameChange::Link(path.to_owned(), inode));
        Ok(Box::new(SimFile { disk: self.clone(), inode, era: state.era }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        let state = self.state();
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile { disk: self.clone(), inode, era: state.era }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        if from.parent() == to.parent() {
            state.rename_pending(NameChange::Rename(from, to));
        } else {
            state.rename_pending(NameChange::Link(to.clone(), inode));
            state.rename_pending(NameChange::UnlinkMoved { from, to, inode });
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let freed = state.files.get(inode).map_or(0, |file| file.bytes.len() as u64);
        if let Some(left) = &mut state.space_left {
            *left += freed;
        }
        state.rename_pending(NameChange::Unlink(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        for change in std::mem::take(&mut state.pending) {
            // The old name of a moved file outlives this sync while its new one is not durable.
            let waits = matches!(&change, NameChange::UnlinkMoved { to, inode, .. }
                if state.durable.get(to) != Some(inode));
            if dir_of(&change) != dir || waits {
                state.pending.push(change);
            } else {
                apply(&mut state.durable, change);
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let names = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(names.filter_map(|p| Some(p.file_name()?.to_str()?.to_owned())).collect())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.state().space_left.unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
    era: u64,
}

impl SimFile {
    fn with<T>(
        &self,
        changes: bool,
        act: impl FnOnce(&mut State, usize) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.era != self.era {
            return Err(io::Error::other("the file was open before the power went"));
        }
        if changes {
            state.change()?;
        }
        act(&mut state, self.inode)
    }
}

impl Append for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(true, |state, inode| {
            let room = state.space_left.map_or(bytes.len(), |left| {
                usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len())
            });
            let (written, left_over) = bytes.split_at(room);
            if let Some(left) = &mut state.space_left {
                *left -= written.len() as u64;
            }
            if let Some(file) = state.files.get_mut(inode) {
                file.bytes.extend_from_slice(written);
            }
            // A short write first, as a full disk does.
            if left_over.is_empty() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let slow = self.disk.state().slow.clone();
        if let Some(Slow(wait)) = slow {
            wait();
        }
        let fails_now = {
            let state = self.disk.state();
            state.fail_at == Some(state.changes)
        };
        self.with(!fails_now, |state, inode| {
            if fails_now {
                state.changes += 1;
            }
            let fails = state.sync_fails || fails_now;
            if let Some(file) = state.files.get_mut(inode) {
                if fails {
                    file.bytes.clone_from(&file.synced);
                    return Err(io::Error::other("simulated failure of fsync"));
                }
                file.synced.clone_from(&file.bytes);
            }
            Ok(())
        })
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.with(true, |state, inode| {
            if let Some(file) = state.files.get_mut(inode) {
                file.bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
            }
            Ok(())
        })
    }
}

impl ReadAt for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.with(false, |state, inode| {
            Ok(state.files.get(inode).map_or(0, |file| file.bytes.len() as u64))
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(false, |state, inode| {
            let bytes = state.files.get(inode).map_or(&[][..], |file| &file.bytes);
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let rest = bytes.get(start..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            for (to, from) in buffer.iter_mut().zip(rest) {
                *to = *from;
            }
            Ok(count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_synced_survives() {
        let disk = SimDisk::new();
        let dir = Path::new("/d");
        let mut kept = disk.create(&dir.join("kept")).unwrap();
        kept.append(b"one").unwrap();
        kept.sync().unwrap();
        disk.sync_dir(dir).unwrap();
        kept.append(b"two").unwrap();
        let _lost = disk.create(&dir.join("lost")).unwrap();
        let mut seen_lost = false;
        let mut seen_kept = false;
        for seed in 0..50 {
            let copy = disk.fork();
            copy.power_loss(seed);
            let bytes = super::super::read_file(&copy, &dir.join("kept"), 100).unwrap();
            assert!(bytes.starts_with(b"one"), "{bytes:?}");
            // The rest of the page came, or the file only grew.
            let rest = &bytes[3..];
            assert!(b"two".starts_with(rest) || [0; 3].starts_with(rest), "{bytes:?}");
            let names = copy.list(dir).unwrap();
            seen_lost |= !names.contains(&"lost".to_owned());
            seen_kept |= names.contains(&"lost".to_owned());
        }
        assert!(seen_lost && seen_kept);
        disk.power_loss(1);
        kept.append(b"dead handle").unwrap_err();
    }

    #[test]
    fn pages_reach_the_platter_in_any_order() {
        let disk = SimDisk::new();
        let path = Path::new("/d/file");
        let mut file = disk.create(path).unwrap();
        file.append(&[1; 100]).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.append(&[2; 3 * PAGE_BYTES]).unwrap();
        // The page with the synced end, the one after it, and later ones that came first.
        let (mut first_missing, mut middle_missing, mut in_order) = (false, false, false);
        for seed in 0..200 {
            let copy = disk.fork();
            copy.power_loss(seed);
            let bytes = super::super::read_file(&copy, path, 100_000).unwrap();
            assert_eq!(bytes[..100], [1; 100], "what was synced stays");
            let is_there = |at: usize| bytes.get(at).is_some_and(|byte| *byte == 2);
            let later = is_there(2 * PAGE_BYTES);
            first_missing |= !is_there(100) && later;
            middle_missing |= !is_there(PAGE_BYTES) && later;
            in_order |= is_there(100) && is_there(PAGE_BYTES) && !later;
        }
        assert!(first_missing && middle_missing && in_order);
    }

    #[test]
    fn a_file_that_moved_between_directories_is_in_one_or_both() {
        let disk = SimDisk::new();
        let (from, to) = (Path::new("/a/file"), Path::new("/b/file"));
        disk.create(from).unwrap().sync().unwrap();
        disk.sync_dir(Path::new("/a")).unwrap();
        disk.rename(from, to).unwrap();
        let there = |disk: &SimDisk| (disk.open(from).is_ok(), disk.open(to).is_ok());
        assert_eq!(there(&disk), (false, true));
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let copy = disk.fork();
            copy.power_loss(seed);
            seen.insert(there(&copy));
        }
        let expected = [(false, true), (true, false), (true, true)];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }
}
