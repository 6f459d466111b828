//! A journal on a simulated disk beside a model of what it must hold.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gswarm_core::{ClockOffset, Intake};
use gswarm_trial::Trial;
use gswarm_types::{Body, Incarnation, Micros, NodeId, Record, SessionId, SessionSpec, Table};

use crate::catalog::{Catalog, SegmentState};
use crate::disk::{Disk, SimDisk};
use crate::entry::{Entry, StoredRecord};
use crate::fixture::{self, Tables};
use crate::journal::{Journal, JournalConfig, OpenError, Recovered, SegmentLimits, table_key};
use crate::reader::Reader;
use crate::sealed;

pub(super) const DIR: &str = "/data/journal";

/// One step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Each number makes one entry; a batch that failed before is tried again instead.
    Commit(Vec<u8>),
    Roll,
    Seal,
    Checkpoint,
    DeleteCheckpoint,
    /// kill -9 and start.
    Kill,
    /// Kill, power loss with nothing synced in between, start.
    PowerLoss(u64),
    /// Kill; the power goes at the n-th change of recovery; then start.
    PowerLossInRecovery(u8, u64),
    /// The n-th change from now fails, once.
    FailOnce(u8),
    SyncFails(bool),
    /// This many bytes are left.
    Full(Option<u16>),
}

impl Step {
    /// True where something breaks.
    pub(super) fn is_fault(&self) -> bool {
        !matches!(self, Self::Commit(_) | Self::Roll | Self::Seal | Self::Checkpoint)
    }
}

/// What every start of a journal found, counted before anything is asserted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    records: AtomicU64,
    lost: AtomicU64,
}

impl Tally {
    /// Each acknowledged entry has to stand there once.
    fn compare(&self, acked: &[Entry], found: &[Entry]) {
        let lost = acked.iter().filter(|entry| found.iter().filter(|f| f == entry).count() != 1);
        self.records.fetch_add(acked.len() as u64, Ordering::Relaxed);
        self.lost.fetch_add(lost.count() as u64, Ordering::Relaxed);
    }
}

/// A trial whose records and losses are what the starts of its worlds found, also when one failed.
pub(super) struct Report {
    pub(super) trial: Trial,
    pub(super) tally: Arc<Tally>,
}

impl Report {
    pub(super) fn new(what: &'static str) -> Self {
        Self { trial: Trial::new(what), tally: Arc::default() }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.trial.records += self.tally.records.load(Ordering::Relaxed);
        self.trial.lost += self.tally.lost.load(Ordering::Relaxed);
    }
}

pub(super) struct World {
    tally: Arc<Tally>,
    pub(super) disk: SimDisk,
    pub(super) journal: Option<Journal>,
    intake: Intake,
    tables: Tables,
    kinds: Vec<Table>,
    /// What was acknowledged, in order.
    acked: Vec<Entry>,
    /// A batch whose commit failed: it counts for nothing until it is tried again.
    failed: Vec<Entry>,
    next_seq: BTreeMap<(NodeId, u64), u64>,
    holes: Vec<(NodeId, u64, u64)>,
    entries: i64,
}

pub(super) fn config() -> JournalConfig {
    JournalConfig {
        dir: DIR.into(),
        disk_reserve_bytes: 0,
        segments: SegmentLimits::default(),
        // A data directory that lost its identity would get this one.
        new_storage: fixture::storage(),
    }
}

pub(super) fn open(disk: &SimDisk) -> Result<Recovered, OpenError> {
    Journal::open(Arc::new(disk.clone()), config())
}

impl World {
    pub(super) fn new() -> Self {
        let gpus = |count| (0..count).map(fixture::gpu).collect::<Vec<_>>();
        let kinds = vec![
            fixture::table(gpus(1), &["gpu_utilization"]),
            fixture::table(gpus(2), &["gpu_utilization", "sm_activity"]),
        ];
        let mut tables = Tables::default();
        for (number, incarnation) in [(1, 7), (1, 8), (2, 7)] {
            for table in &kinds {
                tables.add(fixture::node(number), Incarnation(incarnation), table);
            }
        }
        Self {
            tally: Arc::default(),
            disk: SimDisk::new(),
            journal: None,
            intake: Intake::default(),
            tables,
            kinds,
            acked: Vec::new(),
            failed: Vec::new(),
            next_seq: BTreeMap::new(),
            holes: Vec::new(),
            entries: 0,
        }
    }

    /// One whose findings count for the report.
    pub(super) fn counted(report: &Report) -> Self {
        Self { tally: report.tally.clone(), ..Self::new() }
    }

    /// Runs the script on a new journal and checks after each step.
    pub(super) fn run(script: &[Step]) -> Self {
        Self::new().play(script)
    }

    pub(super) fn play(self, script: &[Step]) -> Self {
        let mut world = self;
        world.start();
        for step in script {
            world.step(step);
            // Starting checks by itself; a commit that went well is seen by the next check.
            if !matches!(step, Step::Commit(_)) || !world.failed.is_empty() {
                world.check();
            }
        }
        world.check();
        world
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Commit(kinds) => {
                self.commit(kinds);
            },
            Step::Roll => {
                self.roll();
            },
            Step::Seal => self.seal(),
            Step::Checkpoint => {
                if let Some(journal) = &self.journal {
                    journal.checkpoint(&self.intake);
                }
            },
            Step::DeleteCheckpoint => {
                let path = Path::new(DIR).join("checkpoint.json");
                crate::disk::remove_if_there(&self.disk, &path).ok();
            },
            Step::Kill => self.restart(),
            Step::PowerLoss(seed) => {
                self.journal = None;
                self.disk.power_loss(*seed);
                self.restart();
            },
            Step::PowerLossInRecovery(changes, seed) => {
                self.journal = None;
                self.disk.cut_power_at(self.disk.changes() + u64::from(*changes));
                drop(open(&self.disk));
                self.disk.power_loss(*seed);
                self.restart();
            },
            Step::FailOnce(changes) => {
                self.disk.fail_once_at(self.disk.changes() + u64::from(*changes));
            },
            Step::SyncFails(fails) => self.disk.set_sync_fails(*fails),
            Step::Full(bytes) => self.disk.set_space_left(bytes.map(u64::from)),
        }
    }

    /// The same moment on a disk of its own, without the running journal.
    pub(super) fn fork(&self) -> Self {
        Self {
            tally: self.tally.clone(),
            disk: self.disk.fork(),
            acked: self.acked.clone(),
            failed: self.failed.clone(),
            next_seq: self.next_seq.clone(),
            holes: self.holes.clone(),
            entries: self.entries,
            ..Self::new()
        }
    }

    /// Power loss, perhaps another one in recovery, then a start and a little more life.
    pub(super) fn continue_after(&self, seed: u64, in_recovery: Option<u64>) {
        let mut world = self.fork();
        world.disk.power_loss(seed);
        if let Some(changes) = in_recovery {
            world.disk.cut_power_at(changes);
            drop(open(&world.disk));
            world.disk.power_loss(seed + 1);
        }
        world.start();
        assert!(world.commit(&[9, 12]));
        world.check();
        world.step(&Step::Kill);
    }

    fn entry(&mut self, kind: u8) -> Entry {
        self.entries += 1;
        let time = 1_000 * self.entries;
        let (number, incarnation) = [(1, 7), (1, 8), (2, 7)][usize::from(kind % 3)];
        let node = fixture::node(number);
        match kind / 3 % 8 {
            0 => return fixture::host_event(self.entries),
            1 => {
                let mut spec = fixture::session(kind % 2, time, None);
                spec.revision = u32::try_from(self.entries).unwrap();
                return Entry::Session(Box::new(spec));
            },
            _ => {},
        }
        let seq = match (kind / 24, self.holes.pop()) {
            // Fills a hole.
            (1, Some((node, incarnation, seq))) => {
                return fixture::record(node, incarnation, seq, time, fixture::mark("late"));
            },
            (_, hole) => {
                self.holes.extend(hole);
                let next = self.next_seq.entry((node, incarnation)).or_insert(1);
                if kind / 24 == 2 {
                    self.holes.push((node, incarnation, *next));
                    *next += 1;
                }
                *next += 1;
                *next - 1
            },
        };
        let body = match kind / 3 % 8 {
            2 => fixture::mark("step"),
            3 => Body::Event(fixture::event(self.entries)),
            // Longer than a page, so that a power loss can tear it.
            4 => fixture::mark(&"x".repeat(5_000)),
            odd if odd % 2 == 1 => fixture::values(&self.kinds[0], &[Some(f64::from(kind))]),
            _ => fixture::values(&self.kinds[1], &[Some(1.0), None, Some(0.5), Some(0.25)]),
        };
        fixture::record(node, incarnation, seq, time, body)
    }

    /// True when the batch was acknowledged.
    pub(super) fn commit(&mut self, kinds: &[u8]) -> bool {
        let mut batch = std::mem::take(&mut self.failed);
        if batch.is_empty() {
            batch = kinds.iter().map(|kind| self.entry(*kind)).collect();
        }
        for entry in &batch {
            let Entry::Record(stored) = entry else { continue };
            let record = Record {
                incarnation: stored.incarnation,
                seq: stored.seq,
                mono: stored.mono,
                wall: stored.wall,
                body: stored.body.clone(),
            };
            let offset = ClockOffset::Measured(Micros(0));
            self.intake.admit(stored.node, &record, stored.crc, offset, stored.receipt);
        }
        let journal = self.journal.as_mut().unwrap();
        if journal.commit(&batch, &self.tables).is_ok() {
            self.intake.commit();
            self.acked.extend(batch);
            true
        } else {
            self.intake.abort();
            self.failed = batch;
            false
        }
    }

    pub(super) fn roll(&mut self) -> bool {
        self.journal.as_mut().unwrap().roll(&self.intake).is_ok()
    }

    fn seal(&self) {
        let journal = self.journal.as_ref().unwrap();
        let dir = Path::new(DIR);
        for meta in journal.catalog().segments() {
            if meta.state != SegmentState::Closed {
                continue;
            }
            let Ok(prepared) = sealed::prepare(&self.disk, dir, &meta, journal.storage()) else {
                return;
            };
            assert_eq!(prepared.damage, vec![]);
            let act = |meta: &_| sealed::finish(&self.disk, dir, meta, &prepared).map(Some);
            drop(journal.catalog().alone(meta.number, act));
        }
    }

    fn restart(&mut self) {
        if !self.try_start() {
            // Full, or failing: with that over it must open.
            self.disk.set_space_left(None);
            self.disk.set_sync_fails(false);
            self.disk.fail_once_at(u64::MAX);
            self.start();
        }
    }

    pub(super) fn start(&mut self) {
        self.journal = None;
        let recovered = open(&self.disk).expect("the journal opens");
        self.adopt(recovered);
    }

    /// False when the journal does not open.
    pub(super) fn try_start(&mut self) -> bool {
        self.journal = None;
        let opened = open(&self.disk);
        opened.map(|recovered| self.adopt(recovered)).is_ok()
    }

    /// Takes in what recovery found of a batch that was never answered.
    fn adopt(&mut self, mut recovered: Recovered) {
        self.save_the_unsaved(&mut recovered);
        let found = entries(&self.disk, recovered.journal.catalog());
        self.tally.compare(&self.acked, &found);
        let maybe = std::mem::take(&mut self.failed);
        assert!(found.len() >= self.acked.len(), "{} of {}", found.len(), self.acked.len());
        for entry in found.iter().skip(self.acked.len()) {
            assert!(maybe.contains(entry), "nobody wrote {entry:?}");
            self.acked.push(entry.clone());
        }
        // As the host does: what is stored already is not tried again.
        self.failed = maybe.into_iter().filter(|entry| !found.contains(entry)).collect();
        self.intake = recovered.intake;
        assert_eq!(recovered.sessions, sessions(&found), "sessions");
        self.journal = Some(recovered.journal);
        self.check();
    }

    /// On a full disk the end of the last segment may have to wait; nothing of it counts until then.
    fn save_the_unsaved(&mut self, recovered: &mut Recovered) {
        let unsaved = std::mem::take(&mut recovered.unsaved);
        if unsaved.entries.is_empty() {
            return;
        }
        let found = entries(&self.disk, recovered.journal.catalog());
        assert_eq!(stored(&recovered.intake), records(&found), "unsaved records do not count");
        let is_held = |entry| found.contains(entry) || unsaved.entries.contains(entry);
        assert!(self.acked.iter().all(is_held), "nothing is gone");
        self.disk.set_space_left(None);
        self.disk.set_sync_fails(false);
        self.disk.fail_once_at(u64::MAX);
        for entry in &unsaved.entries {
            let Entry::Record(stored) = entry.clone() else { continue };
            let StoredRecord { node, time, crc, incarnation, seq, mono, wall, body, .. } = stored;
            let record = Record { incarnation, seq, mono, wall, body };
            recovered.intake.admit_again(node, &record, crc, time);
        }
        recovered.journal.commit(&unsaved.entries, &Tables(unsaved.tables)).unwrap();
        recovered.intake.commit();
    }

    /// The journal holds exactly what was acknowledged, and knows it.
    pub(super) fn check(&self) {
        let Some(journal) = &self.journal else { return };
        let found = entries(&self.disk, journal.catalog());
        assert_eq!(found, self.acked);
        assert_eq!(journal.storage(), fixture::storage());
        assert_eq!(stored(&self.intake), records(&found), "stored intervals");
        let counted: u64 = journal.catalog().segments().iter().map(|meta| meta.records).sum();
        assert_eq!(counted, records(&found).len() as u64, "records in the catalog");
    }
}

/// Everything readable but tables, in order. Each table must stand before its first use.
pub(super) fn entries(disk: &SimDisk, catalog: &Catalog) -> Vec<Entry> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let reader = Reader::new(disk, Path::new(DIR), catalog.clone());
    let mut found = Vec::new();
    for lease in catalog.lease(|_| true) {
        let mut tables = HashSet::new();
        let number = lease.meta().number;
        let mut here = Vec::new();
        let visited = reader.visit(lease.meta(), &mut |entry| match entry {
            Entry::Table(table) => {
                tables.insert((table.node.unwrap(), table.incarnation, table.digest));
            },
            Entry::Record(record) => {
                let key = table_key(&record);
                assert!(key.is_none_or(|key| tables.contains(&key)), "table before values");
                here.push(Entry::Record(record));
            },
            other => here.push(other),
        });
        visited.unwrap_or_else(|error| panic!("segment {number}: {error:?}"));
        if lease.meta().state == SegmentState::Sealed {
            // Shown by incarnation; the ordinals tell the order in which they came.
            let all = sealed::in_order(reader.disk().as_ref(), Path::new(DIR), lease.meta());
            let in_order: Vec<Entry> =
                all.into_iter().filter(|entry| !matches!(entry, Entry::Table(_))).collect();
            assert!(here.iter().all(|entry| in_order.contains(entry)), "segment {number}");
            here = in_order;
        }
        found.extend(here);
    }
    found
}

fn records(entries: &[Entry]) -> BTreeSet<(NodeId, Incarnation, u64)> {
    let keys = entries.iter().filter_map(|entry| match entry {
        Entry::Record(record) => Some((record.node, record.incarnation, record.seq)),
        _ => None,
    });
    keys.collect()
}

fn stored(intake: &Intake) -> BTreeSet<(NodeId, Incarnation, u64)> {
    let nodes = [fixture::node(1), fixture::node(2)];
    let mut keys = BTreeSet::new();
    for node in nodes {
        for (incarnation, source) in intake.sources_of(node) {
            for interval in source.stored().iter() {
                keys.extend((interval.first..=interval.last).map(|seq| (node, incarnation, seq)));
            }
        }
    }
    keys
}

fn sessions(entries: &[Entry]) -> BTreeMap<SessionId, SessionSpec> {
    let specs = entries.iter().filter_map(|entry| match entry {
        Entry::Session(spec) => Some((spec.id, (**spec).clone())),
        _ => None,
    });
    specs.collect()
}
