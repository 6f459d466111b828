//! The ledger: what the spools of all agents took, read from their files at many moments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use gswarm_trial::Trial;
use serde_json::Value;

use crate::file::Records;

/// What the files said of one incarnation.
#[derive(Default)]
struct Account {
    /// The checksum of each record that was seen, by seq.
    taken: BTreeMap<u64, u64>,
    /// Every seq up to this one was taken, also those whose segment was freed since.
    through: u64,
    /// The agent was dead when its spool was read: nothing came after `through`.
    closed: bool,
}

/// By incarnation.
#[derive(Default)]
pub(crate) struct Ledger {
    accounts: BTreeMap<String, Account>,
}

/// How many records the spool of a living agent has.
pub(crate) fn records_in(spool: &Path) -> usize {
    let mut ledger = Ledger::default();
    ledger.enter(spool, Writer::Alive);
    ledger.records()
}

/// Whether the agent still wrote while its spool was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Alive,
    Dead,
}

impl Ledger {
    /// Enters every whole line of a spool. One that never began is empty.
    pub(crate) fn enter(&mut self, spool: &Path, writer: Writer) {
        let mut segments = match fs::read_dir(spool) {
            Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => panic!("{}: {error}", spool.display()),
        };
        segments.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        segments.sort();
        let mut newest = None;
        for segment in segments {
            match fs::read(&segment) {
                Ok(bytes) => newest = self.segment(&bytes).or(newest),
                // A living agent frees what was acknowledged.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {},
                Err(error) => panic!("{}: {error}", segment.display()),
            }
        }
        if let Some(incarnation) = newest.filter(|_| writer == Writer::Dead) {
            self.accounts.entry(incarnation).or_default().closed = true;
        }
    }

    /// Gives the incarnation of the last line that names one.
    fn segment(&mut self, bytes: &[u8]) -> Option<String> {
        let mut newest = None;
        // What stands behind the last line end was not taken.
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else { continue };
            let line: Value = serde_json::from_slice(line).unwrap();
            let (body, mark) = (&line["record"], &line["incarnation"]);
            if let Some(incarnation) = body["i"].as_str() {
                let account = self.accounts.entry(incarnation.to_owned()).or_default();
                let seq = body["s"].as_u64().unwrap();
                let crc = u64::from_str_radix(line["crc"].as_str().unwrap(), 16).unwrap();
                assert_eq!(*account.taken.entry(seq).or_insert(crc), crc, "{incarnation} {seq}");
                account.through = account.through.max(seq);
                newest = Some(incarnation.to_owned());
            } else if let Some(incarnation) = mark["i"].as_str() {
                // The seq of the record that the segment was begun for.
                let account = self.accounts.entry(incarnation.to_owned()).or_default();
                account.through = account.through.max(mark["next"].as_u64().unwrap() - 1);
                newest = Some(incarnation.to_owned());
            }
        }
        newest
    }

    pub(crate) fn records(&self) -> usize {
        self.accounts.values().map(|account| account.taken.len()).sum()
    }

    pub(crate) fn incarnations(&self) -> usize {
        self.accounts.len()
    }

    /// The export has exactly what the spools took. Tells the trial what was compared and found.
    #[track_caller]
    pub(crate) fn check(&self, records: &Records, trial: &mut Trial) {
        let wrong = self.compare(records);
        trial.records += self.accounts.values().map(|account| account.through).sum::<u64>();
        trial.lost += wrong.len() as u64;
        assert!(wrong.is_empty(), "{} records are not as they were taken: {wrong:#?}", wrong.len());
        records.check_whole();
        for (incarnation, rows) in &records.incarnations {
            assert_eq!(rows[0].kind, "event", "{incarnation} does not begin with its start");
            let ended = rows.last().is_some_and(|row| row.kind == "end");
            let closed = self.accounts.get(incarnation).is_some_and(|account| account.closed);
            assert!(ended || closed, "{incarnation} neither ended nor was killed");
        }
    }

    /// Every record that is lost, doubled, changed or invented.
    fn compare(&self, records: &Records) -> Vec<String> {
        let mut wrong = Vec::new();
        let nothing = Account::default();
        for (incarnation, rows) in &records.incarnations {
            let account = self.accounts.get(incarnation).unwrap_or(&nothing);
            let mut seen = BTreeSet::new();
            for row in rows {
                if !seen.insert(row.seq) {
                    wrong.push(format!("{incarnation} {} is there twice", row.seq));
                }
                if account.taken.get(&row.seq).is_some_and(|crc| *crc != row.crc) {
                    wrong.push(format!("{incarnation} {} is another record", row.seq));
                }
                // A living agent may have taken more since its spool was read.
                let open = !account.closed && account.through > 0;
                if row.seq > account.through && !open {
                    wrong.push(format!("{incarnation} {} was taken by no spool", row.seq));
                }
            }
        }
        for (incarnation, account) in &self.accounts {
            let rows = records.incarnations.get(incarnation).map_or(&[][..], Vec::as_slice);
            let exported: BTreeSet<u64> = rows.iter().map(|row| row.seq).collect();
            let lost = (1..=account.through).filter(|seq| !exported.contains(seq));
            wrong.extend(lost.map(|seq| format!("{incarnation} {seq} is lost")));
        }
        wrong
    }
}
