//! Writing a session's file: streamed, atomically, never over somebody else's file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gswarm_store::Disk;
use gswarm_store::disk::{Append, fill, remove_if_there};
use gswarm_store::export::{ExportFormat, ExportInput, export, size_estimate};
use gswarm_store::reader::Reader;
use gswarm_types::{SessionId, SessionSpec};

/// Above this size of recording a stop only says how to export.
const AUTOMATIC_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 256 * 1024;
/// How many names are tried: `X.json`, `X-2.json`, ...
const NAMES_MAX: u32 = 10_000;

/// What to write where.
#[derive(Debug)]
pub(crate) struct ExportOrder {
    pub(crate) input: ExportInput,
    pub(crate) output_dir: PathBuf,
    /// The file of the revision before and its checksum.
    pub(crate) previous: Option<(String, u32)>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Exported {
    pub(crate) file: Option<(String, u32)>,
    /// Why there is no file, and what to type.
    pub(crate) note: Option<String>,
}

pub(crate) async fn run(reader: Reader, order: ExportOrder) -> Exported {
    let name = order.input.spec.name.clone();
    let bytes = size_estimate(&reader, &order.input);
    let by_hand = format!("gswarm profiler export --name {name} -o {name}.json");
    if let Some(note) = too_large(bytes, &by_hand) {
        return Exported { file: None, note: Some(note) };
    }
    let written = tokio::task::spawn_blocking(move || write(&reader, &order)).await;
    match written {
        Ok(Ok((path, crc))) => {
            Exported { file: Some((path.to_string_lossy().into_owned(), crc)), note: None }
        },
        Ok(Err(error)) => {
            tracing::error!(session = %name, %error, "session not exported");
            let note = format!("the file could not be written ({error}): try `{by_hand}`");
            Exported { file: None, note: Some(note) }
        },
        Err(error) => {
            tracing::error!(session = %name, %error, "export ended badly");
            Exported { file: None, note: Some(format!("the export failed: try `{by_hand}`")) }
        },
    }
}

/// What to say instead of writing a file that nobody may want to wait for.
fn too_large(bytes: u64, by_hand: &str) -> Option<String> {
    (bytes > AUTOMATIC_BYTES_MAX).then(|| {
        let megabytes = bytes / 1_000_000;
        format!("the session covers {megabytes} MB of recording: export it with `{by_hand}`")
    })
}

fn write(reader: &Reader, order: &ExportOrder) -> io::Result<(PathBuf, u32)> {
    let disk = reader.disk().clone();
    disk.create_dir_all(&order.output_dir)?;
    let spec = &order.input.spec;
    let temporary = order.output_dir.join(temporary_name(spec));
    remove_if_there(disk.as_ref(), &temporary)?;
    let mut file = FileWriter::new(disk.create(&temporary)?);
    let written = export(reader, &order.input, ExportFormat::Json, &mut file)
        .map_err(io::Error::other)
        .and_then(|_| file.finish());
    let crc = match written {
        Ok(crc) => crc,
        Err(error) => {
            remove_if_there(disk.as_ref(), &temporary)?;
            return Err(error);
        },
    };
    let target = target(disk.as_ref(), order)?;
    disk.rename(&temporary, &target)?;
    disk.sync_dir(&order.output_dir)?;
    Ok((target, crc))
}

fn temporary_name(spec: &SessionSpec) -> String {
    format!(".{}.{}.tmp", spec.name, spec.id)
}

/// The session whose half written file has this name.
pub(crate) fn session_of_temporary(name: &str) -> Option<SessionId> {
    let (_, id) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    id.parse().ok()
}

/// The file of the earlier revision if nobody touched it, else the first free name.
fn target(disk: &dyn Disk, order: &ExportOrder) -> io::Result<PathBuf> {
    if let Some((file, crc)) = &order.previous {
        let path = PathBuf::from(file);
        if unchanged(disk, &path, *crc) {
            return Ok(path);
        }
    }
    let name = order.input.spec.name.as_str();
    let taken = disk.list(&order.output_dir)?;
    for number in 1..=NAMES_MAX {
        let candidate =
            if number == 1 { format!("{name}.json") } else { format!("{name}-{number}.json") };
        if !taken.contains(&candidate) {
            return Ok(order.output_dir.join(candidate));
        }
    }
    Err(io::Error::other(format!("{NAMES_MAX} files of that name exist already")))
}

fn unchanged(disk: &dyn Disk, path: &Path, crc: u32) -> bool {
    file_crc(disk, path).is_ok_and(|found| found == crc)
}

fn file_crc(disk: &dyn Disk, path: &Path) -> io::Result<u32> {
    let file = disk.open(path)?;
    let mut piece = vec![0; BUFFER_BYTES];
    let (mut crc, mut offset) = (0, 0);
    loop {
        let read = fill(file.as_ref(), &mut piece, offset)?;
        let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(crc);
        };
        crc = crc32c::crc32c_append(crc, bytes);
        offset += read as u64;
    }
}

/// Buffers small writes and keeps the checksum.
struct FileWriter {
    file: Box<dyn Append>,
    buffer: Vec<u8>,
    crc: u32,
}

impl FileWriter {
    fn new(file: Box<dyn Append>) -> Self {
        Self { file, buffer: Vec::with_capacity(BUFFER_BYTES), crc: 0 }
    }

    fn finish(mut self) -> io::Result<u32> {
        self.flush()?;
        self.file.sync()?;
        Ok(self.crc)
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, &self.buffer);
        self.file.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_sessions_are_exported_by_hand() {
        let by_hand = "gswarm profiler export --name x -o x.json";
        assert_eq!(too_large(AUTOMATIC_BYTES_MAX, by_hand), None);
        let note = too_large(AUTOMATIC_BYTES_MAX + 1, by_hand).unwrap();
        assert_eq!(
            note,
            format!("the session covers 1073 MB of recording: export it with `{by_hand}`")
        );
    }
}
