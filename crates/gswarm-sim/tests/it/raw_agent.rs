//! An agent played by the test, which sends what a real one never would.

use std::collections::{BTreeSet, VecDeque};

use gswarm_node::Connect;
use gswarm_sim::SimNetwork;
use gswarm_types::{Body, Incarnation, Mark, Micros, Record};
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::v1::recorder_client::RecorderClient;
use gswarm_wire::{PROTOCOL, record_to_wire, v1};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

pub(super) const INCARNATION: Incarnation = Incarnation(0xabcd);
const NODE: &str = "00000000-0000-7000-8000-0000000000ee";

/// One stream.
pub(super) struct RawAgent {
    tx: mpsc::Sender<v1::AgentMessage>,
    rx: Streaming<v1::HostMessage>,
    /// Sent and not acknowledged, in order.
    sent: VecDeque<u64>,
    /// Everything that the host acknowledged on this stream.
    pub(super) acked: BTreeSet<u64>,
}

pub(super) fn crc(seq: u64) -> u32 {
    u32::try_from(seq).unwrap().wrapping_mul(2_654_435_761)
}

fn record(seq: u64) -> v1::Record {
    let body = Body::Mark(Mark { name: format!("mark {seq}"), duration: None });
    let mono = Micros::from_millis(i64::try_from(seq).unwrap());
    let record = Record { incarnation: INCARNATION, seq, mono, wall: mono, body };
    record_to_wire(&record, crc(seq), None)
}

impl RawAgent {
    /// Opens a stream of a spool that holds everything up to `last`.
    pub(super) async fn connect(network: &SimNetwork, last: u64) -> Result<Self, Status> {
        let network = network.clone();
        let connector = tower::service_fn(move |_: http::Uri| {
            let connecting = network.connect();
            async move { connecting.await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://gswarm")
            .connect_with_connector(connector)
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let (tx, queue) = mpsc::channel(64);
        let hello = hello(last);
        say(&tx, FromAgent::Hello(hello)).await?;
        let answer = RecorderClient::new(channel).stream(ReceiverStream::new(queue)).await?;
        let rx = answer.into_inner();
        let mut agent = Self { tx, rx, sent: VecDeque::new(), acked: BTreeSet::new() };
        while !agent.hear().await? {}
        Ok(agent)
    }

    /// Takes one message in; true when it was the welcome.
    async fn hear(&mut self) -> Result<bool, Status> {
        let message = self.rx.message().await?.ok_or_else(|| Status::unavailable("closed"))?;
        match message.message {
            Some(FromHost::TimeProbe(probe)) => {
                let echo = v1::TimeEcho { id: probe.id, mono_us: 1_000, wall_us: 1_000 };
                say(&self.tx, FromAgent::TimeEcho(echo)).await?;
            },
            Some(FromHost::Ack(ack)) => {
                while let Some(seq) = self.sent.pop_front() {
                    self.acked.insert(seq);
                    if seq == ack.seq {
                        break;
                    }
                }
            },
            Some(FromHost::Welcome(_)) => return Ok(true),
            _ => {},
        }
        Ok(false)
    }

    pub(super) async fn send(&mut self, seqs: &[u64]) -> Result<(), Status> {
        self.sent.extend(seqs);
        let records = seqs.iter().copied().map(record).collect();
        say(&self.tx, FromAgent::Records(v1::Records { records })).await
    }

    /// Listens for so long.
    pub(super) async fn listen(&mut self, millis: u64) -> Result<(), Status> {
        let until = tokio::time::Instant::now() + std::time::Duration::from_millis(millis);
        while let Ok(heard) = tokio::time::timeout_at(until, self.hear()).await {
            heard?;
        }
        Ok(())
    }

    /// Every record that was sent is acknowledged, if perhaps not each time that it was sent.
    pub(super) fn is_settled(&self) -> bool {
        self.sent.iter().all(|seq| self.acked.contains(seq))
    }
}

fn hello(last: u64) -> v1::Hello {
    v1::Hello {
        protocol_min: PROTOCOL,
        protocol_max: PROTOCOL,
        agent_version: "raw".to_owned(),
        node_id: NODE.to_owned(),
        node_name: "raw".to_owned(),
        incarnation: INCARNATION.0,
        boot_id: "boot".to_owned(),
        held: vec![v1::HeldRange {
            boot_id: "boot".to_owned(),
            incarnation: INCARNATION.0,
            oldest_held: 1,
            last,
        }],
        simulated: true,
        last_seq: last,
        ..v1::Hello::default()
    }
}

async fn say(tx: &mpsc::Sender<v1::AgentMessage>, message: FromAgent) -> Result<(), Status> {
    let message = v1::AgentMessage { message: Some(message) };
    tx.send(message).await.map_err(|_| Status::unavailable("closed"))
}
