//! The host's own time: steady like the boot clock, right like the wall clock.

use gswarm_types::Micros;

/// The largest correction per elapsed time: one part in twenty.
const SLEW_DIVISOR: i64 = 20;
/// A wall clock this far away is followed at once.
pub const STEP_MIN: Micros = Micros::from_secs(3_600);

/// Host time = boot time + an offset that creeps towards the wall clock.
#[derive(Debug, Clone)]
pub struct HostClock {
    offset: Micros,
    last_mono: Micros,
    floor: Micros,
    epoch: u32,
}

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    pub now: Micros,
    pub step: Option<ClockStep>,
}

/// The wall clock was more than an hour away and time jumped to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStep {
    pub by: Micros,
    /// Order is promised within an epoch only.
    pub epoch: u32,
}

impl HostClock {
    /// `floor` is the last receipt stamp on disk: time does not run behind it.
    pub fn new(mono: Micros, wall: Micros, floor: Option<Micros>) -> Self {
        let floor = floor.unwrap_or(Micros(i64::MIN));
        // A wall clock a little behind the last receipt: time goes on from there and slews back,
        // instead of standing still.
        let near = floor > wall && floor - wall <= STEP_MIN;
        let start = if near { floor } else { wall };
        Self { offset: start - mono, last_mono: mono, floor, epoch: 0 }
    }

    pub fn read(&mut self, mono: Micros, wall: Micros) -> ClockReading {
        let elapsed = (mono - self.last_mono).0.max(0);
        self.last_mono = mono;
        let target = wall - mono;
        let away = target - self.offset;
        let behind_floor = self.floor - wall;
        // Only backwards: a glitch ahead must not age the whole recording at once.
        if behind_floor > STEP_MIN {
            return self.step(mono, target);
        }
        let most = elapsed / SLEW_DIVISOR;
        self.offset = self.offset + Micros(away.0.clamp(-most, most));
        // Strictly forward: two readings of one instant differ by at least nothing.
        let now = (mono + self.offset).max(self.floor);
        self.floor = now;
        ClockReading { now, step: None }
    }

    fn step(&mut self, mono: Micros, target: Micros) -> ClockReading {
        let by = mono + target - self.floor;
        self.offset = target;
        self.epoch += 1;
        self.floor = mono + target;
        ClockReading { now: self.floor, step: Some(ClockStep { by, epoch: self.epoch }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;
    const SECOND: i64 = 1_000_000;

    /// Readings as (mono s, wall s) -> host s, `!` marks a step.
    #[track_caller]
    fn check(floor: Option<i64>, readings: &[(i64, i64)], expected: &str) {
        let wall = readings[0].1;
        let floor = floor.map(|s| Micros(s * SECOND));
        let mut clock =
            HostClock::new(Micros(readings[0].0 * SECOND), Micros(wall * SECOND), floor);
        let shown: Vec<String> = readings
            .iter()
            .map(|(mono, wall)| {
                let reading = clock.read(Micros(mono * SECOND), Micros(wall * SECOND));
                let mark = if reading.step.is_some() { "!" } else { "" };
                format!("{}{mark}", reading.now.0 / SECOND)
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn follows_the_wall_slowly() {
        check(None, &[(0, 1000), (10, 1010), (30, 1030)], "1000 1010 1030");
        // The wall jumps ahead by 100 s: at most 5 % faster.
        check(None, &[(0, 1000), (100, 1200), (200, 1300)], "1000 1105 1210");
        // The wall jumps back by 100 s: at most 5 % slower, never backwards.
        check(None, &[(0, 1000), (100, 1000), (200, 1100)], "1000 1095 1190");
    }

    #[test]
    fn time_goes_on_from_the_floor_and_slews_back() {
        check(Some(1500), &[(0, 1000), (100, 1100), (600, 1600)], "1500 1595 2070");
    }

    #[test]
    fn hours_are_stepped() {
        let hour = HOUR / SECOND;
        check(Some(1000 + 2 * hour), &[(0, 1000), (10, 1010)], "1000! 1010");
        // Ahead is followed slowly, whatever the distance.
        check(None, &[(0, 1000), (100, 1100 + 2 * hour), (200, 1200)], "1000 1105 1200");
    }
}
