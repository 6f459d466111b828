//! Prometheus remote write over one kept connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use tokio::time::Instant;

use gswarm_types::Micros;
use prost::Message;
use serde_json::{Value, json};

use crate::Outcome;
use crate::data::{Head, Recording, wall_now};

/// How long a sample may take to be found.
const VISIBLE_MAX: std::time::Duration = std::time::Duration::from_secs(60);

#[derive(Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Message, Clone)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

pub(crate) fn push(path: &Path, to: (&str, u16), target: &str, batch: usize) -> Outcome<Value> {
    let mut recording = Recording::open(path)?;
    let labels = labels(&recording.head);
    let span = Micros::from_secs(i64::try_from(recording.head.ticks)?);
    let began = wall_now() - span;
    let mut peer = Peer::connect(to, target)?;
    let start = Instant::now();
    let mut request = WriteRequest { timeseries: Vec::with_capacity(batch) };
    while let Some(row) = recording.row()? {
        let timestamp = (began + row.mono).0 / 1_000;
        let series = labels.get(row.node).ok_or("a node without labels")?;
        for (labels, value) in series.iter().zip(row.cells) {
            let samples = vec![Sample { value, timestamp }];
            request.timeseries.push(TimeSeries { labels: labels.clone(), samples });
            if request.timeseries.len() == batch {
                peer.post(&request)?;
                request.timeseries.clear();
            }
        }
    }
    if !request.timeseries.is_empty() {
        peer.post(&request)?;
    }
    Ok(json!({
        "samples": recording.head.samples(),
        "requests": peer.requests,
        "bytes_sent": peer.bytes,
        "seconds": start.elapsed().as_secs_f64(),
    }))
}

/// Milliseconds from sending a sample to the first answer of a query that holds it, each time.
pub(crate) fn visible(to: (&str, u16), target: &str, times: u32) -> Outcome<Value> {
    let mut peer = Peer::connect(to, target)?;
    let labels = vec![Label { name: "__name__".to_owned(), value: "gswarm_probe".to_owned() }];
    let mut taken_ms = Vec::new();
    let mut timestamp = 0;
    for number in 1..=times {
        let before = timestamp;
        while timestamp <= before {
            timestamp = wall_now().0 / 1_000;
        }
        let samples = vec![Sample { value: f64::from(number), timestamp }];
        let series = TimeSeries { labels: labels.clone(), samples };
        let start = Instant::now();
        peer.post(&WriteRequest { timeseries: vec![series] })?;
        let wanted = format!("\"{number}\"]");
        while !peer.get("/api/v1/query?query=gswarm_probe&nocache=1")?.contains(&wanted) {
            if start.elapsed() > VISIBLE_MAX {
                return Err("a sample never became visible".into());
            }
        }
        taken_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(json!({ "visible_ms": taken_ms }))
}

/// The labels of each series of each node, sorted by name as the protocol asks.
fn labels(head: &Head) -> Vec<Vec<Vec<Label>>> {
    let label = |name: &str, value: String| Label { name: name.to_owned(), value };
    let of = |node: usize| {
        let columns = head.columns.iter().map(move |column| {
            let gpu = head.devices.get(column.device as usize);
            vec![
                label("__name__", format!("gswarm_{}", column.metric.as_str())),
                label("gpu", gpu.map_or(0, |gpu| gpu.index).to_string()),
                label("instance", format!("node{node:05}")),
                label("job", "gswarm".to_owned()),
            ]
        });
        columns.collect()
    };
    (0..head.nodes).map(of).collect()
}

struct Peer {
    stream: BufReader<TcpStream>,
    target: String,
    encoder: snap::raw::Encoder,
    requests: u64,
    bytes: u64,
}

impl Peer {
    fn connect(to: (&str, u16), target: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let encoder = snap::raw::Encoder::new();
        let stream = BufReader::new(stream);
        Ok(Self { stream, target: target.to_owned(), encoder, requests: 0, bytes: 0 })
    }

    fn post(&mut self, request: &WriteRequest) -> Outcome<()> {
        let body = self.encoder.compress_vec(&request.encode_to_vec())?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
             Content-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n\
             X-Prometheus-Remote-Write-Version: 0.1.0\r\n\r\n",
            self.target,
            body.len()
        );
        let mut message = head.into_bytes();
        message.extend_from_slice(&body);
        self.stream.get_mut().write_all(&message)?;
        self.requests += 1;
        self.bytes += message.len() as u64;
        self.answer().map(|_| ())
    }

    fn get(&mut self, path: &str) -> Outcome<String> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.trim().to_owned();
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let header = line.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        if status.contains(" 204") || status.contains(" 200") {
            return Ok(String::from_utf8_lossy(&body).into_owned());
        }
        Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into())
    }
}
