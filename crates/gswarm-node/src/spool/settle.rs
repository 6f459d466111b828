//! Keeping the spool within its limits, and giving the reason for everything that leaves unsent.

use gswarm_store::disk::remove_if_there;
use gswarm_store::log::{Log, segment_name};
use gswarm_types::{Body, Event, EventKind, GapReason, RECORD_BYTES_MAX, Severity, SpoolLoss};

use super::index::Held;
use super::{Spool, SpoolLimits, Times};

impl Spool {
    /// Keeps the limits, names what was lost, and deletes files that are no longer needed.
    pub(super) fn settle(&mut self, at: Times, explain: bool) {
        let began = self.keep_limits() && !self.overflowing;
        if began {
            self.overflowing = true;
            self.note(at, overflow_event(&self.limits));
        }
        if explain || self.needs_reasons() {
            let explained = self.write_losses(at);
            // What is remembered as gone must have its reason on disk.
            if self.rolled && explained {
                self.rolled = false;
                self.persist_acks();
            }
        }
        self.remove_segments(&self.index.emptied(self.active()));
        self.keep_limits();
    }

    /// Something has to be written down before anything else goes.
    pub(super) fn needs_reasons(&self) -> bool {
        self.rolled || self.index.has_unexplained() || self.losses.has_errors()
    }

    /// Drops the oldest records beyond the limits; true when there were any.
    fn keep_limits(&mut self) -> bool {
        let before = self.counters.dropped;
        while self.index.len() > self.limits.records_max {
            self.drop_oldest();
        }
        // Only whole files give bytes back.
        let active = self.active();
        while self.index.bytes(active) > self.limits.bytes_max {
            let Some(segment) = self.index.front().map(|held| held.at.segment) else { break };
            if Some(segment) == active {
                break;
            }
            while self.index.front().is_some_and(|held| held.at.segment == segment) {
                self.drop_oldest();
            }
        }
        self.counters.dropped > before
    }

    pub(super) fn active(&self) -> Option<u64> {
        self.log.as_ref().map(Log::segment)
    }

    fn drop_oldest(&mut self) {
        let Some((held, loss)) = self.index.pop_front() else { return };
        self.counters.dropped += 1;
        self.index.set_unexplained(held.at.segment);
        self.losses.add_seq(held.incarnation, held.seq, GapReason::SpoolOverflow);
        // The reason that was in the dropped record must not go with it.
        if let Some(loss) = loss.filter(|loss| !self.index.is_named(loss)) {
            self.losses.add(loss);
        }
    }

    /// Writes a record for each reason; false when the disk refused one.
    pub(super) fn write_losses(&mut self, at: Times) -> bool {
        if self.ended {
            return true;
        }
        let mut all = true;
        for loss in self.losses.take() {
            // One record for all that was lost in a row: the older ones may then go as well.
            let joined = self.index.join_named(loss);
            let written = all && self.put(at, Body::Loss(joined)).is_ok();
            if !written {
                self.losses.add(loss);
                all = false;
            }
        }
        if all {
            self.index.set_all_explained();
        }
        all
    }

    pub(super) fn note(&mut self, at: Times, event: Event) {
        if self.ended {
            return;
        }
        if let Err(error) = self.put(at, Body::Event(event)) {
            tracing::warn!(%error, "an event of the spool itself could not be written");
        }
    }

    pub(super) fn remove_segments(&mut self, segments: &[u64]) {
        for segment in segments {
            if self.reader.as_ref().is_some_and(|(open, _)| open == segment) {
                self.reader = None;
            }
            let path = self.dir.join(segment_name(*segment));
            if let Err(error) = remove_if_there(self.disk.as_ref(), &path) {
                tracing::warn!(path = %path.display(), %error, "segment not deleted");
            }
            self.index.remove_segment(*segment);
        }
        if !segments.is_empty() {
            let index = &self.index;
            self.tables.retain(|digest, _| index.uses_table(*digest));
        }
    }

    /// One record was damaged after it had been written.
    pub(super) fn lose_damaged(&mut self, lost: &[Held], at: Times) {
        for held in lost {
            let ordinal = held.ordinal;
            self.index.free_where(|held| held.ordinal == ordinal);
            self.counters.errors += 1;
            let loss = SpoolLoss {
                incarnation: held.incarnation,
                first: held.seq,
                last: held.seq,
                reason: GapReason::SpoolDamaged,
            };
            self.losses.add(loss);
        }
        let message = format!("{} records could not be read back from the spool", lost.len());
        self.note(at, damage_event(message));
        self.settle(at, false);
    }
}

fn overflow_event(limits: &SpoolLimits) -> Event {
    let SpoolLimits { records_max, bytes_max } = limits;
    event(
        EventKind::SpoolOverflow,
        Severity::Warning,
        format!("the spool holds {records_max} records or {bytes_max} bytes: the oldest go"),
    )
}

pub(crate) fn damage_event(message: String) -> Event {
    event(EventKind::SpoolDamaged, Severity::Error, message)
}

pub(super) fn cut_event(seq: u64, gone: usize) -> Event {
    event(
        EventKind::Other("record_cut".to_owned()),
        Severity::Warning,
        format!("record {seq} was longer than {RECORD_BYTES_MAX} bytes: {gone} parts were cut off"),
    )
}

pub(super) fn event(kind: EventKind, severity: Severity, message: String) -> Event {
    Event { kind, severity, device: None, code: None, message }
}
