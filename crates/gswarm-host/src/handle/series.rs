//! Values of one metric over time, each step with its lowest, mean and highest value.

use std::collections::BTreeMap;

use gswarm_api::body::{SeriesBody, SeriesPoint, SeriesRow};
use gswarm_api::{Failure, timestamp};
use gswarm_store::entry::Entry;
use gswarm_store::reader::Reader;
use gswarm_types::metric::Metric;
use gswarm_types::{Body, Incarnation, Micros, NodeId, Table, TableDigest};

use crate::recorder::SeriesQuery;

/// Points of one series.
const POINTS_MAX: i64 = 11_000;
/// Series in one answer.
const SERIES_MAX: usize = 20_000;
/// The window when none is asked for.
const DEFAULT_WINDOW: Micros = Micros::from_secs(300);

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct SeriesRequest {
    pub(crate) metric: String,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) step: Option<String>,
    pub(crate) nodes: Option<Vec<String>>,
    pub(crate) gpu: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    min: f64,
    max: f64,
    sum: f64,
    count: u32,
}

type SeriesKey = (NodeId, String, &'static str, u32);

pub(super) fn read(
    reader: &Reader,
    query: &SeriesQuery,
    request: &SeriesRequest,
    now: Micros,
) -> Result<SeriesBody, Failure> {
    let metric = Metric::find(&request.metric).ok_or_else(|| {
        let name: String = request.metric.chars().take(64).flat_map(char::escape_debug).collect();
        Failure::invalid(format!("`{name}` is no metric: GET /api/v1/metrics/catalogue lists them"))
    })?;
    let (from, until, step) = window(request, now)?;
    let mut tables: BTreeMap<(NodeId, Incarnation, TableDigest), Table> = BTreeMap::new();
    let mut series: BTreeMap<SeriesKey, BTreeMap<i64, Step>> = BTreeMap::new();
    let wanted = |node: NodeId| query.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
    for lease in reader.lease(from, until) {
        let visited = reader.visit(lease.meta(), &mut |entry| match entry {
            Entry::Table(table) => {
                if let Some(node) = table.node.filter(|node| wanted(*node)) {
                    tables.insert((node, table.incarnation, table.digest), table.into_table());
                }
            },
            Entry::Record(record) => {
                let Body::Values(values) = &record.body else { return };
                let key = (record.node, record.incarnation, values.table);
                let in_window = record.time >= from && record.time < until;
                let Some(table) = tables.get(&key).filter(|_| in_window) else { return };
                let bucket = (record.time - from).0 / step.0;
                for (column, cell) in table.columns.iter().zip(values.cells.as_slice()) {
                    let (Some(value), true) = (cell, column.metric.as_str() == metric.name) else {
                        continue;
                    };
                    let Some(info) = table.device_of(column) else { continue };
                    if request.gpu.is_some_and(|gpu| info.index != gpu) {
                        continue;
                    }
                    let key = (record.node, info.id.0.clone(), info.scope.as_str(), info.index);
                    if series.len() < SERIES_MAX || series.contains_key(&key) {
                        add(series.entry(key).or_default(), bucket, *value);
                    }
                }
            },
            _ => {},
        });
        visited
            .map_err(|error| Failure::internal(format!("cannot read the recording: {error}")))?;
    }
    let rows = series.into_iter().map(|((node, device, scope, index), steps)| SeriesRow {
        node: query.names.get(&node).cloned().unwrap_or_else(|| node.to_string()),
        device,
        scope: scope.to_owned(),
        index,
        points: steps.into_iter().map(|(at, value)| point(from, step, at, value)).collect(),
    });
    Ok(SeriesBody {
        metric: metric.name.to_owned(),
        unit: metric.unit.to_owned(),
        from: timestamp::rfc3339(from),
        to: timestamp::rfc3339(until),
        step_ms: step.0 / 1_000,
        series: rows.collect(),
    })
}

fn window(request: &SeriesRequest, now: Micros) -> Result<(Micros, Micros, Micros), Failure> {
    let moment = |text: &Option<String>, default: Micros| match text {
        Some(text) => {
            timestamp::parse_moment(text, now).map_err(|error| Failure::invalid(error.to_string()))
        },
        None => Ok(default),
    };
    let until = moment(&request.to, now)?;
    let from = moment(&request.from, until - DEFAULT_WINDOW)?;
    if until <= from {
        return Err(Failure::invalid("`to` must be later than `from`"));
    }
    let step = match &request.step {
        Some(text) => {
            timestamp::parse_span(text).map_err(|error| Failure::invalid(error.to_string()))?
        },
        None => Micros::from_secs(1).max(Micros((until - from).0 / 500)),
    };
    if step < Micros::from_millis(100) || (until - from).0 / step.0 > POINTS_MAX {
        return Err(Failure::invalid(format!(
            "the step must be at least 100ms and give at most {POINTS_MAX} points"
        )));
    }
    Ok((from, until, step))
}

fn add(steps: &mut BTreeMap<i64, Step>, bucket: i64, value: f64) {
    let step = steps.entry(bucket).or_insert(Step { min: value, max: value, sum: 0.0, count: 0 });
    step.min = step.min.min(value);
    step.max = step.max.max(value);
    step.sum += value;
    step.count += 1;
}

fn point(from: Micros, step: Micros, at: i64, value: Step) -> SeriesPoint {
    SeriesPoint {
        time: timestamp::rfc3339(from + Micros(at.saturating_mul(step.0))),
        min: value.min,
        avg: value.sum / f64::from(value.count.max(1)),
        max: value.max,
    }
}
