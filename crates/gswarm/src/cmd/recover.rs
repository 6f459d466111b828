//! `recover`: sessions after a crash, from the host or from its data directory.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context as _;
use gswarm_api::body::{SessionBody, SessionsBody};
use gswarm_api::{Client, ClientError};
use gswarm_types::{SessionId, SessionName};

use super::Context;
use super::export::{self, ExportedBody};
use super::session::{session_key, sessions_page};
use crate::args::recover::RecoverArgs;
use crate::fault::Fault;
use crate::output::{Page, remark};
use crate::plan::ExportFormat;
use crate::plan::host::data_dir;
use crate::serve;

/// Where the sessions are read from.
#[derive(Debug)]
enum Source {
    Host(Box<Client>),
    Directory(PathBuf),
}

pub(super) async fn recover(context: &Context, args: &RecoverArgs) -> anyhow::Result<()> {
    let key = session_key(&args.key)?;
    let (source, body) = find(context, args).await?;
    match (key, args.export) {
        (None, false) => context.output.show(&body, sessions_page),
        (None, true) => Err(Fault::invalid("which session?")
            .hint("add --name NAME or --session-id ID; `recover --list` shows them")
            .into()),
        (Some(key), false) => show(context, &source, pick(&body, &key)?),
        (Some(key), true) => {
            let format = args.format.unwrap_or(ExportFormat::Json);
            let session = pick(&body, &key)?;
            let written = write(&source, session, format).await?;
            export::exported(context, &written)
        },
    }
}

/// The host where it answers, otherwise its data directory on this machine.
async fn find(context: &Context, args: &RecoverArgs) -> anyhow::Result<(Source, SessionsBody)> {
    let client = context.client()?;
    match client.sessions().await {
        Ok(body) => Ok((Source::Host(Box::new(client)), body)),
        Err(ClientError::Unreachable { target, .. }) if target.is_loopback() => {
            let directory = offline_directory(context, args)?;
            remark(&format!("no host answers at {target}; reading `{}`", directory.display()));
            let body = serve::recover_offline(&directory).await?;
            Ok((Source::Directory(directory), body))
        },
        Err(error) => Err(error.into()),
    }
}

fn offline_directory(context: &Context, args: &RecoverArgs) -> anyhow::Result<PathBuf> {
    let candidates = match &args.data_dir {
        Some(directory) => vec![directory.clone()],
        None => vec![
            data_dir(None, false, &context.settings, &context.home)?,
            data_dir(None, true, &context.settings, &context.home)?,
        ],
    };
    // Opening a directory that is not there would make it, and find nothing in it.
    let exists = |path: &&PathBuf| path.try_exists().unwrap_or(false);
    if let Some(found) = candidates.iter().find(exists) {
        return Ok(found.clone());
    }
    let first = candidates.first().map(|path| path.display().to_string()).unwrap_or_default();
    Err(Fault::not_found(format!("no host answers and there is no recording in `{first}`"))
        .hint("name its directory with --data-dir, or a running host with --host ADDR")
        .into())
}

/// The session of this id, or the newest of this name.
fn pick<'a>(body: &'a SessionsBody, key: &str) -> Result<&'a SessionBody, Fault> {
    let of_id = body.sessions.iter().find(|session| session.id == key);
    let newest = || {
        let named = body.sessions.iter().filter(|session| session.name == key);
        named.max_by(|a, b| a.created.cmp(&b.created))
    };
    of_id.or_else(newest).ok_or_else(|| {
        Fault::not_found(format!("there is no session `{key}`")).hint("`recover --list` shows them")
    })
}

fn show(context: &Context, source: &Source, session: &SessionBody) -> anyhow::Result<()> {
    context.output.show(session, |session| {
        let next = match (source, session.active) {
            (Source::Host(_), true) => "it is open and recording; nothing was lost",
            (Source::Directory(_), true) => "it goes on by itself when the host starts again",
            (_, false) => "it is stopped; `recover --export` writes its file",
        };
        sessions_page(&SessionsBody { sessions: vec![session.clone()] })
            .then(Page::default().line(next))
    })
}

/// Writes `<name>.json` into the working directory, or `<name>-2.json` where that exists.
async fn write(
    source: &Source,
    session: &SessionBody,
    format: ExportFormat,
) -> anyhow::Result<ExportedBody> {
    // The name came from outside and becomes a path.
    let name = SessionName::new(session.name.clone())?;
    let id: SessionId = session.id.parse()?;
    let part = export::part_of(&PathBuf::from(format!("{id}.{}", format.extension())));
    let bytes = match source {
        Source::Host(client) => {
            let mut download = client.export(&session.id, format.as_str()).await?;
            export::fetch(&mut download, &part, name.as_str()).await?
        },
        Source::Directory(directory) => {
            // Says early, and in our words, when the working directory cannot be written.
            File::create(&part).with_context(|| format!("cannot write `{}`", part.display()))?;
            serve::export_offline(directory, &session.id, format, &part)
                .await
                .inspect_err(|_| drop(std::fs::remove_file(&part)))?
        },
    };
    let file = export::settle_numbered(&part, name.as_str(), format.extension())?;
    Ok(ExportedBody { file, bytes })
}
