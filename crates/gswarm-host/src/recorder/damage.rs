//! Files of the recording that turn out to be damaged: set aside, and what they held is named.

use gswarm_core::{DamageSpan, Lost};
use gswarm_store::catalog::SegmentMeta;
use gswarm_store::log::Damage;
use gswarm_store::survey::readable_seqs;
use gswarm_types::{EventKind, Severity};
use tokio::sync::oneshot;

use super::{Call, Chore, Recorder};

/// What reading everything else showed about one damaged segment.
#[derive(Debug)]
pub(crate) struct Survey {
    segment: u64,
    span: DamageSpan,
    lost: Vec<Lost>,
    /// The file is out of the way.
    is_aside: bool,
}

impl Recorder {
    /// Somebody could not read a sealed segment. The answer comes once its records are named as
    /// missing, or the file turned out to be whole.
    pub(super) fn unreadable(&mut self, segment: u64, reply: oneshot::Sender<()>) {
        let meta = self.reader.catalog().segments().into_iter().find(|m| m.number == segment);
        let Some(meta) = meta else {
            let _gone = reply.send(());
            return;
        };
        let waiting = self.surveys.entry(segment).or_default();
        waiting.push(reply);
        if waiting.len() == 1 {
            self.survey(meta);
        }
    }

    /// Finds out in the background what is lost with a segment.
    pub(super) fn survey(&mut self, meta: SegmentMeta) {
        // Taken before the segments are listed: what is stored later is found or not asked for.
        let intake = self.intake.clone();
        let reader = self.reader.clone();
        let calls = self.calls.clone();
        self.tasks.spawn_blocking(move || {
            let segment = meta.number;
            let span = DamageSpan { from: meta.first_time, to: meta.last_time };
            let is_known = reader.catalog().segments().iter().any(|m| m.number == segment);
            let survey = if is_known && reader.is_whole(&meta) {
                Survey { segment, span, lost: Vec::new(), is_aside: false }
            } else {
                let is_aside = !is_known || reader.set_aside(segment);
                let lost = intake.lost(&readable_seqs(&reader, segment), span);
                Survey { segment, span, lost, is_aside }
            };
            if let Some(calls) = calls.upgrade() {
                let _stopping = calls.blocking_send(Call::Surveyed(survey));
            }
        });
    }

    pub(super) fn surveyed(&mut self, survey: &Survey) {
        if !survey.lost.is_empty() || survey.is_aside {
            self.name_lost(survey);
        }
        for reply in self.surveys.remove(&survey.segment).unwrap_or_default() {
            let _gone = reply.send(());
        }
    }

    fn name_lost(&mut self, survey: &Survey) {
        let mut records = 0;
        for lost in &survey.lost {
            records += lost.missing.last - lost.missing.first + 1;
            self.intake.uncount(lost);
        }
        self.intake.note_damage(survey.span);
        self.quarantined += 1;
        let message = format!(
            "segment {} is damaged: {records} records are lost and named as gaps, the file is in \
             `quarantine`",
            survey.segment
        );
        tracing::error!(segment = survey.segment, records, "sealed segment is damaged");
        self.event(None, EventKind::StoreDamaged, Severity::Error, message);
        // The checkpoint on disk still counts what is lost.
        self.wish(Chore::Checkpoint);
    }

    /// Lines that could not be read were found while their segment was sealed.
    pub(super) fn damaged_lines(&mut self, meta: SegmentMeta, damage: &[Damage]) {
        self.damaged(damage);
        self.survey_lines(meta);
    }

    /// The rest of the segment can be read: only what is nowhere is lost.
    fn survey_lines(&mut self, meta: SegmentMeta) {
        let intake = self.intake.clone();
        let reader = self.reader.clone();
        let calls = self.calls.clone();
        self.tasks.spawn_blocking(move || {
            let span = DamageSpan { from: meta.first_time, to: meta.last_time };
            let lost = intake.lost(&readable_seqs(&reader, u64::MAX), span);
            if let Some(calls) = calls.upgrade() {
                let survey = Survey { segment: meta.number, span, lost, is_aside: false };
                let _stopping = calls.blocking_send(Call::Surveyed(survey));
            }
        });
    }
}
