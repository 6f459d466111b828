//! `gswarm client` and `gswarm join`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gswarm_types::Period;

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Send this machine's measurements to a host
    Connect(ConnectArgs),
    /// Show the agents that run on this machine
    Status(AgentArgs),
    /// Stop an agent that runs on this machine
    Disconnect(AgentArgs),
}

/// `client connect` and `join`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  gswarm join gpu-head --token gsw_...                the first time; `gswarm token create` makes it
  gswarm join gpu-head                                the host at gpu-head, port 8090
  gswarm client connect gpu-head:8091 -n rack7-02     another port, another name
  gswarm join localhost --devices sim:8xh100,seed=7   simulated GPUs, for a host with --sim")]
pub(crate) struct ConnectArgs {
    /// The host: HOST or HOST:PORT [default: --host, GSWARM_HOST, cluster.host, this machine]
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) address: Option<String>,
    /// Keep recording and reconnect when the host goes away (the default)
    #[arg(short = 'r', long, overrides_with = "no_resilient")]
    pub(crate) resilient: bool,
    /// End when the connection to the host is lost
    #[arg(long, overrides_with = "resilient")]
    pub(crate) no_resilient: bool,
    /// Name of this node [default: the hostname]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub(crate) node_id: Option<String>,
    /// Which devices: auto, nvml, none, sim:8xh100,seed=7 or replay:FILE [default: auto]
    #[arg(long, value_name = "SPEC")]
    pub(crate) devices: Option<String>,
    /// Time between samples when no session asks for more (500, 500ms, 1s) [default: the host's]
    #[arg(long, visible_alias = "interval", value_name = "MS", value_parser = value::period)]
    pub(crate) freq: Option<Period>,
    /// More metrics to record, by name
    #[arg(short = 'e', long, value_name = "A,B")]
    pub(crate) extra_metrics: Option<String>,
    /// Changes nothing, for old scripts: PCIe bandwidth is always recorded; this flag of the host or
    /// of a session decides what files show
    #[arg(short = 'b', long)]
    pub(crate) enable_bandwidth: bool,
    /// Changes nothing, for old scripts: NVLink traffic is always recorded; this flag of the host or
    /// of a session decides what files show
    #[arg(long)]
    pub(crate) enable_nvlink: bool,
    /// A token of the host, for the first time [env: GSWARM_AGENT__TOKEN, file: /etc/gswarm/join]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Connect without encryption, to a host that was started with --insecure
    #[arg(long)]
    pub(crate) insecure: bool,
    /// What the host may do here besides observing: probe, models, data, run
    #[arg(long, value_name = "A,B")]
    pub(crate) allow: Option<String>,
    /// Where the agent keeps its identity and unsent records
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Load this NVML library instead of the one that is found
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
    /// Detach, wait until the agent is ready, print its process id and log file
    #[arg(long)]
    pub(crate) background: bool,
}

/// Which of this machine's agents is meant.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AgentArgs {
    /// Name of the node, where several agents run on this machine
    #[arg(short = 'n', long, value_name = "NAME")]
    pub(crate) node_id: Option<String>,
    /// State directory of the agent, where it is not the default one
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}
