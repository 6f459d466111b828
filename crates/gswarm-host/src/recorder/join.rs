//! Agents come, beat and go.

use gswarm_api::{ErrorCode, Failure};
use gswarm_core::{HealthChange, Listed};
use gswarm_types::{EventKind, Incarnation, Micros, NodeId, Severity};

use super::Recorder;
use super::message::{Held, Join, Joined, StreamId, ToAgent};
use super::node::{Connected, Node};

/// How long the agent that is already connected has to show that it lives.
const CONTEND_FOR: Micros = Micros::from_secs(5);

impl Recorder {
    pub(super) async fn join(&mut self, join: Box<Join>) {
        if let Err(failure) = self.check_join(&join) {
            answer(*join, Err(failure));
            return;
        }
        let rival = self.nodes.get(&join.node).and_then(|node| node.stream.as_ref());
        match rival {
            Some(stream) if stream.outbox.is_closed() => self.admit_agent(join).await,
            Some(stream) if stream.incarnation != join.incarnation => self.contend(join),
            // The newest stream of the same incarnation fences the older one.
            _ => self.admit_agent(join).await,
        }
    }

    fn check_join(&self, join: &Join) -> Result<(), Failure> {
        if join.simulated && !self.config.simulated {
            return Err(Failure::new(
                ErrorCode::FailedPrecondition,
                "this host records real devices only: start one with `gswarm host start --sim` for \
                 simulated devices",
            )
            .because("SIMULATED_REFUSED"));
        }
        if !join.simulated && self.config.simulated {
            return Err(Failure::new(
                ErrorCode::FailedPrecondition,
                "this host records simulated devices only: start the agent with `--devices sim:...` \
                 or the host without `--sim`",
            )
            .because("REAL_REFUSED"));
        }
        Ok(())
    }

    /// Another incarnation of a node that is connected: one of the two is a stranger or a ghost.
    fn contend(&mut self, join: Box<Join>) {
        let now = self.time.mono();
        let Some(node) = self.nodes.get_mut(&join.node) else { return };
        node.tell(ToAgent::Ping);
        let earlier = node.contender.replace(join);
        node.contender_since = Some(now);
        if let Some(earlier) = earlier {
            answer(*earlier, Err(conflict(&node.name.to_string())));
        }
    }

    /// The connected agent spoke: whoever contends is the second one.
    fn defend(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(contender) = node.contender.take() {
            node.contender_since = None;
            let name = node.name.to_string();
            answer(*contender, Err(conflict(&name)));
            let message = format!("a second agent wants to be `{name}` and was refused");
            self.event(Some(id), EventKind::NodeConflict, Severity::Warning, message);
        }
    }

    /// Contenders whose rival stayed silent take its place.
    pub(super) async fn settle_contenders(&mut self) {
        let now = self.time.mono();
        let due: Vec<NodeId> = self
            .nodes
            .values()
            .filter(|node| node.contender_since.is_some_and(|since| now - since >= CONTEND_FOR))
            .map(|node| node.id)
            .collect();
        for id in due {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            node.contender_since = None;
            if let Some(join) = node.contender.take() {
                self.admit_agent(join).await;
            }
        }
    }

    async fn admit_agent(&mut self, join: Box<Join>) {
        let id = join.node;
        let before = self.names.clone();
        let binding = self.names.bind(id, &join.name);
        if binding.is_new
            && let Err(failure) = self.write_nodes().await
        {
            // Not on disk: the next try must write it again.
            self.names = before;
            answer(*join, Err(failure));
            return;
        }
        let base = join.base_period.unwrap_or(self.settings.base_period);
        let period = self.book.period_of(id, base);
        let node =
            self.nodes.entry(id).or_insert_with(|| Node::new(id, binding.name.clone(), period));
        if let Some(old) = node.stream.take() {
            let failure =
                Failure::new(ErrorCode::Conflict, "a newer stream of this agent took over");
            // Its channel may be full or gone; either way nobody listens to it any more.
            let _gone = old.outbox.try_send(ToAgent::Close(failure));
        }
        node.name = binding.name.clone();
        node.hostname.clone_from(&join.hostname);
        node.version.clone_from(&join.version);
        node.allow = join.allow.clone();
        node.simulated = join.simulated;
        node.legacy = join.legacy;
        node.clock = join.clock;
        node.period = period;
        node.base_period = join.base_period;
        node.stream = Some(Connected {
            id: join.stream,
            incarnation: join.incarnation,
            outbox: join.outbox.clone(),
        });
        let now = self.time.now();
        self.intake.list(id, &join.held, now);
        self.beat(id);
        self.expect_late(id, &join.held);
        let message = format!("connected, agent {}", join.version);
        self.event(Some(id), EventKind::NodeConnected, Severity::Info, message);
        let joined = Joined {
            name: binding.name,
            storage: self.storage,
            held: join.held.iter().map(|item| self.held(id, item.incarnation)).collect(),
            period,
        };
        answer(*join, Ok(joined));
    }

    /// The node was removed: its stream ends at once.
    pub(super) fn disconnect(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let refuse = || {
            let message = "this node was removed from the cluster: join again with a new token";
            Failure::new(ErrorCode::PermissionDenied, message)
        };
        if let Some(contender) = node.contender.take() {
            answer(*contender, Err(refuse()));
        }
        if let Some(stream) = node.stream.take() {
            let _gone = stream.outbox.try_send(ToAgent::Close(refuse()));
            let message = "removed".to_owned();
            self.event(Some(id), EventKind::NodeDisconnected, Severity::Warning, message);
        }
    }

    fn held(&self, node: NodeId, incarnation: Incarnation) -> Held {
        let source = self.intake.source(node, incarnation);
        let last = source.and_then(gswarm_core::Source::last_stored);
        Held {
            incarnation,
            intervals: source.map_or_else(Vec::new, |source| {
                source.stored().iter().map(|interval| (interval.first, interval.last)).collect()
            }),
            last_seq: last.map_or(0, |last| last.seq),
            last_crc: last.map_or(0, |last| last.crc),
        }
    }

    /// Something came from the node.
    pub(super) fn beat(&mut self, id: NodeId) {
        if let Some(HealthChange::Healthy(_)) = self.health.beat(id, self.time.mono()) {
            let message = "delivers again".to_owned();
            self.event(Some(id), EventKind::NodeHealthy, Severity::Info, message);
        }
        self.defend(id);
    }

    pub(super) fn heartbeat(&mut self, stream: StreamId, id: NodeId, held: &[Listed]) {
        let Some(node) = self.nodes.get(&id) else { return };
        if node.stream.as_ref().is_none_or(|connected| connected.id != stream) {
            return;
        }
        self.intake.list(id, held, self.time.now());
        self.beat(id);
        self.check_stopping();
    }

    pub(super) fn leave(&mut self, stream: StreamId, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.stream.as_ref().is_some_and(|connected| connected.id == stream) {
            node.stream = None;
            node.forget_tables();
            let stopped = self.health.is_stopped(id);
            let (kind, message) = if stopped {
                (EventKind::AgentStopped, "the agent stopped".to_owned())
            } else {
                (EventKind::NodeDisconnected, "the connection ended".to_owned())
            };
            let severity = if stopped { Severity::Info } else { Severity::Warning };
            self.event(Some(id), kind, severity, message);
            self.check_stopping();
        }
    }
}

fn conflict(name: &str) -> Failure {
    Failure::conflict(format!(
        "another live agent already is `{name}`: stop it, or give this one its own --state-dir"
    ))
    .because("NODE_CONFLICT")
}

/// The stream may have gone while it waited.
fn answer(join: Join, result: Result<Joined, Failure>) {
    let _gone = join.reply.send(result);
}
