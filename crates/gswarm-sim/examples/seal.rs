//! What sealing costs: one segment of many simulated nodes, from lines to Parquet.
//!
//! `seal NODES SECONDS DIRECTORY` writes a journal, seals it and prints one line of JSON: sizes per
//! value, CPU time, and how much memory sealing needed on top of what was there before.

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use gswarm_core::Intake;
use gswarm_device::sim::SimDevices;
use gswarm_device::{Devices, SimSpec};
use gswarm_store::catalog::{SegmentMeta, SegmentState};
use gswarm_store::entry::{Entry, Stamp, StoredRecord};
use gswarm_store::journal::{Journal, JournalConfig, SegmentLimits, TableKey, TableSource};
use gswarm_store::{Disk, StdDisk, sealed};
use gswarm_types::{
    Body, Cells, Incarnation, Micros, NodeId, Record, StorageId, Table, TimeQuality, Values,
};
use serde_json::json;
use uuid::Uuid;

const DEVICES: &str = "8xh100,seed=7";
/// Where the recording begins.
const START: Micros = Micros::from_secs(1_800_000_000);

#[derive(Default)]
struct Tables(HashMap<TableKey, Arc<Table>>);

impl TableSource for Tables {
    fn table(&self, key: &TableKey) -> Option<&Table> {
        self.0.get(key).map(Arc::as_ref)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, seconds, directory] =
        <[String; 3]>::try_from(words).map_err(|_| "usage: seal NODES SECONDS DIRECTORY")?;
    let dir = PathBuf::from(directory).join("journal");
    let disk: Arc<dyn Disk> = Arc::new(StdDisk);
    let new_storage = StorageId::new(Uuid::from_u128(1));
    let config = JournalConfig {
        dir: dir.clone(),
        disk_reserve_bytes: 0,
        segments: SegmentLimits::default(),
        new_storage,
    };
    let mut journal = Journal::open(disk.clone(), config)?.journal;
    let values = record(&mut journal, nodes.parse()?, seconds.parse()?)?;
    journal.roll(&Intake::default())?;
    let mut report = Report { values, ..Report::default() };
    for meta in journal.catalog().segments() {
        if meta.state == SegmentState::Closed {
            report.seal(disk.as_ref(), &dir, &meta)?;
        }
    }
    let line = report.finish();
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// Every node once a second; returns how many values that made.
fn record(journal: &mut Journal, nodes: u64, seconds: u64) -> Result<u64, Box<dyn Error>> {
    let spec: SimSpec = DEVICES.parse()?;
    let mut machines: Vec<SimDevices> =
        (0..nodes).map(|number| SimDevices::new(&spec, number, &[])).collect();
    let mut tables = Tables::default();
    let mut count = 0;
    for second in 1..=seconds {
        let mut batch = Vec::with_capacity(machines.len());
        let mono = Micros::from_secs(i64::try_from(second)?);
        for (number, devices) in machines.iter_mut().enumerate() {
            let sample = devices.sample(mono);
            let node = NodeId::new(Uuid::from_u128(number as u128 + 1));
            let incarnation = Incarnation(number as u64 + 1);
            let digest = sample.table.digest();
            tables.0.insert((node, incarnation, digest), sample.table);
            count += sample.cells.len() as u64;
            let time = START + mono + Micros::from_millis(i64::try_from(number)? % 1_000);
            let cells = Cells::new(sample.cells);
            let body = Body::Values(Values { table: digest, cells });
            let record = Record { incarnation, seq: second, mono, wall: time, body };
            let crc = u32::try_from(second)?.wrapping_mul(2_654_435_761);
            let quality = TimeQuality::Measured;
            let stamp = Stamp { node, time, receipt: time + Micros(700), quality, crc };
            batch.push(Entry::Record(StoredRecord::new(record, stamp)));
        }
        journal.commit(&batch, &tables)?;
    }
    Ok(count)
}

#[derive(Default)]
struct Report {
    values: u64,
    lines_bytes: u64,
    sealed_bytes: u64,
    cpu_seconds: f64,
    memory_before: u64,
    memory_peak: u64,
}

impl Report {
    fn seal(
        &mut self,
        disk: &dyn Disk,
        dir: &std::path::Path,
        meta: &SegmentMeta,
    ) -> Result<(), Box<dyn Error>> {
        let (cpu, memory) = (cpu_seconds(), memory_kib("VmRSS:"));
        let prepared = sealed::prepare(disk, dir, meta, StorageId::new(Uuid::from_u128(1)))?;
        self.cpu_seconds += cpu_seconds() - cpu;
        self.lines_bytes += meta.bytes;
        self.sealed_bytes += prepared.bytes;
        self.memory_before = memory;
        self.memory_peak = self.memory_peak.max(memory_kib("VmHWM:"));
        Ok(())
    }

    fn finish(&self) -> serde_json::Value {
        let per_value = |bytes: u64| bytes as f64 / self.values.max(1) as f64;
        json!({
            "values": self.values,
            "line_bytes_per_value": per_value(self.lines_bytes),
            "sealed_bytes_per_value": per_value(self.sealed_bytes),
            "cpu_us_per_value": self.cpu_seconds * 1e6 / self.values.max(1) as f64,
            "memory_before_mib": self.memory_before / 1024,
            "memory_peak_mib": self.memory_peak / 1024,
            "memory_after_mib": memory_kib("VmRSS:") / 1024,
        })
    }
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    nanos / 1e9
}

fn memory_kib(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
