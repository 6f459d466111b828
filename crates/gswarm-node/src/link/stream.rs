//! One stream after its welcome: records out, acknowledgements and commands in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gswarm_types::{Clock, Incarnation, Micros, TableDigest};
use gswarm_wire::v1::agent_message::Message as FromAgent;
use gswarm_wire::v1::host_message::Message as FromHost;
use gswarm_wire::{record_to_wire, table_to_wire, v1};
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::greet::{Ends, Greeting, closed, held_to_wire};
use super::window::{Sent, Window};
use super::{Course, Ended, Link, ended_by};
use crate::allow::{self, Permitted};
use crate::spool::{Batch, BatchLimits, FlushTarget, Outgoing, SpoolView};

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// A host that says nothing for so long is taken for gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const BATCH_RECORDS_MAX: usize = 64;
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Answers waiting to be sent: a host that asks faster than it reads is left.
const ANSWERS_MAX: usize = 256;
/// How far ahead of the node's own clock the end of a flush may lie.
const FLUSH_AHEAD_MAX: Micros = Micros::from_secs(1);
/// Times that a table is sent again on one stream before the stream is given up.
const TABLE_RESENDS_MAX: u32 = 5;
/// Answers about a table that were on their way when it was sent again are let pass.
const TABLE_RESEND_QUIET: Duration = Duration::from_secs(1);

type TableKey = (Incarnation, TableDigest);

/// A table that the host asked for.
#[derive(Debug, Clone, Copy)]
struct Resend {
    due: Option<Instant>,
    count: u32,
    last: Option<Instant>,
    /// What was sent before the last time; once that is acknowledged the host knows the table.
    sent: u64,
}

/// The state of one stream.
struct Stream<'a> {
    link: &'a mut Link,
    view: watch::Receiver<SpoolView>,
    window: Window,
    /// The ordinal of the next record to send.
    cursor: u64,
    tables_sent: BTreeSet<TableKey>,
    resends: BTreeMap<TableKey, Resend>,
    /// Heartbeats and answers: before records.
    answers: VecDeque<FromAgent>,
    /// Tables and records, and what must follow them.
    outbox: VecDeque<FromAgent>,
    reading: Option<(u64, JoinHandle<Batch>)>,
    freeing: Option<JoinHandle<()>>,
    /// Acknowledged up to this ordinal, not yet freed.
    free_through: Option<u64>,
    flushes: VecDeque<(u64, FlushTarget)>,
    /// Flushes whose last record may not be in the spool yet.
    early_flushes: VecDeque<(u64, Micros)>,
    heard: Instant,
    acked: bool,
}

/// What woke the stream.
enum Wake {
    Message(Result<Option<v1::HostMessage>, tonic::Status>),
    Sent(bool),
    Read(Option<Batch>),
    Freed,
    Spool(bool),
    /// A tick began or ended, or the end of a flush has come.
    Tick(bool),
    Heartbeat,
    Silence,
    Resend,
}

impl Link {
    pub(super) async fn deliver(&mut self, ends: Ends, greeting: Greeting) -> Course {
        let now = Instant::now();
        let view = self.spool.view();
        let mut stream = Stream {
            link: self,
            view,
            window: Window::new(),
            cursor: 0,
            tables_sent: BTreeSet::new(),
            resends: BTreeMap::new(),
            answers: VecDeque::new(),
            outbox: VecDeque::new(),
            reading: None,
            freeing: None,
            free_through: None,
            flushes: VecDeque::new(),
            early_flushes: VecDeque::new(),
            heard: now,
            acked: false,
        };
        let ended = stream.run(ends, greeting).await;
        Course { acked: stream.acked, ended }
    }
}

impl Stream<'_> {
    async fn run(&mut self, ends: Ends, greeting: Greeting) -> Ended {
        let Ends { tx, mut rx } = ends;
        let mut heartbeat = interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for message in greeting.early {
            if let Err(ended) = self.take(message) {
                return ended;
            }
        }
        let mut ticking = self.link.ticking.clone();
        loop {
            let began = *ticking.borrow_and_update();
            if let Err(ended) = self.start_flushes(began).await {
                return ended;
            }
            self.answer_flushes();
            self.start_reading();
            self.start_freeing();
            let resend_at = self.resends.values().filter_map(|resend| resend.due).min();
            let wake = tokio::select! {
                message = rx.message() => Wake::Message(message),
                sent = send_next(&tx, &mut self.answers, &mut self.outbox) => Wake::Sent(sent),
                batch = read_done(&mut self.reading) => Wake::Read(batch),
                () = free_done(&mut self.freeing) => Wake::Freed,
                changed = self.view.changed() => Wake::Spool(changed.is_ok()),
                changed = ticking.changed(), if !self.early_flushes.is_empty() => {
                    Wake::Tick(changed.is_ok())
                },
                () = flush_due(self.link.clock.as_ref(), &self.early_flushes) => Wake::Tick(true),
                _ = heartbeat.tick() => Wake::Heartbeat,
                () = sleep_until(self.heard + SILENCE_MAX) => Wake::Silence,
                () = sleep_until(resend_at.unwrap_or(self.heard)), if resend_at.is_some() => Wake::Resend,
            };
            if let Err(ended) = self.handle(wake).await {
                return ended;
            }
        }
    }

    async fn handle(&mut self, wake: Wake) -> Result<(), Ended> {
        match wake {
            Wake::Message(Ok(Some(v1::HostMessage { message }))) => {
                self.heard = Instant::now();
                // A message without content is of a newer host.
                if let Some(message) = message {
                    self.take(message)?;
                }
            },
            Wake::Message(Ok(None)) | Wake::Sent(false) => return Err(closed()),
            Wake::Message(Err(status)) => return Err(ended_by(&status)),
            Wake::Sent(true) | Wake::Spool(true) | Wake::Tick(true) => {},
            // Nobody samples any more: what is in the spool is all there is.
            Wake::Tick(false) => {
                let now = self.link.clock.mono();
                for (_, until) in &mut self.early_flushes {
                    *until = (*until).min(now);
                }
                self.start_flushes(None).await?;
            },
            Wake::Spool(false) => return Err(Ended::Lost("the agent stops".to_owned())),
            Wake::Read(batch) => self.read(batch)?,
            Wake::Freed => self.freeing = None,
            Wake::Heartbeat => self.answer(self.heartbeat())?,
            Wake::Silence => {
                let seconds = SILENCE_MAX.as_secs();
                return Err(Ended::Lost(format!("the host was silent for {seconds} s")));
            },
            Wake::Resend => self.resend_tables().await?,
        }
        Ok(())
    }

    fn take(&mut self, message: FromHost) -> Result<(), Ended> {
        match message {
            FromHost::TimeProbe(probe) => {
                self.answer(FromAgent::TimeEcho(self.link.time_echo(probe.id)))
            },
            FromHost::Ping(_) => self.answer(self.heartbeat()),
            FromHost::Ack(ack) => {
                self.ack(Incarnation(ack.incarnation), ack.seq);
                Ok(())
            },
            FromHost::Credit(credit) => {
                self.window.set_credit(credit.records);
                Ok(())
            },
            FromHost::TableUnknown(unknown) => {
                self.table_unknown((Incarnation(unknown.incarnation), TableDigest(unknown.digest)));
                Ok(())
            },
            FromHost::Flush(flush) => self.flush(flush),
            FromHost::Command(command) => self.command(&command),
            // The second welcome of one stream says nothing new.
            FromHost::Welcome(_) => Ok(()),
        }
    }

    fn answer(&mut self, message: FromAgent) -> Result<(), Ended> {
        if self.answers.len() >= ANSWERS_MAX {
            return Err(Ended::Lost("the host asks faster than it reads".to_owned()));
        }
        self.answers.push_back(message);
        Ok(())
    }

    fn heartbeat(&self) -> FromAgent {
        let view = self.view.borrow();
        let held = held_to_wire(&view.held);
        FromAgent::Heartbeat(v1::Heartbeat { held, last_seq: view.last_seq })
    }

    fn ack(&mut self, incarnation: Incarnation, seq: u64) {
        let Some(through) = self.window.ack(incarnation, seq) else {
            tracing::debug!(%incarnation, seq, "acknowledgement of nothing that was sent");
            return;
        };
        self.acked = true;
        self.free_through = self.free_through.max(Some(through));
    }

    /// Frees acknowledged records, one turn at a time.
    fn start_freeing(&mut self) {
        if self.freeing.is_some() {
            return;
        }
        if let Some(through) = self.free_through.take() {
            let spool = self.link.spool.clone();
            // Waking a thread for this costs more than the work itself.
            if spool.quick_turn(|spool| spool.ack_in_memory(through)) == Some(true) {
                return;
            }
            let at = self.link.now();
            self.freeing = Some(tokio::task::spawn_blocking(move || {
                spool.turn(|spool| spool.ack_through(through, at));
            }));
        }
    }

    /// Reads the next records, when there are any and the host takes them.
    fn start_reading(&mut self) {
        let next_ordinal = self.view.borrow_and_update().next_ordinal;
        if self.reading.is_some() || !self.outbox.is_empty() || self.cursor >= next_ordinal {
            return;
        }
        let Some((records, bytes)) = self.window.room() else { return };
        let limits = BatchLimits {
            records_max: records.min(BATCH_RECORDS_MAX),
            bytes_max: bytes.min(BATCH_BYTES_MAX),
        };
        let (spool, cursor, at) = (self.link.spool.clone(), self.cursor, self.link.now());
        let fresh = spool.quick_turn(|spool| spool.fresh_batch(cursor, limits)).flatten();
        if let Some(batch) = fresh {
            self.queue(batch);
            return;
        }
        let job = tokio::task::spawn_blocking(move || {
            spool.turn(|spool| spool.read_batch(cursor, limits, at))
        });
        self.reading = Some((cursor, job));
    }

    /// A batch came from the disk.
    fn read(&mut self, batch: Option<Batch>) -> Result<(), Ended> {
        let from = self.reading.take().map(|(from, _)| from);
        let Some(batch) = batch else {
            return Err(Ended::Lost("the spool could not be read".to_owned()));
        };
        if from != Some(self.cursor) {
            // A table has to go first: read again from there.
            return Ok(());
        }
        self.queue(batch);
        Ok(())
    }

    /// Puts records behind what is being sent.
    fn queue(&mut self, batch: Batch) {
        self.cursor = batch.cursor;
        let mut records = Vec::with_capacity(batch.records.len());
        for outgoing in batch.records {
            self.send_table(&outgoing);
            let table = outgoing.table.as_ref().map(|(_, table)| table.as_ref());
            let wire = record_to_wire(&outgoing.record, outgoing.crc, table);
            self.window.push(Sent {
                ordinal: outgoing.ordinal,
                incarnation: outgoing.record.incarnation,
                seq: outgoing.record.seq,
                bytes: wire.encoded_len(),
            });
            records.push(wire);
        }
        if !records.is_empty() {
            self.outbox.push_back(FromAgent::Records(v1::Records { records }));
        }
    }

    fn send_table(&mut self, outgoing: &Outgoing) {
        let Some((digest, table)) = &outgoing.table else { return };
        let incarnation = outgoing.record.incarnation;
        if self.tables_sent.insert((incarnation, *digest)) {
            self.outbox.push_back(FromAgent::Table(table_to_wire(incarnation, table)));
        }
    }

    fn table_unknown(&mut self, key: TableKey) {
        let now = Instant::now();
        let resend = self.resends.entry(key).or_insert(Resend {
            due: None,
            count: 0,
            last: None,
            sent: u64::MAX,
        });
        let quiet_until = resend.last.map_or(now, |last| last + TABLE_RESEND_QUIET);
        resend.due.get_or_insert_with(|| quiet_until.max(now));
    }

    /// Sends tables again that the host does not know, and everything from their first use on.
    async fn resend_tables(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
        let due = |resend: &Resend| resend.due.is_some_and(|due| due <= now);
        let keys: Vec<TableKey> =
            self.resends.iter().filter(|(_, resend)| due(resend)).map(|(key, _)| *key).collect();
        for key in keys {
            let first = self.link.spool.run(move |spool| spool.first_using(key.0, key.1)).await;
            let first = first.map_err(|error| Ended::Lost(error.to_string()))?;
            let Some(resend) = self.resends.get_mut(&key) else { continue };
            resend.due = None;
            let Some(first) = first.filter(|first| *first < self.cursor.min(resend.sent)) else {
                continue;
            };
            resend.last = Some(now);
            resend.sent = self.cursor;
            resend.count += 1;
            if resend.count > TABLE_RESENDS_MAX {
                return Err(Ended::Lost(format!("the host does not take table {}", key.1)));
            }
            self.tables_sent.remove(&key);
            self.window.rewind(first);
            self.cursor = first;
        }
        Ok(())
    }

    fn flush(&mut self, flush: v1::Flush) -> Result<(), Ended> {
        if self.flushes.len() + self.early_flushes.len() >= ANSWERS_MAX {
            return Err(Ended::Lost("the host asks faster than it reads".to_owned()));
        }
        // A little ahead is an error of the measured offset; much ahead is a mistake.
        let latest = self.link.clock.mono() + FLUSH_AHEAD_MAX;
        self.early_flushes.push_back((flush.id, Micros(flush.until_mono_us).min(latest)));
        Ok(())
    }

    /// Takes up the flushes whose every record is in the spool: their end has come, and no tick
    /// that began before it still runs.
    async fn start_flushes(&mut self, ticking: Option<Micros>) -> Result<(), Ended> {
        let now = self.link.clock.mono();
        let mut early = VecDeque::new();
        for (id, until) in std::mem::take(&mut self.early_flushes) {
            if until > now || ticking.is_some_and(|began| began < until) {
                early.push_back((id, until));
                continue;
            }
            let target = self.link.spool.run(move |spool| spool.flush_target(until)).await;
            let target = target.map_err(|error| Ended::Lost(error.to_string()))?;
            self.flushes.push_back((id, target));
        }
        self.early_flushes = early;
        Ok(())
    }

    /// Answers stand behind the records they speak of.
    fn answer_flushes(&mut self) {
        let cursor = self.cursor;
        let outbox = &mut self.outbox;
        self.flushes.retain(|(id, target)| {
            let is_sent = target.cursor <= cursor;
            if is_sent {
                let FlushTarget { incarnation, seq, .. } = *target;
                let flushed = v1::Flushed { id: *id, incarnation: incarnation.0, seq };
                outbox.push_back(FromAgent::Flushed(flushed));
            }
            !is_sent
        });
    }

    fn command(&mut self, command: &v1::Command) -> Result<(), Ended> {
        let checked = allow::check(command.command.as_ref(), &self.link.introduction.allow);
        let mut result = v1::CommandResult {
            id: command.id,
            ok: true,
            error: String::new(),
            message: String::new(),
        };
        match checked {
            Ok(Permitted::SetPeriod(period)) => self.link.set_period(period),
            Err(refusal) => {
                tracing::warn!(kind = refusal.kind, reason = refusal.message, "command refused");
                self.link.status.send_modify(|status| status.commands_refused += 1);
                result.ok = false;
                refusal.kind.clone_into(&mut result.error);
                result.message = refusal.message;
            },
        }
        self.answer(FromAgent::CommandResult(result))
    }
}

/// Sends the next message, answers first; false when the stream is gone. Waits while there is
/// nothing to send.
async fn send_next(
    tx: &mpsc::Sender<v1::AgentMessage>,
    answers: &mut VecDeque<FromAgent>,
    outbox: &mut VecDeque<FromAgent>,
) -> bool {
    if answers.is_empty() && outbox.is_empty() {
        return std::future::pending().await;
    }
    let Ok(permit) = tx.reserve().await else { return false };
    if let Some(message) = answers.pop_front().or_else(|| outbox.pop_front()) {
        permit.send(v1::AgentMessage { message: Some(message) });
    }
    true
}

/// Resolves when the end of the next flush has come; never when it is over already.
async fn flush_due(clock: &dyn Clock, flushes: &VecDeque<(u64, Micros)>) {
    let now = clock.mono();
    let next = flushes.iter().map(|(_, until)| *until).filter(|until| *until > now).min();
    match next {
        Some(until) => tokio::time::sleep((until - now).to_duration()).await,
        None => std::future::pending().await,
    }
}

async fn read_done(reading: &mut Option<(u64, JoinHandle<Batch>)>) -> Option<Batch> {
    match reading {
        Some((_, job)) => job.await.ok(),
        None => std::future::pending().await,
    }
}

async fn free_done(freeing: &mut Option<JoinHandle<()>>) {
    match freeing {
        Some(job) => {
            if job.await.is_err() {
                tracing::error!("freeing acknowledged records failed");
            }
        },
        None => std::future::pending().await,
    }
}
