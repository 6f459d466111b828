//! One GPU and the numbers that a single call gives.

use std::ffi::{c_uint, c_ulonglong};
use std::fmt;

use nvml_wrapper_sys::bindings as sys;

use crate::error::{NvmlError, check, symbol};
use crate::library::{Nvml, read_text, text};

/// One GPU. Handles belong to the library and are valid until it is shut down, which the clone of
/// `Nvml` inside prevents.
#[derive(Clone)]
pub struct Device {
    nvml: Nvml,
    handle: sys::nvmlDevice_t,
    index: u32,
}

// SAFETY: the handle is an opaque name for a GPU inside the library, not memory of ours; NVML is
// documented to be thread-safe, and the `Nvml` beside it keeps the library initialised.
unsafe impl Send for Device {}
// SAFETY: as for `Send`: every call through the handle may be made from several threads at once.
unsafe impl Sync for Device {}

/// Shares of time, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utilization {
    pub gpu: u32,
    pub memory: u32,
}

/// Device memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    pub total: u64,
    /// Without what the driver reserves, except where only the old call exists.
    pub used: u64,
}

/// Rows of device memory that spare rows stand in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemappedRows {
    pub corrected: u32,
    pub uncorrected: u32,
    pub pending: bool,
    pub failed: bool,
}

/// Which clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockKind {
    Sm,
    Memory,
}

/// Which memory errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EccKind {
    Corrected,
    Uncorrected,
}

/// Why the clocks were below what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleCause {
    Power,
    Thermal,
}

/// As the GPU sees it: `Receive` is host to GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcieDirection {
    Receive,
    Transmit,
}

type GetNumber = unsafe extern "C" fn(sys::nvmlDevice_t, *mut c_uint) -> sys::nvmlReturn_t;
type GetLongNumber = unsafe extern "C" fn(sys::nvmlDevice_t, *mut c_ulonglong) -> sys::nvmlReturn_t;

impl Device {
    pub(crate) fn open(nvml: Nvml, index: u32) -> Result<Self, NvmlError> {
        let call = symbol(&nvml.functions().nvmlDeviceGetHandleByIndex_v2)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a valid place for the one handle the call writes.
        check(unsafe { call(index, &raw mut handle) })?;
        Ok(Self { nvml, handle, index })
    }

    /// The library this GPU was found through.
    pub fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// Position among the GPUs, as the driver counts.
    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn uuid(&self) -> Result<String, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetUUID)?;
        read_text(|buffer, length| {
            // SAFETY: the handle is valid (see `Device`); the call writes at most `length` bytes.
            unsafe { call(self.handle, buffer, length) }
        })
    }

    /// Product name.
    pub fn name(&self) -> Result<String, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetName)?;
        read_text(|buffer, length| {
            // SAFETY: the handle is valid (see `Device`); the call writes at most `length` bytes.
            unsafe { call(self.handle, buffer, length) }
        })
    }

    /// PCI address, as in `00000000:1B:00.0`.
    pub fn pci_bus_id(&self) -> Result<String, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetPciInfo_v3)?;
        let mut info = empty_pci_info();
        // SAFETY: the handle is valid (see `Device`); `info` has the layout of version 3.
        check(unsafe { call(self.handle, &raw mut info) })?;
        Ok(text(&info.busId))
    }

    pub fn utilization(&self) -> Result<Utilization, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetUtilizationRates)?;
        let mut rates = sys::nvmlUtilization_t { gpu: 0, memory: 0 };
        // SAFETY: the handle is valid (see `Device`); `rates` is a valid place for the answer.
        check(unsafe { call(self.handle, &raw mut rates) })?;
        Ok(Utilization { gpu: rates.gpu, memory: rates.memory })
    }

    /// Version 2 of the call, or version 1 where the driver is too old for it.
    pub fn memory(&self) -> Result<MemoryUse, NvmlError> {
        match self.memory_v2() {
            Err(error) if error.is_absence() => self.memory_v1(),
            answer => answer,
        }
    }

    fn memory_v2(&self) -> Result<MemoryUse, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetMemoryInfo_v2)?;
        let mut memory = sys::nvmlMemory_v2_t {
            version: struct_version::<sys::nvmlMemory_v2_t>(2),
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        };
        // SAFETY: the handle is valid (see `Device`); `memory` names its own layout in `version`.
        check(unsafe { call(self.handle, &raw mut memory) })?;
        Ok(MemoryUse { total: memory.total, used: memory.used })
    }

    fn memory_v1(&self) -> Result<MemoryUse, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetMemoryInfo)?;
        let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the handle is valid (see `Device`); `memory` is a valid place for the answer.
        check(unsafe { call(self.handle, &raw mut memory) })?;
        Ok(MemoryUse { total: memory.total, used: memory.used })
    }

    /// Core temperature in degrees Celsius.
    pub fn temperature_celsius(&self) -> Result<u32, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetTemperature)?;
        let mut value = 0;
        let sensor = sys::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU;
        // SAFETY: the handle is valid (see `Device`); `value` is a valid place for the answer.
        check(unsafe { call(self.handle, sensor, &raw mut value) })?;
        Ok(value)
    }

    pub fn power_milliwatts(&self) -> Result<u32, NvmlError> {
        self.number(&self.functions().nvmlDeviceGetPowerUsage)
    }

    pub fn power_limit_milliwatts(&self) -> Result<u32, NvmlError> {
        self.number(&self.functions().nvmlDeviceGetEnforcedPowerLimit)
    }

    /// Energy since the driver was loaded. Takes milliseconds.
    pub fn energy_millijoules(&self) -> Result<u64, NvmlError> {
        self.long_number(&self.functions().nvmlDeviceGetTotalEnergyConsumption)
    }

    pub fn clock_mhz(&self, kind: ClockKind) -> Result<u32, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetClockInfo)?;
        let mut value = 0;
        // SAFETY: the handle is valid (see `Device`); `value` is a valid place for the answer.
        check(unsafe { call(self.handle, kind.code(), &raw mut value) })?;
        Ok(value)
    }

    /// The highest clock of this kind. Takes about a millisecond.
    pub fn clock_max_mhz(&self, kind: ClockKind) -> Result<u32, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetMaxClockInfo)?;
        let mut value = 0;
        // SAFETY: the handle is valid (see `Device`); `value` is a valid place for the answer.
        check(unsafe { call(self.handle, kind.code(), &raw mut value) })?;
        Ok(value)
    }

    pub fn memory_bus_width_bits(&self) -> Result<u32, NvmlError> {
        self.number(&self.functions().nvmlDeviceGetMemoryBusWidth)
    }

    /// Bits of the NVML clock event reasons, under their new or their old name.
    pub fn clock_event_reasons(&self) -> Result<u64, NvmlError> {
        match self.long_number(&self.functions().nvmlDeviceGetCurrentClocksEventReasons) {
            Err(NvmlError::NoSymbol) => {
                self.long_number(&self.functions().nvmlDeviceGetCurrentClocksThrottleReasons)
            },
            answer => answer,
        }
    }

    /// Time below the requested clocks since the driver was loaded.
    pub fn throttle_nanoseconds(&self, cause: ThrottleCause) -> Result<u64, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetViolationStatus)?;
        let mut time = sys::nvmlViolationTime_t { referenceTime: 0, violationTime: 0 };
        let policy = match cause {
            ThrottleCause::Power => sys::nvmlPerfPolicyType_enum_NVML_PERF_POLICY_POWER,
            ThrottleCause::Thermal => sys::nvmlPerfPolicyType_enum_NVML_PERF_POLICY_THERMAL,
        };
        // SAFETY: the handle is valid (see `Device`); `time` is a valid place for the answer.
        check(unsafe { call(self.handle, policy, &raw mut time) })?;
        Ok(time.violationTime)
    }

    pub fn pcie_generation(&self) -> Result<u32, NvmlError> {
        self.number(&self.functions().nvmlDeviceGetCurrPcieLinkGeneration)
    }

    pub fn pcie_width(&self) -> Result<u32, NvmlError> {
        self.number(&self.functions().nvmlDeviceGetCurrPcieLinkWidth)
    }

    pub fn pcie_replays(&self) -> Result<u32, NvmlError> {
        self.number(&self.functions().nvmlDeviceGetPcieReplayCounter)
    }

    /// Traffic in kilobytes per second. Blocks for 20 ms while the driver measures.
    pub fn pcie_kilobytes_per_second(&self, direction: PcieDirection) -> Result<u32, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetPcieThroughput)?;
        let counter = match direction {
            PcieDirection::Receive => sys::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES,
            PcieDirection::Transmit => sys::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES,
        };
        let mut value = 0;
        // SAFETY: the handle is valid (see `Device`); `value` is a valid place for the answer.
        check(unsafe { call(self.handle, counter, &raw mut value) })?;
        Ok(value)
    }

    /// Memory errors since the driver was loaded.
    pub fn ecc_errors(&self, kind: EccKind) -> Result<u64, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetTotalEccErrors)?;
        let errors = match kind {
            EccKind::Corrected => sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED,
            EccKind::Uncorrected => {
                sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED
            },
        };
        let since = sys::nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
        let mut value = 0;
        // SAFETY: the handle is valid (see `Device`); `value` is a valid place for the answer.
        check(unsafe { call(self.handle, errors, since, &raw mut value) })?;
        Ok(value)
    }

    pub fn remapped_rows(&self) -> Result<RemappedRows, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetRemappedRows)?;
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        let (first, second) = (&raw mut corrected, &raw mut uncorrected);
        let (third, fourth) = (&raw mut pending, &raw mut failed);
        // SAFETY: the handle is valid (see `Device`); all four are valid places for one number.
        check(unsafe { call(self.handle, first, second, third, fourth) })?;
        Ok(RemappedRows { corrected, uncorrected, pending: pending != 0, failed: failed != 0 })
    }

    /// Video encoder busy, in percent.
    pub fn encoder_utilization(&self) -> Result<u32, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetEncoderUtilization)?;
        let (mut value, mut period_us) = (0, 0);
        // SAFETY: the handle is valid (see `Device`); both are valid places for one number.
        check(unsafe { call(self.handle, &raw mut value, &raw mut period_us) })?;
        Ok(value)
    }

    /// Video decoder busy, in percent.
    pub fn decoder_utilization(&self) -> Result<u32, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetDecoderUtilization)?;
        let (mut value, mut period_us) = (0, 0);
        // SAFETY: the handle is valid (see `Device`); both are valid places for one number.
        check(unsafe { call(self.handle, &raw mut value, &raw mut period_us) })?;
        Ok(value)
    }

    /// Fan speed against its maximum, in percent.
    pub fn fan_percent(&self) -> Result<u32, NvmlError> {
        self.number(&self.functions().nvmlDeviceGetFanSpeed)
    }

    /// 0 is the fastest state; a state the driver does not know is `NotFound`.
    pub fn performance_state(&self) -> Result<u32, NvmlError> {
        match self.number(&self.functions().nvmlDeviceGetPerformanceState)? {
            sys::nvmlPStates_enum_NVML_PSTATE_UNKNOWN => Err(NvmlError::NotFound),
            state => Ok(state),
        }
    }

    pub(crate) fn functions(&self) -> &sys::NvmlLib {
        self.nvml.functions()
    }

    pub(crate) fn handle(&self) -> sys::nvmlDevice_t {
        self.handle
    }

    fn number<E>(&self, call: &Result<GetNumber, E>) -> Result<u32, NvmlError> {
        let call = symbol(call)?;
        let mut value = 0;
        // SAFETY: the handle is valid (see `Device`); `value` is a valid place for the one number
        // that functions of this signature write.
        check(unsafe { call(self.handle, &raw mut value) })?;
        Ok(value)
    }

    fn long_number<E>(&self, call: &Result<GetLongNumber, E>) -> Result<u64, NvmlError> {
        let call = symbol(call)?;
        let mut value = 0;
        // SAFETY: the handle is valid (see `Device`); `value` is a valid place for the one number
        // that functions of this signature write.
        check(unsafe { call(self.handle, &raw mut value) })?;
        Ok(value)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("index", &self.index).finish_non_exhaustive()
    }
}

impl ClockKind {
    const fn code(self) -> sys::nvmlClockType_t {
        match self {
            Self::Sm => sys::nvmlClockType_enum_NVML_CLOCK_SM,
            Self::Memory => sys::nvmlClockType_enum_NVML_CLOCK_MEM,
        }
    }
}

pub(crate) const fn empty_pci_info() -> sys::nvmlPciInfo_t {
    sys::nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: [0; 32],
    }
}

/// NVML's way to say which layout a structure has: its size and a version in the top byte.
fn struct_version<T>(version: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0) | version << 24
}
