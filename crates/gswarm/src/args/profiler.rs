//! `gswarm profiler`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gswarm_types::Period;

use super::recover::RecoverArgs;
use super::value;
use crate::plan::ExportFormat;

#[derive(Debug, Subcommand)]
pub(crate) enum ProfilerCommand {
    /// Open a session
    Start(StartArgs),
    /// Close a session and write its file; without a name, close all of yours
    Stop(StopArgs),
    /// Show the settings and the open sessions
    Status,
    /// List all sessions
    Sessions,
    /// List, look at or export sessions after a crash, with the host up or down
    Recover(RecoverArgs),
    /// Fetch a session's file from the host
    Export(ExportArgs),
    /// Delete a stopped session, so that retention may take what it kept
    Delete(DeleteArgs),
    /// Cut a session out of the past
    Capture(CaptureArgs),
    /// Read the latest values
    Read(ReadArgs),
    /// Show GPU to host (PCIe) bandwidth in new sessions
    EnableBandwidth,
    /// Leave GPU to host (PCIe) bandwidth out of new sessions
    DisableBandwidth,
    /// Show NVLink bandwidth in new sessions
    EnableNvlink,
    /// Leave NVLink bandwidth out of new sessions
    DisableNvlink,
    /// Show the numbers of a session's file
    Analyze(AnalyzeArgs),
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  gswarm profiler start --name training_run
  gswarm profiler start --name slow_step --since 5m           begins five minutes ago
  gswarm profiler start --name two_gpus --nodes node1 --gpus 0,1 --for 30m --freq 200")]
pub(crate) struct StartArgs {
    /// Name of the session and of its file [default: profiling_DATE_TIME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Milliseconds between samples (500, 500ms, 1s) [default: as the host says]
    #[arg(long, visible_alias = "interval", value_name = "MS", value_parser = value::period)]
    pub(crate) freq: Option<Period>,
    /// Begin in the past: 90s, 10m, 2h or 2026-11-15T04:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Stop by itself after this span: 90s, 10m, 2h
    #[arg(long = "for", value_name = "SPAN")]
    pub(crate) duration: Option<String>,
    /// Only these nodes
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) nodes: Option<Vec<String>>,
    /// Only these GPUs of each node
    #[arg(long, value_name = "0,1", value_delimiter = ',')]
    pub(crate) gpus: Option<Vec<u32>>,
    /// Only GPUs that a process of this user holds
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Only GPUs that a process of this job holds
    #[arg(long, value_name = "ID")]
    pub(crate) job: Option<String>,
    /// A word to find the session by; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// A remark that goes into the file
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// More metrics in each frame, by name
    #[arg(short = 'r', long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) report_metrics: Vec<String>,
    /// Show GPU to host (PCIe) bandwidth in the file
    #[arg(short = 'b', long)]
    pub(crate) enable_bandwidth: bool,
    /// Show NVLink bandwidth in the file
    #[arg(long)]
    pub(crate) enable_nvlink: bool,
}

/// Which session is meant.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SessionKey {
    /// Name of the session; of several with one name, the newest
    #[arg(long, value_name = "NAME", conflicts_with = "session_id")]
    pub(crate) name: Option<String>,
    /// Id of the session, as `profiler sessions` shows it
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) key: SessionKey,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
The exported file stays where it is. What only this session kept of the recording is removed once it
is older than the host keeps.")]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) key: SessionKey,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  gswarm profiler export --name training_run -o training_run.json
  gswarm profiler export --name training_run -o - --format jsonl | head")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) key: SessionKey,
    /// File to write; `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Shape of the file: json, legacy-json, jsonl (all records), parquet (all records)
    #[arg(long, value_enum, default_value = "json", hide_possible_values = true)]
    pub(crate) format: ExportFormat,
    /// The same as --format legacy-json
    #[arg(long, conflicts_with = "format")]
    pub(crate) legacy_json: bool,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Example:
  gswarm profiler capture --from 30m --to 10m --name before_the_crash")]
pub(crate) struct CaptureArgs {
    /// Where it begins: 30m (ago) or 2026-11-15T04:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub(crate) from: String,
    /// Where it ends: 10m (ago) or 2026-11-15T04:20:00Z [default: now]
    #[arg(long, value_name = "WHEN")]
    pub(crate) to: Option<String>,
    /// Name of the session and of its file [default: profiling_DATE_TIME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Milliseconds between frames [default: as the host says]
    #[arg(long, visible_alias = "interval", value_name = "MS", value_parser = value::period)]
    pub(crate) freq: Option<Period>,
    /// Only these nodes
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) nodes: Option<Vec<String>>,
    /// Only these GPUs of each node
    #[arg(long, value_name = "0,1", value_delimiter = ',')]
    pub(crate) gpus: Option<Vec<u32>>,
    /// Only GPUs that a process of this user held
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Only GPUs that a process of this job held
    #[arg(long, value_name = "ID")]
    pub(crate) job: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Write the values as JSON to this file; `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AnalyzeArgs {
    /// A file that `profiler stop` or `profiler export` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) data: PathBuf,
    /// Draw into this file (not available yet)
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}
