//! What the threads of all GPUs share: the way to the owner, the time spent, and the end.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use gswarm_types::Micros;

use super::fast::Profile;

/// The owner is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

/// What the threads have to say.
#[derive(Debug)]
pub(super) enum Message {
    /// Comes before the first row that has these keys.
    Profile(Box<Profile>),
    Row {
        seq: u64,
        /// One for each key of the last profile.
        cells: Vec<Option<f64>>,
    },
    Lost {
        seq: u64,
    },
    /// Rows cost more than they may, this one so much: they are read less often.
    OverBudget {
        row: Micros,
    },
    /// The slow values were tried out; they are on the board.
    SlowReady,
    /// Whether faults of this GPU are reported.
    Watched(bool),
    /// A fault with this XID number.
    Xid(u64),
    /// This many faults were dropped because nobody fetched them.
    XidsDropped(u64),
}

/// The way from one GPU's threads to the owner. It has room for all that can be under way, so a
/// thread waits only for an owner that has stopped sampling.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    pub(super) gpu: usize,
    pub(super) messages: SyncSender<(usize, Message)>,
}

impl Outbox {
    pub(super) fn send(&self, message: Message) -> Result<(), Closed> {
        self.messages.send((self.gpu, message)).map_err(|_| Closed)
    }
}

/// Time spent in driver calls by all threads.
#[derive(Debug, Default)]
pub(super) struct DriverTime(AtomicU64);

impl DriverTime {
    pub(super) fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> Micros {
        Micros::from(Duration::from_nanos(self.0.load(Ordering::Relaxed)))
    }
}

/// Tells a thread that waits for something else to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    pub(super) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.wake.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        *lock(&self.stopped)
    }

    /// Waits for the time or the stop, whichever comes first.
    pub(super) fn wait(&self, time: Duration) {
        let guard = lock(&self.stopped);
        drop(self.wake.wait_timeout_while(guard, time, |stopped| !*stopped));
    }
}

/// The threads, so that whoever started them also sees them end.
#[derive(Debug)]
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// Every thread holds a clone; nothing is ever sent.
    alive: Option<SyncSender<()>>,
    ended: Receiver<()>,
}

impl Threads {
    pub(super) fn new() -> Self {
        let (alive, ended) = sync_channel(0);
        Self { handles: Vec::new(), alive: Some(alive), ended }
    }

    pub(super) fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let alive = self.alive.clone();
        let handle = Builder::new().name(name).spawn(move || {
            run();
            drop(alive);
        })?;
        self.handles.push(handle);
        Ok(())
    }

    /// Waits for all threads to end. One that hangs in the driver cannot be ended: it is left
    /// behind, keeps the library loaded, and ends by itself if the call ever returns. False then.
    pub(super) fn join(&mut self, timeout: Duration) -> bool {
        drop(self.alive.take());
        let all_ended = self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
        for handle in self.handles.drain(..) {
            if (all_ended || handle.is_finished()) && handle.join().is_err() {
                tracing::warn!("a thread that read a GPU panicked");
            }
        }
        all_ended
    }
}

/// A panic elsewhere does not make the numbers behind a lock wrong.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
