//! The agent: samples the devices of its node, keeps every record on disk, delivers each once.

mod agent;
mod status;
mod state;
mod sampler;
mod spool;
mod link;
mod connect;
mod member;
mod allow;
#[doc(hidden)]
pub mod fuzzed;

pub use agent::{Agent, AgentConfig, AgentParts, StartError};
pub use connect::{BoxedIo, Connect, Connecting, Io, NotReady, Preparing, TcpConnect, Who};
pub use member::{Door, TlsConnect, has_joined};
pub use spool::SpoolLimits;
pub use state::StateError;
pub use status::{AgentStatus, LinkState};
