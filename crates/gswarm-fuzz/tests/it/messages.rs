//! Seeds that no editor writes: gRPC messages as agents and old clients send them.
//!
//! `cargo nextest run -p gswarm-fuzz --run-ignored only` writes them again.

use std::fs;

use gswarm_types::{Column, DeviceId, DeviceInfo, Incarnation, MetricName, Scope, Table};
use gswarm_wire::{legacy, table_to_wire, v1};
use prost::Message as _;
use v1::agent_message::Message;
use v1::record::Body;

use super::corpus;

fn table() -> Table {
    let device = |scope, id: &str| DeviceInfo {
        id: DeviceId(id.to_owned()),
        scope,
        index: 0,
        name: "NVIDIA H200".to_owned(),
        parent: (scope == Scope::Link).then_some(0),
        simulated: true,
    };
    let column = |device, metric: &str| Column { device, metric: MetricName::new(metric) };
    Table {
        devices: vec![
            device(Scope::Gpu, "GPU-1"),
            device(Scope::Link, "GPU-1-link-0"),
            device(Scope::Node, "node"),
        ],
        columns: vec![
            column(0, "gpu_utilization"),
            column(0, "memory_used_bytes"),
            column(1, "nvlink_rx_bytes_per_second"),
            column(2, "node_load_1m"),
            column(2, "metric_of_the_future"),
        ],
    }
}

fn bodies() -> Vec<Body> {
    let process = v1::Process {
        device: 0,
        pid: 4_242,
        name: Some("python".to_owned()),
        user: Some("ada".to_owned()),
        memory_bytes: Some(1 << 30),
        graphics: false,
        job: Some("1234".to_owned()),
    };
    let link = v1::PeerLink {
        device: 0,
        remote: None,
        kind: "nvlink".to_owned(),
        links: 18,
        bytes_per_second_max: Some(450_000_000_000),
    };
    vec![
        Body::Values(v1::Values {
            table: table().digest().0,
            absent: vec![0b0000_0100],
            integers: vec![97, 85_899_345_920],
            floats: vec![1.5, -0.25],
            cells: 5,
        }),
        Body::Event(v1::Event {
            kind: "xid".to_owned(),
            severity: "error".to_owned(),
            device: Some("GPU-1".to_owned()),
            code: Some(79),
            message: "GPU has fallen off the bus".to_owned(),
        }),
        Body::Processes(v1::Processes { processes: vec![process] }),
        Body::Topology(v1::Topology { links: vec![link] }),
        Body::Mark(v1::Mark { name: "epoch".to_owned(), duration_us: Some(1_000_000) }),
        Body::Loss(v1::Loss {
            incarnation: 6,
            first: 1,
            last: 9,
            reason: "spool_overflow".to_owned(),
        }),
        Body::Opaque(v1::Opaque { kind: 99, bytes: vec![0, 159, 146, 150] }),
        Body::End(v1::End {}),
    ]
}

fn records(bodies: Vec<Body>) -> Message {
    let record = |(seq, body)| v1::Record {
        incarnation: 7,
        seq,
        mono_us: 1_000_000,
        wall_us: 1_767_225_600_000_000,
        crc: 0x1234_5678,
        body: Some(body),
    };
    Message::Records(v1::Records { records: (1..).zip(bodies).map(record).collect() })
}

fn encoded(first: u8, messages: Vec<Message>) -> Vec<u8> {
    let mut bytes = vec![first];
    for message in messages {
        let message = v1::AgentMessage { message: Some(message) };
        bytes.extend(message.encode_length_delimited_to_vec());
    }
    bytes
}

fn update() -> legacy::MetricsUpdate {
    let number =
        |value| prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(value)) };
    let fields = [("temperature_celsius".to_owned(), number(41.5))];
    let gpu = legacy::GpuMetric {
        physical_idx: 0,
        name: "NVIDIA A100".to_owned(),
        gpu_util: 0.43,
        mem_util: 0.5,
        dram_bw_gbps_rx: 10.0,
        dram_bw_gbps_tx: 20.0,
        nvlink_bw_gbps_rx: f64::NAN,
        nvlink_bw_gbps_tx: 1.0,
        extra_metrics: Some(prost_types::Struct { fields: fields.into_iter().collect() }),
    };
    let link = legacy::P2pLink {
        local_gpu_physical_id: 0,
        remote_gpu_physical_id: 1,
        r#type: "NVLINK".to_owned(),
        aggregated_max_bandwidth_gbps: 300.0,
        ..legacy::P2pLink::default()
    };
    legacy::MetricsUpdate {
        hostname: "gpu-1".to_owned(),
        gpus_metrics: vec![gpu.clone(), legacy::GpuMetric { physical_idx: 1, ..gpu }],
        p2p_links: vec![link],
        system_metrics: Some(legacy::SystemMetrics { dram_util: 12.5, disk_util: 80.0 }),
        timestamp: Some(1_767_225_600.5),
    }
}

#[test]
#[ignore = "writes into the sources; for a change of the protocol"]
fn writes_the_seeds() {
    let dir = corpus().join("grpc_records");
    let table = || Message::Table(table_to_wire(Incarnation(7), &table()));
    fs::write(dir.join("all_bodies"), encoded(0, vec![table(), records(bodies())])).unwrap();
    fs::write(dir.join("all_bodies_sealed"), encoded(1, vec![table(), records(bodies())])).unwrap();
    fs::write(dir.join("without_table"), encoded(1, vec![records(bodies())])).unwrap();
    let values = || records(bodies().into_iter().take(1).collect());
    fs::write(dir.join("values"), encoded(1, vec![table(), values(), values()])).unwrap();
    let dir = corpus().join("grpc_legacy");
    for (name, first, count) in [("one", 0, 1), ("two_sealed", 1, 2)] {
        let mut bytes = vec![first];
        for _ in 0..count {
            bytes.extend(update().encode_length_delimited_to_vec());
        }
        fs::write(dir.join(name), bytes).unwrap();
    }
}
