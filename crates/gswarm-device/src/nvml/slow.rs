//! The thread that makes the slow calls of one GPU, each at its own low rate.

use std::sync::Arc;
use std::time::Instant;

use gswarm_driver::{Device, Nvml, NvmlError};
use gswarm_types::Micros;
use gswarm_types::metric::Metric;

use super::board::{Board, Cell, SlowProfile};
use super::link::{self, Link, LinkCounters};
use super::process::{self, Procfs};
use super::reading::{self, Key, Reading, SLOW};
use super::thread::{DriverTime, Message, Outbox};

const PROCESSES_EVERY: Micros = Micros::from_secs(5);
const LINKS_EVERY: Micros = Micros::from_secs(10);
const LINK_RATES_EVERY: Micros = Micros::from_secs(1);
/// How soon a GPU that cannot be opened is tried again.
const RETRY_EVERY: Micros = Micros::from_secs(10);

/// What the thread works with.
#[derive(Debug)]
pub(super) struct SlowThread {
    pub(super) nvml: Nvml,
    pub(super) index: u32,
    pub(super) extra: Arc<[&'static Metric]>,
    pub(super) board: Arc<Board>,
    pub(super) outbox: Outbox,
    pub(super) driver_time: Arc<DriverTime>,
    pub(super) procfs: Procfs,
}

/// One GPU and what is read of it.
#[derive(Debug)]
struct Reader {
    device: Device,
    has_gpm: bool,
    /// All that have been up since the start.
    links: Vec<Link>,
    tasks: Vec<Task>,
}

#[derive(Debug)]
struct Task {
    work: Work,
    every: Micros,
    /// `None` before the first tick, when the node's time is not known: due at once.
    due: Option<Micros>,
    /// Where its values go on the board.
    position: usize,
    width: usize,
}

#[derive(Debug)]
enum Work {
    Reading(&'static Reading),
    /// The list, and how many there are.
    Processes,
    /// Which links are up.
    Links,
    /// Traffic of all links together, then of each.
    LinkRates(LinkCounters),
}

impl SlowThread {
    /// Tries the GPU out, then reads what is due until told to stop.
    pub(super) fn run(self) {
        let Some(has_gpm) = self.board.wait_for_gpm() else { return };
        let mut slot = self.timed(|| self.open(has_gpm, None).ok());
        if self.outbox.send(Message::SlowReady).is_err() {
            return;
        }
        let mut due = None;
        while let Some(now) = self.board.wait_until(due) {
            due = Some(match &mut slot {
                Some(reader) => self.timed(|| self.read_due(reader, now)),
                None => {
                    slot = self.timed(|| self.open(has_gpm, Some(now)).ok());
                    now + RETRY_EVERY
                },
            });
        }
    }

    fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let value = call();
        self.driver_time.add(started.elapsed());
        value
    }

    fn open(&self, has_gpm: bool, now: Option<Micros>) -> Result<Reader, NvmlError> {
        let device = self.nvml.device(self.index)?;
        let links = link::scan(&device);
        let mut reader = Reader { device, has_gpm, links, tasks: Vec::new() };
        self.plan(&mut reader, now)?;
        Ok(reader)
    }

    /// Makes every call once: what the GPU does not offer gets no column, the rest its first value.
    fn plan(&self, reader: &mut Reader, now: Option<Micros>) -> Result<(), NvmlError> {
        let (mut keys, mut cells, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        for (mut work, every) in self.candidates(reader) {
            let values = self.read(&mut work, reader, now);
            match values {
                Err(NvmlError::GpuLost) => return Err(NvmlError::GpuLost),
                Err(error) if error.is_absence() => continue,
                Ok(_) | Err(_) => {},
            }
            let position = keys.len();
            keys.extend(work.keys(&reader.links));
            let width = keys.len() - position;
            let values = values.unwrap_or_else(|_| vec![None; width]);
            cells.extend(values.iter().map(|value| Cell { value: *value, at: now, every }));
            let due = now.map(|now| now + every);
            tasks.push(Task { work, every, due, position, width });
        }
        let has_links = !reader.links.is_empty();
        let profile = SlowProfile {
            keys,
            links: reader.links.clone(),
            link_bytes_per_second: has_links
                .then(|| link::link_bytes_per_second(&reader.device))
                .flatten(),
            memory_bytes_per_second: reading::peak_memory_bytes_per_second(&reader.device).ok(),
        };
        self.board.reset(Arc::new(profile), cells);
        reader.tasks = tasks;
        Ok(())
    }

    fn candidates(&self, reader: &Reader) -> Vec<(Work, Micros)> {
        let wanted = SLOW.iter().filter(|slow| {
            slow.reading.is_wanted(&self.extra) && !(slow.instead_of_gpm && reader.has_gpm)
        });
        let mut all: Vec<_> =
            wanted.map(|slow| (Work::Reading(&slow.reading), slow.every)).collect();
        all.push((Work::Processes, PROCESSES_EVERY));
        all.push((Work::Links, LINKS_EVERY));
        if !reader.links.is_empty() && !reader.has_gpm {
            all.push((Work::LinkRates(LinkCounters::default()), LINK_RATES_EVERY));
        }
        all
    }

    /// Reads what is due and tells when the next is.
    fn read_due(&self, reader: &mut Reader, now: Micros) -> Micros {
        let is_due = |task: &Task| task.due <= Some(now);
        if reader.tasks.iter().any(|task| is_due(task) && matches!(task.work, Work::Links)) {
            // A link that came up gets its columns now; one that goes down keeps them.
            let merged = link::merge(&reader.links, &link::scan(&reader.device));
            if merged != reader.links {
                reader.links = merged;
                if self.plan(reader, Some(now)).is_err() {
                    return now + RETRY_EVERY;
                }
            }
        }
        let mut tasks = std::mem::take(&mut reader.tasks);
        for task in tasks.iter_mut().filter(|task| is_due(task)) {
            let values = self.read(&mut task.work, reader, Some(now));
            let values = values.unwrap_or_else(|_| vec![None; task.width]);
            self.board.put(task.position, now, &values);
            task.due = Some(now + task.every);
        }
        reader.tasks = tasks;
        let next = reader.tasks.iter().filter_map(|task| task.due).min();
        next.unwrap_or(now + RETRY_EVERY)
    }

    fn read(
        &self,
        work: &mut Work,
        reader: &Reader,
        now: Option<Micros>,
    ) -> Result<Vec<Option<f64>>, NvmlError> {
        let device = &reader.device;
        match work {
            Work::Reading(reading) => {
                let values = (reading.read)(device)?;
                Ok(values.iter().take(reading.metrics.len()).copied().map(Some).collect())
            },
            Work::Processes => {
                let rows = process::read(device, &self.procfs)?;
                let count = rows.len() as f64;
                self.board.put_processes(now, PROCESSES_EVERY, rows);
                Ok(vec![Some(count)])
            },
            Work::Links => {
                let up = reader.links.iter().map(|link| device.link_active(link.number).ok());
                Ok(up.map(|up| up.map(|up| f64::from(u8::from(up)))).collect())
            },
            Work::LinkRates(counters) => {
                let links = counters.read(device, &reader.links)?;
                let total = |direction: usize| -> Option<f64> {
                    links.iter().map(|rates| rates.get(direction).copied().flatten()).sum()
                };
                let totals = [total(0), total(1)];
                Ok(totals.into_iter().chain(links.iter().flatten().copied()).collect())
            },
        }
    }
}

impl Work {
    /// What `SlowThread::read` gives, in its order.
    fn keys(&self, links: &[Link]) -> Vec<Key> {
        let numbers = links.iter().map(|link| link.number);
        match self {
            Self::Reading(reading) => reading.metrics.iter().map(|name| Key::gpu(name)).collect(),
            Self::Processes => vec![Key::gpu("process_count")],
            Self::Links => numbers.map(|number| Key::link("link_up", number)).collect(),
            Self::LinkRates(_) => {
                let totals = ["nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"];
                let each = numbers.flat_map(|number| {
                    ["link_rx_bytes_per_second", "link_tx_bytes_per_second"]
                        .map(|metric| Key::link(metric, number))
                });
                totals.map(Key::gpu).into_iter().chain(each).collect()
            },
        }
    }
}
