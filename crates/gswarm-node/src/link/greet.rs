//! The beginning of a stream: who we are, what we hold, what the host has of it.

use std::time::Duration;

use gswarm_types::{Incarnation, NodeName, Period, StorageId};
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::v1::recorder_client::RecorderClient;
use gswarm_wire::{MESSAGE_BYTES_MAX, PROTOCOL, v1};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::{Ended, Link, chain, ended_by};
use crate::spool::{Agreement, HeldRange, SpoolView};
use crate::status::LinkState;

/// From dialling to the host's welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Messages between the link and the connection: enough to keep it busy.
const QUEUE_MAX: usize = 4;

/// Both directions of a stream.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) tx: mpsc::Sender<v1::AgentMessage>,
    pub(super) rx: Streaming<v1::HostMessage>,
}

/// What came before the welcome and must not be lost.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    pub(super) early: Vec<FromHost>,
}

/// Messages other than probes that a host may send before its welcome.
const EARLY_MAX: usize = 64;

impl Link {
    /// Opens a stream and comes to terms with the host.
    pub(super) async fn greet(&mut self) -> Result<(Ends, Greeting), Ended> {
        let greeted = tokio::time::timeout(WELCOME_TIMEOUT, Box::pin(self.open())).await;
        let (ends, greeting, welcome) = greeted.unwrap_or_else(|_| {
            let seconds = WELCOME_TIMEOUT.as_secs();
            Err(Ended::Lost(format!("the host did not welcome the agent within {seconds} s")))
        })?;
        self.agree(&welcome).await?;
        let storage_id: Option<StorageId> = welcome.storage_id.parse().ok();
        tracing::info!(
            host = self.connect.describe(),
            version = welcome.host_version,
            name = welcome.node_name,
            "connected"
        );
        self.status.send_modify(|status| {
            if let Ok(name) = NodeName::new(welcome.node_name) {
                status.node_name = name;
            }
            status.link = LinkState::Connected { host_version: welcome.host_version, storage_id };
        });
        if let Ok(period) = Period::from_millis(i64::from(welcome.period_ms)) {
            self.set_period(period);
        }
        Ok((ends, greeting))
    }

    async fn open(&mut self) -> Result<(Ends, Greeting, v1::Welcome), Ended> {
        let who = self.who();
        self.connect.prepare(&who).await?;
        let channel = self.dial().await?;
        let mut client = RecorderClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let at = self.now();
        let view = self
            .spool
            .run(move |spool| {
                spool.explain(at);
                spool.view()
            })
            .await
            .map_err(|error| Ended::Lost(error.to_string()))?;
        let (tx, queue) = mpsc::channel(QUEUE_MAX);
        send(&tx, FromAgent::Hello(self.hello(&view))).await?;
        let answer = client.stream(ReceiverStream::new(queue)).await;
        let mut rx = answer.map_err(|status| self.refused(&status))?.into_inner();
        let mut greeting = Greeting::default();
        loop {
            let message = rx.message().await.map_err(|status| ended_by(&status))?;
            match message.ok_or_else(closed)?.message {
                Some(FromHost::Welcome(welcome)) => {
                    return Ok((Ends { tx, rx }, greeting, welcome));
                },
                Some(FromHost::TimeProbe(probe)) => {
                    send(&tx, FromAgent::TimeEcho(self.time_echo(probe.id))).await?;
                },
                Some(other) if greeting.early.len() < EARLY_MAX => greeting.early.push(other),
                Some(_) | None => {},
            }
        }
    }

    async fn dial(&self) -> Result<Channel, Ended> {
        let authority = self.connect.describe();
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .unwrap_or_else(|_| Endpoint::from_static("http://gswarm"))
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let connect = std::sync::Arc::clone(&self.connect);
        let connector = tower::service_fn(move |_: Uri| {
            let connecting = connect.connect();
            async move { connecting.await.map(TokioIo::new) }
        });
        let dialled = endpoint.connect_with_connector(connector).await;
        dialled.map_err(|error| self.explained(Ended::Lost(chain(&error))))
    }

    fn refused(&self, status: &Status) -> Ended {
        if status.code() == Code::Unauthenticated && self.connect.rejected() {
            return Ended::Renewed;
        }
        self.explained(ended_by(status))
    }

    /// The connection may know better what an error means.
    fn explained(&self, ended: Ended) -> Ended {
        match &ended {
            Ended::Lost(reason) => self.connect.explain(reason).map_or(ended, Ended::from),
            _ => ended,
        }
    }

    fn hello(&self, view: &SpoolView) -> v1::Hello {
        let me = &self.introduction;
        v1::Hello {
            protocol_min: PROTOCOL,
            protocol_max: PROTOCOL,
            agent_version: me.version.clone(),
            node_id: me.node_id.to_string(),
            node_name: me.node_name.to_string(),
            incarnation: view.incarnation.0,
            boot_id: me.boot_id.clone(),
            held: held_to_wire(&view.held),
            allow: me.allow.iter().map(|allow| allow.as_str().to_owned()).collect(),
            simulated: me.simulated,
            min_period_ms: u32::try_from(Period::MIN.millis()).unwrap_or(0),
            base_period_ms: self
                .introduction
                .base_period
                .and_then(|period| u32::try_from(period.millis()).ok()),
            hostname: me.hostname.clone(),
            last_seq: view.last_seq,
        }
    }

    pub(super) fn time_echo(&self, id: u64) -> v1::TimeEcho {
        let at = self.now();
        v1::TimeEcho { id, mono_us: at.mono.0, wall_us: at.wall.0 }
    }

    /// Frees what the host has already, unless it means other records by the same seqs.
    async fn agree(&mut self, welcome: &v1::Welcome) -> Result<(), Ended> {
        let at = self.now();
        for held in &welcome.held {
            let incarnation = Incarnation(held.incarnation);
            let intervals: Vec<(u64, u64)> =
                held.intervals.iter().map(|interval| (interval.first, interval.last)).collect();
            let (seq, crc) = (held.last_stored_seq, held.last_stored_crc);
            let turn = self.spool.run(move |spool| {
                let is_current = spool.view().incarnation == incarnation;
                if is_current && seq > 0 && spool.compare(seq, crc) == Agreement::Different {
                    return Agreement::Different;
                }
                spool.ack_held(incarnation, &intervals, at);
                Agreement::Same
            });
            match turn.await {
                Ok(Agreement::Same) => {},
                Ok(Agreement::Different) => return Err(self.renew().await),
                Err(error) => return Err(Ended::Lost(error.to_string())),
            }
        }
        Ok(())
    }
}

pub(super) fn held_to_wire(held: &[HeldRange]) -> Vec<v1::HeldRange> {
    held.iter()
        .map(|range| v1::HeldRange {
            boot_id: range.boot_id.clone(),
            incarnation: range.incarnation.0,
            oldest_held: range.oldest_held,
            last: range.last,
        })
        .collect()
}

async fn send(tx: &mpsc::Sender<v1::AgentMessage>, message: FromAgent) -> Result<(), Ended> {
    tx.send(v1::AgentMessage { message: Some(message) }).await.map_err(|_| closed())
}

pub(super) fn closed() -> Ended {
    Ended::Lost("the host closed the stream".to_owned())
}
