//! Small recordings for the tests of this crate.

use std::collections::HashMap;

use gswarm_types::{
    Body, Cells, Column, DeviceId, DeviceInfo, Event, EventKind, Incarnation, Mark, MetricName,
    Micros, NodeId, Scope, SessionSpec, Severity, StorageId, Table, TimeQuality, Values,
};

use crate::entry::{Entry, HostEvent, StoredRecord};
use crate::journal::{TableKey, TableSource};

pub(crate) const SECOND: i64 = 1_000_000;

pub(crate) fn node(number: u8) -> NodeId {
    format!("00000000-0000-7000-8000-0000000000{number:02x}").parse().unwrap()
}

pub(crate) fn storage() -> StorageId {
    "00000000-0000-7000-8000-00000000aaaa".parse().unwrap()
}

pub(crate) fn gpu(index: u32) -> DeviceInfo {
    DeviceInfo {
        id: DeviceId(format!("GPU-{index}")),
        scope: Scope::Gpu,
        index,
        name: "H200".to_owned(),
        parent: None,
        simulated: false,
    }
}

/// One column per metric and device, device by device.
pub(crate) fn table(devices: Vec<DeviceInfo>, metrics: &[&str]) -> Table {
    let count = u32::try_from(devices.len()).unwrap();
    let columns = (0..count).flat_map(|device| {
        metrics.iter().map(move |name| Column { device, metric: MetricName::new(name) })
    });
    Table { columns: columns.collect(), devices }
}

/// Every table that a record of a test may use.
#[derive(Debug, Default)]
pub(crate) struct Tables(pub(crate) HashMap<TableKey, Table>);

impl TableSource for Tables {
    fn table(&self, key: &TableKey) -> Option<&Table> {
        self.0.get(key)
    }
}

impl Tables {
    pub(crate) fn add(&mut self, node: NodeId, incarnation: Incarnation, table: &Table) {
        self.0.insert((node, incarnation, table.digest()), table.clone());
    }
}

/// A record at this host time, received at once.
pub(crate) fn record(node: NodeId, incarnation: u64, seq: u64, time: i64, body: Body) -> Entry {
    Entry::Record(StoredRecord {
        node,
        time: Micros(time),
        receipt: Micros(time),
        quality: TimeQuality::Measured,
        crc: u32::try_from(seq % 1_000).unwrap(),
        incarnation: Incarnation(incarnation),
        seq,
        mono: Micros(time),
        wall: Micros(time - 5),
        body,
    })
}

pub(crate) fn values(table: &Table, cells: &[Option<f64>]) -> Body {
    Body::Values(Values { table: table.digest(), cells: Cells::new(cells.to_vec()) })
}

pub(crate) fn mark(name: &str) -> Body {
    Body::Mark(Mark { name: name.to_owned(), duration: None })
}

pub(crate) fn event(code: i64) -> Event {
    Event {
        kind: EventKind::Xid,
        severity: Severity::Error,
        device: None,
        code: Some(code),
        message: "fell off the bus".to_owned(),
    }
}

pub(crate) fn host_event(code: i64) -> Entry {
    Entry::HostEvent(HostEvent { time: Micros(code * 10), node: None, event: event(code) })
}

/// A session over `from..until` (microseconds) with frames each second.
pub(crate) fn session(number: u8, from: i64, until: Option<i64>) -> SessionSpec {
    serde_json::from_value(serde_json::json!({
        "id": format!("00000000-0000-7000-8000-0000000001{number:02x}"),
        "name": "run",
        "state": "stopped",
        "created": from,
        "from": from,
        "until": until,
        "period_ms": 1_000,
        "owner": "tester",
    }))
    .unwrap()
}
