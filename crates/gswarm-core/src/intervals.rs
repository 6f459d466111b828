//! The set of stored seqs of one incarnation, as intervals with the host times at their ends.

use gswarm_types::Micros;
use serde::{Deserialize, Serialize};

/// A run of stored seqs without a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    #[serde(rename = "f")]
    pub first: u64,
    #[serde(rename = "l")]
    pub last: u64,
    #[serde(rename = "ft")]
    pub first_time: Micros,
    #[serde(rename = "lt")]
    pub last_time: Micros,
}

/// Seqs that one set has and another lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    pub first: u64,
    pub last: u64,
    /// Host time of the last seq before it that the other set has.
    pub before: Option<Micros>,
    /// Host time of the first seq after it that the other set has.
    pub after: Option<Micros>,
}

/// Intervals in order, never touching each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IntervalSet {
    intervals: Vec<Interval>,
}

impl IntervalSet {
    pub fn contains(&self, seq: u64) -> bool {
        let after = self.intervals.partition_point(|interval| interval.first <= seq);
        after > 0 && self.intervals.get(after - 1).is_some_and(|interval| seq <= interval.last)
    }

    /// True when any of these seqs is there.
    pub fn touches(&self, first: u64, last: u64) -> bool {
        let at = self.intervals.partition_point(|interval| interval.last < first);
        self.intervals.get(at).is_some_and(|interval| interval.first <= last)
    }

    /// Adds a seq; false when it was there.
    pub fn insert(&mut self, seq: u64, time: Micros) -> bool {
        if self.contains(seq) {
            return false;
        }
        self.add(Interval { first: seq, last: seq, first_time: time, last_time: time });
        true
    }

    /// Adds everything of the other set.
    pub fn merge(&mut self, other: &Self) {
        for interval in &other.intervals {
            self.add(*interval);
        }
    }

    fn add(&mut self, new: Interval) {
        // Everything that overlaps or touches the new interval becomes one with it.
        let from = self.intervals.partition_point(|old| old.last.saturating_add(1) < new.first);
        let to = self.intervals.partition_point(|old| old.first <= new.last.saturating_add(1));
        let mut merged = new;
        for old in self.intervals.get(from..to).unwrap_or_default() {
            if old.first < merged.first {
                merged.first = old.first;
                merged.first_time = old.first_time;
            }
            if old.last > merged.last {
                merged.last = old.last;
                merged.last_time = old.last_time;
            }
        }
        self.intervals.splice(from..to, [merged]);
    }

    /// Takes seqs out. The times are those of the nearest seqs that stay.
    pub fn remove(&mut self, first: u64, last: u64, before: Option<Micros>, after: Option<Micros>) {
        let mut left = Vec::with_capacity(self.intervals.len() + 1);
        for old in std::mem::take(&mut self.intervals) {
            if old.last < first || old.first > last {
                left.push(old);
                continue;
            }
            if old.first < first {
                let last_time = before.unwrap_or(old.first_time);
                left.push(Interval { last: first - 1, last_time, ..old });
            }
            if old.last > last {
                let first_time = after.unwrap_or(old.last_time);
                left.push(Interval { first: last + 1, first_time, ..old });
            }
        }
        self.intervals = left;
    }

    /// What is in this set and not in the other, with the times of the other around it.
    pub fn missing_in(&self, other: &Self) -> Vec<Missing> {
        let mut out = Vec::new();
        for interval in &self.intervals {
            let mut next = interval.first;
            let from = other.intervals.partition_point(|have| have.last < interval.first);
            let mut before = from
                .checked_sub(1)
                .and_then(|at| other.intervals.get(at))
                .map(|have| have.last_time);
            for have in other.intervals.iter().skip(from) {
                if have.first > interval.last {
                    break;
                }
                if have.first > next {
                    let after = Some(have.first_time);
                    out.push(Missing { first: next, last: have.first - 1, before, after });
                }
                next = have.last.saturating_add(1);
                before = Some(have.last_time);
            }
            if next <= interval.last {
                let place = other.intervals.partition_point(|have| have.first <= interval.last);
                let after = other.intervals.get(place).map(|have| have.first_time);
                out.push(Missing { first: next, last: interval.last, before, after });
            }
        }
        out
    }

    pub fn first(&self) -> Option<&Interval> {
        self.intervals.first()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    pub fn last(&self) -> Option<&Interval> {
        self.intervals.last()
    }

    /// How many seqs are in the set.
    pub fn count(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.last - interval.first + 1).sum()
    }

    /// The missing seqs of `1..=last`, with the host times around them where known.
    pub fn holes(&self, last: u64) -> Vec<(u64, u64, Option<Micros>, Option<Micros>)> {
        let mut holes = Vec::new();
        let mut next = 1;
        let mut before = None;
        for interval in &self.intervals {
            if interval.first > next {
                holes.push((next, interval.first - 1, before, Some(interval.first_time)));
            }
            next = interval.last.saturating_add(1);
            before = Some(interval.last_time);
        }
        if next <= last {
            holes.push((next, last, before, None));
        }
        holes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(seqs: &[u64], expected: &str) {
        let mut set = IntervalSet::default();
        for seq in seqs {
            set.insert(*seq, Micros(0));
        }
        let text: Vec<String> = set.iter().map(|i| format!("{}-{}", i.first, i.last)).collect();
        assert_eq!(text.join(" "), expected);
    }

    #[test]
    fn runs_join() {
        check(&[1, 2, 3], "1-3");
        check(&[1, 3], "1-1 3-3");
        check(&[1, 3, 2], "1-3");
        check(&[5, 1, 9, 3, 2, 4], "1-5 9-9");
        check(&[u64::MAX, 1], &format!("1-1 {0}-{0}", u64::MAX));
    }

    #[test]
    fn holes_have_times() {
        let mut set = IntervalSet::default();
        for seq in [2, 3, 7] {
            set.insert(seq, Micros(i64::try_from(seq).unwrap() * 10));
        }
        assert_eq!(
            set.holes(9),
            vec![
                (1, 1, None, Some(Micros(20))),
                (4, 6, Some(Micros(30)), Some(Micros(70))),
                (8, 9, Some(Micros(70)), None),
            ]
        );
    }

    #[test]
    fn what_another_set_lacks() {
        let set = |seqs: &[u64]| {
            let mut set = IntervalSet::default();
            for seq in seqs {
                set.insert(*seq, Micros(i64::try_from(*seq).unwrap() * 10));
            }
            set
        };
        let missing = |all: &[u64], found: &[u64]| {
            let list = set(all).missing_in(&set(found));
            let time = |t: Option<Micros>| t.map_or_else(|| "-".to_owned(), |t| t.0.to_string());
            let text: Vec<String> = list
                .iter()
                .map(|m| format!("{}-{} {}..{}", m.first, m.last, time(m.before), time(m.after)))
                .collect();
            text.join(", ")
        };
        assert_eq!(missing(&[1, 2, 3], &[1, 2, 3]), "");
        assert_eq!(missing(&[1, 2, 3], &[]), "1-3 -..-");
        assert_eq!(missing(&[1, 2, 3, 4, 5], &[1, 4]), "2-3 10..40, 5-5 40..-");
        assert_eq!(missing(&[1, 2, 6, 7], &[2, 7]), "1-1 -..20, 6-6 20..70");
        assert_eq!(missing(&[1, 2, 6, 7, 9], &[9]), "1-2 -..90, 6-7 -..90");
    }

    proptest! {
        #[test]
        fn removal_is_exact(
            seqs in proptest::collection::vec(1_u64..40, 0..40), first in 1_u64..40, len in 0_u64..20,
        ) {
            let mut set = IntervalSet::default();
            let mut model = BTreeSet::new();
            for seq in seqs {
                set.insert(seq, Micros(0));
                model.insert(seq);
            }
            let whole = set.clone();
            set.remove(first, first + len, None, None);
            model.retain(|seq| *seq < first || *seq > first + len);
            for seq in 0..62 {
                prop_assert_eq!(set.contains(seq), model.contains(&seq));
            }
            let gone: u64 = whole.missing_in(&set).iter().map(|m| m.last - m.first + 1).sum();
            prop_assert_eq!(gone, whole.count() - set.count());
        }

        #[test]
        fn behaves_like_a_set(seqs in proptest::collection::vec(1_u64..60, 0..80), cut in 0_usize..80) {
            let cut = cut.min(seqs.len());
            let mut model = BTreeSet::new();
            let mut set = IntervalSet::default();
            let mut other = IntervalSet::default();
            for (at, seq) in seqs.iter().enumerate() {
                if at < cut {
                    prop_assert_eq!(set.insert(*seq, Micros(0)), model.insert(*seq));
                } else {
                    other.insert(*seq, Micros(0));
                    model.insert(*seq);
                }
            }
            set.merge(&other);
            for seq in 0..62 {
                prop_assert_eq!(set.contains(seq), model.contains(&seq));
            }
            prop_assert_eq!(set.count(), model.len() as u64);
            let missing: u64 = set.holes(60).iter().map(|(a, b, _, _)| b - a + 1).sum();
            prop_assert_eq!(missing, 60 - model.len() as u64);
        }
    }
}
