//! Samples the devices on the grid of the monotonic clock and writes what they say.

mod own_columns;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gswarm_device::{Devices, Sample};
use gswarm_types::{
    Body, Cells, Clock, Event, EventKind, Micros, PeerLink, Period, Severity, Table, Values,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::own_columns::{OWN_COLUMNS, OwnColumns, OwnValues};
use crate::spool::{AppendError, SharedSpool, Times};
use crate::status::AgentStatus;

/// Columns in one table, as hosts take it.
const COLUMNS_MAX: usize = 65_536;
/// The topology is recorded again after this long.
const TOPOLOGY_AGAIN: Micros = Micros::from_secs(600);
/// Devices in one table, as hosts take it.
const DEVICES_MAX: usize = 4_096;

/// The task that samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) spool: SharedSpool,
    pub(crate) period: watch::Receiver<Period>,
    pub(crate) status: Arc<watch::Sender<AgentStatus>>,
    /// When the tick began that is not in the spool yet.
    ticking: watch::Sender<Option<Micros>>,
    worker: Worker,
}

/// What moves onto the blocking thread for a tick and comes back.
#[derive(Debug)]
struct Worker {
    devices: Box<dyn Devices>,
    own: OwnColumns,
    topology: Topology,
}

/// How the devices reach each other, recorded when it changes and again from time to time: a
/// recording may begin anywhere.
#[derive(Debug, Default)]
struct Topology {
    links: Option<Vec<PeerLink>>,
    written: Option<Micros>,
}

impl Topology {
    /// What to record now.
    fn due(&mut self, fresh: Option<Vec<PeerLink>>, now: Micros) -> Option<Vec<PeerLink>> {
        let is_fresh = fresh.is_some();
        self.links = fresh.or_else(|| self.links.take());
        let is_old = self.written.is_none_or(|written| now - written >= TOPOLOGY_AGAIN);
        let links =
            self.links.as_ref().filter(|links| is_fresh || (is_old && !links.is_empty()))?;
        self.written = Some(now);
        Some(links.clone())
    }
}

/// What one tick did, where something went wrong.
#[derive(Debug, Default)]
struct Outcome {
    error: Option<String>,
}

impl Sampler {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        spool: SharedSpool,
        period: watch::Receiver<Period>,
        status: Arc<watch::Sender<AgentStatus>>,
        ticking: watch::Sender<Option<Micros>>,
        devices: (Box<dyn Devices>, bool),
    ) -> Self {
        let (devices, simulated) = devices;
        let worker =
            Worker { devices, own: OwnColumns::new(simulated), topology: Topology::default() };
        Self { clock, spool, period, status, ticking, worker }
    }

    /// Samples until told to stop; a tick that has begun is finished.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut last_due = None;
        loop {
            let period = *self.period.borrow_and_update();
            let due = next_on_grid(self.clock.mono(), period);
            self.count_skipped(last_due, due, period);
            last_due = None;
            let is_due = tokio::select! {
                () = stop.cancelled() => return,
                changed = self.period.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    false
                },
                () = wait_until(self.clock.as_ref(), due) => true,
            };
            if is_due {
                let Some(again) = self.tick().await else { return };
                self = again;
                last_due = Some(due);
            }
        }
    }

    fn count_skipped(&self, last_due: Option<Micros>, due: Micros, period: Period) {
        let Some(last) = last_due else { return };
        let skipped = ((due - last).0 / period.micros().0).saturating_sub(1);
        if skipped > 0 {
            tracing::debug!(skipped, "ticks skipped: the devices took too long");
            let skipped = u64::try_from(skipped).unwrap_or(0);
            self.status.send_modify(|status| status.ticks_skipped += skipped);
        }
    }

    /// One row on a blocking thread. `None` when the thread was lost, and the devices with it.
    async fn tick(self) -> Option<Self> {
        let Self { clock, spool, period, status, ticking, worker } = self;
        let mut at = Times { mono: clock.mono(), wall: clock.wall() };
        // Stamped under the lock: whoever sees no tick sees every record of before that moment.
        ticking.send_modify(|ticking| {
            at = Times { mono: clock.mono(), wall: clock.wall() };
            *ticking = Some(at.mono);
        });
        let turns = spool.clone();
        let job = tokio::task::spawn_blocking(move || worker.tick(&turns, at));
        let done = job.await;
        ticking.send_replace(None);
        match done {
            Ok((worker, outcome)) => {
                if let Some(error) = outcome.error {
                    tracing::warn!(error, "tick not recorded in full");
                    status.send_modify(|status| status.last_error = Some(error));
                }
                Some(Self { clock, spool, period, status, ticking, worker })
            },
            Err(error) => {
                tracing::error!(%error, "sampling ended");
                let text = format!("sampling ended: {error}");
                status.send_modify(|status| status.last_error = Some(text));
                None
            },
        }
    }
}

impl Worker {
    fn tick(mut self, spool: &SharedSpool, at: Times) -> (Self, Outcome) {
        let devices = &mut self.devices;
        let sampled = catch_unwind(AssertUnwindSafe(|| devices.sample(at.mono)));
        let mut outcome = Outcome::default();
        match sampled {
            Ok(sample) => self.write(spool, at, sample, &mut outcome),
            Err(_) => {
                let message = "the code that reads the devices panicked".to_owned();
                let event = driver_error(message.clone());
                outcome.error = Some(message);
                spool.turn(|spool| outcome.note(spool.append(at, Body::Event(event))));
            },
        }
        (self, outcome)
    }

    fn write(&mut self, spool: &SharedSpool, at: Times, sample: Sample, outcome: &mut Outcome) {
        let driver = self.devices.driver_time();
        let checked = check(&sample);
        let (digest, table) = self.own.extend(&sample.table);
        let Sample { mut cells, events, processes, topology, .. } = sample;
        let topology = self.topology.due(topology, at.mono);
        spool.turn(|spool| {
            match checked {
                Ok(()) => {
                    let view = spool.view();
                    let own = OwnValues {
                        spool_records: view.records,
                        spool_dropped: view.counters.dropped,
                        driver,
                    };
                    cells.extend(own.cells());
                    spool.offer_table(digest, &table);
                    let values = Values { table: digest, cells: Cells::new(cells) };
                    outcome.note(spool.append(at, Body::Values(values)));
                },
                Err(reason) => {
                    let event = driver_error(reason.to_owned());
                    outcome.note(spool.append(at, Body::Event(event)));
                },
            }
            for event in events {
                outcome.note(spool.append(at, Body::Event(event)));
            }
            if let Some(rows) = processes {
                outcome.note(spool.append(at, Body::Processes(rows)));
            }
            if let Some(links) = topology {
                outcome.note(spool.append(at, Body::Topology(links)));
            }
        });
    }
}

impl Outcome {
    fn note(&mut self, appended: Result<u64, AppendError>) {
        match appended {
            // The tick began before the stop and ended after it.
            Ok(_) | Err(AppendError::Ended) => {},
            Err(error @ AppendError::Write(_)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                self.error = Some(format!("{error}: {}", cause.unwrap_or_default()));
            },
        }
    }
}

/// What hosts would not take must not reach the spool.
fn check(sample: &Sample) -> Result<(), &'static str> {
    let table: &Table = &sample.table;
    if sample.cells.len() != table.columns.len() || !table.is_consistent() {
        Err("the devices gave values that do not fit their table")
    } else if table.devices.len() >= DEVICES_MAX || table.columns.len() + OWN_COLUMNS > COLUMNS_MAX
    {
        Err("the devices are too many for one table")
    } else {
        Ok(())
    }
}

fn driver_error(message: String) -> Event {
    Event {
        kind: EventKind::DriverError,
        severity: Severity::Error,
        device: None,
        code: None,
        message,
    }
}

/// Timers and the machine's clock may differ a little: never before the grid point.
async fn wait_until(clock: &dyn Clock, due: Micros) {
    loop {
        let left = due - clock.mono();
        if left <= Micros::ZERO {
            return;
        }
        tokio::time::sleep(left.to_duration()).await;
    }
}

/// The next multiple of the period after now.
fn next_on_grid(now: Micros, period: Period) -> Micros {
    let period = period.micros().0;
    Micros((now.0.div_euclid(period).saturating_add(1)).saturating_mul(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_grid(now: i64, period_ms: i64, expected: i64) {
        let period = Period::from_millis(period_ms).unwrap();
        assert_eq!(next_on_grid(Micros(now), period), Micros(expected));
    }

    #[test]
    fn the_topology_is_told_again_from_time_to_time() {
        let link = PeerLink {
            device: 0,
            remote: Some(1),
            kind: gswarm_types::PeerKind::Nvlink,
            links: 18,
            bytes_per_second_max: None,
        };
        let mut topology = Topology::default();
        let second = Micros::from_secs;
        assert_eq!(topology.due(Some(vec![link.clone()]), second(1)), Some(vec![link.clone()]));
        assert_eq!(topology.due(None, second(2)), None);
        assert_eq!(topology.due(None, second(600)), None);
        assert_eq!(topology.due(None, second(601)), Some(vec![link]));
        assert_eq!(topology.due(Some(Vec::new()), second(602)), Some(Vec::new()), "it changed");
        assert_eq!(topology.due(None, second(2_000)), None, "nothing to tell");
    }

    #[test]
    fn ticks_lie_on_multiples_of_the_period() {
        check_grid(0, 100, 100_000);
        check_grid(99_999, 100, 100_000);
        check_grid(100_000, 100, 200_000);
        check_grid(1_234_567, 1_000, 2_000_000);
        check_grid(-1, 100, 0);
    }
}
