//! One stream per node, one record per message, as fast as the host acknowledges.

use std::path::Path;
use tokio::time::Instant;

use gswarm_store::LineBuffer;
use gswarm_types::{Body, Cells, Incarnation, Micros, NodeId, Record, TableDigest, Values};
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::v1::recorder_client::RecorderClient;
use gswarm_wire::{PROTOCOL, UNACKED_RECORDS_MAX, record_to_wire, table_to_wire, v1};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use uuid::Uuid;

use crate::Outcome;
use crate::data::{Head, Recording, Row, wall_now};

/// Rows that wait for the stream of their node.
const ROWS_MAX: usize = 256;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The line of a spool, whose checksum goes with the record.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum SpoolLine<'a> {
    Record(&'a Record),
}

/// One node of the recording.
struct Node {
    number: usize,
    head: Head,
    began: Micros,
    rows: mpsc::Receiver<Row>,
}

pub(crate) fn push(path: &Path, host: &str, port: u16) -> Outcome<Value> {
    let recording = Recording::open(path)?;
    let head = recording.head.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let start = Instant::now();
    let uri = format!("http://{host}:{port}");
    runtime.block_on(feed(recording, &uri)).map_err(|error| error.to_string())?;
    Ok(json!({
        "samples": head.samples(),
        "records": head.nodes * head.ticks,
        "seconds": start.elapsed().as_secs_f64(),
    }))
}

async fn feed(mut recording: Recording, uri: &str) -> Result<(), Failed> {
    let head = recording.head.clone();
    let began = wall_now() - Micros::from_secs(i64::try_from(head.ticks)?);
    let mut streams = JoinSet::new();
    let mut inlets = Vec::new();
    for number in 0..head.nodes {
        let (inlet, rows) = mpsc::channel(ROWS_MAX);
        inlets.push(inlet);
        let node = Node { number, head: head.clone(), began, rows };
        streams.spawn(node.deliver(uri.to_owned()));
    }
    while let Some(row) = recording.row().map_err(|error| error.to_string())? {
        let inlet = inlets.get(row.node).ok_or("a row of no node")?;
        if inlet.send(row).await.is_err() {
            break;
        }
    }
    drop(inlets);
    while let Some(done) = streams.join_next().await {
        done??;
    }
    Ok(())
}

impl Node {
    async fn deliver(mut self, uri: String) -> Result<(), Failed> {
        let channel = Endpoint::from_shared(uri)?.connect().await?;
        let (out, queue) = mpsc::channel(UNACKED_RECORDS_MAX);
        let say = |message| v1::AgentMessage { message: Some(message) };
        let incarnation = Incarnation(rand::random());
        out.send(say(FromAgent::Hello(self.hello(incarnation)))).await?;
        let mut client = RecorderClient::new(channel);
        let mut answers = client.stream(ReceiverStream::new(queue)).await?.into_inner();
        let table = self.head.table();
        let wire_table = table_to_wire(incarnation, &table);
        let digest = table.digest();
        let (mut sent, mut acked, mut welcome, mut over) = (0_u64, 0_u64, false, false);
        while !(over && acked == sent) {
            let room = sent - acked < UNACKED_RECORDS_MAX as u64;
            tokio::select! {
                answer = answers.message() => match answer?.and_then(|answer| answer.message) {
                    Some(FromHost::TimeProbe(probe)) => {
                        out.send(say(FromAgent::TimeEcho(self.echo(probe.id)))).await?;
                    },
                    Some(FromHost::Welcome(_)) => {
                        welcome = true;
                        out.send(say(FromAgent::Table(wire_table.clone()))).await?;
                    },
                    Some(FromHost::Ack(ack)) => acked = ack.seq,
                    Some(_) => {},
                    None => return Err("the host ended the stream".into()),
                },
                row = self.rows.recv(), if welcome && !over && room => match row {
                    Some(row) => {
                        sent += 1;
                        let record = self.record(incarnation, sent, digest, row);
                        let wire = to_wire(&record, &table)?;
                        out.send(say(FromAgent::Records(v1::Records { records: vec![wire] }))).await?;
                    },
                    None => over = true,
                },
            }
        }
        Ok(())
    }

    fn hello(&self, incarnation: Incarnation) -> v1::Hello {
        v1::Hello {
            protocol_min: PROTOCOL,
            protocol_max: PROTOCOL,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            node_id: NodeId::new(Uuid::now_v7()).to_string(),
            node_name: format!("node{:05}", self.number),
            incarnation: incarnation.0,
            boot_id: format!("boot of node {}", self.number),
            hostname: format!("node{:05}", self.number),
            simulated: true,
            ..v1::Hello::default()
        }
    }

    /// The recording ends now.
    fn echo(&self, id: u64) -> v1::TimeEcho {
        let wall = wall_now();
        v1::TimeEcho { id, mono_us: (wall - self.began).0, wall_us: wall.0 }
    }

    fn record(&self, incarnation: Incarnation, seq: u64, table: TableDigest, row: Row) -> Record {
        let cells = Cells::new(row.cells.into_iter().map(Some).collect());
        Record {
            incarnation,
            seq,
            mono: row.mono,
            wall: self.began + row.mono,
            body: Body::Values(Values { table, cells }),
        }
    }
}

fn to_wire(record: &Record, table: &gswarm_types::Table) -> Result<v1::Record, Failed> {
    let mut line = LineBuffer::new();
    let crc = line.push(&SpoolLine::Record(record))?;
    Ok(record_to_wire(record, crc, Some(table)))
}
