//! A machine's clocks, driven by tokio's time, which tests pause.

use std::sync::atomic::{AtomicI64, Ordering};

use gswarm_types::{Clock, Micros};
use tokio::time::Instant;

/// Wall time at the start of every simulation: 2026-01-01T00:00:00Z.
const WALL_START: Micros = Micros::from_secs(1_767_225_600);

/// Boot time and wall clock of one simulated machine.
#[derive(Debug)]
pub struct SimClock {
    started: Instant,
    /// Time since boot when the simulation began; negative after a boot during it.
    boot: AtomicI64,
    /// How far the wall clock is from the truth.
    wall_error: AtomicI64,
}

impl SimClock {
    /// `boot` is the time since boot at the start of the simulation.
    pub fn new(boot: Micros, wall_error: Micros) -> Self {
        Self {
            started: Instant::now(),
            boot: AtomicI64::new(boot.0),
            wall_error: AtomicI64::new(wall_error.0),
        }
    }

    /// The machine boots now: time since boot begins again, the wall clock goes on.
    pub fn reboot(&self) {
        self.boot.store(-self.elapsed().0, Ordering::Relaxed);
    }

    /// Sets the wall clock this far from the truth, as a person or NTP might.
    pub fn set_wall_error(&self, error: Micros) {
        self.wall_error.store(error.0, Ordering::Relaxed);
    }

    fn elapsed(&self) -> Micros {
        Micros::from(self.started.elapsed())
    }
}

impl Clock for SimClock {
    fn mono(&self) -> Micros {
        Micros(self.boot.load(Ordering::Relaxed)) + self.elapsed()
    }

    fn wall(&self) -> Micros {
        WALL_START + self.elapsed() + Micros(self.wall_error.load(Ordering::Relaxed))
    }
}
