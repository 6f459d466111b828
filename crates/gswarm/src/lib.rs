//! The command lines `gswarm` and `gsprof`.

mod args;
mod cmd;
mod config;
mod paths;
mod plan;
mod serve;
mod secure;
mod banner;
mod process;
mod ports;
mod logs;
mod clock;
mod output;
mod units;
mod tool;
mod fault;
#[doc(hidden)]
pub mod fuzzed;

pub use cmd::{main_gsprof, main_gswarm};
