//! Streaming a session's window out of the recording, in bounded memory.

mod collect;
mod layout;
mod frames;
mod json;
mod legacy_json;
mod jsonl;
mod table_file;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use gswarm_core::Hole;
use gswarm_types::{Micros, NodeId, SessionSpec};

use crate::reader::Reader;
use crate::sealed::SealError;

pub use collect::{EVENTS_MAX, Nvlink, WindowEvent};

/// The shapes a session can be exported in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Frames with numbers; the shape of `<name>.json`.
    Json,
    /// Frames as the earlier tools wrote them: strings and fractions.
    LegacyJson,
    /// Every record once, ordered by node, incarnation and seq.
    Jsonl,
    /// One row per cell, for data frames.
    Parquet,
}

/// No such format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no export format: known are json, legacy-json, jsonl, parquet")]
pub struct UnknownFormat(String);

impl FromStr for ExportFormat {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        Ok(match word {
            "json" => Self::Json,
            "legacy-json" => Self::LegacyJson,
            "jsonl" => Self::Jsonl,
            "parquet" => Self::Parquet,
            _ => return Err(UnknownFormat(word.chars().take(40).collect())),
        })
    }
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot read the recording")]
    Read(#[from] SealError),
    #[error("cannot sort the records")]
    Sort(#[source] io::Error),
    #[error("cannot write the export")]
    Write(#[from] io::Error),
    #[error("cannot encode the export")]
    Json(#[from] serde_json::Error),
}

/// Everything an export needs besides the recording itself.
#[derive(Debug, Clone)]
pub struct ExportInput {
    pub spec: SessionSpec,
    /// End of the window for a session that is still open.
    pub now: Micros,
    /// How long a cell shows its last value.
    pub hold: Micros,
    pub names: BTreeMap<NodeId, String>,
    /// NVLinks of the nodes as they were last told.
    pub nvlinks: BTreeMap<NodeId, Vec<Nvlink>>,
    pub holes: Vec<(NodeId, Hole)>,
    /// The oldest time that is still recorded, when that is inside the window.
    pub expired_until: Option<Micros>,
    pub simulated: bool,
    /// For runs of the external sort.
    pub scratch: PathBuf,
}

impl ExportInput {
    fn until(&self) -> Micros {
        self.spec.until.unwrap_or(self.now)
    }

    fn name_of(&self, node: NodeId) -> String {
        self.names.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportFacts {
    pub records: u64,
    pub frames: u64,
}

/// Writes the session in one of the formats. Blocks; run on a blocking thread.
pub fn export(
    reader: &Reader,
    input: &ExportInput,
    format: ExportFormat,
    out: &mut (dyn io::Write + Send),
) -> Result<ExportFacts, ExportError> {
    match format {
        ExportFormat::Json => json::write(reader, input, out),
        ExportFormat::LegacyJson => legacy_json::write(reader, input, out),
        ExportFormat::Jsonl => jsonl::write(reader, input, out),
        ExportFormat::Parquet => table_file::write(reader, input, out),
    }
}

/// Sealed segments of the window that are not what was written. Looked for before an export begins,
/// so that it can name what is missing.
pub fn damaged_segments(reader: &Reader, input: &ExportInput) -> Vec<u64> {
    let leases = reader.lease(input.spec.from, input.until());
    let damaged = leases.iter().filter(|lease| !reader.is_whole(lease.meta()));
    damaged.map(|lease| lease.meta().number).collect()
}

/// Bytes of the segments that the window touches: an upper bound for people who wait.
pub fn size_estimate(reader: &Reader, input: &ExportInput) -> u64 {
    let leases = reader.lease(input.spec.from, input.until());
    leases.iter().map(|lease| lease.meta().bytes).sum()
}

#[cfg(test)]
mod tests;
