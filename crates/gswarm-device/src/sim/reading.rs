//! Which numbers each simulated product reports, in the order of the catalogue.

use gswarm_types::Scope;
use gswarm_types::metric::{CATALOGUE, Metric, Tier};

use super::gpu::{Gpu, Health};
use super::model::Model;

/// One metric of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Utilization,
    MemoryController,
    MemoryUsed,
    MemoryTotal,
    Temperature,
    Power,
    PowerLimit,
    Energy,
    ClockSm,
    ClockMemory,
    ClockEventReasons,
    ThrottlePower,
    ThrottleThermal,
    PcieGeneration,
    PcieWidth,
    PcieReplays,
    EccCorrected,
    EccUncorrected,
    RemappedCorrected,
    RemappedUncorrected,
    RemappedPending,
    RemappedFailed,
    XidLast,
    ProcessCount,
    Unresponsive,
    Encoder,
    Decoder,
    Fan,
    PerformanceState,
    MemoryTemperature,
    Average(Average),
}

/// Numbers that counters give: averages since the reading before, with all their digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Average {
    PcieRx,
    PcieTx,
    NvlinkRx,
    NvlinkTx,
    Sm,
    Occupancy,
    Tensor,
    Fp64,
    Fp32,
    Fp16,
    Dram,
    DramBytes,
}

/// What a product must have to report a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Nvidia,
    Nvlink,
    Ecc,
    Gpm,
    Fan,
    MemoryThermometer,
}

const READINGS: [(&str, Reading, Needs); 42] = [
    ("gpu_utilization", Reading::Utilization, Needs::Nothing),
    ("memory_controller_utilization", Reading::MemoryController, Needs::Nothing),
    ("memory_used_bytes", Reading::MemoryUsed, Needs::Nothing),
    ("memory_total_bytes", Reading::MemoryTotal, Needs::Nothing),
    ("temperature_celsius", Reading::Temperature, Needs::Nothing),
    ("power_milliwatts", Reading::Power, Needs::Nothing),
    ("power_limit_milliwatts", Reading::PowerLimit, Needs::Nothing),
    ("energy_millijoules", Reading::Energy, Needs::Nothing),
    ("clock_sm_mhz", Reading::ClockSm, Needs::Nothing),
    ("clock_memory_mhz", Reading::ClockMemory, Needs::Nothing),
    ("clock_event_reasons", Reading::ClockEventReasons, Needs::Nvidia),
    ("throttle_power_nanoseconds", Reading::ThrottlePower, Needs::Nvidia),
    ("throttle_thermal_nanoseconds", Reading::ThrottleThermal, Needs::Nvidia),
    ("pcie_generation", Reading::PcieGeneration, Needs::Nothing),
    ("pcie_width", Reading::PcieWidth, Needs::Nothing),
    ("pcie_rx_bytes_per_second", Reading::Average(Average::PcieRx), Needs::Nothing),
    ("pcie_tx_bytes_per_second", Reading::Average(Average::PcieTx), Needs::Nothing),
    ("pcie_replays", Reading::PcieReplays, Needs::Nothing),
    ("nvlink_rx_bytes_per_second", Reading::Average(Average::NvlinkRx), Needs::Nvlink),
    ("nvlink_tx_bytes_per_second", Reading::Average(Average::NvlinkTx), Needs::Nvlink),
    ("ecc_corrected", Reading::EccCorrected, Needs::Ecc),
    ("ecc_uncorrected", Reading::EccUncorrected, Needs::Ecc),
    ("remapped_rows_corrected", Reading::RemappedCorrected, Needs::Ecc),
    ("remapped_rows_uncorrected", Reading::RemappedUncorrected, Needs::Ecc),
    ("remapped_rows_pending", Reading::RemappedPending, Needs::Ecc),
    ("remapped_rows_failed", Reading::RemappedFailed, Needs::Ecc),
    ("xid_last", Reading::XidLast, Needs::Nvidia),
    ("process_count", Reading::ProcessCount, Needs::Nothing),
    ("unresponsive", Reading::Unresponsive, Needs::Nothing),
    ("sm_activity", Reading::Average(Average::Sm), Needs::Gpm),
    ("sm_occupancy", Reading::Average(Average::Occupancy), Needs::Gpm),
    ("tensor_activity", Reading::Average(Average::Tensor), Needs::Gpm),
    ("fp64_activity", Reading::Average(Average::Fp64), Needs::Gpm),
    ("fp32_activity", Reading::Average(Average::Fp32), Needs::Gpm),
    ("fp16_activity", Reading::Average(Average::Fp16), Needs::Gpm),
    ("device_memory_activity", Reading::Average(Average::Dram), Needs::Gpm),
    ("device_memory_bandwidth_bytes_per_second", Reading::Average(Average::DramBytes), Needs::Gpm),
    ("encoder_utilization", Reading::Encoder, Needs::Nvidia),
    ("decoder_utilization", Reading::Decoder, Needs::Nvidia),
    ("fan_percent", Reading::Fan, Needs::Fan),
    ("performance_state", Reading::PerformanceState, Needs::Nvidia),
    ("memory_temperature_celsius", Reading::MemoryTemperature, Needs::MemoryThermometer),
];

/// What one product reports: what it can, and of the extras what was asked for.
pub(super) fn readings_of(
    model: &Model,
    nvlinks: u32,
    extra_metrics: &[&'static Metric],
) -> Vec<(&'static Metric, Reading)> {
    CATALOGUE
        .iter()
        .filter(|metric| metric.scope == Scope::Gpu)
        .filter(|metric| metric.tier == Tier::Always || extra_metrics.contains(metric))
        .filter_map(|metric| {
            let (_, reading, needs) = READINGS.iter().find(|(name, ..)| *name == metric.name)?;
            let has = match needs {
                Needs::Nothing => true,
                Needs::Nvidia => model.nvidia,
                Needs::Nvlink => nvlinks > 0,
                Needs::Ecc => model.ecc,
                Needs::Gpm => model.gpm,
                Needs::Fan => model.fan,
                Needs::MemoryThermometer => model.memory_thermometer,
            };
            has.then_some((metric, *reading))
        })
        .collect()
}

impl Reading {
    /// The number a driver would give now.
    pub(super) fn of(self, gpu: &Gpu, nvlinks: u32) -> Option<f64> {
        match gpu.health {
            Health::Answering => self.answer(gpu, nvlinks),
            Health::Hung | Health::Lost => (self == Self::Unresponsive).then_some(1.0),
        }
    }

    fn answer(self, gpu: &Gpu, nvlinks: u32) -> Option<f64> {
        let model = gpu.model;
        let seen = &gpu.seen;
        let value = match self {
            Self::Utilization => seen.utilization_percent,
            Self::MemoryController => seen.memory_controller_percent,
            Self::MemoryUsed => seen.memory_used_bytes,
            Self::MemoryTotal => model.memory_bytes,
            Self::Temperature => seen.temperature_celsius.round(),
            Self::Power => (seen.power_watts * 1e3).round(),
            Self::PowerLimit => model.power_limit_watts * 1e3,
            Self::Energy => seen.energy_millijoules.round(),
            Self::ClockSm => gpu.clock_sm_mhz(),
            Self::ClockMemory if gpu.rests() => model.clock_memory_idle_mhz,
            Self::ClockMemory => model.clock_memory_mhz,
            Self::ClockEventReasons => f64::from(seen.clock_event_reasons),
            Self::ThrottlePower => seen.throttle_power_nanoseconds.round(),
            Self::ThrottleThermal => seen.throttle_thermal_nanoseconds.round(),
            // Boards that rest their memory clock rest their bus, too.
            Self::PcieGeneration
                if gpu.rests() && model.clock_memory_idle_mhz < model.clock_memory_mhz =>
            {
                1.0
            },
            Self::PcieGeneration => model.pcie_generation,
            Self::PcieWidth => 16.0,
            Self::PcieReplays => f64::from(seen.pcie_replays),
            Self::EccCorrected => f64::from(seen.ecc_corrected),
            Self::EccUncorrected => f64::from(seen.ecc_uncorrected),
            Self::RemappedCorrected => f64::from(seen.remapped_rows_corrected),
            Self::RemappedUncorrected => f64::from(seen.remapped_rows_uncorrected),
            Self::RemappedPending => f64::from(u8::from(seen.remapped_rows_pending)),
            Self::RemappedFailed | Self::Unresponsive | Self::Encoder | Self::Decoder => 0.0,
            Self::XidLast => return seen.xid_last.map(f64::from),
            Self::ProcessCount => f64::from(u8::from(seen.held)),
            Self::Fan => {
                (30.0 + (seen.temperature_celsius - 45.0).max(0.0) * 1.8).round().min(100.0)
            },
            Self::PerformanceState if gpu.rests() => 8.0,
            Self::PerformanceState => 0.0,
            Self::MemoryTemperature => (seen.temperature_celsius + 6.0).round(),
            Self::Average(average) => average.of(gpu, nvlinks),
        };
        Some(value)
    }
}

impl Average {
    fn of(self, gpu: &Gpu, nvlinks: u32) -> f64 {
        let model = gpu.model;
        let average = &gpu.seen.average;
        let percent = |share: f64| (share * 100.0).clamp(0.0, 100.0);
        let nvlink = average.nvlink * f64::from(nvlinks) * model.nvlink_bytes_per_second;
        match self {
            Self::PcieRx => average.pcie_rx * model.pcie_bytes_per_second,
            Self::PcieTx => average.pcie_tx * model.pcie_bytes_per_second,
            Self::NvlinkRx => nvlink,
            Self::NvlinkTx => nvlink * gpu.lopsided(),
            Self::Sm => percent(average.sm),
            Self::Occupancy => percent(average.occupancy),
            Self::Tensor => percent(average.tensor),
            Self::Fp64 => 0.0,
            Self::Fp32 => percent(average.fp32),
            Self::Fp16 => percent(average.fp16),
            Self::Dram => percent(average.dram),
            Self::DramBytes => average.dram.clamp(0.0, 1.0) * model.memory_bytes_per_second,
        }
    }
}
