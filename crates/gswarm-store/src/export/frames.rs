//! Frames: one row per period, each cell the last value that is not too old.

use gswarm_analysis::{Integral, Stat};
use gswarm_types::{Body, Micros};

use super::collect::Collected;
use super::layout::{Field, Layout};
use super::{ExportError, ExportInput};
use crate::entry::StoredRecord;

const GIGA: f64 = 1e9;

/// The last value of one thing.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    time: Micros,
    value: Option<f64>,
}

impl Held {
    fn at(&self, time: Micros, hold: Micros) -> Option<f64> {
        self.value.filter(|_| time - self.time <= hold)
    }
}

#[derive(Debug, Clone)]
struct GpuState {
    util: Held,
    memory_used: Held,
    memory_total: Held,
    pcie_rx: Held,
    pcie_tx: Held,
    nvlink_rx: Held,
    nvlink_tx: Held,
    extra: Vec<Held>,
    util_stat: Stat,
    memory_stat: Stat,
    power_stat: Integral,
}

#[derive(Debug, Clone, Default)]
struct NodeState {
    memory_used: Held,
    memory_total: Held,
    disk_used: Held,
    disk_total: Held,
    last: Option<Micros>,
    memory_stat: Stat,
    disk_stat: Stat,
}

/// One row, in the order of the layout.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) id: u64,
    pub(super) time: Micros,
    pub(super) util: Vec<Option<f64>>,
    pub(super) memory: Vec<Option<f64>>,
    pub(super) pcie_rx: Vec<Option<f64>>,
    pub(super) pcie_tx: Vec<Option<f64>>,
    pub(super) nvlink_rx: Vec<Option<f64>>,
    pub(super) nvlink_tx: Vec<Option<f64>>,
    /// By extra metric, then by GPU.
    pub(super) extra: Vec<Vec<Option<f64>>>,
    pub(super) dram: Vec<Option<f64>>,
    pub(super) disk: Vec<Option<f64>>,
    pub(super) available: Vec<bool>,
}

/// What is known of one GPU at the end.
#[derive(Debug)]
pub(super) struct GpuSummary {
    pub(super) util: Stat,
    pub(super) memory: Stat,
    pub(super) energy_joules: Option<f64>,
}

/// What is known of one node at the end.
#[derive(Debug)]
pub(super) struct NodeSummary {
    pub(super) memory: Stat,
    pub(super) disk: Stat,
}

#[derive(Debug)]
pub(super) struct Summary {
    pub(super) gpus: Vec<GpuSummary>,
    pub(super) nodes: Vec<NodeSummary>,
    pub(super) frames: u64,
}

/// Turns time-ordered records into frames.
struct Builder<'a> {
    input: &'a ExportInput,
    layout: &'a Layout,
    gpus: Vec<GpuState>,
    nodes: Vec<NodeState>,
    next: Micros,
    frames: u64,
}

/// Shows each frame in order and returns the summaries.
pub(super) fn frames(
    input: &ExportInput,
    layout: &Layout,
    collected: &mut Collected,
    show: &mut dyn FnMut(&Frame) -> Result<(), ExportError>,
) -> Result<Summary, ExportError> {
    let gpu = GpuState {
        util: Held::default(),
        memory_used: Held::default(),
        memory_total: Held::default(),
        pcie_rx: Held::default(),
        pcie_tx: Held::default(),
        nvlink_rx: Held::default(),
        nvlink_tx: Held::default(),
        extra: vec![Held::default(); input.spec.extra_metrics.len()],
        util_stat: Stat::default(),
        memory_stat: Stat::default(),
        power_stat: Integral::default(),
    };
    let mut builder = Builder {
        input,
        layout,
        gpus: vec![gpu; layout.gpus.len()],
        nodes: vec![NodeState::default(); layout.nodes.len()],
        next: first_frame(input),
        frames: 0,
    };
    while let Some((_, payload)) = collected.merge.next().map_err(ExportError::Sort)? {
        let record: StoredRecord = serde_json::from_slice(&payload)?;
        builder.emit_before(record.time, show)?;
        builder.take(&record);
    }
    builder.emit_before(input.until() + Micros(1), show)?;
    Ok(builder.finish())
}

/// One period after the start of the window; nothing is shown of what retention took.
fn first_frame(input: &ExportInput) -> Micros {
    let (from, period) = (input.spec.from, input.spec.period.micros());
    let covered = input.expired_until.map_or(from, |oldest| oldest.max(from));
    let skipped = (covered - from).0 / period.0.max(1);
    from + Micros(period.0.saturating_mul(skipped.saturating_add(1)))
}

impl Builder<'_> {
    /// A frame at `t` shows values up to and including `t`.
    fn emit_before(
        &mut self,
        time: Micros,
        show: &mut dyn FnMut(&Frame) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        while self.next < time && self.next <= self.input.until() {
            let frame = self.frame();
            show(&frame)?;
            self.frames += 1;
            self.next = self.next + self.input.spec.period.micros();
        }
        Ok(())
    }

    fn take(&mut self, record: &StoredRecord) {
        let Body::Values(values) = &record.body else { return };
        let key = (record.node, record.incarnation, values.table);
        let cells = values.cells.as_slice();
        let hold = self.input.hold;
        for feed in self.layout.feeds(&key) {
            let value = cells.get(feed.cell).copied().flatten();
            let held = Held { time: record.time, value };
            if let Some(node) = self.nodes.get_mut(feed.slot) {
                node.take(feed.field, held);
            }
            if let Some(gpu) = self.gpus.get_mut(feed.slot) {
                gpu.take(feed.field, held, hold);
            }
        }
        let place = self.layout.nodes.iter().position(|(node, _)| *node == record.node);
        if let Some(node) = place.and_then(|at| self.nodes.get_mut(at)) {
            node.last = Some(record.time);
        }
    }

    fn frame(&self) -> Frame {
        let (time, hold) = (self.next, self.input.hold);
        let gigabytes = |held: Held| held.at(time, hold).map(|value| round(value / GIGA));
        let gpu = |pick: &dyn Fn(&GpuState) -> Option<f64>| self.gpus.iter().map(pick).collect();
        Frame {
            id: self.frames,
            time,
            util: gpu(&|g| g.util.at(time, hold)),
            memory: gpu(&|g| percent(g.memory_used.at(time, hold), g.memory_total.at(time, hold))),
            pcie_rx: gpu(&|g| gigabytes(g.pcie_rx)),
            pcie_tx: gpu(&|g| gigabytes(g.pcie_tx)),
            nvlink_rx: gpu(&|g| gigabytes(g.nvlink_rx)),
            nvlink_tx: gpu(&|g| gigabytes(g.nvlink_tx)),
            extra: (0..self.input.spec.extra_metrics.len())
                .map(|at| gpu(&|g| g.extra.get(at).and_then(|held| held.at(time, hold))))
                .collect(),
            dram: self
                .nodes
                .iter()
                .map(|n| percent(n.memory_used.at(time, hold), n.memory_total.at(time, hold)))
                .collect(),
            disk: self
                .nodes
                .iter()
                .map(|n| percent(n.disk_used.at(time, hold), n.disk_total.at(time, hold)))
                .collect(),
            available: self
                .nodes
                .iter()
                .map(|n| n.last.is_some_and(|t| time - t <= hold))
                .collect(),
        }
    }

    fn finish(self) -> Summary {
        let gpus = self.gpus.into_iter().map(|gpu| GpuSummary {
            util: gpu.util_stat,
            memory: gpu.memory_stat,
            energy_joules: gpu.power_stat.total().map(|milli| round(milli / 1_000.0)),
        });
        let nodes = self
            .nodes
            .into_iter()
            .map(|node| NodeSummary { memory: node.memory_stat, disk: node.disk_stat });
        Summary { gpus: gpus.collect(), nodes: nodes.collect(), frames: self.frames }
    }
}

impl GpuState {
    fn take(&mut self, field: Field, held: Held, hold: Micros) {
        match field {
            Field::Util => {
                self.util = held;
                if let Some(value) = held.value {
                    self.util_stat.add(value);
                }
            },
            Field::MemoryUsed => {
                self.memory_used = held;
                if let Some(value) = percent(held.value, self.memory_total.value) {
                    self.memory_stat.add(value);
                }
            },
            Field::MemoryTotal => {
                self.memory_total = held;
                // The total stands behind the used bytes in a row: the first row counts too.
                if self.memory_stat.count() == 0
                    && let Some(value) = percent(self.memory_used.value, held.value)
                {
                    self.memory_stat.add(value);
                }
            },
            Field::MemoryPercent => {
                self.memory_used = held;
                self.memory_total = Held { value: Some(100.0), ..held };
                if let Some(value) = held.value {
                    self.memory_stat.add(value);
                }
            },
            Field::PcieRx => self.pcie_rx = held,
            Field::PcieTx => self.pcie_tx = held,
            Field::NvlinkRx => self.nvlink_rx = held,
            Field::NvlinkTx => self.nvlink_tx = held,
            Field::Power => {
                if let Some(value) = held.value {
                    self.power_stat.add(held.time, value, hold);
                }
            },
            Field::Extra(at) => {
                if let Some(slot) = self.extra.get_mut(at) {
                    *slot = held;
                }
            },
            Field::NodeMemoryUsed
            | Field::NodeMemoryTotal
            | Field::NodeDiskUsed
            | Field::NodeDiskTotal
            | Field::NodeMemoryPercent
            | Field::NodeDiskPercent => {},
        }
    }
}

impl NodeState {
    fn take(&mut self, field: Field, held: Held) {
        match field {
            Field::NodeMemoryUsed => self.memory_used = held,
            Field::NodeMemoryTotal => {
                self.memory_total = held;
                if let Some(value) = percent(self.memory_used.value, held.value) {
                    self.memory_stat.add(value);
                }
            },
            Field::NodeMemoryPercent => {
                self.memory_used = held;
                self.memory_total = Held { value: Some(100.0), ..held };
                if let Some(value) = held.value {
                    self.memory_stat.add(value);
                }
            },
            Field::NodeDiskPercent => {
                self.disk_used = held;
                self.disk_total = Held { value: Some(100.0), ..held };
                if let Some(value) = held.value {
                    self.disk_stat.add(value);
                }
            },
            Field::NodeDiskUsed => self.disk_used = held,
            Field::NodeDiskTotal => {
                self.disk_total = held;
                if let Some(value) = percent(self.disk_used.value, held.value) {
                    self.disk_stat.add(value);
                }
            },
            _ => {},
        }
    }
}

fn percent(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0.0)?;
    part.map(|part| round((part / whole * 100.0).clamp(0.0, 100.0)))
}

/// Three digits after the point: more than any sensor gives.
pub(super) fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
