//! `profiler read`: the latest values.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use gswarm_api::body::LatestBody;

use super::{Context, gpu};
use crate::args::profiler::ReadArgs;
use crate::fault::Fault;
use crate::output::Page;
use crate::units;

pub(super) async fn read(context: &Context, args: &ReadArgs) -> anyhow::Result<()> {
    let mut body = context.client()?.latest().await?;
    if let Some(node) = &args.node {
        body.nodes.retain(|latest| latest.node == *node || latest.node_id == *node);
        if body.nodes.is_empty() {
            return Err(Fault::not_found(format!("there are no values of a node `{node}`"))
                .hint("`gswarm nodes` lists the nodes")
                .into());
        }
    }
    match &args.output {
        Some(path) if path == Path::new("-") => context.output.json(&body),
        Some(path) => write(context, path, &body),
        None => context.output.show(&body, page),
    }
}

fn write(context: &Context, path: &Path, body: &LatestBody) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(body)?;
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    context.output.page(&Page::default().line(path.display().to_string()))
}

fn page(body: &LatestBody) -> Page {
    let rows = || {
        body.nodes.iter().flat_map(|latest| {
            latest.devices.iter().map(move |device| (latest.node.as_str(), device))
        })
    };
    let gpus = gpu::table(rows());
    let machines = gpu::machines(rows());
    let page = Page::default().line(format!("latest values at {}", units::time(&body.time)));
    let page = if gpus.is_empty() { page.line("no GPU") } else { page.table(gpus) };
    if machines.is_empty() { page } else { page.blank().table(machines) }
}
