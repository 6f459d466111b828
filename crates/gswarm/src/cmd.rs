//! The commands: parse, call one method, render.

mod host;
mod client;
mod up;
mod status;
mod node;
mod gpu;
mod event;
mod session;
mod export;
mod recover;
mod read;
mod analyze;
mod configuration;
mod doctor;
mod bench;
mod gsprof;
mod access;

use std::future::Future;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory, Parser};
use gswarm_api::{Client, Credentials as Shown, Target};
use gswarm_tls::{HostTrust, Secret, Token};

use crate::args::bench::BenchCommand;
use crate::args::gsprof::Gsprof;
use crate::args::profiler::ProfilerCommand;
use crate::args::{Cli, Command, Common, ConfigCommand, NodeCommand};
use crate::config::{Environment, Settings};
use crate::fault::{self, Fault};
use crate::output::{Output, Page, remark};
use crate::paths::Home;
use crate::process::background;
use crate::secure::{self, Credentials};
use crate::tool::Tool;

pub(crate) use analyze::text as analysis_text;

/// Runs `gswarm`.
pub fn main_gswarm() -> ExitCode {
    Tool::Gswarm.speak();
    match Cli::try_parse() {
        Ok(cli) => finish(run(cli)),
        Err(error) => usage(&error),
    }
}

/// Runs `gsprof`.
pub fn main_gsprof() -> ExitCode {
    Tool::Gsprof.speak();
    match Gsprof::try_parse() {
        Ok(cli) => finish(gsprof::run(cli)),
        Err(error) => usage(&error),
    }
}

/// What every command knows.
#[derive(Debug)]
struct Context {
    environment: Environment,
    settings: Settings,
    /// Why the configuration cannot be read, for commands that go on without it.
    unreadable: Option<anyhow::Error>,
    home: Home,
    output: Output,
    /// `--host`, or the address an old command takes.
    host: Option<String>,
    /// Started by `--background`.
    detached: bool,
    tool: Tool,
}

/// What a command does about a wrong configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettingsUse {
    /// It does not care.
    None,
    /// It reports on it.
    Inspected,
    /// Stops at values that cannot be used, warns of keys that mean nothing.
    Heeded,
}

impl Context {
    fn new(
        tool: Tool,
        common: &Common,
        host: Option<String>,
        settings_use: SettingsUse,
    ) -> anyhow::Result<Self> {
        let environment = Environment::capture();
        let home = Home::find(&environment);
        let config = common.config.as_deref();
        let loaded = Settings::load(&environment, home.root(), config);
        let (settings, unreadable) = match (settings_use, loaded) {
            (SettingsUse::None, _) => (Settings::default(), None),
            (_, Ok(settings)) => (settings, None),
            (SettingsUse::Inspected, Err(error)) => (Settings::with_defaults(), Some(error)),
            (SettingsUse::Heeded, Err(error)) => return Err(error),
        };
        if settings_use == SettingsUse::Heeded {
            settings.refuse_wrong_values()?;
            for problem in &settings.problems {
                remark(&format!("warning: {problem}"));
            }
        }
        let output = Output::new(common.json, environment.permits_colour());
        let detached = common.detached;
        Ok(Self { environment, settings, unreadable, home, output, host, detached, tool })
    }

    fn target(&self) -> anyhow::Result<Target> {
        self.settings.target(self.host.as_deref())
    }

    fn client(&self) -> anyhow::Result<Client> {
        let target = self.target()?;
        let shown = self.credentials(&target)?;
        Ok(Client::new(target, shown)?)
    }

    /// What this user can show to the host: `GSWARM_TOKEN`, what `login` kept, or the token of the
    /// host that the same user runs on this machine.
    fn credentials(&self, target: &Target) -> anyhow::Result<Shown> {
        let given = self.environment.get("GSWARM_TOKEN").map(Secret::new);
        let kept = match given {
            Some(token) => Some(token),
            None => Credentials::open(self.home.root())?.token(target),
        };
        if kept.is_none() && target.is_loopback() {
            let own = secure::read_local_token(self.home.root(), target.port());
            return Ok(own.map_or_else(Shown::default, |own| Shown {
                trust: own.trust,
                bearer: Some(own.token),
            }));
        }
        let Some(secret) = kept else { return Ok(Shown::default()) };
        let token: Token = secret.expose().parse().map_err(|error| {
            Fault::invalid(format!("the token for {target} cannot be used: {error}"))
                .hint(format!("log in again with `gswarm login {target}`"))
        })?;
        // Also on this machine: whoever listens there need not be the host.
        let trust = Some(HostTrust::Fingerprint(token.authority()));
        Ok(Shown { trust, bearer: Some(secret) })
    }

    /// How the user stops a session, in the tool's own words.
    fn stop_command(&self, name: &str) -> String {
        match self.tool {
            Tool::Gsprof => {
                let head = self.target().map(|target| format!(" {target}")).unwrap_or_default();
                format!("gsprof stop{head} --name {name}")
            },
            Tool::Gswarm => {
                let host =
                    self.host.as_deref().map(|host| format!(" --host {host}")).unwrap_or_default();
                format!("gswarm profiler stop --name {name}{host}")
            },
        }
    }
}

fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when the terminal is gone.
    let _gone = error.print();
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => match fault::judge(&error) {
            None => ExitCode::SUCCESS,
            Some(verdict) => {
                remark(&verdict.text);
                ExitCode::from(verdict.exit_code)
            },
        },
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { global, command } = cli;
    let settings = match &command {
        Some(Command::Version | Command::Completions { .. }) => SettingsUse::None,
        Some(Command::Doctor(_) | Command::Config(_)) => SettingsUse::Inspected,
        _ => SettingsUse::Heeded,
    };
    let context = Context::new(Tool::Gswarm, &global.common, global.host, settings)?;
    match command {
        None => brief(status::overview(&context)).map(done),
        Some(command) => dispatch(&context, command),
    }
}

fn dispatch(context: &Context, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(args) => up::up(context, &args).map(done),
        Command::Host(command) => host::host(context, &command).map(done),
        Command::Client(command) => client::client(context, &command).map(done),
        Command::Join(args) => client::connect(context, &args).map(done),
        Command::Status => brief(status::status(context)).map(done),
        Command::Nodes(args) => match args.command {
            None => brief(node::nodes(context)).map(done),
            Some(command) => brief(access::nodes(context, &command)).map(done),
        },
        Command::Token(command) => brief(access::token(context, &command)).map(done),
        Command::Login(args) => brief(access::login(context, &args)).map(done),
        Command::Logout(args) => access::logout(context, &args).map(done),
        Command::Node(NodeCommand::Status { node }) => {
            brief(node::status(context, &node)).map(done)
        },
        Command::Health => brief(status::health(context)),
        Command::Events(args) => brief(event::events(context, &args)).map(done),
        Command::Profiler(command) => brief(profiler(context, command)).map(done),
        Command::Retention(args) => brief(status::retention(context, &args)).map(done),
        Command::Config(ConfigCommand::Check) => configuration::check(context),
        Command::Config(ConfigCommand::Show) => configuration::show(context).map(done),
        Command::Doctor(args) => brief(doctor::doctor(context, &args)),
        Command::Bench(BenchCommand::Ingest(args)) => bench::ingest(context, &args),
        Command::Version => status::version(&context.output).map(done),
        Command::Completions { shell } => completions(shell, &context.output).map(done),
    }
}

async fn profiler(context: &Context, command: ProfilerCommand) -> anyhow::Result<()> {
    match command {
        ProfilerCommand::Start(args) => session::start(context, args).await,
        ProfilerCommand::Stop(args) => session::stop(context, &args.key).await,
        ProfilerCommand::Status => session::status(context).await,
        ProfilerCommand::Sessions => session::sessions(context).await,
        ProfilerCommand::Recover(args) => recover::recover(context, &args).await,
        ProfilerCommand::Delete(args) => session::delete(context, &args.key).await,
        ProfilerCommand::Export(args) => export::export(context, &args).await,
        ProfilerCommand::Capture(args) => session::capture(context, args).await,
        ProfilerCommand::Read(args) => read::read(context, &args).await,
        ProfilerCommand::EnableBandwidth => session::bandwidth(context, true).await,
        ProfilerCommand::DisableBandwidth => session::bandwidth(context, false).await,
        ProfilerCommand::EnableNvlink => session::nvlink(context, true).await,
        ProfilerCommand::DisableNvlink => session::nvlink(context, false).await,
        ProfilerCommand::Analyze(args) => analyze::analyze(context, &args),
    }
}

fn completions(shell: clap_complete::Shell, output: &Output) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gswarm", &mut script);
    output.raw(&script)
}

fn done(_nothing: ()) -> ExitCode {
    ExitCode::SUCCESS
}

/// Runs a command that ends soon, on this thread.
fn brief<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(future)
}

/// Runs a host: many connections, all cores.
fn lasting(future: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(future)
}

/// `--background` for any process that announces itself in `directory`.
fn start_in_background(context: &Context, directory: &Path, log: &Path) -> anyhow::Result<()> {
    let started = brief(background::start(directory, log))?;
    context.output.show(&started.run, |run| {
        let place = if run.addresses.is_empty() {
            run.target.as_deref().map(|target| format!(", sending to {target}")).unwrap_or_default()
        } else {
            format!(", at {}", run.addresses.join(", "))
        };
        Page::default()
            .line(format!("started in the background: process {}{place}", run.identity.pid))
            .line(format!("log: {}", started.log.display()))
    })
}
