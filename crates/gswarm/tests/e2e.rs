//! Whole clusters of real processes on this machine, driven by the commands that users type.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot set itself up has failed"
)]

#[path = "e2e/site.rs"]
mod site;
#[path = "e2e/process.rs"]
mod process;
#[path = "e2e/file.rs"]
mod file;
#[path = "e2e/spool.rs"]
mod spool;
#[path = "e2e/fleet.rs"]
mod fleet;
#[path = "e2e/proxy.rs"]
mod proxy;
#[path = "e2e/workflow.rs"]
mod workflow;
#[path = "e2e/kill.rs"]
mod kill;
#[path = "e2e/life.rs"]
mod life;
#[path = "e2e/mistake.rs"]
mod mistake;
#[path = "e2e/bench.rs"]
mod bench;
#[path = "e2e/session.rs"]
mod session;
#[path = "e2e/disk.rs"]
mod disk;
#[path = "e2e/wire.rs"]
mod wire;
#[path = "e2e/retention.rs"]
mod retention;
