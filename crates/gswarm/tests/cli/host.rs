//! A tiny HTTP server with canned answers, and the bodies it serves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use gswarm_api::body::{
    CheckBody, DeviceBody, EventBody, EventsBody, GapBody, HealthBody, HealthStatus, IngestBody,
    LatestBody, LatestNode, NodeBody, NodeHealth, NodesBody, ProcessBody, RetentionBody,
    RetentionSegment, SessionBody, SessionsBody, SettingsBody, StatusBody, StopBody, StoppedBody,
    StoreBody,
};
use serde::Serialize;

/// One canned answer.
#[derive(Clone)]
pub(crate) struct Answer {
    status: u16,
    body: Vec<u8>,
    /// Promise more than is sent, as a host does that dies half way.
    cut: bool,
}

/// Serves until it is dropped.
pub(crate) struct FakeHost {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answer {
    pub(crate) fn json(body: &impl Serialize) -> Self {
        Self { status: 200, body: serde_json::to_vec(body).unwrap(), cut: false }
    }

    pub(crate) fn error(status: u16, code: &str, reason: &str, message: &str) -> Self {
        let body = serde_json::json!({"error": {
            "code": code, "message": message, "details": {"reason": reason}, "request_id": "r1",
        }});
        Self { status, ..Self::json(&body) }
    }

    pub(crate) fn bytes(body: &str, cut: bool) -> Self {
        Self { status: 200, body: body.as_bytes().to_vec(), cut }
    }
}

impl FakeHost {
    /// Answers by `METHOD /path` without the query; everything else is 404.
    pub(crate) fn start<const N: usize>(answers: [(&str, Answer); N]) -> Self {
        let answers: BTreeMap<String, Answer> =
            answers.into_iter().map(|(route, answer)| (route.to_owned(), answer)).collect();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (requests, stop) = (Arc::clone(&requests), Arc::clone(&stop));
            move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    serve(stream.unwrap(), &answers, &requests);
                }
            }
        });
        Self { address, requests, stop, thread: Some(thread) }
    }

    /// `METHOD /path?query BODY` of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(mut stream: TcpStream, answers: &BTreeMap<String, Answer>, requests: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut words = first.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return };
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    requests.lock().unwrap().push(format!("{method} {target} {body}"));
    let route = format!("{method} {}", target.split('?').next().unwrap());
    let missing = Answer::error(404, "not_found", "", &format!("no such path: {route}"));
    let answer = answers.get(&route).unwrap_or(&missing);
    let length = answer.body.len() + if answer.cut { 1000 } else { 0 };
    write!(
        stream,
        "HTTP/1.1 {} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n",
        answer.status
    )
    .unwrap();
    stream.write_all(&answer.body).unwrap();
}

fn text(text: &str) -> String {
    text.to_owned()
}

pub(crate) fn status() -> StatusBody {
    StatusBody {
        insecure: false,
        version: text("0.1.0"),
        storage_id: text("0192d3a0-0000-7000-8000-00000000000a"),
        simulated: true,
        started_at: text("2026-11-15T04:00:00.000000Z"),
        now: text("2026-11-15T06:05:00.000000Z"),
        addresses: vec![text("127.0.0.1:8090"), text("127.0.0.1:8091")],
        data_dir: text("/home/u/.gswarm/data-sim"),
        output_dir: text("/home/u"),
        settings: settings(),
        nodes_total: 3,
        nodes_healthy: 2,
        gpus_total: 24,
        sessions_active: 1,
        health: HealthStatus::Degraded,
        ingest: IngestBody {
            records_stored: 22_500,
            records_duplicate: 12,
            ..IngestBody::default()
        },
        store: StoreBody {
            segments: 3,
            segments_sealed: 2,
            bytes: 123_456_789,
            budget_bytes: 10_000_000_000,
            retention_hours: 24,
            oldest: Some(text("2026-11-15T04:00:01.000000Z")),
            bytes_per_day: Some(1_440_000_000),
            quarantined_files: 0,
        },
    }
}

pub(crate) fn settings() -> SettingsBody {
    SettingsBody {
        base_period_ms: 1000,
        session_period_ms: 500,
        enable_bandwidth: true,
        enable_nvlink: false,
    }
}

pub(crate) fn health() -> HealthBody {
    let check = |name: &str, status, message: &str| CheckBody {
        name: text(name),
        status,
        message: text(message),
    };
    HealthBody {
        status: HealthStatus::Unavailable,
        version: text("0.1.0"),
        checks: vec![
            check(
                "store",
                HealthStatus::Unavailable,
                "the disk is full: records wait on their nodes",
            ),
            check("nodes", HealthStatus::Ok, "3 of 3 healthy"),
        ],
    }
}

fn gpu(index: u32) -> DeviceBody {
    let values = [
        ("gpu_utilization", Some(97.0)),
        ("memory_used_bytes", Some(68_719_476_736.0)),
        ("memory_total_bytes", Some(85_520_809_984.0)),
        ("temperature_celsius", Some(63.0)),
        ("power_milliwatts", Some(612_345.0)),
        ("sm_activity", Some(88.4)),
        ("pcie_rx_bytes_per_second", Some(12_300_000_000.0)),
        ("pcie_tx_bytes_per_second", None),
    ];
    DeviceBody {
        id: format!("GPU-{index}"),
        scope: text("gpu"),
        index,
        name: text("NVIDIA H100 80GB HBM3"),
        simulated: true,
        values: values.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}

fn machine() -> DeviceBody {
    let values = [
        ("node_cpu_utilization", Some(12.3)),
        ("node_load_1m", Some(3.25)),
        ("node_memory_used_bytes", Some(34_359_738_368.0)),
        ("node_memory_total_bytes", Some(549_755_813_888.0)),
    ];
    DeviceBody {
        id: text("node"),
        scope: text("node"),
        index: 0,
        name: text("node1"),
        simulated: false,
        values: values.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}

fn process(job: Option<&str>) -> ProcessBody {
    ProcessBody {
        gpu_index: 0,
        pid: 4242,
        name: Some(text("python3")),
        user: None,
        job: job.map(text),
        memory_bytes: Some(68_719_476_736),
        kind: text("compute"),
    }
}

pub(crate) fn node(name: &str, health: NodeHealth) -> NodeBody {
    NodeBody {
        name: text(name),
        node_id: text("0192d3a0-0000-7000-8000-000000000001"),
        hostname: text("gpu-01"),
        health,
        connected: health == NodeHealth::Healthy,
        agent_version: text("0.1.0"),
        legacy: false,
        simulated: true,
        member: false,
        allow: vec![text("observe"), text("probe")],
        silent_seconds: Some(0.4),
        last_seen: Some(text("2026-11-15T06:05:00.000000Z")),
        clock_offset_us: Some(-1_250),
        clock_error_us: Some(90),
        period_ms: 500,
        spool_records: Some(3),
        records_stored: 7_500,
        commands_refused: 0,
        devices: vec![gpu(0), gpu(1), machine()],
        processes: vec![process(None)],
        peer_links: Vec::new(),
        gaps: vec![GapBody {
            node: text(name),
            node_id: text("0192d3a0-0000-7000-8000-000000000001"),
            incarnation: text("00000000000000ff"),
            first_seq: 10,
            last_seq: Some(19),
            records: Some(10),
            reason: text("spool_overflow"),
            from: Some(text("2026-11-15T05:00:00.000000Z")),
            to: None,
            is_final: false,
        }],
    }
}

pub(crate) fn nodes() -> NodesBody {
    let silent = NodeBody {
        silent_seconds: Some(95.0),
        spool_records: None,
        clock_offset_us: None,
        processes: vec![process(Some("1234")), process(None)],
        ..node("node2", NodeHealth::Unhealthy)
    };
    let old = NodeBody {
        legacy: true,
        simulated: false,
        devices: Vec::new(),
        silent_seconds: None,
        // What an attacker might call a node.
        ..node("evil\u{1b}[31m\u{202e}", NodeHealth::Unseen)
    };
    NodesBody {
        nodes: vec![node("node1", NodeHealth::Healthy), silent, old],
        waiting: Vec::new(),
        silent_members: Vec::new(),
    }
}

pub(crate) fn latest() -> LatestBody {
    LatestBody {
        time: text("2026-11-15T06:05:00.000000Z"),
        nodes: vec![LatestNode {
            node: text("node1"),
            node_id: text("0192d3a0-0000-7000-8000-000000000001"),
            time: text("2026-11-15T06:04:59.900000Z"),
            devices: vec![gpu(0), gpu(1), machine()],
        }],
    }
}

pub(crate) fn events() -> EventsBody {
    EventsBody {
        events: vec![
            EventBody {
                time: text("2026-11-15T05:00:00.000000Z"),
                node: Some(text("node1")),
                kind: text("xid"),
                severity: text("error"),
                device: Some(text("GPU-0")),
                code: Some(79),
                message: text("XID 79: the GPU has fallen off the bus"),
            },
            EventBody {
                time: text("2026-11-15T05:00:02.000000Z"),
                node: None,
                kind: text("store_recovered"),
                severity: text("info"),
                device: None,
                code: None,
                message: text("a torn line was cut off"),
            },
        ],
    }
}

pub(crate) fn session(name: &str) -> SessionBody {
    SessionBody {
        id: text("0192d3a0-0000-7000-8000-00000000000b"),
        name: text(name),
        active: false,
        created: text("2026-11-15T05:00:00.000000Z"),
        from: text("2026-11-15T04:55:00.000000Z"),
        until: Some(text("2026-11-15T05:02:00.000000Z")),
        stop_at: None,
        covered_from: Some(text("2026-11-15T04:58:00.000000Z")),
        freq: 500,
        enable_bandwidth: true,
        enable_nvlink: false,
        report_metrics: Vec::new(),
        nodes: None,
        gpus: None,
        user: None,
        job: None,
        owner: text("local"),
        tags: Vec::new(),
        note: None,
        revision: 1,
        incomplete_nodes: vec![text("node2")],
        output_file: Some(format!("/home/u/{name}.json")),
        frame_count: 840,
        simulated: true,
    }
}

pub(crate) fn sessions() -> SessionsBody {
    let whole = SessionBody { incomplete_nodes: Vec::new(), ..session("full_training") };
    // Its length counts from the time of the test; in the future that is always nothing.
    let open = SessionBody {
        active: true,
        from: text("2999-11-15T05:00:00.000000Z"),
        until: None,
        output_file: None,
        ..session("training_phase")
    };
    SessionsBody { sessions: vec![whole, session("run1"), open] }
}

pub(crate) fn stopped(name: &str) -> StoppedBody {
    StoppedBody { session: session(name), export_note: None }
}

/// A session whose file somebody deleted.
pub(crate) fn gone(name: &str) -> StoppedBody {
    let again = format!("`gswarm profiler export --name {name} -o {name}.json`");
    StoppedBody {
        session: SessionBody { output_file: None, ..session(name) },
        export_note: Some(format!("file no longer there: export it again with {again}")),
    }
}

pub(crate) fn stop_all() -> StopBody {
    StopBody { stopped: vec![stopped("full_training"), stopped("run1")] }
}

pub(crate) fn retention() -> RetentionBody {
    RetentionBody {
        budget_bytes: 1_000_000_000,
        bytes: 1_100_000_000,
        pinned_bytes: 20_000_000,
        remove: vec![RetentionSegment {
            segment: 7,
            bytes: 64_000_000,
            first: Some(text("2026-11-14T04:00:00.000000Z")),
            last: Some(text("2026-11-14T04:10:00.000000Z")),
            reason: text("over budget"),
        }],
        trim: vec![RetentionSegment {
            segment: 6,
            bytes: 61_000_000,
            first: Some(text("2026-11-14T03:50:00.000000Z")),
            last: Some(text("2026-11-14T04:00:00.000000Z")),
            reason: text("expired"),
        }],
    }
}
