//! A recorded file played again in a loop.
//!
//! Only GPUs and their links are played: the machine's own numbers come from the machine. All
//! devices are labelled as simulated, because nobody here measured them.

mod recording;
mod records;
mod session;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::sync::Arc;

use gswarm_types::Micros;
use serde::Deserialize;
use serde::de::IgnoredAny;

use self::recording::{CELLS_MAX, ROWS_MAX, Recording};
use crate::{Devices, Sample};

/// How many nodes an error names.
const NODES_NAMED_MAX: usize = 16;
/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// The longest line of a record export: a record is at most 1 MiB.
const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Which file to play, and which node of it. The text form is `FILE[,node=NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplaySpec {
    pub path: PathBuf,
    /// Needed when the file holds more than one node: an id in a record export, the name of the
    /// machine in a session.
    pub node: Option<String>,
}

/// Why a file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` has {bytes} bytes, more than the {FILE_BYTES_MAX} that can be replayed")]
    TooLarge { path: PathBuf, bytes: u64 },
    #[error(
        "`{path}` holds more than {ROWS_MAX} rows or {CELLS_MAX} numbers: export a shorter window"
    )]
    TooLong { path: PathBuf },
    #[error("line {line} of `{path}` is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong { path: PathBuf, line: u64 },
    #[error("line {line} of `{path}` is not a line of a record export")]
    Line { path: PathBuf, line: u64, source: serde_json::Error },
    #[error("line {line} of `{path}` describes a column of a device that it does not name")]
    Table { path: PathBuf, line: u64 },
    #[error("`{path}` is neither a record export nor a session with frames")]
    Session { path: PathBuf, source: serde_json::Error },
    #[error("`{path}` holds several nodes, choose one with node=NAME: {}", first_of(.nodes))]
    SeveralNodes { path: PathBuf, nodes: Vec<String> },
    #[error("`{path}` does not hold the node `{node}`: it holds {}", first_of(.nodes))]
    UnknownNode { path: PathBuf, node: String, nodes: Vec<String> },
    #[error("`{path}` holds no values of a GPU")]
    Empty { path: PathBuf },
}

/// A recording as devices.
#[derive(Debug)]
pub struct ReplayDevices {
    recording: Recording,
    /// When playing began; `None` before the first sample.
    begun: Option<Micros>,
}

impl ReplaySpec {
    /// `None` when there is no file name.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, node) = match text.rsplit_once(",node=") {
            Some((path, node)) if !node.is_empty() => (path, Some(node.to_owned())),
            // Without a name it belongs to the path: its own text must be read as the same.
            Some(_) | None => (text, None),
        };
        (!path.is_empty()).then(|| Self { path: PathBuf::from(path), node })
    }
}

impl fmt::Display for ReplaySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match &self.node {
            Some(node) => write!(f, ",node={node}"),
            None => Ok(()),
        }
    }
}

impl ReplayDevices {
    /// Reads the whole recording into memory.
    pub fn open(spec: &ReplaySpec) -> Result<Self, ReplayError> {
        let read = |source| ReplayError::Read { path: spec.path.clone(), source };
        let file = File::open(&spec.path).map_err(read)?;
        let bytes = file.metadata().map_err(read)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(ReplayError::TooLarge { path: spec.path.clone(), bytes });
        }
        let mut reader = BufReader::new(file);
        let is_session = is_session(&mut reader).map_err(read)?;
        reader.rewind().map_err(read)?;
        let recording =
            if is_session { session::read(spec, reader)? } else { records::read(spec, reader)? };
        Ok(Self { recording, begun: None })
    }
}

impl Devices for ReplayDevices {
    fn sample(&mut self, now: Micros) -> Sample {
        let begun = *self.begun.get_or_insert(now);
        let (table, cells) = self.recording.at(now - begun);
        Sample {
            table: Arc::clone(table),
            cells: cells.to_vec(),
            events: Vec::new(),
            processes: None,
            topology: None,
        }
    }
}

/// A record export has an object on each line; a session is one object with frames.
fn is_session(reader: &mut impl BufRead) -> io::Result<bool> {
    #[derive(Deserialize)]
    struct FirstLine {
        frames: Option<IgnoredAny>,
    }

    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok(match serde_json::from_slice::<FirstLine>(&line) {
        Ok(first) => first.frames.is_some(),
        // An object that goes on, an empty file, or neither format: the parser of sessions says.
        Err(_) => true,
    })
}

fn first_of(nodes: &[String]) -> String {
    let more = if nodes.len() > NODES_NAMED_MAX { ", ..." } else { "" };
    let named: Vec<&str> = nodes.iter().take(NODES_NAMED_MAX).map(String::as_str).collect();
    named.join(", ") + more
}

#[cfg(test)]
mod tests;
