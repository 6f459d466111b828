//! Simulated GPUs with believable dynamics: the same seed and the same times give the same rows.

pub(crate) mod spec;
pub(crate) mod model;
pub(crate) mod fault;
mod noise;
mod job;
mod gpu;
mod reading;
mod topology;

use std::sync::Arc;

use gswarm_types::metric::Metric;
use gswarm_types::{
    Column, DeviceId, DeviceInfo, Event, MetricName, Micros, PeerLink, ProcessKind, ProcessRow,
    Scope, Table,
};

use self::fault::SimFault;
use self::gpu::{Gpu, Health};
use self::job::{Company, Job, JobKind};
use self::noise::mix;
use self::reading::{Average, Reading, readings_of};
use self::spec::{Scenario, SimSpec};
use crate::{Devices, Sample};

/// What every tool of this kind reads of a GPU: the load of benchmarks.
pub const COMMON_METRICS: [&str; 10] = [
    "gpu_utilization",
    "memory_controller_utilization",
    "memory_used_bytes",
    "temperature_celsius",
    "power_milliwatts",
    "energy_millijoules",
    "clock_sm_mhz",
    "clock_memory_mhz",
    "pcie_rx_bytes_per_second",
    "pcie_tx_bytes_per_second",
];

/// The internal step: as fast as the counters of real drivers move.
const STEP: Micros = Micros::from_millis(100);
/// The longest stretch that is lived through step by step; beyond it time jumps. Also how long
/// the GPUs have been running when they are first looked at, so that they are not all cold.
const CATCH_UP_STEPS_MAX: i64 = 600;
/// Processes are read as often as the real driver is asked for them.
const PROCESS_PERIOD_STEPS: i64 = 100;
/// Events that nobody collected are bounded: later ones are dropped.
const EVENTS_MAX: usize = 1_000;
const LINK_METRICS: [&str; 3] = ["link_rx_bytes_per_second", "link_tx_bytes_per_second", "link_up"];
const USERS: [&str; 6] = ["alice", "bob", "carol", "dave", "erin", "frank"];

/// Simulated GPUs of one node.
#[derive(Debug)]
pub struct SimDevices {
    scenario: Scenario,
    seed: u64,
    table: Arc<Table>,
    topology: Option<Vec<PeerLink>>,
    gpus: Vec<Gpu>,
    layouts: Vec<Layout>,
    job: Job,
    /// The last step lived through; `None` before the first sample.
    step: Option<i64>,
    /// Still to come, the next one last.
    faults: Vec<SimFault>,
    events: Vec<Event>,
    /// What the processes were last reported for.
    processes_seen: Option<ProcessesSeen>,
}

/// What the GPUs of one group report.
#[derive(Debug)]
struct Layout {
    gpus: usize,
    readings: Vec<Reading>,
    /// NVLinks of each GPU that lead somewhere.
    nvlinks: u32,
    /// How many of them are devices of their own.
    link_devices: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct ProcessesSeen {
    period: i64,
    job_seed: u64,
    /// One bit for each GPU that a process holds.
    held: u64,
}

impl SimDevices {
    /// `node_seed` makes equal specs on different nodes differ, down to the device ids.
    pub fn new(spec: &SimSpec, node_seed: u64, extra_metrics: &[&'static Metric]) -> Self {
        let seed = mix(mix(0x6773_7761_726d, spec.seed), node_seed);
        let mut table = Table::default();
        let mut gpus = Vec::new();
        let mut layouts = Vec::new();
        for group in spec.groups() {
            let model = group.model.model();
            let nvlinks = topology::nvlinks_in_use(*group);
            let readings = readings_of(model, nvlinks, extra_metrics);
            for _ in 0..group.count {
                let index = position(gpus.len());
                let gpu_seed = mix(seed, 1_000 + u64::from(index));
                let id = device_id(gpu_seed);
                let name = model.product.to_owned();
                add_device(&mut table, (Scope::Gpu, index, None), id.clone(), name);
                let metrics = readings.iter().map(|(metric, _)| *metric);
                add_columns(&mut table, metrics);
                gpus.push(Gpu::new(model, id, gpu_seed));
            }
            layouts.push(Layout {
                gpus: usize::try_from(group.count).unwrap_or(usize::MAX),
                readings: readings.into_iter().map(|(_, reading)| reading).collect(),
                nvlinks,
                link_devices: if spec.links { nvlinks } else { 0 },
            });
        }
        add_links(&mut table, &gpus, &layouts);
        Self {
            scenario: spec.scenario,
            seed,
            table: Arc::new(table),
            topology: Some(topology::peers(spec.groups())),
            job: Job::at(spec.scenario, seed, position(gpus.len()), 0),
            gpus,
            layouts,
            step: None,
            faults: Vec::new(),
            events: Vec::new(),
            processes_seen: None,
        }
    }

    /// Schedules faults besides the rare ones that the seed brings. Faults of GPUs that do not
    /// exist are ignored.
    #[must_use]
    pub fn with_faults(mut self, mut faults: Vec<SimFault>) -> Self {
        faults.sort_by_key(|fault| fault.at);
        faults.reverse();
        self.faults = faults;
        self
    }

    /// Lives through the steps up to `now`. Time that goes back changes nothing.
    fn advance(&mut self, now: Micros) {
        let last = now.0.div_euclid(STEP.0);
        let earliest = last - CATCH_UP_STEPS_MAX;
        let first = self.step.map_or(earliest, |step| (step + 1).max(earliest));
        let first_look = self.step.is_none();
        for step in first..=last {
            self.apply_faults(Micros(step.saturating_mul(STEP.0)));
            self.live(step);
            if first_look && step < last {
                // What happened before anyone looked is not news.
                self.events.clear();
            }
        }
        self.step = self.step.max(Some(last));
        self.apply_faults(now);
        self.events.truncate(EVENTS_MAX);
    }

    fn live(&mut self, step: i64) {
        if !(self.job.first_step..self.job.next_step).contains(&step) {
            self.job = Job::at(self.scenario, self.seed, position(self.gpus.len()), step);
        }
        let dead = self.gpus.iter().any(|gpu| gpu.health != Health::Answering);
        let slow = self.gpus.iter().any(|gpu| gpu.slow);
        for (index, gpu) in (0..).zip(&mut self.gpus) {
            let company = if dead {
                Company::BesideDead
            } else if gpu.slow {
                Company::Slow
            } else if slow {
                Company::BesideSlow
            } else {
                Company::Healthy
            };
            let load = self.job.load(index, step, company);
            gpu.step(step, load);
            gpu.spontaneous(step, &mut self.events);
        }
    }

    fn apply_faults(&mut self, until: Micros) {
        while let Some(fault) = self.faults.pop_if(|fault| fault.at <= until) {
            let gpu = usize::try_from(fault.gpu).ok().and_then(|gpu| self.gpus.get_mut(gpu));
            if let Some(gpu) = gpu {
                gpu.suffer(fault.kind, &mut self.events);
            }
        }
    }

    fn cells(&mut self) -> Vec<Option<f64>> {
        let mut cells = Vec::with_capacity(self.table.columns.len());
        let mut gpus = self.gpus.iter_mut();
        for layout in &self.layouts {
            for gpu in gpus.by_ref().take(layout.gpus) {
                gpu.close_window();
                cells.extend(layout.readings.iter().map(|reading| reading.of(gpu, layout.nvlinks)));
            }
        }
        let mut gpus = self.gpus.iter();
        for layout in &self.layouts {
            for gpu in gpus.by_ref().take(layout.gpus) {
                let rx = Reading::Average(Average::NvlinkRx).of(gpu, 1);
                let tx = Reading::Average(Average::NvlinkTx).of(gpu, 1);
                let up = rx.map(|_| 1.0);
                for _ in 0..layout.link_devices {
                    cells.extend([rx, tx, up]);
                }
            }
        }
        cells
    }

    /// The processes, at their period and whenever they change.
    fn processes(&mut self) -> Option<Vec<ProcessRow>> {
        let holds = |gpu: &Gpu| gpu.seen.held && gpu.health == Health::Answering;
        let held = self.gpus.iter().fold(0, |bits, gpu| bits << 1 | u64::from(holds(gpu)));
        let period = self.step.unwrap_or(0).div_euclid(PROCESS_PERIOD_STEPS);
        let seen = ProcessesSeen { period, job_seed: self.job.seed, held };
        if self.processes_seen.as_ref() == Some(&seen) {
            return None;
        }
        self.processes_seen = Some(seen);
        let seed = self.job.seed;
        let user = usize::try_from(mix(seed, 20) % 6).unwrap_or(0);
        let pid = 4_000 + u32::try_from(mix(seed, 21) % 3_000_000).unwrap_or(0);
        // Seven digits, as a cluster of some years would have them.
        let job = 1_000_000 + mix(seed, 22) % 9_000_000;
        let name = match self.job.kind {
            JobKind::Steady | JobKind::Training => "python3",
            JobKind::Inference => "vllm",
            JobKind::Interactive => "ipykernel",
            JobKind::Idle => "idle",
        };
        let rows = (0..).zip(&self.gpus).filter(|(_, gpu)| holds(gpu)).map(|(device, gpu)| {
            #[expect(clippy::cast_possible_truncation, reason = "memory is far below 2^53")]
            #[expect(clippy::cast_sign_loss, reason = "memory in use is never negative")]
            let memory_bytes = gpu.seen.memory_used_bytes as u64;
            ProcessRow {
                device,
                pid: pid + device * 3,
                name: Some(name.to_owned()),
                user: Some(USERS[user].to_owned()),
                job: Some(job.to_string()),
                memory_bytes: Some(memory_bytes),
                kind: ProcessKind::Compute,
            }
        });
        Some(rows.collect())
    }
}

impl Devices for SimDevices {
    fn sample(&mut self, now: Micros) -> Sample {
        self.advance(now);
        Sample {
            table: Arc::clone(&self.table),
            cells: self.cells(),
            events: std::mem::take(&mut self.events),
            processes: self.processes(),
            topology: self.topology.take(),
        }
    }
}

fn add_device(
    table: &mut Table,
    (scope, index, parent): (Scope, u32, Option<u32>),
    id: DeviceId,
    name: String,
) {
    table.devices.push(DeviceInfo { id, scope, index, name, parent, simulated: true });
}

/// Gives columns to the device that was added last.
fn add_columns(table: &mut Table, metrics: impl Iterator<Item = &'static Metric>) {
    let device = position(table.devices.len().saturating_sub(1));
    table.columns.extend(metrics.map(|metric| Column { device, metric: MetricName::from(metric) }));
}

fn add_links(table: &mut Table, gpus: &[Gpu], layouts: &[Layout]) {
    let mut gpus = (0..).zip(gpus);
    let mut index = 0;
    for layout in layouts {
        for (parent, gpu) in gpus.by_ref().take(layout.gpus) {
            for link in 0..layout.link_devices {
                let id = DeviceId(format!("{}/nvlink{link}", gpu.id));
                let name = format!("NVLink {link}");
                add_device(table, (Scope::Link, index, Some(parent)), id, name);
                add_columns(table, LINK_METRICS.iter().filter_map(|name| Metric::find(name)));
                index += 1;
            }
        }
    }
}

/// Looks like a vendor's UUID and says that it is none.
fn device_id(seed: u64) -> DeviceId {
    let [a, b] = [mix(seed, 31), mix(seed, 32)];
    DeviceId(format!(
        "GPU-sim-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff
    ))
}

fn position(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
