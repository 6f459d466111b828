//! The metric catalogue: every number gswarm records, what it means and how others spell it.
//!
//! `docs/metrics.md` is generated from here. A name is identity on wire and disk: its meaning and
//! unit never change; a new meaning gets a new name.

use crate::table::Scope;

/// How a value behaves over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows until the source restarts.
    Counter,
    /// A set of flags.
    Bits,
}

/// How a value is kept on wire and disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    Integer,
    Float,
}

/// Whether a value is recorded without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Cheap: always recorded.
    Always,
    /// Recorded when named in `--extra-metrics`.
    Extra,
}

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub scope: Scope,
    pub kind: Kind,
    pub storage: Storage,
    /// Native unit, as the driver or kernel gives it.
    pub unit: &'static str,
    pub tier: Tier,
    /// Spelling in the old tool's output and `-r` option.
    pub legacy: Option<&'static str>,
    /// Spelling of the equivalent DCGM field.
    pub dcgm: Option<&'static str>,
    pub help: &'static str,
}

impl Metric {
    /// Looks a metric up by name.
    pub fn find(name: &str) -> Option<&'static Self> {
        // The catalogue is sorted by scope for readers; at ~70 rows a scan of lengths and bytes is
        // cheaper than building an index, and hot paths resolve names once per table.
        CATALOGUE.iter().find(|metric| metric.name == name)
    }

    /// Spelling on `/metrics`: prefix, name, and `_total` for counters.
    pub fn prometheus(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("gswarm_{}{suffix}", self.name)
    }

    /// Spelling in OTLP: dotted.
    pub fn otlp(&self) -> String {
        format!("gswarm.{}.{}", self.scope.as_str(), self.name)
    }
}

const fn gpu(name: &'static str, unit: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        scope: Scope::Gpu,
        kind: Kind::Gauge,
        storage: Storage::Integer,
        unit,
        tier: Tier::Always,
        legacy: None,
        dcgm: None,
        help,
    }
}

const fn on(scope: Scope, metric: Metric) -> Metric {
    Metric { scope, ..metric }
}

const fn float(metric: Metric) -> Metric {
    Metric { storage: Storage::Float, ..metric }
}

const fn counter(metric: Metric) -> Metric {
    Metric { kind: Kind::Counter, ..metric }
}

const fn bits(metric: Metric) -> Metric {
    Metric { kind: Kind::Bits, ..metric }
}

const fn extra(metric: Metric) -> Metric {
    Metric { tier: Tier::Extra, ..metric }
}

const fn legacy(name: &'static str, metric: Metric) -> Metric {
    Metric { legacy: Some(name), ..metric }
}

const fn dcgm(name: &'static str, metric: Metric) -> Metric {
    Metric { dcgm: Some(name), ..metric }
}

/// Every metric, by scope.
#[rustfmt::skip]
pub const CATALOGUE: &[Metric] = &[
    legacy("gpu_util", dcgm("DCGM_FI_DEV_GPU_UTIL", gpu("gpu_utilization", "percent", "Share of time in which at least one kernel ran; says little by itself, see sm_activity"))),
    dcgm("DCGM_FI_DEV_MEM_COPY_UTIL", gpu("memory_controller_utilization", "percent", "Share of time in which device memory was read or written")),
    dcgm("DCGM_FI_DEV_FB_USED", gpu("memory_used_bytes", "bytes", "Device memory in use, without what the driver reserves")),
    gpu("memory_total_bytes", "bytes", "Device memory of the device"),
    legacy("gpu_memory", float(gpu("memory_used_percent", "percent", "Share of device memory in use, only from sources that give no bytes"))),
    dcgm("DCGM_FI_DEV_GPU_TEMP", gpu("temperature_celsius", "celsius", "Core temperature")),
    dcgm("DCGM_FI_DEV_POWER_USAGE", gpu("power_milliwatts", "mW", "Power draw of the board, averaged by the driver")),
    dcgm("DCGM_FI_DEV_POWER_MGMT_LIMIT", gpu("power_limit_milliwatts", "mW", "Power limit in force")),
    dcgm("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", counter(gpu("energy_millijoules", "mJ", "Energy since the driver was loaded; read rarely because the call is slow"))),
    dcgm("DCGM_FI_DEV_SM_CLOCK", gpu("clock_sm_mhz", "MHz", "Clock of the multiprocessors")),
    dcgm("DCGM_FI_DEV_MEM_CLOCK", gpu("clock_memory_mhz", "MHz", "Clock of the device memory")),
    dcgm("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", bits(gpu("clock_event_reasons", "flags", "Why the clocks are where they are (NVML clock event reasons)"))),
    dcgm("DCGM_FI_DEV_POWER_VIOLATION", counter(gpu("throttle_power_nanoseconds", "ns", "Time spent below the requested clocks because of the power limit"))),
    dcgm("DCGM_FI_DEV_THERMAL_VIOLATION", counter(gpu("throttle_thermal_nanoseconds", "ns", "Time spent below the requested clocks because of heat"))),
    gpu("pcie_generation", "generation", "PCIe generation in use"),
    gpu("pcie_width", "lanes", "PCIe lanes in use"),
    legacy("dram_bandwidth_rx", dcgm("DCGM_FI_PROF_PCIE_RX_BYTES", float(gpu("pcie_rx_bytes_per_second", "B/s", "Host to GPU traffic over PCIe")))),
    legacy("dram_bandwidth_tx", dcgm("DCGM_FI_PROF_PCIE_TX_BYTES", float(gpu("pcie_tx_bytes_per_second", "B/s", "GPU to host traffic over PCIe")))),
    dcgm("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", counter(gpu("pcie_replays", "count", "PCIe packets sent again"))),
    dcgm("DCGM_FI_PROF_NVLINK_RX_BYTES", float(gpu("nvlink_rx_bytes_per_second", "B/s", "Received over all NVLinks of the device"))),
    dcgm("DCGM_FI_PROF_NVLINK_TX_BYTES", float(gpu("nvlink_tx_bytes_per_second", "B/s", "Sent over all NVLinks of the device"))),
    dcgm("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", counter(gpu("ecc_corrected", "count", "Corrected memory errors since the driver was loaded"))),
    dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", counter(gpu("ecc_uncorrected", "count", "Uncorrected memory errors since the driver was loaded"))),
    dcgm("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", gpu("remapped_rows_corrected", "rows", "Rows replaced after corrected errors")),
    dcgm("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", gpu("remapped_rows_uncorrected", "rows", "Rows replaced after uncorrected errors")),
    gpu("remapped_rows_pending", "bool", "1 while a row replacement waits for a reset"),
    dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE", gpu("remapped_rows_failed", "bool", "1 after a row replacement failed: the board needs service")),
    dcgm("DCGM_FI_DEV_XID_ERRORS", gpu("xid_last", "code", "The last XID error of the device")),
    gpu("process_count", "count", "Processes that hold memory on the device"),
    gpu("unresponsive", "bool", "1 while the driver does not answer for this device within the deadline"),
    dcgm("DCGM_FI_PROF_SM_ACTIVE", float(gpu("sm_activity", "percent", "Share of multiprocessors with work, averaged over time (GPM)"))),
    dcgm("DCGM_FI_PROF_SM_OCCUPANCY", float(gpu("sm_occupancy", "percent", "Resident warps against the maximum (GPM)"))),
    dcgm("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", float(gpu("tensor_activity", "percent", "Tensor pipe busy (GPM); overstates model FLOPS use by about a tenth"))),
    dcgm("DCGM_FI_PROF_PIPE_FP64_ACTIVE", float(gpu("fp64_activity", "percent", "FP64 pipe busy (GPM)"))),
    dcgm("DCGM_FI_PROF_PIPE_FP32_ACTIVE", float(gpu("fp32_activity", "percent", "FP32 pipe busy (GPM)"))),
    dcgm("DCGM_FI_PROF_PIPE_FP16_ACTIVE", float(gpu("fp16_activity", "percent", "FP16 pipe busy (GPM)"))),
    dcgm("DCGM_FI_PROF_DRAM_ACTIVE", float(gpu("device_memory_activity", "percent", "Device memory bandwidth in use against the peak (GPM)"))),
    float(gpu("device_memory_bandwidth_bytes_per_second", "B/s", "Device memory traffic: device_memory_activity times the peak of clock and bus width")),
    extra(dcgm("DCGM_FI_DEV_ENC_UTIL", gpu("encoder_utilization", "percent", "Video encoder busy"))),
    extra(dcgm("DCGM_FI_DEV_DEC_UTIL", gpu("decoder_utilization", "percent", "Video decoder busy"))),
    extra(dcgm("DCGM_FI_DEV_FAN_SPEED", gpu("fan_percent", "percent", "Fan speed against its maximum"))),
    extra(gpu("performance_state", "state", "0 is the fastest performance state")),
    extra(dcgm("DCGM_FI_DEV_MEMORY_TEMP", gpu("memory_temperature_celsius", "celsius", "Temperature of the device memory"))),

    on(Scope::Link, float(gpu("link_rx_bytes_per_second", "B/s", "Received over one NVLink"))),
    on(Scope::Link, float(gpu("link_tx_bytes_per_second", "B/s", "Sent over one NVLink"))),
    on(Scope::Link, gpu("link_up", "bool", "1 while the link is active")),

    on(Scope::Node, float(gpu("node_cpu_utilization", "percent", "Busy share of all CPUs"))),
    on(Scope::Node, float(gpu("node_load_1m", "tasks", "Load average over one minute"))),
    on(Scope::Node, gpu("node_memory_total_bytes", "bytes", "Main memory")),
    on(Scope::Node, gpu("node_memory_used_bytes", "bytes", "Main memory that is not available to new programs")),
    on(Scope::Node, legacy("dram_util", float(gpu("node_memory_used_percent", "percent", "Share of main memory in use, only from sources that give no bytes")))),
    on(Scope::Node, legacy("disk_util", float(gpu("node_disk_used_percent", "percent", "Share of the disk in use, only from sources that give no bytes")))),
    on(Scope::Node, gpu("node_swap_used_bytes", "bytes", "Swap in use")),
    on(Scope::Node, gpu("node_disk_used_bytes", "bytes", "Used on the root file system")),
    on(Scope::Node, gpu("node_disk_total_bytes", "bytes", "Size of the root file system")),
    on(Scope::Node, float(gpu("agent_cpu_percent", "percent", "The agent's own CPU time, in percent of one core"))),
    on(Scope::Node, gpu("agent_memory_bytes", "bytes", "The agent's own resident memory")),
    on(Scope::Node, counter(gpu("agent_driver_microseconds", "us", "Time the agent spent inside driver calls"))),
    on(Scope::Node, gpu("spool_records", "count", "Records on the node that the host has not acknowledged")),
    on(Scope::Node, counter(gpu("spool_dropped", "count", "Records dropped because the spool was full"))),

    on(Scope::Disk, float(gpu("disk_read_bytes_per_second", "B/s", "Read from the disk"))),
    on(Scope::Disk, float(gpu("disk_write_bytes_per_second", "B/s", "Written to the disk"))),
    on(Scope::Disk, float(gpu("disk_busy_percent", "percent", "Share of time with at least one request in flight"))),

    on(Scope::Nic, float(gpu("nic_rx_bytes_per_second", "B/s", "Received over the interface"))),
    on(Scope::Nic, float(gpu("nic_tx_bytes_per_second", "B/s", "Sent over the interface"))),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_snake_case() {
        let mut seen = HashSet::new();
        for metric in CATALOGUE {
            assert!(seen.insert(metric.name), "{} twice", metric.name);
            assert!(
                metric
                    .name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
                "{}",
                metric.name
            );
            assert!(!metric.help.ends_with('.'), "{}", metric.name);
            assert_eq!(Metric::find(metric.name), Some(metric));
        }
    }
}
