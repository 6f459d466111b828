//! Where logs go: rotated files, or standard output in containers.

mod rotate;

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::config::{Environment, Settings};
use crate::paths::Home;
use rotate::RotatingFile;

/// Events of sessions carry this target; they also go to `profiler.log`.
const SESSION_TARGET: &str = "profiler";

/// What a process logs and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogPlan {
    destination: Destination,
    files: LogFiles,
    level: LevelFilter,
    json: bool,
    /// Warnings also go to the terminal.
    on_terminal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Files,
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LogFiles {
    main: PathBuf,
    /// `profiler.log`, for hosts.
    sessions: Option<PathBuf>,
    bytes_max: u64,
    files_max: u32,
}

/// Which process logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role<'a> {
    Host,
    Agent(&'a str),
}

/// Writes what is still queued when it goes out of scope.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct LogGuard(Vec<WorkerGuard>);

impl LogPlan {
    /// `detached` processes have their standard error in the log file already.
    pub(crate) fn new(
        settings: &Settings,
        environment: &Environment,
        home: &Home,
        role: Role<'_>,
        detached: bool,
    ) -> Self {
        let destination = match settings.text("log.to") {
            Some("stdout") => Destination::Stdout,
            Some("stderr") => Destination::Stderr,
            Some("file") => Destination::Files,
            _ if environment.is_container() && !detached => Destination::Stdout,
            _ => Destination::Files,
        };
        Self {
            destination,
            files: LogFiles::new(settings, home, role),
            level: settings.get("log.level").unwrap_or(LevelFilter::INFO),
            json: settings.switch("log.json"),
            on_terminal: !detached,
        }
    }

    /// The file that shows what the process does, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        (self.destination == Destination::Files).then_some(self.files.main.as_path())
    }

    /// Where a process in the background writes whatever it would have shown.
    pub(crate) fn background_file(&self) -> &Path {
        &self.files.main
    }

    /// Sends the events of this process on their way.
    pub(crate) fn start(&self) -> anyhow::Result<LogGuard> {
        let registry = tracing_subscriber::registry();
        let mut guard = LogGuard::default();
        match self.destination {
            Destination::Stdout => registry
                .with(self.layer(io::stdout, Targets::new().with_default(self.level)))
                .try_init(),
            Destination::Stderr => registry
                .with(self.layer(io::stderr, Targets::new().with_default(self.level)))
                .try_init(),
            Destination::Files => {
                let files = &self.files;
                let main = files.open(&files.main, &mut guard)?;
                let sessions = match &files.sessions {
                    Some(path) => Some(files.open(path, &mut guard)?),
                    None => None,
                };
                let all = Targets::new().with_default(self.level);
                let only_sessions = Targets::new().with_target(SESSION_TARGET, self.level);
                let terminal = self.on_terminal.then(|| {
                    let warnings = Targets::new().with_default(LevelFilter::WARN);
                    fmt::layer()
                        .with_writer(io::stderr)
                        .without_time()
                        .with_target(false)
                        .with_filter(warnings)
                });
                registry
                    .with(self.layer(main, all))
                    .with(sessions.map(|writer| self.layer(writer, only_sessions)))
                    .with(terminal)
                    .try_init()
            },
        }
        .context("logging was set up twice")?;
        Ok(guard)
    }

    fn layer<S, W>(&self, writer: W, filter: Targets) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
        W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
    {
        let layer = fmt::layer().with_ansi(false).with_writer(writer);
        if self.json {
            layer.json().flatten_event(true).with_filter(filter).boxed()
        } else {
            layer.with_filter(filter).boxed()
        }
    }
}

impl LogFiles {
    fn new(settings: &Settings, home: &Home, role: Role<'_>) -> Self {
        let directory = settings.path("log.dir").unwrap_or_else(|| home.logs());
        let (main, sessions) = match role {
            Role::Host => ("host.log".to_owned(), Some(directory.join("profiler.log"))),
            Role::Agent(node) => (format!("client-{node}.log"), None),
        };
        Self {
            main: directory.join(main),
            sessions,
            bytes_max: settings.bytes("log.max_size").unwrap_or(20_000_000),
            files_max: settings.get("log.max_files").unwrap_or(5),
        }
    }

    fn open(&self, path: &Path, guard: &mut LogGuard) -> anyhow::Result<NonBlocking> {
        let file = RotatingFile::open(path, self.bytes_max, self.files_max)
            .with_context(|| format!("cannot write the log `{}`", path.display()))?;
        let (writer, worker) = tracing_appender::non_blocking(file);
        guard.0.push(worker);
        Ok(writer)
    }
}
