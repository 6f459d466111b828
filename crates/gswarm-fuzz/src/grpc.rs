//! Messages of agents and of old clients: what is accepted survives the wire, the journal, the seal.

use std::collections::HashMap;

use gswarm_store::entry::{Stamp, StoredRecord};
use gswarm_types::{
    Body, Column, DeviceId, DeviceInfo, Incarnation, MetricName, Micros, NodeId, Record, Scope,
    Table, TableDigest, TimeQuality, Values,
};
use gswarm_wire::{
    WireError, legacy, record_from_wire, record_to_wire, table_from_wire, table_to_wire, v1,
};
use prost::Message;
use uuid::Uuid;

use crate::store::{Tables, check_stored};

/// Messages that one input may hold.
const MESSAGES_MAX: usize = 64;
const NODE: NodeId = NodeId::new(Uuid::nil());

/// Length-delimited `AgentMessage`s after a first byte; the records are sealed too when it is odd.
pub fn grpc_records(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut tables: HashMap<TableDigest, Table> = HashMap::new();
    let mut stored = Vec::new();
    let mut stored_tables = Tables::default();
    for _ in 0..MESSAGES_MAX {
        let Ok(message) = v1::AgentMessage::decode_length_delimited(&mut rest) else { break };
        match message.message {
            Some(v1::agent_message::Message::Table(wire)) => {
                if let Some(table) = accepted_table(wire) {
                    tables.insert(table.digest(), table);
                }
            },
            Some(v1::agent_message::Message::Records(list)) => {
                for wire in list.records {
                    let Some(one) = accepted_record(wire, &tables) else { continue };
                    if let Body::Values(values) = &one.body {
                        let key = (NODE, one.incarnation, values.table);
                        stored_tables.0.insert(key, tables[&values.table].clone());
                    }
                    stored.push(one);
                }
            },
            _ => {},
        }
    }
    check_stored(&stored, &stored_tables, first & 1 == 1);
}

/// A table that the host takes, after a walk to the wire and back.
fn accepted_table(mut wire: v1::Table) -> Option<Table> {
    let incarnation = Incarnation(wire.incarnation);
    let table = table_from_wire(wire.clone()).or_else(|_| {
        // No fuzzer guesses a digest: the right one leads to what lies behind its check.
        wire.digest = digest(&wire).0;
        table_from_wire(wire)
    });
    let table = table.ok()?;
    assert!(table.is_consistent(), "a table was taken that contradicts itself");
    let back = table_from_wire(table_to_wire(incarnation, &table));
    assert_eq!(back.as_ref(), Ok(&table), "a table does not survive the wire");
    Some(table)
}

fn digest(wire: &v1::Table) -> TableDigest {
    let scopes = [Scope::Gpu, Scope::Link, Scope::Node, Scope::Disk, Scope::Nic];
    let devices = wire.devices.iter().map(|device| DeviceInfo {
        id: DeviceId(device.id.clone()),
        scope: scopes.into_iter().find(|s| s.as_str() == device.scope).unwrap_or(Scope::Gpu),
        index: device.index,
        name: device.name.clone(),
        parent: device.parent,
        simulated: device.simulated,
    });
    let columns = wire.column_device.iter().zip(&wire.column_metric);
    let columns = columns.map(|(d, m)| Column { device: *d, metric: MetricName::new(m) });
    Table { devices: devices.collect(), columns: columns.collect() }.digest()
}

fn accepted_record(wire: v1::Record, tables: &HashMap<TableDigest, Table>) -> Option<StoredRecord> {
    let crc = wire.crc;
    let find = |digest: TableDigest| tables.get(&digest);
    let record = match record_from_wire(wire, find) {
        Ok(record) => record,
        Err(WireError::TableUnknown(digest)) => {
            assert!(!tables.contains_key(&digest), "a known table is called unknown");
            return None;
        },
        Err(WireError::Malformed(_)) => return None,
    };
    check_wire(&record, crc, tables);
    let stamp = Stamp {
        node: NODE,
        time: record.wall,
        receipt: Micros(1),
        quality: TimeQuality::Measured,
        crc,
    };
    Some(StoredRecord::new(record, stamp))
}

fn check_wire(record: &Record, crc: u32, tables: &HashMap<TableDigest, Table>) {
    let table = match &record.body {
        Body::Values(values) => tables.get(&values.table),
        // A host's own word for what it could not read; agents never send it.
        Body::Rejected { .. } => return,
        _ => None,
    };
    let sent = record_to_wire(record, crc, table).encode_to_vec();
    let received = v1::Record::decode(sent.as_slice()).expect("what was encoded decodes");
    assert_eq!(received.crc, crc);
    let back = record_from_wire(received, |digest| tables.get(&digest));
    assert_eq!(back.as_ref(), Ok(record), "a record does not survive the wire");
}

/// Length-delimited `MetricsUpdate`s after a first byte; the records are sealed too when it is odd.
pub fn grpc_legacy(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut stored = Vec::new();
    let mut tables = Tables::default();
    for seq in 1..=MESSAGES_MAX as u64 {
        let Ok(update) = legacy::MetricsUpdate::decode_length_delimited(&mut rest) else { break };
        let (table, cells, links) = gswarm_host::fuzzed::from_legacy(&update);
        assert!(table.is_consistent(), "a column names a device that is not there");
        assert_eq!(table.columns.len(), cells.as_slice().len(), "one cell for each column");
        let gpus = table.devices_of(Scope::Gpu).count();
        let is_gpu = |at: u32| usize::try_from(at).is_ok_and(|at| at < gpus);
        for link in &links {
            assert!(is_gpu(link.device), "a link of a GPU that is not there");
            assert!(link.remote.is_none_or(is_gpu), "a link to a GPU that is not there");
        }
        let digest = table.digest();
        tables.0.insert((NODE, Incarnation(1), digest), table);
        let bodies = [Body::Values(Values { table: digest, cells }), Body::Topology(links)];
        stored.extend(bodies.into_iter().map(|body| legacy_record(seq, body)));
    }
    check_stored(&stored, &tables, first & 1 == 1);
}

fn legacy_record(seq: u64, body: Body) -> StoredRecord {
    let (mono, wall) = (Micros(1), Micros(2));
    let record = Record { incarnation: Incarnation(1), seq, mono, wall, body };
    let (time, receipt) = (wall, Micros(3));
    let quality = TimeQuality::Wall;
    StoredRecord::new(record, Stamp { node: NODE, time, receipt, quality, crc: 0 })
}
