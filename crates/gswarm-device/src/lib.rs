//! Devices behind one trait: NVIDIA through NVML and GPM, simulated, replayed, and the host itself.

mod spec;
mod composite;
pub mod host;
pub mod nvml;
pub mod replay;
pub mod sim;

use std::fmt;
use std::sync::Arc;

use gswarm_types::{Event, Micros, PeerLink, ProcessRow, Table};

pub use composite::Composite;
pub use sim::fault::{SimFault, SimFaultKind};
pub use sim::model::GpuModel;
pub use sim::spec::{GPUS_MAX, Scenario, SimGroup, SimSpec, SimSpecError};
pub use spec::{DeviceSpec, OpenError, OpenOptions, SpecError, open, parse_extra_metrics};

/// A set of devices that can be sampled. Owned by one thread at a time.
pub trait Devices: Send + fmt::Debug {
    /// Reads one row. `now` is the node's monotonic time; the call returns within the deadline
    /// that the implementation was built with, whatever the driver does.
    fn sample(&mut self, now: Micros) -> Sample;

    /// Time spent inside driver calls since the start.
    fn driver_time(&self) -> Micros {
        Micros::ZERO
    }
}

/// What one reading of all devices gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Shared while it does not change; a different `Arc` may still be equal.
    pub table: Arc<Table>,
    /// One cell for each column of the table; `None` is absent.
    pub cells: Vec<Option<f64>>,
    pub events: Vec<Event>,
    /// All processes on all GPUs, when they were read in this call.
    pub processes: Option<Vec<ProcessRow>>,
    /// How the GPUs reach each other, when it was read in this call and differs from before.
    pub topology: Option<Vec<PeerLink>>,
}
