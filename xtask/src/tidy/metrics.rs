//! The page of the metric catalogue.

use gswarm_types::Scope;
use gswarm_types::metric::{CATALOGUE, Kind, Metric, Storage, Tier};

const HEAD: &str = "\
<!-- Generated from the catalogue in gswarm-types by `make docs`; do not edit. -->
# Metrics

Every number gswarm records. A name is identity on wire and disk: its meaning and unit never change.
A value that could not be read is absent (`null`), never 0.

- **storage**: whole numbers where the driver or kernel gives them, else 64-bit floats.
- **tier**: `always` is recorded without being asked for, `extra` when named in `--extra-metrics`.
- **legacy**: the spelling in the old tool's output and its `-r` option.
- **DCGM**: the field of NVIDIA's DCGM that means the same.
";

/// The whole of `docs/metrics.md`.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    for scope in scopes(CATALOGUE) {
        page.push_str(&format!(
            "\n## {}\n\n\
             | name | kind | unit | storage | tier | legacy | Prometheus | OTLP | DCGM | meaning |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
            title(scope)
        ));
        for metric in CATALOGUE.iter().filter(|metric| metric.scope == scope) {
            page.push_str(&row(metric));
        }
    }
    page
}

/// The scopes in the order of the catalogue.
fn scopes(catalogue: &[Metric]) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for metric in catalogue {
        if !scopes.contains(&metric.scope) {
            scopes.push(metric.scope);
        }
    }
    scopes
}

fn title(scope: Scope) -> String {
    let about = match scope {
        Scope::Gpu => "each GPU",
        Scope::Link => "each NVLink of a GPU",
        Scope::Node => "the node and its agent",
        Scope::Disk => "each disk of a node",
        Scope::Nic => "each network interface of a node",
    };
    format!("`{}`: {about}", scope.as_str())
}

fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Bits => "bits",
    };
    let storage = match metric.storage {
        Storage::Integer => "integer",
        Storage::Float => "float",
    };
    let tier = match metric.tier {
        Tier::Always => "always",
        Tier::Extra => "extra",
    };
    let code = |name: &str| format!("`{name}`");
    let spelled = |name: Option<&str>| name.map(code).unwrap_or_default();
    let cells = [
        code(metric.name),
        kind.to_owned(),
        metric.unit.to_owned(),
        storage.to_owned(),
        tier.to_owned(),
        spelled(metric.legacy),
        code(&metric.prometheus()),
        code(&metric.otlp()),
        spelled(metric.dcgm),
        metric.help.replace('|', "\\|"),
    ];
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_one_row() {
        let page = page();
        for metric in CATALOGUE {
            let start = format!("| `{}` |", metric.name);
            assert_eq!(page.matches(&start).count(), 1, "{}", metric.name);
        }
    }

    #[test]
    fn a_row_has_every_spelling() {
        let metric = Metric::find("pcie_replays").expect("in the catalogue");
        assert_eq!(
            row(metric),
            "| `pcie_replays` | counter | count | integer | always |  | `gswarm_pcie_replays_total` \
             | `gswarm.gpu.pcie_replays` | `DCGM_FI_DEV_PCIE_REPLAY_COUNTER` | PCIe packets sent again |\n"
        );
    }
}
