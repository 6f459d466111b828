//! One GPU as the owner of the threads sees it: what it last said and what follows from that.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use gswarm_types::{DeviceId, Event, EventKind, Micros, Severity};

use super::board::{Board, Snapshot};
use super::fast::{Ask, FastThread, Profile};
use super::health::{Health, Outcome};
use super::layout::{Part, Source, placeholder};
use super::link::{End, Link};
use super::reading::Key;

const ECC_UNCORRECTED: Key = Key::gpu("ecc_uncorrected");

/// All zero in a healthy GPU.
const REMAPPED_ROWS: [Key; 4] = [
    Key::gpu("remapped_rows_corrected"),
    Key::gpu("remapped_rows_uncorrected"),
    Key::gpu("remapped_rows_pending"),
    Key::gpu("remapped_rows_failed"),
];

/// The state of one GPU between ticks.
#[derive(Debug)]
pub(super) struct Gpu {
    index: usize,
    asks: SyncSender<Ask>,
    pub(super) board: Arc<Board>,
    /// The tick that has not been answered; while there is one, no other is asked.
    pub(super) pending: Option<u64>,
    pub(super) answer: Option<Outcome>,
    pub(super) row: Vec<Option<f64>>,
    pub(super) profile: Option<Box<Profile>>,
    pub(super) snapshot: Snapshot,
    /// The links whose traffic is asked for in every tick.
    links: Arc<[u32]>,
    pub(super) slow_ready: bool,
    /// Whether its faults are reported; `None` until that is known.
    pub(super) watched: Option<bool>,
    pub(super) health: Health,
    pub(super) last_xid: Option<u64>,
    ecc_uncorrected: Option<f64>,
    remapped_rows: Option<[f64; 4]>,
}

/// What picking up the slow values brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Other columns or links.
    pub(super) profile: bool,
    pub(super) links_up: bool,
    pub(super) processes: bool,
}

impl Gpu {
    /// A GPU whose thread has just been started and answers the first tick unasked.
    pub(super) fn new(index: usize, asks: SyncSender<Ask>) -> Self {
        Self {
            index,
            asks,
            board: Arc::default(),
            pending: Some(FastThread::FIRST_SEQ),
            answer: None,
            row: Vec::new(),
            profile: None,
            snapshot: Snapshot::default(),
            links: Arc::default(),
            slow_ready: false,
            watched: None,
            health: Health::default(),
            last_xid: None,
            ecc_uncorrected: None,
            remapped_rows: None,
        }
    }

    pub(super) fn id(&self) -> DeviceId {
        let profile = self.profile.as_ref();
        profile.map_or_else(|| placeholder(self.index), |profile| DeviceId(profile.id.clone()))
    }

    /// Whether everything that is found out before the first tick is known.
    pub(super) fn has_opened(&self) -> bool {
        let slow_ready = self.slow_ready || self.profile.is_none();
        self.pending.is_none() && slow_ready && self.watched.is_some()
    }

    /// Asks for a row, unless the thread is still busy with an earlier tick.
    pub(super) fn ask(&mut self, seq: u64, now: Micros) {
        self.answer = None;
        let ask = Ask { seq, now, links: Arc::clone(&self.links) };
        if self.pending.is_none() && self.asks.try_send(ask).is_ok() {
            self.pending = Some(seq);
        }
    }

    /// Takes in the answer to one tick; one to an earlier tick tells only that the GPU is back.
    pub(super) fn answered(&mut self, in_time: bool, row: Option<Vec<Option<f64>>>) {
        self.pending = None;
        if in_time {
            self.answer = Some(if row.is_some() { Outcome::Answered } else { Outcome::Lost });
            self.row = row.unwrap_or_default();
        }
    }

    /// Picks up what the slow thread left.
    pub(super) fn read_board(&mut self, now: Micros) -> News {
        let before = std::mem::replace(&mut self.snapshot, self.board.tick(now));
        let news = News {
            profile: !Arc::ptr_eq(&before.profile, &self.snapshot.profile),
            links_up: before.links_up() != self.snapshot.links_up(),
            processes: match (&before.processes, &self.snapshot.processes) {
                (Some(before), Some(after)) => !Arc::ptr_eq(before, after),
                (None, None) => false,
                (None, Some(_)) | (Some(_), None) => true,
            },
        };
        if news.profile {
            self.links = self.snapshot.profile.links.iter().map(|link| link.number).collect();
        }
        news
    }

    /// Judges the tick: what changed about the GPU since the last one.
    pub(super) fn judge(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(change) = self.health.observe(self.answer.unwrap_or(Outcome::Late)) {
            events.push(self.event(change.kind, change.severity, None, change.message));
        }
        if self.health == Health::Answering {
            events.extend(self.ecc_event());
            events.extend(self.remap_event());
        }
        events
    }

    fn ecc_event(&mut self) -> Option<Event> {
        let count = self.snapshot.value(ECC_UNCORRECTED)?;
        let before = self.ecc_uncorrected.replace(count)?;
        let added = count - before;
        let message = format!("{added} uncorrected memory errors, {count} since the driver loaded");
        #[expect(clippy::cast_possible_truncation, reason = "counts are far below 2^53")]
        let code = Some(added as i64);
        (added > 0.0)
            .then(|| self.event(EventKind::EccUncorrected, Severity::Error, code, &message))
    }

    fn remap_event(&mut self) -> Option<Event> {
        let mut rows = [0.0; 4];
        for (value, key) in rows.iter_mut().zip(REMAPPED_ROWS) {
            *value = self.snapshot.value(key)?;
        }
        // Rows that were remapped before the start are history, not an event.
        let before = self.remapped_rows.replace(rows)?;
        let changed = rows.iter().zip(before).any(|(after, before)| (after - before).abs() > 0.5);
        let [corrected, uncorrected, pending, failed] = rows;
        let message = format!(
            "rows remapped after errors: {corrected} corrected, {uncorrected} uncorrected{}{}",
            if pending > 0.0 { ", waiting for a reset" } else { "" },
            if failed > 0.0 { ", failed: the board needs service" } else { "" },
        );
        let severity = if failed > 0.0 { Severity::Error } else { Severity::Warning };
        changed.then(|| self.event(EventKind::RowRemap, severity, None, &message))
    }

    fn event(
        &self,
        kind: EventKind,
        severity: Severity,
        code: Option<i64>,
        message: &str,
    ) -> Event {
        Event { kind, severity, device: Some(self.id()), code, message: message.to_owned() }
    }

    pub(super) fn part(&self) -> Part<'_> {
        Part {
            profile: self.profile.as_deref(),
            slow: &self.snapshot.profile,
            watched: self.watched == Some(true),
        }
    }

    pub(super) fn end<'a>(&'a self, links: &'a [&'a Link]) -> End<'a> {
        let profile = self.profile.as_deref();
        End {
            pci: profile.and_then(|profile| profile.pci.as_deref()),
            links,
            link_bytes_per_second: self.snapshot.profile.link_bytes_per_second,
            paths: profile.map_or(&[], |profile| &profile.paths),
        }
    }

    /// The value of one column; a GPU that does not answer has none but that.
    pub(super) fn cell(&self, source: Source) -> Option<f64> {
        let answering = self.health == Health::Answering;
        match source {
            Source::Unresponsive => Some(if answering { 0.0 } else { 1.0 }),
            _ if !answering => None,
            Source::Fast(position) => self.row.get(position).copied().flatten(),
            Source::Slow(position) => self.snapshot.cells.get(position).copied().flatten(),
            Source::MemoryBandwidth { share, bytes_per_second_max } => {
                let percent = self.row.get(share).copied().flatten()?;
                Some(percent / 100.0 * bytes_per_second_max)
            },
            Source::LastXid => self.last_xid.map(|xid| xid as f64),
        }
    }
}
