//! Raw NVML by dlopen, and one call of the C library: the only crate with unsafe Rust, behind a
//! small safe face.
//!
//! The library is looked up at run time, every function in it is optional, and every call gives a
//! `Result`: a machine without the driver, an old driver and a lost GPU are ordinary answers.

#![expect(unsafe_code, reason = "calling a C library is what this crate is for")]

mod error;
mod search;
mod library;
mod device;
mod field;
mod link;
mod process;
mod turn;
mod gpm;
mod event;
pub mod memory;

pub use device::{
    ClockKind, Device, EccKind, MemoryUse, PcieDirection, RemappedRows, ThrottleCause, Utilization,
};
pub use error::{NvmlError, OpenError};
pub use event::{DriverEvent, DriverEventKind, EventSet};
pub use field::{FIELDS_MAX, FieldId, FieldValue};
pub use gpm::{GPM_METRICS_MAX, Gpm, GpmMetric};
pub use library::Nvml;
pub use link::{Ancestor, LINKS_MAX, PeerAccess, RemoteKind};
pub use process::{DriverProcess, PROCESSES_MAX, ProcessUse};
pub use search::NvmlSearch;
