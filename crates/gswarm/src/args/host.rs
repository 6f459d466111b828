//! `gswarm host` and `gswarm up`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gswarm_types::{Micros, Period};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Start the host in the foreground, or with --background
    #[command(after_help = "\
Examples:
  gswarm host start                                this machine only
  gswarm host start --listen 0.0.0.0               for other machines too, with TLS and tokens
  gswarm host start --sim --background             for simulated devices, in the background")]
    Start(HostStart),
    /// Stop the host that runs on this machine
    Stop(HostStop),
    /// Show the host
    Status,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HostStart {
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) recorder: RecorderArgs,
    /// Accept simulated devices, and only those; the data gets a directory of its own
    #[arg(long)]
    pub(crate) sim: bool,
    /// Detach, wait until the host is ready, print its process id and log file
    #[arg(long)]
    pub(crate) background: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HostStop {
    /// The data directory of the host to stop
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Stop the host that records simulated devices
    #[arg(long)]
    pub(crate) sim: bool,
}

/// Where a host answers.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ListenArgs {
    /// Main port; 0 takes any free one [default: 8090]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Second port, for old HTTP clients; 0 turns it off [default: 8091]
    #[arg(long, value_name = "PORT")]
    pub(crate) http_port: Option<u16>,
    /// Third port, for old model clients; 0 turns it off [default: 9010]
    #[arg(long, value_name = "PORT")]
    pub(crate) model_port: Option<u16>,
    /// Open the main port only; every port serves everything
    #[arg(long)]
    pub(crate) single_port: bool,
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<IpAddr>,
    /// Listen beyond this machine without encryption and without logins
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Networks whose old clients may connect without encryption, such as 10.0.0.0/8
    #[arg(long, value_name = "NET,NET")]
    pub(crate) legacy_from: Option<String>,
}

/// What a host records and where it puts it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RecorderArgs {
    /// Milliseconds between samples of a session that does not say (500, 500ms, 1s) [default: 500]
    #[arg(long, visible_alias = "interval", value_name = "MS", value_parser = value::period)]
    pub(crate) freq: Option<Period>,
    /// Milliseconds between samples while no session is open [default: 1000]
    #[arg(long, value_name = "MS", value_parser = value::period)]
    pub(crate) base_freq: Option<Period>,
    /// Show GPU to host (PCIe) bandwidth in session files
    #[arg(short = 'b', long)]
    pub(crate) enable_bandwidth: bool,
    /// Show NVLink bandwidth in session files
    #[arg(long)]
    pub(crate) enable_nvlink: bool,
    /// Where the recording lives [default: ~/.gswarm/data, with --sim ~/.gswarm/data-sim]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Where finished sessions are written as NAME.json [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Disk space for the recording [default: 10GB or 5 % of the disk, whichever is less]
    #[arg(long, value_name = "SIZE", value_parser = value::bytes)]
    pub(crate) budget: Option<u64>,
    /// How long the recording is kept when no session needs it [default: 24h]
    #[arg(long, value_name = "SPAN", value_parser = value::span)]
    pub(crate) keep: Option<Micros>,
}

/// `gswarm up`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  gswarm up                      this machine's own GPUs, CPUs, memory, disks and network
  gswarm up --sim                the same with 8 simulated H100
  gswarm up --sim --nodes 4      a simulated cluster: node1 to node4
  gswarm up --sim --devices sim:4xh100+4xa100,seed=7")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) recorder: RecorderArgs,
    /// Simulate the GPUs
    #[arg(long)]
    pub(crate) sim: bool,
    /// Number of simulated nodes; needs --sim
    #[arg(long, value_name = "N", requires = "sim", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) nodes: Option<u16>,
    /// Which devices: auto, nvml, none, sim:8xh100,seed=7 or replay:FILE
    #[arg(long, value_name = "SPEC")]
    pub(crate) devices: Option<String>,
    /// Name of this machine's node [default: its hostname]
    #[arg(short = 'n', long, value_name = "NAME", conflicts_with = "nodes")]
    pub(crate) node_id: Option<String>,
    /// More metrics to record, by name
    #[arg(short = 'e', long, value_name = "A,B")]
    pub(crate) extra_metrics: Option<String>,
    /// Where the agents keep their identity and unsent records
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Load this NVML library instead of the one that is found
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
    /// Detach, wait until everything is ready, print the process id and log file
    #[arg(long)]
    pub(crate) background: bool,
}
