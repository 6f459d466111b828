//! Which records are new, which time they get, and what is missing.

use std::collections::BTreeMap;

use gswarm_types::{Body, GapReason, Incarnation, Micros, NodeId, Record, SpoolLoss, TimeQuality};
use serde::{Deserialize, Serialize};

use crate::intervals::{IntervalSet, Missing};

/// How long the stored intervals of an ended incarnation are remembered.
const FORGET_AFTER: Micros = Micros::from_secs(90 * 86_400);
/// Reasons an agent may leave per incarnation; later ones show as unknown.
const LOSSES_MAX: usize = 1_024;
/// Damaged files whose time is remembered; holes of later ones have their other reason.
const DAMAGE_MAX: usize = 1_024;

/// One run of one agent.
pub type SourceKey = (NodeId, Incarnation);

/// What is known of the records of one incarnation. Outlives the records themselves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Source {
    stored: IntervalSet,
    #[serde(skip)]
    pending: IntervalSet,
    /// Host time of the newest record: times do not run backwards.
    last_time: Micros,
    #[serde(skip)]
    pending_time: Option<Micros>,
    last: Option<LastStored>,
    #[serde(skip)]
    pending_last: Option<LastStored>,
    /// The agent stopped cleanly with this seq.
    ended: Option<u64>,
    /// The agent's spool holds nothing below this.
    oldest_held: u64,
    /// The highest seq the agent is known to have minted.
    minted: u64,
    /// In the agent's last `Hello`, as the running or as a spooled incarnation.
    listed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    losses: Vec<SpoolLoss>,
    /// Host time when the agent last listed it.
    listed_at: Micros,
}

/// The newest stored record, which agent and host must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStored {
    pub seq: u64,
    pub crc: u32,
}

/// What an agent says about one incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    pub incarnation: Incarnation,
    pub oldest_held: u64,
    pub last: u64,
}

/// Node clock to host clock, for records of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockOffset {
    /// Host time minus the node's boot time.
    Measured(Micros),
    /// Another boot: host time minus the node's wall clock.
    Wall(Micros),
    /// No clock at all: the time of receipt.
    Receipt,
}

/// Whether a record is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Store {
        time: Micros,
        quality: TimeQuality,
    },
    /// Stored already, or in the batch that is being committed.
    Duplicate,
}

/// Seqs that are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    pub incarnation: Incarnation,
    pub first: u64,
    /// `None` where nobody knows how many there were, or whether there were any.
    pub last: Option<u64>,
    pub reason: GapReason,
    /// False while the node may still deliver it.
    pub is_final: bool,
    pub from: Option<Micros>,
    pub to: Option<Micros>,
}

impl Hole {
    pub fn records(&self) -> Option<u64> {
        self.last.map(|last| last.saturating_sub(self.first).saturating_add(1))
    }
}

/// All sources. Admitted records count only after `commit`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Intake {
    #[serde(with = "as_list")]
    sources: BTreeMap<SourceKey, Source>,
    #[serde(skip)]
    touched: Vec<SourceKey>,
    /// Times of which the host itself lost records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    damage: Vec<DamageSpan>,
}

/// A time of which a file of the host was damaged; `None` where the end is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageSpan {
    pub from: Option<Micros>,
    pub to: Option<Micros>,
}

impl DamageSpan {
    fn touches(&self, from: Option<Micros>, to: Option<Micros>) -> bool {
        let ends_before = |end: Option<Micros>, start: Option<Micros>| {
            end.zip(start).is_some_and(|(end, start)| end < start)
        };
        !ends_before(self.to, from) && !ends_before(to, self.from)
    }
}

/// Stored records that can no longer be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub source: SourceKey,
    pub missing: Missing,
}

impl Intake {
    /// Takes note of what an agent holds; incarnations of the node that it does not list are over.
    pub fn list(&mut self, node: NodeId, listed: &[Listed], now: Micros) {
        for (_, source) in self.sources.range_mut(range_of(node)) {
            source.listed = false;
        }
        for item in listed {
            let source = self.sources.entry((node, item.incarnation)).or_default();
            source.listed = true;
            source.listed_at = now;
            source.oldest_held = source.oldest_held.max(item.oldest_held);
            source.minted = source.minted.max(item.last);
        }
    }

    /// Decides on one record and remembers the decision for the batch.
    pub fn admit(
        &mut self,
        node: NodeId,
        record: &Record,
        crc: u32,
        offset: ClockOffset,
        receipt: Micros,
    ) -> Admission {
        let key = (node, record.incarnation);
        let source = self.sources.entry(key).or_default();
        if source.stored.contains(record.seq) || source.pending.contains(record.seq) {
            return Admission::Duplicate;
        }
        let (time, quality) = time_of(record, offset, receipt);
        // A record that fills a hole keeps its own time; only the newest may not run backwards.
        let newest = source
            .stored
            .last()
            .map_or(0, |i| i.last)
            .max(source.pending.last().map_or(0, |i| i.last));
        let last_time = source.pending_time.map_or(source.last_time, |t| t.max(source.last_time));
        let time = if record.seq > newest { time.max(last_time) } else { time };
        let time = time.min(receipt);
        source.pending_time = Some(last_time.max(time));
        if source.pending.is_empty() {
            self.touched.push(key);
        }
        source.pending.insert(record.seq, time);
        source.minted = source.minted.max(record.seq);
        if source.pending_last.or(source.last).is_none_or(|last| record.seq > last.seq) {
            source.pending_last = Some(LastStored { seq: record.seq, crc });
        }
        Admission::Store { time, quality }
    }

    /// Takes up a record whose time is decided but which is not on stable storage yet.
    pub fn admit_again(&mut self, node: NodeId, record: &Record, crc: u32, time: Micros) {
        // The time is in the past: receipt is no limit to it.
        let offset = ClockOffset::Measured(time - record.mono);
        self.admit(node, record, crc, offset, Micros(i64::MAX));
    }

    /// The batch is on stable storage.
    pub fn commit(&mut self) {
        for key in std::mem::take(&mut self.touched) {
            if let Some(source) = self.sources.get_mut(&key) {
                let pending = std::mem::take(&mut source.pending);
                source.stored.merge(&pending);
                source.last = source.pending_last.take().or(source.last);
                source.last_time = source.pending_time.take().unwrap_or(source.last_time);
            }
        }
    }

    /// The batch is not: everything admitted since the last commit is forgotten.
    pub fn abort(&mut self) {
        for key in std::mem::take(&mut self.touched) {
            if let Some(source) = self.sources.get_mut(&key) {
                source.pending = IntervalSet::default();
                source.pending_last = None;
                source.pending_time = None;
            }
        }
    }

    /// Learns a record that is stored: at commit for its meaning, at recovery for everything.
    pub fn note_body(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        seq: u64,
        body: &Body,
        time: Micros,
    ) {
        match body {
            Body::End => {
                self.sources.entry((node, incarnation)).or_default().ended = Some(seq);
            },
            Body::Loss(loss) => {
                let source = self.sources.entry((node, loss.incarnation)).or_default();
                // It may have nothing else that says when it was heard of.
                source.listed_at = source.listed_at.max(time);
                if source.losses.len() < LOSSES_MAX && !source.losses.contains(loss) {
                    source.losses.push(*loss);
                    if !loss.is_open() {
                        source.minted = source.minted.max(loss.last);
                    }
                }
            },
            _ => {},
        }
    }

    /// Learns a stored record while the journal is read back.
    pub fn recover(&mut self, node: NodeId, record: &Record, crc: u32, time: Micros) {
        let source = self.sources.entry((node, record.incarnation)).or_default();
        source.stored.insert(record.seq, time);
        source.last_time = source.last_time.max(time);
        source.minted = source.minted.max(record.seq);
        if source.last.is_none_or(|last| record.seq > last.seq) {
            source.last = Some(LastStored { seq: record.seq, crc });
        }
        self.note_body(node, record.incarnation, record.seq, &record.body, time);
    }

    pub fn source(&self, node: NodeId, incarnation: Incarnation) -> Option<&Source> {
        self.sources.get(&(node, incarnation))
    }

    pub fn sources_of(&self, node: NodeId) -> impl Iterator<Item = (Incarnation, &Source)> {
        self.sources.range(range_of(node)).map(|((_, incarnation), source)| (*incarnation, source))
    }

    /// Everything that is missing of a node.
    pub fn holes(&self, node: NodeId) -> Vec<Hole> {
        let runs: Vec<(Incarnation, Run)> =
            self.sources_of(node).filter_map(|(i, source)| Some((i, source.run()?))).collect();
        let mut out = Vec::new();
        for (incarnation, source) in self.sources_of(node) {
            for mut hole in source.holes(incarnation) {
                bound(&mut hole, source, &runs);
                if hole.is_final && hole.reason.is_guess() && self.is_damaged(hole.from, hole.to) {
                    hole.reason = GapReason::StoreDamaged;
                }
                out.push(hole);
            }
        }
        out
    }

    fn is_damaged(&self, from: Option<Micros>, to: Option<Micros>) -> bool {
        self.damage.iter().any(|span| span.touches(from, to))
    }

    /// Records of this time may be gone with a damaged file: holes there have that reason.
    pub fn note_damage(&mut self, span: DamageSpan) {
        if self.damage.len() < DAMAGE_MAX && !self.damage.contains(&span) {
            self.damage.push(span);
        }
    }

    /// Stored records of the time that are not among those found by reading everything there is.
    pub fn lost(&self, found: &BTreeMap<SourceKey, IntervalSet>, span: DamageSpan) -> Vec<Lost> {
        let nothing = IntervalSet::default();
        let mut lost = Vec::new();
        for (source, known) in &self.sources {
            let missing = known.stored.missing_in(found.get(source).unwrap_or(&nothing));
            let of_the_time = missing.into_iter().filter(|m| span.touches(m.before, m.after));
            lost.extend(of_the_time.map(|missing| Lost { source: *source, missing }));
        }
        lost
    }

    /// What was stored is no longer: it shows as a hole, and would be taken again.
    pub fn uncount(&mut self, lost: &Lost) {
        if let Some(source) = self.sources.get_mut(&lost.source) {
            let Missing { first, last, before, after } = lost.missing;
            source.stored.remove(first, last, before, after);
        }
    }

    /// Forgets incarnations that are over and were not listed for a long time.
    pub fn forget_old(&mut self, now: Micros) -> usize {
        let before = self.sources.len();
        self.sources.retain(|_, source| {
            source.listed || now - source.listed_at.max(source.last_time) < FORGET_AFTER
        });
        before - self.sources.len()
    }
}

/// When an incarnation began and ended, as far as it is stored.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: Micros,
    last: Micros,
}

/// A hole at the end of one run lies before the next run, one at the beginning after the run before:
/// without these bounds it would show in every session of the node.
fn bound(hole: &mut Hole, source: &Source, runs: &[(Incarnation, Run)]) {
    let others = || runs.iter().filter(|(i, _)| *i != hole.incarnation).map(|(_, run)| run);
    // An agent lists only what it has minted by then.
    let listed_at = Some(source.listed_at).filter(|at| *at > Micros::ZERO);
    if hole.to.is_none() && hole.is_final {
        // Of a run that left nothing it is not known which run was the next.
        let from = hole.from;
        let next = others().map(|run| run.first).filter(|t| from.is_some_and(|f| *t >= f));
        let bounds = next.chain(listed_at.filter(|t| hole.from.is_none_or(|from| *t >= from)));
        hole.to = bounds.min();
    }
    if hole.from.is_none() {
        hole.from =
            others().map(|run| run.last).filter(|t| hole.to.is_some_and(|to| *t <= to)).max();
    }
}

impl Source {
    pub fn stored(&self) -> &IntervalSet {
        &self.stored
    }

    pub fn last_stored(&self) -> Option<LastStored> {
        self.last
    }

    pub fn is_listed(&self) -> bool {
        self.listed
    }

    pub fn ended(&self) -> Option<u64> {
        self.ended
    }

    /// True when every seq up to this one is stored or will never come.
    pub fn is_settled(&self, seq: u64, incarnation: Incarnation) -> bool {
        self.holes(incarnation).iter().all(|hole| hole.first > seq || hole.is_final)
            && (seq == 0 || self.minted >= seq || self.stored.contains(seq))
    }

    fn run(&self) -> Option<Run> {
        let (first, last) = (self.stored.first()?, self.stored.last()?);
        Some(Run { first: first.first_time, last: last.last_time })
    }

    fn holes(&self, incarnation: Incarnation) -> Vec<Hole> {
        let holes = self.stored.holes(self.minted);
        let mut out = Vec::with_capacity(holes.len());
        for (first, last, from, to) in holes {
            // What the spool has let go of can never come; the part above may.
            let gone_until = if self.listed { self.oldest_held.saturating_sub(1) } else { last };
            if first <= gone_until {
                let end = last.min(gone_until);
                // What waits for the disk is here, though it does not count yet.
                let is_final = !self.pending.touches(first, end);
                let reason = if is_final { self.reason(first, end) } else { GapReason::Unknown };
                let last = Some(end);
                out.push(Hole { incarnation, first, last, reason, is_final, from, to });
            }
            if gone_until < last {
                let first = first.max(gone_until + 1);
                let reason = GapReason::Unknown;
                let last = Some(last);
                out.push(Hole { incarnation, first, last, reason, is_final: false, from, to });
            }
        }
        out.extend(self.open_end(incarnation));
        out
    }

    /// What a node that lost power had taken after everything that is known of.
    fn open_end(&self, incarnation: Incarnation) -> Option<Hole> {
        let loss = self.losses.iter().find(|loss| loss.is_open())?;
        Some(Hole {
            incarnation,
            first: loss.first.max(self.minted + 1),
            last: None,
            reason: loss.reason,
            is_final: true,
            from: self.stored.last().map(|interval| interval.last_time),
            to: None,
        })
    }

    fn reason(&self, first: u64, last: u64) -> GapReason {
        let given = self.losses.iter().find(|loss| loss.first <= last && loss.last >= first);
        match given {
            Some(loss) => loss.reason,
            // The agent let it go without a reason: it had delivered it, but not to this host.
            None if self.listed || self.ended.is_some() => GapReason::NotOnThisHost,
            None => GapReason::NodeCrash,
        }
    }
}

fn time_of(record: &Record, offset: ClockOffset, receipt: Micros) -> (Micros, TimeQuality) {
    match offset {
        ClockOffset::Measured(offset) => (record.mono + offset, TimeQuality::Measured),
        ClockOffset::Wall(offset) => (record.wall + offset, TimeQuality::Wall),
        ClockOffset::Receipt => (receipt, TimeQuality::Receipt),
    }
}

fn range_of(node: NodeId) -> std::ops::RangeInclusive<SourceKey> {
    (node, Incarnation(0))..=(node, Incarnation(u64::MAX))
}

mod as_list {
    use std::collections::BTreeMap;

    use gswarm_types::{Incarnation, NodeId};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Source, SourceKey};

    #[derive(Serialize)]
    struct RowRef<'a> {
        node: &'a NodeId,
        incarnation: &'a Incarnation,
        source: &'a Source,
    }

    #[derive(Deserialize)]
    struct Row {
        node: NodeId,
        incarnation: Incarnation,
        source: Source,
    }

    pub(super) fn serialize<S: Serializer>(
        sources: &BTreeMap<SourceKey, Source>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(sources.iter().map(|((node, incarnation), source)| RowRef {
            node,
            incarnation,
            source,
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<SourceKey, Source>, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        Ok(rows.into_iter().map(|row| ((row.node, row.incarnation), row.source)).collect())
    }
}

#[cfg(test)]
mod tests;
