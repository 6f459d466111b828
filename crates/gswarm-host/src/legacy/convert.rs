//! What old clients really send, turned into our units.
//!
//! Utilisation and memory are fractions; bandwidth is KiB/s whatever the field's name says, with
//! rx and tx swapped in the PCIe fields; NaN stands for a missing NVLink.

use gswarm_types::{
    Cells, Column, DeviceId, DeviceInfo, MetricName, Micros, NodeId, PeerKind, PeerLink, Scope,
    Table,
};
use gswarm_wire::legacy;
use uuid::Uuid;

use crate::live::NodeValues;
use crate::recorder::{SnapshotNode, value_of};

const KIB: f64 = 1_024.0;
const MEGABYTE: f64 = 1_048_576.0;
const GIGABYTE: f64 = 1e9;
/// GPUs one message may hold.
const GPUS_MAX: usize = 1_024;
/// Links one message may hold.
const LINKS_MAX: usize = 65_536;

const GPU_METRICS: [&str; 6] = [
    "gpu_utilization",
    "memory_used_percent",
    "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
    "nvlink_rx_bytes_per_second",
    "nvlink_tx_bytes_per_second",
];

/// Old clients have no id: the same hostname is the same node.
pub(super) fn node_id(hostname: &str) -> NodeId {
    // FNV-1a over the name, twice with different starts, as a stable 128-bit id.
    let hash = |seed: u64| {
        hostname
            .bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x9ae1_6a3b_2f90_404f));
    NodeId::new(Uuid::from_u64_pair(high, low))
}

/// Seconds since the epoch; nonsense is no time.
pub(super) fn wall(seconds: f64) -> Option<Micros> {
    let plausible = seconds.is_finite() && (0.0..1e11).contains(&seconds);
    #[expect(clippy::cast_possible_truncation, reason = "below 1e17 where it counts")]
    let micros = (seconds * 1e6) as i64;
    plausible.then_some(Micros(micros))
}

pub(crate) fn values(update: &legacy::MetricsUpdate) -> (Table, Cells) {
    let mut table = Table::default();
    let mut cells = Vec::new();
    for gpu in update.gpus_metrics.iter().take(GPUS_MAX) {
        let device = u32::try_from(table.devices.len()).unwrap_or(u32::MAX);
        let index = u32::try_from(gpu.physical_idx).unwrap_or(0);
        table.devices.push(DeviceInfo {
            id: DeviceId(format!("legacy-gpu-{index}")),
            scope: Scope::Gpu,
            index,
            name: gpu.name.chars().take(128).collect(),
            parent: None,
            simulated: false,
        });
        let numbers = [
            // Whole percents, as our own agents record utilisation.
            percent(gpu.gpu_util).map(f64::round),
            percent(gpu.mem_util),
            // Field 6 holds what came in, field 5 what went out.
            rate(gpu.dram_bw_gbps_tx),
            rate(gpu.dram_bw_gbps_rx),
            rate(gpu.nvlink_bw_gbps_rx),
            rate(gpu.nvlink_bw_gbps_tx),
        ];
        for (metric, number) in GPU_METRICS.iter().zip(numbers) {
            table.columns.push(Column { device, metric: MetricName::new(metric) });
            cells.push(number);
        }
        extra(gpu, device, &mut table, &mut cells);
    }
    if let Some(system) = &update.system_metrics {
        let device = u32::try_from(table.devices.len()).unwrap_or(u32::MAX);
        table.devices.push(DeviceInfo {
            id: DeviceId("node".to_owned()),
            scope: Scope::Node,
            index: 0,
            name: "node".to_owned(),
            parent: None,
            simulated: false,
        });
        let numbers = [
            ("node_memory_used_percent", system.dram_util),
            ("node_disk_used_percent", system.disk_util),
        ];
        for (metric, number) in numbers {
            table.columns.push(Column { device, metric: MetricName::new(metric) });
            cells.push(Some(number.clamp(0.0, 100.0)));
        }
    }
    (table, Cells::new(cells))
}

/// The links an old client names, by position in the table of `values`.
pub(crate) fn links(update: &legacy::MetricsUpdate) -> Vec<PeerLink> {
    let position = |index: i32| {
        let found = update.gpus_metrics.iter().take(GPUS_MAX).position(|g| g.physical_idx == index);
        found.and_then(|at| u32::try_from(at).ok())
    };
    let links = update.p2p_links.iter().take(LINKS_MAX).filter_map(|link| {
        let gigabytes = link.aggregated_max_bandwidth_gbps;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let bytes = (gigabytes.clamp(0.0, 1e6) * GIGABYTE) as u64;
        Some(PeerLink {
            device: position(link.local_gpu_physical_id)?,
            remote: position(link.remote_gpu_physical_id),
            kind: kind(&link.r#type),
            links: 0,
            bytes_per_second_max: gigabytes.is_finite().then_some(bytes),
        })
    });
    links.collect()
}

/// The words of `nvidia-smi topo` and of the old tools.
fn kind(word: &str) -> PeerKind {
    match word.to_ascii_uppercase().as_str() {
        "PIX" | "PXB" => PeerKind::PcieSwitch,
        "PHB" | "PCIE" => PeerKind::PcieHostBridge,
        "NODE" => PeerKind::SameSocket,
        "SYS" => PeerKind::CrossSocket,
        _ => PeerKind::Nvlink,
    }
}

/// Extra metrics whose names we know; others mean nothing to us.
fn extra(gpu: &legacy::GpuMetric, device: u32, table: &mut Table, cells: &mut Vec<Option<f64>>) {
    let Some(fields) = &gpu.extra_metrics else { return };
    for (name, value) in &fields.fields {
        let known = gswarm_types::metric::Metric::find(name)
            .filter(|metric| metric.scope == Scope::Gpu && !GPU_METRICS.contains(&metric.name));
        let number = match &value.kind {
            Some(prost_types::value::Kind::NumberValue(number)) => Some(*number),
            _ => None,
        };
        if let Some(metric) = known {
            table.columns.push(Column { device, metric: MetricName::from(metric) });
            cells.push(number);
        }
    }
}

fn percent(fraction: f64) -> Option<f64> {
    fraction.is_finite().then(|| (fraction * 1e5).round().clamp(0.0, 1e5) / 1e3)
}

fn rate(kib_per_second: f64) -> Option<f64> {
    (kib_per_second.is_finite() && kib_per_second >= 0.0).then_some(kib_per_second * KIB)
}

/// One node as the old status call shows it.
pub(super) fn node_status(node: &SnapshotNode) -> legacy::NodeStatus {
    let gpus = node.latest.as_deref().map_or_else(Vec::new, |values| {
        let devices = values.table.devices_of(Scope::Gpu);
        devices.map(|(position, info)| gpu_status(values, position, info.index)).collect()
    });
    legacy::NodeStatus { node_id: node.name.clone(), gpus }
}

fn gpu_status(values: &NodeValues, position: usize, index: u32) -> legacy::GpuStatus {
    let get = |metric: &str| {
        let place = values.table.position(position, metric)?;
        values.cells.get(place).copied().flatten()
    };
    let gigabytes =
        |rx: &str, tx: &str| (get(rx).unwrap_or(0.0) + get(tx).unwrap_or(0.0)) / GIGABYTE;
    #[expect(clippy::cast_possible_truncation, reason = "megabytes of one device")]
    let megabytes = |metric: &str| (get(metric).unwrap_or(0.0) / MEGABYTE) as i64;
    legacy::GpuStatus {
        gpu_id: i32::try_from(index).unwrap_or(i32::MAX),
        utilization: get("gpu_utilization").unwrap_or(0.0) / 100.0,
        memory_used: megabytes("memory_used_bytes"),
        memory_total: megabytes("memory_total_bytes"),
        dram_bandwidth: gigabytes("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"),
        nvlink_bandwidth: gigabytes("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"),
        temperature: get("temperature_celsius").unwrap_or(0.0),
        power: get("power_milliwatts").unwrap_or(0.0) / 1_000.0,
    }
}

/// Percent of main memory and disk in use, from whichever form the node sends.
pub(crate) fn node_percents(values: &NodeValues) -> (Option<f64>, Option<f64>) {
    let share = |used: &str, total: &str, percent: &str| {
        let total = value_of(values, total).filter(|total| *total > 0.0);
        match (value_of(values, used), total) {
            (Some(used), Some(total)) => Some(used / total * 100.0),
            _ => value_of(values, percent),
        }
    };
    (
        share("node_memory_used_bytes", "node_memory_total_bytes", "node_memory_used_percent"),
        share("node_disk_used_bytes", "node_disk_total_bytes", "node_disk_used_percent"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_units_and_the_swap() {
        let gpu = legacy::GpuMetric {
            physical_idx: 3,
            name: "A100".to_owned(),
            gpu_util: 0.5,
            mem_util: 0.25,
            dram_bw_gbps_rx: 10.0,
            dram_bw_gbps_tx: 20.0,
            nvlink_bw_gbps_rx: f64::NAN,
            nvlink_bw_gbps_tx: 1.0,
            extra_metrics: None,
        };
        let update = legacy::MetricsUpdate { gpus_metrics: vec![gpu], ..Default::default() };
        let (table, cells) = values(&update);
        assert_eq!(table.devices[0].index, 3);
        assert_eq!(
            cells.as_slice(),
            &[Some(50.0), Some(25.0), Some(20_480.0), Some(10_240.0), None, Some(1_024.0)]
        );
    }

    #[test]
    fn the_same_hostname_is_the_same_node() {
        assert_eq!(node_id("a"), node_id("a"));
        assert_ne!(node_id("a"), node_id("b"));
        assert_eq!(wall(f64::NAN), None);
        assert_eq!(wall(1.5), Some(Micros(1_500_000)));
    }
}
