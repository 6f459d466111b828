//! A recording of simulated nodes in a file: for each tick and each node the time and 80 numbers.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use gswarm_device::sim::{COMMON_METRICS, SimDevices};
use gswarm_device::{Devices, SimSpec};
use gswarm_types::{Column, DeviceInfo, Micros, Scope, Table};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Outcome;

/// The driver gives PCIe traffic in KiB/s.
const PCIE_STEP: f64 = 1_024.0;
/// A tick comes up to this late.
const LATE_US_MAX: i64 = 400;

/// The first line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) nodes: usize,
    pub(crate) ticks: usize,
    pub(crate) seed: u64,
    pub(crate) devices: Vec<DeviceInfo>,
    pub(crate) columns: Vec<Column>,
}

impl Head {
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::new(Table { devices: self.devices.clone(), columns: self.columns.clone() })
    }

    pub(crate) fn samples(&self) -> usize {
        self.nodes * self.ticks * self.columns.len()
    }
}

/// One node at one tick.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) node: usize,
    /// Time since the node's start.
    pub(crate) mono: Micros,
    pub(crate) cells: Vec<f64>,
}

pub(crate) fn write(path: &Path, nodes: usize, ticks: usize, seed: u64) -> Outcome<Value> {
    let spec: SimSpec = format!("8xh100,seed={seed}").parse()?;
    let mut machines: Vec<SimDevices> =
        (0..nodes).map(|number| SimDevices::new(&spec, number as u64, &[])).collect();
    let mut random = StdRng::seed_from_u64(seed);
    let first = machines.first_mut().ok_or("no nodes")?.sample(Micros::ZERO);
    let chosen = chosen(&first.table);
    let devices: Vec<DeviceInfo> =
        first.table.devices.iter().filter(|d| d.scope == Scope::Gpu).cloned().collect();
    let columns = chosen.iter().filter_map(|at| first.table.columns.get(*at)).cloned().collect();
    let head = Head { nodes, ticks, seed, devices, columns };
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer(&mut file, &head)?;
    file.write_all(b"\n")?;
    for tick in 1..=ticks {
        for machine in &mut machines {
            let late = random.random_range(0..LATE_US_MAX);
            let mono = Micros::from_secs(i64::try_from(tick)?) + Micros(late);
            let sample = machine.sample(mono);
            file.write_all(&mono.0.to_le_bytes())?;
            for at in &chosen {
                let value = sample.cells.get(*at).copied().flatten().ok_or("an absent value")?;
                let name = sample.table.columns.get(*at).map(|column| column.metric.as_str());
                file.write_all(&quantised(name, value).to_le_bytes())?;
            }
        }
    }
    file.flush()?;
    Ok(
        json!({ "samples": head.samples(), "seed": seed, "bytes": file.get_ref().metadata()?.len() }),
    )
}

/// The columns of the chosen metrics, GPU by GPU.
fn chosen(table: &Table) -> Vec<usize> {
    let columns = table.columns.iter().enumerate();
    let wanted = columns.filter(|(_, column)| COMMON_METRICS.contains(&column.metric.as_str()));
    wanted.map(|(at, _)| at).collect()
}

fn quantised(metric: Option<&str>, value: f64) -> f64 {
    match metric {
        Some(name) if name.starts_with("pcie_") => (value / PCIE_STEP).round() * PCIE_STEP,
        _ => value,
    }
}

/// The recording, row by row.
pub(crate) struct Recording {
    pub(crate) head: Head,
    file: BufReader<File>,
    next: usize,
}

impl Recording {
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut line = Vec::new();
        file.read_until(b'\n', &mut line)?;
        Ok(Self { head: serde_json::from_slice(&line)?, file, next: 0 })
    }

    /// Tick by tick, and in each the nodes in their order.
    pub(crate) fn row(&mut self) -> Outcome<Option<Row>> {
        if self.next == self.head.nodes * self.head.ticks {
            return Ok(None);
        }
        let node = self.next % self.head.nodes;
        self.next += 1;
        let mut number = [0; 8];
        self.file.read_exact(&mut number)?;
        let mono = Micros(i64::from_le_bytes(number));
        let mut cells = Vec::with_capacity(self.head.columns.len());
        for _ in 0..self.head.columns.len() {
            self.file.read_exact(&mut number)?;
            cells.push(f64::from_le_bytes(number));
        }
        Ok(Some(Row { node, mono, cells }))
    }
}

/// The wall clock, for recordings that end now.
#[expect(clippy::disallowed_methods, reason = "a load has no injected clock")]
pub(crate) fn wall_now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    Micros(since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX)))
}
