//! A whole cluster in one process: real host and agents over simulated time, network and disk.

mod clock;
mod network;
mod ledger;
mod cluster;

pub use clock::SimClock;
pub use cluster::{Cluster, ClusterError, RecordLine, Records};
pub use ledger::{Account, Ledger, RecordKey};
pub use network::{SimAcceptor, SimNetwork};
