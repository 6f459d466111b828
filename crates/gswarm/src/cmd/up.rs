//! `gswarm up`: a host and its agents in one process.

use std::path::Path;

use gswarm_api::Target;
use gswarm_device::{DeviceSpec, nvml};
use gswarm_types::NodeName;

use super::{Context, host, lasting, start_in_background};
use crate::args::client::ConnectArgs;
use crate::args::host::UpArgs;
use crate::fault::Fault;
use crate::output::remark;
use crate::plan::agent::{PlannedAgent, nvml_library};
use crate::plan::host::HostWish;
use crate::plan::{AgentPlan, HostPlan, UpPlan};
use crate::serve;

/// What a simulated node has when nothing else was said.
const SIMULATED_DEVICES: &str = "sim:8xh100,scenario=training";

pub(super) fn up(context: &Context, args: &UpArgs) -> anyhow::Result<()> {
    host::refuse_target(context)?;
    let plan = plan(context, args)?;
    let log = host::log_plan(context);
    host::ready_to_start(&plan.host)?;
    if args.background {
        return start_in_background(context, &plan.host.data_dir, log.background_file());
    }
    offer_simulation(context, args, &plan);
    let _log = host::open_log(context, &log)?;
    lasting(serve::run_up(plan))
}

fn plan(context: &Context, args: &UpArgs) -> anyhow::Result<UpPlan> {
    let wish = HostWish { listen: &args.listen, recorder: &args.recorder, simulated: args.sim };
    let host = HostPlan::new(&wish, &context.settings, &context.home)?;
    let main_port = host.ports.first().copied().unwrap_or(gswarm_api::DEFAULT_PORT);
    // The agents of this process dial whatever address the host got; port 0 is filled in later.
    let target = Target::new(Target::local().host(), main_port);
    let agents = match args.nodes {
        None => vec![agent(context, args, target, None, &host.data_dir)?],
        Some(nodes) => (1..=nodes)
            .map(|number| agent(context, args, target.clone(), Some(number), &host.data_dir))
            .collect::<anyhow::Result<_>>()?,
    };
    for agent in &agents {
        check_kind(&agent.devices, args.sim)?;
    }
    Ok(UpPlan { host, agents })
}

fn agent(
    context: &Context,
    args: &UpArgs,
    target: Target,
    number: Option<u16>,
    data_dir: &Path,
) -> anyhow::Result<AgentPlan> {
    let simulated = || args.sim.then(|| SIMULATED_DEVICES.to_owned());
    let node_id = number.map(|number| format!("node{number}")).or_else(|| args.node_id.clone());
    let connect = ConnectArgs {
        node_id: node_id.clone(),
        devices: args.devices.clone().or_else(simulated),
        extra_metrics: args.extra_metrics.clone(),
        nvml_library: args.nvml_library.clone(),
        state_dir: args.state_dir.as_ref().map(|directory| match number {
            Some(_) => directory.join(node_id.as_deref().unwrap_or_default()),
            None => directory.clone(),
        }),
        resilient: true,
        ..ConnectArgs::default()
    };
    let PlannedAgent { mut plan, note } =
        PlannedAgent::new(&connect, target, &context.settings, &context.home)?;
    if args.sim && args.state_dir.is_none() {
        // Simulated nodes belong to their host's data and to nothing else.
        plan.state_dir = agents_folder(data_dir, &plan.node_name);
    } else if let Some(note) = note {
        remark(&note);
    }
    Ok(plan)
}

fn agents_folder(data_dir: &Path, node: &NodeName) -> std::path::PathBuf {
    data_dir.join("agents").join(node.as_str())
}

/// Simulated and real numbers never share a host.
fn check_kind(devices: &DeviceSpec, sim: bool) -> Result<(), Fault> {
    match (devices.is_simulated(), sim) {
        (true, false) => Err(Fault::invalid(format!("`{devices}` is not real"))
            .hint("add --sim: simulated devices get a host and a data directory of their own")),
        (false, true) => {
            Err(Fault::invalid(format!("`--devices {devices}` is real, --sim is not"))
                .hint("leave out one of the two"))
        },
        (true, true) | (false, false) => Ok(()),
    }
}

/// A machine without a GPU is recorded as it is; the simulation is one flag away.
fn offer_simulation(context: &Context, args: &UpArgs, plan: &UpPlan) {
    let automatic = plan.agents.iter().all(|agent| agent.devices == DeviceSpec::Auto);
    let chosen_library = nvml_library(args.nvml_library.clone(), &context.settings).is_some();
    if automatic && !chosen_library && nvml::gpus_on_pci_bus(Path::new("/sys")).is_empty() {
        remark(
            "no GPU on this machine: recording its CPUs, memory, disks and network; \
             `gswarm up --sim` shows the same with simulated GPUs",
        );
    }
}
