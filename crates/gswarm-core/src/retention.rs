//! Which segments of the recording may go.

use gswarm_types::Micros;

/// Unpinned data younger than this stays even over budget.
pub const KEEP_MIN: Micros = Micros::from_secs(600);

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionRules {
    pub keep: Micros,
    pub budget_bytes: u64,
}

/// What the decision needs to know of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFacts {
    pub number: u64,
    pub bytes: u64,
    /// Host time of the last receipt in it; `None` for an empty one.
    pub last_receipt: Option<Micros>,
    pub pinned: Pinned,
}

/// How much of a segment sessions keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    Nothing,
    /// Some of its records; the others may go.
    Part,
    /// All that is in it.
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    Expired,
    OverBudget,
}

impl RemovalReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::OverBudget => "over_budget",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    pub number: u64,
    pub reason: RemovalReason,
    /// All of it was received by then, on the clock as it is now; `None` for an empty one.
    pub received_by: Option<Micros>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    pub remove: Vec<Removal>,
    /// Segments to cut down to what sessions keep of them.
    pub trim: Vec<Removal>,
    /// What stays is more than the budget.
    pub over_budget: bool,
    pub bytes_kept: u64,
    pub bytes_pinned: u64,
}

impl RetentionRules {
    /// Closed segments, oldest first. Pinned ones stay whatever the budget says.
    pub fn plan(&self, segments: &[SegmentFacts], now: Micros) -> RetentionPlan {
        let mut plan = RetentionPlan {
            bytes_kept: segments.iter().map(|segment| segment.bytes).sum(),
            bytes_pinned: segments
                .iter()
                .filter(|segment| segment.pinned != Pinned::Nothing)
                .map(|segment| segment.bytes)
                .sum(),
            ..RetentionPlan::default()
        };
        let dated = received_by(segments, now);
        // What nobody needs goes first.
        let free = dated.iter().filter(|(segment, _)| segment.pinned == Pinned::Nothing);
        let part = dated.iter().filter(|(segment, _)| segment.pinned == Pinned::Part);
        for (segment, received_by) in free.chain(part).copied() {
            let age = received_by.map_or(self.keep, |last| now - last);
            let reason = if age >= self.keep {
                RemovalReason::Expired
            } else if plan.bytes_kept > self.budget_bytes && age >= KEEP_MIN {
                RemovalReason::OverBudget
            } else {
                continue;
            };
            let removal = Removal { number: segment.number, reason, received_by };
            if segment.pinned == Pinned::Part {
                plan.trim.push(removal);
            } else {
                plan.bytes_kept -= segment.bytes;
                plan.remove.push(removal);
            }
        }
        plan.over_budget = plan.bytes_kept > self.budget_bytes;
        plan
    }
}

/// Segments follow each other: none was received later than the ones after it, nor than now. Stamps
/// of a clock that was ahead, perhaps by years, and was set back would otherwise keep theirs for as
/// long.
fn received_by(segments: &[SegmentFacts], now: Micros) -> Vec<(&SegmentFacts, Option<Micros>)> {
    let mut latest = now;
    let mut dated: Vec<_> = segments
        .iter()
        .rev()
        .map(|segment| {
            latest = segment.last_receipt.map_or(latest, |last| last.min(latest));
            (segment, segment.last_receipt.map(|_| latest))
        })
        .collect();
    dated.reverse();
    dated
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments as `bytes@age_seconds`, `*` for pinned, `/` for partly; keeps 1 h within `budget`.
    #[track_caller]
    fn check(budget: u64, segments: &str, expected: &str) {
        let now = Micros::from_secs(100_000);
        let facts: Vec<SegmentFacts> = segments
            .split(' ')
            .enumerate()
            .map(|(number, text)| {
                let pinned = match text.chars().last() {
                    Some('*') => Pinned::Whole,
                    Some('/') => Pinned::Part,
                    _ => Pinned::Nothing,
                };
                let (bytes, age) = text.trim_end_matches(['*', '/']).split_once('@').unwrap();
                let last_receipt = Some(now - Micros::from_secs(age.parse().unwrap()));
                let bytes = bytes.parse().unwrap();
                SegmentFacts { number: number as u64, bytes, last_receipt, pinned }
            })
            .collect();
        let rules = RetentionRules { keep: Micros::from_secs(3_600), budget_bytes: budget };
        let plan = rules.plan(&facts, now);
        let mut shown: Vec<String> =
            plan.remove.iter().map(|r| format!("{}:{}", r.number, r.reason.as_str())).collect();
        shown.extend(plan.trim.iter().map(|r| format!("{}:cut_{}", r.number, r.reason.as_str())));
        if plan.over_budget {
            shown.push("over".to_owned());
        }
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn age_then_budget_never_pins() {
        check(100, "10@4000 10@3000 10@100", "0:expired");
        check(25, "10@3000 10@2000 10@1000", "0:over_budget");
        check(5, "10@3000 10@500", "0:over_budget over");
        check(5, "10@9000* 10@8000", "1:expired over");
        check(15, "10@3000* 10@2000 10@1000", "1:over_budget 2:over_budget");
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_nothing_for_longer() {
        check(100, "10@-90000 10@4000 10@100", "0:expired 1:expired");
        check(100, "10@-90000 10@3000 10@100", "");
        check(25, "10@-90000 10@-80000 10@700", "0:over_budget");
        check(5, "10@-90000", "over");
    }

    #[test]
    fn what_no_session_needs_of_a_segment_goes_too() {
        check(100, "10@4000/ 10@3000/", "0:cut_expired");
        check(15, "10@3000/ 10@2000", "1:over_budget");
        check(5, "10@3000/ 10@2000", "1:over_budget 0:cut_over_budget over");
    }
}
