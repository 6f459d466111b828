//! Reads a session: one JSON object whose `frames` hold the GPUs of one or more machines.
//!
//! Files of the old tool have no `schema_version`; their numbers are strings and their shares are
//! 0 to 1 instead of percent.

mod frame;

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use gswarm_types::metric::Metric;
use gswarm_types::{Column, DeviceId, DeviceInfo, Micros, Scope, Table};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use self::frame::Frame;
use super::recording::{CELLS_MAX, ROWS_MAX, Recording, RecordingBuilder};
use super::{ReplayError, ReplaySpec};
use crate::sim::model::GpuModel;

/// The most GPUs of all machines of one session.
const SESSION_GPUS_MAX: usize = 65_536;
/// Utilisation, memory, PCIe rx and tx of each GPU.
const NUMBERS: usize = 4;

/// What has been read so far.
#[derive(Debug)]
struct Session<'s> {
    wanted: Option<&'s str>,
    /// Machines in the order of the file.
    hosts: Vec<String>,
    /// Every `gpu_id`; `None` where its machine is not played.
    known: HashMap<String, Option<usize>>,
    gpus: Vec<SessionGpu>,
    rows: Vec<SessionRow>,
    /// `NUMBERS` for each GPU that was known when the frame was read.
    numbers: Vec<Option<f64>>,
    legacy: bool,
    too_long: bool,
}

#[derive(Debug)]
struct SessionGpu {
    host: String,
    index: u32,
    name: String,
}

#[derive(Debug)]
struct SessionRow {
    time: Micros,
    first: usize,
    gpus: usize,
}

/// Which of the four numbers a GPU ever had.
#[derive(Debug, Clone, Copy, Default)]
struct Present([bool; NUMBERS]);

pub(super) fn read(spec: &ReplaySpec, file: impl Read) -> Result<Recording, ReplayError> {
    let mut session = Session {
        wanted: spec.node.as_deref(),
        hosts: Vec::new(),
        known: HashMap::new(),
        gpus: Vec::new(),
        rows: Vec::new(),
        numbers: Vec::new(),
        legacy: true,
        too_long: false,
    };
    let mut json = serde_json::Deserializer::from_reader(file);
    let read = SessionSeed(&mut session).deserialize(&mut json).and_then(|()| json.end());
    if session.too_long {
        return Err(ReplayError::TooLong { path: spec.path.clone() });
    }
    read.map_err(|source| ReplayError::Session { path: spec.path.clone(), source })?;
    session.finish(&spec.path)
}

impl Session<'_> {
    /// False when the limits are reached.
    fn take(&mut self, frame: &Frame) -> bool {
        let mut own = Vec::new();
        for (position, id) in frame.gpu_id.iter().enumerate() {
            if !self.known.contains_key(id) {
                if self.known.len() >= SESSION_GPUS_MAX {
                    return false;
                }
                let gpu = self.meet(id);
                self.known.insert(id.clone(), gpu);
            }
            if let Some(Some(gpu)) = self.known.get(id) {
                own.push((*gpu, position));
            }
        }
        if own.is_empty() {
            return true;
        }
        let first = self.numbers.len();
        let end = first + self.gpus.len() * NUMBERS;
        if self.rows.len() >= ROWS_MAX || end > CELLS_MAX {
            return false;
        }
        self.numbers.resize(end, None);
        for (gpu, position) in own {
            let at = first + gpu * NUMBERS;
            let numbers = frame.numbers(position);
            self.numbers.get_mut(at..at + NUMBERS).unwrap_or_default().copy_from_slice(&numbers);
        }
        self.rows.push(SessionRow { time: frame.time, first, gpus: self.gpus.len() });
        true
    }

    /// Takes note of a GPU that was not seen before.
    fn meet(&mut self, id: &str) -> Option<usize> {
        let (host, index, name) = parse_gpu_id(id)?;
        if !self.hosts.iter().any(|known| known == host) {
            self.hosts.push(host.to_owned());
        }
        let plays = match self.wanted {
            Some(wanted) => wanted == host,
            None => self.hosts.first().is_some_and(|first| first == host),
        };
        plays.then(|| {
            self.gpus.push(SessionGpu { host: host.to_owned(), index, name: name.to_owned() });
            self.gpus.len() - 1
        })
    }

    fn finish(self, path: &Path) -> Result<Recording, ReplayError> {
        let path = path.to_owned();
        match self.wanted {
            None if self.hosts.len() > 1 => {
                return Err(ReplayError::SeveralNodes { path, nodes: self.hosts });
            },
            Some(wanted) if !self.hosts.is_empty() && self.gpus.is_empty() => {
                let node = wanted.to_owned();
                return Err(ReplayError::UnknownNode { path, node, nodes: self.hosts });
            },
            None | Some(_) => {},
        }
        match self.build() {
            Some(recording) => recording.ok_or(ReplayError::Empty { path }),
            None => Err(ReplayError::TooLong { path }),
        }
    }

    /// `None` when the limits are reached, `Some(None)` without a row.
    fn build(self) -> Option<Option<Recording>> {
        let percent = if self.legacy { 100.0 } else { 1.0 };
        let present = self.present();
        let mut table = Table::default();
        for (device, (gpu, present)) in (0..).zip(self.gpus.iter().zip(&present)) {
            table.devices.push(gpu.device());
            let columns = gpu.metrics(*present).into_iter().filter_map(Metric::find);
            table.columns.extend(columns.map(|metric| Column { device, metric: metric.into() }));
        }
        let mut recording = RecordingBuilder::default();
        let table = recording.add_table(table);
        for row in &self.rows {
            let numbers = self.numbers.get(row.first..row.first + row.gpus * NUMBERS)?;
            let cells =
                self.gpus.iter().zip(&present).enumerate().flat_map(|(at, (gpu, present))| {
                    let at = at * NUMBERS;
                    let numbers = numbers.get(at..at + NUMBERS).unwrap_or(&[None; NUMBERS]);
                    gpu.cells(*present, numbers, percent)
                });
            recording.add_row(row.time, table, cells).ok()?;
        }
        Some(recording.build())
    }

    fn present(&self) -> Vec<Present> {
        let mut all = vec![Present::default(); self.gpus.len()];
        for row in &self.rows {
            let numbers = self.numbers.get(row.first..row.first + row.gpus * NUMBERS);
            let each = numbers.unwrap_or_default().chunks_exact(NUMBERS);
            for (present, numbers) in all.iter_mut().zip(each) {
                for (present, number) in present.0.iter_mut().zip(numbers) {
                    *present |= number.is_some();
                }
            }
        }
        all
    }
}

impl SessionGpu {
    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            id: DeviceId(format!("GPU-replay-{}-{}", self.host, self.index)),
            scope: Scope::Gpu,
            index: self.index,
            name: self.name.clone(),
            parent: None,
            simulated: true,
        }
    }

    fn metrics(&self, present: Present) -> Vec<&'static str> {
        let [utilization, memory, rx, tx] = present.0;
        let memory = memory && memory_bytes(&self.name).is_some();
        [
            (utilization, "gpu_utilization"),
            (memory, "memory_used_bytes"),
            (memory, "memory_total_bytes"),
            (rx, "pcie_rx_bytes_per_second"),
            (tx, "pcie_tx_bytes_per_second"),
        ]
        .into_iter()
        .filter_map(|(present, name)| present.then_some(name))
        .collect()
    }

    /// In the order of `metrics`.
    fn cells(&self, present: Present, numbers: &[Option<f64>], percent: f64) -> Vec<Option<f64>> {
        let [utilization, memory, rx, tx] = present.0;
        let number = |at: usize| numbers.get(at).copied().flatten();
        let mut cells = Vec::with_capacity(5);
        if utilization {
            cells.push(number(0).map(|share| (share * percent).clamp(0.0, 100.0).round()));
        }
        if let (true, Some(total)) = (memory, memory_bytes(&self.name)) {
            let used = |share: f64| (share * percent / 100.0 * total).clamp(0.0, total).round();
            cells.push(number(1).map(used));
            cells.push(number(1).map(|_| total));
        }
        if rx {
            cells.push(number(2).map(|gigabytes| gigabytes.max(0.0) * 1e9));
        }
        if tx {
            cells.push(number(3).map(|gigabytes| gigabytes.max(0.0) * 1e9));
        }
        cells
    }
}

/// The device memory of a product: sessions tell only the share in use.
fn memory_bytes(product: &str) -> Option<f64> {
    let known = GpuModel::ALL.into_iter().map(GpuModel::model);
    if let Some(model) = known.into_iter().find(|model| model.product == product) {
        return Some(model.memory_bytes);
    }
    // Many names say it: "Tesla V100-SXM2-32GB".
    let words = product.split(|c: char| !c.is_ascii_alphanumeric());
    let gibibytes: u32 = words.filter_map(|word| word.strip_suffix("GB")?.parse().ok()).next()?;
    (gibibytes > 0).then(|| f64::from(gibibytes) * 1_073_741_824.0)
}

/// `host:0:NVIDIA H100`, where the host may hold colons as well.
fn parse_gpu_id(id: &str) -> Option<(&str, u32, &str)> {
    id.match_indices(':').find_map(|(at, _)| {
        let (host, rest) = id.split_at_checked(at)?;
        let (index, name) = rest.strip_prefix(':')?.split_once(':')?;
        Some((host, index.parse().ok()?, name))
    })
}

struct SessionSeed<'a, 's>(&'a mut Session<'s>);

impl<'de> DeserializeSeed<'de> for SessionSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SessionSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a session")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut framed = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "frames" => {
                    framed = true;
                    map.next_value_seed(FramesSeed(self.0))?;
                },
                "schema_version" => {
                    self.0.legacy = false;
                    map.next_value::<IgnoredAny>()?;
                },
                _ => {
                    map.next_value::<IgnoredAny>()?;
                },
            }
        }
        if framed { Ok(()) } else { Err(A::Error::missing_field("frames")) }
    }
}

/// Frames are taken one by one: all of them as objects would need many times the file's size.
struct FramesSeed<'a, 's>(&'a mut Session<'s>);

impl<'de> DeserializeSeed<'de> for FramesSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for FramesSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of frames")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(frame) = seq.next_element::<Frame>()? {
            if !self.0.take(&frame) {
                self.0.too_long = true;
                return Err(A::Error::custom("too long"));
            }
        }
        Ok(())
    }
}
