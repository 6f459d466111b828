//! Opening the journal: read what is there, keep every valid line, name the damage, go on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gswarm_core::Intake;
use gswarm_types::{Micros, Record, SessionSpec};

use super::{Journal, JournalConfig, TableKey, checkpoint, table_key};
use crate::catalog::{Catalog, SegmentMeta, SegmentState};
use crate::disk::{Disk, fill, write_atomic};
use crate::entry::{Entry, StoredRecord, TableEntry};
use crate::line::LineBuffer;
use crate::log::{Damage, Durability, LineAt, Log, LogScan, ScanError, scan_log, segment_name};
use crate::sealed;

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
    pub sessions: BTreeMap<gswarm_types::SessionId, SessionSpec>,
    pub damage: Vec<Damage>,
    pub torn_bytes: u64,
    /// Lines that were written again because nothing proved that they had been synced.
    pub lines_rewritten: usize,
    /// Receipt time of the newest record: the host's clock does not start behind it.
    pub last_receipt: Option<Micros>,
}

/// Collects while the segments are read.
#[derive(Debug, Default)]
struct Finder {
    intake: Intake,
    metas: BTreeMap<u64, SegmentMeta>,
    sessions: BTreeMap<gswarm_types::SessionId, SessionSpec>,
    /// Tables of the newest segment, for lines that are written again.
    tables: HashMap<TableKey, TableEntry>,
    tables_of: u64,
    last_receipt: Option<Micros>,
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
        match entry {
            Entry::Record(record) => self.record(segment, record),
            Entry::Table(table) => {
                if segment > self.tables_of {
                    self.tables.clear();
                    self.tables_of = segment;
                }
                if let Some(node) = table.node {
                    self.tables.insert((node, table.incarnation, table.digest), table);
                }
            },
            Entry::Session(spec) => {
                self.sessions.insert(spec.id, spec);
            },
            Entry::Header(_) | Entry::Sync(_) | Entry::HostEvent(_) | Entry::Incarnation(_) => {},
        }
    }

    fn record(&mut self, segment: u64, stored: StoredRecord) {
        let meta = self.metas.entry(segment).or_insert_with(|| SegmentMeta::new(segment));
        meta.note(stored.time, stored.receipt);
        self.last_receipt = self.last_receipt.max(Some(stored.receipt));
        let StoredRecord { node, time, crc, incarnation, seq, mono, wall, body, .. } = stored;
        self.intake.recover(node, &Record { incarnation, seq, mono, wall, body }, crc, time);
    }
}

impl Journal {
    /// Reads the newest checkpoint and every segment after it, then starts a new segment.
    pub fn open(disk: Arc<dyn Disk>, config: JournalConfig) -> Result<Recovered, OpenError> {
        let dir_error = |source| OpenError::Dir { path: config.dir.clone(), source };
        disk.create_dir_all(&config.dir).map_err(dir_error)?;
        let sealed = sealed::list(disk.as_ref(), &config.dir).map_err(dir_error)?;
        let checkpoint = checkpoint::read(disk.as_ref(), &config.dir);
        let mut finder = Finder::default();
        let mut storage = config.new_storage;
        let mut from_segment = 0;
        if let Some(checkpoint) = checkpoint {
            finder.intake = checkpoint.intake;
            finder.last_receipt = checkpoint.segments.iter().filter_map(|m| m.last_receipt).max();
            finder.metas = checkpoint.segments.into_iter().map(|m| (m.number, m)).collect();
            storage = checkpoint.storage;
            from_segment = checkpoint.next_segment;
        }
        let sealed_damage =
            finder.read_sealed(disk.as_ref(), &config, &sealed, from_segment, &mut storage);
        let scan = scan_log(
            disk.as_ref(),
            &config.dir,
            from_segment,
            Durability::Synced,
            storage,
            &mut |line| finder.line(line),
        )?;
        quarantine(disk.as_ref(), &config, &scan.damage);
        start(
            disk,
            config,
            scan,
            finder,
            from_segment,
            Sealed { numbers: sealed, damage: sealed_damage },
        )
    }
}

impl Finder {
    /// Sealed segments that no checkpoint covers are read whole.
    fn read_sealed(
        &mut self,
        disk: &dyn Disk,
        config: &JournalConfig,
        sealed: &[u64],
        from_segment: u64,
        storage: &mut gswarm_types::StorageId,
    ) -> Vec<Damage> {
        let mut damage = Vec::new();
        for number in sealed {
            if *number < from_segment && self.metas.contains_key(number) {
                continue;
            }
            self.metas.remove(number);
            match sealed::read(disk, &config.dir, *number, &mut |entry| self.entry(*number, entry))
            {
                Ok(found) => {
                    *storage = found;
                    let bytes = sealed::file_bytes(disk, &config.dir, *number).unwrap_or(0);
                    let meta =
                        self.metas.entry(*number).or_insert_with(|| SegmentMeta::new(*number));
                    meta.state = SegmentState::Sealed;
                    meta.bytes = bytes;
                },
                Err(error) => {
                    tracing::error!(segment = number, %error, "sealed segment cannot be read");
                    let bytes = sealed::file_bytes(disk, &config.dir, *number).unwrap_or(0);
                    sealed::quarantine(disk, &config.dir, *number);
                    damage.push(Damage { segment: *number, offset: 0, bytes });
                },
            }
        }
        damage
    }
}

/// Sealed segments on disk, and those of them that could not be read.
struct Sealed {
    numbers: Vec<u64>,
    damage: Vec<Damage>,
}

/// Begins the next segment with whatever is not known to be synced.
fn start(
    disk: Arc<dyn Disk>,
    config: JournalConfig,
    mut scan: LogScan,
    mut finder: Finder,
    from_segment: u64,
    sealed: Sealed,
) -> Result<Recovered, OpenError> {
    let last_sealed = sealed.numbers.last().copied();
    if scan.last_segment < last_sealed {
        scan.last_segment = last_sealed;
    }
    let (initial, tables) = rewrite(&scan, &finder).map_err(OpenError::Rewrite)?;
    let catalog = Catalog::default();
    for (number, bytes) in &scan.segments {
        if *number < from_segment && finder.metas.contains_key(number) {
            continue;
        }
        let meta = finder.metas.entry(*number).or_insert_with(|| SegmentMeta::new(*number));
        meta.state = SegmentState::Closed;
        meta.bytes = *bytes;
    }
    let on_disk: HashSet<u64> = scan
        .segments
        .iter()
        .map(|(number, _)| *number)
        .chain(sealed.numbers.iter().copied())
        .collect();
    for (number, meta) in finder.metas {
        if on_disk.contains(&number) {
            catalog.put(meta);
        }
    }
    let log = Log::start(disk.clone(), &config.dir, &scan, Durability::Synced, &initial)
        .map_err(OpenError::Rewrite)?;
    let mut active = SegmentMeta::new(log.segment());
    active.bytes = log.readable_bytes();
    for line in &scan.tail {
        if let Ok(Entry::Record(record)) = Entry::parse(line) {
            active.note(record.time, record.receipt);
        }
    }
    let began = active.last_receipt;
    catalog.put(active.clone());
    let lines_rewritten = scan.tail.len();
    let journal = Journal {
        disk,
        config,
        storage: scan.storage,
        log,
        catalog,
        active,
        began,
        tables,
        buffer: LineBuffer::new(),
    };
    // Lines that stand in the new segment too are found again there; the set of stored seqs has
    // no duplicates, so that does no harm.
    journal.checkpoint(&finder.intake);
    let mut damage = scan.damage;
    damage.extend(sealed.damage);
    Ok(Recovered {
        journal,
        intake: finder.intake,
        sessions: finder.sessions,
        damage,
        torn_bytes: scan.torn_bytes,
        lines_rewritten,
        last_receipt: finder.last_receipt,
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

/// Keeps a copy of what could not be read, named after the place it stood.
fn quarantine(disk: &dyn Disk, config: &JournalConfig, damage: &[Damage]) {
    let dir = config.dir.join("quarantine");
    if damage.is_empty() || disk.create_dir_all(&dir).is_err() {
        return;
    }
    for item in damage {
        let source = config.dir.join(segment_name(item.segment));
        let name = format!("{:010}-{}.damaged", item.segment, item.offset);
        let copy = disk.open(&source).and_then(|file| {
            let len = usize::try_from(item.bytes.min(QUARANTINE_BYTES_MAX)).unwrap_or(0);
            let mut bytes = vec![0; len];
            let filled = fill(file.as_ref(), &mut bytes, item.offset)?;
            bytes.truncate(filled);
            write_atomic(disk, &dir.join(name), &bytes)
        });
        if let Err(error) = copy {
            tracing::warn!(segment = item.segment, %error, "damage not copied aside");
        }
    }
}

/// The most that is copied of one damaged place.
const QUARANTINE_BYTES_MAX: u64 = 64 * 1024 * 1024;
