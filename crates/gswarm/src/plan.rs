//! What a long-running process is asked to be, after flags, environment and files were read.

pub(crate) mod agent;
pub(crate) mod host;

use std::net::IpAddr;
use std::path::PathBuf;

use gswarm_api::Target;
use gswarm_device::DeviceSpec;
use gswarm_host::{AccessConfig, Network};
use gswarm_store::journal::SegmentLimits;
use gswarm_tls::Token;
use gswarm_types::metric::Metric;
use gswarm_types::{AllowSet, Micros, NodeName, Period};

/// A host to run.
#[derive(Debug, Clone)]
pub(crate) struct HostPlan {
    pub(crate) listen: IpAddr,
    /// Every port serves the same router; the main one stands first and may be 0 (any free port).
    pub(crate) ports: Vec<u16>,
    pub(crate) data_dir: PathBuf,
    /// Where `<session>.json` goes.
    pub(crate) output_dir: PathBuf,
    pub(crate) settings: HostSettings,
    pub(crate) retention: Retention,
    pub(crate) segments: SegmentLimits,
    /// Accept simulated devices, and nothing else.
    pub(crate) simulated: bool,
    /// The user said that anyone who reaches the ports may use them.
    pub(crate) insecure: bool,
    /// Old clients of these networks may connect without encryption.
    pub(crate) legacy_from: Vec<Network>,
    pub(crate) access: AccessConfig,
    /// Where commands of this user look for the host's own token.
    pub(crate) home: PathBuf,
}

impl HostPlan {
    /// True when others are served, over TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        !self.listen.is_loopback() && !self.insecure
    }
}

/// What can be changed later while the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostSettings {
    pub(crate) base_period: Period,
    pub(crate) session_period: Period,
    pub(crate) bandwidth: bool,
    pub(crate) nvlink: bool,
}

/// How much of the recording is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    /// `None`: the smaller of 10 GB and 5 % of the disk.
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) keep: Micros,
}

/// An agent to run.
#[derive(Debug, Clone)]
pub(crate) struct AgentPlan {
    pub(crate) target: Target,
    pub(crate) node_name: NodeName,
    pub(crate) state_dir: PathBuf,
    pub(crate) devices: DeviceSpec,
    pub(crate) extra_metrics: Vec<&'static Metric>,
    /// `None`: as the host says.
    pub(crate) period: Option<Period>,
    pub(crate) allow: AllowSet,
    pub(crate) resilient: bool,
    pub(crate) nvml_library: Option<PathBuf>,
    pub(crate) way: Way,
}

/// How an agent reaches its host.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// On this machine, or where the user said that the network is trusted.
    Plain,
    /// With a certificate, which a token gets it where it has none.
    Tls { token: Option<Token> },
}

/// A host with its agents in one process.
#[derive(Debug, Clone)]
pub(crate) struct UpPlan {
    pub(crate) host: HostPlan,
    pub(crate) agents: Vec<AgentPlan>,
}

/// In which shape a session leaves the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// Frames with numbers, summaries, gaps and availability.
    Json,
    /// The old tool's shape: numbers as strings, shares from 0 to 1.
    LegacyJson,
    /// Every stored record once, one per line.
    Jsonl,
    /// Every stored record once, in columns.
    Parquet,
}

impl ExportFormat {
    /// The word on the command line and in the HTTP query.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::LegacyJson => "legacy-json",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }

    /// How a file of this format usually ends.
    pub(crate) const fn extension(self) -> &'static str {
        match self {
            Self::Json | Self::LegacyJson => "json",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }
}
