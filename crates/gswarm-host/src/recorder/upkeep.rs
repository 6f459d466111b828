//! What happens once a second: health, due sessions, rolling, sealing, retention.

use gswarm_core::{
    HealthChange, Pin, Pinned, RetentionPlan, RetentionRules, STEP_MIN, SegmentFacts,
};
use gswarm_store::Disk;
use gswarm_store::catalog::{Catalog, SegmentMeta, SegmentState};
use gswarm_store::entry::Entry;
use gswarm_store::log::Damage;
use gswarm_store::{log, sealed, session_file};
use gswarm_types::{EventKind, Micros, NodeId, Severity, StorageId};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;

use super::{Call, Chore, Recorder, expiry_file};

/// Seconds between looks at retention.
const RETENTION_TICKS: u64 = 60;
/// Seconds between looks at segments to seal.
const SEAL_TICKS: u64 = 5;
/// The second of a minute at which one sealed segment is read to see that it is whole.
const SCRUB_TICK: u64 = 32;
/// Nodes without a connection whose last values are kept.
const GONE_SHOWN_MAX: usize = 256;
/// An open session is mentioned after this long, once a day.
const LONG_SESSION: Micros = Micros::from_secs(86_400);

impl Recorder {
    pub(super) async fn tick(&mut self) {
        self.ticks += 1;
        let now = self.time.now();
        if let Some(step) = self.time.take_step() {
            let message = format!(
                "the clock of the host jumped by {:.0} s (epoch {})",
                step.by.as_secs_f64(),
                step.epoch
            );
            self.event(None, EventKind::ClockStep, Severity::Warning, message);
            self.divide_sessions(step, now).await;
        }
        for change in self.health.tick(self.time.mono()) {
            if let HealthChange::Unhealthy(node) = change {
                let message = "nothing came for 30 seconds".to_owned();
                self.event(Some(node), EventKind::NodeUnhealthy, Severity::Warning, message);
            }
        }
        self.settle_contenders().await;
        for id in self.book.due(now) {
            let (reply, _nobody) = oneshot::channel();
            self.stop_session(&id.to_string(), None, reply).await;
        }
        self.check_stopping();
        self.roll_if_due(now);
        let grew = std::mem::take(&mut self.grew);
        if self.ticks.is_multiple_of(SEAL_TICKS) {
            self.work(Vec::new());
        }
        let minute = self.ticks % RETENTION_TICKS == 1;
        // A journal that fills a segment within a minute would outgrow its budget by many of them.
        if minute || grew {
            self.retain(now);
        }
        if minute {
            self.mention_long_sessions(now);
            self.forget_gone_nodes();
        }
        if self.ticks % RETENTION_TICKS == SCRUB_TICK {
            self.scrub();
        }
    }

    pub(super) fn roll_if_due(&mut self, now: Micros) {
        if self.journal.as_ref().is_some_and(|journal| journal.is_due(now)) {
            self.grew = true;
            self.wish(Chore::Roll);
        } else if self.chore.is_some() {
            self.start_chore();
        }
    }

    /// Work on segments goes on in the background, one piece after the other.
    fn work(&mut self, trims: Vec<Trim>) {
        if self.is_working() {
            return;
        }
        let catalog = self.reader.catalog().clone();
        let closed: Vec<SegmentMeta> = catalog
            .segments()
            .into_iter()
            .filter(|meta| meta.state == SegmentState::Closed)
            .collect();
        if closed.is_empty() && trims.is_empty() {
            return;
        }
        let disk = self.disk.clone();
        let dir = self.config.data_dir.join("journal");
        let storage = self.storage;
        let calls = self.calls.clone();
        let give_back = self.give_back;
        self.upkeep = Some(tokio::task::spawn_blocking(move || {
            for meta in closed {
                let damage = seal_one(&disk, &dir, &catalog, &meta, storage);
                if !damage.is_empty()
                    && let Some(calls) = calls.upgrade()
                {
                    let _stopping = calls.blocking_send(Call::Damaged(meta, damage));
                }
            }
            for trim in trims {
                trim_one(&disk, &dir, &catalog, &trim);
            }
            give_back();
        }));
    }

    fn is_working(&self) -> bool {
        self.upkeep.as_ref().is_some_and(|upkeep| !upkeep.is_finished())
    }

    /// Reads one sealed segment to see that it is still what was written: damage is found while
    /// somebody can still do something about the disk.
    fn scrub(&mut self) {
        if self.is_working() {
            return;
        }
        let segments = self.reader.catalog().segments();
        let sealed = || segments.iter().filter(|meta| meta.state == SegmentState::Sealed);
        let next = sealed().find(|meta| meta.number > self.scrubbed).or_else(|| sealed().next());
        let Some(meta) = next.cloned() else { return };
        self.scrubbed = meta.number;
        let reader = self.reader.clone();
        let calls = self.calls.clone();
        self.upkeep = Some(tokio::task::spawn_blocking(move || {
            let leases = reader.catalog().lease(|other| other.number == meta.number);
            let is_whole = leases.iter().all(|lease| reader.is_whole(lease.meta()));
            drop(leases);
            if !is_whole && let Some(calls) = calls.upgrade() {
                let (reply, _nobody) = oneshot::channel();
                let _stopping = calls.blocking_send(Call::Unreadable(meta.number, reply));
            }
        }));
    }

    pub(super) fn retention_plan(&self, now: Micros) -> (RetentionPlan, Vec<SegmentMeta>) {
        let segments = self.reader.catalog().segments();
        let facts: Vec<SegmentFacts> = segments
            .iter()
            .filter(|meta| meta.state != SegmentState::Open)
            .map(|meta| SegmentFacts {
                number: meta.number,
                bytes: meta.bytes,
                last_receipt: meta.last_receipt.or(meta.last_time),
                pinned: self.pinned(meta),
            })
            .collect();
        let rules = RetentionRules {
            keep: self.config.retention.keep,
            budget_bytes: self.config.retention.budget_bytes,
        };
        (rules.plan(&facts, now), segments)
    }

    fn pinned(&self, meta: &SegmentMeta) -> Pinned {
        // What such a session keeps is not known: it may be anything.
        if !self.unreadable_sessions.is_empty() {
            return Pinned::Whole;
        }
        let (Some(first), Some(last)) = (meta.first_time, meta.last_time) else {
            return Pinned::Nothing;
        };
        let pins = self.book.pins(first, last);
        if pins.is_empty() {
            Pinned::Nothing
        } else if meta.state != SegmentState::Sealed
            || pins.iter().any(|pin| pin.covers(first, last))
            || meta.trimmed_to == Some(pins_checksum(&pins))
        {
            Pinned::Whole
        } else {
            Pinned::Part
        }
    }

    /// Sessions are created by this task too: none can pin a segment between plan and removal.
    fn retain(&mut self, now: Micros) {
        self.release_unreadable_sessions();
        let (plan, segments) = self.retention_plan(now);
        let dir = self.config.data_dir.join("journal");
        let meta_of = |number| segments.iter().find(|meta| meta.number == number);
        let taken = plan.remove.iter().chain(&plan.trim).filter_map(|removal| {
            let meta = meta_of(removal.number)?;
            let last = meta.last_time.filter(|_| meta.records > 0)?;
            // Times of a clock that was ahead say nothing about the times that windows have now.
            // Anything less is the order in which a start wrote what it found.
            let received_by = removal.received_by?;
            Some(if last - received_by > STEP_MIN { received_by } else { last })
        });
        // Written first: a window never claims to be whole after part of it is gone.
        let mut expiry = self.expiry.clone();
        expiry.expired_until = expiry.expired_until.max(taken.max());
        expiry.remove(plan.remove.iter().map(|removal| removal.number));
        if expiry != self.expiry {
            let written = expiry_file::write(self.disk.as_ref(), &self.config.data_dir, &expiry);
            if let Err(error) = written {
                tracing::warn!(%error, "nothing removed: the expiry cannot be written");
                return;
            }
            self.expiry = expiry;
        }
        for removal in &plan.remove {
            let disk = &self.disk;
            let removed = self.reader.catalog().alone(removal.number, |meta| {
                remove_segment(disk.as_ref(), &dir, meta).map(|()| None)
            });
            if let Some(Err(error)) = removed {
                tracing::warn!(segment = removal.number, %error, "segment not removed");
            }
        }
        let trims = plan.trim.iter().filter_map(|removal| {
            let meta = meta_of(removal.number)?.clone();
            let pins = self.book.pins(meta.first_time?, meta.last_time?);
            Some(Trim { meta, pins })
        });
        let trims: Vec<Trim> = trims.collect();
        self.work(trims);
        if plan.over_budget && !self.over_budget {
            let message = format!(
                "{} bytes are kept, the budget is {}: sessions pin {} of them",
                plan.bytes_kept, self.config.retention.budget_bytes, plan.bytes_pinned
            );
            self.event(None, EventKind::OverBudget, Severity::Warning, message);
        }
        self.over_budget = plan.over_budget;
        self.intake.forget_old(now);
    }

    /// Session files that nobody can read hold everything until the disk is nearly full.
    fn release_unreadable_sessions(&mut self) {
        let reserve = self.config.disk_reserve_bytes;
        let free = self.disk.free_bytes(&self.config.data_dir).unwrap_or(u64::MAX);
        if self.unreadable_sessions.is_empty() || free >= reserve {
            return;
        }
        for path in std::mem::take(&mut self.unreadable_sessions) {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let message = match session_file::quarantine(self.disk.as_ref(), &path) {
                Ok(()) => format!(
                    "the disk is nearly full: session file `{file}` cannot be read and no longer \
                     keeps anything, it is in `sessions/quarantine`"
                ),
                Err(error) => format!("session file `{file}` cannot be set aside: {error}"),
            };
            tracing::error!(%message, "unreadable session");
            self.event(None, EventKind::StoreDamaged, Severity::Error, message);
        }
    }

    /// The last values of nodes that are gone are shown for the newest of them; names and numbers
    /// of the others stay, which is little.
    fn forget_gone_nodes(&mut self) {
        let mut gone: Vec<(Option<Micros>, NodeId)> = self
            .nodes
            .values()
            .filter(|node| node.stream.is_none() && node.latest.is_some())
            .map(|node| (node.last_seen, node.id))
            .collect();
        gone.sort_unstable();
        let excess = gone.len().saturating_sub(GONE_SHOWN_MAX);
        for (_, id) in gone.into_iter().take(excess) {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.forget_values();
            }
        }
    }

    fn mention_long_sessions(&mut self, now: Micros) {
        let minute = Micros::from_secs(60);
        let long: Vec<String> = self
            .book
            .open()
            .filter(|spec| {
                let open_for = (now - spec.created).0;
                open_for >= LONG_SESSION.0 && open_for % LONG_SESSION.0 < minute.0
            })
            .map(|spec| spec.name.to_string())
            .collect();
        for name in long {
            let message =
                format!("session `{name}` is open for more than a day and keeps its data");
            self.event(None, EventKind::SessionLong, Severity::Warning, message);
        }
    }
}

/// A segment to cut down, and to what.
struct Trim {
    meta: SegmentMeta,
    pins: Vec<Pin>,
}

/// Tells whether a segment was cut down to these very pins.
fn pins_checksum(pins: &[Pin]) -> u32 {
    serde_json::to_vec(pins).map_or(0, |bytes| crc32c::crc32c(&bytes))
}

fn trim_one(disk: &Arc<dyn Disk>, dir: &Path, catalog: &Catalog, trim: &Trim) {
    let number = trim.meta.number;
    let selects = |node, time| trim.pins.iter().any(|pin| pin.selects(node, time));
    let wanted = |entry: &Entry| match entry {
        Entry::Record(record) => selects(Some(record.node), record.time),
        Entry::HostEvent(event) => selects(event.node, event.time),
        _ => true,
    };
    let trimmed_to = Some(pins_checksum(&trim.pins));
    let cut = match sealed::trim(disk.as_ref(), dir, &trim.meta, &wanted) {
        Ok(cut) => cut,
        Err(error) => {
            tracing::warn!(segment = number, %error, "segment not cut down");
            return;
        },
    };
    let done = catalog.alone(number, |meta| match &cut {
        Some((prepared, left)) => {
            let left = SegmentMeta { last_receipt: meta.last_receipt, ..left.clone() };
            let meta = sealed::finish(disk.as_ref(), dir, &left, prepared)?;
            Ok::<_, sealed::SealError>(Some(SegmentMeta { trimmed_to, ..meta }))
        },
        None => Ok(Some(SegmentMeta { trimmed_to, ..meta.clone() })),
    });
    match (done, cut) {
        (Some(Ok(())), Some((prepared, _))) => {
            let (before, after) = (trim.meta.bytes, prepared.bytes);
            tracing::info!(segment = number, before, after, "segment cut down to its sessions");
        },
        (Some(Err(error)), _) => tracing::warn!(segment = number, %error, "segment not cut down"),
        // Somebody reads it: next time.
        (None | Some(Ok(())), _) => {},
    }
}

fn seal_one(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    catalog: &Catalog,
    meta: &SegmentMeta,
    storage: StorageId,
) -> Vec<Damage> {
    let prepared = match sealed::prepare(disk.as_ref(), dir, meta, storage) {
        Ok(prepared) => prepared,
        Err(error) => {
            tracing::warn!(segment = meta.number, %error, "segment stays as it is");
            return Vec::new();
        },
    };
    let done = catalog
        .alone(meta.number, |meta| sealed::finish(disk.as_ref(), dir, meta, &prepared).map(Some));
    match done {
        Some(Ok(())) => tracing::debug!(
            segment = meta.number,
            lines_bytes = meta.bytes,
            sealed_bytes = prepared.bytes,
            "sealed"
        ),
        Some(Err(error)) => tracing::warn!(segment = meta.number, %error, "segment not sealed"),
        // Somebody reads it: next time.
        None => return Vec::new(),
    }
    prepared.damage
}

fn remove_segment(disk: &dyn Disk, dir: &Path, meta: &SegmentMeta) -> std::io::Result<()> {
    match meta.state {
        SegmentState::Sealed => sealed::remove(disk, dir, meta.number),
        SegmentState::Closed => disk.remove(&dir.join(log::segment_name(meta.number))),
        SegmentState::Open => Ok(()),
    }
}
