//! `gswarm host start|stop|status`.

use anyhow::Context as _;

use super::{Context, brief, lasting, start_in_background, status};
use crate::args::host::{HostCommand, HostStart, HostStop};
use crate::fault::Fault;
use crate::logs::{LogPlan, Role};
use crate::output::{Page, remark};
use crate::plan::HostPlan;
use crate::plan::host::{HostWish, data_dir};
use crate::process::{self, RunFile, background};
use crate::{paths, ports, serve};

pub(super) fn host(context: &Context, command: &HostCommand) -> anyhow::Result<()> {
    match command {
        HostCommand::Start(args) => start(context, args),
        HostCommand::Stop(args) => brief(stop(context, args)),
        HostCommand::Status => brief(status::status(context)),
    }
}

pub(super) fn start(context: &Context, args: &HostStart) -> anyhow::Result<()> {
    refuse_target(context)?;
    let simulated = args.sim || context.settings.switch("host.sim");
    let wish = HostWish { listen: &args.listen, recorder: &args.recorder, simulated };
    let plan = HostPlan::new(&wish, &context.settings, &context.home)?;
    let log = log_plan(context);
    ready_to_start(&plan)?;
    if args.background {
        return start_in_background(context, &plan.data_dir, log.background_file());
    }
    let _log = open_log(context, &log)?;
    lasting(serve::run_host(plan))
}

pub(super) fn log_plan(context: &Context) -> LogPlan {
    let Context { settings, environment, home, detached, .. } = context;
    LogPlan::new(settings, environment, home, Role::Host, *detached)
}

/// Detaches where asked to, and sends events to the log.
pub(super) fn open_log(context: &Context, log: &LogPlan) -> anyhow::Result<crate::logs::LogGuard> {
    if context.detached {
        background::detach()?;
    }
    let guard = log.start()?;
    if let Some(file) = log.file().filter(|_| !context.detached) {
        remark(&format!("log: {}", file.display()));
    }
    Ok(guard)
}

/// Says clearly, before anything is touched, why a host cannot start. The data directory is made
/// last: an empty one would look like a recording without sessions.
pub(super) fn ready_to_start(plan: &HostPlan) -> anyhow::Result<()> {
    if let Some(run) = RunFile::alive(&plan.data_dir) {
        let message = format!(
            "a host already records into `{}` (pid {}, at {})",
            plan.data_dir.display(),
            run.identity.pid,
            run.addresses.join(", ")
        );
        let fault = Fault::conflict(message)
            .hint("use it with `gswarm status`, stop it with `gswarm host stop`, or choose another --data-dir");
        return Err(fault.into());
    }
    brief(ports::require_free(plan.listen, &plan.ports))?;
    for directory in [&plan.output_dir, &plan.data_dir] {
        let made = if directory == &plan.data_dir {
            paths::make_private(directory)
        } else {
            std::fs::create_dir_all(directory)
        };
        made.with_context(|| format!("cannot make the directory `{}`", directory.display()))?;
        rustix::fs::access(directory, rustix::fs::Access::WRITE_OK)
            .map_err(std::io::Error::from)
            .with_context(|| format!("cannot write to `{}`", directory.display()))?;
    }
    Ok(())
}

/// `--host` names a host to talk to; a host that starts has an address to listen on.
pub(super) fn refuse_target(context: &Context) -> anyhow::Result<()> {
    match &context.host {
        None => Ok(()),
        Some(_) => Err(Fault::invalid("--host names a host to talk to, not one to start")
            .hint("--listen ADDR says where a new host listens")
            .into()),
    }
}

async fn stop(context: &Context, args: &HostStop) -> anyhow::Result<()> {
    refuse_target(context).map_err(|_| {
        Fault::invalid("`host stop` stops the host of this machine only")
            .hint("run it on the host's own machine, or use `gsprof exit ADDR`")
    })?;
    let simulated = args.sim || context.settings.switch("host.sim");
    let directories = match &args.data_dir {
        Some(directory) => vec![directory.clone()],
        None if simulated => vec![data_dir(None, true, &context.settings, &context.home)?],
        None => vec![
            data_dir(None, false, &context.settings, &context.home)?,
            data_dir(None, true, &context.settings, &context.home)?,
        ],
    };
    let Some(run) = directories.iter().find_map(|directory| RunFile::alive(directory)) else {
        let places: Vec<String> =
            directories.iter().map(|directory| format!("`{}`", directory.display())).collect();
        return Err(Fault::not_found(format!("no host runs in {}", places.join(" or ")))
            .hint("name its directory with --data-dir; `gswarm doctor` shows who owns the ports")
            .into());
    };
    process::stop(run.identity).await?;
    context.output.show(&run, |run| {
        Page::default().line(format!("host stopped (process {})", run.identity.pid))
    })
}
