//! A column of numbers as integers that compress well, and back.
//!
//! What compresses is bytes that repeat. A gauge repeats itself, a counter its steps, a clock the steps
//! of its steps: each column of each row group is kept as whichever of the three has the least
//! entropy. Fractions are kept as the bits of the floating-point number.

/// How a column of a row group is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Whole numbers.
    Plain,
    /// What each whole number adds to the one before.
    Steps,
    /// What each step adds to the one before.
    StepsOfSteps,
    /// The bits of floating-point numbers.
    Bits,
}

/// The largest magnitude below which every whole number is exact in a float.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// Numbers that are looked at to choose a mode.
const SAMPLED_MAX: usize = 1_024;

impl Mode {
    pub(super) fn letter(self) -> char {
        match self {
            Self::Plain => 'p',
            Self::Steps => 's',
            Self::StepsOfSteps => 't',
            Self::Bits => 'b',
        }
    }

    pub(super) fn from_letter(letter: char) -> Option<Self> {
        [Self::Plain, Self::Steps, Self::StepsOfSteps, Self::Bits]
            .into_iter()
            .find(|mode| mode.letter() == letter)
    }
}

/// Finite numbers, whole or not.
pub(super) fn pack(cells: &[f64]) -> (Vec<i64>, Mode) {
    #[expect(clippy::float_cmp, reason = "wholeness is an exact question")]
    let is_whole = |cell: &f64| cell.trunc() == *cell && cell.abs() <= WHOLE_MAX;
    if cells.iter().all(is_whole) {
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
        let mut values: Vec<i64> = cells.iter().map(|cell| *cell as i64).collect();
        let mode = pack_whole(&mut values);
        (values, mode)
    } else {
        (cells.iter().map(|cell| cell.to_bits().cast_signed()).collect(), Mode::Bits)
    }
}

/// Replaces the numbers by what is kept of them.
pub(super) fn pack_whole(values: &mut Vec<i64>) -> Mode {
    let plain = folded(values);
    let mut steps = values.clone();
    to_steps(&mut steps);
    let first = folded(&steps);
    to_steps(&mut steps);
    let second = folded(&steps);
    let costs = [entropy(&plain), entropy(&first), entropy(&second)];
    // The simplest that is as good as any.
    let best = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let (kept, mode) = match costs {
        [cost, ..] if cost <= best => (plain, Mode::Plain),
        [_, cost, _] if cost <= best => (first, Mode::Steps),
        _ => (second, Mode::StepsOfSteps),
    };
    *values = kept;
    mode
}

/// The numbers again, from what was kept; `None` when it makes no sense.
pub(super) fn unpack(mut kept: Vec<i64>, mode: Mode) -> Option<Vec<f64>> {
    if mode == Mode::Bits {
        let numbers = kept.into_iter().map(|bits| f64::from_bits(bits.cast_unsigned()));
        return numbers.map(|number| number.is_finite().then_some(number)).collect();
    }
    unpack_whole(&mut kept, mode)?;
    #[expect(clippy::cast_precision_loss, reason = "only whole numbers up to 2^53 are written")]
    Some(kept.into_iter().map(|value| value as f64).collect())
}

/// Replaces what was kept by the numbers; `None` for fractions.
pub(super) fn unpack_whole(kept: &mut [i64], mode: Mode) -> Option<()> {
    for value in kept.iter_mut() {
        *value = unfold(*value);
    }
    let times = match mode {
        Mode::Plain => 0,
        Mode::Steps => 1,
        Mode::StepsOfSteps => 2,
        Mode::Bits => return None,
    };
    for _ in 0..times {
        let mut sum = 0_i64;
        for value in kept.iter_mut() {
            sum = sum.wrapping_add(*value);
            *value = sum;
        }
    }
    Some(())
}

fn to_steps(values: &mut [i64]) {
    let mut before = 0_i64;
    for value in values {
        let step = value.wrapping_sub(before);
        before = *value;
        *value = step;
    }
}

/// Small magnitudes to small numbers, whatever their sign.
fn folded(values: &[i64]) -> Vec<i64> {
    values.iter().map(|value| (value << 1) ^ (value >> 63)).collect()
}

fn unfold(value: i64) -> i64 {
    let value = value.cast_unsigned();
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// Bits that the bytes would need, each place of a byte for itself.
fn entropy(values: &[i64]) -> f64 {
    let every = values.len().div_ceil(SAMPLED_MAX).max(1);
    let mut seen = [[0_u32; 256]; 8];
    let mut count = 0_u32;
    for value in values.iter().step_by(every) {
        for (place, byte) in seen.iter_mut().zip(value.to_le_bytes()) {
            if let Some(times) = place.get_mut(usize::from(byte)) {
                *times += 1;
            }
        }
        count += 1;
    }
    let total = f64::from(count);
    let bits = |times: &u32| f64::from(*times) * (total / f64::from(*times)).log2();
    seen.iter().flatten().filter(|times| **times > 0).map(bits).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_series_has_its_mode() {
        let mut constant = vec![1_980_i64; 500];
        assert_eq!(pack_whole(&mut constant), Mode::Plain);
        let mut counter: Vec<i64> = (0..500).map(|at| 1_000_000 + at * 7_919).collect();
        assert_eq!(pack_whole(&mut counter), Mode::Steps);
        assert_eq!(pack(&[0.5, 1.0]).1, Mode::Bits);
    }

    #[test]
    fn letters_stand_for_modes() {
        for mode in [Mode::Plain, Mode::Steps, Mode::StepsOfSteps, Mode::Bits] {
            assert_eq!(Mode::from_letter(mode.letter()), Some(mode));
        }
        assert_eq!(Mode::from_letter('x'), None);
    }

    proptest! {
        #[test]
        fn whole_numbers_come_back(values: Vec<i64>) {
            let mut kept = values.clone();
            let mode = pack_whole(&mut kept);
            unpack_whole(&mut kept, mode).unwrap();
            prop_assert_eq!(kept, values);
        }

        #[test]
        fn cells_come_back(
            cells in proptest::collection::vec(
                prop_oneof![(-1e16..1e16_f64).prop_map(f64::round), -1e3..1e3_f64], 0..200)
        ) {
            let (kept, mode) = pack(&cells);
            prop_assert_eq!(unpack(kept, mode).unwrap(), cells);
        }
    }
}
