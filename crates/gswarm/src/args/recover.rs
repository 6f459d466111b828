//! `recover`, the same in both command lines.

use std::path::PathBuf;

use clap::Args;

use super::profiler::SessionKey;
use crate::plan::ExportFormat;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Sessions go on by themselves when a host starts again; this shows where they stand.
With the host down, the data directory is read instead.

Examples:
  recover --list
  recover --name week_long_training
  recover --export --name my_experiment      writes my_experiment.json, never over another file")]
pub(crate) struct RecoverArgs {
    /// List every session that is on disk (also without any flag)
    #[arg(long, conflicts_with_all = ["name", "session_id", "export"])]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) key: SessionKey,
    /// Write the session's file into the working directory
    #[arg(long)]
    pub(crate) export: bool,
    /// Shape of the file: json, legacy-json, jsonl, parquet [default: json]
    #[arg(long, value_enum, requires = "export", hide_possible_values = true)]
    pub(crate) format: Option<ExportFormat>,
    /// Data directory to read when the host is down
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}
