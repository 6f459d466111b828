//! `gswarm nodes` and `gswarm node status`.

use gswarm_api::body::{NodeBody, NodeHealth, NodesBody};

use super::{Context, gpu};
use crate::output::{Page, Table, Tone};
use crate::units;

pub(super) async fn nodes(context: &Context) -> anyhow::Result<()> {
    let body = context.client()?.nodes().await?;
    context.output.show(&body, nodes_page)
}

pub(super) async fn status(context: &Context, node: &str) -> anyhow::Result<()> {
    let body = context.client()?.node(node).await?;
    context.output.show(&body, node_page)
}

fn nodes_page(body: &NodesBody) -> Page {
    if body.nodes.is_empty() && body.waiting.is_empty() && body.silent_members.is_empty() {
        return Page::default()
            .line("no node yet")
            .line("run `gswarm join HOST` on each machine with GPUs");
    }
    let mut table = Table::new([
        "NODE",
        "STATE",
        "GPUS",
        "LAST DATA>",
        "EVERY>",
        "UNSENT>",
        "CLOCK>",
        "VERSION",
        "ALLOWS",
    ]);
    for node in &body.nodes {
        table.row([
            node.name.clone(),
            health_cell(node),
            gpu::census(&node.devices),
            units::or_dash(node.silent_seconds, |seconds| {
                format!("{} ago", units::seconds(seconds))
            }),
            format!("{} ms", node.period_ms),
            units::or_dash(node.spool_records, |records| records.to_string()),
            units::or_dash(node.clock_offset_us, clock),
            version(node),
            node.allow.join(","),
        ]);
    }
    let mut page = Page::default();
    if !body.nodes.is_empty() {
        page = page.table(table);
    }
    if !body.waiting.is_empty() {
        page = waiting(body, if body.nodes.is_empty() { page } else { page.blank() });
    }
    for silent in &body.silent_members {
        page = page.line(format!(
            "`{}` joined {} and never delivered anything: `gswarm nodes remove {}` takes it out",
            silent.name,
            units::time(&silent.joined),
            silent.node_id
        ));
    }
    page
}

/// Who asks to be let in.
fn waiting(body: &NodesBody, page: Page) -> Page {
    let mut table = Table::new(["WAITING", "KEY", "FROM", "SINCE", "TO LET IT IN"]);
    for node in &body.waiting {
        table.row([
            node.name.clone(),
            node.key.clone(),
            node.address.clone(),
            units::time(&node.since),
            if node.approved {
                "approved".to_owned()
            } else {
                format!("gswarm nodes approve {}", node.name)
            },
        ]);
    }
    page.table(table)
}

fn node_page(node: &NodeBody) -> Page {
    let simulated = if node.simulated { " (simulated devices)" } else { "" };
    let page = Page::default().line(format!("{}{simulated}", node.name)).facts([
        ("  state", health_cell(node)),
        ("  hostname", node.hostname.clone()),
        ("  id", node.node_id.clone()),
        ("  version", version(node)),
        ("  last data", units::or_dash(node.last_seen.as_deref(), units::time)),
        ("  sampling", format!("every {} ms", node.period_ms)),
        (
            "  records",
            format!(
                "{} stored, {} unsent",
                node.records_stored,
                units::or_dash(node.spool_records, |records| records.to_string())
            ),
        ),
        ("  clock", clock_fact(node)),
        ("  allows", node.allow.join(", ")),
        ("  GPUs", gpu::census(&node.devices)),
    ]);
    let rows = || node.devices.iter().map(|device| ("", device));
    let page = with_table(page, "GPUs", gpu::table(rows()));
    let page = with_table(page, "Machine", gpu::machines(rows()));
    let page = with_table(page, "Processes", processes(node));
    with_table(page, "Gaps", gaps(node))
}

fn with_table(page: Page, title: &str, table: Table) -> Page {
    if table.is_empty() { page } else { page.blank().line(title).table(table) }
}

fn processes(node: &NodeBody) -> Table {
    // Most machines run no jobs; there the column would only take room.
    let has_jobs = node.processes.iter().any(|process| process.job.is_some());
    let heading = ["GPU>", "PID>", "USER"].into_iter().chain(has_jobs.then_some("JOB"));
    let mut table = Table::new(heading.chain(["PROGRAM", "MEMORY>", "KIND"]));
    for process in &node.processes {
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let memory = process.memory_bytes.map(|bytes| bytes as f64);
        let job = units::or_dash(process.job.clone(), |job| job);
        let whose = [
            process.gpu_index.to_string(),
            process.pid.to_string(),
            units::or_dash(process.user.clone(), |user| user),
        ];
        let what = [
            units::or_dash(process.name.clone(), |name| name),
            units::or_dash(memory, units::memory),
            process.kind.clone(),
        ];
        table.row(whose.into_iter().chain(has_jobs.then_some(job)).chain(what));
    }
    table
}

fn gaps(node: &NodeBody) -> Table {
    let mut table = Table::new(["FROM", "TO", "RECORDS>", "WHY", "FINAL"]);
    for gap in &node.gaps {
        table.row([
            units::or_dash(gap.from.as_deref(), units::time),
            units::or_dash(gap.to.as_deref(), units::time),
            gap.records.map_or_else(|| "unknown".to_owned(), |records| records.to_string()),
            gap.reason.clone(),
            if gap.is_final { "yes" } else { "may still come" }.to_owned(),
        ]);
    }
    table
}

fn health_cell(node: &NodeBody) -> String {
    match node.health {
        NodeHealth::Healthy => Tone::Good.paint("healthy"),
        NodeHealth::Unhealthy => Tone::Bad.paint("unhealthy"),
        NodeHealth::Stopped => Tone::Quiet.paint("stopped"),
        NodeHealth::Unseen => Tone::Warning.paint("unseen"),
        NodeHealth::Removed => Tone::Quiet.paint("removed"),
    }
}

fn version(node: &NodeBody) -> String {
    if node.legacy {
        format!("{} (old protocol)", node.agent_version)
    } else {
        node.agent_version.clone()
    }
}

fn clock_fact(node: &NodeBody) -> String {
    match (node.clock_offset_us, node.clock_error_us) {
        (Some(offset), Some(error)) => {
            format!("{} against the host, ± {}", clock(offset), magnitude(error))
        },
        (Some(offset), None) => format!("{} against the host", clock(offset)),
        (None, _) => "not measured yet".to_owned(),
    }
}

/// `+1.2 ms`: node clock minus host clock.
fn clock(offset_us: i64) -> String {
    let sign = if offset_us < 0 { '-' } else { '+' };
    format!("{sign}{}", magnitude(offset_us))
}

fn magnitude(micros: i64) -> String {
    let micros = micros.unsigned_abs();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_as_people_read_them() {
        assert_eq!(clock(0), "+0 us");
        assert_eq!(clock(-1_250), "-1.2 ms");
        assert_eq!(clock(3_400_000), "+3.4 s");
    }
}
