//! The machine itself: CPU, memory, disks and network interfaces from procfs and sysfs.
//!
//! Plain reads of files that stay open, into one buffer: an agent that reads a row ten times a
//! second must not be seen in its own numbers. What a container hides or an old kernel lacks is
//! absent.

mod file;
mod parse;
mod counters;

use std::path::PathBuf;
use std::sync::Arc;

use gswarm_types::metric::Metric;
use gswarm_types::{Column, DeviceId, DeviceInfo, MetricName, Micros, Scope, Table};
use rustix::time::{ClockId, clock_gettime};

use self::counters::{Class, Tracked};
use self::file::ProcFile;
use self::parse::CpuTimes;
use crate::{Devices, Sample};

/// Where the machine's numbers are read.
#[derive(Debug, Clone)]
pub struct HostOptions {
    pub proc_root: PathBuf,
    pub sys_root: PathBuf,
    /// A path on the file system whose size and use are reported.
    pub disk_path: PathBuf,
}

/// The machine as devices: itself, its disks and its network interfaces.
#[derive(Debug)]
pub struct HostDevices {
    table: Arc<Table>,
    product: String,
    files: Files,
    disk_path: PathBuf,
    buffer: Vec<u8>,
    disks: Tracked<3>,
    nics: Tracked<2>,
    before: Option<Before>,
    /// When the machine was last read, and what it said.
    held: Option<(Micros, Vec<Option<f64>>)>,
}

#[derive(Debug)]
struct Files {
    stat: ProcFile,
    loadavg: ProcFile,
    meminfo: ProcFile,
    statm: ProcFile,
    diskstats: ProcFile,
    net_dev: ProcFile,
}

/// What rates are taken against.
#[derive(Debug, Clone, Copy)]
struct Before {
    now: Micros,
    cpu: Option<CpuTimes>,
    agent_cpu: Micros,
}

const NODE_METRICS: [&str; 9] = [
    "node_cpu_utilization",
    "node_load_1m",
    "node_memory_total_bytes",
    "node_memory_used_bytes",
    "node_swap_used_bytes",
    "node_disk_used_bytes",
    "node_disk_total_bytes",
    "agent_cpu_percent",
    "agent_memory_bytes",
];
const DISK_METRICS: [&str; 3] =
    ["disk_read_bytes_per_second", "disk_write_bytes_per_second", "disk_busy_percent"];
const NIC_METRICS: [&str; 2] = ["nic_rx_bytes_per_second", "nic_tx_bytes_per_second"];

/// The name of the machine as a device; there is only one.
const NODE_DEVICE: &str = "node";
/// Between quick ticks the machine's values are held: the kernel counts CPU time in hundredths of a
/// second, and ten times a second reading them would cost more than the GPUs do.
const HOLD: Micros = Micros::from_millis(450);
/// Sectors of `/proc/diskstats`, whatever the disk itself calls a sector.
const SECTOR_BYTES: f64 = 512.0;

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            proc_root: PathBuf::from("/proc"),
            sys_root: PathBuf::from("/sys"),
            disk_path: PathBuf::from("/"),
        }
    }
}

impl HostDevices {
    pub fn new(options: HostOptions) -> Self {
        let proc = |name: &str| ProcFile::new(options.proc_root.join(name));
        let mut buffer = Vec::new();
        let product = proc("cpuinfo")
            .head(&mut buffer)
            .and_then(parse::cpu_product)
            .unwrap_or_else(|| NODE_DEVICE.to_owned());
        Self {
            table: Arc::new(table_of(&product, &[], &[])),
            product,
            files: Files {
                stat: proc("stat"),
                loadavg: proc("loadavg"),
                meminfo: proc("meminfo"),
                statm: proc("self/statm"),
                diskstats: proc("diskstats"),
                net_dev: proc("net/dev"),
            },
            disk_path: options.disk_path,
            buffer,
            disks: Tracked::new(options.sys_root.join("block"), Class::Disk),
            nics: Tracked::new(options.sys_root.join("class/net"), Class::Nic),
            before: None,
            held: None,
        }
    }

    /// What was read so shortly before that reading again would say nothing new.
    fn held(&self, now: Micros) -> Option<Vec<Option<f64>>> {
        let (at, cells) = self.held.as_ref()?;
        (now > *at && now - *at < HOLD).then(|| cells.clone())
    }

    /// The nine cells of the machine itself, in the order of `NODE_METRICS`.
    fn node_cells(&mut self, now: Micros, cells: &mut Vec<Option<f64>>) {
        let cpu = self.files.stat.head(&mut self.buffer).and_then(parse::cpu_times);
        let load = self.files.loadavg.head(&mut self.buffer).and_then(parse::first_number);
        let memory = self.files.meminfo.head(&mut self.buffer).map(parse::memory);
        let memory = memory.unwrap_or_default();
        let resident = self.files.statm.head(&mut self.buffer).and_then(parse::resident_pages);
        let page_bytes = whole(u64::try_from(rustix::param::page_size()).unwrap_or(4_096));
        let agent_cpu = agent_cpu();
        let before = self.before.replace(Before { now, cpu, agent_cpu });
        let span = before.map(|before| now - before.now).filter(|span| *span > Micros::ZERO);
        let agent_percent = before.zip(span).map(|(before, span)| {
            let used = (agent_cpu - before.agent_cpu).as_secs_f64();
            (used / span.as_secs_f64() * 100.0).max(0.0)
        });
        let (disk_used, disk_total) = match rustix::fs::statvfs(&self.disk_path) {
            Ok(disk) if disk.f_blocks > 0 => {
                let used = disk.f_blocks.saturating_sub(disk.f_bfree);
                let block = disk.f_frsize;
                (Some(used.saturating_mul(block)), Some(disk.f_blocks.saturating_mul(block)))
            },
            Ok(_) | Err(_) => (None, None),
        };
        cells.extend([
            before
                .and_then(|before| before.cpu)
                .zip(cpu)
                .and_then(|(old, new)| new.busy_since(old)),
            load,
            memory.total_bytes.map(whole),
            memory.used_bytes().map(whole),
            memory.swap_used_bytes().map(whole),
            disk_used.map(whole),
            disk_total.map(whole),
            agent_percent,
            resident.map(|pages| whole(pages) * page_bytes),
        ]);
    }

    /// Reads the counters of disks and interfaces; true when there may be others than before.
    fn read_counters(&mut self, now: Micros) -> bool {
        let disks = self.files.diskstats.whole(&mut self.buffer);
        let disks_changed = self.disks.update(now, disks.map(parse::disks));
        let nics = self.files.net_dev.whole(&mut self.buffer);
        let nics_changed = self.nics.update(now, nics.map(parse::nics));
        disks_changed || nics_changed
    }
}

impl Devices for HostDevices {
    fn sample(&mut self, now: Micros) -> Sample {
        if let Some(cells) = self.held(now) {
            let table = Arc::clone(&self.table);
            return Sample { table, cells, events: Vec::new(), processes: None, topology: None };
        }
        if self.read_counters(now) {
            let table = table_of(&self.product, &self.disks.names(), &self.nics.names());
            if table != *self.table {
                self.table = Arc::new(table);
            }
        }
        let mut cells = Vec::with_capacity(self.table.columns.len());
        self.node_cells(now, &mut cells);
        for rates in self.disks.rates() {
            let [read, write, busy_milliseconds] = rates;
            cells.push(read.map(|sectors| sectors * SECTOR_BYTES));
            cells.push(write.map(|sectors| sectors * SECTOR_BYTES));
            cells.push(busy_milliseconds.map(|busy| (busy / 10.0).clamp(0.0, 100.0)));
        }
        cells.extend(self.nics.rates().flatten());
        self.held = Some((now, cells.clone()));
        let table = Arc::clone(&self.table);
        Sample { table, cells, events: Vec::new(), processes: None, topology: None }
    }
}

fn table_of(product: &str, disks: &[&str], nics: &[&str]) -> Table {
    let mut table = Table::default();
    add(&mut table, Scope::Node, &[NODE_DEVICE], &NODE_METRICS);
    add(&mut table, Scope::Disk, disks, &DISK_METRICS);
    add(&mut table, Scope::Nic, nics, &NIC_METRICS);
    if let Some(node) = table.devices.first_mut() {
        product.clone_into(&mut node.name);
    }
    table
}

fn add(table: &mut Table, scope: Scope, names: &[&str], metrics: &[&str]) {
    for (index, name) in (0..).zip(names) {
        let device = u32::try_from(table.devices.len()).unwrap_or(u32::MAX);
        let columns = metrics.iter().filter_map(|name| Metric::find(name));
        table
            .columns
            .extend(columns.map(|metric| Column { device, metric: MetricName::from(metric) }));
        table.devices.push(DeviceInfo {
            id: DeviceId((*name).to_owned()),
            scope,
            index,
            name: (*name).to_owned(),
            parent: None,
            simulated: false,
        });
    }
}

/// The agent's CPU time; `/proc/self/stat` counts in hundredths of a second, which is too coarse
/// for a process that should use less than that in a second.
fn agent_cpu() -> Micros {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Micros::from_secs(time.tv_sec) + Micros(time.tv_nsec / 1_000)
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts of one machine are below 2^53")]
fn whole(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;
