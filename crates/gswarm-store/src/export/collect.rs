//! One pass over the segments of a window: records into the sorter, everything else aside.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gswarm_core::PIN_LEAD;
use gswarm_types::{
    Body, DeviceId, Event, EventKind, Incarnation, Micros, NodeId, PeerKind, PeerLink, ProcessRow,
    Severity, Table, TableDigest,
};

use super::{ExportError, ExportInput};
use crate::entry::{Entry, StoredRecord};
use crate::reader::Reader;
use crate::sorter::{Merge, SortKey, Sorter};

/// Events that one export shows; later ones are counted only.
pub const EVENTS_MAX: usize = 10_000;
/// A silence longer than this ends an interval of availability.
const SILENCE_MAX: Micros = Micros::from_secs(30);

/// Which order the records come out in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Time,
    Source,
}

/// An event inside the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowEvent {
    pub time: Micros,
    pub node: Option<NodeId>,
    pub event: Event,
}

/// What the pass found.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) merge: Merge,
    pub(super) records: u64,
    pub(super) tables: HashMap<(NodeId, Incarnation, TableDigest), Arc<Table>>,
    pub(super) events: Vec<WindowEvent>,
    pub(super) events_left_out: u64,
    /// Newest NVLinks of each node.
    pub(super) nvlinks: HashMap<NodeId, Vec<Nvlink>>,
    /// GPUs that the wanted user or job held; `None` when nobody asked.
    pub(super) held_gpus: Option<HashSet<(NodeId, DeviceId)>>,
    pub(super) availability: BTreeMap<NodeId, Vec<(Micros, Micros)>>,
}

/// A GPU and the other end of its NVLinks; `None` is a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvlink {
    pub device: DeviceId,
    pub remote: Option<DeviceId>,
}

impl Nvlink {
    /// The links of a topology whose positions mean this table.
    pub fn of(table: &Table, links: &[PeerLink]) -> Vec<Self> {
        let id = |at: u32| {
            let info = usize::try_from(at).ok().and_then(|at| table.devices.get(at));
            info.map(|info| info.id.clone())
        };
        let nvlink = |link: &PeerLink| {
            let remote = match link.remote {
                Some(at) => Some(id(at)?),
                None => None,
            };
            Some(Self { device: id(link.device)?, remote })
        };
        let links = links.iter().filter(|link| link.kind == PeerKind::Nvlink);
        links.filter_map(nvlink).collect()
    }
}

impl Collected {
    /// True when a table of the window holds simulated devices.
    pub(super) fn is_simulated(&self) -> bool {
        self.tables.values().any(|table| table.devices.iter().any(|device| device.simulated))
    }
}

struct Pass<'a> {
    input: &'a ExportInput,
    order: Order,
    sorter: Sorter,
    failed: Option<std::io::Error>,
    found: Found,
}

#[derive(Default)]
struct Found {
    records: u64,
    tables: HashMap<(NodeId, Incarnation, TableDigest), Arc<Table>>,
    used: HashSet<(NodeId, Incarnation, TableDigest)>,
    events: Vec<WindowEvent>,
    events_left_out: u64,
    /// The table of the newest values of each incarnation: positions in other bodies mean it.
    current: HashMap<(NodeId, Incarnation), TableDigest>,
    /// Bodies that stand before the first values of their incarnation, with their times.
    waiting: HashMap<(NodeId, Incarnation), Vec<(Micros, Body)>>,
    nvlinks: HashMap<NodeId, Vec<Nvlink>>,
    held_gpus: HashSet<(NodeId, DeviceId)>,
    /// What the last list of processes before the window said.
    held_before: HashMap<(NodeId, Incarnation), Vec<DeviceId>>,
    times: BTreeMap<NodeId, Vec<(Micros, Micros)>>,
}

pub(super) fn collect(
    reader: &Reader,
    input: &ExportInput,
    order: Order,
) -> Result<Collected, ExportError> {
    let stem =
        format!("{}-{}", input.spec.id, if order == Order::Time { "time" } else { "source" });
    let sorter = Sorter::new(reader.disk().clone(), &input.scratch, stem);
    let mut pass = Pass { input, order, sorter, failed: None, found: Found::default() };
    for lease in reader.lease(input.spec.from - PIN_LEAD, input.until()) {
        if let Err(error) = reader.visit(lease.meta(), &mut |entry| pass.entry(entry)) {
            // A damaged file costs its own records, not the session; the export names it.
            let segment = lease.meta().number;
            tracing::error!(segment, %error, "segment left out of an export");
            let first = lease.meta().first_time.unwrap_or(input.spec.from);
            let event = Event {
                kind: EventKind::StoreDamaged,
                severity: Severity::Error,
                device: None,
                code: i64::try_from(segment).ok(),
                message: format!("segment {segment} cannot be read: its records are missing here"),
            };
            pass.event(WindowEvent { time: first.max(input.spec.from), node: None, event });
        }
        if let Some(error) = pass.failed.take() {
            return Err(ExportError::Sort(error));
        }
    }
    let Found {
        used, mut tables, times, mut events, mut held_gpus, held_before, mut nvlinks, ..
    } = pass.found;
    for ((node, _), devices) in held_before {
        held_gpus.extend(devices.into_iter().map(|device| (node, device)));
    }
    // Told before anything that is read here; it holds until it is told otherwise.
    for (node, links) in &input.nvlinks {
        nvlinks.entry(*node).or_insert_with(|| links.clone());
    }
    // Late records came after newer ones.
    events.sort_by_key(|event| event.time);
    tables.retain(|key, _| used.contains(key));
    Ok(Collected {
        merge: pass.sorter.merge().map_err(ExportError::Sort)?,
        records: pass.found.records,
        tables,
        events,
        events_left_out: pass.found.events_left_out,
        nvlinks,
        held_gpus: input.spec.selection.is_by_process().then_some(held_gpus),
        availability: times.into_iter().map(|(node, list)| (node, joined(list))).collect(),
    })
}

impl Pass<'_> {
    fn entry(&mut self, entry: Entry) {
        match entry {
            Entry::Table(table) => {
                if let Some(node) = table.node
                    && self.input.spec.selection.has_node(node)
                {
                    let key = (node, table.incarnation, table.digest);
                    self.found.tables.entry(key).or_insert_with(|| Arc::new(table.into_table()));
                }
            },
            Entry::Record(record) => self.record(record),
            Entry::HostEvent(host) => {
                let concerns = host.node.is_none_or(|n| self.input.spec.selection.has_node(n));
                if concerns && self.in_window(host.time) {
                    self.event(WindowEvent { time: host.time, node: host.node, event: host.event });
                }
            },
            Entry::Header(_) | Entry::Sync(_) | Entry::Session(_) | Entry::Incarnation(_) => {},
        }
    }

    fn in_window(&self, time: Micros) -> bool {
        time >= self.input.spec.from && time < self.input.until()
    }

    fn record(&mut self, record: StoredRecord) {
        if !self.input.spec.selection.has_node(record.node) {
            return;
        }
        self.note_positions(&record);
        if !self.in_window(record.time) {
            return;
        }
        self.found.records += 1;
        self.note_time(record.node, record.time);
        match &record.body {
            Body::Values(values) => {
                self.found.used.insert((record.node, record.incarnation, values.table));
            },
            Body::Event(event) => {
                let event = event.clone();
                self.event(WindowEvent { time: record.time, node: Some(record.node), event });
            },
            Body::Processes(_)
            | Body::Topology(_)
            | Body::Mark(_)
            | Body::Loss(_)
            | Body::End
            | Body::Opaque { .. }
            | Body::Rejected { .. } => {},
        }
        // In time order only values are looked at again.
        if self.order == Order::Time && !matches!(record.body, Body::Values(_)) {
            return;
        }
        let key = self.key(&record);
        let pushed = serde_json::to_vec(&record)
            .map_err(std::io::Error::from)
            .and_then(|payload| self.sorter.push(key, payload));
        if let Err(error) = pushed {
            self.failed.get_or_insert(error);
        }
    }

    /// Bodies that name devices by their position in the current table. Topology counts from
    /// outside the window too: it is sent when it changes.
    fn note_positions(&mut self, record: &StoredRecord) {
        let source = (record.node, record.incarnation);
        match &record.body {
            Body::Values(values) => {
                self.found.current.insert(source, values.table);
                for (time, body) in self.found.waiting.remove(&source).unwrap_or_default() {
                    self.resolve(source, time, &body);
                }
            },
            Body::Processes(_) if !self.is_near(record.time) => {},
            Body::Processes(_) | Body::Topology(_) => {
                if self.found.current.contains_key(&source) {
                    self.resolve(source, record.time, &record.body);
                } else {
                    let waiting = self.found.waiting.entry(source).or_default();
                    waiting.push((record.time, record.body.clone()));
                }
            },
            Body::Event(_)
            | Body::Mark(_)
            | Body::Loss(_)
            | Body::End
            | Body::Opaque { .. }
            | Body::Rejected { .. } => {},
        }
    }

    /// In the window, or so shortly before it that a list of processes still holds.
    fn is_near(&self, time: Micros) -> bool {
        time >= self.input.spec.from - PIN_LEAD && time < self.input.until()
    }

    fn resolve(&mut self, source: (NodeId, Incarnation), time: Micros, body: &Body) {
        let (node, incarnation) = source;
        let Some(digest) = self.found.current.get(&source) else { return };
        let Some(table) = self.found.tables.get(&(node, incarnation, *digest)) else { return };
        let id = |at: u32| {
            let info = usize::try_from(at).ok().and_then(|at| table.devices.get(at));
            info.map(|info| info.id.clone())
        };
        match body {
            Body::Processes(rows) => {
                let selection = &self.input.spec.selection;
                let is_wanted =
                    |row: &&ProcessRow| selection.is_by_process() && selection.has_process(row);
                let held = rows.iter().filter(is_wanted).filter_map(|row| id(row.device));
                if time < self.input.spec.from {
                    let held = held.collect();
                    self.found.held_before.insert(source, held);
                } else {
                    self.found.held_gpus.extend(held.map(|device| (node, device)));
                }
            },
            Body::Topology(links) => {
                let links = Nvlink::of(table, links);
                self.found.nvlinks.insert(node, links);
            },
            _ => {},
        }
    }

    fn key(&self, record: &StoredRecord) -> SortKey {
        let mut key = [0; 40];
        // Flipping the sign bit makes signed times sort as bytes.
        let time = record.time.0.cast_unsigned() ^ (1 << 63);
        let (front, middle) = match self.order {
            Order::Time => (time.to_be_bytes(), record.node.as_bytes()),
            Order::Source => ([0; 8], record.node.as_bytes()),
        };
        let parts = front
            .iter()
            .chain(middle)
            .copied()
            .chain(record.incarnation.0.to_be_bytes())
            .chain(record.seq.to_be_bytes());
        for (to, from) in key.iter_mut().zip(parts) {
            *to = from;
        }
        key
    }

    fn event(&mut self, event: WindowEvent) {
        if self.found.events.len() < EVENTS_MAX {
            self.found.events.push(event);
        } else {
            self.found.events_left_out += 1;
        }
    }

    /// Most records extend the last interval; late ones begin their own and are joined at the end.
    fn note_time(&mut self, node: NodeId, time: Micros) {
        let list = self.found.times.entry(node).or_default();
        match list.last_mut() {
            Some((first, last)) if time >= *first && time - *last <= SILENCE_MAX => {
                *last = (*last).max(time);
            },
            _ => list.push((time, time)),
        }
    }
}

fn joined(mut list: Vec<(Micros, Micros)>) -> Vec<(Micros, Micros)> {
    list.sort_unstable();
    let mut out: Vec<(Micros, Micros)> = Vec::new();
    for (first, last) in list {
        match out.last_mut() {
            Some((_, end)) if first - *end <= SILENCE_MAX => *end = (*end).max(last),
            _ => out.push((first, last)),
        }
    }
    out
}
