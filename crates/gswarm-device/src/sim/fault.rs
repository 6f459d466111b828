//! Faults of simulated GPUs, scheduled by tests and demos.

use gswarm_types::Micros;

/// Something that goes wrong with one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimFault {
    /// In the time that is passed to `sample`.
    pub at: Micros,
    /// Position among the GPUs of the node.
    pub gpu: u32,
    pub kind: SimFaultKind,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimFaultKind {
    /// The driver stops answering for the GPU; a training job waits for it in vain.
    Hang,
    /// The GPU falls off the bus.
    Lost,
    /// The driver reports this error; 79 also loses the GPU, 48 and 63 leave their counters.
    /// Nothing on a GPU of another vendor.
    Xid(u32),
    /// The GPU runs at about half its clock and holds up a training job.
    Straggler,
    /// Cooling fails until the GPU slows itself down.
    Thermal,
    /// All of the above end.
    Recover,
}
