//! What every spool accepted, written down beside it, and how an export answers for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gswarm_store::disk::{Append, ReadAt};
use gswarm_store::{Disk, SimDisk};
use gswarm_types::Incarnation;

use crate::cluster::Records;

/// Incarnation and seq, as exports write them.
pub type RecordKey = (String, u64);

/// Every record whose write into a spool returned, with the checksum of its line.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    accepted: Arc<Mutex<BTreeMap<RecordKey, u32>>>,
}

/// What became of the records in a ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    pub accepted: u64,
    pub exported: u64,
    /// Accepted records in final gaps, by reason.
    pub named: BTreeMap<String, u64>,
    /// Accepted records in gaps that the node may still fill.
    pub awaited: u64,
    /// Neither exported nor in any gap.
    pub lost: Vec<RecordKey>,
    /// Exported more than once.
    pub doubled: Vec<RecordKey>,
    /// Exported with another checksum than the spool's, or never accepted by any spool.
    pub foreign: Vec<RecordKey>,
}

impl Ledger {
    /// The keys of everything accepted so far.
    pub fn keys(&self) -> BTreeSet<RecordKey> {
        self.lock().keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes down what an agent has that is played by a test.
    pub fn accept(&self, incarnation: Incarnation, seq: u64, crc: u32) {
        self.lock().insert((incarnation.to_string(), seq), crc);
    }

    /// Compares with an export record by record.
    pub fn account(&self, records: &Records) -> Account {
        let accepted = self.lock();
        let mut account = Account { accepted: accepted.len() as u64, ..Account::default() };
        let mut seen: BTreeSet<RecordKey> = BTreeSet::new();
        for record in &records.records {
            let key = (record.incarnation.clone(), record.seq);
            match accepted.get(&key) {
                Some(crc) if *crc == record.crc => account.exported += 1,
                Some(_) | None => account.foreign.push(key.clone()),
            }
            if !seen.insert(key.clone()) {
                account.exported -= u64::from(accepted.contains_key(&key));
                account.doubled.push(key);
            }
        }
        let gaps = Gaps::of(records);
        for key in accepted.keys().filter(|key| !seen.contains(*key)) {
            match gaps.around(key) {
                Some((reason, true)) => *account.named.entry(reason.to_owned()).or_default() += 1,
                Some((_, false)) => account.awaited += 1,
                None => account.lost.push(key.clone()),
            }
        }
        account
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RecordKey, u32>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the records out of lines that were written.
    fn note(&self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n') {
            if let Some((key, crc)) = record_of(line) {
                self.lock().insert(key, crc);
            }
        }
    }
}

impl Account {
    /// Records that break the promise: gone without a name, there twice, or not what was taken.
    pub fn broken(&self) -> u64 {
        (self.lost.len() + self.doubled.len() + self.foreign.len()) as u64
    }

    /// True when every accepted record is exported once and nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.broken() == 0 && self.awaited == 0 && self.named.is_empty()
    }
}

/// The gaps of an export that name records, by incarnation.
struct Gaps<'a>(BTreeMap<&'a str, Vec<(u64, u64, &'a str, bool)>>);

impl<'a> Gaps<'a> {
    fn of(records: &'a Records) -> Self {
        let mut gaps: BTreeMap<&str, Vec<(u64, u64, &str, bool)>> = BTreeMap::new();
        for gap in &records.gaps {
            let text = |key: &str| gap.get(key).and_then(|value| value.as_str());
            let number = |key: &str| gap.get(key).and_then(serde_json::Value::as_u64);
            let is_final = gap.get("final").and_then(serde_json::Value::as_bool).unwrap_or(false);
            if let (Some(incarnation), Some(first), Some(reason)) =
                (text("incarnation"), number("first_seq"), text("reason"))
            {
                let last = number("last_seq").unwrap_or(u64::MAX);
                gaps.entry(incarnation).or_default().push((first, last, reason, is_final));
            }
        }
        Self(gaps)
    }

    fn around(&self, (incarnation, seq): &RecordKey) -> Option<(&'a str, bool)> {
        let gaps = self.0.get(incarnation.as_str())?;
        let gap = gaps.iter().find(|(first, last, ..)| (*first..=*last).contains(seq))?;
        Some((gap.2, gap.3))
    }
}

/// `{"crc":"xxxxxxxx","record":{"i":"<16 digits>","s":7,...`
fn record_of(line: &[u8]) -> Option<(RecordKey, u32)> {
    let text = std::str::from_utf8(line.get(..line.len().min(80))?).ok()?;
    let (crc, rest) = text.strip_prefix("{\"crc\":\"")?.split_once("\",\"record\":{\"i\":\"")?;
    let (incarnation, rest) = rest.split_once("\",\"s\":")?;
    let (seq, _) = rest.split_once(',')?;
    let crc = u32::from_str_radix(crc, 16).ok()?;
    Some(((incarnation.to_owned(), seq.parse().ok()?), crc))
}

/// An agent's disk with the ledger beside it: only what the spool's own writes carried counts.
#[derive(Debug, Clone)]
pub(crate) struct LedgerDisk {
    disk: SimDisk,
    ledger: Ledger,
    /// False once the process is dead: its threads may still run down, but reach nothing.
    alive: Arc<Mutex<bool>>,
}

impl LedgerDisk {
    pub(crate) fn new(disk: SimDisk, ledger: Ledger) -> Self {
        Self { disk, ledger, alive: Arc::new(Mutex::new(true)) }
    }

    /// From now on nothing of the process reaches the disk.
    pub(crate) fn kill(&self) {
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Does something with the disk before or after the process is killed, never meanwhile.
    fn with<T>(&self, act: impl FnOnce(&SimDisk) -> io::Result<T>) -> io::Result<T> {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if *alive { act(&self.disk) } else { Err(io::Error::other("the process was killed")) }
    }
}

impl Disk for LedgerDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.with(|disk| disk.create_dir_all(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Append>> {
        let file = self.with(|disk| disk.create(path))?;
        Ok(Box::new(LedgerFile { file, disk: self.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        self.with(|disk| disk.open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.with(|disk| disk.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.with(|disk| disk.sync_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.with(|disk| disk.list(dir))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.with(|disk| disk.free_bytes(dir))
    }
}

#[derive(Debug)]
struct LedgerFile {
    file: Box<dyn Append>,
    disk: LedgerDisk,
}

impl Append for LedgerFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { file, disk } = self;
        disk.with(|_| {
            file.append(bytes)?;
            disk.ledger.note(bytes);
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let Self { file, disk } = self;
        disk.with(|_| file.sync())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let Self { file, disk } = self;
        disk.with(|_| file.truncate(len))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::RecordLine;

    fn line(seq: u64) -> String {
        format!(
            "{{\"crc\":\"0000000a\",\"record\":{{\"i\":\"00000000000000ab\",\"s\":{seq},\"m\":1}}}}\n"
        )
    }

    fn exported(seqs: &[u64], gaps: Vec<serde_json::Value>) -> Records {
        let record = |seq: &u64| RecordLine {
            node: "n".to_owned(),
            incarnation: "00000000000000ab".to_owned(),
            seq: *seq,
            time: gswarm_types::Micros(0),
            is_values: true,
            crc: 10,
        };
        Records { records: seqs.iter().map(record).collect(), gaps }
    }

    #[test]
    fn every_record_is_answered_for() {
        let ledger = Ledger::default();
        let lines: String = (1..=6).map(line).collect();
        ledger.note(lines.as_bytes());
        ledger.note(b"{\"crc\":\"0000000a\",\"table\":{}}\n");
        assert_eq!(ledger.len(), 6);
        let gap = json!({"incarnation": "00000000000000ab", "first_seq": 4, "last_seq": 5,
            "reason": "spool_overflow", "final": true});
        let account = ledger.account(&exported(&[1, 2, 2, 9], vec![gap]));
        let key = |seq| ("00000000000000ab".to_owned(), seq);
        assert_eq!((account.accepted, account.exported), (6, 2));
        assert_eq!(account.named, BTreeMap::from([("spool_overflow".to_owned(), 2)]));
        assert_eq!(account.lost, [key(3), key(6)]);
        assert_eq!((account.doubled, account.foreign), (vec![key(2)], vec![key(9)]));
        assert!(ledger.account(&exported(&[1, 2, 3, 4, 5, 6], vec![])).is_complete());
    }
}
