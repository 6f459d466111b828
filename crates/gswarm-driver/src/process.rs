//! Processes that hold memory on a GPU.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::device::Device;
use crate::error::{NvmlError, check, symbol};

/// More processes than this on one GPU are left out.
pub const PROCESSES_MAX: u32 = 4096;

/// Enough for nearly every GPU, so that one call does.
const PROCESSES_FIRST: u32 = 64;

/// What NVML writes where it does not know the memory.
const MEMORY_UNKNOWN: u64 = u64::MAX;

/// Which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessUse {
    Compute,
    Graphics,
}

/// One process on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverProcess {
    pub pid: u32,
    /// `None` where the driver does not tell.
    pub memory_bytes: Option<u64>,
}

impl Device {
    pub fn processes(&self, kind: ProcessUse) -> Result<Vec<DriverProcess>, NvmlError> {
        let mut room = PROCESSES_FIRST;
        loop {
            match self.processes_in(kind, room)? {
                Ok(found) => return Ok(found),
                // Some start between two calls: ask for a little more than there were.
                Err(needed) if room < PROCESSES_MAX => {
                    room = needed.max(room).saturating_mul(2).min(PROCESSES_MAX);
                },
                Err(_) => return Err(NvmlError::NotFound),
            }
        }
    }

    /// The list, or how many there are when they are more than `room`.
    fn processes_in(
        &self,
        kind: ProcessUse,
        room: u32,
    ) -> Result<Result<Vec<DriverProcess>, u32>, NvmlError> {
        const EMPTY: sys::nvmlProcessInfo_t = sys::nvmlProcessInfo_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        let call = symbol(match kind {
            ProcessUse::Compute => &self.functions().nvmlDeviceGetComputeRunningProcesses_v3,
            ProcessUse::Graphics => &self.functions().nvmlDeviceGetGraphicsRunningProcesses_v3,
        })?;
        let mut infos = vec![EMPTY; usize::try_from(room).unwrap_or(0)];
        let mut count: c_uint = room;
        // SAFETY: the handle is valid (see `Device`); `infos` holds `count` elements of the layout
        // of version 3, and the call writes no more than that.
        let code = unsafe { call(self.handle(), &raw mut count, infos.as_mut_ptr()) };
        if code == sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE {
            return Ok(Err(count));
        }
        check(code)?;
        infos.truncate(usize::try_from(count).unwrap_or(0));
        Ok(Ok(infos.iter().map(process).collect()))
    }
}

fn process(info: &sys::nvmlProcessInfo_t) -> DriverProcess {
    let memory_bytes = Some(info.usedGpuMemory).filter(|bytes| *bytes != MEMORY_UNKNOWN);
    DriverProcess { pid: info.pid, memory_bytes }
}
