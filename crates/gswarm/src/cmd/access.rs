//! `gswarm token`, `gswarm login|logout`, `gswarm nodes approve|remove`.

use std::fs;

use anyhow::Context as _;
use gswarm_api::body::{NewTokenBody, TokenBody, TokenRequest, TokensBody};
use gswarm_api::{Client, Credentials as Shown, Target};
use gswarm_tls::{HostTrust, Secret, Token};

use super::Context;
use crate::args::access::{LoginArgs, LogoutArgs, NodesCommand, TokenCommand, TokenCreate};
use crate::fault::Fault;
use crate::output::{Page, Table, Tone, remark};
use crate::secure::{self, Credentials};
use crate::{paths, units};

pub(super) async fn token(context: &Context, command: &TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create(args) => create(context, args).await,
        TokenCommand::List => {
            let body = context.client()?.tokens().await?;
            context.output.show(&body, tokens_page)
        },
        TokenCommand::Revoke { id } => {
            let body = context.client()?.revoke_token(id).await?;
            context.output.show(&body, |token| {
                Page::default().line(format!("token {} ({}) is revoked", token.id, token.role))
            })
        },
    }
}

async fn create(context: &Context, args: &TokenCreate) -> anyhow::Result<()> {
    let client = context.client()?;
    let request = TokenRequest {
        role: args.role.clone(),
        life: args.days.map(|days| format!("{days}d")),
        max_uses: args.max_uses,
        note: args.note.clone(),
    };
    let body = client.create_token(&request).await?;
    if let Some(path) = &args.output {
        secure::write_private(path, &format!("{}\n", body.secret))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let status = client.status().await?;
    let host = join_address(client.target(), &status.addresses);
    context.output.show(&body, |body| token_page(body, args, host.as_deref()))?;
    if host.is_none() && body.token.role == "node" {
        remark(
            "this host serves its own machine only: stop it and run `gswarm host start --listen \
             0.0.0.0` to let others join",
        );
    }
    Ok(())
}

/// Where others reach the host; `None` for one that serves its own machine only.
pub(super) fn join_address(target: &Target, addresses: &[String]) -> Option<String> {
    let listens: Vec<std::net::SocketAddr> =
        addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let open = listens.iter().find(|address| !address.ip().is_loopback())?;
    let name = if !target.is_loopback() {
        target.host().to_owned()
    } else if open.ip().is_unspecified() {
        paths::hostname()
    } else {
        open.ip().to_string()
    };
    let port = open.port();
    let usual = port == gswarm_api::DEFAULT_PORT;
    Some(if usual { name } else { Target::new(&name, port).to_string() })
}

fn token_page(body: &NewTokenBody, args: &TokenCreate, host: Option<&str>) -> Page {
    let NewTokenBody { token, secret } = body;
    let uses = match token.max_uses {
        Some(1) => ", for one node".to_owned(),
        Some(uses) => format!(", for {uses} nodes"),
        None if token.role == "node" => ", for any number of nodes".to_owned(),
        None => String::new(),
    };
    let until = format!("token {} ({}), good until {}{uses}", token.id, token.role, token.expires);
    let page = Page::default().line(until);
    let host = host.unwrap_or("HOST");
    match (&args.output, token.role.as_str()) {
        (Some(path), "node") => page
            .line(format!(
                "it is in `{}`; on each machine put it into /etc/gswarm/join and run",
                path.display()
            ))
            .line(format!("  gswarm join {host}")),
        (Some(path), _) => page
            .line(format!("it is in `{}`; whoever has it runs", path.display()))
            .line(format!("  gswarm login {host} --token-file {}", path.display())),
        (None, "node") => {
            page.line("on each machine:").line(format!("  gswarm join {host} --token {secret}"))
        },
        (None, _) => page
            .line(secret.clone())
            .line(format!("it is shown this once; `gswarm login {host}` asks for it")),
    }
}

fn tokens_page(body: &TokensBody) -> Page {
    if body.tokens.is_empty() {
        return Page::default().line("no token yet").line("make one with `gswarm token create`");
    }
    let mut table = Table::new(["ID", "ROLE", "STATE", "EXPIRES", "USED>", "NOTE"]);
    for token in &body.tokens {
        table.row([
            token.id.clone(),
            token.role.clone(),
            state_cell(token),
            units::time(&token.expires),
            match token.max_uses {
                Some(most) => format!("{} of {most}", token.uses),
                None => token.uses.to_string(),
            },
            token.note.clone().unwrap_or_default(),
        ]);
    }
    Page::default().table(table)
}

fn state_cell(token: &TokenBody) -> String {
    match token.state.as_str() {
        "good" => Tone::Good.paint("good"),
        "used_up" => Tone::Quiet.paint("used up"),
        other => Tone::Quiet.paint(other),
    }
}

pub(super) async fn login(context: &Context, args: &LoginArgs) -> anyhow::Result<()> {
    let target = context.settings.target(args.address.as_deref().or(context.host.as_deref()))?;
    let secret = match &args.token_file {
        Some(path) => Secret::new(
            fs::read_to_string(path)
                .with_context(|| format!("cannot read `{}`", path.display()))?
                .trim(),
        ),
        None => secure::ask_secret(&format!("token for {target}"))?,
    };
    let token: Token = secret.expose().parse().map_err(|error| {
        Fault::invalid(format!("this is no token: {error}"))
            .hint("`gswarm token create --role viewer` on the host makes one")
    })?;
    let trust = Some(HostTrust::Fingerprint(token.authority()));
    let client = Client::new(target.clone(), Shown { trust, bearer: Some(token.reveal()) })?;
    let who = client.whoami().await?;
    let mut kept = Credentials::open(context.home.root())?;
    kept.keep(&target, &token)?;
    context.output.show(&who, |who| {
        Page::default().line(format!("logged in to {target} as {} ({})", who.principal, who.role))
    })
}

pub(super) fn logout(context: &Context, args: &LogoutArgs) -> anyhow::Result<()> {
    let target = context.settings.target(args.address.as_deref().or(context.host.as_deref()))?;
    let mut kept = Credentials::open(context.home.root())?;
    if !kept.forget(&target)? {
        return Err(Fault::not_found(format!("not logged in to {target}")).into());
    }
    context.output.show(&serde_json::json!({ "target": target.to_string() }), |_| {
        Page::default().line(format!("logged out of {target}"))
    })
}

pub(super) async fn nodes(context: &Context, command: &NodesCommand) -> anyhow::Result<()> {
    let client = context.client()?;
    match command {
        NodesCommand::Approve { name } => {
            let body = client.approve_node(name).await?;
            context.output.show(&body, |node| {
                Page::default().line(format!(
                    "`{}` (key {}, from {}) may join; it asks again within seconds",
                    node.name, node.key, node.address
                ))
            })
        },
        NodesCommand::Remove { name } => {
            let body = client.remove_node(name).await?;
            context.output.show(&body, |node| {
                Page::default()
                    .line(format!("`{}` is out: its certificate is worth nothing", node.name))
                    .line("what it recorded stays; with a new token it may join again")
            })
        },
    }
}
