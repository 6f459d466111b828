//! The command line of `gswarm`: every command, flag and help text.

pub(crate) mod host;
pub(crate) mod client;
pub(crate) mod profiler;
pub(crate) mod recover;
pub(crate) mod gsprof;
pub(crate) mod bench;
pub(crate) mod access;
mod value;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use access::{LoginArgs, LogoutArgs, NodesArgs, TokenCommand};
use bench::BenchCommand;
use client::{ClientCommand, ConnectArgs};
use host::{HostCommand, UpArgs};
use profiler::ProfilerCommand;

const AFTER_HELP: &str = "\
First steps:
  gswarm up --sim                      try everything on this machine with simulated GPUs
  gswarm host start                    start the control plane
  gswarm join HOST                     on each machine with GPUs: send its measurements there
  gswarm profiler start --name run1    open a session; `profiler stop` writes run1.json

Every command takes --host ADDR (or GSWARM_HOST, or cluster.host in ~/.gswarm/config.yaml).
Exit codes: 0 fine, 2 wrong usage, 3 not logged in, 4 not permitted, 5 not found, 6 conflict,
7 not possible now, 8 limit reached, 9 host unreachable, 1 anything else.";

/// See, measure and act on the GPUs of several machines.
#[derive(Debug, Parser)]
#[command(name = "gswarm", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Flags that every command takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Global {
    /// The host to talk to: HOST, HOST:PORT or http://HOST:PORT [env: GSWARM_HOST]
    #[arg(long, global = true, value_name = "ADDR", help_heading = "Global options")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Flags that both `gswarm` and `gsprof` take everywhere.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Common {
    /// Print the HTTP body as JSON instead of a table
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// Read this configuration file only [env: GSWARM_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// Set by `--background` for the process it starts.
    #[arg(long, global = true, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a host and an agent for this machine in one process
    Up(UpArgs),
    /// Start, stop or look at the host (the control plane)
    #[command(subcommand)]
    Host(HostCommand),
    /// Connect this machine to a host, or look at its agent
    #[command(subcommand)]
    Client(ClientCommand),
    /// Connect this machine to a host (the same as `client connect`)
    Join(ConnectArgs),
    /// Show the host with everything it holds
    Status,
    /// List the nodes, or let one in or out
    Nodes(NodesArgs),
    /// Look at one node
    #[command(subcommand)]
    Node(NodeCommand),
    /// Make, list and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Log in to a host on another machine
    Login(LoginArgs),
    /// Forget the token of a host
    Logout(LogoutArgs),
    /// Check whether the host works as it should
    Health,
    /// List what happened: faults, losses, nodes that came and went
    Events(EventsArgs),
    /// Record sessions and get their files
    #[command(subcommand)]
    Profiler(ProfilerCommand),
    /// Show what retention keeps and would remove
    Retention(RetentionArgs),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look for what is wrong on this machine, with a fix for each finding
    Doctor(DoctorArgs),
    /// Load a host with simulated agents, and check what it keeps
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print the version
    Version,
    /// Print a shell completion script
    #[command(after_help = "Example:\n  gswarm completions bash > /etc/bash_completion.d/gswarm")]
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Show one node with its devices, processes and gaps
    Status {
        /// Name or id of the node, as `gswarm nodes` shows it
        node: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only what happened since: 90s, 10m, 2h or 2026-11-15T04:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RetentionArgs {
    /// Show what would go; nothing is ever removed by this command
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read every configuration file and report unknown keys and wrong values
    Check,
    /// Print every value in force and where it came from
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Look at this host data directory instead of the default one
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Look at this agent state directory instead of the default one
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Load this NVML library instead of the one that is found
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
        gsprof::Gsprof::command().debug_assert();
    }
}
