//! Which records the spool holds and where; the records themselves stay on disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gswarm_store::log::Position;
use gswarm_types::{Incarnation, Micros, SpoolLoss, TableDigest};

/// One record on disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Place in the order of the spool, which is the order of sending.
    pub(super) ordinal: u64,
    pub(super) incarnation: Incarnation,
    pub(super) seq: u64,
    pub(super) mono: Micros,
    pub(super) at: Position,
    /// Length of the line without its newline.
    pub(super) len: u32,
    pub(super) crc: u32,
    /// The table that the record's values belong to.
    pub(super) table: Option<TableDigest>,
}

/// What is held of one incarnation, as hosts are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldRange {
    pub(crate) incarnation: Incarnation,
    pub(crate) boot_id: String,
    pub(crate) oldest_held: u64,
    pub(crate) last: u64,
}

/// The records of one incarnation stand together.
#[derive(Debug)]
struct Group {
    incarnation: Incarnation,
    boot_id: String,
    held: usize,
    last: u64,
}

/// One file.
#[derive(Debug, Default)]
struct Segment {
    held: usize,
    bytes: u64,
    tables: Vec<TableDigest>,
    /// Records of it were dropped and no record says so yet.
    unexplained: bool,
    /// Files that lost a table which their records need and which this one carries.
    lends_to: Vec<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    held: VecDeque<Held>,
    groups: VecDeque<Group>,
    segments: BTreeMap<u64, Segment>,
    next_ordinal: u64,
    /// What the held records of lost records say, by ordinal.
    losses: BTreeMap<u64, SpoolLoss>,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Bytes of the files that are still needed.
    pub(super) fn bytes(&self, active: Option<u64>) -> u64 {
        self.segments
            .iter()
            .filter(|(number, segment)| segment.held > 0 || Some(**number) == active)
            .map(|(_, segment)| segment.bytes)
            .sum()
    }

    pub(super) fn next_ordinal(&self) -> u64 {
        self.next_ordinal
    }

    /// The incarnation whose records come next.
    pub(super) fn begin_group(&mut self, incarnation: Incarnation, boot_id: &str) {
        if self.groups.back().is_some_and(|group| group.incarnation == incarnation) {
            return;
        }
        let boot_id = boot_id.to_owned();
        self.groups.push_back(Group { incarnation, boot_id, held: 0, last: 0 });
        self.drop_empty_groups();
    }

    /// A seq of the newest incarnation was minted, whether or not a record of it is held.
    pub(super) fn note_last(&mut self, seq: u64) {
        if let Some(group) = self.groups.back_mut() {
            group.last = group.last.max(seq);
        }
    }

    /// Adds a record of the newest incarnation at the end; its ordinal is set here.
    pub(super) fn push(&mut self, mut held: Held, loss: Option<SpoolLoss>) {
        held.ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        if let Some(loss) = loss {
            self.losses.insert(held.ordinal, loss);
        }
        self.note_last(held.seq);
        if let Some(group) = self.groups.back_mut() {
            debug_assert_eq!(group.incarnation, held.incarnation, "begin_group comes first");
            group.held += 1;
        }
        self.segments.entry(held.at.segment).or_default().held += 1;
        self.held.push_back(held);
    }

    pub(super) fn pop_front(&mut self) -> Option<(Held, Option<SpoolLoss>)> {
        let held = self.held.pop_front()?;
        let loss = self.forget(&held);
        self.drop_empty_groups();
        Some((held, loss))
    }

    pub(super) fn front(&self) -> Option<&Held> {
        self.held.front()
    }

    /// Forgets everything up to the ordinal. Returns how many records that were.
    pub(super) fn free_through(&mut self, ordinal: u64) -> usize {
        let mut freed = 0;
        while self.front().is_some_and(|held| held.ordinal <= ordinal) {
            self.pop_front();
            freed += 1;
        }
        freed
    }

    /// Forgets what the test says. Returns what was forgotten.
    pub(super) fn free_where(&mut self, test: impl Fn(&Held) -> bool) -> Vec<Held> {
        let gone: Vec<Held> = self.held.iter().filter(|held| test(held)).copied().collect();
        if !gone.is_empty() {
            self.held.retain(|held| !test(held));
            for held in &gone {
                self.forget(held);
            }
            self.drop_empty_groups();
        }
        gone
    }

    fn forget(&mut self, held: &Held) -> Option<SpoolLoss> {
        if let Some(segment) = self.segments.get_mut(&held.at.segment) {
            segment.held = segment.held.saturating_sub(1);
        }
        // An incarnation may stand in two groups only if someone copied files about.
        let group = self
            .groups
            .iter_mut()
            .find(|group| group.incarnation == held.incarnation && group.held > 0);
        if let Some(group) = group {
            group.held -= 1;
        }
        self.losses.remove(&held.ordinal)
    }

    fn drop_empty_groups(&mut self) {
        let current = self.groups.len().saturating_sub(1);
        let mut place = 0;
        self.groups.retain(|group| {
            place += 1;
            group.held > 0 || place > current
        });
    }

    /// Records from the ordinal on, in order.
    pub(super) fn from(&self, ordinal: u64) -> impl Iterator<Item = &Held> {
        let start = self.held.partition_point(|held| held.ordinal < ordinal);
        self.held.range(start..)
    }

    /// Records from the newest to the oldest.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Held> {
        self.held.iter().rev()
    }

    /// What is held of each incarnation, the newest one even when nothing of it is held.
    pub(super) fn ranges(&self) -> Vec<HeldRange> {
        let mut start = 0;
        let mut ranges = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let first = self.held.get(start).filter(|_| group.held > 0);
            ranges.push(HeldRange {
                incarnation: group.incarnation,
                boot_id: group.boot_id.clone(),
                oldest_held: first.map_or_else(|| group.last.saturating_add(1), |held| held.seq),
                last: group.last,
            });
            start += group.held;
        }
        ranges
    }

    pub(super) fn grow_segment(&mut self, segment: u64, bytes: u64) {
        self.segments.entry(segment).or_default().bytes += bytes;
    }

    pub(super) fn set_segment_bytes(&mut self, segment: u64, bytes: u64) {
        self.segments.entry(segment).or_default().bytes = bytes;
    }

    pub(super) fn add_table(&mut self, segment: u64, digest: TableDigest) {
        let tables = &mut self.segments.entry(segment).or_default().tables;
        if !tables.contains(&digest) {
            tables.push(digest);
        }
    }

    pub(super) fn has_table(&self, segment: u64, digest: TableDigest) -> bool {
        self.segments.get(&segment).is_some_and(|segment| segment.tables.contains(&digest))
    }

    /// True when some file carries the table.
    pub(super) fn uses_table(&self, digest: TableDigest) -> bool {
        self.segments.values().any(|segment| segment.tables.contains(&digest))
    }

    /// Keeps files for the tables they carry where records of other files lost their own copy.
    pub(super) fn lend_tables(&mut self) {
        let needed = self.held.iter().filter_map(|held| Some((held.at.segment, held.table?)));
        let mut needed: BTreeSet<(u64, TableDigest)> = needed.collect();
        needed.retain(|(segment, digest)| !self.has_table(*segment, *digest));
        for (to, digest) in needed {
            let mut segments = self.segments.values_mut();
            if let Some(lender) = segments.find(|segment| segment.tables.contains(&digest)) {
                lender.lends_to.push(to);
            }
        }
    }

    /// The loss joined with those that held records name already, where they touch.
    pub(super) fn join_named(&self, mut loss: SpoolLoss) -> SpoolLoss {
        // Newest first: it covers the most.
        for named in self.losses.values().rev() {
            if is_touching(named, &loss) {
                loss.first = loss.first.min(named.first);
                loss.last = loss.last.max(named.last);
            }
        }
        loss
    }

    /// True when a held record names the whole loss.
    pub(super) fn is_named(&self, loss: &SpoolLoss) -> bool {
        self.losses.values().rev().any(|named| {
            is_touching(named, loss) && named.first <= loss.first && named.last >= loss.last
        })
    }

    pub(super) fn set_unexplained(&mut self, segment: u64) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.unexplained = true;
        }
    }

    pub(super) fn set_all_explained(&mut self) {
        for segment in self.segments.values_mut() {
            segment.unexplained = false;
        }
    }

    /// Files that could go if the reasons for what they held were written.
    pub(super) fn has_unexplained(&self) -> bool {
        self.segments.values().any(|segment| segment.held == 0 && segment.unexplained)
    }

    /// Files that hold nothing that is still needed.
    pub(super) fn emptied(&self, active: Option<u64>) -> Vec<u64> {
        self.segments
            .iter()
            .filter(|(_, segment)| segment.held == 0 && !segment.unexplained)
            .filter(|(_, segment)| !segment.lends_to.iter().any(|to| self.holds(*to)))
            .filter(|(number, _)| Some(**number) != active)
            .map(|(number, _)| *number)
            .collect()
    }

    fn holds(&self, segment: u64) -> bool {
        self.segments.get(&segment).is_some_and(|segment| segment.held > 0)
    }

    pub(super) fn remove_segment(&mut self, segment: u64) {
        self.segments.remove(&segment);
    }
}

/// Same kind of loss, and nothing between the two.
pub(super) fn is_touching(a: &SpoolLoss, b: &SpoolLoss) -> bool {
    a.incarnation == b.incarnation
        && a.reason == b.reason
        && a.first <= b.last.saturating_add(1)
        && b.first <= a.last.saturating_add(1)
}
