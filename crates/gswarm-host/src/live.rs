//! What just happened, for those who watch. Slow watchers lose messages, never slow the recorder.

use std::sync::Arc;

use gswarm_types::{Event, Micros, Table};
use tokio::sync::broadcast;

/// Messages a watcher may be behind before it is told that it lagged.
const BACKLOG_MAX: usize = 4_096;

/// One thing that happened.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    Values(Arc<NodeValues>),
    Event(Arc<LiveEvent>),
}

/// New values of one node.
#[derive(Debug)]
pub(crate) struct NodeValues {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    pub(crate) time: Micros,
    pub(crate) cells: Vec<Option<f64>>,
}

#[derive(Debug, Clone)]
pub(crate) struct LiveEvent {
    pub(crate) time: Micros,
    pub(crate) node: Option<String>,
    pub(crate) event: Event,
}

/// Where the recorder tells and watchers listen.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    sender: broadcast::Sender<Happening>,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(BACKLOG_MAX) }
    }

    /// Nobody listening is fine.
    pub(crate) fn tell(&self, happening: Happening) {
        let _listeners = self.sender.send(happening);
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Happening> {
        self.sender.subscribe()
    }
}
