//! The host's time, shared by the recorder and the streams.

use std::sync::{Arc, Mutex, PoisonError};

use gswarm_core::{ClockStep, HostClock};
use gswarm_types::{Clock, Micros};

/// Cheap to clone; every reading moves the same clock.
#[derive(Debug, Clone)]
pub(crate) struct HostTime {
    machine: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    clock: HostClock,
    step: Option<ClockStep>,
}

impl HostTime {
    pub(crate) fn new(machine: Arc<dyn Clock>, floor: Option<Micros>) -> Self {
        let clock = HostClock::new(machine.mono(), machine.wall(), floor);
        Self { machine, state: Arc::new(Mutex::new(State { clock, step: None })) }
    }

    pub(crate) fn now(&self) -> Micros {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = state.clock.read(self.machine.mono(), self.machine.wall());
        if reading.step.is_some() {
            state.step = reading.step;
        }
        reading.now
    }

    /// The monotonic clock that health and round trips are measured by.
    pub(crate) fn mono(&self) -> Micros {
        self.machine.mono()
    }

    /// A step that has not been told yet.
    pub(crate) fn take_step(&self) -> Option<ClockStep> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).step.take()
    }
}
