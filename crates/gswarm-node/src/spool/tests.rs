//! The spool against a model: scripts of appends, acks, kills, full disks and damage.

mod faults;
mod released;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gswarm_store::SimDisk;
use gswarm_trial::{Trial, rounds};
use gswarm_types::{
    Cells, Column, DeviceId, DeviceInfo, EventKind, MetricName, Scope, Severity, SpoolLoss, Values,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use uuid::Uuid;

use super::settle::event;
use super::*;

type Key = (Incarnation, u64);

const DIR: &str = "/state/spool";
const EVERYTHING: BatchLimits = BatchLimits { records_max: 7, bytes_max: 4_000 };

fn at(micros: i64) -> Times {
    Times { mono: Micros(micros), wall: Micros(micros + 1_000_000) }
}

fn text(message: &str) -> Body {
    Body::Event(event(EventKind::Xid, Severity::Info, message.to_owned()))
}

fn table(kind: u8) -> Arc<Table> {
    let device = DeviceInfo {
        id: DeviceId(format!("GPU-{kind}")),
        scope: Scope::Gpu,
        index: 0,
        name: "GPU".to_owned(),
        parent: None,
        simulated: true,
    };
    let column = Column { device: 0, metric: MetricName::new("gpu_utilization") };
    Arc::new(Table { devices: vec![device], columns: vec![column] })
}

/// A spool, what it was given, and a host that remembers everything it was ever shown.
struct Rig {
    disk: SimDisk,
    limits: SpoolLimits,
    spool: Spool,
    runs: u64,
    clock: i64,
    /// Records that the spool took.
    taken: BTreeMap<Key, Body>,
    shown: BTreeSet<Key>,
    /// Acknowledged since the last kill.
    acked: BTreeSet<Key>,
    named: Vec<SpoolLoss>,
}

impl Rig {
    fn new(records_max: usize, bytes_max: u64) -> Self {
        let disk = SimDisk::new();
        let limits = SpoolLimits { records_max, bytes_max };
        let spool = open(&disk, limits, 1).unwrap();
        Self {
            disk,
            limits,
            spool,
            runs: 1,
            clock: 0,
            taken: BTreeMap::new(),
            shown: BTreeSet::new(),
            acked: BTreeSet::new(),
            named: Vec::new(),
        }
    }

    fn now(&mut self) -> Times {
        self.clock += 1;
        at(self.clock)
    }

    fn append(&mut self, body: Body) -> Result<u64, AppendError> {
        let now = self.now();
        let key = (self.spool.incarnation, self.spool.next_seq);
        let appended = self.spool.append(now, body.clone());
        if let Ok(seq) = &appended {
            assert_eq!(*seq, key.1);
            self.taken.insert(key, body);
            assert!(self.spool.index.len() <= self.limits.records_max);
        }
        appended
    }

    fn append_values(&mut self, kind: u8, cell: f64) {
        let table = table(kind);
        let digest = table.digest();
        self.spool.offer_table(digest, &table);
        let values = Values { table: digest, cells: Cells::new(vec![Some(cell)]) };
        let _full = self.append(Body::Values(values));
    }

    /// Shows the host everything that is held; returns the ordinals.
    fn show(&mut self) -> Vec<u64> {
        let mut cursor = 0;
        let mut ordinals = Vec::new();
        let mut order = BTreeMap::new();
        while cursor < self.spool.index.next_ordinal() {
            let now = self.now();
            let batch = self.spool.read_batch(cursor, EVERYTHING, now);
            cursor = batch.cursor;
            for outgoing in batch.records {
                self.check_shown(&outgoing, &mut order);
                ordinals.push(outgoing.ordinal);
            }
        }
        ordinals
    }

    fn check_shown(&mut self, outgoing: &Outgoing, order: &mut BTreeMap<Incarnation, u64>) {
        let record = &outgoing.record;
        let key = (record.incarnation, record.seq);
        let before = order.insert(key.0, key.1);
        assert!(before.is_none_or(|before| before < key.1), "{key:?} out of order");
        assert!(!self.acked.contains(&key), "{key:?} was acknowledged and is shown again");
        if let Some(body) = self.taken.get(&key) {
            assert_eq!(&record.body, body);
        }
        match &record.body {
            Body::Loss(loss) => self.named.push(*loss),
            Body::Values(values) => {
                assert_eq!(outgoing.table.as_ref().map(|(digest, _)| *digest), Some(values.table));
            },
            _ => assert!(outgoing.table.is_none()),
        }
        self.shown.insert(key);
    }

    fn ack(&mut self, share: usize) {
        let ordinals = self.show();
        let count = ordinals.len() * share / 4;
        if let Some(through) = ordinals.get(count.wrapping_sub(1)).copied() {
            for held in self.spool.index.from(0).filter(|held| held.ordinal <= through) {
                self.acked.insert((held.incarnation, held.seq));
            }
            let now = self.now();
            self.spool.ack_through(through, now);
        }
    }

    fn ack_held(&mut self, first: u64, last: u64) {
        self.show();
        let incarnation = self.spool.incarnation;
        for held in self.spool.index.from(0) {
            if held.incarnation == incarnation && (first..=last).contains(&held.seq) {
                self.acked.insert((incarnation, held.seq));
            }
        }
        let now = self.now();
        self.spool.ack_held(incarnation, &[(first, last)], now);
    }

    /// `kill -9`, then a new start.
    fn kill(&mut self) {
        self.acked.clear();
        self.reopen();
    }

    fn stop(&mut self) {
        let now = self.now();
        self.spool.end(now);
        self.spool.persist_acks();
        // Acknowledged in the middle is forgotten on purpose: the host says so again.
        let held: BTreeMap<Incarnation, u64> =
            self.spool.index.ranges().iter().map(|r| (r.incarnation, r.oldest_held)).collect();
        let is_full = self.disk.free_bytes(Path::new(DIR)).unwrap() != u64::MAX;
        self.acked.retain(|(incarnation, seq)| {
            !is_full && held.get(incarnation).is_none_or(|oldest| seq < oldest)
        });
        self.reopen();
    }

    fn reopen(&mut self) {
        self.runs += 1;
        self.spool = open(&self.disk, self.limits, self.runs).unwrap();
    }

    fn file_sizes(&self) -> Vec<(PathBuf, usize)> {
        let dir = Path::new(DIR);
        let mut names = self.disk.list(dir).unwrap();
        names.sort();
        names.retain(|name| name.ends_with(".jsonl"));
        names
            .into_iter()
            .map(|name| dir.join(name))
            .map(|path| {
                let len = self.disk.open(&path).and_then(|file| file.len()).unwrap();
                (path, usize::try_from(len).unwrap())
            })
            .collect()
    }

    /// Taken records that were neither shown nor named.
    fn lost(&self) -> Vec<Key> {
        let is_named = |key: &Key| {
            self.named.iter().any(|l| l.incarnation == key.0 && (l.first..=l.last).contains(&key.1))
        };
        let missing = self.taken.keys().filter(|key| !self.shown.contains(key));
        missing.filter(|key| !is_named(key)).copied().collect()
    }
}

fn open(disk: &SimDisk, limits: SpoolLimits, run: u64) -> Result<Spool, ScanError> {
    Spool::open(SpoolParts {
        disk: Arc::new(disk.clone()),
        dir: PathBuf::from(DIR),
        limits,
        storage: StorageId::new(Uuid::from_u128(1)),
        incarnation: Incarnation(run),
        boot_id: format!("boot-{run}"),
    })
}

#[derive(Debug, Clone)]
enum Step {
    Text(usize),
    Values(u8, u32),
    Ack(usize),
    AckHeld(u64, u64),
    Kill,
    Stop,
    Space(Option<u64>),
    Renew,
    Explain,
    Flip(usize, usize, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_usize..300).prop_map(Step::Text),
        8 => (0_u8..3, any::<u32>()).prop_map(|(kind, cell)| Step::Values(kind, cell)),
        2 => (0_usize..5).prop_map(Step::Ack),
        1 => (1_u64..30, 0_u64..10).prop_map(|(first, more)| Step::AckHeld(first, first + more)),
        1 => Just(Step::Kill),
        1 => Just(Step::Stop),
        1 => proptest::option::of(0_u64..2_000).prop_map(Step::Space),
        1 => Just(Step::Renew),
        1 => Just(Step::Explain),
    ];
    proptest::collection::vec(step, 1..120)
}

fn play(rig: &mut Rig, step: &Step) {
    match step {
        Step::Text(bytes) => {
            let _full = rig.append(text(&"x".repeat(*bytes)));
        },
        Step::Values(kind, cell) => rig.append_values(*kind, f64::from(*cell)),
        Step::Ack(share) => rig.ack(*share),
        Step::AckHeld(first, last) => rig.ack_held(*first, *last),
        Step::Kill => rig.kill(),
        Step::Stop => rig.stop(),
        Step::Space(left) => rig.disk.set_space_left(*left),
        Step::Renew => {
            rig.runs += 1;
            rig.spool.renew(Incarnation(rig.runs));
        },
        Step::Explain => {
            let now = rig.now();
            rig.spool.explain(now);
        },
        Step::Flip(file, offset, bit) => {
            let files = rig.file_sizes();
            let Some((path, len)) = files.get(file % files.len().max(1)) else { return };
            let bytes = gswarm_store::disk::read_file(&rig.disk, path, 1 << 30).unwrap();
            let newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            // Header and mark stay: their damage has its own test.
            let Some(start) = newlines.map(|(offset, _)| offset + 1).nth(1) else { return };
            if start < *len {
                let offset = start + offset % (len - start);
                let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
                let mut end = 0;
                let line = lines.find(|line| {
                    end += line.len();
                    offset < end
                });
                // A damaged reason is gone: nothing else knows it.
                if !line.unwrap().windows(7).any(|word| word == b"\"loss\":") {
                    rig.disk.flip(path, offset, *bit);
                }
                rig.kill();
            }
        },
    }
}

/// Runs random scripts; a case tells what it checked and what of it is lost.
fn tried<S: Strategy>(what: &'static str, strategy: &S, case: impl Fn(S::Value) -> Checked) {
    let mut trial = Trial::new(what);
    let cases = rounds(128, 3_000);
    let config = ProptestConfig::with_cases(u32::try_from(cases).unwrap());
    let all = std::cell::RefCell::new(Checked::default());
    let result = TestRunner::new(config).run(strategy, |value| {
        let checked = case(value);
        let mut all = all.borrow_mut();
        all.faults += checked.faults;
        all.records += checked.records;
        all.lost.extend(&checked.lost);
        prop_assert_eq!(checked.lost, []);
        Ok(())
    });
    let all = all.into_inner();
    (trial.rounds, trial.seeds, trial.faults) = (cases, cases, all.faults);
    (trial.records, trial.lost) = (all.records, all.lost.len() as u64);
    // With the trial still alive, so that it knows.
    result.unwrap();
}

#[derive(Debug, Default)]
struct Checked {
    faults: u64,
    records: u64,
    lost: Vec<Key>,
}

fn faults(steps: &[Step]) -> u64 {
    let faults = |step: &&Step| matches!(step, Step::Kill | Step::Space(_) | Step::Flip(..));
    steps.iter().filter(faults).count() as u64
}

#[test]
fn every_taken_record_is_shown_or_named() {
    let scripts = (steps(), 3_usize..60, 2_000_u64..60_000);
    let what = "random lives of a spool: kills, full disks, overflow";
    tried(what, &scripts, |(steps, records_max, bytes_max)| {
        let mut rig = Rig::new(records_max, bytes_max);
        for step in &steps {
            play(&mut rig, step);
        }
        rig.disk.set_space_left(None);
        rig.append(text("last")).unwrap();
        let now = rig.now();
        rig.spool.explain(now);
        rig.show();
        // What explaining pushed out is explained by the next round.
        let now = rig.now();
        rig.spool.end(now);
        rig.show();
        Checked { faults: faults(&steps), records: rig.taken.len() as u64, lost: rig.lost() }
    });
}

#[test]
fn damage_is_named_except_in_the_tail() {
    let flips = proptest::collection::vec((0_usize..50, 0_usize..5_000, 0_u8..8), 1..4);
    tried("random lives of a spool, then flipped bits", &(steps(), flips), |(steps, flips)| {
        let mut rig = Rig::new(10_000, 1 << 30);
        rig.spool.segment_records_max = 10;
        for step in steps.iter().filter(|step| !matches!(step, Step::Space(_))) {
            play(&mut rig, step);
            rig.spool.segment_records_max = 10;
        }
        let faults = faults(&steps) + flips.len() as u64;
        for (file, offset, bit) in flips {
            play(&mut rig, &Step::Flip(file, offset, bit));
            let _named = rig.append(text("after"));
        }
        rig.append(text("last")).unwrap();
        rig.show();
        let last = |incarnation: Incarnation| {
            rig.shown.iter().filter(|key| key.0 == incarnation).map(|key| key.1).max()
        };
        let mut lost = rig.lost();
        lost.retain(|key| last(key.0).is_some_and(|last| last >= key.1));
        Checked { faults, records: rig.taken.len() as u64, lost }
    });
}

#[test]
fn a_power_loss_takes_only_what_was_not_synced() {
    let scripts = (steps(), any::<u64>());
    tried("random lives of a spool, then power loss", &scripts, |(steps, seed)| {
        let mut rig = Rig::new(10_000, 1 << 30);
        for step in steps.iter().filter(|step| !matches!(step, Step::Space(_))) {
            play(&mut rig, step);
        }
        rig.disk.power_loss(seed);
        rig.kill();
        rig.append(text("after")).unwrap();
        // Nothing invented, nothing twice, nothing out of order: `show` checks each record.
        rig.show();
        let lost = (rig.spool.incarnation, 1);
        let lost = if rig.shown.contains(&lost) { vec![] } else { vec![lost] };
        Checked { faults: faults(&steps) + 1, records: rig.taken.len() as u64, lost }
    });
}

#[test]
fn damage_of_header_and_mark_loses_no_record() {
    for (offset, bit) in (0..250).flat_map(|offset| [(offset, 0), (offset, 7)]) {
        let mut rig = Rig::new(100, 1 << 20);
        for number in 0..20 {
            rig.append(text(&number.to_string())).unwrap();
        }
        let files = rig.file_sizes();
        assert!(rig.disk.flip(&files[1].0, offset, bit));
        rig.kill();
        rig.append(text("last")).unwrap();
        rig.show();
        assert_eq!(rig.lost(), [], "byte {offset}");
    }
}

#[test]
fn a_file_stays_for_the_table_that_another_lost() {
    let mut rig = Rig::new(100, 1 << 20);
    rig.spool.segment_records_max = 2;
    for cell in [1.0, 2.0, 3.0] {
        rig.append_values(0, cell);
    }
    let files = rig.file_sizes();
    // The first file loses its table, the second everything but its table.
    for ((path, _), word) in files.iter().zip(["\"table\"", "\"record\""]) {
        let bytes = gswarm_store::disk::read_file(&rig.disk, path, 1 << 20).unwrap();
        let at = bytes.windows(word.len()).position(|window| window == word.as_bytes()).unwrap();
        assert!(rig.disk.flip(path, at, 1));
    }
    for _ in 0..2 {
        rig.kill();
        rig.shown.clear();
        rig.show();
        assert_eq!(rig.shown.len(), 2, "{:?}", rig.shown);
    }
    rig.ack(4);
    rig.append(text("last")).unwrap();
    assert!(!rig.file_sizes().iter().any(|file| files.contains(file)), "{:?}", rig.file_sizes());
}

#[test]
fn the_oldest_go_first_and_their_reason_stays() {
    let mut rig = Rig::new(32, 1 << 20);
    for number in 0..500 {
        rig.append(text(&number.to_string())).unwrap();
    }
    let view = rig.spool.view();
    assert_eq!(view.records, 32);
    assert!(view.counters.dropped >= 468, "{view:?}");
    assert!(rig.file_sizes().len() <= 18, "{:?}", rig.file_sizes());
    let oldest = view.held[0].oldest_held;
    let now = rig.now();
    rig.spool.explain(now);
    rig.show();
    let overflow: Vec<&SpoolLoss> = rig.named.iter().filter(|loss| loss.first == 1).collect();
    assert!(!overflow.is_empty() && overflow.iter().all(|l| l.reason == GapReason::SpoolOverflow));
    assert!(
        rig.named.iter().any(|loss| loss.first == 1 && loss.last + 1 >= oldest),
        "{:?}",
        rig.named
    );
    rig.kill();
    rig.append(text("last")).unwrap();
    rig.show();
    assert_eq!(rig.lost(), []);
}

#[test]
fn a_full_disk_leaves_a_hole_with_a_reason() {
    let mut rig = Rig::new(100, 1 << 20);
    rig.append(text("a")).unwrap();
    rig.disk.set_space_left(Some(10));
    for _ in 0..3 {
        rig.append(text("lost")).unwrap_err();
    }
    assert_eq!(rig.spool.view().counters.errors, 3);
    rig.disk.set_space_left(None);
    rig.append(text("b")).unwrap();
    rig.show();
    let loss =
        SpoolLoss { incarnation: Incarnation(1), first: 2, last: 4, reason: GapReason::SpoolError };
    assert_eq!(rig.named, [loss]);
}

#[test]
fn holes_that_nobody_could_explain_are_named_at_the_next_start() {
    let mut rig = Rig::new(100, 1 << 20);
    rig.append(text("a")).unwrap();
    rig.disk.set_space_left(Some(10));
    rig.append(text("lost")).unwrap_err();
    // Room for one short record, not for the reason as well.
    rig.disk.set_space_left(Some(200));
    rig.append(text("b")).unwrap();
    rig.kill();
    rig.disk.set_space_left(None);
    rig.append(text("c")).unwrap();
    rig.show();
    let named: Vec<(u64, u64, GapReason)> =
        rig.named.iter().map(|loss| (loss.first, loss.last, loss.reason)).collect();
    // Each run of this rig is another boot, of which nobody knows the end.
    let end = (4, SpoolLoss::OPEN_END, GapReason::NodeCrash);
    assert_eq!(named, [(2, 2, GapReason::SpoolError), end]);
}

#[test]
fn a_spool_starts_on_a_full_disk() {
    let disk = SimDisk::new();
    disk.set_space_left(Some(0));
    let mut spool = open(&disk, SpoolLimits::default(), 1).unwrap();
    spool.append(at(1), text("a")).unwrap_err();
    disk.set_space_left(None);
    assert_eq!(spool.append(at(2), text("b")).unwrap(), 2);
    let batch = spool.read_batch(0, EVERYTHING, at(3));
    assert!(matches!(batch.records[1].record.body, Body::Loss(loss) if loss.last == 1));
}

#[test]
fn acknowledged_files_are_deleted_and_stay_acknowledged() {
    let mut rig = Rig::new(160, 1 << 20);
    for number in 0..100 {
        rig.append(text(&number.to_string())).unwrap();
    }
    assert_eq!(rig.file_sizes().len(), 10);
    rig.ack(4);
    assert_eq!(rig.file_sizes().len(), 1);
    let view = rig.spool.view();
    assert_eq!((view.records, view.counters.acked), (0, 100));
    assert_eq!((view.held[0].oldest_held, view.held[0].last), (101, 100));
    rig.stop();
    // Only the end record is left to show.
    assert_eq!(rig.show().len(), 1);
    assert_eq!(rig.spool.view().held[0].boot_id, "boot-1");
}

#[test]
fn a_record_that_is_too_long_is_cut_and_flagged() {
    let mut rig = Rig::new(100, 1 << 30);
    let now = rig.now();
    rig.spool.append(now, text(&"ü".repeat(RECORD_BYTES_MAX))).unwrap();
    let batch = rig.spool.read_batch(0, EVERYTHING, now);
    let Body::Event(cut) = &batch.records[0].record.body else { panic!("{batch:?}") };
    assert!(cut.message.starts_with("üü") && cut.message.len() <= 64 * 1024);
    let batch = rig.spool.read_batch(batch.cursor, EVERYTHING, now);
    let Body::Event(flag) = &batch.records[0].record.body else { panic!("{batch:?}") };
    assert_eq!(flag.kind.as_str(), "record_cut");
    let columns = 100_000;
    let mut wide = (*table(0)).clone();
    wide.columns = vec![wide.columns[0].clone(); columns];
    let wide = Arc::new(wide);
    rig.spool.offer_table(wide.digest(), &wide);
    let cells = Cells::new(vec![Some(0.123_456_789_012_345_6); columns]);
    let values = Values { table: wide.digest(), cells };
    rig.spool.append(now, Body::Values(values)).unwrap();
    let batch = rig.spool.read_batch(batch.cursor, EVERYTHING, now);
    let Body::Values(values) = &batch.records[0].record.body else { panic!() };
    assert_eq!(values.cells.as_slice().len(), columns);
    assert!(values.cells.as_slice().iter().any(Option::is_none));
}

#[test]
fn damage_while_running_is_named() {
    let mut rig = Rig::new(100, 1 << 20);
    for number in 0..4 {
        rig.append(text(&number.to_string())).unwrap();
    }
    let held = *rig.spool.index.from(1).next().unwrap();
    let offset = usize::try_from(held.at.offset).unwrap() + 40;
    let (path, _) = rig.file_sizes().remove(0);
    assert!(rig.disk.flip(&path, offset, 1));
    rig.show();
    assert_eq!(rig.lost(), []);
    assert_eq!(rig.named[0].reason, GapReason::SpoolDamaged);
    assert_eq!((rig.named[0].first, rig.named[0].last), (2, 2));
}

#[test]
fn a_real_disk_gives_back_what_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let open = |run| {
        Spool::open(SpoolParts {
            disk: Arc::new(gswarm_store::StdDisk),
            dir: dir.path().join("spool"),
            limits: SpoolLimits { records_max: 160, bytes_max: 1 << 20 },
            storage: StorageId::new(Uuid::from_u128(1)),
            incarnation: Incarnation(run),
            boot_id: "boot".to_owned(),
        })
        .unwrap()
    };
    let mut spool = open(1);
    for number in 1..=100 {
        spool.append(at(number), text(&number.to_string())).unwrap();
    }
    spool.ack_through(49, at(200));
    spool.persist_acks();
    drop(spool);
    let mut spool = open(2);
    let all = BatchLimits { records_max: 1_000, bytes_max: 1 << 20 };
    let records = spool.read_batch(0, all, at(300)).records;
    assert_eq!(records.len(), 50);
    for (outgoing, number) in records.iter().zip(51..) {
        assert_eq!(outgoing.record.body, text(&number.to_string()));
    }
}

#[test]
fn a_newer_spool_is_refused_by_name() {
    let disk = SimDisk::new();
    let path = Path::new(DIR).join(segment_name(1));
    let mut lines = LineBuffer::new();
    #[derive(serde::Serialize)]
    struct Newer {
        header: gswarm_store::entry::Header,
    }
    let storage = StorageId::new(Uuid::from_u128(1));
    let header =
        gswarm_store::entry::Header { format: 99, storage, segment: 1, prev_valid_bytes: 0 };
    lines.push(&Newer { header }).unwrap();
    disk.create(&path).unwrap().append(lines.as_bytes()).unwrap();
    let error = open(&disk, SpoolLimits::default(), 1).unwrap_err();
    assert!(matches!(error, ScanError::Newer { format: 99, .. }));
}

#[track_caller]
fn check_flush(until: i64, seq: u64, cursor: u64) {
    let mut spool = open(&SimDisk::new(), SpoolLimits::default(), 1).unwrap();
    for mono in [10, 20, 30, 25, 40] {
        spool.append(at(mono), text("x")).unwrap();
    }
    spool.ack_through(0, at(50));
    let expected = FlushTarget { incarnation: Incarnation(1), seq, cursor };
    assert_eq!(spool.flush_target(Micros(until)), expected);
}

#[test]
fn a_flush_names_the_last_record_made_before() {
    check_flush(100, 5, 5);
    check_flush(40, 4, 4);
    check_flush(26, 4, 4);
    check_flush(25, 2, 2);
    check_flush(20, 1, 0);
    check_flush(0, 1, 0);
}

#[test]
fn hosts_that_mean_other_records_are_noticed() {
    let mut spool = open(&SimDisk::new(), SpoolLimits::default(), 1).unwrap();
    spool.append(at(1), text("x")).unwrap();
    let crc = spool.read_batch(0, EVERYTHING, at(2)).records[0].crc;
    spool.ack_through(0, at(3));
    assert_eq!(spool.compare(1, crc), Agreement::Same);
    assert_eq!(spool.compare(1, !crc), Agreement::Different);
    assert_eq!(spool.compare(2, crc), Agreement::Different);
    spool.renew(Incarnation(9));
    spool.append(at(4), text("y")).unwrap();
    let view = spool.view();
    assert_eq!((view.incarnation, view.last_seq), (Incarnation(9), 1));
    assert_eq!(view.held.len(), 1);
}
