//! The command line of `gsprof`, as its users know it.

use std::net::IpAddr;

use clap::{Args, Parser, Subcommand};

use super::Common;
use super::client::ConnectArgs;
use super::host::RecorderArgs;
use super::profiler::{AnalyzeArgs, StartArgs, StopArgs};
use super::recover::RecoverArgs;

const AFTER_HELP: &str = "\
Workflow:
  gsprof start --port 8090 --http-port 8091      on the head node
  gsprof connect HEAD:8090 --resilient           on every machine with GPUs
  gsprof profile HEAD:8090 --name run1           before the workload
  gsprof stop HEAD:8090 --name run1              after it: writes run1.json on the head node

Every address works with every port of the head. `gswarm profiler` does the same and more.";

/// Profile the GPUs of several machines.
#[derive(Debug, Parser)]
#[command(name = "gsprof", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Gsprof {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: GsprofCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GsprofCommand {
    /// Start the head node
    Start(GsprofStart),
    /// Connect this machine to a head node
    Connect(ConnectArgs),
    /// Start profiling
    #[command(visible_alias = "http-profile")]
    Profile(GsprofProfile),
    /// Show the head node and its open sessions
    #[command(visible_alias = "http-status")]
    Status(Head),
    /// Stop profiling: one session by name, or all
    #[command(visible_alias = "http-stop")]
    Stop(GsprofStop),
    /// List, look at or export sessions after a crash, with the head up or down
    Recover(GsprofRecover),
    /// Show the numbers of a session's file
    Stat(AnalyzeArgs),
    /// Stop the head node
    Exit(Head),
}

/// The head node to talk to.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Head {
    /// The head node: HOST or HOST:PORT [default: GSWARM_HOST, cluster.host, this machine]
    #[arg(value_name = "HEAD")]
    pub(crate) head: Option<String>,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  gsprof start --port 8090 --http-port 8091 --enable-bandwidth --freq 1000
  gsprof start --host 0.0.0.0                     for other machines too, with TLS and tokens")]
pub(crate) struct GsprofStart {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, visible_alias = "listen", value_name = "ADDR")]
    pub(crate) host: Option<IpAddr>,
    /// gRPC and HTTP port; 0 takes any free one [default: 8090]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// HTTP port; 0 turns it off [default: 8091]
    #[arg(long, value_name = "PORT")]
    pub(crate) http_port: Option<u16>,
    #[command(flatten)]
    pub(crate) recorder: RecorderArgs,
    /// Listen beyond this machine without encryption and without logins
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Networks whose old clients may connect without encryption, such as 10.0.0.0/8
    #[arg(long, value_name = "NET,NET")]
    pub(crate) legacy_from: Option<String>,
    /// Accept simulated devices, and only those; the data gets a directory of its own
    #[arg(long)]
    pub(crate) sim: bool,
    /// Detach, wait until the head is ready, print its process id and log file
    #[arg(long)]
    pub(crate) background: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GsprofProfile {
    #[command(flatten)]
    pub(crate) head: Head,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GsprofStop {
    #[command(flatten)]
    pub(crate) head: Head,
    #[command(flatten)]
    pub(crate) stop: StopArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GsprofRecover {
    /// The head node: HOST or HOST:PORT [default: GSWARM_HOST, cluster.host, this machine]
    #[arg(long, value_name = "ADDR")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) recover: RecoverArgs,
}

impl GsprofStart {
    /// The same wish in the words of `gswarm host start`.
    pub(crate) fn into_host_start(self) -> super::host::HostStart {
        super::host::HostStart {
            listen: super::host::ListenArgs {
                port: self.port,
                http_port: self.http_port,
                // The old tool never opened it.
                model_port: Some(0),
                single_port: false,
                listen: self.host,
                insecure: self.insecure,
                legacy_from: self.legacy_from,
            },
            recorder: self.recorder,
            sim: self.sim,
            background: self.background,
        }
    }
}
