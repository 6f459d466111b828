//! Opening the journal: read what is there, keep every valid line, name the damage, go on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gswarm_core::{DamageSpan, Intake, Lost, Missing};
use gswarm_types::{Micros, Record, SessionId, SessionSpec, SessionState, StorageId, Table};

use super::checkpoint::{self, Checkpoint};
use super::{Journal, JournalConfig, TableKey, table_key};
use crate::catalog::{Catalog, SegmentMeta, SegmentState};
use crate::disk::Disk;
use crate::entry::{Entry, StoredRecord, TableEntry};
use crate::line::LineBuffer;
use crate::log::{
    Damage, Durability, LineAt, Log, LogScan, Plan, ScanError, scan_planned, segment_number,
};
use crate::quarantine;
use crate::sealed::{self, SealError};

/// Why the journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use the data directory `{path}`")]
    Dir { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error("cannot write again what was not known to be safe")]
    Rewrite(#[source] io::Error),
}

/// What recovery found.
#[derive(Debug)]
pub struct Recovered {
    pub journal: Journal,
    pub intake: Intake,
    /// Newest journaled state of each session.
    pub sessions: BTreeMap<SessionId, SessionSpec>,
    pub damage: Vec<Damage>,
    pub torn_bytes: u64,
    /// Lines that were written again because nothing proved that they had been synced.
    pub lines_rewritten: usize,
    /// Receipt time of the newest record: the host's clock does not start behind it.
    pub last_receipt: Option<Micros>,
    /// Lines that could not be written again because the disk is full: they count for nothing until
    /// they are committed, which must happen before anything else is.
    pub unsaved: Unsaved,
    /// Segments that the checkpoint knows and that are no longer there, because retention or somebody
    /// else took them, or because they are damaged. Their records are counted as stored.
    pub missing: Vec<SegmentMeta>,
}

/// Entries of the end of the last segment, and the tables they need.
#[derive(Debug, Default)]
pub struct Unsaved {
    pub entries: Vec<Entry>,
    pub tables: HashMap<TableKey, Table>,
}

/// Collects while the segments are read.
#[derive(Debug, Default)]
struct Finder {
    intake: Intake,
    metas: BTreeMap<u64, SegmentMeta>,
    /// Newest state of each session and the segment that told it: sealed segments are read first.
    sessions: BTreeMap<SessionId, (u64, SessionSpec)>,
    /// For lines that are written again.
    tables: HashMap<TableKey, TableEntry>,
    last_receipt: Option<Micros>,
    missing: Vec<SegmentMeta>,
}

impl Finder {
    fn line(&mut self, line: LineAt<'_>) {
        match Entry::parse(line.bytes) {
            Ok(entry) => self.entry(line.position.segment, entry),
            // Valid bytes of an unknown kind: a newer version's, kept but not understood.
            Err(error) => tracing::warn!(position = ?line.position, %error, "entry not understood"),
        }
    }

    fn entry(&mut self, segment: u64, entry: Entry) {
        self.metas.entry(segment).or_insert_with(|| SegmentMeta::new(segment)).note_entry(&entry);
        match entry {
            Entry::Record(record) => self.record(record),
            Entry::Table(table) => {
                if let Some(node) = table.node {
                    self.tables.insert((node, table.incarnation, table.digest), table);
                }
            },
            Entry::Session(spec) => match self.sessions.get(&spec.id) {
                Some((told_by, _)) if *told_by > segment => {},
                _ => {
                    self.sessions.insert(spec.id, (segment, *spec));
                },
            },
            Entry::Header(_) | Entry::Sync(_) | Entry::HostEvent(_) | Entry::Incarnation(_) => {},
        }
    }

    fn record(&mut self, stored: StoredRecord) {
        self.last_receipt = self.last_receipt.max(Some(stored.receipt));
        let StoredRecord { node, time, crc, incarnation, seq, mono, wall, body, .. } = stored;
        self.intake.recover(node, &Record { incarnation, seq, mono, wall, body }, crc, time);
    }

    /// Takes the checkpoint over, less the segments that no longer lie as it says: those are read.
    /// Returns the number that a new segment must not be below.
    fn start_from(&mut self, checkpoint: Checkpoint, disk: &dyn Disk, found: &OnDisk) -> u64 {
        self.intake = checkpoint.intake;
        let told = checkpoint.segments.iter().filter_map(|meta| meta.last_receipt).max();
        self.last_receipt = told.max(checkpoint.last_receipt);
        let next = checkpoint.next_segment;
        let by = next.saturating_sub(1);
        self.sessions = checkpoint.sessions.into_iter().map(|spec| (spec.id, (by, spec))).collect();
        for mut meta in checkpoint.segments {
            let is_closed = meta.state == SegmentState::Closed;
            if found.lines.contains(&meta.number) {
                if is_closed {
                    self.metas.insert(meta.number, meta);
                }
            } else if found.sealed.contains(&meta.number) {
                // Sealed or cut down after the checkpoint was written, or as it says.
                let as_told =
                    meta.sealed_crc.is_some_and(|crc| found.names.contains(&(meta.number, crc)));
                if is_closed || !as_told {
                    let Ok(crc) = sealed::checksum(disk, &found.dir, meta.number) else {
                        // Damaged: set aside below, but what it held is counted as stored.
                        self.missing.push(meta);
                        continue;
                    };
                    meta.sealed_crc = Some(crc);
                    meta.state = SegmentState::Sealed;
                    meta.bytes = sealed::file_bytes(disk, &found.dir, meta.number).unwrap_or(0);
                }
                self.metas.insert(meta.number, meta);
            } else {
                self.missing.push(meta);
            }
        }
        next
    }

    /// Sealed segments that no checkpoint covers are read whole.
    fn read_sealed(
        &mut self,
        disk: &dyn Disk,
        found: &OnDisk,
        known: &HashSet<u64>,
    ) -> Result<ReadSealed, OpenError> {
        let mut read = ReadSealed { storage: None, damage: Vec::new() };
        for number in found.sealed.iter().copied().filter(|number| !known.contains(number)) {
            let bytes = sealed::file_bytes(disk, &found.dir, number).unwrap_or(0);
            match sealed::read(disk, &found.dir, number, &mut |entry| self.entry(number, entry)) {
                Ok(storage) => {
                    read.storage = Some(storage);
                    let meta = self.metas.entry(number).or_insert_with(|| SegmentMeta::new(number));
                    meta.state = SegmentState::Sealed;
                    meta.bytes = bytes;
                    meta.sealed_crc = sealed::checksum(disk, &found.dir, number).ok();
                },
                Err(SealError::Newer(format)) => {
                    let path = found.dir.join(format!("{number:010}-*.parquet"));
                    return Err(ScanError::Newer { path, format }.into());
                },
                Err(error) => {
                    tracing::error!(segment = number, %error, "sealed segment cannot be read");
                    sealed::quarantine(disk, &found.dir, number);
                    self.metas.remove(&number);
                    read.damage.push(Damage { segment: number, offset: 0, bytes });
                },
            }
        }
        Ok(read)
    }
}

impl Finder {
    /// Says of every segment that was read how it lies there now.
    fn close_segments(&mut self, scan: &LogScan, known: &HashSet<u64>) {
        for (number, bytes) in scan.segments.iter().filter(|(number, _)| !known.contains(number)) {
            let meta = self.metas.entry(*number).or_insert_with(|| SegmentMeta::new(*number));
            meta.state = SegmentState::Closed;
            meta.bytes = *bytes;
        }
        // Lines that are written again belong to the next segment. The times of the old one stay
        // too wide, which costs a reader nothing but a look.
        let moved =
            scan.tail.iter().filter(|line| matches!(Entry::parse(line), Ok(Entry::Record(_))));
        let moved = moved.count() as u64;
        if let Some(meta) = scan.last_segment.and_then(|last| self.metas.get_mut(&last)) {
            meta.records = meta.records.saturating_sub(moved);
        }
    }
}

impl Finder {
    /// Takes back what is not known to be synced and cannot be written again now.
    fn hold_back(&mut self, scan: &LogScan) -> Unsaved {
        let mut unsaved = Unsaved::default();
        for entry in scan.tail.iter().filter_map(|line| Entry::parse(line).ok()) {
            if let Entry::Record(record) = &entry {
                let source = (record.node, record.incarnation);
                // Its own time bounds the hole closely enough.
                let (seq, time) = (record.seq, Some(record.time));
                let missing = Missing { first: seq, last: seq, before: time, after: time };
                self.intake.uncount(&Lost { source, missing });
                if let Some(key) = table_key(record)
                    && let Some(table) = self.tables.get(&key)
                {
                    unsaved.tables.insert(key, table.clone().into_table());
                }
            }
            if !matches!(entry, Entry::Table(_)) {
                unsaved.entries.push(entry);
            }
        }
        unsaved
    }

    /// Holes of the time of a damaged segment are its fault.
    fn note_damage(&mut self, damage: &[Damage]) {
        for segment in damage.iter().map(|damage| damage.segment) {
            let here = self.metas.get(&segment);
            let before = self.metas.range(..segment).next_back();
            let after = self.metas.range(segment + 1..).next();
            let from = here.and_then(|meta| meta.first_time);
            let to = here.and_then(|meta| meta.last_time);
            self.intake.note_damage(DamageSpan {
                from: from.or_else(|| before.and_then(|(_, meta)| meta.last_time)),
                to: to.or_else(|| after.and_then(|(_, meta)| meta.first_time)),
            });
        }
    }
}

/// What reading the sealed segments gave.
struct ReadSealed {
    storage: Option<StorageId>,
    damage: Vec<Damage>,
}

/// Which segments lie in the directory.
struct OnDisk {
    dir: PathBuf,
    lines: BTreeSet<u64>,
    /// Those whose lines are gone.
    sealed: BTreeSet<u64>,
    /// Number and checksum of every sealed file.
    names: HashSet<(u64, u32)>,
}

impl OnDisk {
    fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Self> {
        let names = disk.list(dir)?;
        for name in names.iter().filter(|name| name.ends_with(".tmp")) {
            // Left behind by a crash. Should it not go, it is in nobody's way.
            let _left_behind = disk.remove(&dir.join(name));
        }
        let lines = names.iter().filter_map(|name| segment_number(name)).collect();
        let sealed = sealed::list(disk, dir)?.into_iter().collect();
        let names = names.iter().filter_map(|name| sealed::parse_name(name)).collect();
        Ok(Self { dir: dir.to_owned(), lines, sealed, names })
    }
}

impl Journal {
    /// Reads the newest checkpoint and every segment after it, then starts a new segment.
    pub fn open(disk: Arc<dyn Disk>, config: JournalConfig) -> Result<Recovered, OpenError> {
        let dir_error = |source| OpenError::Dir { path: config.dir.clone(), source };
        disk.create_dir_all(&config.dir).map_err(dir_error)?;
        let found = OnDisk::list(disk.as_ref(), &config.dir).map_err(dir_error)?;
        let mut finder = Finder::default();
        let mut new_storage = config.new_storage;
        let mut next_segment = 0;
        if let Some(checkpoint) = checkpoint::read(disk.as_ref(), &config.dir) {
            new_storage = checkpoint.storage;
            next_segment = finder.start_from(checkpoint, disk.as_ref(), &found);
        }
        let known: HashSet<u64> = finder.metas.keys().copied().collect();
        let sealed = finder.read_sealed(disk.as_ref(), &found, &known)?;
        let plan = Plan {
            durability: Durability::Synced,
            new_storage: sealed.storage.unwrap_or(new_storage),
            is_known: &|number| known.contains(&number),
            told_end: &|number| {
                let next = found.sealed.get(&(number + 1))?;
                sealed::prev_valid_bytes(disk.as_ref(), &found.dir, *next).ok().flatten()
            },
        };
        let mut scan =
            scan_planned(disk.as_ref(), &config.dir, &plan, &mut |line| finder.line(line))?;
        quarantine::keep(disk.as_ref(), &config.dir, &scan.damage);
        scan.damage.extend(sealed.damage);
        // Numbers are never used twice: what a checkpoint covers would not be read again.
        let last = next_segment.checked_sub(1).max(found.sealed.last().copied());
        finder.close_segments(&scan, &known);
        finder.note_damage(&scan.damage);
        scan.last_segment = scan.last_segment.max(last);
        start(disk, config, scan, finder)
    }
}

/// Begins the next segment with whatever is not known to be synced.
fn start(
    disk: Arc<dyn Disk>,
    config: JournalConfig,
    scan: LogScan,
    mut finder: Finder,
) -> Result<Recovered, OpenError> {
    let (initial, mut tables) = rewrite(&scan, &finder).map_err(OpenError::Rewrite)?;
    let started = Log::start(disk.clone(), &config.dir, &scan, Durability::Synced, &initial);
    let mut unsaved = Unsaved::default();
    let log = match (started, scan.last_segment) {
        (Ok(log), _) => log,
        // What was recorded can be read on a full disk too; writing goes on when there is room.
        (Err(error), Some(last)) if error.kind() == io::ErrorKind::StorageFull => {
            tracing::error!(%error, "the disk is full: nothing is recorded until there is room");
            unsaved = finder.hold_back(&scan);
            tables.clear();
            Log::ended(disk.clone(), &config.dir, &scan, last)
        },
        (Err(error), _) => return Err(OpenError::Rewrite(error)),
    };
    let catalog = Catalog::default();
    for meta in finder.metas.into_values() {
        catalog.put(meta);
    }
    let mut active = SegmentMeta::new(log.segment());
    if log.is_broken() {
        active.state = SegmentState::Closed;
    } else {
        active.bytes = log.readable_bytes();
        for entry in scan.tail.iter().filter_map(|line| Entry::parse(line).ok()) {
            active.note_entry(&entry);
        }
        catalog.put(active.clone());
    }
    let began = active.last_receipt;
    let mut sessions: BTreeMap<_, _> =
        finder.sessions.into_iter().map(|(id, (_, spec))| (id, spec)).collect();
    sessions.retain(|_, spec| spec.state != SessionState::Deleted);
    let journal = Journal {
        disk,
        config,
        storage: scan.storage,
        log,
        catalog,
        active,
        began,
        tables,
        sessions: sessions.clone(),
        last_receipt: finder.last_receipt,
        holds_unsaved: !unsaved.entries.is_empty(),
        buffer: LineBuffer::new(),
    };
    // Lines that stand in the new segment too are found again there; the set of stored seqs has
    // no duplicates, so that does no harm.
    journal.checkpoint(&finder.intake);
    Ok(Recovered {
        journal,
        intake: finder.intake,
        sessions,
        damage: scan.damage,
        torn_bytes: scan.torn_bytes,
        lines_rewritten: scan.tail.len() - unsaved.entries.len(),
        unsaved,
        last_receipt: finder.last_receipt,
        missing: finder.missing,
    })
}

/// The lines to write again, each table before its first use.
fn rewrite(scan: &LogScan, finder: &Finder) -> io::Result<(LineBuffer, HashSet<TableKey>)> {
    let mut buffer = LineBuffer::new();
    let mut written: HashSet<TableKey> = HashSet::new();
    for line in &scan.tail {
        match Entry::parse(line) {
            Ok(Entry::Record(record)) => {
                if let Some(key) = table_key(&record)
                    && !written.contains(&key)
                    && let Some(table) = finder.tables.get(&key)
                {
                    buffer.push(&Entry::Table(table.clone()))?;
                    written.insert(key);
                }
            },
            Ok(Entry::Table(table)) => {
                if let Some(node) = table.node
                    && !written.insert((node, table.incarnation, table.digest))
                {
                    continue;
                }
            },
            Ok(_) | Err(_) => {},
        }
        buffer.push_raw(line);
    }
    Ok((buffer, written))
}
