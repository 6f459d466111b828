//! `--background`: this program again, detached, and a wait until it is ready.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use gswarm_api::ErrorCode;

use super::{POLL, RunFile};
use crate::fault::Fault;
use crate::output::clean;

/// How long a process may take until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const TAIL_BYTES_MAX: u64 = 16 * 1024;
const TAIL_LINES_MAX: usize = 20;

/// A process that detached and is ready.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) run: RunFile,
    pub(crate) log: PathBuf,
}

/// Starts this program again without its terminal; `directory` is where its run file will be.
pub(crate) async fn start(directory: &Path, log: &Path) -> anyhow::Result<Started> {
    let parent = log.parent().unwrap_or_else(|| Path::new("."));
    let cannot = || format!("cannot write the log `{}`", log.display());
    fs::create_dir_all(parent).with_context(cannot)?;
    let file = OpenOptions::new().create(true).append(true).open(log).with_context(cannot)?;
    let log_start = file.metadata().with_context(cannot)?.len();
    let mut child = spawn(&file).context("cannot start a process in the background")?;
    let run = tokio::time::timeout(READY_TIMEOUT, ready(&mut child, directory)).await;
    match run {
        Ok(Ok(Fate::Ready(run))) => Ok(Started { run, log: log.to_path_buf() }),
        Ok(Ok(Fate::Ended(status))) => Err(died(status, log, log_start).into()),
        Ok(Err(error)) => Err(error).context("lost sight of the process in the background"),
        Err(_) => {
            let message = format!(
                "process {} is not ready after {} seconds",
                child.id(),
                READY_TIMEOUT.as_secs()
            );
            let hint = format!("it still runs; see `{}`", log.display());
            Err(Fault::new(ErrorCode::Unavailable, message).hint(hint).into())
        },
    }
}

/// What the new process does first: leave the terminal's session, so that closing it ends nothing.
pub(crate) fn detach() -> anyhow::Result<()> {
    rustix::process::setsid().map(|_| ()).map_err(io::Error::from).context("cannot detach")
}

fn spawn(log: &File) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(child_arguments(std::env::args_os().skip(1)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .spawn()
}

fn child_arguments(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    own.filter(|argument| argument != "--background").chain(["--detached".into()]).collect()
}

/// What became of a child.
#[derive(Debug)]
enum Fate {
    Ready(RunFile),
    Ended(ExitStatus),
}

async fn ready(child: &mut Child, directory: &Path) -> io::Result<Fate> {
    loop {
        if let Some(run) = RunFile::read(directory).filter(|run| run.identity.pid == child.id()) {
            return Ok(Fate::Ready(run));
        }
        if let Some(status) = child.try_wait()? {
            return Ok(Fate::Ended(status));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The child's own words and exit code, as the error.
fn died(status: ExitStatus, log: &Path, log_start: u64) -> Fault {
    let tail = tail(log, log_start).unwrap_or_default();
    let own_words = tail.iter().rev().find_map(|line| line.strip_prefix("error: "));
    let message = match own_words {
        Some(words) => words.to_owned(),
        None if tail.is_empty() => "the process ended before it was ready".to_owned(),
        None => format!("the process ended before it was ready; it said: {}", tail.join(" / ")),
    };
    let own_hint = tail.iter().rev().find_map(|line| line.strip_prefix("hint: "));
    let hint = own_hint.map_or_else(|| format!("its log is `{}`", log.display()), str::to_owned);
    let is_its_code = |code: &ErrorCode| status.code() == Some(code.exit_code().into());
    let code = ErrorCode::ALL.into_iter().find(is_its_code).unwrap_or(ErrorCode::Internal);
    Fault::new(code, message).hint(hint)
}

fn tail(log: &Path, from: u64) -> io::Result<Vec<String>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    // A log that was rotated meanwhile is shorter.
    let from = if from > length { 0 } else { from };
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL_BYTES_MAX))))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text.lines().map(|line| clean(line).into_owned()).collect();
    let skipped = lines.len().saturating_sub(TAIL_LINES_MAX);
    Ok(lines.into_iter().skip(skipped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_stays_in_the_foreground() {
        let own = ["host", "start", "--background", "--port", "0"].map(OsString::from);
        assert_eq!(
            child_arguments(own.into_iter()),
            ["host", "start", "--port", "0", "--detached"].map(OsString::from)
        );
    }

    #[test]
    fn the_last_words_of_a_child_are_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("host.log");
        fs::write(&log, "error: old\nbanner\nerror: port 1 is taken\nhint: take another\n")
            .unwrap();
        let status = ExitStatus::default();
        let fault = died(status, &log, 11);
        assert_eq!(fault.to_string(), "port 1 is taken");
        fs::write(&log, "Segfault\n").unwrap();
        assert!(died(status, &log, 0).to_string().ends_with("it said: Segfault"));
        assert!(died(status, &directory.path().join("none"), 0).to_string().ends_with("ready"));
    }
}
