//! The commands of `gsprof`, over the same code as `gswarm`.

use std::process::ExitCode;

use super::{Context, SettingsUse, analyze, brief, client, done, host, recover, session};
use crate::args::gsprof::{Gsprof, GsprofCommand};
use crate::output::Page;
use crate::tool::Tool;

pub(super) fn run(cli: Gsprof) -> anyhow::Result<ExitCode> {
    let Gsprof { common, command } = cli;
    let context =
        |head: Option<String>| Context::new(Tool::Gsprof, &common, head, SettingsUse::Heeded);
    match command {
        GsprofCommand::Start(args) => host::start(&context(None)?, &args.into_host_start()),
        GsprofCommand::Connect(args) => client::connect(&context(None)?, &args),
        GsprofCommand::Profile(args) => {
            brief(session::start(&context(args.head.head)?, args.start))
        },
        GsprofCommand::Status(head) => brief(session::status(&context(head.head)?)),
        GsprofCommand::Stop(args) => {
            brief(session::stop(&context(args.head.head)?, &args.stop.key))
        },
        GsprofCommand::Recover(args) => {
            brief(recover::recover(&context(args.host)?, &args.recover))
        },
        GsprofCommand::Stat(args) => analyze::analyze(&context(None)?, &args),
        GsprofCommand::Exit(head) => brief(exit(&context(head.head)?)),
    }
    .map(done)
}

/// Asks the head node to stop, wherever it runs.
async fn exit(context: &Context) -> anyhow::Result<()> {
    let client = context.client()?;
    let body = client.stop_host().await?;
    context.output.show(&body, |_| {
        Page::default().line(format!("the head node at {} stops", client.target()))
    })
}
