//! From flags and settings to an agent's plan.

use std::path::PathBuf;

use anyhow::Context as _;
use gswarm_api::Target;
use gswarm_device::{DeviceSpec, parse_extra_metrics};
use gswarm_tls::Token;
use gswarm_types::{Allow, AllowSet, NodeName};

use super::host::absolute;
use super::{AgentPlan, Way};
use crate::args::client::ConnectArgs;
use crate::config::Settings;
use crate::fault::Fault;
use crate::paths::{Home, StateDir, hostname};

/// An agent's plan and where its state went, if that needs a word.
#[derive(Debug)]
pub(crate) struct PlannedAgent {
    pub(crate) plan: AgentPlan,
    pub(crate) note: Option<String>,
}

impl PlannedAgent {
    pub(crate) fn new(
        args: &ConnectArgs,
        target: Target,
        settings: &Settings,
        home: &Home,
    ) -> anyhow::Result<Self> {
        let node_name = node_name(args.node_id.as_deref(), settings)?;
        let devices = devices(args.devices.as_deref(), settings)?;
        let flag = args.state_dir.clone().or_else(|| settings.path("agent.state_dir"));
        let state = match flag {
            Some(path) => StateDir { path: absolute(&path)?, note: None },
            None => home.agent_state(&node_name, devices.is_simulated()),
        };
        let plan = AgentPlan {
            target,
            node_name,
            state_dir: absolute(&state.path)?,
            devices,
            extra_metrics: parse_extra_metrics(&text(
                args.extra_metrics.as_deref(),
                settings,
                "agent.extra_metrics",
            ))?,
            period: args.freq.or_else(|| settings.period("agent.freq")),
            allow: allow(&text(args.allow.as_deref(), settings, "agent.allow"))?,
            resilient: args.resilient || (!args.no_resilient && settings.switch("agent.resilient")),
            nvml_library: nvml_library(args.nvml_library.clone(), settings),
            way: Way::Plain,
        };
        let way = way(args, &plan, settings)?;
        let plan = AgentPlan { way, ..plan };
        Ok(Self { plan, note: state.note })
    }
}

/// A host on this machine needs no certificate, and a node that has one shows it.
fn way(args: &ConnectArgs, plan: &AgentPlan, settings: &Settings) -> anyhow::Result<Way> {
    if args.insecure || settings.switch("agent.insecure") {
        return Ok(Way::Plain);
    }
    let token = match args.token.as_deref().or_else(|| settings.text("agent.token")) {
        Some(text) => Some(text.to_owned()),
        None if plan.target.is_loopback() => None,
        None => token_file(settings)?,
    };
    let token: Option<Token> = token.map(|text| text.parse()).transpose().map_err(|error| {
        Fault::invalid(format!("the token cannot be used: {error}"))
            .hint("`gswarm token create` on the host makes one")
    })?;
    if plan.target.is_loopback() && token.is_none() && !gswarm_node::has_joined(&plan.state_dir) {
        return Ok(Way::Plain);
    }
    Ok(Way::Tls { token })
}

/// What an image or a configuration tool left for this machine.
fn token_file(settings: &Settings) -> anyhow::Result<Option<String>> {
    let Some(path) = settings.path("agent.token_file") else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

/// Flag, `agent.node_id`, hostname.
pub(crate) fn node_name(flag: Option<&str>, settings: &Settings) -> anyhow::Result<NodeName> {
    match flag.or_else(|| settings.text("agent.node_id")) {
        Some(name) => Ok(NodeName::new(name)?),
        None => Ok(NodeName::from_hostname(&hostname())),
    }
}

/// Flag, `agent.devices`, whatever the machine has.
fn devices(flag: Option<&str>, settings: &Settings) -> anyhow::Result<DeviceSpec> {
    Ok(text(flag, settings, "agent.devices").parse()?)
}

pub(crate) fn nvml_library(flag: Option<PathBuf>, settings: &Settings) -> Option<PathBuf> {
    flag.or_else(|| settings.path("agent.nvml_library"))
}

fn text(flag: Option<&str>, settings: &Settings, key: &str) -> String {
    flag.or_else(|| settings.text(key)).unwrap_or_default().to_owned()
}

fn allow(list: &str) -> anyhow::Result<AllowSet> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    Ok(words.map(str::parse::<Allow>).collect::<Result<Vec<_>, _>>()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn plan(args: &ConnectArgs) -> anyhow::Result<AgentPlan> {
        let environment =
            Environment::from([("GSWARM_HOME", "/h"), ("GSWARM_AGENT__NODE_ID", "n1")]);
        let home = Home::find(&environment);
        let settings = Settings::load(&environment, home.root(), None).unwrap();
        PlannedAgent::new(args, Target::local(), &settings, &home).map(|agent| agent.plan)
    }

    #[test]
    fn an_agent_that_was_told_nothing_observes_and_stays() {
        let plan = plan(&ConnectArgs::default()).unwrap();
        assert_eq!(plan.node_name.as_str(), "n1");
        assert_eq!(plan.devices, DeviceSpec::Auto);
        assert_eq!(plan.allow.to_string(), "observe");
        assert!(plan.resilient && plan.period.is_none());
        assert!(plan.state_dir.starts_with("/h/state") && plan.state_dir.ends_with("n1"));
    }

    #[test]
    fn flags_decide() {
        let args = ConnectArgs {
            node_id: Some("rack7".to_owned()),
            devices: Some("sim:8xh100,seed=7".to_owned()),
            allow: Some("probe, models".to_owned()),
            no_resilient: true,
            ..ConnectArgs::default()
        };
        let plan = plan(&args).unwrap();
        assert!(plan.devices.is_simulated() && !plan.resilient);
        assert_eq!(plan.allow.to_string(), "observe,probe,models");
        assert!(plan.state_dir.starts_with("/h/state-sim") && plan.state_dir.ends_with("rack7"));
    }

    #[track_caller]
    fn check_refused(args: ConnectArgs, part: &str) {
        let error = plan(&args).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let args = ConnectArgs::default;
        let some = |text: &str| Some(text.to_owned());
        check_refused(ConnectArgs { node_id: some("../x"), ..args() }, "is not a node name");
        check_refused(ConnectArgs { devices: some("tpu"), ..args() }, "unknown devices `tpu`");
        check_refused(ConnectArgs { allow: some("root"), ..args() }, "cannot be allowed");
        check_refused(
            ConnectArgs { extra_metrics: some("nope"), ..args() },
            "unknown metric `nope`",
        );
    }
}
