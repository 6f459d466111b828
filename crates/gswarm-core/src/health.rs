//! Which nodes deliver, by the time since their last data on a monotonic clock.

use std::collections::BTreeMap;

use gswarm_types::{Micros, NodeId};

/// Silence after which a node is unhealthy.
pub const SILENCE_MAX: Micros = Micros::from_secs(30);

/// A node changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthChange {
    Healthy(NodeId),
    Unhealthy(NodeId),
}

#[derive(Debug, Clone, Copy)]
struct Pulse {
    last: Micros,
    healthy: bool,
    /// Stopped cleanly: silence is expected.
    stopped: bool,
}

/// The pulse of every node that was seen since the host started.
#[derive(Debug, Clone, Default)]
pub struct Health {
    pulses: BTreeMap<NodeId, Pulse>,
}

impl Health {
    /// Data came in.
    pub fn beat(&mut self, node: NodeId, now: Micros) -> Option<HealthChange> {
        let fresh = Pulse { last: now, healthy: true, stopped: false };
        match self.pulses.insert(node, fresh) {
            Some(pulse) if !pulse.healthy => Some(HealthChange::Healthy(node)),
            _ => None,
        }
    }

    /// The agent said goodbye.
    pub fn stopped(&mut self, node: NodeId) {
        if let Some(pulse) = self.pulses.get_mut(&node) {
            pulse.stopped = true;
        }
    }

    pub fn tick(&mut self, now: Micros) -> Vec<HealthChange> {
        let mut changes = Vec::new();
        for (node, pulse) in &mut self.pulses {
            if pulse.healthy && !pulse.stopped && now - pulse.last > SILENCE_MAX {
                pulse.healthy = false;
                changes.push(HealthChange::Unhealthy(*node));
            }
        }
        changes
    }

    /// `None` when the node was not seen since the host started.
    pub fn is_healthy(&self, node: NodeId) -> Option<bool> {
        self.pulses.get(&node).map(|pulse| pulse.healthy)
    }

    pub fn is_stopped(&self, node: NodeId) -> bool {
        self.pulses.get(&node).is_some_and(|pulse| pulse.stopped)
    }

    /// Time since the last data.
    pub fn silence(&self, node: NodeId, now: Micros) -> Option<Micros> {
        self.pulses.get(&node).map(|pulse| now - pulse.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+30` is data at second 30, `@31` a tick, `x` a clean stop.
    #[track_caller]
    fn check(script: &str, expected: &str) {
        let node: NodeId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        let mut health = Health::default();
        let mut seen = Vec::new();
        for word in script.split(' ') {
            let (kind, seconds) = word.split_at(1);
            let now = Micros::from_secs(seconds.parse().unwrap_or(0));
            let changes = match kind {
                "+" => health.beat(node, now).into_iter().collect(),
                "@" => health.tick(now),
                _ => {
                    health.stopped(node);
                    Vec::new()
                },
            };
            for change in changes {
                seen.push(match change {
                    HealthChange::Healthy(_) => format!("healthy@{seconds}"),
                    HealthChange::Unhealthy(_) => format!("unhealthy@{seconds}"),
                });
            }
        }
        assert_eq!(seen.join(" "), expected, "{script}");
    }

    #[test]
    fn silence_is_noticed_once() {
        check("+0 @30 @31 @32 +40 @70 @71", "unhealthy@31 healthy@40 unhealthy@71");
        check("+0 x @100 +200 @231", "unhealthy@231");
        check("@100", "");
    }
}
