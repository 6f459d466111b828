//! `<name>.json`: frames, summaries, gaps and who was there.

use std::collections::BTreeMap;
use std::io::Write;

use gswarm_core::Hole;
use gswarm_types::{DeviceId, GapReason, Micros, NodeId};
use serde::Serialize;

use super::collect::{Collected, Order, WindowEvent, collect};
use super::frames::{Frame, Summary, frames, round};
use super::layout::{GpuSlot, Layout};
use super::{ExportError, ExportFacts, ExportInput};
use crate::reader::Reader;
use crate::time_text::rfc3339;

/// Version of the JSON that this code writes.
const SCHEMA_VERSION: u32 = 2;

/// Everything in front of the frames.
#[derive(Serialize)]
struct Head<'a> {
    schema_version: u32,
    session_name: &'a str,
    session_id: String,
    start_time: String,
    end_time: String,
    freq: i64,
    simulated: bool,
    revision: u32,
    incomplete_nodes: Vec<String>,
    covered_from: String,
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    nodes: Vec<NodeHead>,
    devices: Vec<DeviceHead<'a>>,
    gaps: Vec<GapOut>,
    events: Vec<EventOut<'a>>,
    events_left_out: u64,
}

#[derive(Serialize)]
struct NodeHead {
    name: String,
    node_id: String,
    /// Intervals in which the node delivered.
    available: Vec<(String, String)>,
}

#[derive(Serialize)]
struct DeviceHead<'a> {
    gpu_id: &'a str,
    node: String,
    index: u32,
    name: &'a str,
    uuid: &'a str,
    simulated: bool,
}

#[derive(Serialize)]
pub(super) struct GapOut {
    /// What retention took belongs to no one node and has no numbers.
    node: Option<String>,
    node_id: Option<String>,
    incarnation: Option<String>,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    records: Option<u64>,
    reason: &'static str,
    from: Option<String>,
    to: Option<String>,
    #[serde(rename = "final")]
    is_final: bool,
}

#[derive(Serialize)]
struct EventOut<'a> {
    time: String,
    node: Option<String>,
    #[serde(flatten)]
    event: &'a gswarm_types::Event,
}

#[derive(Serialize)]
struct FrameOut<'a> {
    frame_id: u64,
    time: String,
    gpu_id: &'a [String],
    gpu_util: &'a [Option<f64>],
    gpu_memory: &'a [Option<f64>],
    dram_util: &'a [Option<f64>],
    disk_util: &'a [Option<f64>],
    client_available: &'a [bool],
    #[serde(skip_serializing_if = "Option::is_none")]
    dram_bandwidth: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dram_bandwidth_rx: Option<&'a [Option<f64>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dram_bandwidth_tx: Option<&'a [Option<f64>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_bandwidth: Option<Vec<LinkOut<'a>>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra_metrics: BTreeMap<&'a str, &'a [Option<f64>]>,
}

#[derive(Serialize)]
pub(super) struct LinkOut<'a> {
    pub(super) id1: &'a str,
    /// The other GPU, or `nvswitch`.
    pub(super) id2: &'a str,
    pub(super) rx: Option<f64>,
    pub(super) tx: Option<f64>,
}

#[derive(Serialize)]
struct DeviceSummary {
    avg_gpu_util: Option<f64>,
    min_gpu_util: Option<f64>,
    max_gpu_util: Option<f64>,
    p50_gpu_util: Option<f64>,
    p95_gpu_util: Option<f64>,
    p99_gpu_util: Option<f64>,
    avg_gpu_memory: Option<f64>,
    min_gpu_memory: Option<f64>,
    max_gpu_memory: Option<f64>,
    idle_share: Option<f64>,
    energy_joules: Option<f64>,
    samples: u64,
}

#[derive(Serialize)]
struct ClientSummary {
    avg_dram_util: Option<f64>,
    max_dram_util: Option<f64>,
    avg_disk_util: Option<f64>,
}

/// What frames of one export share.
pub(super) struct Shape<'a> {
    input: &'a ExportInput,
    pub(super) labels: Vec<String>,
    /// For each GPU: the name of the other end of its NVLinks.
    peers: Vec<Vec<String>>,
}

pub(super) fn write(
    reader: &Reader,
    input: &ExportInput,
    out: &mut (dyn Write + Send),
) -> Result<ExportFacts, ExportError> {
    let mut collected = collect(reader, input, Order::Time)?;
    let layout = Layout::new(input, &collected);
    let head = serde_json::to_vec(&head(input, &layout, &collected))?;
    // The frames go inside the head's object: its closing brace comes last.
    out.write_all(head.strip_suffix(b"}").unwrap_or(&head))?;
    out.write_all(b",\"frames\":[")?;
    let shape = Shape::new(input, &layout, &collected);
    let mut first = true;
    let summary = frames(input, &layout, &mut collected, &mut |frame| {
        out.write_all(if first { b"\n" } else { b",\n" })?;
        first = false;
        serde_json::to_writer(&mut *out, &shape.frame(frame))?;
        Ok(())
    })?;
    out.write_all(b"\n],\"summary_by_device\":")?;
    serde_json::to_writer(&mut *out, &device_summaries(&shape.labels, &summary))?;
    out.write_all(b",\"summary_by_client\":")?;
    serde_json::to_writer(&mut *out, &client_summaries(&layout, &summary))?;
    out.write_all(b",\"request_time_info\":{}}\n")?;
    Ok(ExportFacts { records: collected.records, frames: summary.frames })
}

fn head<'a>(input: &'a ExportInput, layout: &'a Layout, collected: &'a Collected) -> Head<'a> {
    let spec = &input.spec;
    let covered = input.expired_until.map_or(spec.from, |oldest| oldest.max(spec.from));
    Head {
        schema_version: SCHEMA_VERSION,
        session_name: spec.name.as_str(),
        session_id: spec.id.to_string(),
        start_time: rfc3339(spec.from),
        end_time: rfc3339(input.until()),
        freq: spec.period.millis(),
        simulated: input.simulated || layout.gpus.iter().any(|gpu| gpu.info.simulated),
        revision: spec.revision,
        incomplete_nodes: spec.incomplete.iter().map(|node| input.name_of(*node)).collect(),
        covered_from: rfc3339(covered),
        tags: &spec.tags,
        note: spec.note.as_deref(),
        nodes: layout.nodes.iter().map(|(node, name)| node_head(collected, *node, name)).collect(),
        devices: layout
            .gpus
            .iter()
            .map(|gpu| DeviceHead {
                gpu_id: &gpu.label,
                node: input.name_of(gpu.node),
                index: gpu.info.index,
                name: &gpu.info.name,
                uuid: &gpu.info.id.0,
                simulated: gpu.info.simulated,
            })
            .collect(),
        gaps: gaps(input),
        events: collected.events.iter().map(|event| event_out(input, event)).collect(),
        events_left_out: collected.events_left_out,
    }
}

fn node_head(collected: &Collected, node: NodeId, name: &str) -> NodeHead {
    let available = collected.availability.get(&node).map_or(&[][..], Vec::as_slice);
    NodeHead {
        name: name.to_owned(),
        node_id: node.to_string(),
        available: available.iter().map(|(a, b)| (rfc3339(*a), rfc3339(*b))).collect(),
    }
}

fn event_out<'a>(input: &ExportInput, event: &'a WindowEvent) -> EventOut<'a> {
    EventOut {
        time: rfc3339(event.time),
        node: event.node.map(|node| input.name_of(node)),
        event: &event.event,
    }
}

/// Holes that touch the window, and what retention took of it.
pub(super) fn gaps(input: &ExportInput) -> Vec<GapOut> {
    let touches = |hole: &Hole| {
        hole.to.is_none_or(|to| to >= input.spec.from)
            && hole.from.is_none_or(|from| from <= input.until())
    };
    let expired = input.expired_until.filter(|until| *until > input.spec.from);
    let expired = expired.map(|until| GapOut {
        node: None,
        node_id: None,
        incarnation: None,
        first_seq: None,
        last_seq: None,
        records: None,
        reason: GapReason::Expired.as_str(),
        from: Some(rfc3339(input.spec.from)),
        to: Some(rfc3339(until)),
        is_final: true,
    });
    let holes = input
        .holes
        .iter()
        .filter(|(node, hole)| input.spec.selection.has_node(*node) && touches(hole))
        .map(|(node, hole)| GapOut {
            node: Some(input.name_of(*node)),
            node_id: Some(node.to_string()),
            incarnation: Some(hole.incarnation.to_string()),
            first_seq: Some(hole.first),
            last_seq: hole.last,
            records: hole.records(),
            reason: hole.reason.as_str(),
            from: hole.from.map(rfc3339),
            to: hole.to.map(rfc3339),
            is_final: hole.is_final,
        });
    expired.into_iter().chain(holes).collect()
}

/// The other ends of each GPU's NVLinks; one `nvswitch` on machines that have switches.
fn peers(layout: &Layout, collected: &Collected) -> Vec<Vec<String>> {
    let label = |node: NodeId, id: &DeviceId| {
        let found = layout.gpus.iter().find(|gpu| gpu.node == node && gpu.info.id == *id);
        found.map(|gpu| gpu.label.clone())
    };
    let names = |gpu: &GpuSlot| {
        let links = collected.nvlinks.get(&gpu.node).map_or(&[][..], Vec::as_slice);
        let mut names: Vec<String> = links
            .iter()
            .filter(|link| link.device == gpu.info.id)
            .filter_map(|link| match &link.remote {
                None => Some("nvswitch".to_owned()),
                Some(remote) => label(gpu.node, remote),
            })
            .collect();
        names.dedup();
        names
    };
    layout.gpus.iter().map(names).collect()
}

impl<'a> Shape<'a> {
    pub(super) fn new(input: &'a ExportInput, layout: &Layout, collected: &Collected) -> Self {
        Self {
            input,
            labels: layout.gpus.iter().map(|gpu| gpu.label.clone()).collect(),
            peers: peers(layout, collected),
        }
    }

    fn frame<'f>(&'f self, frame: &'f Frame) -> FrameOut<'f> {
        let spec = &self.input.spec;
        let total = || {
            let pairs = frame.pcie_rx.iter().zip(&frame.pcie_tx);
            pairs.map(|(rx, tx)| Some(round((*rx)? + (*tx)?))).collect()
        };
        FrameOut {
            frame_id: frame.id,
            time: rfc3339(frame.time),
            gpu_id: &self.labels,
            gpu_util: &frame.util,
            gpu_memory: &frame.memory,
            dram_util: &frame.dram,
            disk_util: &frame.disk,
            client_available: &frame.available,
            dram_bandwidth: spec.bandwidth.then(total),
            dram_bandwidth_rx: spec.bandwidth.then_some(frame.pcie_rx.as_slice()),
            dram_bandwidth_tx: spec.bandwidth.then_some(frame.pcie_tx.as_slice()),
            gpu_bandwidth: spec.nvlink.then(|| self.links(frame)),
            extra_metrics: spec
                .extra_metrics
                .iter()
                .map(String::as_str)
                .zip(frame.extra.iter().map(Vec::as_slice))
                .collect(),
        }
    }

    /// One row per GPU with NVLinks. A GPU with one kind of other end names it; with several the
    /// driver's per-GPU totals cannot be split, and the row says `nvlink`.
    pub(super) fn links<'f>(&'f self, frame: &'f Frame) -> Vec<LinkOut<'f>> {
        let rates = frame.nvlink_rx.iter().zip(&frame.nvlink_tx);
        self.labels
            .iter()
            .zip(&self.peers)
            .zip(rates)
            .filter(|((_, _), (rx, tx))| rx.is_some() || tx.is_some())
            .map(|((label, peers), (rx, tx))| LinkOut {
                id1: label,
                id2: match peers.as_slice() {
                    [one] => one,
                    _ => "nvlink",
                },
                rx: *rx,
                tx: *tx,
            })
            .collect()
    }
}

fn device_summaries<'a>(
    labels: &'a [String],
    summary: &Summary,
) -> BTreeMap<&'a str, DeviceSummary> {
    let rows = summary.gpus.iter().map(|gpu| {
        let percentiles = gpu.util.percentiles();
        DeviceSummary {
            avg_gpu_util: gpu.util.average().map(round),
            min_gpu_util: gpu.util.min(),
            max_gpu_util: gpu.util.max(),
            p50_gpu_util: percentiles.map(|p| p.p50),
            p95_gpu_util: percentiles.map(|p| p.p95),
            p99_gpu_util: percentiles.map(|p| p.p99),
            avg_gpu_memory: gpu.memory.average().map(round),
            min_gpu_memory: gpu.memory.min(),
            max_gpu_memory: gpu.memory.max(),
            idle_share: gpu.util.idle_share().map(round),
            energy_joules: gpu.energy_joules,
            samples: gpu.util.count(),
        }
    });
    labels.iter().map(String::as_str).zip(rows).collect()
}

fn client_summaries<'a>(layout: &'a Layout, summary: &Summary) -> BTreeMap<&'a str, ClientSummary> {
    let rows = summary.nodes.iter().map(|node| ClientSummary {
        avg_dram_util: node.memory.average().map(round),
        max_dram_util: node.memory.max(),
        avg_disk_util: node.disk.average().map(round),
    });
    layout.nodes.iter().map(|(_, name)| name.as_str()).zip(rows).collect()
}

/// Kept here so that every time in an export is written the same way.
pub(super) fn time_text(time: Micros) -> String {
    rfc3339(time)
}
