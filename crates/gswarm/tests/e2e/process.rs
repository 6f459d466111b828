//! A process that a test started and that never outlives it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// Far beyond what anything here takes, also with other builds on both cores.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A host or an agent in the foreground of its own terminal.
pub(crate) struct Process {
    line: String,
    child: Child,
    log: PathBuf,
}

/// A process that left its terminal with `--background`.
pub(crate) struct Detached {
    pub(crate) pid: u32,
    /// In its environment and in nobody else's.
    mark: String,
}

/// What a command that ended had said.
pub(crate) struct Said {
    line: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Asks again and again until there is an answer.
#[track_caller]
pub(crate) fn until<T>(runtime: &Runtime, what: &str, ask: impl FnMut() -> Option<T>) -> T {
    until_within(runtime, DEADLINE, what, ask)
}

/// The same for what takes long by its nature.
#[track_caller]
pub(crate) fn until_within<T>(
    runtime: &Runtime,
    deadline: Duration,
    what: &str,
    mut ask: impl FnMut() -> Option<T>,
) -> T {
    let give_up = Instant::now() + deadline;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < give_up, "waited {} s in vain: {what}", deadline.as_secs());
        pause(runtime, POLL);
    }
}

/// Lets real processes run for a while.
pub(crate) fn pause(runtime: &Runtime, span: Duration) {
    runtime.block_on(async { tokio::time::sleep(span).await });
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(line: &str, mut command: Command) -> Said {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(child.wait_with_output()));
    let Ok(output) = end.recv_timeout(DEADLINE) else {
        signal(pid, Signal::KILL);
        panic!("`{line}` did not end within {} s", DEADLINE.as_secs());
    };
    let output = output.unwrap();
    Said {
        line: line.to_owned(),
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What `/proc` says of a living process; `None` for one that ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // Whoever ended by itself needs no signal.
    let _gone = kill_process(pid, signal);
}

// === impl Process ===

impl Process {
    /// Starts a command whose output goes to `log`.
    pub(crate) fn start(line: &str, mut command: Command, log: &Path) -> Self {
        let file = File::create(log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { line: line.to_owned(), child, log: log.to_owned() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        // A test that fails may have lost its directory before its processes.
        fs::read_to_string(&self.log).unwrap_or_else(|error| error.to_string())
    }

    /// Fails the test when the process ended by itself.
    #[track_caller]
    pub(crate) fn check_running(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("`{}` ended by itself with {status}:\n{}", self.line, self.log());
        }
    }

    /// `kill -9`, and a wait until it is gone.
    #[track_caller]
    pub(crate) fn kill(mut self) {
        self.check_running();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ctrl-C, and a wait until it ended in order.
    #[track_caller]
    pub(crate) fn interrupt(self, runtime: &Runtime) {
        signal(self.pid(), Signal::INT);
        let line = self.line.clone();
        let (status, log) = self.ended(runtime);
        assert!(status.success(), "`{line}` ended with {status}:\n{log}");
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub(crate) fn ended(mut self, runtime: &Runtime) -> (ExitStatus, String) {
        let what = format!("the end of `{}`", self.line);
        let status = until(runtime, &what, || self.child.try_wait().unwrap());
        (status, self.log())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
        if thread::panicking() {
            println!("--- `{}` (pid {}) said:\n{}", self.line, self.pid(), self.log());
        }
    }
}

// === impl Detached ===

impl Detached {
    pub(crate) fn new(pid: u32, mark: &Path) -> Self {
        Self { pid, mark: mark.to_str().unwrap().to_owned() }
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        // The number may belong to somebody else by now.
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        if String::from_utf8_lossy(&environment).contains(&self.mark) {
            signal(self.pid, Signal::KILL);
        }
    }
}

// === impl Said ===

impl Said {
    /// The command worked; gives its standard output.
    #[track_caller]
    pub(crate) fn worked(self) -> String {
        assert_eq!(self.code, Some(0), "`{}` failed:\n{}{}", self.line, self.out, self.err);
        self.out
    }

    /// The command failed with this exit code and in one clear sentence that says `part`.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, part: &str) -> String {
        let Self { line, err, .. } = self;
        assert_eq!(self.code, Some(code), "`{line}` said:\n{}{err}", self.out);
        let errors: Vec<&str> = err.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "`{line}` said:\n{err}");
        assert!(errors[0].contains(part), "`{line}` did not say `{part}`:\n{err}");
        assert!(!err.contains("panicked") && !err.contains("backtrace"), "`{line}` said:\n{err}");
        err
    }
}
