//! What the recorder knows of one node.

use std::collections::HashMap;
use std::sync::Arc;

use gswarm_types::{
    AllowSet, Incarnation, Micros, NodeId, NodeName, PeerLink, Period, ProcessRow, Table,
    TableDigest,
};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::message::{StreamClock, StreamId, ToAgent};
use crate::live::NodeValues;

/// Tables that are kept per node; the oldest incarnations go first.
const TABLES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) name: NodeName,
    pub(super) hostname: String,
    pub(super) version: String,
    pub(super) allow: AllowSet,
    pub(super) legacy: bool,
    pub(super) simulated: bool,
    pub(super) stream: Option<Connected>,
    /// A second agent that waits for the first to answer or to be given up.
    pub(super) contender: Option<Box<super::message::Join>>,
    pub(super) contender_since: Option<Micros>,
    /// Host time of the last data.
    pub(super) last_seen: Option<Micros>,
    pub(super) clock: Option<StreamClock>,
    pub(super) period: Period,
    pub(super) base_period: Option<Period>,
    tables: HashMap<(Incarnation, TableDigest), Arc<Table>>,
    table_order: Vec<(Incarnation, TableDigest)>,
    pub(super) latest: Option<Arc<NodeValues>>,
    pub(super) processes: Vec<ProcessRow>,
    pub(super) topology: Vec<PeerLink>,
    pub(super) stored: u64,
    pub(super) commands_refused: u64,
}

#[derive(Debug)]
pub(super) struct Connected {
    pub(super) id: StreamId,
    pub(super) incarnation: Incarnation,
    pub(super) outbox: mpsc::Sender<ToAgent>,
}

impl Node {
    pub(super) fn new(id: NodeId, name: NodeName, period: Period) -> Self {
        Self {
            id,
            hostname: name.to_string(),
            name,
            version: String::new(),
            allow: AllowSet::default(),
            legacy: false,
            simulated: false,
            stream: None,
            contender: None,
            contender_since: None,
            last_seen: None,
            clock: None,
            period,
            base_period: None,
            tables: HashMap::new(),
            table_order: Vec::new(),
            latest: None,
            processes: Vec::new(),
            topology: Vec::new(),
            stored: 0,
            commands_refused: 0,
        }
    }

    pub(super) fn put_table(
        &mut self,
        incarnation: Incarnation,
        digest: TableDigest,
        table: Arc<Table>,
    ) {
        let key = (incarnation, digest);
        // An agent that starts again brings the same table: one copy is enough.
        let same = |((_, known), held): (&(Incarnation, TableDigest), &Arc<Table>)| {
            (*known == digest && *held == table).then(|| held.clone())
        };
        let table = self.tables.iter().find_map(same).unwrap_or(table);
        if self.tables.insert(key, table).is_none() {
            self.table_order.push(key);
        }
        if self.table_order.len() > TABLES_MAX {
            let oldest = self.table_order.remove(0);
            self.tables.remove(&oldest);
        }
    }

    /// Every stream brings the tables that it uses.
    pub(super) fn forget_tables(&mut self) {
        self.tables = HashMap::new();
        self.table_order = Vec::new();
    }

    /// Of a node that is gone only what tells it from others is needed.
    pub(super) fn forget_values(&mut self) {
        self.latest = None;
        self.processes = Vec::new();
        self.topology = Vec::new();
    }

    pub(super) fn table(&self, key: &(Incarnation, TableDigest)) -> Option<&Arc<Table>> {
        self.tables.get(key)
    }

    /// Says something to the agent; a stream that does not take it is given up.
    pub(super) fn tell(&mut self, message: ToAgent) {
        let Some(stream) = &self.stream else { return };
        match stream.outbox.try_send(message) {
            // A stream that ended is still heard: what it read before waits in the queue.
            Ok(()) | Err(TrySendError::Closed(_)) => {},
            Err(TrySendError::Full(_)) => {
                tracing::warn!(node = %self.name, "agent does not read, stream given up");
                self.stream = None;
            },
        }
    }

    pub(super) fn gpu_count(&self) -> usize {
        self.latest
            .as_ref()
            .map_or(0, |latest| latest.table.devices_of(gswarm_types::Scope::Gpu).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Arc<Table> {
        let columns =
            vec![gswarm_types::Column { device: 0, metric: gswarm_types::MetricName::new(name) }];
        Arc::new(Table { devices: Vec::new(), columns })
    }

    #[test]
    fn a_table_that_comes_again_is_kept_once() {
        let id = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        let period = Period::from_millis(1_000).unwrap();
        let mut node = Node::new(id, NodeName::new("node1").unwrap(), period);
        for run in 1..=100 {
            let table = table("gpu_utilization");
            node.put_table(Incarnation(run), table.digest(), table);
        }
        let digest = table("gpu_utilization").digest();
        let newest = node.table(&(Incarnation(100), digest)).unwrap();
        assert_eq!(Arc::strong_count(newest), TABLES_MAX);
        assert!(node.table(&(Incarnation(1), digest)).is_none());
        let other = table("clock_sm_mhz");
        node.put_table(Incarnation(100), other.digest(), other.clone());
        assert_eq!(node.table(&(Incarnation(100), other.digest())), Some(&other));
    }
}
