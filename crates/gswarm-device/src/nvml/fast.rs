//! The thread that reads one GPU in every tick.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use gswarm_driver::{Device, Nvml, NvmlError};
use gswarm_types::metric::Metric;
use gswarm_types::{Micros, PeerKind};

use super::board::Board;
use super::budget::Budget;
use super::gpm::Gpm;
use super::link;
use super::reading::{FAST, FastReading, Key, Values};
use super::thread::{Closed, DriverTime, Message, Outbox};

/// A row that takes longer hung, and is told as such.
const LATE: Duration = Duration::from_millis(200);
/// How early a held value counts as due.
const DUE_EARLY: Micros = Micros::from_millis(50);

/// A request for one row.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// Counts ticks; the answer carries it back, so that a late one is known as such.
    pub(super) seq: u64,
    pub(super) now: Micros,
    /// The links whose traffic is wanted.
    pub(super) links: Arc<[u32]>,
}

/// What one GPU is and which values it gives in every tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    /// Vendor UUID, or the PCI address where there is none.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) pci: Option<String>,
    pub(super) keys: Vec<Key>,
    /// The PCIe way to the GPUs at these indices.
    pub(super) paths: Vec<(u32, PeerKind)>,
}

/// What the thread works with.
#[derive(Debug)]
pub(super) struct FastThread {
    pub(super) nvml: Nvml,
    pub(super) index: u32,
    /// GPUs of the machine.
    pub(super) count: u32,
    pub(super) extra: Arc<[&'static Metric]>,
    pub(super) asks: Receiver<Ask>,
    pub(super) board: Arc<Board>,
    pub(super) outbox: Outbox,
    pub(super) driver_time: Arc<DriverTime>,
}

/// One GPU, tried out: what it does not offer is not asked for again.
#[derive(Debug)]
struct Reader {
    device: Device,
    profile: Profile,
    readings: Vec<HeldReading>,
    gpm: Option<Gpm>,
    links: Arc<[u32]>,
    budget: Budget,
    last_row: Vec<Option<f64>>,
}

/// A reading and what it last gave.
#[derive(Debug)]
struct HeldReading {
    fast: &'static FastReading,
    read_at: Option<Micros>,
    values: Option<Values>,
}

impl HeldReading {
    /// Ticks come a little early or late: a value that is nearly due is read.
    fn is_due(&self, now: Micros) -> bool {
        self.read_at.is_none_or(|at| now - at >= self.fast.every - DUE_EARLY || now < at)
    }

    /// Reads again what is due; only a lost GPU is an error.
    fn read(&mut self, device: &Device, now: Micros) -> Result<(), NvmlError> {
        if !self.is_due(now) {
            return Ok(());
        }
        self.read_at = Some(now);
        self.values = match (self.fast.reading.read)(device) {
            Ok(values) => Some(values),
            Err(NvmlError::GpuLost) => return Err(NvmlError::GpuLost),
            Err(_) => None,
        };
        Ok(())
    }
}

impl FastThread {
    /// The tick that nobody asked for: it tries the GPU out and takes the first row, which is slow
    /// and is thrown away.
    pub(super) const FIRST_SEQ: u64 = 0;

    /// Answers until nobody asks any more.
    pub(super) fn run(self) {
        let mut reader = None;
        let mut next = Ok(Ask { seq: Self::FIRST_SEQ, now: Micros::ZERO, links: Arc::default() });
        while let Ok(ask) = next {
            if self.answer(&mut reader, &ask).is_err() {
                return;
            }
            next = self.asks.recv();
        }
    }

    fn answer(&self, slot: &mut Option<Reader>, ask: &Ask) -> Result<(), Closed> {
        let held = slot.as_mut().and_then(|reader| reader.held_row(ask));
        if let Some(cells) = held {
            return self.outbox.send(Message::Row { seq: ask.seq, cells });
        }
        let started = Instant::now();
        let row = self.row(slot, ask)?;
        let took = started.elapsed();
        self.driver_time.add(took);
        // The first row tries everything out and says nothing about the others; one that came too
        // late is a matter of its own.
        if ask.seq != Self::FIRST_SEQ
            && took < LATE
            && let Some(reader) = slot
            && reader.budget.spend(ask.now, Micros::from(took))
        {
            self.outbox.send(Message::OverBudget { row: Micros::from(took) })?;
        }
        self.outbox.send(match row {
            Some(cells) => Message::Row { seq: ask.seq, cells },
            None => Message::Lost { seq: ask.seq },
        })
    }

    /// The cells of one row; `None` when the GPU is lost.
    fn row(
        &self,
        slot: &mut Option<Reader>,
        ask: &Ask,
    ) -> Result<Option<Vec<Option<f64>>>, Closed> {
        let reader = match slot {
            Some(reader) => reader,
            None => match Reader::open(self) {
                Ok(reader) => {
                    self.board.set_gpm(reader.gpm.is_some());
                    self.outbox.send(Message::Profile(Box::new(reader.profile.clone())))?;
                    slot.insert(reader)
                },
                Err(_) => return Ok(None),
            },
        };
        if reader.links != ask.links {
            reader.follow(Arc::clone(&ask.links));
            self.outbox.send(Message::Profile(Box::new(reader.profile.clone())))?;
        }
        Ok(reader.row(ask.now).ok())
    }
}

impl Reader {
    fn open(thread: &FastThread) -> Result<Self, NvmlError> {
        let device = thread.nvml.device(thread.index)?;
        let pci = device.pci_bus_id().ok();
        let id = match device.uuid() {
            Ok(uuid) => uuid,
            Err(error) => pci.clone().ok_or(error)?,
        };
        let wanted = FAST.iter().filter(|fast| fast.reading.is_wanted(&thread.extra));
        let mut readings = Vec::new();
        for fast in wanted {
            match (fast.reading.read)(&device) {
                Err(NvmlError::GpuLost) => return Err(NvmlError::GpuLost),
                Err(error) if error.is_absence() => {},
                // Any other failure may pass, so the column stays.
                Ok(_) | Err(_) => readings.push(HeldReading { fast, read_at: None, values: None }),
            }
        }
        let name = device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned());
        let paths = link::paths(&device, thread.count);
        let profile = Profile { id, name, pci, keys: Vec::new(), paths };
        let gpm = Gpm::open(&device).ok();
        let links = Arc::default();
        let (budget, last_row) = (Budget::new(), Vec::new());
        let mut reader = Self { device, profile, readings, gpm, links, budget, last_row };
        reader.follow(Arc::default());
        Ok(reader)
    }

    /// The last row again, while asking the driver would cost more than it may.
    fn held_row(&mut self, ask: &Ask) -> Option<Vec<Option<f64>>> {
        let is_same = self.links == ask.links && self.last_row.len() == self.profile.keys.len();
        (!self.budget.allows(ask.now) && is_same).then(|| self.last_row.clone())
    }

    /// Reads the counters of these links from now on.
    fn follow(&mut self, links: Arc<[u32]>) {
        if let Some(gpm) = &mut self.gpm {
            gpm.follow(&links);
        }
        self.links = links;
        let metrics = self.readings.iter().flat_map(|held| held.fast.reading.metrics);
        self.profile.keys = metrics.map(|metric| Key::gpu(metric)).collect();
        self.profile.keys.extend(self.gpm.iter().flat_map(Gpm::keys));
    }

    fn row(&mut self, now: Micros) -> Result<Vec<Option<f64>>, NvmlError> {
        let mut cells = Vec::with_capacity(self.profile.keys.len());
        for held in &mut self.readings {
            held.read(&self.device, now)?;
            let width = held.fast.reading.metrics.len();
            match held.values {
                Some(values) => cells.extend(values.iter().take(width).copied().map(Some)),
                None => cells.resize(cells.len() + width, None),
            }
        }
        if let Some(gpm) = &mut self.gpm {
            gpm.read(now, &mut cells)?;
        }
        self.last_row.clone_from(&cells);
        Ok(cells)
    }
}
