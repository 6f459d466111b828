//! The GPM counters of one GPU: kept until they move, held for a short while, then dropped.

use gswarm_driver::{Device, GpmMetric, NvmlError};
use gswarm_types::Micros;

use super::reading::Key;

/// GPM traffic is in MiB/s.
const BYTES_PER_MEBIBYTE: f64 = 1_048_576.0;

/// How often the hardware moves the counters.
const STEP: Micros = Micros::from_millis(100);

const BASE: [(&str, GpmMetric); 9] = [
    ("sm_activity", GpmMetric::SmActivity),
    ("sm_occupancy", GpmMetric::SmOccupancy),
    ("tensor_activity", GpmMetric::Tensor),
    ("fp64_activity", GpmMetric::Fp64),
    ("fp32_activity", GpmMetric::Fp32),
    ("fp16_activity", GpmMetric::Fp16),
    (MEMORY_METRIC, GpmMetric::DeviceMemory),
    ("pcie_rx_bytes_per_second", GpmMetric::PcieReceive),
    ("pcie_tx_bytes_per_second", GpmMetric::PcieTransmit),
];

/// The one that tells whether the counters moved.
pub(super) const MEMORY_METRIC: &str = "device_memory_activity";

/// The counters of one GPU and what was last shown of them.
#[derive(Debug)]
pub(super) struct Gpm {
    counters: gswarm_driver::Gpm,
    columns: Vec<Column>,
    hold: Hold,
}

#[derive(Debug)]
struct Column {
    key: Key,
    scale: f64,
}

/// The last values and how long they may be shown.
#[derive(Debug, Default)]
struct Hold {
    last: Option<(Micros, Vec<Option<f64>>)>,
    asked: Option<Micros>,
}

impl Gpm {
    /// Takes the first sample. Any failure means that this GPU has no GPM for us: not the
    /// hardware, an old driver, or counters reserved for the administrator.
    pub(super) fn open(device: &Device) -> Result<Self, NvmlError> {
        let counters = gswarm_driver::Gpm::open(device, &[])?;
        let mut gpm = Self { counters, columns: Vec::new(), hold: Hold::default() };
        gpm.follow(&[]);
        // Nothing has moved yet; this only finds out whether the call is there.
        gpm.counters.read()?;
        Ok(gpm)
    }

    /// Reads these links, too, from now on.
    pub(super) fn follow(&mut self, links: &[u32]) {
        let wanted = wanted(links);
        let kinds: Vec<GpmMetric> = wanted.iter().map(|(_, metric)| *metric).collect();
        self.counters.choose(&kinds);
        self.columns = wanted.iter().map(|(key, kind)| Column::new(*key, *kind)).collect();
        self.hold = Hold::default();
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.columns.iter().map(|column| column.key)
    }

    /// Appends one value for each key.
    pub(super) fn read(
        &mut self,
        now: Micros,
        cells: &mut Vec<Option<f64>>,
    ) -> Result<(), NvmlError> {
        let fresh = self.fresh();
        let lost = matches!(fresh, Err(NvmlError::GpuLost));
        match self.hold.report(now, fresh.ok().flatten()) {
            Some(values) => cells.extend_from_slice(values),
            None => cells.resize(cells.len() + self.columns.len(), None),
        }
        if lost { Err(NvmlError::GpuLost) } else { Ok(()) }
    }

    /// The values since the older sample, or `None` while the counters stand still. Between two
    /// steps of the hardware everything reads 0 and the memory metric is not a number, so the
    /// older sample stays until that one is finite.
    fn fresh(&mut self) -> Result<Option<Vec<Option<f64>>>, NvmlError> {
        let mut values = self.counters.read()?;
        let memory = self.columns.iter().position(|column| column.key.metric == MEMORY_METRIC);
        if memory.and_then(|position| values.get(position).copied().flatten()).is_none() {
            return Ok(None);
        }
        self.counters.keep();
        for (value, column) in values.iter_mut().zip(&self.columns) {
            *value = value.map(|value| value * column.scale);
        }
        Ok(Some(values))
    }
}

impl Column {
    const fn new(key: Key, kind: GpmMetric) -> Self {
        let scale = match kind {
            GpmMetric::SmActivity
            | GpmMetric::SmOccupancy
            | GpmMetric::Tensor
            | GpmMetric::DeviceMemory
            | GpmMetric::Fp64
            | GpmMetric::Fp32
            | GpmMetric::Fp16 => 1.0,
            GpmMetric::PcieTransmit
            | GpmMetric::PcieReceive
            | GpmMetric::LinksReceive
            | GpmMetric::LinksTransmit
            | GpmMetric::LinkReceive(_)
            | GpmMetric::LinkTransmit(_) => BYTES_PER_MEBIBYTE,
        };
        Self { key, scale }
    }
}

impl Hold {
    /// What to show: the fresh values, or the last ones while they are younger than one and a half
    /// times the longer of the sampling period and the step of the hardware.
    fn report(&mut self, now: Micros, fresh: Option<Vec<Option<f64>>>) -> Option<&[Option<f64>]> {
        let period = self.asked.replace(now).map_or(Micros::ZERO, |asked| now - asked);
        if let Some(values) = fresh {
            self.last = Some((now, values));
        }
        let age_max = Micros(period.max(STEP).0.saturating_mul(3) / 2);
        match &self.last {
            Some((at, values)) if now - *at <= age_max => Some(values),
            _ => None,
        }
    }
}

fn wanted(links: &[u32]) -> Vec<(Key, GpmMetric)> {
    let mut wanted: Vec<_> = BASE.iter().map(|(metric, kind)| (Key::gpu(metric), *kind)).collect();
    if !links.is_empty() {
        wanted.push((Key::gpu("nvlink_rx_bytes_per_second"), GpmMetric::LinksReceive));
        wanted.push((Key::gpu("nvlink_tx_bytes_per_second"), GpmMetric::LinksTransmit));
    }
    for link in links {
        wanted.push((Key::link("link_rx_bytes_per_second", *link), GpmMetric::LinkReceive(*link)));
        wanted.push((Key::link("link_tx_bytes_per_second", *link), GpmMetric::LinkTransmit(*link)));
    }
    wanted
}

#[cfg(test)]
mod tests {
    use gswarm_types::metric::Metric;

    use super::*;

    /// Ticks as `milliseconds:value` or `milliseconds:` for counters that stand still.
    #[track_caller]
    fn check(ticks: &str, expected: &str) {
        let mut hold = Hold::default();
        let shown: Vec<String> = ticks
            .split(' ')
            .map(|tick| {
                let (at, value) = tick.split_once(':').unwrap();
                let fresh = value.parse().ok().map(|value: f64| vec![Some(value)]);
                hold.report(Micros::from_millis(at.parse().unwrap()), fresh)
                    .and_then(|values| values[0])
                    .map_or_else(|| "-".to_owned(), |value| value.to_string())
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn values_are_held_for_one_and_a_half_periods() {
        check("0:", "-");
        check("0:1 50: 100:2", "1 1 2");
        check("0:1 100: 200: 300:3", "1 1 - 3");
        check("0:1 1000: 2000: 3000:4", "1 1 - 4");
    }

    #[test]
    fn every_metric_is_in_the_catalogue() {
        for (key, _) in wanted(&[0, 17]) {
            assert!(Metric::find(key.metric).is_some(), "{}", key.metric);
        }
    }
}
