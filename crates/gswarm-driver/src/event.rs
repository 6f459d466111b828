//! Faults that the driver reports by itself.

use std::fmt;
use std::time::Duration;

use nvml_wrapper_sys::bindings as sys;

use crate::device::Device;
use crate::error::{NvmlError, check, symbol};
use crate::library::Nvml;

/// What the driver reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverEventKind {
    /// The XID number.
    Xid(u64),
    EccCorrected,
    EccUncorrected,
    /// The bits of a kind this version does not know.
    Other(u64),
}

/// One report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverEvent {
    /// Index of the GPU; `None` when it is not one of those registered.
    pub index: Option<u32>,
    pub kind: DriverEventKind,
}

/// GPUs whose faults are waited for.
pub struct EventSet {
    nvml: Nvml,
    set: sys::nvmlEventSet_t,
    devices: Vec<Device>,
}

// SAFETY: the set is an object of the library that only this value refers to; NVML does not tie
// it to a thread. It is not `Sync`: one thread waits.
unsafe impl Send for EventSet {}

impl EventSet {
    /// A set without GPUs.
    pub fn new(nvml: &Nvml) -> Result<Self, NvmlError> {
        let call = symbol(&nvml.functions().nvmlEventSetCreate)?;
        let mut set = std::ptr::null_mut();
        // SAFETY: `set` is a valid place for the one pointer the call writes.
        check(unsafe { call(&raw mut set) })?;
        Ok(Self { nvml: nvml.clone(), set, devices: Vec::new() })
    }

    /// Adds the XID errors of one GPU, or also its memory errors.
    pub fn register(&mut self, device: &Device, with_ecc: bool) -> Result<(), NvmlError> {
        let call = symbol(&device.functions().nvmlDeviceRegisterEvents)?;
        let mut wanted = u64::from(sys::nvmlEventTypeXidCriticalError);
        if with_ecc {
            wanted |= u64::from(sys::nvmlEventTypeSingleBitEccError)
                | u64::from(sys::nvmlEventTypeDoubleBitEccError);
        }
        // SAFETY: the handle is valid (see `Device`); the set was created by this library and is
        // borrowed alone.
        check(unsafe { call(device.handle(), wanted, self.set) })?;
        self.devices.push(device.clone());
        Ok(())
    }

    /// Waits for the next report; none within the time is `NvmlError::Timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<DriverEvent, NvmlError> {
        let call = symbol(&self.nvml.functions().nvmlEventSetWait_v2)?;
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let mut data = sys::nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        // SAFETY: the set was created by this library and is borrowed alone; `data` is a valid
        // place for the answer.
        check(unsafe { call(self.set, &raw mut data, timeout_ms) })?;
        let device = self.devices.iter().find(|device| device.handle() == data.device);
        Ok(DriverEvent { index: device.map(Device::index), kind: kind(&data) })
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Ok(free) = symbol(&self.nvml.functions().nvmlEventSetFree) {
            // SAFETY: the set was created by this library and nothing refers to it any more.
            unsafe { free(self.set) };
        }
    }
}

impl fmt::Debug for EventSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSet").field("devices", &self.devices).finish_non_exhaustive()
    }
}

fn kind(data: &sys::nvmlEventData_t) -> DriverEventKind {
    let has = |bits: u32| data.eventType & u64::from(bits) != 0;
    if has(sys::nvmlEventTypeXidCriticalError) {
        DriverEventKind::Xid(data.eventData)
    } else if has(sys::nvmlEventTypeDoubleBitEccError) {
        DriverEventKind::EccUncorrected
    } else if has(sys::nvmlEventTypeSingleBitEccError) {
        DriverEventKind::EccCorrected
    } else {
        DriverEventKind::Other(data.eventType)
    }
}
