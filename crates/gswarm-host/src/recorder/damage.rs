//! Files of the recording that turn out to be damaged: set aside, and what they held is named.

use gswarm_core::{DamageSpan, Lost};
use gswarm_store::catalog::SegmentMeta;
use gswarm_store::log::Damage;
use gswarm_store::survey::readable_seqs;
use gswarm_types::{EventKind, Severity};
use tokio::sync::oneshot;

use super::{Call, Chore, Recorder};

/// What is wrong with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Somebody could not read it, or it is not what was written.
    Unreadable,
    /// It is no longer there, and retention did not take it.
    Missing,
    /// Some of its lines could not be read; they are set aside and the rest is kept.
    Lines,
}

/// What reading everything there is showed about a segment.
#[derive(Debug)]
pub(crate) struct Survey {
    segment: u64,
    fault: Fault,
    span: DamageSpan,
    /// `None` when the segment turned out to be whole, or to be known as damaged.
    lost: Option<Vec<Lost>>,
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
            self.survey(&meta, Fault::Unreadable);
        }
    }

    /// Finds out in the background what is lost with a segment.
    pub(super) fn survey(&mut self, meta: &SegmentMeta, fault: Fault) {
        // Taken before the segments are listed: what is stored later is found or not asked for.
        let intake = self.intake.clone();
        let reader = self.reader.clone();
        let calls = self.calls.clone();
        let meta = meta.clone();
        self.tasks.spawn_blocking(move || {
            let segment = meta.number;
            let span = DamageSpan { from: meta.first_time, to: meta.last_time };
            let is_whole = fault == Fault::Unreadable && reader.is_whole(&meta);
            // Whoever reads it now keeps it there; the next look sets it aside.
            let stays = fault == Fault::Unreadable && (is_whole || !reader.set_aside(segment));
            let but = (fault != Fault::Lines).then_some(segment);
            let lost = (!is_whole).then(|| intake.lost(&readable_seqs(&reader, but), span));
            let lost = lost.filter(|lost| !(stays && lost.is_empty()));
            if let Some(calls) = calls.upgrade() {
                let survey = Survey { segment, fault, span, lost };
                let _stopping = calls.blocking_send(Call::Surveyed(survey));
            }
        });
    }

    pub(super) fn surveyed(&mut self, survey: &Survey) {
        if let Some(lost) = &survey.lost {
            self.name_lost(survey, lost);
        }
        for reply in self.surveys.remove(&survey.segment).unwrap_or_default() {
            let _gone = reply.send(());
        }
    }

    fn name_lost(&mut self, survey: &Survey, lost: &[Lost]) {
        let mut records = 0;
        for lost in lost {
            records += lost.missing.last - lost.missing.first + 1;
            self.intake.uncount(lost);
        }
        self.intake.note_damage(survey.span);
        let segment = survey.segment;
        let found = match survey.fault {
            Fault::Unreadable => "is damaged and goes to `quarantine`",
            Fault::Missing => "is gone",
            Fault::Lines => "had damaged lines",
        };
        tracing::error!(segment, records, fault = ?survey.fault, "records are lost");
        if survey.fault != Fault::Lines {
            // Damaged lines were counted one by one.
            self.quarantined += 1;
        }
        let message =
            format!("segment {segment} {found}: {records} records are lost and named as gaps");
        self.event(None, EventKind::StoreDamaged, Severity::Error, message);
        // The checkpoint on disk still counts what is lost.
        self.wish(Chore::Checkpoint);
    }

    /// Lines that could not be read were found while their segment was sealed.
    pub(super) fn damaged_lines(&mut self, meta: &SegmentMeta, damage: &[Damage]) {
        self.damaged(damage);
        self.survey(meta, Fault::Lines);
    }
}
