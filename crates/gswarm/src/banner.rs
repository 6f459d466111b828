//! What a process says when it is ready: where it is, where its files are, what to do next.

use std::net::SocketAddr;

use gswarm_api::body::StoreBody;
use gswarm_tls::Secret;

use crate::paths;
use crate::plan::{AgentPlan, HostPlan, UpPlan, Way};
use crate::units;

/// For a host that listens at `addresses`.
pub(crate) fn host(
    plan: &HostPlan,
    addresses: &[SocketAddr],
    store: &StoreBody,
    token: Option<&Secret>,
) -> String {
    let simulated = if plan.simulated { ", simulated devices only" } else { "" };
    let places: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let growth = store.bytes_per_day.map_or_else(
        || "growth is measured from now on".to_owned(),
        |bytes| format!("grows by {} a day", units::bytes(bytes)),
    );
    let mut lines = vec![
        format!("gswarm host {}{simulated}", env!("CARGO_PKG_VERSION")),
        format!("  listening  {}", places.join(", ")),
        format!(
            "  data       {} (at most {}, kept {}; {growth})",
            plan.data_dir.display(),
            units::bytes(store.budget_bytes),
            units::span(plan.retention.keep)
        ),
        format!("  output     {}", plan.output_dir.display()),
        format!(
            "  sampling   every {} ms in sessions, every {} ms otherwise{}",
            plan.settings.session_period.millis(),
            plan.settings.base_period.millis(),
            shown(plan.settings.bandwidth, plan.settings.nvlink),
        ),
    ];
    if let Some(first) = addresses.first() {
        // Every port serves it; people know it on the second one.
        let page = addresses.get(1).unwrap_or(first);
        lines.push(format!("  dashboard  http://{}/", browsable(*page)));
        lines.extend(next_steps(plan, *first, token));
    }
    lines.join("\n")
}

/// For an agent that is about to dial its host.
pub(crate) fn agent(plan: &AgentPlan) -> String {
    let period = plan.period.map_or_else(
        || "as the host says".to_owned(),
        |period| format!("every {} ms, more often in sessions", period.millis()),
    );
    let mut lines = vec![
        format!("gswarm agent {}, node `{}`", env!("CARGO_PKG_VERSION"), plan.node_name),
        format!("  host       {}{}", plan.target, way(plan)),
        format!("  devices    {}", plan.devices),
        format!("  sampling   {period}"),
        format!("  allows     {}", plan.allow),
        format!("  state      {}", plan.state_dir.display()),
    ];
    if !plan.extra_metrics.is_empty() {
        let names: Vec<&str> = plan.extra_metrics.iter().map(|metric| metric.name).collect();
        lines.push(format!("  also       {}", names.join(", ")));
    }
    if let Some(library) = &plan.nvml_library {
        lines.push(format!("  NVML       {}", library.display()));
    }
    if !plan.resilient {
        lines.push("  ends when the connection is lost (--no-resilient)".to_owned());
    }
    lines.push("Ctrl-C stops it; records that were not sent yet wait on disk".to_owned());
    lines.join("\n")
}

fn way(plan: &AgentPlan) -> &'static str {
    match &plan.way {
        Way::Plain if plan.target.is_loopback() => "",
        Way::Plain => "  !! INSECURE: no encryption",
        Way::Tls { .. } => " (TLS)",
    }
}

/// For the agents that share the host's process, and what to try first.
pub(crate) fn up(plan: &UpPlan) -> String {
    let names: Vec<&str> = plan.agents.iter().map(|agent| agent.node_name.as_str()).collect();
    let mut lines = Vec::new();
    if let Some(first) = plan.agents.first() {
        lines.push(format!("  agents     {} ({})", names.join(", "), first.devices));
    }
    lines.push("try: gswarm status | gswarm nodes | gswarm profiler start --name first".to_owned());
    lines.push("Ctrl-C stops everything; what was recorded stays".to_owned());
    lines.join("\n")
}

fn next_steps(plan: &HostPlan, main: SocketAddr, token: Option<&Secret>) -> Vec<String> {
    let devices = if plan.simulated { " --devices sim:8xh100" } else { "" };
    let sim = if plan.simulated { " --sim" } else { "" };
    if plan.listen.is_loopback() {
        return vec![
            "only this machine can connect; to open it to others, stop it and run".to_owned(),
            format!("  gswarm host start{sim} --listen 0.0.0.0"),
            format!("next: gswarm join {}{devices}", short(main)),
        ];
    }
    let place = place(main);
    if plan.insecure {
        return vec![
            format!(
                "!! INSECURE: everyone who reaches {main} can read the recording and stop sessions"
            ),
            "!! no encryption, no logins: only for networks you trust".to_owned(),
            format!("next, on each machine: gswarm join {place} --insecure{devices}"),
        ];
    }
    let mut lines = vec!["  others     need TLS and a token".to_owned()];
    match token {
        Some(token) => {
            lines.push("next, on each machine (for one day):".to_owned());
            lines.push(format!("  gswarm join {place} --token {}{devices}", token.expose()));
        },
        None => {
            lines.push("next: `gswarm token create` prints the line for other machines".to_owned())
        },
    }
    lines
}

/// Where other machines find the host.
fn place(main: SocketAddr) -> String {
    let name = if main.ip().is_unspecified() { paths::hostname() } else { main.ip().to_string() };
    if main.port() == gswarm_api::DEFAULT_PORT {
        name
    } else {
        gswarm_api::Target::new(&name, main.port()).to_string()
    }
}

/// What session files show besides the usual.
const fn shown(bandwidth: bool, nvlink: bool) -> &'static str {
    match (bandwidth, nvlink) {
        (true, true) => "; PCIe and NVLink bandwidth shown",
        (true, false) => "; PCIe bandwidth shown",
        (false, true) => "; NVLink bandwidth shown",
        (false, false) => "",
    }
}

/// An address that means something in a browser on this machine.
fn browsable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    }
}

/// The port is only worth a word when it is not the usual one.
fn short(address: SocketAddr) -> String {
    if address.port() == gswarm_api::DEFAULT_PORT {
        "localhost".to_owned()
    } else {
        format!("localhost:{}", address.port())
    }
}
