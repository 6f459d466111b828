//! `profiler export`: a session's file, streamed from the host.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gswarm_api::Download;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;

use super::Context;
use super::session::session_key;
use crate::args::profiler::ExportArgs;
use crate::fault::Fault;
use crate::output::{Page, Progress};
use crate::plan::ExportFormat;
use crate::units;

/// The highest number tried for a free file name.
const NUMBER_MAX: u32 = 9_999;

/// A file that was written.
#[derive(Debug, Serialize)]
pub(super) struct ExportedBody {
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
}

pub(super) async fn export(context: &Context, args: &ExportArgs) -> anyhow::Result<()> {
    let key = session_key(&args.key)?.ok_or_else(|| {
        Fault::invalid("which session?")
            .hint("add --name NAME or --session-id ID; `gswarm profiler sessions` lists them")
    })?;
    let format = if args.legacy_json { ExportFormat::LegacyJson } else { args.format };
    let to_stdout = args.output == Path::new("-");
    if !to_stdout && !args.force {
        refuse_existing(&args.output)?;
    }
    let mut download = context.client()?.export(&key, format.as_str()).await?;
    if to_stdout {
        copy(&mut download, &mut io::stdout().lock(), &key).await?;
        return Ok(());
    }
    let bytes = fetch(&mut download, &part_of(&args.output), &key).await?;
    if args.force {
        fs::rename(part_of(&args.output), &args.output)
            .with_context(|| format!("cannot write `{}`", args.output.display()))?;
    } else if !settle(&part_of(&args.output), &args.output)? {
        return Err(existing(&args.output).into());
    }
    exported(context, &ExportedBody { file: args.output.clone(), bytes })
}

pub(super) fn exported(context: &Context, body: &ExportedBody) -> anyhow::Result<()> {
    context.output.show(body, |body| {
        Page::default().line(format!("{} ({})", body.file.display(), units::bytes(body.bytes)))
    })
}

/// Fetches into `part`, which is gone again when that fails.
pub(super) async fn fetch(
    download: &mut Download,
    part: &Path,
    label: &str,
) -> anyhow::Result<u64> {
    let cannot = || format!("cannot write `{}`", part.display());
    let mut file = File::create(part).with_context(cannot)?;
    let copied = copy(download, &mut file, label).await;
    let synced = copied.and_then(|bytes| file.sync_all().with_context(cannot).map(|()| bytes));
    if synced.is_err() {
        // The first failure is the one to report.
        let _second = fs::remove_file(part);
    }
    synced
}

/// Renames `part` to the first free of `stem.ext`, `stem-2.ext`, ...
pub(super) fn settle_numbered(part: &Path, stem: &str, extension: &str) -> anyhow::Result<PathBuf> {
    for number in 1..=NUMBER_MAX {
        let name = match number {
            1 => format!("{stem}.{extension}"),
            _ => format!("{stem}-{number}.{extension}"),
        };
        let path = PathBuf::from(name);
        if settle(part, &path)? {
            return Ok(path);
        }
    }
    Err(Fault::conflict(format!("`{stem}.{extension}` exists {NUMBER_MAX} times")).into())
}

/// Where a file is written until it is whole.
pub(super) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

async fn copy(download: &mut Download, out: &mut impl Write, label: &str) -> anyhow::Result<u64> {
    let progress = Progress::bytes(label, download.bytes_total);
    let mut bytes: u64 = 0;
    while let Some(piece) = download.next().await {
        let piece = piece?;
        out.write_all(&piece).context("cannot write the export")?;
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        bytes = bytes.saturating_add(length);
        progress.add(length);
    }
    out.flush().context("cannot write the export")?;
    progress.finish();
    Ok(bytes)
}

/// Renames without ever replacing a file; false when `path` exists.
fn settle(part: &Path, path: &Path) -> anyhow::Result<bool> {
    let renamed = match renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE) {
        // Some network file systems cannot refuse by themselves.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => match path.try_exists() {
            Ok(true) => return Ok(false),
            Ok(false) => fs::rename(part, path),
            Err(error) => Err(error),
        },
        Err(rustix::io::Errno::EXIST) => return Ok(false),
        other => other.map_err(io::Error::from),
    };
    renamed.with_context(|| format!("cannot write `{}`", path.display())).map(|()| true)
}

fn refuse_existing(path: &Path) -> anyhow::Result<()> {
    match path.try_exists() {
        Ok(true) => Err(existing(path).into()),
        Ok(false) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot look at `{}`", path.display())),
    }
}

fn existing(path: &Path) -> Fault {
    Fault::conflict(format!("`{}` exists", path.display()))
        .hint("choose another file with -o, or add --force to replace it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run1.json");
        let part = part_of(&path);
        assert!(part.ends_with("run1.json.part"));
        fs::write(&part, "new").unwrap();
        fs::write(&path, "old").unwrap();
        assert!(!settle(&part, &path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let stem = directory.path().join("run1");
        let settled = settle_numbered(&part, stem.to_str().unwrap(), "json").unwrap();
        assert_eq!(settled, directory.path().join("run1-2.json"));
        assert_eq!(fs::read_to_string(settled).unwrap(), "new");
        assert!(!part.try_exists().unwrap());
    }
}
