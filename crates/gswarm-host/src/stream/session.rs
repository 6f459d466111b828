//! One connection of one agent, from its introduction to its end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gswarm_core::ClockOffset;
use gswarm_types::{
    Body, Incarnation, Micros, NodeId, RECORD_BYTES_MAX, Record, Table, TableDigest,
};
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as ToWire;
use gswarm_wire::{
    PROTOCOL, UNACKED_BYTES_MAX, UNACKED_RECORDS_MAX, WireError, record_from_wire, table_from_wire,
    v1,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Status, Streaming};

use super::introduction::{Introduction, SEQ_MAX, clip, listed};
use super::to_status;
use crate::caller::Caller;
use crate::handle::Handle;
use crate::recorder::{Ingest, Join, Joined, RecordBatch, StreamClock, StreamId, ToAgent};

/// How long an agent may take to introduce itself or to answer a clock probe.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Probes before the first record; the one with the shortest round trip counts.
const PROBES: u64 = 4;
/// Time between later probes.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// A stream from which nothing comes for this long is dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long an agent may leave our messages unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// What the recorder may say to one agent before it is given up.
const OUTBOX_MAX: usize = 1_024;
/// Messages that were read and wait for the recorder.
const PENDING_MAX: usize = 8_192;
/// Tables one stream may introduce.
const TABLES_MAX: usize = 256;

type Out = mpsc::Sender<Result<v1::HostMessage, Status>>;

struct Session {
    handle: Handle,
    out: Out,
    id: StreamId,
    node: NodeId,
    incarnation: Incarnation,
    boot_id: String,
    /// Boot in which each listed incarnation recorded.
    boots: HashMap<Incarnation, String>,
    clock: StreamClock,
    tables: HashMap<(Incarnation, TableDigest), Arc<Table>>,
    /// A table that was asked for again: nothing after its first use counts until it comes.
    missing: Option<(Incarnation, TableDigest)>,
    /// Tables that this host does not understand: their values are named as rejected.
    refused: HashSet<(Incarnation, TableDigest)>,
    /// Read but not yet taken by the recorder.
    pending: VecDeque<Ingest>,
    /// Records and bytes that came and are not acknowledged.
    unacked: VecDeque<(Incarnation, u64, usize)>,
    unacked_bytes: usize,
    probe: Option<(u64, Micros)>,
    next_probe: u64,
}

/// Returns when the stream is over; an error is told to the agent.
pub(super) async fn drive(
    handle: Handle,
    caller: Caller,
    mut inbound: Streaming<v1::AgentMessage>,
    out: Out,
) -> Result<(), Status> {
    let hello = first(&mut inbound).await?;
    let introduction = Introduction::check(hello)?;
    check_sender(&handle, &caller, introduction.node)?;
    let clock = measure(&handle, &mut inbound, &out).await?;
    let (outbox, mut orders) = mpsc::channel(OUTBOX_MAX);
    let id = handle.new_stream();
    let node = introduction.node;
    let incarnation = introduction.incarnation;
    let boot_id = introduction.boot_id.clone();
    let boots = introduction.boots.clone();
    let joined = join(&handle, introduction, id, clock, outbox).await?;
    // Somebody may have removed the node while it took its time to get here.
    if let Err(status) = check_sender(&handle, &caller, node) {
        let _stopping = handle.ingest().send(Ingest::Leave { stream: id, node }).await;
        return Err(status);
    }
    let mut session = Session {
        handle,
        out,
        id,
        node,
        incarnation,
        boot_id,
        boots,
        clock,
        tables: HashMap::new(),
        missing: None,
        refused: HashSet::new(),
        pending: VecDeque::new(),
        unacked: VecDeque::new(),
        unacked_bytes: 0,
        probe: None,
        next_probe: PROBES + 1,
    };
    let welcome = welcome(&session.handle, joined);
    let ended = match session.say(welcome).await {
        Ok(()) => session.run(&mut inbound, &mut orders).await,
        Err(status) => Err(status),
    };
    let leave = Ingest::Leave { stream: session.id, node: session.node };
    // What was read before the end goes first: it is in order and may still be stored.
    for message in session.pending.drain(..).chain([leave]) {
        if session.handle.ingest().send(message).await.is_err() {
            break;
        }
    }
    ended
}

/// A node writes its own records and no others.
fn check_sender(handle: &Handle, caller: &Caller, node: NodeId) -> Result<(), Status> {
    let book = handle.access().book();
    let member = book.member(node).filter(|member| !member.removed);
    if caller.may_deliver(node, member.is_some()) {
        return Ok(());
    }
    let name = member.map_or_else(|| node.to_string(), |member| member.name.to_string());
    tracing::warn!(target: "access", caller = caller.principal, %node, "records refused");
    Err(Status::permission_denied(format!(
        "`{}` may not deliver records of `{name}`: a node that has joined needs its certificate",
        caller.principal
    )))
}

async fn first(inbound: &mut Streaming<v1::AgentMessage>) -> Result<v1::Hello, Status> {
    let message = tokio::time::timeout(HELLO_TIMEOUT, inbound.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no introduction came"))??;
    match message.and_then(|message| message.message) {
        Some(FromAgent::Hello(hello)) => Ok(hello),
        _ => Err(Status::invalid_argument("the first message must be an introduction")),
    }
}

/// The clock offset before the first record is taken.
async fn measure(
    handle: &Handle,
    inbound: &mut Streaming<v1::AgentMessage>,
    out: &Out,
) -> Result<StreamClock, Status> {
    let mut best: Option<StreamClock> = None;
    for id in 1..=PROBES {
        let sent = handle.time().mono();
        send(out, ToWire::TimeProbe(v1::TimeProbe { id })).await?;
        let answer = tokio::time::timeout(HELLO_TIMEOUT, inbound.message())
            .await
            .map_err(|_| Status::deadline_exceeded("the clock probe was not answered"))??;
        let Some(FromAgent::TimeEcho(echo)) = answer.and_then(|message| message.message) else {
            return Err(Status::invalid_argument("a clock probe is answered before anything else"));
        };
        let clock = clock_of(handle, sent, &echo);
        if echo.id == id && best.is_none_or(|best| clock.error < best.error) {
            best = Some(clock);
        }
    }
    best.ok_or_else(|| Status::invalid_argument("no clock probe was answered"))
}

/// The echo was stamped half a round trip ago.
fn clock_of(handle: &Handle, sent: Micros, echo: &v1::TimeEcho) -> StreamClock {
    let received = handle.time().mono();
    let error = Micros((received - sent).0.max(0) / 2);
    let at_echo = handle.time().now() - error;
    StreamClock {
        offset: at_echo - Micros(echo.mono_us),
        wall_offset: at_echo - Micros(echo.wall_us),
        error,
    }
}

async fn join(
    handle: &Handle,
    introduction: Introduction,
    id: StreamId,
    clock: StreamClock,
    outbox: mpsc::Sender<ToAgent>,
) -> Result<Joined, Status> {
    let (reply, answer) = oneshot::channel();
    let join = Join {
        stream: id,
        node: introduction.node,
        name: introduction.name,
        hostname: introduction.hostname,
        version: introduction.version,
        allow: introduction.allow,
        simulated: introduction.simulated,
        legacy: false,
        base_period: introduction.base_period,
        incarnation: introduction.incarnation,
        held: introduction.held,
        clock: Some(clock),
        outbox,
        reply,
    };
    let stopping = || Status::unavailable("the host is stopping");
    handle.ingest().send(Ingest::Join(Box::new(join))).await.map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())?.map_err(|failure| to_status(&failure))
}

fn welcome(handle: &Handle, joined: Joined) -> ToWire {
    ToWire::Welcome(v1::Welcome {
        protocol: PROTOCOL,
        host_version: handle.version().to_owned(),
        storage_id: joined.storage.to_string(),
        node_name: joined.name.to_string(),
        held: joined
            .held
            .into_iter()
            .map(|held| v1::HeldByHost {
                incarnation: held.incarnation.0,
                intervals: held
                    .intervals
                    .into_iter()
                    .map(|(first, last)| v1::Interval { first, last })
                    .collect(),
                last_stored_seq: held.last_seq,
                last_stored_crc: held.last_crc,
            })
            .collect(),
        period_ms: u32::try_from(joined.period.millis()).unwrap_or(1_000),
    })
}

async fn send(out: &Out, message: ToWire) -> Result<(), Status> {
    let message = v1::HostMessage { message: Some(message) };
    match tokio::time::timeout(SEND_TIMEOUT, out.send(Ok(message))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Status::cancelled("the agent is gone")),
        Err(_) => Err(Status::deadline_exceeded("the agent does not read")),
    }
}

impl Session {
    async fn say(&self, message: ToWire) -> Result<(), Status> {
        send(&self.out, message).await
    }

    async fn run(
        &mut self,
        inbound: &mut Streaming<v1::AgentMessage>,
        orders: &mut mpsc::Receiver<ToAgent>,
    ) -> Result<(), Status> {
        let ingest = self.handle.ingest().clone();
        let mut probe =
            tokio::time::interval_at(tokio::time::Instant::now() + PROBE_EVERY, PROBE_EVERY);
        loop {
            tokio::select! {
                biased;
                permit = ingest.reserve(), if !self.pending.is_empty() => {
                    let permit = permit.map_err(|_| Status::unavailable("the host is stopping"))?;
                    if let Some(message) = self.pending.pop_front() {
                        permit.send(message);
                    }
                },
                order = orders.recv() => match order {
                    Some(ToAgent::Close(failure)) => return Err(to_status(&failure)),
                    Some(order) => self.order(order).await?,
                    None => return Err(Status::aborted("a newer stream took over")),
                },
                message = tokio::time::timeout(SILENCE_MAX, inbound.message()) => {
                    match message.map_err(|_| Status::deadline_exceeded("nothing came for a minute"))? {
                        Ok(Some(message)) => self.message(message).await?,
                        Ok(None) => return Ok(()),
                        Err(status) => return Err(status),
                    }
                },
                _ = probe.tick() => {
                    self.next_probe += 1;
                    self.probe = Some((self.next_probe, self.handle.time().mono()));
                    self.say(ToWire::TimeProbe(v1::TimeProbe { id: self.next_probe })).await?;
                },
            }
        }
    }

    async fn order(&mut self, order: ToAgent) -> Result<(), Status> {
        let message = match order {
            ToAgent::Ack { incarnation, seq } => {
                self.acknowledged(incarnation, seq);
                ToWire::Ack(v1::Ack { incarnation: incarnation.0, seq })
            },
            ToAgent::Credit(records) => ToWire::Credit(v1::Credit { records }),
            ToAgent::SetPeriod(period) => {
                let period_ms = u32::try_from(period.millis()).unwrap_or(u32::MAX);
                let command = v1::command::Command::SetPeriod(v1::SetPeriod { period_ms });
                ToWire::Command(v1::Command { id: 0, command: Some(command) })
            },
            ToAgent::Flush { id, until } => {
                let until_mono_us = (until - self.clock.offset).0;
                ToWire::Flush(v1::Flush { id, until_mono_us })
            },
            ToAgent::Ping => ToWire::Ping(v1::Ping { id: 0 }),
            ToAgent::Close(failure) => return Err(to_status(&failure)),
        };
        self.say(message).await
    }

    /// Everything sent up to this record is durable.
    fn acknowledged(&mut self, incarnation: Incarnation, seq: u64) {
        while let Some((first, number, bytes)) = self.unacked.pop_front() {
            self.unacked_bytes -= bytes;
            if (first, number) == (incarnation, seq) {
                break;
            }
        }
    }

    async fn message(&mut self, message: v1::AgentMessage) -> Result<(), Status> {
        match message.message {
            Some(FromAgent::Records(records)) => self.records(records).await?,
            Some(FromAgent::Table(table)) => self.table(table)?,
            Some(FromAgent::Heartbeat(heartbeat)) => self.pending.push_back(Ingest::Beat {
                stream: self.id,
                node: self.node,
                held: listed(&heartbeat.held, self.incarnation, heartbeat.last_seq)?,
            }),
            Some(FromAgent::TimeEcho(echo)) => self.echo(&echo),
            Some(FromAgent::Flushed(flushed)) => self.pending.push_back(Ingest::Flushed {
                node: self.node,
                id: flushed.id,
                incarnation: Incarnation(flushed.incarnation),
                seq: flushed.seq,
            }),
            Some(FromAgent::CommandResult(result)) if !result.ok => {
                let message = clip(&result.message);
                self.pending.push_back(Ingest::CommandRefused { node: self.node, message });
            },
            // A repeated introduction, an empty message or a kind of a newer agent says nothing.
            Some(FromAgent::CommandResult(_) | FromAgent::Hello(_)) | None => {},
        }
        if self.pending.len() > PENDING_MAX {
            return Err(Status::resource_exhausted("more messages than agreed"));
        }
        Ok(())
    }

    fn table(&mut self, table: v1::Table) -> Result<(), Status> {
        let incarnation = Incarnation(table.incarnation);
        let digest = TableDigest(table.digest);
        let table = match table_from_wire(table) {
            Ok(table) => Arc::new(table),
            Err(error) => {
                // Content never ends a stream: its values are named as rejected and acknowledged.
                tracing::warn!(node = %self.node, %error, "table refused");
                if self.refused.len() >= TABLES_MAX {
                    return Err(Status::resource_exhausted("too many tables on one stream"));
                }
                self.refused.insert((incarnation, digest));
                if self.missing == Some((incarnation, digest)) {
                    self.missing = None;
                }
                return Ok(());
            },
        };
        if self.tables.len() >= TABLES_MAX {
            return Err(Status::resource_exhausted("too many tables on one stream"));
        }
        self.tables.insert((incarnation, digest), table.clone());
        if self.missing == Some((incarnation, digest)) {
            self.missing = None;
        }
        self.pending.push_back(Ingest::Table { node: self.node, incarnation, digest, table });
        Ok(())
    }

    async fn records(&mut self, records: v1::Records) -> Result<(), Status> {
        if self.missing.is_some() {
            return Ok(());
        }
        let mut taken = Vec::with_capacity(records.records.len());
        for wire in records.records {
            let incarnation = Incarnation(wire.incarnation);
            let (seq, crc) = (wire.seq, wire.crc);
            let bytes = prost::Message::encoded_len(&wire);
            if seq == 0 || seq > SEQ_MAX {
                // Without a seq it can be neither stored nor named nor acknowledged.
                tracing::warn!(node = %self.node, seq, "record without a usable seq left out");
                continue;
            }
            let tables = &self.tables;
            let find = |digest| tables.get(&(incarnation, digest)).map(Arc::as_ref);
            let (mono, wall) = (Micros(wire.mono_us), Micros(wire.wall_us));
            let read = record_from_wire(wire, find);
            let rejected = self.why_rejected(incarnation, bytes, &read);
            let read = match rejected {
                Some(reason) => {
                    let body = Body::Rejected { reason };
                    Ok(Record { incarnation, seq, mono, wall, body })
                },
                None => read,
            };
            match read {
                Ok(record) => {
                    let offset = self.offset_of(&record);
                    self.unacked.push_back((incarnation, seq, bytes));
                    self.unacked_bytes += bytes;
                    taken.push((record, crc, offset));
                },
                Err(WireError::TableUnknown(digest)) => {
                    // This and everything after it on the stream comes again with its table.
                    let unknown = v1::TableUnknown { incarnation: incarnation.0, digest: digest.0 };
                    self.missing = Some((incarnation, digest));
                    self.say(ToWire::TableUnknown(unknown)).await?;
                    break;
                },
                // Always rejected by name above.
                Err(WireError::Malformed(_)) => {},
            }
        }
        if self.unacked.len() > 2 * UNACKED_RECORDS_MAX
            || self.unacked_bytes > 2 * UNACKED_BYTES_MAX
        {
            return Err(Status::resource_exhausted("more unacknowledged records than agreed"));
        }
        if !taken.is_empty() {
            let batch = RecordBatch { stream: self.id, node: self.node, records: taken };
            self.pending.push_back(Ingest::Records(batch));
        }
        Ok(())
    }

    /// Content never ends a stream: what cannot be taken is named by its seq and acknowledged.
    fn why_rejected(
        &self,
        incarnation: Incarnation,
        bytes: usize,
        read: &Result<Record, WireError>,
    ) -> Option<String> {
        if bytes > RECORD_BYTES_MAX {
            return Some(format!("{bytes} bytes are more than a record may have"));
        }
        match read {
            Err(WireError::TableUnknown(digest))
                if self.refused.contains(&(incarnation, *digest)) =>
            {
                Some("its table is not understood by this host".to_owned())
            },
            Err(WireError::Malformed(reason)) => Some(clip(reason)),
            Ok(_) | Err(WireError::TableUnknown(_)) => None,
        }
    }

    fn offset_of(&self, record: &Record) -> ClockOffset {
        let same_boot = self
            .boots
            .get(&record.incarnation)
            .is_none_or(|boot| boot.is_empty() || *boot == self.boot_id);
        if same_boot {
            ClockOffset::Measured(self.clock.offset)
        } else {
            ClockOffset::Wall(self.clock.wall_offset)
        }
    }

    fn echo(&mut self, echo: &v1::TimeEcho) {
        let Some((id, sent)) = self.probe.take() else { return };
        if id != echo.id {
            return;
        }
        let fresh = clock_of(&self.handle, sent, echo);
        // A probe that took long says little: the old offset is better until it is clearly wrong.
        let moved = (fresh.offset - self.clock.offset).0.abs();
        if fresh.error <= self.clock.error || moved > fresh.error.0 {
            self.clock = fresh;
        }
        self.pending.push_back(Ingest::Clock { node: self.node, clock: self.clock });
    }
}
