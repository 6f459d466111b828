//! Where the slow thread of one GPU leaves its values, and the tick picks them up.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use gswarm_types::{Micros, ProcessRow};

use super::link::Link;
use super::reading::Key;
use super::thread::lock;

/// A value is shown until this many of its intervals have passed without a new one.
const INTERVALS_MAX: i64 = 3;

/// Which slow values a GPU gives.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SlowProfile {
    pub(super) keys: Vec<Key>,
    /// Links that exist and were up when they were looked for.
    pub(super) links: Vec<Link>,
    /// Speed of one link, one direction.
    pub(super) link_bytes_per_second: Option<u64>,
    /// Peak of the device memory.
    pub(super) memory_bytes_per_second: Option<f64>,
}

/// The values of one GPU as the tick sees them.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) profile: Arc<SlowProfile>,
    /// One for each key of the profile; `None` when not read or too old.
    pub(super) cells: Vec<Option<f64>>,
    /// Processes, unless the list is too old.
    pub(super) processes: Option<Arc<[ProcessRow]>>,
}

impl Snapshot {
    /// The value of one key.
    pub(super) fn value(&self, key: Key) -> Option<f64> {
        let position = self.profile.keys.iter().position(|other| *other == key)?;
        self.cells.get(position).copied().flatten()
    }

    /// The links that are up.
    pub(super) fn links_up(&self) -> Vec<&Link> {
        let is_up =
            |link: &&Link| self.value(Key::link("link_up", link.number)).is_some_and(|up| up > 0.0);
        self.profile.links.iter().filter(is_up).collect()
    }
}

/// One cell and when it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) value: Option<f64>,
    /// `None` before the first tick, when the time is not known yet.
    pub(super) at: Option<Micros>,
    pub(super) every: Micros,
}

/// Shared between one slow thread and the owner; locked only to copy.
#[derive(Debug, Default)]
pub(super) struct Board {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The node's time at the last tick, and when that was on our own clock.
    clock: Option<(Micros, Instant)>,
    due: Option<Micros>,
    stopped: bool,
    /// Whether GPM gives traffic in every tick; `None` until the GPU has answered once.
    has_gpm: Option<bool>,
    profile: Arc<SlowProfile>,
    cells: Vec<Cell>,
    processes: Option<Processes>,
}

#[derive(Debug)]
struct Processes {
    rows: Arc<[ProcessRow]>,
    at: Option<Micros>,
    every: Micros,
}

impl State {
    /// Dates what was read before the first tick.
    fn stamp(&mut self, now: Micros) {
        let processes = self.processes.iter_mut().map(|processes| &mut processes.at);
        for at in self.cells.iter_mut().map(|cell| &mut cell.at).chain(processes) {
            at.get_or_insert(now);
        }
    }
}

impl Board {
    /// Tells the time and takes the values. Wakes the thread if something is due, which matters
    /// only when the time jumped: otherwise it wakes by itself.
    pub(super) fn tick(&self, now: Micros) -> Snapshot {
        let mut state = lock(&self.state);
        let first = state.clock.replace((now, Instant::now())).is_none();
        if first {
            state.stamp(now);
        }
        if first || state.due.is_some_and(|due| due <= now) {
            self.wake.notify_all();
        }
        let is_fresh = |at: Option<Micros>, every: Micros| {
            at.is_none_or(|at| now - at <= Micros(every.0.saturating_mul(INTERVALS_MAX)))
        };
        let cells =
            state.cells.iter().map(|cell| cell.value.filter(|_| is_fresh(cell.at, cell.every)));
        let processes = state.processes.as_ref().filter(|list| is_fresh(list.at, list.every));
        Snapshot {
            profile: Arc::clone(&state.profile),
            cells: cells.collect(),
            processes: processes.map(|list| Arc::clone(&list.rows)),
        }
    }

    /// Replaces everything, for values that were read before the first tick or under new keys.
    pub(super) fn reset(&self, profile: Arc<SlowProfile>, cells: Vec<Cell>) {
        debug_assert_eq!(profile.keys.len(), cells.len(), "one cell for each key");
        let mut state = lock(&self.state);
        state.profile = profile;
        state.cells = cells;
    }

    /// Leaves some values, from this position on.
    pub(super) fn put(&self, position: usize, at: Micros, values: &[Option<f64>]) {
        let mut state = lock(&self.state);
        for (cell, value) in state.cells.iter_mut().skip(position).zip(values) {
            cell.value = *value;
            cell.at = Some(at);
        }
    }

    /// Leaves the list of processes.
    pub(super) fn put_processes(&self, at: Option<Micros>, every: Micros, rows: Vec<ProcessRow>) {
        lock(&self.state).processes = Some(Processes { rows: Arc::from(rows), at, every });
    }

    /// Says whether GPM gives traffic in every tick, which the slow thread waits for: it must not
    /// try by itself, since GPM does not bear two threads.
    pub(super) fn set_gpm(&self, has_gpm: bool) {
        lock(&self.state).has_gpm = Some(has_gpm);
        self.wake.notify_all();
    }

    /// Waits for that; `None` to stop.
    pub(super) fn wait_for_gpm(&self) -> Option<bool> {
        let state = lock(&self.state);
        let waiting = |state: &mut State| state.has_gpm.is_none() && !state.stopped;
        let waited = self.wake.wait_while(state, waiting);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stopped { None } else { state.has_gpm }
    }

    /// Waits until this time, or for the first tick; gives the time it is, or `None` to stop.
    pub(super) fn wait_until(&self, due: Option<Micros>) -> Option<Micros> {
        let due = due.unwrap_or(Micros(i64::MIN));
        let mut state = lock(&self.state);
        state.due = Some(due);
        loop {
            if state.stopped {
                return None;
            }
            let now = state.clock.map(|(now, at)| now + Micros::from(at.elapsed()));
            match now {
                Some(now) if now >= due => {
                    state.due = None;
                    return Some(now);
                },
                Some(now) => {
                    let timeout = (due - now).to_duration();
                    state = match self.wake.wait_timeout(state, timeout) {
                        Ok((state, _)) => state,
                        Err(poisoned) => poisoned.into_inner().0,
                    };
                },
                None => {
                    state = match self.wake.wait(state) {
                        Ok(state) => state,
                        Err(poisoned) => poisoned.into_inner(),
                    };
                },
            }
        }
    }

    /// Ends the thread once it waits.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.wake.notify_all();
    }
}
