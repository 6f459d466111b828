//! NVIDIA GPUs through NVML and GPM.
//!
//! Each GPU has two threads. One reads the cheap values in every tick; a tick waits for all of
//! them until a common deadline, and whoever has not answered by then is `unresponsive` while the
//! others go on. The other makes the calls that take milliseconds, each at its own low rate, and
//! leaves the results on a board. One more thread waits for faults that the driver reports.

#![expect(clippy::disallowed_types, reason = "device code measures real time")]

mod reading;
mod gpm;
mod link;
mod process;
mod slurm;
mod thread;
mod fast;
mod board;
mod budget;
mod slow;
mod watch;
mod health;
mod layout;
mod gpu;
mod inspect;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use gswarm_driver::{Nvml, NvmlError, NvmlSearch, OpenError};
use gswarm_types::metric::Metric;
use gswarm_types::{Event, EventKind, Micros, PeerLink, ProcessRow, Severity};

use crate::{Devices, Sample};
use fast::FastThread;
use gpu::Gpu;
use layout::{Layout, Part, Source};
use link::{End, Link};
use process::Procfs;
use slow::SlowThread;
use thread::{DriverTime, Message, Outbox, Stop, Threads};
use watch::WatchThread;

pub use inspect::{InspectedGpu, Inspection, Problem, gpus_on_pci_bus, inspect};

/// How long dropping waits for the threads.
const JOIN_MAX: Duration = Duration::from_secs(1);

/// Messages under way for each GPU: two for the tick, two from the slow thread, and faults.
const MESSAGES_PER_GPU: usize = 64;

/// What to open and how.
#[derive(Debug, Clone)]
pub struct NvmlOptions {
    /// The library file; `None` searches.
    pub library: Option<PathBuf>,
    /// Metrics of tier `Extra` to record.
    pub extra_metrics: Vec<&'static Metric>,
    /// How long one `sample` waits for the slowest GPU.
    pub deadline: Duration,
    /// How long `open` waits for the first answer of the slowest GPU.
    pub open_deadline: Duration,
}

impl Default for NvmlOptions {
    fn default() -> Self {
        Self {
            library: None,
            extra_metrics: Vec::new(),
            deadline: Duration::from_millis(200),
            open_deadline: Duration::from_secs(10),
        }
    }
}

/// The GPUs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NvmlOpenError {
    #[error(transparent)]
    Library(#[from] OpenError),
    #[error("the NVIDIA driver does not tell how many GPUs there are")]
    Count(#[source] NvmlError),
    #[error("the NVIDIA driver sees no GPU")]
    NoGpu,
    #[error("cannot start a thread for a GPU")]
    Thread(#[source] io::Error),
}

impl NvmlOpenError {
    /// What the user can do about it, in one sentence.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Library(error) => error.fix(),
            Self::Count(_) => "run `nvidia-smi` and read `dmesg` for lines that begin with NVRM",
            Self::NoGpu => {
                "check that the GPU is given to this machine or container (`nvidia-smi -L`)"
            },
            Self::Thread(_) => "raise the limit of threads for this user (`ulimit -u`)",
        }
    }
}

/// All NVIDIA GPUs of the machine.
#[derive(Debug)]
pub struct NvmlDevices {
    deadline: Duration,
    gpus: Vec<Gpu>,
    messages: Receiver<(usize, Message)>,
    stop: Arc<Stop>,
    threads: Threads,
    driver_time: Arc<DriverTime>,
    seq: u64,
    layout: Layout,
    /// Something that the table depends on has changed.
    layout_is_old: bool,
    topology: Option<Vec<PeerLink>>,
    topology_is_old: bool,
    events: Vec<Event>,
}

impl NvmlDevices {
    /// Loads the library, starts the threads and waits until every GPU has answered once, or for
    /// `open_deadline`. A GPU that hangs is in the table all the same, as `unresponsive`.
    pub fn open(options: NvmlOptions) -> Result<Self, NvmlOpenError> {
        let nvml = Nvml::open(&NvmlSearch::for_library(options.library.as_deref()))?;
        let count = nvml.device_count().map_err(NvmlOpenError::Count)?;
        if count == 0 {
            return Err(NvmlOpenError::NoGpu);
        }
        let room = MESSAGES_PER_GPU * usize::try_from(count).unwrap_or(1);
        let (sender, messages) = sync_channel(room);
        let mut devices = Self {
            deadline: options.deadline,
            gpus: Vec::new(),
            messages,
            stop: Arc::default(),
            threads: Threads::new(),
            driver_time: Arc::default(),
            seq: FastThread::FIRST_SEQ,
            layout: Layout::default(),
            layout_is_old: true,
            topology: None,
            topology_is_old: true,
            events: Vec::new(),
        };
        let extra: Arc<[&'static Metric]> = Arc::from(options.extra_metrics);
        for index in 0..count {
            devices.start_gpu(&nvml, (index, count), &extra, &sender)?;
        }
        let outboxes =
            (0..devices.gpus.len()).map(|gpu| Outbox { gpu, messages: sender.clone() }).collect();
        let watch = WatchThread { nvml, outboxes, stop: Arc::clone(&devices.stop) };
        devices.spawn("gpu-events".to_owned(), move || watch.run())?;
        devices.receive_until(options.open_deadline, Gpu::has_opened);
        Ok(devices)
    }

    fn start_gpu(
        &mut self,
        nvml: &Nvml,
        (index, count): (u32, u32),
        extra: &Arc<[&'static Metric]>,
        sender: &SyncSender<(usize, Message)>,
    ) -> Result<(), NvmlOpenError> {
        let (asks, asked) = sync_channel(1);
        let outbox = Outbox { gpu: self.gpus.len(), messages: sender.clone() };
        let gpu = Gpu::new(self.gpus.len(), asks);
        let fast = FastThread {
            nvml: nvml.clone(),
            index,
            count,
            extra: Arc::clone(extra),
            asks: asked,
            board: Arc::clone(&gpu.board),
            outbox: outbox.clone(),
            driver_time: Arc::clone(&self.driver_time),
        };
        let slow = SlowThread {
            nvml: nvml.clone(),
            index,
            extra: Arc::clone(extra),
            board: Arc::clone(&gpu.board),
            outbox,
            driver_time: Arc::clone(&self.driver_time),
            procfs: Procfs::default(),
        };
        self.gpus.push(gpu);
        self.spawn(format!("gpu{index}"), move || fast.run())?;
        self.spawn(format!("gpu{index}-slow"), move || slow.run())
    }

    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), NvmlOpenError> {
        self.threads.spawn(name, run).map_err(NvmlOpenError::Thread)
    }

    /// Takes messages until every GPU is done or the time is over.
    fn receive_until(&mut self, timeout: Duration, is_done: impl Fn(&Gpu) -> bool) {
        let started = Instant::now();
        while !self.gpus.iter().all(&is_done) {
            let left = timeout.saturating_sub(started.elapsed());
            match self.messages.recv_timeout(left) {
                Ok((gpu, message)) => self.take(gpu, message),
                Err(_) => return,
            }
        }
    }

    fn take(&mut self, index: usize, message: Message) {
        let Some(gpu) = self.gpus.get_mut(index) else {
            return;
        };
        match message {
            Message::Profile(profile) => {
                gpu.profile = Some(profile);
                self.layout_is_old = true;
                self.topology_is_old = true;
            },
            Message::Row { seq, cells } => gpu.answered(seq == self.seq, Some(cells)),
            Message::Lost { seq } => gpu.answered(seq == self.seq, None),
            Message::OverBudget { row } => self.events.push(Event {
                kind: EventKind::DriverSlow,
                severity: Severity::Warning,
                device: Some(gpu.id()),
                code: Some(row.0),
                message: format!(
                    "the driver took {} us for one row: to stay under 2 % of a core, this GPU is read \
                     less often and its values are held in between",
                    row.0
                ),
            }),
            Message::SlowReady => gpu.slow_ready = true,
            Message::Watched(watched) => {
                gpu.watched = Some(watched);
                self.layout_is_old = true;
            },
            Message::Xid(xid) => {
                gpu.last_xid = Some(xid);
                self.events.push(watch::event(gpu.id(), xid));
            },
            Message::XidsDropped(dropped) => self.events.push(Event {
                kind: EventKind::DriverError,
                severity: Severity::Warning,
                device: Some(gpu.id()),
                code: i64::try_from(dropped).ok(),
                message: format!("{dropped} faults came too fast to be recorded"),
            }),
        }
    }

    /// Asks every GPU that is not still busy with an earlier tick, and waits for those.
    fn ask_all(&mut self, now: Micros) {
        self.seq += 1;
        let seq = self.seq;
        for gpu in &mut self.gpus {
            gpu.ask(seq, now);
        }
        self.receive_until(self.deadline, |gpu| gpu.pending != Some(seq));
    }

    /// Picks up what the slow threads left; true when there are other lists of processes.
    fn read_boards(&mut self, now: Micros) -> bool {
        let mut has_processes = false;
        for gpu in &mut self.gpus {
            let news = gpu.read_board(now);
            self.layout_is_old |= news.profile;
            self.topology_is_old |= news.profile || news.links_up;
            has_processes |= news.processes;
        }
        has_processes
    }

    /// The table as it is now, built again only when something in it changed.
    fn refresh_layout(&mut self) {
        if !std::mem::take(&mut self.layout_is_old) {
            return;
        }
        let parts: Vec<Part<'_>> = self.gpus.iter().map(Gpu::part).collect();
        self.layout = Layout::new(&parts);
    }

    fn cells(&self) -> Vec<Option<f64>> {
        let cell = |(gpu, source): &(usize, Source)| self.gpus.get(*gpu)?.cell(*source);
        self.layout.sources.iter().map(cell).collect()
    }

    fn processes(&self) -> Vec<ProcessRow> {
        let lists = self.gpus.iter().filter_map(|gpu| gpu.snapshot.processes.as_ref());
        lists.flat_map(|rows| rows.iter().cloned()).collect()
    }

    /// The topology, when it differs from the last one given.
    fn changed_topology(&mut self) -> Option<Vec<PeerLink>> {
        if !std::mem::take(&mut self.topology_is_old) {
            return None;
        }
        let up: Vec<Vec<&Link>> = self.gpus.iter().map(|gpu| gpu.snapshot.links_up()).collect();
        let ends: Vec<End<'_>> =
            self.gpus.iter().zip(&up).map(|(gpu, links)| gpu.end(links)).collect();
        let topology = link::topology(&ends);
        if self.topology.as_ref() == Some(&topology) {
            return None;
        }
        self.topology = Some(topology.clone());
        Some(topology)
    }
}

impl Devices for NvmlDevices {
    fn sample(&mut self, now: Micros) -> Sample {
        let has_processes = self.read_boards(now);
        // Answers to earlier ticks come first, so that a GPU that is back is asked again.
        while let Ok((gpu, message)) = self.messages.try_recv() {
            self.take(gpu, message);
        }
        self.ask_all(now);
        self.events.extend(self.gpus.iter_mut().flat_map(Gpu::judge));
        self.refresh_layout();
        Sample {
            table: Arc::clone(&self.layout.table),
            cells: self.cells(),
            events: std::mem::take(&mut self.events),
            processes: has_processes.then(|| self.processes()),
            topology: self.changed_topology(),
        }
    }

    fn driver_time(&self) -> Micros {
        self.driver_time.total()
    }
}

impl Drop for NvmlDevices {
    fn drop(&mut self) {
        for gpu in &self.gpus {
            gpu.board.stop();
        }
        self.stop.stop();
        // Without the senders the threads that wait to be asked end.
        self.gpus.clear();
        self.threads.join(JOIN_MAX);
    }
}
