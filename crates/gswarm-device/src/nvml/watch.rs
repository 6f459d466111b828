//! The thread that waits for faults which the driver reports by itself.

use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::Duration;

use gswarm_driver::{DriverEventKind, EventSet, Nvml, NvmlError};
use gswarm_types::{DeviceId, Event, EventKind, Severity};

use super::thread::{Closed, Message, Outbox, Stop};

/// How long one wait in the driver lasts; a stop is noticed after at most this.
const WAIT: Duration = Duration::from_millis(500);
/// After a failed wait, which a lost GPU causes at once and over and over.
const PAUSE: Duration = Duration::from_secs(1);

/// XIDs that a faulty program causes by itself; the GPU is fine.
const PROGRAM_XIDS: [u64; 4] = [13, 31, 43, 45];

/// The ones operators meet, in words.
const XID_WORDS: [(u64, &str); 14] = [
    (13, "graphics engine exception, usually a faulty program"),
    (31, "memory page fault, usually a faulty program"),
    (43, "the program's channel stopped"),
    (45, "the program's work was cancelled after an earlier error"),
    (48, "double bit memory error"),
    (62, "internal micro-controller halt"),
    (63, "row remapping recorded"),
    (64, "row remapping failed"),
    (74, "NVLink error"),
    (79, "the GPU has fallen off the bus"),
    (92, "high rate of corrected memory errors"),
    (94, "contained memory error"),
    (95, "uncontained memory error"),
    (119, "the GPU's system processor does not answer"),
];

/// What the thread works with.
#[derive(Debug)]
pub(super) struct WatchThread {
    pub(super) nvml: Nvml,
    /// One for each GPU, in the driver's order.
    pub(super) outboxes: Vec<Outbox>,
    pub(super) stop: Arc<Stop>,
}

impl WatchThread {
    /// Registers every GPU, then reports until told to stop.
    pub(super) fn run(self) {
        // An error is a driver without events: all there is to say is that nothing is watched.
        let mut set = EventSet::new(&self.nvml).ok();
        let mut any = false;
        for (index, outbox) in (0_u32..).zip(&self.outboxes) {
            let device = self.nvml.device(index);
            let watched = set
                .as_mut()
                .is_some_and(|set| device.and_then(|device| set.register(&device, false)).is_ok());
            any |= watched;
            if outbox.send(Message::Watched(watched)).is_err() {
                return;
            }
        }
        if let Some(set) = set.filter(|_| any) {
            self.report(set);
        }
    }

    fn report(&self, mut set: EventSet) {
        let mut dropped = vec![0; self.outboxes.len()];
        while !self.stop.is_stopped() {
            match set.wait(WAIT) {
                Ok(event) => {
                    let index = event.index.and_then(|index| usize::try_from(index).ok());
                    let (Some(gpu), DriverEventKind::Xid(xid)) = (index, event.kind) else {
                        continue;
                    };
                    if self.pass_on(gpu, xid, &mut dropped).is_err() {
                        return;
                    }
                },
                Err(NvmlError::Timeout) => {},
                Err(_) => self.stop.wait(PAUSE),
            }
        }
    }

    /// A storm of faults does not block: what finds no room is counted and told with the next.
    fn pass_on(&self, gpu: usize, xid: u64, dropped: &mut [u64]) -> Result<(), Closed> {
        let (Some(outbox), Some(dropped)) = (self.outboxes.get(gpu), dropped.get_mut(gpu)) else {
            return Ok(());
        };
        if *dropped > 0 {
            match outbox.messages.try_send((gpu, Message::XidsDropped(*dropped))) {
                Ok(()) => *dropped = 0,
                Err(TrySendError::Full(_)) => {},
                Err(TrySendError::Disconnected(_)) => return Err(Closed),
            }
        }
        match outbox.messages.try_send((gpu, Message::Xid(xid))) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => {
                *dropped += 1;
                Ok(())
            },
            Err(TrySendError::Disconnected(_)) => Err(Closed),
        }
    }
}

/// The event of one XID.
pub(super) fn event(device: DeviceId, xid: u64) -> Event {
    let words = XID_WORDS.iter().find(|(number, _)| *number == xid);
    let severity = if PROGRAM_XIDS.contains(&xid) { Severity::Warning } else { Severity::Error };
    Event {
        kind: EventKind::Xid,
        severity,
        device: Some(device),
        code: i64::try_from(xid).ok(),
        message: match words {
            Some((_, words)) => format!("XID {xid}: {words}"),
            None => format!("XID {xid}"),
        },
    }
}
