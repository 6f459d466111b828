//! `gswarm client connect|status|disconnect` and `gswarm join`.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;

use super::{Context, brief, host, start_in_background};
use crate::args::client::{AgentArgs, ClientCommand, ConnectArgs};
use crate::fault::Fault;
use crate::logs::{LogPlan, Role};
use crate::output::{Page, Table, Tone, remark};
use crate::plan::agent::PlannedAgent;
use crate::process::{self, RunFile};
use crate::{paths, serve, units};

/// The agents of this machine, as `--json` shows them.
#[derive(Debug, Serialize)]
struct AgentsBody {
    agents: Vec<LocalAgent>,
}

/// An agent that runs here.
#[derive(Debug, Serialize)]
struct LocalAgent {
    #[serde(flatten)]
    run: RunFile,
    state_dir: PathBuf,
}

pub(super) fn client(context: &Context, command: &ClientCommand) -> anyhow::Result<()> {
    match command {
        ClientCommand::Connect(args) => connect(context, args),
        ClientCommand::Status(args) => status(context, args),
        ClientCommand::Disconnect(args) => brief(disconnect(context, args)),
    }
}

pub(super) fn connect(context: &Context, args: &ConnectArgs) -> anyhow::Result<()> {
    if args.token.is_some() {
        return Err(without_token(args).into());
    }
    let address = args.address.as_deref().or(context.host.as_deref());
    let target = context.settings.target(address)?;
    let PlannedAgent { plan, note } =
        PlannedAgent::new(args, target, &context.settings, &context.home)?;
    if let Some(note) = note {
        remark(&note);
    }
    refuse_second(&plan.state_dir)?;
    paths::make_private(&plan.state_dir)
        .with_context(|| format!("cannot make the directory `{}`", plan.state_dir.display()))?;
    let role = Role::Agent(plan.node_name.as_str());
    let Context { settings, environment, home, detached, .. } = context;
    let log = LogPlan::new(settings, environment, home, role, *detached);
    if args.background {
        return start_in_background(context, &plan.state_dir, log.background_file());
    }
    let _log = host::open_log(context, &log)?;
    brief(serve::run_agent(plan))
}

/// Everybody on a machine can read the command lines of its processes, and an agent runs for months:
/// it goes on as the same process, with the token in its environment. Returns only if that fails.
fn without_token(args: &ConnectArgs) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut rest = Vec::new();
    let mut own = std::env::args_os();
    let name = own.next().unwrap_or_else(|| program.clone().into_os_string());
    while let Some(argument) = own.next() {
        if argument == "--token" {
            own.next();
        } else if !argument.to_string_lossy().starts_with("--token=") {
            rest.push(argument);
        }
    }
    std::process::Command::new(program)
        .arg0(name)
        .args(rest)
        .env("GSWARM_AGENT__TOKEN", args.token.as_deref().unwrap_or_default())
        .exec()
}

fn refuse_second(state_dir: &std::path::Path) -> Result<(), Fault> {
    let Some(run) = RunFile::alive(state_dir) else { return Ok(()) };
    let node = run.node.unwrap_or_default();
    let target = run.target.unwrap_or_default();
    let message = format!(
        "the agent `{node}` already runs here (pid {}) and sends to {target}",
        run.identity.pid
    );
    Err(Fault::conflict(message).hint(format!(
        "stop it with `gswarm client disconnect -n {node}`, or give this one another name with -n"
    )))
}

fn status(context: &Context, args: &AgentArgs) -> anyhow::Result<()> {
    let body = AgentsBody { agents: local_agents(context, args) };
    context.output.show(&body, |body| {
        if body.agents.is_empty() {
            return Page::default()
                .line("no agent runs on this machine")
                .line("start one with `gswarm join HOST`");
        }
        let mut table =
            Table::new(["NODE", "STATE", "HOST", "PID>", "SINCE", "VERSION", "STATE DIRECTORY"]);
        for agent in &body.agents {
            table.row([
                agent.run.node.clone().unwrap_or_default(),
                Tone::Good.paint("running"),
                agent.run.target.clone().unwrap_or_default(),
                agent.run.identity.pid.to_string(),
                units::time(&agent.run.started_at),
                agent.run.version.clone(),
                agent.state_dir.display().to_string(),
            ]);
        }
        Page::default().table(table)
    })
}

async fn disconnect(context: &Context, args: &AgentArgs) -> anyhow::Result<()> {
    let agents = local_agents(context, args);
    let agent = match agents.as_slice() {
        [agent] => agent,
        [] => {
            let which =
                args.node_id.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
            return Err(Fault::not_found(format!("no agent{which} runs on this machine"))
                .hint("`gswarm client status` lists those that do")
                .into());
        },
        several => {
            let names: Vec<&str> =
                several.iter().filter_map(|agent| agent.run.node.as_deref()).collect();
            return Err(Fault::invalid(format!("several agents run here: {}", names.join(", ")))
                .hint("say which one with -n NAME")
                .into());
        },
    };
    process::stop(agent.run.identity).await?;
    context.output.show(agent, |agent| {
        let node = agent.run.node.as_deref().unwrap_or_default();
        Page::default().line(format!("agent `{node}` stopped (process {})", agent.run.identity.pid))
    })
}

/// The agents that run here and fit the flags, by name.
fn local_agents(context: &Context, args: &AgentArgs) -> Vec<LocalAgent> {
    let directories: Vec<PathBuf> =
        match args.state_dir.clone().or_else(|| context.settings.path("agent.state_dir")) {
            Some(directory) => vec![directory],
            None => context
                .home
                .agent_folders()
                .iter()
                .filter_map(|folder| fs::read_dir(folder).ok())
                .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
                .collect(),
        };
    let mut agents: Vec<LocalAgent> = directories
        .into_iter()
        .filter_map(|state_dir| Some(LocalAgent { run: RunFile::alive(&state_dir)?, state_dir }))
        .filter(|agent| args.node_id.is_none() || agent.run.node == args.node_id)
        .collect();
    agents.sort_by(|a, b| a.run.node.cmp(&b.run.node));
    agents
}

/// How many agents run on this machine.
pub(super) fn local_count(context: &Context) -> usize {
    local_agents(context, &AgentArgs::default()).len()
}
