//! What was sent on a stream and not yet acknowledged, and how much more may be.

use std::collections::VecDeque;

use gswarm_types::Incarnation;
use gswarm_wire::{UNACKED_BYTES_MAX, UNACKED_RECORDS_MAX};

/// A record on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) ordinal: u64,
    pub(super) incarnation: Incarnation,
    pub(super) seq: u64,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Window {
    sent: VecDeque<Sent>,
    bytes: usize,
    credit: usize,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { sent: VecDeque::new(), bytes: 0, credit: UNACKED_RECORDS_MAX }
    }

    /// Records and bytes that may be sent now; `None` when the host has to acknowledge first.
    pub(super) fn room(&self) -> Option<(usize, usize)> {
        let records = self.credit.saturating_sub(self.sent.len());
        let bytes = UNACKED_BYTES_MAX.saturating_sub(self.bytes);
        (records > 0 && bytes > 0).then_some((records, bytes))
    }

    pub(super) fn push(&mut self, sent: Sent) {
        self.bytes += sent.bytes;
        self.sent.push_back(sent);
    }

    /// The host lowers, never raises, what the contract allows.
    pub(super) fn set_credit(&mut self, records: u32) {
        self.credit = usize::try_from(records).unwrap_or(usize::MAX).min(UNACKED_RECORDS_MAX);
    }

    /// Takes an acknowledgement; returns the last ordinal that it covers.
    pub(super) fn ack(&mut self, incarnation: Incarnation, seq: u64) -> Option<u64> {
        let last = self
            .sent
            .iter()
            .rposition(|sent| sent.incarnation == incarnation && sent.seq <= seq)?;
        let covered = self.sent.drain(..=last);
        let mut through = None;
        for sent in covered {
            self.bytes -= sent.bytes;
            through = Some(sent.ordinal);
        }
        through
    }

    /// What was sent from this ordinal on will be sent again.
    pub(super) fn rewind(&mut self, ordinal: u64) {
        while let Some(sent) = self.sent.pop_back_if(|sent| sent.ordinal >= ordinal) {
            self.bytes -= sent.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ordinal: u64, incarnation: u64, seq: u64) -> Sent {
        Sent { ordinal, incarnation: Incarnation(incarnation), seq, bytes: 100 }
    }

    fn window() -> Window {
        let mut window = Window::new();
        for (ordinal, incarnation, seq) in [(10, 1, 8), (11, 1, 9), (12, 2, 1), (13, 2, 3)] {
            window.push(sent(ordinal, incarnation, seq));
        }
        window
    }

    #[track_caller]
    fn check_ack(incarnation: u64, seq: u64, through: Option<u64>, left: usize) {
        let mut window = window();
        assert_eq!(window.ack(Incarnation(incarnation), seq), through);
        assert_eq!((window.sent.len(), window.bytes), (left, left * 100));
    }

    #[test]
    fn an_ack_covers_everything_sent_before() {
        check_ack(1, 8, Some(10), 3);
        check_ack(1, 9, Some(11), 2);
        check_ack(2, 1, Some(12), 1);
        check_ack(2, 2, Some(12), 1);
        check_ack(2, 3, Some(13), 0);
        check_ack(1, 7, None, 4);
        check_ack(3, 7, None, 4);
    }

    #[test]
    fn room_is_what_host_and_contract_leave() {
        let mut window = window();
        assert_eq!(window.room(), Some((UNACKED_RECORDS_MAX - 4, UNACKED_BYTES_MAX - 400)));
        window.set_credit(5);
        assert_eq!(window.room().map(|(records, _)| records), Some(1));
        window.set_credit(0);
        assert_eq!(window.room(), None);
        window.set_credit(u32::MAX);
        assert_eq!(window.room().map(|(records, _)| records), Some(UNACKED_RECORDS_MAX - 4));
        window.push(Sent { bytes: UNACKED_BYTES_MAX, ..sent(14, 2, 4) });
        assert_eq!(window.room(), None);
    }

    #[test]
    fn rewinding_forgets_what_will_be_sent_again() {
        let mut window = window();
        window.rewind(12);
        assert_eq!((window.sent.len(), window.bytes), (2, 200));
        assert_eq!(window.ack(Incarnation(2), 3), None);
        window.push(sent(12, 2, 1));
        assert_eq!(window.ack(Incarnation(2), 1), Some(12));
    }
}
