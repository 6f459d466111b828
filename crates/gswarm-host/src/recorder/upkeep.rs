//! What happens once a second: health, due sessions, rolling, sealing, retention.

use gswarm_core::{HealthChange, RetentionPlan, RetentionRules, SegmentFacts};
use gswarm_store::Disk;
use gswarm_store::catalog::{Catalog, SegmentMeta, SegmentState};
use gswarm_store::log::Damage;
use gswarm_store::{log, sealed};
use gswarm_types::{EventKind, Micros, Severity, StorageId};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;

use super::{Call, Recorder, expiry_file};

/// Seconds between looks at retention.
const RETENTION_TICKS: u64 = 60;
/// Seconds between looks at segments to seal.
const SEAL_TICKS: u64 = 5;
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
            self.stop_session(&id.to_string(), reply).await;
        }
        self.check_stopping();
        self.roll_if_due(now);
        if self.ticks.is_multiple_of(SEAL_TICKS) {
            self.seal();
        }
        if self.ticks % RETENTION_TICKS == 1 {
            self.retain(now);
            self.mention_long_sessions(now);
        }
    }

    fn roll_if_due(&mut self, now: Micros) {
        if self.commit.is_some() || self.retry_at.is_some() {
            return;
        }
        if let Some(journal) = &mut self.journal
            && journal.is_due(now)
            && let Err(error) = journal.roll(&self.intake)
        {
            tracing::warn!(%error, "segment not closed");
        }
    }

    /// Seals closed segments in the background, one after the other.
    fn seal(&mut self) {
        if self.sealing.as_ref().is_some_and(|sealing| !sealing.is_finished()) {
            return;
        }
        let catalog = self.reader.catalog().clone();
        let closed: Vec<SegmentMeta> = catalog
            .segments()
            .into_iter()
            .filter(|meta| meta.state == SegmentState::Closed)
            .collect();
        if closed.is_empty() {
            return;
        }
        let disk = self.disk.clone();
        let dir = self.config.data_dir.join("journal");
        let storage = self.storage;
        let calls = self.calls.clone();
        self.sealing = Some(tokio::task::spawn_blocking(move || {
            for meta in closed {
                let damage = seal_one(&disk, &dir, &catalog, &meta, storage);
                if !damage.is_empty()
                    && let Some(calls) = calls.upgrade()
                {
                    let _stopping = calls.blocking_send(Call::Damaged(damage));
                }
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
                pinned: match (meta.first_time, meta.last_time) {
                    (Some(first), Some(last)) => self.book.pins(first, last),
                    _ => false,
                },
            })
            .collect();
        let rules = RetentionRules {
            keep: self.config.retention.keep,
            budget_bytes: self.config.retention.budget_bytes,
        };
        (rules.plan(&facts, now), segments)
    }

    /// Sessions are created by this task too: none can pin a segment between plan and removal.
    fn retain(&mut self, now: Micros) {
        let (plan, segments) = self.retention_plan(now);
        let dir = self.config.data_dir.join("journal");
        let taken: Vec<Micros> = plan
            .remove
            .iter()
            .filter_map(|removal| {
                let meta = segments.iter().find(|meta| meta.number == removal.number)?;
                meta.last_time.filter(|_| meta.records > 0)
            })
            .collect();
        // Written first: a window never claims to be whole after part of it is gone.
        if let Some(last) = taken.into_iter().max().filter(|last| Some(*last) > self.expired_until)
        {
            if let Err(error) = expiry_file::write(self.disk.as_ref(), &self.config.data_dir, last)
            {
                tracing::warn!(%error, "nothing removed: the expiry cannot be written");
                return;
            }
            self.expired_until = Some(last);
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
