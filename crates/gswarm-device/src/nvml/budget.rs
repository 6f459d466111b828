//! How much time in the driver one GPU may cost.

use gswarm_types::Micros;

/// One part in so many of the time that passes: 2 % of a core.
const SHARE_DIVISOR: i64 = 50;
/// What may be spent at once after a quiet time.
const IN_HAND_MAX: Micros = Micros::from_millis(50);
/// A row is read at least this often, whatever it costs.
const HOLD_MAX: Micros = Micros::from_secs(1);

/// Time is earned as it passes and spent in the driver.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    in_hand: Micros,
    earned_at: Option<Micros>,
    read_at: Option<Micros>,
    is_short: bool,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { in_hand: IN_HAND_MAX, earned_at: None, read_at: None, is_short: false }
    }

    /// Whether the driver may be asked now.
    pub(super) fn allows(&mut self, now: Micros) -> bool {
        let passed = self.earned_at.map_or(Micros::ZERO, |at| (now - at).max(Micros::ZERO));
        self.earned_at = Some(now);
        self.in_hand = (self.in_hand + Micros(passed.0 / SHARE_DIVISOR)).min(IN_HAND_MAX);
        let is_late = self.read_at.is_none_or(|at| now - at >= HOLD_MAX || now < at);
        is_late || self.in_hand > Micros::ZERO
    }

    /// The driver was asked and took this long. True when the budget has run out for the first time
    /// since it was last full.
    pub(super) fn spend(&mut self, now: Micros, took: Micros) -> bool {
        self.read_at = Some(now);
        let was_short = self.is_short;
        // Debts are forgotten: the next row comes after a second at the latest.
        self.in_hand = (self.in_hand - took).max(Micros::ZERO - IN_HAND_MAX);
        if self.in_hand <= Micros::ZERO {
            self.is_short = true;
        } else if self.in_hand > Micros(IN_HAND_MAX.0 / 2) {
            self.is_short = false;
        }
        self.is_short && !was_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks every `period` ms for 10 s, each row taking `row` us: how many rows were read, and how
    /// often it was said that they are too many.
    #[track_caller]
    fn check(period: i64, row: i64, expected: (usize, usize)) {
        let mut budget = Budget::new();
        let (mut rows, mut told) = (0, 0);
        for tick in 0..(10_000 / period) {
            let now = Micros::from_millis(5_000 + tick * period);
            if budget.allows(now) {
                rows += 1;
                told += usize::from(budget.spend(now, Micros(row)));
            }
        }
        assert_eq!((rows, told), expected, "{row} us every {period} ms");
    }

    #[test]
    fn cheap_rows_are_always_read() {
        check(100, 300, (100, 0));
        check(1_000, 300, (10, 0));
        check(1_000, 15_000, (10, 0));
    }

    #[test]
    fn dear_rows_are_read_as_often_as_the_budget_allows() {
        // 10 s earn 200 ms, and 50 ms are in hand at the start.
        check(100, 10_000, (25, 1));
        check(1_000, 100_000, (10, 1));
        check(100, 100_000, (10, 1));
    }
}
