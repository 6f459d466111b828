//! The JSON of the earlier tools: numbers as strings, shares as fractions, time without a zone.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use super::collect::{Order, collect};
use super::frames::{Frame, frames};
use super::json::Shape;
use super::layout::Layout;
use super::{ExportError, ExportFacts, ExportInput};
use crate::reader::Reader;
use crate::time_text::local_without_zone;

#[derive(Serialize)]
struct LegacyFrame<'a> {
    frame_id: u64,
    time: String,
    gpu_id: &'a [String],
    gpu_util: Vec<String>,
    gpu_memory: Vec<String>,
    dram_util: Vec<String>,
    disk_util: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dram_bandwidth: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dram_bandwidth_rx: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dram_bandwidth_tx: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_bandwidth: Option<Vec<LegacyLink<'a>>>,
    /// One object per GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_metrics: Option<Vec<BTreeMap<&'a str, String>>>,
}

#[derive(Serialize)]
struct LegacyLink<'a> {
    id1: &'a str,
    id2: &'a str,
    utilization: String,
}

#[derive(Serialize)]
struct LegacyDevice {
    avg_gpu_util: String,
    avg_gpu_memory: String,
}

#[derive(Serialize)]
struct LegacyClient {
    avg_dram_util: String,
    avg_disk_util: String,
}

/// Numbers as strings, utilisation and memory as fractions, local time without a zone.
pub(super) fn write(
    reader: &Reader,
    input: &ExportInput,
    out: &mut (dyn Write + Send),
) -> Result<ExportFacts, ExportError> {
    let mut collected = collect(reader, input, Order::Time)?;
    let layout = Layout::new(input, &collected);
    let shape = Shape::new(input, &layout, &collected);
    let labels = &shape.labels;
    out.write_all(b"{\"frames\":[")?;
    let mut first = true;
    let summary = frames(input, &layout, &mut collected, &mut |frame| {
        out.write_all(if first { b"\n" } else { b",\n" })?;
        first = false;
        serde_json::to_writer(&mut *out, &legacy_frame(input, &shape, frame))?;
        Ok(())
    })?;
    let devices: BTreeMap<&str, LegacyDevice> = labels
        .iter()
        .map(String::as_str)
        .zip(summary.gpus.iter().map(|gpu| LegacyDevice {
            avg_gpu_util: fraction(gpu.util.average()),
            avg_gpu_memory: fraction(gpu.memory.average()),
        }))
        .collect();
    let clients: BTreeMap<&str, LegacyClient> = layout
        .nodes
        .iter()
        .map(|(_, name)| name.as_str())
        .zip(summary.nodes.iter().map(|node| LegacyClient {
            avg_dram_util: fraction(node.memory.average()),
            avg_disk_util: fraction(node.disk.average()),
        }))
        .collect();
    out.write_all(b"\n],\"summary_by_device\":")?;
    serde_json::to_writer(&mut *out, &devices)?;
    out.write_all(b",\"summary_by_client\":")?;
    serde_json::to_writer(&mut *out, &clients)?;
    out.write_all(b",\"request_time_info\":{}}\n")?;
    Ok(ExportFacts { records: collected.records, frames: summary.frames })
}

fn legacy_frame<'a>(
    input: &'a ExportInput,
    shape: &'a Shape<'_>,
    frame: &'a Frame,
) -> LegacyFrame<'a> {
    let texts = |values: &[Option<f64>]| values.iter().map(|value| text(*value)).collect();
    let fractions = |values: &[Option<f64>]| values.iter().map(|v| fraction(*v)).collect();
    let both = || {
        let pairs = frame.pcie_rx.iter().zip(&frame.pcie_tx);
        pairs.map(|(rx, tx)| text(rx.zip(*tx).map(|(rx, tx)| rx + tx))).collect()
    };
    let bandwidth = input.spec.bandwidth;
    LegacyFrame {
        frame_id: frame.id,
        time: local_without_zone(frame.time),
        gpu_id: &shape.labels,
        gpu_util: fractions(&frame.util),
        gpu_memory: fractions(&frame.memory),
        dram_util: fractions(&frame.dram),
        disk_util: fractions(&frame.disk),
        dram_bandwidth: bandwidth.then(both),
        dram_bandwidth_rx: bandwidth.then(|| texts(&frame.pcie_rx)),
        dram_bandwidth_tx: bandwidth.then(|| texts(&frame.pcie_tx)),
        gpu_bandwidth: input.spec.nvlink.then(|| legacy_links(shape, frame)),
        extra_metrics: (!input.spec.extra_metrics.is_empty()).then(|| legacy_extra(input, frame)),
    }
}

fn legacy_links<'a>(shape: &'a Shape<'_>, frame: &'a Frame) -> Vec<LegacyLink<'a>> {
    let links = shape.links(frame).into_iter().map(|link| LegacyLink {
        id1: link.id1,
        id2: link.id2,
        utilization: text(link.rx.zip(link.tx).map(|(rx, tx)| rx + tx)),
    });
    links.collect()
}

fn legacy_extra<'a>(input: &'a ExportInput, frame: &'a Frame) -> Vec<BTreeMap<&'a str, String>> {
    let names = &input.spec.extra_metrics;
    let of_gpu = |gpu: usize| {
        let values = frame.extra.iter().map(|metric| metric.get(gpu).copied().flatten());
        names.iter().map(String::as_str).zip(values.map(text)).collect()
    };
    (0..frame.util.len()).map(of_gpu).collect()
}

fn fraction(percent: Option<f64>) -> String {
    text(percent.map(|percent| percent / 100.0))
}

/// The earlier tools wrote `nan` for what is absent.
fn text(value: Option<f64>) -> String {
    value.map_or_else(|| "nan".to_owned(), |value| format!("{value:.4}"))
}
