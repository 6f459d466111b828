//! How often one address may ask, and how often it may be wrong.

use std::collections::HashMap;
use std::net::IpAddr;

use gswarm_types::Micros;

use super::Limits;
use crate::serve::household;

/// Addresses that are remembered; the one that was quiet the longest goes first.
const ADDRESSES_MAX: usize = 4_096;
const MINUTE: Micros = Micros::from_secs(60);
const SECOND: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Rates {
    per_second: u32,
    failures_per_minute: u32,
    addresses: HashMap<IpAddr, Past>,
}

#[derive(Debug)]
struct Past {
    /// Requests that may come at once, in millionths; fills up with time.
    room: i64,
    at: Micros,
    failures: u32,
    failing_since: Micros,
}

impl Rates {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            per_second: limits.requests_per_second.max(1),
            failures_per_minute: limits.failures_per_minute.max(1),
            addresses: HashMap::new(),
        }
    }

    fn past(&mut self, address: IpAddr, now: Micros) -> &mut Past {
        let address = household(address);
        if !self.addresses.contains_key(&address) && self.addresses.len() >= ADDRESSES_MAX {
            let oldest = self.addresses.iter().min_by_key(|(_, past)| past.at).map(|(a, _)| *a);
            if let Some(oldest) = oldest {
                self.addresses.remove(&oldest);
            }
        }
        let full = self.full();
        self.addresses.entry(address).or_insert(Past {
            room: full,
            at: now,
            failures: 0,
            failing_since: now,
        })
    }

    /// Two seconds' worth may come at once.
    fn full(&self) -> i64 {
        i64::from(self.per_second) * 2 * SECOND
    }

    /// False when this request is one too many.
    pub(super) fn take(&mut self, address: IpAddr, now: Micros) -> bool {
        let (per_second, full) = (i64::from(self.per_second), self.full());
        let past = self.past(address, now);
        let elapsed = (now - past.at).0.clamp(0, 2 * SECOND);
        past.at = now;
        past.room = (past.room + elapsed * per_second).min(full);
        let is_free = past.room >= SECOND;
        if is_free {
            past.room -= SECOND;
        }
        is_free
    }

    /// False after too many wrong tokens within a minute.
    pub(super) fn may_try(&mut self, address: IpAddr, now: Micros) -> bool {
        let most = self.failures_per_minute;
        let past = self.past(address, now);
        if now - past.failing_since >= MINUTE {
            past.failures = 0;
            past.failing_since = now;
        }
        past.failures < most
    }

    pub(super) fn failed(&mut self, address: IpAddr, now: Micros) {
        let past = self.past(address, now);
        past.at = now;
        past.failures = past.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> Rates {
        Rates::new(&Limits { requests_per_second: 10, failures_per_minute: 3, ..Limits::default() })
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn a_steady_asker_is_answered_and_a_storm_is_not() {
        let mut rates = rates();
        let mut at = Micros::ZERO;
        for _ in 0..1_000 {
            at = at + Micros(100_000);
            assert!(rates.take(address(1), at));
        }
        let free = (0..100).filter(|_| rates.take(address(1), at)).count();
        assert_eq!(free, 19);
        assert!(rates.take(address(2), at), "others are not concerned");
        assert!(rates.take(address(1), at + Micros(100_000)));
    }

    #[test]
    fn guessing_ends_for_a_minute() {
        let mut rates = rates();
        for _ in 0..3 {
            assert!(rates.may_try(address(1), Micros::ZERO));
            rates.failed(address(1), Micros::ZERO);
        }
        assert!(!rates.may_try(address(1), Micros::from_secs(59)));
        assert!(rates.may_try(address(1), Micros::from_secs(60)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut rates = rates();
        for number in 0..20_000 {
            rates.take(address(number), Micros(i64::from(number)));
        }
        assert_eq!(rates.addresses.len(), ADDRESSES_MAX);
    }
}
