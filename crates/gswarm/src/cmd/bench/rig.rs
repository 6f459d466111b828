//! The host under load: a process of our own, or one that runs elsewhere; and the disk beside it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use gswarm_api::{Client, Credentials, Target};
use tokio::time::Instant;

use super::needs_own_host;
use super::report::Report;
use crate::args::bench::Scenario;
use crate::fault::Fault;
use crate::process::RunFile;
use crate::secure;

/// How long the host may take until it answers.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);
/// What the disk is asked to make durable.
const PROBE_BYTES: usize = 64 * 1024;

/// The host and what it cost so far.
pub(super) struct Rig {
    target: Target,
    /// For a host elsewhere; our own has its token on this machine.
    shown: Credentials,
    own: Option<Own>,
    /// Of processes that were ended.
    cpu_before: f64,
    cpu_at_reset: f64,
    resident_max: u64,
    pub(super) kills: u64,
}

/// A host process of our own.
struct Own {
    child: Option<Child>,
    dir: PathBuf,
    port: u16,
}

impl Rig {
    pub(super) fn remote(
        target: Target,
        shown: Credentials,
        scenario: Scenario,
    ) -> anyhow::Result<Self> {
        if needs_own_host(scenario) {
            let message =
                "this scenario ends the host: leave out --host and it gets one of its own";
            return Err(Fault::invalid(message).into());
        }
        Ok(Self { shown, ..Self::new(target, None) })
    }

    pub(super) async fn start(dir: &Path) -> anyhow::Result<Self> {
        let own = Own { child: None, dir: dir.to_path_buf(), port: 0 };
        let mut rig = Self::new(Target::local(), Some(own));
        rig.revive().await?;
        Ok(rig)
    }

    fn new(target: Target, own: Option<Own>) -> Self {
        let shown = Credentials::default();
        Self { target, shown, own, cpu_before: 0.0, cpu_at_reset: 0.0, resident_max: 0, kills: 0 }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Asks the host.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let mut shown = self.shown.clone();
        let port = self.target.port();
        if let Some(host) = &self.own
            && let Some(own) = secure::read_local_token(&host.home(), port)
        {
            shown = Credentials { trust: own.trust, bearer: Some(own.token) };
        }
        Ok(Client::new(self.target.clone(), shown)?)
    }

    /// Starts the host, on the port that it had before.
    pub(super) async fn revive(&mut self) -> anyhow::Result<()> {
        let Some(own) = &mut self.own else { return Ok(()) };
        let child = own.spawn()?;
        let pid = child.id();
        own.child = Some(child);
        let deadline = Instant::now() + READY_TIMEOUT;
        let run = loop {
            if let Some(run) = RunFile::read(&own.data()).filter(|run| run.identity.pid == pid) {
                break run;
            }
            if own.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
                || Instant::now() > deadline
            {
                return Err(own.failed());
            }
            tokio::time::sleep(POLL).await;
        };
        let address = run.addresses.first().context("the host names no address")?;
        self.target = address.parse()?;
        own.port = self.target.port();
        Ok(())
    }

    /// Ends the host without a word.
    pub(super) fn kill(&mut self) {
        self.cpu_before = self.cpu_seconds();
        if let Some(mut child) = self.own.as_mut().and_then(|own| own.child.take()) {
            // It may have ended by itself; then there is nothing to kill.
            let _ended = child.kill();
            let _reaped = child.wait();
            self.kills += 1;
        }
    }

    /// Ends our own host in order.
    pub(super) async fn stop(&mut self) {
        let Some(mut child) = self.own.as_mut().and_then(|own| own.child.take()) else { return };
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + READY_TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        let _ended = child.kill();
        let _reaped = child.wait();
    }

    /// CPU counts from here on.
    pub(super) fn reset_cost(&mut self) {
        self.cpu_at_reset = self.cpu_seconds();
        self.resident_max = 0;
    }

    pub(super) fn look(&mut self) {
        if let Some(pid) = self.pid() {
            self.resident_max = self.resident_max.max(resident_bytes(pid).unwrap_or(0));
        }
    }

    pub(super) fn cost(&self, report: &mut Report) {
        if self.own.is_some() {
            report.host_cpu_seconds = Some(self.cpu_seconds() - self.cpu_at_reset);
            report.host_resident_bytes_max = Some(self.resident_max);
        }
        report.host_kills = self.kills;
    }

    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Bytes of the journal, lines and sealed segments.
    pub(super) fn journal_bytes(&self) -> Option<(u64, u64)> {
        let dir = self.own.as_ref()?.data().join("journal");
        let (mut lines, mut sealed) = (0, 0);
        for file in std::fs::read_dir(dir).ok()?.flatten() {
            let bytes = file.metadata().map_or(0, |meta| meta.len());
            match file.path().extension().and_then(|extension| extension.to_str()) {
                Some("jsonl") => lines += bytes,
                Some("parquet") => sealed += bytes,
                _ => {},
            }
        }
        Some((lines, sealed))
    }

    fn pid(&self) -> Option<u32> {
        Some(self.own.as_ref()?.child.as_ref()?.id())
    }

    fn cpu_seconds(&self) -> f64 {
        self.cpu_before + self.pid().and_then(cpu_seconds).unwrap_or(0.0)
    }
}

impl Own {
    fn data(&self) -> PathBuf {
        self.dir.join("host")
    }

    fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("host.log")
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = File::options().create(true).append(true).open(self.log())?;
        Command::new(std::env::current_exe()?)
            .args(["host", "start", "--sim", "--single-port"])
            .args(["--port", &self.port.to_string()])
            .arg("--data-dir")
            .arg(self.data())
            .arg("--output-dir")
            .arg(self.dir.join("output"))
            // No configuration of the person who measures.
            .env("GSWARM_HOME", self.home())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start a host")
    }

    fn failed(&self) -> anyhow::Error {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        Fault::not_now(format!("the host did not start: {}", tail.join(" / "))).into()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// User and system time of a process, from `/proc/PID/stat`.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / ticks_per_second())
}

fn ticks_per_second() -> f64 {
    u32::try_from(rustix::param::clock_ticks_per_second()).map_or(100.0, f64::from)
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1_024)
}

/// The disk's own time for making a block durable, in the same seconds.
pub(super) struct DiskProbe {
    file: Option<File>,
    taken_us: Vec<u64>,
}

impl DiskProbe {
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let file = File::create(dir.join("fdatasync")).context("cannot write to the disk")?;
        Ok(Self { file: Some(file), taken_us: Vec::new() })
    }

    pub(super) async fn sync(&mut self) -> anyhow::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let (file, taken) = tokio::task::spawn_blocking(move || {
            let written = file.write_all(&[b'x'; PROBE_BYTES]);
            let start = Instant::now();
            let synced = written.and_then(|()| file.sync_data());
            synced.map(|()| (file, start.elapsed()))
        })
        .await?
        .context("cannot write to the disk")?;
        self.file = Some(file);
        self.taken_us.push(u64::try_from(taken.as_micros()).unwrap_or(u64::MAX));
        Ok(())
    }

    pub(super) fn taken_us(&self) -> &[u64] {
        &self.taken_us
    }
}
