//! The table of all GPUs and their links, and where each of its cells comes from.

use std::sync::Arc;

use gswarm_types::metric::CATALOGUE;
use gswarm_types::{Column, DeviceId, DeviceInfo, MetricName, Scope, Table};

use super::board::SlowProfile;
use super::fast::Profile;
use super::gpm::MEMORY_METRIC;
use super::reading::Key;

/// What is known of one GPU when the table is built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// `None` until the GPU has answered once.
    pub(super) profile: Option<&'a Profile>,
    pub(super) slow: &'a SlowProfile,
    /// Whether its faults are reported.
    pub(super) watched: bool,
}

/// Where a cell comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Source {
    /// Position in the row of this tick.
    Fast(usize),
    /// Position on the board.
    Slow(usize),
    /// A share, by position in the row, of the peak of the device memory.
    MemoryBandwidth {
        share: usize,
        bytes_per_second_max: f64,
    },
    Unresponsive,
    LastXid,
}

/// The table with the GPU and the source of every column.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) table: Arc<Table>,
    /// For each column the index of its GPU and the source.
    pub(super) sources: Vec<(usize, Source)>,
}

/// The identity of a GPU that has not told its own yet.
pub(super) fn placeholder(index: usize) -> DeviceId {
    DeviceId(format!("nvml:{index}"))
}

impl Layout {
    /// GPUs come first, so that a GPU has the same position as index; then their links.
    pub(super) fn new(parts: &[Part<'_>]) -> Self {
        let mut table = Table::default();
        let mut sources = Vec::new();
        for (index, part) in (0_u32..).zip(parts) {
            table.devices.push(gpu(index, part));
        }
        let mut add = |table: &mut Table, gpu: usize, device: u32, metric: &str, source| {
            table.columns.push(Column { device, metric: MetricName::new(metric) });
            sources.push((gpu, source));
        };
        for ((gpu, part), device) in parts.iter().enumerate().zip(0..) {
            for (metric, source) in gpu_columns(part) {
                add(&mut table, gpu, device, metric, source);
            }
        }
        for (gpu, part) in parts.iter().enumerate() {
            for number in part.slow.links.iter().map(|link| link.number) {
                let device = u32::try_from(table.devices.len()).unwrap_or(u32::MAX);
                let index = device - u32::try_from(parts.len()).unwrap_or(0);
                table.devices.push(link(gpu, part, number, index));
                for (key, source) in keys(part).filter(|(key, _)| key.link == Some(number)) {
                    add(&mut table, gpu, device, key.metric, source);
                }
            }
        }
        Self { table: Arc::new(table), sources }
    }
}

fn gpu(index: u32, part: &Part<'_>) -> DeviceInfo {
    let position = usize::try_from(index).unwrap_or(0);
    let (id, name) = match part.profile {
        Some(profile) => (DeviceId(profile.id.clone()), profile.name.clone()),
        None => (placeholder(position), "NVIDIA GPU".to_owned()),
    };
    DeviceInfo { id, scope: Scope::Gpu, index, name, parent: None, simulated: false }
}

fn link(gpu: usize, part: &Part<'_>, number: u32, index: u32) -> DeviceInfo {
    let owner = part.profile.map_or_else(|| placeholder(gpu).0, |profile| profile.id.clone());
    DeviceInfo {
        id: DeviceId(format!("{owner}/nvlink{number}")),
        scope: Scope::Link,
        index,
        name: format!("NVLink {number}"),
        parent: u32::try_from(gpu).ok(),
        simulated: false,
    }
}

/// Every value of one GPU and its links once; what the tick gives wins over the slow thread.
fn keys<'a>(part: &Part<'a>) -> impl Iterator<Item = (Key, Source)> {
    let fast = part.profile.map_or(&[][..], |profile| &profile.keys);
    let slow = part.slow.keys.iter().enumerate().filter(|(_, key)| !fast.contains(key));
    let slow = slow.map(|(position, key)| (*key, Source::Slow(position)));
    fast.iter().enumerate().map(|(position, key)| (*key, Source::Fast(position))).chain(slow)
}

/// The columns of one GPU in the order of the catalogue.
fn gpu_columns(part: &Part<'_>) -> Vec<(&'static str, Source)> {
    let own = keys(part).filter(|(key, _)| key.link.is_none());
    let mut columns: Vec<_> = own.map(|(key, source)| (key.metric, source)).collect();
    let share = columns.iter().find_map(|(metric, source)| match source {
        Source::Fast(position) if *metric == MEMORY_METRIC => Some(*position),
        _ => None,
    });
    if let (Some(share), Some(bytes_per_second_max)) = (share, part.slow.memory_bytes_per_second) {
        let source = Source::MemoryBandwidth { share, bytes_per_second_max };
        columns.push(("device_memory_bandwidth_bytes_per_second", source));
    }
    if part.watched {
        columns.push(("xid_last", Source::LastXid));
    }
    columns.push(("unresponsive", Source::Unresponsive));
    columns.sort_by_key(|(name, _)| CATALOGUE.iter().position(|metric| metric.name == *name));
    columns
}
