//! The clocks of this machine.

use gswarm_types::{Clock, Micros};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Asks the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn mono(&self) -> Micros {
        micros(clock_gettime(ClockId::Boottime))
    }

    fn wall(&self) -> Micros {
        micros(clock_gettime(ClockId::Realtime))
    }
}

fn micros(time: Timespec) -> Micros {
    Micros::from_secs(time.tv_sec) + Micros(time.tv_nsec / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_run() {
        let clock = SystemClock;
        assert!(clock.mono() > Micros::ZERO);
        assert!(clock.wall() > Micros::from_secs(1_700_000_000));
        assert!(clock.mono() <= clock.mono());
    }
}
