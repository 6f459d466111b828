//! Between the wire's messages and our types, both ways, checked once here.

use std::borrow::Cow;

use gswarm_types::metric::Storage;
use gswarm_types::{
    Body, Cells, Column, DeviceId, DeviceInfo, Event, EventKind, GapReason, Incarnation, Mark,
    MetricName, Micros, PeerKind, PeerLink, ProcessKind, ProcessRow, Record, Scope, Severity,
    SpoolLoss, Table, TableDigest, Values,
};

use crate::v1;
use crate::v1::record::Body as WireBody;

/// Why a message cannot be taken as it came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("table {0} has not been sent on this stream")]
    TableUnknown(TableDigest),
    #[error("{0}")]
    Malformed(&'static str),
}

/// Devices in one table.
const DEVICES_MAX: usize = 4_096;
/// Columns in one table.
const COLUMNS_MAX: usize = 65_536;

pub fn table_to_wire(incarnation: Incarnation, table: &Table) -> v1::Table {
    v1::Table {
        incarnation: incarnation.0,
        digest: table.digest().0,
        devices: table
            .devices
            .iter()
            .map(|device| v1::Device {
                id: device.id.0.clone(),
                scope: device.scope.as_str().to_owned(),
                index: device.index,
                name: device.name.clone(),
                parent: device.parent,
                simulated: device.simulated,
            })
            .collect(),
        column_device: table.columns.iter().map(|column| column.device).collect(),
        column_metric: table.columns.iter().map(|c| c.metric.as_str().to_owned()).collect(),
    }
}

pub fn table_from_wire(table: v1::Table) -> Result<Table, WireError> {
    if table.column_device.len() != table.column_metric.len() {
        return Err(WireError::Malformed("a table names as many devices as metrics"));
    }
    if table.devices.len() > DEVICES_MAX || table.column_device.len() > COLUMNS_MAX {
        return Err(WireError::Malformed("the table is larger than 4096 devices or 65536 columns"));
    }
    let digest = TableDigest(table.digest);
    let devices = table
        .devices
        .into_iter()
        .map(|device| {
            Ok(DeviceInfo {
                id: DeviceId(device.id),
                scope: scope_from_wire(&device.scope)?,
                index: device.index,
                name: device.name,
                parent: device.parent,
                simulated: device.simulated,
            })
        })
        .collect::<Result<_, WireError>>()?;
    let columns = table
        .column_device
        .into_iter()
        .zip(&table.column_metric)
        .map(|(device, metric)| Column { device, metric: MetricName::new(metric) })
        .collect();
    let table = Table { devices, columns };
    if !table.is_consistent() {
        return Err(WireError::Malformed("a column of the table names a device that is not in it"));
    }
    if table.digest() != digest {
        return Err(WireError::Malformed("the digest of the table does not match its content"));
    }
    Ok(table)
}

fn scope_from_wire(word: &str) -> Result<Scope, WireError> {
    [Scope::Gpu, Scope::Link, Scope::Node, Scope::Disk, Scope::Nic]
        .into_iter()
        .find(|scope| scope.as_str() == word)
        .ok_or(WireError::Malformed("the table holds a device of an unknown scope"))
}

/// `table` is the one that `Values` names; other bodies need none.
pub fn record_to_wire(record: &Record, crc: u32, table: Option<&Table>) -> v1::Record {
    let body = match &record.body {
        Body::Values(values) => WireBody::Values(values_to_wire(values, table)),
        Body::Event(event) => WireBody::Event(v1::Event {
            kind: event.kind.as_str().to_owned(),
            severity: severity_word(event.severity).to_owned(),
            device: event.device.as_ref().map(|device| device.0.clone()),
            code: event.code,
            message: event.message.clone(),
        }),
        Body::Processes(rows) => WireBody::Processes(v1::Processes {
            processes: rows.iter().map(process_to_wire).collect(),
        }),
        Body::Topology(links) => {
            WireBody::Topology(v1::Topology { links: links.iter().map(link_to_wire).collect() })
        },
        Body::Mark(mark) => WireBody::Mark(v1::Mark {
            name: mark.name.clone(),
            duration_us: mark.duration.map(|duration| duration.0),
        }),
        Body::Loss(loss) => WireBody::Loss(v1::Loss {
            incarnation: loss.incarnation.0,
            first: loss.first,
            last: loss.last,
            reason: loss.reason.as_str().to_owned(),
        }),
        Body::End => WireBody::End(v1::End {}),
        Body::Opaque { kind, bytes } => {
            WireBody::Opaque(v1::Opaque { kind: *kind, bytes: bytes.clone() })
        },
        Body::Rejected { reason } => {
            WireBody::Opaque(v1::Opaque { kind: 0, bytes: reason.clone().into_bytes() })
        },
    };
    v1::Record {
        incarnation: record.incarnation.0,
        seq: record.seq,
        mono_us: record.mono.0,
        wall_us: record.wall.0,
        crc,
        body: Some(body),
    }
}

fn values_to_wire(values: &Values, table: Option<&Table>) -> v1::Values {
    let cells = values.cells.as_slice();
    let mut wire = v1::Values {
        table: values.table.0,
        absent: vec![0; cells.len().div_ceil(8)],
        integers: Vec::new(),
        floats: Vec::new(),
        cells: u32::try_from(cells.len()).unwrap_or(u32::MAX),
    };
    for (position, cell) in cells.iter().enumerate() {
        match (cell, storage_of(table, position)) {
            (None, _) => {
                if let Some(byte) = wire.absent.get_mut(position / 8) {
                    *byte |= 1 << (position % 8);
                }
            },
            #[expect(
                clippy::cast_possible_truncation,
                reason = "integer columns hold whole numbers"
            )]
            (Some(value), Storage::Integer) => wire.integers.push(value.round() as i64),
            (Some(value), Storage::Float) => wire.floats.push(*value),
        }
    }
    wire
}

fn storage_of(table: Option<&Table>, position: usize) -> Storage {
    table
        .and_then(|table| table.columns.get(position))
        .map_or(Storage::Float, |column| column.metric.storage())
}

fn process_to_wire(row: &ProcessRow) -> v1::Process {
    v1::Process {
        device: row.device,
        pid: row.pid,
        name: row.name.clone(),
        user: row.user.clone(),
        job: row.job.clone(),
        memory_bytes: row.memory_bytes,
        graphics: row.kind == ProcessKind::Graphics,
    }
}

/// `table` finds the table of a digest. What cannot be understood is kept or named, never lost.
pub fn record_from_wire<'t>(
    record: v1::Record,
    table: impl FnOnce(TableDigest) -> Option<&'t Table>,
) -> Result<Record, WireError> {
    let body = match record.body {
        Some(WireBody::Values(values)) => {
            let digest = TableDigest(values.table);
            let table = table(digest).ok_or(WireError::TableUnknown(digest))?;
            match values_from_wire(&values, table) {
                Some(cells) => Body::Values(Values { table: digest, cells }),
                None => rejected("the cells do not fit the table"),
            }
        },
        Some(WireBody::Event(event)) => event_from_wire(event),
        Some(WireBody::Processes(list)) => {
            Body::Processes(list.processes.into_iter().map(process_from_wire).collect())
        },
        Some(WireBody::Topology(topology)) => {
            Body::Topology(topology.links.iter().filter_map(link_from_wire).collect())
        },
        Some(WireBody::Mark(mark)) => {
            Body::Mark(Mark { name: mark.name, duration: mark.duration_us.map(Micros) })
        },
        Some(WireBody::Loss(loss)) => Body::Loss(SpoolLoss {
            incarnation: Incarnation(loss.incarnation),
            first: loss.first,
            last: loss.last,
            reason: reason_from_wire(&loss.reason),
        }),
        Some(WireBody::End(_)) => Body::End,
        Some(WireBody::Opaque(opaque)) => Body::Opaque { kind: opaque.kind, bytes: opaque.bytes },
        None => rejected("the body is of a kind this host does not know"),
    };
    Ok(Record {
        incarnation: Incarnation(record.incarnation),
        seq: record.seq,
        mono: Micros(record.mono_us),
        wall: Micros(record.wall_us),
        body,
    })
}

fn rejected(reason: &str) -> Body {
    Body::Rejected { reason: reason.to_owned() }
}

fn values_from_wire(values: &v1::Values, table: &Table) -> Option<Cells> {
    let count = usize::try_from(values.cells).ok()?;
    if count != table.columns.len() || values.absent.len() != count.div_ceil(8) {
        return None;
    }
    let mut integers = values.integers.iter();
    let mut floats = values.floats.iter();
    let mut cells = Vec::with_capacity(count);
    for (position, column) in table.columns.iter().enumerate() {
        let absent = values.absent.get(position / 8)? & (1 << (position % 8)) != 0;
        cells.push(if absent {
            None
        } else {
            match column.metric.storage() {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "the contract has no integer above 2^53"
                )]
                Storage::Integer => Some(*integers.next()? as f64),
                Storage::Float => Some(*floats.next()?),
            }
        });
    }
    let spent = integers.next().is_none() && floats.next().is_none();
    spent.then(|| Cells::new(cells))
}

fn event_from_wire(event: v1::Event) -> Body {
    Body::Event(Event {
        kind: EventKind::from(Cow::Owned(event.kind)),
        severity: match event.severity.as_str() {
            "info" => Severity::Info,
            "error" => Severity::Error,
            _ => Severity::Warning,
        },
        device: event.device.map(DeviceId),
        code: event.code,
        message: event.message,
    })
}

fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn process_from_wire(process: v1::Process) -> ProcessRow {
    ProcessRow {
        device: process.device,
        pid: process.pid,
        name: process.name,
        user: process.user,
        job: process.job,
        memory_bytes: process.memory_bytes,
        kind: if process.graphics { ProcessKind::Graphics } else { ProcessKind::Compute },
    }
}

fn link_to_wire(link: &PeerLink) -> v1::PeerLink {
    v1::PeerLink {
        device: link.device,
        remote: link.remote,
        kind: link.kind.as_str().to_owned(),
        links: link.links,
        bytes_per_second_max: link.bytes_per_second_max,
    }
}

/// Links of a kind that this version does not know are left out.
fn link_from_wire(link: &v1::PeerLink) -> Option<PeerLink> {
    Some(PeerLink {
        device: link.device,
        remote: link.remote,
        kind: PeerKind::ALL.into_iter().find(|kind| kind.as_str() == link.kind)?,
        links: link.links,
        bytes_per_second_max: link.bytes_per_second_max,
    })
}

fn reason_from_wire(word: &str) -> GapReason {
    [
        GapReason::SpoolOverflow,
        GapReason::SpoolError,
        GapReason::SpoolDamaged,
        GapReason::NodeCrash,
        GapReason::NotOnThisHost,
        GapReason::StoreDamaged,
        GapReason::Expired,
    ]
    .into_iter()
    .find(|reason| reason.as_str() == word)
    .unwrap_or(GapReason::Unknown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Table {
        let device = |scope, name: &str| DeviceInfo {
            id: DeviceId(name.to_owned()),
            scope,
            index: 0,
            name: name.to_owned(),
            parent: None,
            simulated: true,
        };
        let column = |device, metric: &str| Column { device, metric: MetricName::new(metric) };
        Table {
            devices: vec![device(Scope::Gpu, "GPU-1"), device(Scope::Node, "node")],
            columns: vec![
                column(0, "gpu_utilization"),
                column(0, "sm_activity"),
                column(1, "node_load_1m"),
                column(1, "metric_of_the_future"),
            ],
        }
    }

    fn process() -> impl Strategy<Value = ProcessRow> {
        let numbers = (any::<u32>(), any::<u32>(), any::<Option<u64>>(), any::<bool>());
        let texts = any::<[Option<String>; 3]>();
        (numbers, texts).prop_map(|((device, pid, memory_bytes, draws), [name, user, job])| {
            let kind = if draws { ProcessKind::Graphics } else { ProcessKind::Compute };
            ProcessRow { device, pid, name, user, job, memory_bytes, kind }
        })
    }

    fn body() -> impl Strategy<Value = Body> {
        let whole = proptest::option::of((-(1_i64 << 53)..(1_i64 << 53)).prop_map(|v| v as f64));
        let float = || proptest::option::of(proptest::num::f64::NORMAL);
        let values = (whole, float(), float(), float()).prop_map(|(a, b, c, d)| {
            Body::Values(Values { table: table().digest(), cells: Cells::new(vec![a, b, c, d]) })
        });
        prop_oneof![
            values,
            Just(Body::End),
            (any::<u32>(), any::<Vec<u8>>()).prop_map(|(kind, bytes)| Body::Opaque { kind, bytes }),
            (any::<String>(), any::<Option<i64>>()).prop_map(|(message, code)| Body::Event(
                Event {
                    kind: EventKind::Xid,
                    severity: Severity::Error,
                    device: None,
                    code,
                    message,
                }
            )),
            proptest::collection::vec(process(), 0..4).prop_map(Body::Processes),
            (any::<u64>(), any::<u64>()).prop_map(|(first, last)| Body::Loss(SpoolLoss {
                incarnation: Incarnation(first),
                first,
                last,
                reason: GapReason::SpoolOverflow,
            })),
        ]
    }

    proptest! {
        #[test]
        fn records_survive_the_wire(body in body(), seq: u64, mono: i64, wall: i64) {
            let record = Record {
                incarnation: Incarnation(seq ^ 5), seq, mono: Micros(mono), wall: Micros(wall), body,
            };
            let table = table();
            let wire = record_to_wire(&record, 0, Some(&table));
            let bytes = prost::Message::encode_to_vec(&wire);
            let wire = <v1::Record as prost::Message>::decode(bytes.as_slice()).unwrap();
            let back = record_from_wire(wire, |digest| (digest == table.digest()).then_some(&table));
            prop_assert_eq!(back.unwrap(), record);
        }
    }

    #[test]
    fn tables_survive_and_lies_are_refused() {
        let table = table();
        let wire = table_to_wire(Incarnation(1), &table);
        assert_eq!(table_from_wire(wire.clone()).unwrap(), table);
        let mut wrong = wire.clone();
        wrong.digest ^= 1;
        table_from_wire(wrong).unwrap_err();
        let mut wrong = wire.clone();
        wrong.column_device[0] = 9;
        table_from_wire(wrong).unwrap_err();
        let mut wrong = wire;
        wrong.column_metric.pop();
        table_from_wire(wrong).unwrap_err();
    }

    /// A process as builds before the field `job` know it.
    #[derive(Clone, PartialEq, prost::Message)]
    struct EarlierProcess {
        #[prost(uint32, tag = "2")]
        pid: u32,
        #[prost(string, optional, tag = "4")]
        user: Option<String>,
    }

    #[test]
    fn peers_that_know_no_jobs_stay_compatible() {
        use prost::Message;

        let earlier = EarlierProcess { pid: 7, user: Some("ada".to_owned()) };
        let wire = v1::Process::decode(earlier.encode_to_vec().as_slice()).unwrap();
        let mut row = process_from_wire(wire);
        assert_eq!((row.pid, row.user.as_deref(), row.job.as_deref()), (7, Some("ada"), None));
        row.job = Some("1234".to_owned());
        let bytes = process_to_wire(&row).encode_to_vec();
        assert_eq!(EarlierProcess::decode(bytes.as_slice()).unwrap(), earlier);
    }

    #[test]
    fn cells_that_do_not_fit_are_named() {
        let table = table();
        let wire = v1::Record {
            incarnation: 1,
            seq: 1,
            mono_us: 0,
            wall_us: 0,
            crc: 0,
            body: Some(WireBody::Values(v1::Values {
                table: table.digest().0,
                absent: vec![0],
                integers: vec![1, 2, 3],
                floats: vec![],
                cells: 4,
            })),
        };
        let record = record_from_wire(wire.clone(), |_| Some(&table)).unwrap();
        assert!(matches!(record.body, Body::Rejected { .. }));
        let unknown = record_from_wire(wire, |_| None);
        assert_eq!(unknown, Err(WireError::TableUnknown(table.digest())));
    }
}
