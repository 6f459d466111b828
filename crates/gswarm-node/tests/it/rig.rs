//! An agent with a simulated disk, a clock that follows paused time, and devices that count.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use gswarm_device::{Devices, Sample};
use gswarm_node::{Agent, AgentConfig, AgentParts, AgentStatus, SpoolLimits};
use gswarm_store::SimDisk;
use gswarm_types::{
    AllowSet, Clock, Column, DeviceId, DeviceInfo, MetricName, Micros, NodeId, NodeName, Period,
    Scope, Table,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::fake_host::FakeHost;

/// Time of a machine whose boot is the start of the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestClock(Instant);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TestClock {
    fn mono(&self) -> Micros {
        Micros::from(self.0.elapsed())
    }

    fn wall(&self) -> Micros {
        Micros::from_secs(1_700_000_000) + self.mono()
    }
}

/// One device with one number that rises.
#[derive(Debug)]
pub(crate) struct Counting {
    table: Arc<Table>,
    count: u32,
    /// Each sample waits for a word, if there is someone to say it.
    gate: Option<Receiver<()>>,
}

impl Counting {
    pub(crate) fn new(gate: Option<Receiver<()>>) -> Self {
        let device = DeviceInfo {
            id: DeviceId("GPU-1".to_owned()),
            scope: Scope::Gpu,
            index: 0,
            name: "counting".to_owned(),
            parent: None,
            simulated: true,
        };
        let column = Column { device: 0, metric: MetricName::new("gpu_utilization") };
        let table = Arc::new(Table { devices: vec![device], columns: vec![column] });
        Self { table, count: 0, gate }
    }
}

impl Devices for Counting {
    fn sample(&mut self, _now: Micros) -> Sample {
        if let Some(gate) = &self.gate {
            let _closed = gate.recv();
        }
        self.count += 1;
        Sample {
            table: Arc::clone(&self.table),
            cells: vec![Some(f64::from(self.count))],
            events: Vec::new(),
            processes: None,
            topology: None,
        }
    }
}

/// What stays when an agent goes.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) disk: SimDisk,
    pub(crate) host: FakeHost,
    pub(crate) clock: TestClock,
    pub(crate) config: AgentConfig,
    starts: u64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let config = AgentConfig {
            node_name: NodeName::new("gpu-01").unwrap(),
            hostname: "gpu-01.example".to_owned(),
            state_dir: PathBuf::from("/state"),
            machine_id: "machine-1".to_owned(),
            boot_id: "boot-1".to_owned(),
            version: "0.1.0".to_owned(),
            period: Some(Period::BASE),
            allow: AllowSet::default(),
            resilient: true,
            simulated: true,
            limits: SpoolLimits::default(),
        };
        Self {
            disk: SimDisk::new(),
            host: FakeHost::start(),
            clock: TestClock::new(),
            config,
            starts: 0,
        }
    }

    pub(crate) async fn agent(&mut self) -> Agent {
        self.agent_with(Counting::new(None)).await
    }

    pub(crate) async fn agent_with(&mut self, devices: Counting) -> Agent {
        self.starts += 1;
        let parts = AgentParts {
            clock: Arc::new(self.clock),
            disk: Arc::new(self.disk.clone()),
            connect: self.host.network.clone(),
            devices: Box::new(devices),
            seed: self.starts,
            new_node_id: NodeId::new(Uuid::from_u128(u128::from(self.starts))),
        };
        Agent::start(self.config.clone(), parts).await.unwrap()
    }
}

/// Waits until the status is as asked.
pub(crate) async fn wait_for(agent: &Agent, test: impl FnMut(&AgentStatus) -> bool) -> AgentStatus {
    let mut status = agent.status();
    let waiting = status.wait_for(test);
    let found = tokio::time::timeout(Duration::from_secs(600), waiting).await;
    found.expect("the agent never came to it").unwrap().clone()
}
