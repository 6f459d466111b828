//! The simulated products and what their drivers report.

use std::fmt;

/// A product that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuModel {
    H100,
    A100,
    H200,
    L4,
    Rtx4090,
    Mi300x,
}

/// What one product is and can do.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) product: &'static str,
    pub(super) nvidia: bool,
    pub(crate) memory_bytes: f64,
    pub(super) power_limit_watts: f64,
    pub(super) power_idle_watts: f64,
    /// Power at full load and full clock against the limit: above 1 the clock has to fall.
    pub(super) power_demand: f64,
    pub(super) clock_max_mhz: f64,
    pub(super) clock_idle_mhz: f64,
    pub(super) clock_memory_mhz: f64,
    pub(super) clock_memory_idle_mhz: f64,
    pub(super) memory_bytes_per_second: f64,
    pub(super) pcie_generation: f64,
    pub(super) pcie_bytes_per_second: f64,
    /// Counted as the driver counts them; 0 where there are none.
    pub(super) nvlinks: u32,
    pub(super) nvlink_bytes_per_second: f64,
    /// Whether the driver has the counters behind `sm_activity` and the pipes.
    pub(super) gpm: bool,
    pub(super) ecc: bool,
    pub(super) fan: bool,
    pub(super) memory_thermometer: bool,
    /// Degrees above the inlet for each watt.
    pub(super) heat_celsius_per_watt: f64,
}

const H100: Model = Model {
    product: "NVIDIA H100 80GB HBM3",
    nvidia: true,
    memory_bytes: 85_520_809_984.0,
    power_limit_watts: 700.0,
    power_idle_watts: 70.0,
    power_demand: 1.75,
    clock_max_mhz: 1_980.0,
    clock_idle_mhz: 345.0,
    clock_memory_mhz: 2_619.0,
    clock_memory_idle_mhz: 2_619.0,
    memory_bytes_per_second: 3_352e9,
    pcie_generation: 5.0,
    pcie_bytes_per_second: 55e9,
    nvlinks: 18,
    nvlink_bytes_per_second: 26.562e9,
    gpm: true,
    ecc: true,
    fan: false,
    memory_thermometer: true,
    heat_celsius_per_watt: 0.055,
};

const H200: Model = Model {
    product: "NVIDIA H200",
    memory_bytes: 150_754_820_096.0,
    power_idle_watts: 76.0,
    clock_memory_mhz: 3_201.0,
    clock_memory_idle_mhz: 3_201.0,
    memory_bytes_per_second: 4_814e9,
    ..H100
};

const A100: Model = Model {
    product: "NVIDIA A100-SXM4-80GB",
    memory_bytes: 85_899_345_920.0,
    power_limit_watts: 400.0,
    power_idle_watts: 56.0,
    power_demand: 1.3,
    clock_max_mhz: 1_410.0,
    clock_idle_mhz: 210.0,
    clock_memory_mhz: 1_593.0,
    clock_memory_idle_mhz: 1_593.0,
    memory_bytes_per_second: 2_039e9,
    pcie_generation: 4.0,
    pcie_bytes_per_second: 26e9,
    nvlinks: 12,
    nvlink_bytes_per_second: 25e9,
    gpm: false,
    heat_celsius_per_watt: 0.09,
    ..H100
};

const L4: Model = Model {
    product: "NVIDIA L4",
    memory_bytes: 24_152_899_584.0,
    power_limit_watts: 72.0,
    power_idle_watts: 16.0,
    power_demand: 1.6,
    clock_max_mhz: 2_040.0,
    clock_idle_mhz: 210.0,
    clock_memory_mhz: 6_251.0,
    clock_memory_idle_mhz: 405.0,
    memory_bytes_per_second: 300e9,
    nvlinks: 0,
    memory_thermometer: false,
    heat_celsius_per_watt: 0.6,
    ..A100
};

const RTX_4090: Model = Model {
    product: "NVIDIA GeForce RTX 4090",
    memory_bytes: 25_757_220_864.0,
    power_limit_watts: 450.0,
    power_idle_watts: 22.0,
    power_demand: 1.1,
    clock_max_mhz: 2_745.0,
    clock_memory_mhz: 10_501.0,
    memory_bytes_per_second: 1_008e9,
    ecc: false,
    fan: true,
    heat_celsius_per_watt: 0.11,
    ..L4
};

const MI300X: Model = Model {
    product: "AMD Instinct MI300X",
    nvidia: false,
    memory_bytes: 206_141_652_992.0,
    power_limit_watts: 750.0,
    power_idle_watts: 140.0,
    power_demand: 1.4,
    clock_max_mhz: 2_100.0,
    clock_idle_mhz: 135.0,
    clock_memory_mhz: 1_300.0,
    clock_memory_idle_mhz: 900.0,
    memory_bytes_per_second: 5_300e9,
    nvlinks: 0,
    gpm: false,
    heat_celsius_per_watt: 0.05,
    ..H100
};

impl GpuModel {
    pub const ALL: [Self; 6] =
        [Self::H100, Self::A100, Self::H200, Self::L4, Self::Rtx4090, Self::Mi300x];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::H100 => "h100",
            Self::A100 => "a100",
            Self::H200 => "h200",
            Self::L4 => "l4",
            Self::Rtx4090 => "rtx4090",
            Self::Mi300x => "mi300x",
        }
    }

    pub(crate) const fn model(self) -> &'static Model {
        match self {
            Self::H100 => &H100,
            Self::A100 => &A100,
            Self::H200 => &H200,
            Self::L4 => &L4,
            Self::Rtx4090 => &RTX_4090,
            Self::Mi300x => &MI300X,
        }
    }
}

impl fmt::Display for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
