//! `profiler analyze` and `gsprof stat`: the numbers of a session's file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context as _;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Context;
use crate::args::profiler::AnalyzeArgs;
use crate::fault::Fault;
use crate::output::{Page, Table};
use crate::units;

const STATISTICS: [&str; 7] = ["avg", "min", "max", "p50", "p95", "p99", "value"];

/// The parts of a session's file that are shown; frames are counted, not kept.
#[derive(Debug, Deserialize)]
struct SessionFile {
    /// Absent in files of the old tool.
    schema_version: Option<Value>,
    session_name: Option<String>,
    start_time: Option<String>,
    end_time: Option<String>,
    #[serde(default)]
    frames: Vec<IgnoredAny>,
    #[serde(default)]
    summary_by_device: BTreeMap<String, Value>,
    #[serde(default)]
    simulated: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct AnalysisBody {
    session_name: Option<String>,
    start_time: Option<String>,
    end_time: Option<String>,
    simulated: bool,
    frames: usize,
    devices: Vec<DeviceSummary>,
}

#[derive(Debug, Serialize)]
struct DeviceSummary {
    device: String,
    /// Metric, statistic, number.
    metrics: BTreeMap<String, BTreeMap<String, f64>>,
}

pub(super) fn analyze(context: &Context, args: &AnalyzeArgs) -> anyhow::Result<()> {
    if args.plot.is_some() {
        return Err(Fault::not_now("plots come in a later version; the numbers are here already")
            .hint(format!("leave --plot out: `--data {}` shows them", args.data.display()))
            .into());
    }
    context.output.show(&read(&args.data)?, page)
}

/// What the command shows of a file.
pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    Ok(page(&read(path)?).text(false))
}

fn read(path: &Path) -> anyhow::Result<AnalysisBody> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open `{shown}`"))?;
    let file: SessionFile = serde_json::from_reader(BufReader::new(file)).map_err(|error| {
        Fault::invalid(format!("`{shown}` is not a session's JSON file: {error}"))
            .hint("`gswarm profiler export --name NAME -o FILE` writes one")
    })?;
    Ok(analysis(file))
}

fn analysis(file: SessionFile) -> AnalysisBody {
    let old = file.schema_version.is_none();
    let devices = file
        .summary_by_device
        .into_iter()
        .map(|(device, summary)| DeviceSummary { device, metrics: metrics(&summary, old) })
        .collect();
    AnalysisBody {
        session_name: file.session_name,
        start_time: file.start_time,
        end_time: file.end_time,
        simulated: file.simulated,
        frames: file.frames.len(),
        devices,
    }
}

/// `avg_gpu_util`, `{"gpu_util": {"avg": ..}}` and plain numbers, all as metric and statistic.
fn metrics(summary: &Value, old: bool) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut metrics: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let mut put = |metric: &str, statistic: &str, value: &Value| {
        if let Some(number) = number(value) {
            // Files of the old tool hold shares from 0 to 1.
            let number = if old { number * 100.0 } else { number };
            metrics.entry(metric.to_owned()).or_default().insert(statistic.to_owned(), number);
        }
    };
    for (name, value) in summary.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(statistics) => {
                for (statistic, value) in statistics {
                    put(name, statistic, value);
                }
            },
            None => match name.split_once('_') {
                Some((statistic, metric)) if STATISTICS.contains(&statistic) => {
                    put(metric, statistic, value);
                },
                _ => put(name, "value", value),
            },
        }
    }
    metrics
}

/// A number, also one that the old tool wrote as text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number| number.is_finite())
}

fn page(body: &AnalysisBody) -> Page {
    let name = body.session_name.as_deref().unwrap_or("session");
    let simulated = if body.simulated { " (simulated devices)" } else { "" };
    let frames = u64::try_from(body.frames).unwrap_or(u64::MAX);
    let page =
        Page::default().line(format!("{name}{simulated}: {}", units::count(frames, "frame")));
    let page = match (&body.start_time, &body.end_time) {
        (Some(start), Some(end)) => {
            page.line(format!("{} to {}", units::time(start), units::time(end)))
        },
        _ => page,
    };
    if body.devices.is_empty() {
        return page.line("the file holds no summary by device");
    }
    let present: Vec<&str> = STATISTICS
        .into_iter()
        .filter(|statistic| {
            body.devices
                .iter()
                .flat_map(|device| device.metrics.values())
                .any(|statistics| statistics.contains_key(*statistic))
        })
        .collect();
    let headings: Vec<String> =
        present.iter().map(|statistic| format!("{}>", statistic.to_uppercase())).collect();
    let mut table =
        Table::new(["DEVICE", "METRIC"].into_iter().chain(headings.iter().map(String::as_str)));
    for device in &body.devices {
        for (metric, statistics) in &device.metrics {
            let cells = present.iter().map(|statistic| {
                units::or_dash(statistics.get(*statistic), |number| format!("{number:.1}"))
            });
            table.row([device.device.clone(), metric.clone()].into_iter().chain(cells));
        }
    }
    page.blank().table(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(summary: &str, old: bool, expected: &str) {
        let summary: Value = serde_json::from_str(summary).unwrap();
        assert_eq!(serde_json::to_string(&metrics(&summary, old)).unwrap(), expected);
    }

    #[test]
    fn old_and_new_summaries_are_read() {
        check(
            r#"{"avg_gpu_util": "0.5", "avg_gpu_memory": "0.25"}"#,
            true,
            r#"{"gpu_memory":{"avg":25.0},"gpu_util":{"avg":50.0}}"#,
        );
        check(
            r#"{"gpu_util": {"avg": 50, "p95": 99.5, "max": null}, "energy_joules": 12}"#,
            false,
            r#"{"energy_joules":{"value":12.0},"gpu_util":{"avg":50.0,"p95":99.5}}"#,
        );
        check("[]", false, "{}");
    }
}
