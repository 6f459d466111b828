//! The agent through its public face, against a host that a test plays by hand.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "it/rig.rs"]
mod rig;
#[path = "it/fake_host.rs"]
mod fake_host;
#[path = "it/deliver.rs"]
mod deliver;
#[path = "it/reconnect.rs"]
mod reconnect;
#[path = "it/lifecycle.rs"]
mod lifecycle;
