//! Values.

use axum::Json;
use axum::extract::State;
use gswarm_api::ErrorBody;
use gswarm_api::body::{CatalogueBody, LatestBody, MetricBody, SeriesBody};
use gswarm_types::metric::{CATALOGUE, Kind, Tier};
use serde::Deserialize;

use super::answer::{Answer, Params};
use super::door::By;
use crate::handle::{Handle, SeriesRequest};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RangeParams {
    /// Name in the catalogue
    metric: String,
    /// Span before now (`10m`) or RFC 3339 time; five minutes before `to` when left out
    from: Option<String>,
    /// Span before now or RFC 3339 time; now when left out
    to: Option<String>,
    /// Span of one point, at least 100ms
    step: Option<String>,
    /// Names of nodes with commas between them
    node: Option<String>,
    /// Index of the device on its node
    gpu: Option<u32>,
}

/// Values of one metric over time: lowest, mean and highest of each step
#[utoipa::path(get, path = "/api/v1/metrics", operation_id = "get_metrics", params(RangeParams), responses(
    (status = 200, body = SeriesBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn range(
    State(handle): State<Handle>,
    By(caller): By,
    Params(params): Params<RangeParams>,
) -> Answer<SeriesBody> {
    let request = SeriesRequest {
        metric: params.metric,
        from: params.from,
        to: params.to,
        step: params.step,
        nodes: params.node.map(|list| list.split(',').map(str::to_owned).collect()),
        gpu: params.gpu,
    };
    Ok(Json(handle.series(&caller, request).await?))
}

/// The latest values of every node
#[utoipa::path(get, path = "/api/v1/metrics/latest", operation_id = "get_latest_metrics", responses(
    (status = 200, body = LatestBody), (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(super) async fn latest(State(handle): State<Handle>, By(caller): By) -> Answer<LatestBody> {
    Ok(Json(handle.latest(&caller).await?))
}

/// Every metric gswarm knows
#[utoipa::path(get, path = "/api/v1/metrics/catalogue", operation_id = "get_catalogue", responses(
    (status = 200, body = CatalogueBody), (status = "4XX", body = ErrorBody)))]
pub(super) async fn catalogue() -> Json<CatalogueBody> {
    let metrics = CATALOGUE.iter().map(|metric| MetricBody {
        name: metric.name.to_owned(),
        scope: metric.scope.as_str().to_owned(),
        kind: match metric.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Bits => "bits",
        }
        .to_owned(),
        unit: metric.unit.to_owned(),
        extra: metric.tier == Tier::Extra,
        legacy: metric.legacy.map(str::to_owned),
        prometheus: metric.prometheus(),
        dcgm: metric.dcgm.map(str::to_owned),
        help: metric.help.to_owned(),
    });
    Json(CatalogueBody { metrics: metrics.collect() })
}
