//! From a data directory to a running recorder.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gswarm_core::{Health, Intake, NameBook, SessionBook};
use gswarm_store::Disk;
use gswarm_store::catalog::SegmentMeta;
use gswarm_store::entry::{Entry, StoredRecord};
use gswarm_store::journal::{Journal, JournalConfig, OpenError, Recovered, Unsaved};
use gswarm_store::reader::Reader;
use gswarm_store::session_file::{self, SessionFiles};
use gswarm_types::{EventKind, Micros, NodeId, Period, Record, SessionSpec, Severity, StorageId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::damage::Fault;
use super::expiry_file::Expiry;
use super::node::Node;
use super::{
    Batch, CALL_QUEUE_MAX, Counters, EVENTS_MAX, INGEST_QUEUE_MAX, Recorder, expiry_file, node_file,
};
use crate::HostParts;
use crate::access::Access;
use crate::clock::HostTime;
use crate::config::HostConfig;
use crate::export_job;
use crate::handle::Handle;
use crate::kind_file;
use crate::live::{Live, LiveEvent};

/// Segments that are read for events of before the start.
const EVENT_SEGMENTS_MAX: usize = 3;
/// Estimated bytes of an entry that is written again.
const UNSAVED_BYTES: usize = 1_024;

/// Why a host cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Journal(#[from] OpenError),
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` holds {holds} devices: use another data directory, or start the host {how}")]
    Kind { path: PathBuf, holds: &'static str, how: &'static str },
    #[error("recovery ended badly")]
    Panicked,
}

/// What is read before anything starts.
struct Found {
    recovered: Recovered,
    sessions: Vec<SessionSpec>,
    rebuilt: usize,
    unreadable: Vec<PathBuf>,
    names: NameBook,
    expiry: Expiry,
    events: Vec<(Micros, Option<NodeId>, gswarm_types::Event)>,
}

pub(crate) async fn start(
    config: HostConfig,
    parts: HostParts,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> Result<Handle, StartError> {
    let mut random = StdRng::seed_from_u64(parts.seed);
    let new_storage = StorageId::new(uuid::Builder::from_random_bytes(random.random()).into_uuid());
    let disk = parts.disk.clone();
    let for_reading = config.clone();
    let found = tokio::task::spawn_blocking(move || find(&disk, &for_reading, new_storage))
        .await
        .map_err(|_| StartError::Panicked)??;
    let parts_clock = parts.clock.clone();
    let time = HostTime::new(parts.clock, found.recovered.last_receipt);
    let access = Access::open(
        config.access.clone(),
        parts.authority,
        parts_clock,
        parts.disk.clone(),
        &config.data_dir,
    )
    .map_err(|source| StartError::Read { path: config.data_dir.clone(), source })?;
    let live = Live::new();
    let (ingest_sender, ingest) = mpsc::channel(INGEST_QUEUE_MAX);
    let (call_sender, calls) = mpsc::channel(CALL_QUEUE_MAX);
    let (stop_wish, stop_wished) = watch::channel(false);
    let missing = found.recovered.missing.clone();
    let mut recorder = assemble(config, parts.disk, time.clone(), live.clone(), found, random);
    recorder.tasks = tasks.clone();
    recorder.calls = call_sender.downgrade();
    recorder.stop_wish = stop_wish;
    recorder.give_back = parts.give_back;
    let handle = Handle::new(crate::handle::Inner {
        calls: call_sender,
        ingest: ingest_sender,
        reader: recorder.reader.clone(),
        time,
        live,
        stop_wished,
        give_back: parts.give_back,
        stop: stop.clone(),
        tasks: tasks.clone(),
        version: recorder.config.version.clone(),
        simulated: recorder.config.simulated,
        access: Arc::new(access),
    });
    recorder.look_for_missing(missing);
    recorder.resume_exports();
    tasks.spawn(recorder.run(ingest, calls, stop));
    Ok(handle)
}

fn find(
    disk: &Arc<dyn Disk>,
    config: &HostConfig,
    new_storage: StorageId,
) -> Result<Found, StartError> {
    let read_error = |path: PathBuf| move |source| StartError::Read { path, source };
    check_kind(disk.as_ref(), config)?;
    let sessions_dir = config.data_dir.join("sessions");
    let recovered = Journal::open(
        disk.clone(),
        JournalConfig {
            dir: config.data_dir.join("journal"),
            disk_reserve_bytes: config.disk_reserve_bytes,
            segments: config.segments,
            new_storage,
        },
    )?;
    let files = session_file::read_all(disk.as_ref(), &sessions_dir)
        .map_err(read_error(sessions_dir.clone()))?;
    let names = node_file::read(disk.as_ref(), &config.data_dir)
        .map_err(read_error(config.data_dir.join("nodes.json")))?;
    remove_scratch(disk.as_ref(), config);
    let reader =
        Reader::new(disk.clone(), recovered.journal.dir(), recovered.journal.catalog().clone());
    let events = recent_events(&reader);
    let (sessions, rebuilt, unreadable) = merge(files, &recovered);
    remove_half_written(disk.as_ref(), config, &sessions);
    let expiry = expiry_file::read(disk.as_ref(), &config.data_dir)
        .map_err(read_error(expiry_file::path(&config.data_dir)))?;
    Ok(Found { recovered, sessions, rebuilt, unreadable, names, expiry, events })
}

/// Real and simulated recordings never share a directory.
fn check_kind(disk: &dyn Disk, config: &HostConfig) -> Result<(), StartError> {
    let path = config.data_dir.clone();
    let read_error = |source| StartError::Read { path: path.clone(), source };
    disk.create_dir_all(&config.data_dir).map_err(read_error)?;
    match kind_file::is_simulated_data(disk, &config.data_dir).map_err(read_error)? {
        Some(simulated) if simulated == config.simulated => Ok(()),
        Some(true) => Err(StartError::Kind { path, holds: "simulated", how: "with `--sim`" }),
        Some(false) => Err(StartError::Kind { path, holds: "real", how: "without `--sim`" }),
        None => kind_file::write(disk, &config.data_dir, config.simulated).map_err(read_error),
    }
}

/// Files are the truth; a session whose file cannot be read is rebuilt from the journal.
fn merge(files: SessionFiles, recovered: &Recovered) -> (Vec<SessionSpec>, usize, Vec<PathBuf>) {
    let mut sessions = files.sessions;
    let mut rebuilt = 0;
    let mut unreadable = Vec::new();
    for path in &files.unreadable {
        let id = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(spec) = id.and_then(|id| recovered.sessions.get(&id)) {
            tracing::warn!(path = %path.display(), "session file unreadable, rebuilt");
            sessions.push(spec.clone());
            rebuilt += 1;
        } else {
            tracing::error!(path = %path.display(), "session file unreadable");
            unreadable.push(path.clone());
        }
    }
    (sessions, rebuilt, unreadable)
}

/// Runs of external sorts that a crash left behind.
fn remove_scratch(disk: &dyn Disk, config: &HostConfig) {
    let dir = config.data_dir.join("tmp");
    for name in disk.list(&dir).unwrap_or_default() {
        if name.ends_with(".run")
            && let Err(error) = disk.remove(&dir.join(&name))
        {
            tracing::warn!(%name, %error, "left-over file not removed");
        }
    }
}

/// Session files that a crash left half written. One whose session is complete is written no more.
fn remove_half_written(disk: &dyn Disk, config: &HostConfig, sessions: &[SessionSpec]) {
    for name in disk.list(&config.output_dir).unwrap_or_default() {
        let id = export_job::session_of_temporary(&name);
        if id.is_some_and(|id| sessions.iter().any(|spec| spec.id == id))
            && let Err(error) = disk.remove(&config.output_dir.join(&name))
        {
            tracing::warn!(%name, %error, "left-over file not removed");
        }
    }
}

fn recent_events(reader: &Reader) -> Vec<(Micros, Option<NodeId>, gswarm_types::Event)> {
    let newest: Vec<u64> = {
        let segments = reader.catalog().segments();
        let skip = segments.len().saturating_sub(EVENT_SEGMENTS_MAX);
        segments.iter().skip(skip).map(|meta| meta.number).collect()
    };
    let mut events = Vec::new();
    for lease in reader.catalog().lease(|meta| newest.contains(&meta.number)) {
        let read = reader.visit(lease.meta(), &mut |entry| match entry {
            Entry::HostEvent(host) => events.push((host.time, host.node, host.event)),
            Entry::Record(record) => {
                if let gswarm_types::Body::Event(event) = record.body {
                    events.push((record.time, Some(record.node), event));
                }
            },
            _ => {},
        });
        if let Err(error) = read {
            tracing::warn!(segment = lease.meta().number, %error, "events not read");
        }
    }
    let skip = events.len().saturating_sub(EVENTS_MAX);
    events.split_off(skip)
}

/// Nodes that were here before, as far as the journal knows them.
fn known_nodes(names: &NameBook, intake: &Intake, period: Period) -> HashMap<NodeId, Node> {
    let mut nodes = HashMap::new();
    for (name, id) in names.iter() {
        let mut node = Node::new(id, name.clone(), period);
        let sources = intake.sources_of(id);
        node.last_seen =
            sources.filter_map(|(_, source)| Some(source.stored().last()?.last_time)).max();
        nodes.entry(id).or_insert(node);
    }
    nodes
}

fn assemble(
    config: HostConfig,
    disk: Arc<dyn Disk>,
    time: HostTime,
    live: Live,
    found: Found,
    random: StdRng,
) -> Recorder {
    let Found { mut recovered, sessions, rebuilt, unreadable, names, expiry, events } = found;
    let unsaved = std::mem::take(&mut recovered.unsaved);
    let settings = config.settings;
    let nodes = known_nodes(&names, &recovered.intake, settings.base_period);
    let mut book = SessionBook::default();
    for spec in sessions {
        book.restore(spec);
    }
    let reader =
        Reader::new(disk.clone(), recovered.journal.dir(), recovered.journal.catalog().clone());
    let mut recorder = Recorder {
        settings,
        disk,
        started: time.now(),
        time,
        live,
        reader,
        storage: recovered.journal.storage(),
        journal: Some(recovered.journal),
        commit: None,
        retry_at: None,
        batch: Batch::default(),
        parked: VecDeque::new(),
        refused: None,
        trouble: None,
        intake: recovered.intake,
        book,
        health: Health::default(),
        names,
        nodes,
        stopping: HashMap::new(),
        events: VecDeque::new(),
        counters: Counters::default(),
        quarantined: 0,
        over_budget: false,
        unreadable_sessions: unreadable,
        surveys: HashMap::new(),
        chore: None,
        grew: false,
        scrubbed: 0,
        expiry,
        random,
        next_flush: 0,
        tasks: TaskTracker::new(),
        calls: mpsc::channel(1).0.downgrade(),
        give_back: || {},
        upkeep: None,
        ticks: 0,
        stop_wish: watch::channel(false).0,
        config,
    };
    for (time, node, event) in events {
        let node = node.map(|id| recorder.node_name(id));
        recorder.events.push_back(LiveEvent { time, node, event });
    }
    recorder.damaged(&recovered.damage);
    recorder.mention_unreadable_sessions();
    recorder.hold_unsaved(unsaved);
    if recovered.torn_bytes > 0 || recovered.lines_rewritten > 0 || rebuilt > 0 {
        tracing::info!(
            torn_bytes = recovered.torn_bytes,
            lines_rewritten = recovered.lines_rewritten,
            sessions_rebuilt = rebuilt,
            "recovered"
        );
    }
    recorder
}

impl Recorder {
    fn mention_unreadable_sessions(&mut self) {
        for path in self.unreadable_sessions.clone() {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let message = format!(
                "session file `{file}` cannot be read: nothing is removed while there is room, for \
                 nobody knows what it keeps"
            );
            self.event(None, EventKind::StoreDamaged, Severity::Error, message);
        }
    }

    /// What recovery could not make safe on a full disk is the first batch.
    fn hold_unsaved(&mut self, unsaved: Unsaved) {
        if unsaved.entries.is_empty() {
            return;
        }
        let mut batch = Batch::default();
        for (key, table) in unsaved.tables {
            batch.tables.insert(key, Arc::new(table));
        }
        for entry in unsaved.entries {
            if let Entry::Record(stored) = &entry {
                let StoredRecord { node, time, crc, incarnation, seq, mono, wall, body, .. } =
                    stored.clone();
                let record = Record { incarnation, seq, mono, wall, body };
                self.intake.admit_again(node, &record, crc, time);
            }
            batch.push(entry, UNSAVED_BYTES);
        }
        self.trouble = Some("the disk is full".to_owned());
        self.refused = Some(batch);
        self.retry_at = Some(Instant::now());
    }

    /// Segments that are gone although retention did not take them.
    fn look_for_missing(&mut self, missing: Vec<SegmentMeta>) {
        for meta in missing {
            if meta.records > 0 && !self.expiry.took(meta.number, meta.last_time) {
                self.survey(&meta, Fault::Missing);
            }
        }
    }
}
