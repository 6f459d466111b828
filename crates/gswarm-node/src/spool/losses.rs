//! Reasons for records that the host will never get, gathered until they can be written.

use gswarm_types::{GapReason, Incarnation, SpoolLoss};

use super::index::is_touching;

/// Separate ranges held in memory; beyond it neighbours become one. A range that is too wide does
/// no harm: hosts look reasons up only for records they miss.
const RANGES_MAX: usize = 256;

/// Ranges in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Losses {
    ranges: Vec<SpoolLoss>,
}

impl Losses {
    pub(super) fn add(&mut self, loss: SpoolLoss) {
        let touching = self.ranges.iter_mut().rev().find(|range| is_touching(range, &loss));
        if let Some(range) = touching {
            widen(range, &loss);
            return;
        }
        if self.ranges.len() >= RANGES_MAX
            && let Some(range) =
                self.ranges.iter_mut().rev().find(|range| is_same_kind(range, &loss))
        {
            widen(range, &loss);
            return;
        }
        self.ranges.push(loss);
    }

    pub(super) fn add_seq(&mut self, incarnation: Incarnation, seq: u64, reason: GapReason) {
        self.add(SpoolLoss { incarnation, first: seq, last: seq, reason });
    }

    pub(super) fn take(&mut self) -> Vec<SpoolLoss> {
        std::mem::take(&mut self.ranges)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True when something other than a full spool lost records: worth a record of its own at once.
    pub(super) fn has_errors(&self) -> bool {
        self.ranges.iter().any(|range| range.reason != GapReason::SpoolOverflow)
    }
}

fn is_same_kind(a: &SpoolLoss, b: &SpoolLoss) -> bool {
    a.incarnation == b.incarnation && a.reason == b.reason
}

fn widen(range: &mut SpoolLoss, by: &SpoolLoss) {
    range.first = range.first.min(by.first);
    range.last = range.last.max(by.last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(add: &[(u64, u64, GapReason)], expected: &[(u64, u64)]) {
        let mut losses = Losses::default();
        for (first, last, reason) in add.iter().copied() {
            losses.add(SpoolLoss { incarnation: Incarnation(1), first, last, reason });
        }
        let got: Vec<(u64, u64)> = losses.take().iter().map(|r| (r.first, r.last)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn neighbours_become_one() {
        use GapReason::{SpoolError, SpoolOverflow};
        check(&[(1, 1, SpoolOverflow), (2, 2, SpoolOverflow), (3, 9, SpoolOverflow)], &[(1, 9)]);
        check(&[(5, 9, SpoolOverflow), (1, 4, SpoolOverflow)], &[(1, 9)]);
        check(&[(1, 1, SpoolOverflow), (3, 3, SpoolOverflow)], &[(1, 1), (3, 3)]);
        check(&[(1, 1, SpoolOverflow), (2, 2, SpoolError)], &[(1, 1), (2, 2)]);
        check(&[(1, u64::MAX, SpoolError), (7, 7, SpoolError)], &[(1, u64::MAX)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut losses = Losses::default();
        for seq in 0..10_000 {
            losses.add_seq(Incarnation(1), seq * 2, GapReason::SpoolError);
        }
        let ranges = losses.take();
        assert_eq!(ranges.len(), RANGES_MAX);
        assert!(ranges.iter().any(|range| range.last == 19_998));
    }
}
