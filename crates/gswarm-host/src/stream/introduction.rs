//! What an agent says of itself first, checked once.

use std::collections::HashMap;

use gswarm_core::Listed;
use gswarm_types::{Allow, AllowSet, Incarnation, NodeId, NodeName, Period};
use gswarm_wire::{PROTOCOL, v1};
use tonic::Status;

/// The highest seq: larger numbers are not exact everywhere.
pub(super) const SEQ_MAX: u64 = 1 << 53;
/// Incarnations that one agent may list: its spool holds fewer records.
const HELD_MAX: usize = 16_384;

/// A checked `Hello`.
pub(super) struct Introduction {
    pub(super) node: NodeId,
    pub(super) name: NodeName,
    pub(super) hostname: String,
    pub(super) version: String,
    pub(super) allow: AllowSet,
    pub(super) simulated: bool,
    pub(super) base_period: Option<Period>,
    pub(super) incarnation: Incarnation,
    pub(super) held: Vec<Listed>,
    pub(super) boot_id: String,
    pub(super) boots: HashMap<Incarnation, String>,
}

impl Introduction {
    pub(super) fn check(hello: v1::Hello) -> Result<Self, Status> {
        if hello.protocol_min > PROTOCOL || hello.protocol_max < PROTOCOL {
            return Err(Status::failed_precondition(format!(
                "this host speaks protocol {PROTOCOL}, the agent {} to {}: update the older one",
                hello.protocol_min, hello.protocol_max
            )));
        }
        let invalid = |text: String| Status::invalid_argument(text);
        let node = hello.node_id.parse().map_err(|e| invalid(format!("{e}")))?;
        let name = NodeName::new(hello.node_name).map_err(|e| invalid(e.to_string()))?;
        // Words of newer agents are left out: this host cannot ask for them anyway.
        let allow: Vec<Allow> = hello.allow.iter().filter_map(|word| word.parse().ok()).collect();
        let incarnation = Incarnation(hello.incarnation);
        let held = listed(&hello.held, incarnation, hello.last_seq)?;
        let boots = hello
            .held
            .into_iter()
            .map(|item| (Incarnation(item.incarnation), item.boot_id))
            .collect();
        Ok(Self {
            node,
            name,
            hostname: clip(&hello.hostname),
            version: clip(&hello.agent_version),
            allow: AllowSet::from(allow),
            simulated: hello.simulated,
            base_period: hello
                .base_period_ms
                .and_then(|millis| Period::from_millis(i64::from(millis)).ok()),
            incarnation,
            held,
            boot_id: hello.boot_id,
            boots,
        })
    }
}

pub(super) fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(256).collect()
}

/// What the spool holds. The running incarnation is always listed, also when nothing of it waits.
pub(super) fn listed(
    held: &[v1::HeldRange],
    running: Incarnation,
    last_seq: u64,
) -> Result<Vec<Listed>, Status> {
    if held.len() > HELD_MAX {
        return Err(Status::invalid_argument(format!(
            "the spool holds records of {} runs of the agent, at most {HELD_MAX} are taken: set \
             its spool directory aside",
            held.len()
        )));
    }
    let mut list: Vec<Listed> = held
        .iter()
        .map(|item| Listed {
            incarnation: Incarnation(item.incarnation),
            oldest_held: item.oldest_held.min(SEQ_MAX),
            last: item.last.min(SEQ_MAX),
        })
        .collect();
    let last_seq = last_seq.min(SEQ_MAX);
    if !list.iter().any(|item| item.incarnation == running) {
        let oldest_held = last_seq.saturating_add(1);
        list.push(Listed { incarnation: running, oldest_held, last: last_seq });
    }
    Ok(list)
}
