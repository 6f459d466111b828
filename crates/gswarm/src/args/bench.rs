//! `gswarm bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gswarm_types::{Micros, Period};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Load a host with simulated agents and check that it keeps every record
    #[command(after_help = "\
Examples:
  gswarm bench ingest --nodes 1000                 a host of its own in a temporary directory
  gswarm bench ingest --scenario host-kill         the same, killed three times
  gswarm bench ingest --host HOST --nodes 200      a host that runs with --sim

The agents are the real ones, each with a spool of its own; only their GPUs are simulated. They sample
when their time has come, whether or not the host keeps up, and latency counts from that moment.
Exit code 1 when a record is missing or there twice.")]
    Ingest(IngestArgs),
}

/// What goes wrong, or is asked for, during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Nothing but the load
    Steady,
    /// The host is away for a while, then everybody comes back at once
    Storm,
    /// A sixth of the time at ten times the rate
    Burst,
    /// 50 WebSocket readers that do not read
    SlowReaders,
    /// The host is killed three times and started again
    HostKill,
    /// 100 sessions that overlap
    Sessions,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct IngestArgs {
    /// Simulated nodes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(crate) nodes: u32,
    /// GPUs of each node
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) gpus: u32,
    /// Record all metrics instead of the ten that every tool reads
    #[arg(long)]
    pub(crate) all_metrics: bool,
    /// Milliseconds between two records of a node, at least 100
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = value::period)]
    pub(crate) freq: Period,
    /// How long to measure, once everybody is connected
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = value::span)]
    pub(crate) duration: Micros,
    /// What happens meanwhile
    #[arg(long, value_enum, default_value_t = Scenario::Steady)]
    pub(crate) scenario: Scenario,
    /// Every agent joins with a token and speaks TLS
    #[arg(long)]
    pub(crate) tls: bool,
    /// Where spools and the host's data go, on the disk to be measured; removed afterwards
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Seed of the simulated GPUs
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) seed: u64,
}
