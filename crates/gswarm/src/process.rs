//! Our own processes: who runs, recorded in a file, and how to stop exactly that one.

pub(crate) mod background;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use gswarm_api::ErrorCode;
use gswarm_api::timestamp::rfc3339;
use gswarm_types::Clock;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use crate::clock::SystemClock;
use crate::fault::Fault;

const RUN_FILE: &str = "run.json";
/// How long a process may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// Clock ticks from boot to its start, field 22 of `/proc/PID/stat`.
    pub(crate) start_ticks: u64,
}

/// What a running host or agent says about itself, in `<its directory>/run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFile {
    #[serde(flatten)]
    pub(crate) identity: Identity,
    pub(crate) version: String,
    pub(crate) started_at: String,
    /// Addresses a host answers at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) addresses: Vec<String>,
    /// The host an agent sends to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    /// The name of an agent's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

/// Removes the run file when the process ends in order.
#[derive(Debug)]
pub(crate) struct RunGuard {
    path: PathBuf,
}

impl Identity {
    pub(crate) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "this process is not in /proc")
        })?;
        Ok(Self { pid, start_ticks })
    }

    /// Whether exactly this process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(start_ticks(self.pid), Ok(Some(ticks)) if ticks == self.start_ticks)
    }
}

impl RunFile {
    /// This process as a host.
    pub(crate) fn of_host(addresses: Vec<String>) -> io::Result<Self> {
        Ok(Self { addresses, ..Self::of_this_process()? })
    }

    /// This process as an agent.
    pub(crate) fn of_agent(node: String, target: String) -> io::Result<Self> {
        Ok(Self { node: Some(node), target: Some(target), ..Self::of_this_process()? })
    }

    fn of_this_process() -> io::Result<Self> {
        Ok(Self {
            identity: Identity::own()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: rfc3339(SystemClock.wall()),
            addresses: Vec::new(),
            target: None,
            node: None,
        })
    }

    /// Says that the process is ready. Whoever waits for it sees a whole file or none.
    pub(crate) fn announce(&self, directory: &Path) -> io::Result<RunGuard> {
        fs::create_dir_all(directory)?;
        let path = directory.join(RUN_FILE);
        let part = directory.join(format!("{RUN_FILE}.part"));
        let bytes = serde_json::to_vec(self).map_err(io::Error::from)?;
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        let write = || fs::write(&part, &bytes).and_then(|()| fs::rename(&part, &path));
        let mut written = write();
        if written.as_ref().is_err_and(is_full) {
            // What a process left behind that was killed makes room for this one.
            let _nothing_there = fs::remove_file(&path);
            written = write();
        }
        match written {
            // The process works all the same; only commands that look for it here do not find it.
            Err(error) if is_full(&error) => {
                tracing::warn!(path = %path.display(), "run file not written: the disk is full");
                let _left_behind = fs::remove_file(&part);
            },
            written => written?,
        }
        Ok(RunGuard { path })
    }

    /// The run file of a directory; `None` when there is none that can be read.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(RUN_FILE)).ok()?).ok()
    }

    /// The run file of a directory whose process still runs.
    pub(crate) fn alive(directory: &Path) -> Option<Self> {
        Self::read(directory).filter(|run| run.identity.is_alive())
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        // A file that stays behind names a process that is gone, which every reader checks.
        let _left_behind = fs::remove_file(&self.path);
    }
}

/// As many open files as this process may have: hosts hold a descriptor for each node.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wish = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, wish)
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Asks the process to end, and waits until it did.
pub(crate) async fn stop(identity: Identity) -> anyhow::Result<()> {
    if !signal(identity)? {
        return Ok(());
    }
    let gone = tokio::time::timeout(STOP_TIMEOUT, async {
        while identity.is_alive() {
            tokio::time::sleep(POLL).await;
        }
    });
    gone.await.map_err(|_| {
        let message = format!(
            "process {} did not stop within {} seconds",
            identity.pid,
            STOP_TIMEOUT.as_secs()
        );
        let hint = format!("it may still be writing to disk; `kill -9 {}` ends it", identity.pid);
        Fault::new(ErrorCode::Unavailable, message).hint(hint).into()
    })
}

/// False when the process is gone already.
fn signal(identity: Identity) -> anyhow::Result<bool> {
    let pid =
        i32::try_from(identity.pid).ok().and_then(Pid::from_raw).context("no such process")?;
    // The descriptor stays bound to one process, so the check that follows holds for the signal.
    let descriptor = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => Some(descriptor),
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        // Kernels before 5.3.
        Err(_) => None,
    };
    if !identity.is_alive() {
        return Ok(false);
    }
    let sent = match &descriptor {
        Some(descriptor) => rustix::process::pidfd_send_signal(descriptor, Signal::TERM),
        None => rustix::process::kill_process(pid, Signal::TERM),
    };
    match sent {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(errno) => {
            Err(io::Error::from(errno)).with_context(|| format!("cannot stop process {pid:?}"))
        },
    }
}

/// `None` when there is no such process, or only its exit status is left.
fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_start_ticks(&stat)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The program name in parentheses may hold anything, also parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?;
    if matches!(state, "Z" | "X") { None } else { start.parse().ok() }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn start_ticks_survive_odd_program_names() {
        let fields = "1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 20";
        let stat = |state: &str| format!("42 (a) b (c)) {state} {fields}");
        assert_eq!(parse_start_ticks(&stat("S")), Some(98_765));
        assert_eq!(parse_start_ticks(&stat("Z")), None);
        assert_eq!(parse_start_ticks("nonsense"), None);
    }

    #[test]
    fn run_files_come_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunFile::of_agent("n1".to_owned(), "h:1".to_owned()).unwrap();
        let guard = run.announce(directory.path()).unwrap();
        assert_eq!(RunFile::alive(directory.path()), Some(run.clone()));
        drop(guard);
        assert_eq!(RunFile::read(directory.path()), None);
        let mut other = run;
        other.identity.start_ticks += 1;
        let _guard = other.announce(directory.path()).unwrap();
        assert_eq!(RunFile::alive(directory.path()), None);
    }

    #[tokio::test]
    async fn only_the_recorded_process_is_stopped() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let start_ticks = start_ticks(child.id()).unwrap().unwrap();
        let right = Identity { pid: child.id(), start_ticks };
        let wrong = Identity { start_ticks: start_ticks + 1, ..right };
        stop(wrong).await.unwrap();
        assert!(right.is_alive());
        stop(right).await.unwrap();
        assert!(!right.is_alive());
        child.wait().unwrap();
    }
}
