//! What is read from one GPU: which call gives which metrics, in which unit, and how often.

use gswarm_driver::{ClockKind, Device, EccKind, FieldId, NvmlError, PcieDirection, ThrottleCause};
use gswarm_types::Micros;
use gswarm_types::metric::{Metric, Tier};

/// The most metrics one reading gives.
const VALUES_MAX: usize = 4;

/// NVML counts PCIe traffic in thousands of bytes, NVLink and GPM traffic in powers of two.
const BYTES_PER_KILOBYTE: f64 = 1e3;

/// One value of one GPU, or of one of its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) metric: &'static str,
    pub(super) link: Option<u32>,
}

/// The values of one reading; only as many as it has metrics count.
pub(super) type Values = [f64; VALUES_MAX];

/// A call, or a few that belong together, and the metrics it fills.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) metrics: &'static [&'static str],
    pub(super) read: fn(&Device) -> Result<Values, NvmlError>,
}

/// A reading that is quick enough for the tick.
#[derive(Debug)]
pub(super) struct FastReading {
    pub(super) reading: Reading,
    /// How long its values are held.
    pub(super) every: Micros,
}

const TICK: Micros = Micros::ZERO;
const HALF_SECOND: Micros = Micros::from_millis(500);
const SECOND: Micros = Micros::from_secs(1);

/// A reading that is too slow for the tick.
#[derive(Debug)]
pub(super) struct SlowReading {
    pub(super) reading: Reading,
    pub(super) every: Micros,
    /// Only for GPUs without GPM, which gives the same cheaply.
    pub(super) instead_of_gpm: bool,
}

impl Key {
    pub(super) const fn gpu(metric: &'static str) -> Self {
        Self { metric, link: None }
    }

    pub(super) const fn link(metric: &'static str, link: u32) -> Self {
        Self { metric, link: Some(link) }
    }
}

impl Reading {
    /// Whether it is recorded: always, or because one of its metrics was asked for.
    pub(super) fn is_wanted(&self, extra: &[&'static Metric]) -> bool {
        self.metrics.iter().any(|name| {
            Metric::find(name).is_some_and(|m| m.tier == Tier::Always || extra.contains(&m))
        })
    }
}

/// Read in the tick. Each takes a few microseconds from the driver's cache and up to a hundred when
/// the driver refreshes that, which happens every 100 to 200 ms. What changes slowly is held between
/// quick ticks: ten times a second nobody needs the power limit, and every call costs.
pub(super) const FAST: &[FastReading] = &[
    FastReading {
        reading: Reading {
            metrics: &["gpu_utilization", "memory_controller_utilization"],
            read: |d| d.utilization().map(|u| two(f64::from(u.gpu), f64::from(u.memory))),
        },
        every: TICK,
    },
    FastReading {
        reading: Reading {
            metrics: &["memory_used_bytes", "memory_total_bytes"],
            read: |d| d.memory().map(|m| two(m.used as f64, m.total as f64)),
        },
        every: TICK,
    },
    FastReading {
        reading: Reading {
            metrics: &["temperature_celsius"],
            read: |d| d.temperature_celsius().map(|v| one(v.into())),
        },
        every: HALF_SECOND,
    },
    FastReading {
        reading: Reading {
            metrics: &["power_milliwatts"],
            read: |d| d.power_milliwatts().map(|v| one(v.into())),
        },
        every: TICK,
    },
    FastReading {
        reading: Reading {
            metrics: &["power_limit_milliwatts"],
            read: |d| d.power_limit_milliwatts().map(|v| one(v.into())),
        },
        every: SECOND,
    },
    FastReading {
        reading: Reading {
            metrics: &["clock_sm_mhz"],
            read: |d| d.clock_mhz(ClockKind::Sm).map(|v| one(v.into())),
        },
        every: TICK,
    },
    FastReading {
        reading: Reading {
            metrics: &["clock_memory_mhz"],
            read: |d| d.clock_mhz(ClockKind::Memory).map(|v| one(v.into())),
        },
        every: HALF_SECOND,
    },
    FastReading {
        reading: Reading {
            metrics: &["clock_event_reasons"],
            read: |d| d.clock_event_reasons().map(|v| one(v as f64)),
        },
        every: TICK,
    },
    FastReading {
        reading: Reading {
            metrics: &["encoder_utilization"],
            read: |d| d.encoder_utilization().map(|v| one(v.into())),
        },
        every: HALF_SECOND,
    },
    FastReading {
        reading: Reading {
            metrics: &["decoder_utilization"],
            read: |d| d.decoder_utilization().map(|v| one(v.into())),
        },
        every: HALF_SECOND,
    },
    FastReading {
        reading: Reading {
            metrics: &["fan_percent"],
            read: |d| d.fan_percent().map(|v| one(v.into())),
        },
        every: SECOND,
    },
    FastReading {
        reading: Reading {
            metrics: &["performance_state"],
            read: |d| d.performance_state().map(|v| one(v.into())),
        },
        every: HALF_SECOND,
    },
    FastReading {
        reading: Reading {
            metrics: &["memory_temperature_celsius"],
            read: |d| d.field(FieldId::MemoryTemperature).map(|field| one(field.value)),
        },
        every: HALF_SECOND,
    },
];

/// Read on a thread of their own, never in the tick: they take 50 us to 20 ms.
pub(super) const SLOW: &[SlowReading] = &[
    SlowReading {
        // Blocks for 20 ms in each direction while the driver measures.
        reading: Reading {
            metrics: &["pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"],
            read: |d| {
                let rx = d.pcie_kilobytes_per_second(PcieDirection::Receive)?;
                let tx = d.pcie_kilobytes_per_second(PcieDirection::Transmit)?;
                Ok(two(f64::from(rx) * BYTES_PER_KILOBYTE, f64::from(tx) * BYTES_PER_KILOBYTE))
            },
        },
        every: Micros::from_secs(1),
        instead_of_gpm: true,
    },
    SlowReading {
        reading: Reading {
            metrics: &["pcie_generation", "pcie_width"],
            read: |d| Ok(two(d.pcie_generation()?.into(), d.pcie_width()?.into())),
        },
        every: Micros::from_secs(5),
        instead_of_gpm: false,
    },
    SlowReading {
        reading: Reading {
            metrics: &["ecc_corrected", "ecc_uncorrected"],
            read: |d| {
                let corrected = d.ecc_errors(EccKind::Corrected)?;
                Ok(two(corrected as f64, d.ecc_errors(EccKind::Uncorrected)? as f64))
            },
        },
        every: Micros::from_secs(5),
        instead_of_gpm: false,
    },
    SlowReading {
        reading: Reading {
            metrics: &["throttle_power_nanoseconds"],
            read: |d| d.throttle_nanoseconds(ThrottleCause::Power).map(|v| one(v as f64)),
        },
        every: Micros::from_secs(5),
        instead_of_gpm: false,
    },
    SlowReading {
        reading: Reading {
            metrics: &["throttle_thermal_nanoseconds"],
            read: |d| d.throttle_nanoseconds(ThrottleCause::Thermal).map(|v| one(v as f64)),
        },
        every: Micros::from_secs(5),
        instead_of_gpm: false,
    },
    SlowReading {
        reading: Reading {
            metrics: &["energy_millijoules"],
            read: |d| d.energy_millijoules().map(|v| one(v as f64)),
        },
        every: Micros::from_secs(10),
        instead_of_gpm: false,
    },
    SlowReading {
        reading: Reading {
            metrics: &["pcie_replays"],
            read: |d| d.pcie_replays().map(|v| one(v.into())),
        },
        every: Micros::from_secs(10),
        instead_of_gpm: false,
    },
    SlowReading {
        reading: Reading {
            metrics: &[
                "remapped_rows_corrected",
                "remapped_rows_uncorrected",
                "remapped_rows_pending",
                "remapped_rows_failed",
            ],
            read: |d| {
                let rows = d.remapped_rows()?;
                let flags = [f64::from(u8::from(rows.pending)), f64::from(u8::from(rows.failed))];
                Ok([rows.corrected.into(), rows.uncorrected.into(), flags[0], flags[1]])
            },
        },
        every: Micros::from_secs(10),
        instead_of_gpm: false,
    },
];

/// The peak of the device memory in bytes per second: two transfers for each clock over the whole
/// bus. The bus width is the one the driver reports, which leaves out disabled parts: an H200
/// says 6016 bits at 3201 MHz, which is 4814 GB/s and agrees with what its counters mean by 100 %.
pub(super) fn peak_memory_bytes_per_second(device: &Device) -> Result<f64, NvmlError> {
    let clock_hz = f64::from(device.clock_max_mhz(ClockKind::Memory)?) * 1e6;
    let bus_bytes = f64::from(device.memory_bus_width_bits()?) / 8.0;
    Ok(2.0 * clock_hz * bus_bytes)
}

const fn one(value: f64) -> Values {
    two(value, 0.0)
}

const fn two(first: f64, second: f64) -> Values {
    [first, second, 0.0, 0.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_in_the_catalogue() {
        let slow = SLOW.iter().map(|slow| &slow.reading);
        let fast = FAST.iter().map(|fast| &fast.reading);
        for reading in fast.chain(slow) {
            assert!(reading.metrics.len() <= VALUES_MAX);
            for name in reading.metrics {
                assert!(Metric::find(name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn extras_are_read_only_when_asked_for() {
        let fan = FAST.iter().find(|fast| fast.reading.metrics == ["fan_percent"]).unwrap();
        assert!(!fan.reading.is_wanted(&[]));
        assert!(fan.reading.is_wanted(&[Metric::find("fan_percent").unwrap()]));
    }
}
