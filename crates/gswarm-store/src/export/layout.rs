//! Which device stands where in a frame, and which cell of a record feeds it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gswarm_types::{DeviceId, DeviceInfo, Incarnation, NodeId, Scope, Table, TableDigest};

use super::ExportInput;
use super::collect::Collected;

/// A value that frames or summaries show of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Util,
    MemoryUsed,
    MemoryTotal,
    /// From sources that give no bytes.
    MemoryPercent,
    PcieRx,
    PcieTx,
    NvlinkRx,
    NvlinkTx,
    Power,
    /// Position in the session's list of extra metrics.
    Extra(usize),
    NodeMemoryUsed,
    NodeMemoryTotal,
    NodeDiskUsed,
    NodeDiskTotal,
    NodeMemoryPercent,
    NodeDiskPercent,
}

const GPU_FIELDS: [(&str, Field); 9] = [
    ("gpu_utilization", Field::Util),
    ("memory_used_bytes", Field::MemoryUsed),
    ("memory_total_bytes", Field::MemoryTotal),
    ("memory_used_percent", Field::MemoryPercent),
    ("pcie_rx_bytes_per_second", Field::PcieRx),
    ("pcie_tx_bytes_per_second", Field::PcieTx),
    ("nvlink_rx_bytes_per_second", Field::NvlinkRx),
    ("nvlink_tx_bytes_per_second", Field::NvlinkTx),
    ("power_milliwatts", Field::Power),
];
const NODE_FIELDS: [(&str, Field); 6] = [
    ("node_memory_used_bytes", Field::NodeMemoryUsed),
    ("node_memory_total_bytes", Field::NodeMemoryTotal),
    ("node_disk_used_bytes", Field::NodeDiskUsed),
    ("node_disk_total_bytes", Field::NodeDiskTotal),
    ("node_memory_used_percent", Field::NodeMemoryPercent),
    ("node_disk_used_percent", Field::NodeDiskPercent),
];

/// One GPU of the session.
#[derive(Debug, Clone)]
pub(super) struct GpuSlot {
    pub(super) node: NodeId,
    /// `node:index:name`, for people.
    pub(super) label: String,
    pub(super) info: DeviceInfo,
}

/// Where a cell goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Feed {
    pub(super) cell: usize,
    /// Position among the GPUs, or among the nodes for node fields.
    pub(super) slot: usize,
    pub(super) field: Field,
}

type TableKey = (NodeId, Incarnation, TableDigest);

/// The fixed order of GPUs and nodes of one export.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) gpus: Vec<GpuSlot>,
    pub(super) nodes: Vec<(NodeId, String)>,
    feeds: HashMap<TableKey, Vec<Feed>>,
}

impl Layout {
    pub(super) fn new(input: &ExportInput, collected: &Collected) -> Self {
        let mut gpus: BTreeMap<(String, u32, DeviceId), GpuSlot> = BTreeMap::new();
        let mut nodes: BTreeMap<String, NodeId> = BTreeMap::new();
        for ((node, _, _), table) in &collected.tables {
            let name = input.name_of(*node);
            for (_, info) in table.devices_of(Scope::Gpu) {
                if selected(input, collected, *node, info) {
                    let label = format!("{name}:{}:{}", info.index, info.name);
                    let slot = GpuSlot { node: *node, label, info: info.clone() };
                    gpus.insert((name.clone(), info.index, info.id.clone()), slot);
                }
            }
            nodes.insert(name, *node);
        }
        let mut layout = Self {
            gpus: gpus.into_values().collect(),
            nodes: nodes.into_iter().map(|(name, node)| (node, name)).collect(),
            feeds: HashMap::new(),
        };
        layout.feeds = collected
            .tables
            .iter()
            .map(|(key, table)| (*key, layout.feeds_of(input, key.0, table)))
            .collect();
        layout
    }

    fn feeds_of(&self, input: &ExportInput, node: NodeId, table: &Arc<Table>) -> Vec<Feed> {
        let mut feeds = Vec::new();
        for (cell, column) in table.columns.iter().enumerate() {
            let Some(info) = table.device_of(column) else { continue };
            let metric = column.metric.as_str();
            match info.scope {
                Scope::Gpu => {
                    let found =
                        self.gpus.iter().position(|s| s.node == node && s.info.id == info.id);
                    let Some(slot) = found else { continue };
                    for field in gpu_fields(input, metric) {
                        feeds.push(Feed { cell, slot, field });
                    }
                },
                Scope::Node => {
                    let Some(slot) = self.nodes.iter().position(|(id, _)| *id == node) else {
                        continue;
                    };
                    let field = NODE_FIELDS.iter().find(|(name, _)| *name == metric);
                    feeds.extend(field.map(|(_, field)| Feed { cell, slot, field: *field }));
                },
                Scope::Link | Scope::Disk | Scope::Nic => {},
            }
        }
        feeds
    }

    pub(super) fn feeds(&self, key: &TableKey) -> &[Feed] {
        self.feeds.get(key).map_or(&[], Vec::as_slice)
    }
}

fn gpu_fields<'a>(input: &'a ExportInput, metric: &'a str) -> impl Iterator<Item = Field> + 'a {
    let fixed = GPU_FIELDS.iter().filter(move |(name, _)| *name == metric).map(|(_, field)| *field);
    let extra = input.spec.extra_metrics.iter().enumerate();
    fixed.chain(extra.filter(move |(_, name)| *name == metric).map(|(at, _)| Field::Extra(at)))
}

fn selected(input: &ExportInput, collected: &Collected, node: NodeId, info: &DeviceInfo) -> bool {
    let held = &collected.held_gpus;
    held.as_ref().is_none_or(|held| held.contains(&(node, info.id.clone())))
        && input.spec.selection.has_gpu(info.index)
}
