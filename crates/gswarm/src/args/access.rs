//! `gswarm token`, `gswarm login`, and who may join.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token: for nodes to join with, or for people to log in with
    #[command(after_help = "\
Examples:
  gswarm token create                                one day, any number of nodes
  gswarm token create --days 30 -o join              into a file, for /etc/gswarm/join of an image
  gswarm token create --role viewer --note alice     for `gswarm login`")]
    Create(TokenCreate),
    /// List the tokens, without their secrets
    List,
    /// Take a token back; nodes that joined with it stay
    Revoke {
        /// Id of the token, as `token list` shows it
        id: String,
    },
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TokenCreate {
    /// What it is for: node, viewer, operator or admin [default: node]
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// How many days it is good for [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: Option<u32>,
    /// How many nodes may join with it [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_uses: Option<u32>,
    /// Whose or what for; shown in the list
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Write the token to this file, which only you can read, instead of showing it
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
The token is asked for, or read from standard input; it never stands in the command line.
On the host, `gswarm token create --role viewer` makes one.")]
pub(crate) struct LoginArgs {
    /// The host: HOST or HOST:PORT [default: --host, GSWARM_HOST, cluster.host]
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) address: Option<String>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LogoutArgs {
    /// The host: HOST or HOST:PORT [default: --host, GSWARM_HOST, cluster.host]
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<NodesCommand>,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodesCommand {
    /// Let a node in that waits without a token
    Approve {
        /// Name or id, as `gswarm nodes` shows it
        name: String,
    },
    /// Take a node's certificate back; what it recorded stays
    Remove {
        /// Name or id, as `gswarm nodes` shows it
        name: String,
    },
}
