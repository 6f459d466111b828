//! GPM: counters of Hopper and later, read as the difference between two samples.

use std::fmt;

use nvml_wrapper_sys::bindings as sys;

use crate::device::Device;
use crate::error::{NvmlError, check, symbol};
use crate::library::Nvml;
use crate::link::LINKS_MAX;

/// The most metrics one call computes: those without a link and both directions of every link.
pub const GPM_METRICS_MAX: usize = 16 + 2 * LINKS_MAX as usize;

/// Slots of a request, as NVML defines them; older drivers read only those that are in use.
const SLOTS: usize = sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_MAX as usize;

/// What a first sample gives while somebody else holds the counters for a moment.
const IN_USE: i32 = sys::nvmlReturn_enum_NVML_ERROR_IN_USE.cast_signed();
const FIRST_RETRIES_MAX: u32 = 3;

/// What can be computed from two samples.
///
/// `GRAPHICS_UTIL` (number 1) is not offered: with it one call takes a millisecond instead of one
/// or two microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpmMetric {
    /// Percent.
    SmActivity,
    /// Percent.
    SmOccupancy,
    /// Percent.
    Tensor,
    /// Percent of the peak of the device memory.
    DeviceMemory,
    /// Percent.
    Fp64,
    /// Percent.
    Fp32,
    /// Percent.
    Fp16,
    /// GPU to host, MiB/s.
    PcieTransmit,
    /// Host to GPU, MiB/s.
    PcieReceive,
    /// Over all links, MiB/s.
    LinksReceive,
    /// Over all links, MiB/s.
    LinksTransmit,
    /// Over one link, MiB/s.
    LinkReceive(u32),
    /// Over one link, MiB/s.
    LinkTransmit(u32),
}

impl GpmMetric {
    const fn number(self) -> u32 {
        match self {
            Self::SmActivity => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL,
            Self::SmOccupancy => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_OCCUPANCY,
            Self::Tensor => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL,
            Self::DeviceMemory => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL,
            Self::Fp64 => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP64_UTIL,
            Self::Fp32 => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP32_UTIL,
            Self::Fp16 => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP16_UTIL,
            Self::PcieTransmit => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_TX_PER_SEC,
            Self::PcieReceive => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_RX_PER_SEC,
            Self::LinksReceive => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
            Self::LinksTransmit => sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
            // The numbers of the links alternate: rx of 0, tx of 0, rx of 1, and so on.
            Self::LinkReceive(link) => {
                sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_L0_RX_PER_SEC + 2 * link
            },
            Self::LinkTransmit(link) => {
                sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_L0_TX_PER_SEC + 2 * link
            },
        }
    }
}

impl Device {
    /// Whether this GPU has GPM at all.
    pub fn has_gpm(&self) -> Result<bool, NvmlError> {
        let call = symbol(&self.functions().nvmlGpmQueryDeviceSupport)?;
        let mut support =
            sys::nvmlGpmSupport_t { version: sys::NVML_GPM_SUPPORT_VERSION, isSupportedDevice: 0 };
        // SAFETY: the handle is valid (see `Device`); `support` names its own layout.
        check(unsafe { call(self.handle(), &raw mut support) })?;
        Ok(support.isSupportedDevice != 0)
    }
}

/// The counters of one GPU: an older and a newer sample, and the values between them.
#[derive(Debug)]
pub struct Gpm {
    device: Device,
    older: Sample,
    newer: Sample,
    /// 8 KiB that the call wants; kept between calls.
    request: Box<sys::nvmlGpmMetricsGet_t>,
}

// SAFETY: the samples are memory of the library that only this value refers to, and NVML does not
// tie them to a thread; the pointers in the request are set for the length of one call. It is not
// `Sync`: reading into a sample from two threads would race.
unsafe impl Send for Gpm {}

impl Gpm {
    /// Takes the first sample; at most `GPM_METRICS_MAX` metrics.
    pub fn open(device: &Device, metrics: &[GpmMetric]) -> Result<Self, NvmlError> {
        if !device.has_gpm()? {
            return Err(NvmlError::NotSupported);
        }
        let mut gpm = Self {
            device: device.clone(),
            older: Sample::new(device.nvml())?,
            newer: Sample::new(device.nvml())?,
            request: empty_request(),
        };
        gpm.choose(metrics);
        let mut first = gpm.read();
        for _ in 0..FIRST_RETRIES_MAX {
            if first != Err(NvmlError::Code(IN_USE)) {
                break;
            }
            first = gpm.read();
        }
        first?;
        gpm.keep();
        Ok(gpm)
    }

    /// Computes these metrics from now on; the samples stay.
    pub fn choose(&mut self, metrics: &[GpmMetric]) {
        debug_assert!(metrics.len() <= GPM_METRICS_MAX, "too many metrics");
        let count = metrics.len().min(GPM_METRICS_MAX);
        for (slot, metric) in self.request.metrics.iter_mut().zip(metrics.iter().take(count)) {
            *slot = sys::nvmlGpmMetric_t { metricId: metric.number(), ..EMPTY_METRIC };
        }
        self.request.numMetrics = u32::try_from(count).unwrap_or(0);
    }

    /// The values since the older sample, in the order of `choose`; `None` where one was not given
    /// or is not a finite number, which is how the driver says that the counters have not moved.
    pub fn read(&mut self) -> Result<Vec<Option<f64>>, NvmlError> {
        let nvml = self.device.nvml().clone();
        nvml.gpm_turn().take(|| {
            self.newer.read(&self.device)?;
            if !self.older.is_filled {
                return Ok(vec![None; self.metrics().len()]);
            }
            self.compute()
        })?
    }

    /// Makes what was read last the older sample.
    pub fn keep(&mut self) {
        if self.newer.is_filled {
            std::mem::swap(&mut self.older, &mut self.newer);
        }
    }

    fn compute(&mut self) -> Result<Vec<Option<f64>>, NvmlError> {
        let call = symbol(&self.device.functions().nvmlGpmMetricsGet)?;
        self.request.sample1 = self.older.sample;
        self.request.sample2 = self.newer.sample;
        // SAFETY: both samples were allocated and filled by the library and live through the call,
        // no other thread is in GPM; the request names its layout and holds `numMetrics` slots.
        let code = unsafe { call(&raw mut *self.request) };
        self.request.sample1 = std::ptr::null_mut();
        self.request.sample2 = std::ptr::null_mut();
        check(code)?;
        let value = |slot: &sys::nvmlGpmMetric_t| {
            check(slot.nvmlReturn).ok().map(|()| slot.value).filter(|value| value.is_finite())
        };
        Ok(self.metrics().iter().map(value).collect())
    }

    fn metrics(&self) -> &[sys::nvmlGpmMetric_t] {
        let count = usize::try_from(self.request.numMetrics).unwrap_or(0);
        self.request.metrics.get(..count).unwrap_or_default()
    }
}

/// The counters at one instant.
struct Sample {
    nvml: Nvml,
    sample: sys::nvmlGpmSample_t,
    /// One that was never or only half filled is not handed to the library.
    is_filled: bool,
}

impl Sample {
    fn new(nvml: &Nvml) -> Result<Self, NvmlError> {
        let call = symbol(&nvml.functions().nvmlGpmSampleAlloc)?;
        let mut sample = std::ptr::null_mut();
        // SAFETY: `sample` is a valid place for the one pointer the call writes.
        check(unsafe { call(&raw mut sample) })?;
        Ok(Self { nvml: nvml.clone(), sample, is_filled: false })
    }

    fn read(&mut self, device: &Device) -> Result<(), NvmlError> {
        self.is_filled = false;
        let call = symbol(&device.functions().nvmlGpmSampleGet)?;
        // SAFETY: the handle is valid (see `Device`); the sample was allocated by this library and
        // is borrowed alone, and no other thread is in GPM.
        check(unsafe { call(device.handle(), self.sample) })?;
        self.is_filled = true;
        Ok(())
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        if let Ok(free) = symbol(&self.nvml.functions().nvmlGpmSampleFree) {
            // SAFETY: the sample was allocated by this library and nothing refers to it any more.
            unsafe { free(self.sample) };
        }
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample").field("is_filled", &self.is_filled).finish_non_exhaustive()
    }
}

fn empty_request() -> Box<sys::nvmlGpmMetricsGet_t> {
    Box::new(sys::nvmlGpmMetricsGet_t {
        version: sys::NVML_GPM_METRICS_GET_VERSION,
        numMetrics: 0,
        sample1: std::ptr::null_mut(),
        sample2: std::ptr::null_mut(),
        metrics: [EMPTY_METRIC; SLOTS],
    })
}

const EMPTY_METRIC: sys::nvmlGpmMetric_t = sys::nvmlGpmMetric_t {
    metricId: 0,
    nvmlReturn: sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
    value: f64::NAN,
    metricInfo: sys::nvmlGpmMetric_t__bindgen_ty_1 {
        shortName: std::ptr::null_mut(),
        longName: std::ptr::null_mut(),
        unit: std::ptr::null_mut(),
    },
};
