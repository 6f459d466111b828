//! One spool for sampler and link: short turns on blocking threads, snapshots for everyone else.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use gswarm_types::Incarnation;
use tokio::sync::watch;

use super::index::HeldRange;
use super::{Counters, Spool};
use crate::status::AgentStatus;

/// Where the spool stands, without asking the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpoolView {
    pub(crate) incarnation: Incarnation,
    /// The last seq minted in the running incarnation; 0 before the first.
    pub(crate) last_seq: u64,
    /// The ordinal that the next record gets.
    pub(crate) next_ordinal: u64,
    pub(crate) records: usize,
    pub(crate) bytes: u64,
    pub(crate) counters: Counters,
    pub(crate) held: Vec<HeldRange>,
}

/// The blocking thread of a turn ended without an answer: it panicked, or the runtime is over.
#[derive(Debug, thiserror::Error)]
#[error("a turn at the spool did not end")]
pub(crate) struct TurnLost;

/// A lock is held only while a blocking thread works on the spool, never across an `await`.
/// Heartbeats read the view, so that a slow disk does not silence the node.
#[derive(Debug, Clone)]
pub(crate) struct SharedSpool {
    spool: Arc<Mutex<Spool>>,
    view: Arc<watch::Sender<SpoolView>>,
    status: Arc<watch::Sender<AgentStatus>>,
}

impl SharedSpool {
    pub(crate) fn new(spool: Spool, status: Arc<watch::Sender<AgentStatus>>) -> Self {
        let view = watch::Sender::new(spool.view());
        Self { spool: Arc::new(Mutex::new(spool)), view: Arc::new(view), status }
    }

    pub(crate) fn view(&self) -> watch::Receiver<SpoolView> {
        self.view.subscribe()
    }

    /// A turn on this thread, which must be one that may block.
    pub(crate) fn turn<T>(&self, act: impl FnOnce(&mut Spool) -> T) -> T {
        let mut spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = act(&mut spool);
        self.publish(spool.view());
        answer
    }

    /// A turn that asks no disk, on any thread; `None` while somebody else has one.
    pub(crate) fn quick_turn<T>(&self, act: impl FnOnce(&mut Spool) -> T) -> Option<T> {
        let mut spool = match self.spool.try_lock() {
            Ok(spool) => spool,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let answer = act(&mut spool);
        self.publish(spool.view());
        Some(answer)
    }

    /// A turn on a blocking thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Spool) -> T + Send + 'static,
    ) -> Result<T, TurnLost> {
        let shared = self.clone();
        tokio::task::spawn_blocking(move || shared.turn(act)).await.map_err(|_| TurnLost)
    }

    fn publish(&self, view: SpoolView) {
        self.status.send_if_modified(|status| {
            let key = |status: &AgentStatus| {
                let AgentStatus { incarnation, records_sampled, records_acked, .. } = *status;
                (incarnation, records_sampled, records_acked, status.spool_records)
            };
            let before = key(status);
            status.incarnation = view.incarnation;
            status.records_sampled = view.counters.minted;
            status.records_acked = view.counters.acked;
            status.spool_records = view.records;
            status.spool_bytes = view.bytes;
            status.spool_dropped = view.counters.dropped;
            status.spool_errors = view.counters.errors;
            before != key(status)
        });
        self.view.send_if_modified(|old| {
            let changed = *old != view;
            *old = view;
            changed
        });
    }
}
