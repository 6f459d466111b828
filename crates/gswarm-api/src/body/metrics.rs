//! Values: the latest, a range, and the catalogue.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::node::DeviceBody;

/// `GET /api/v1/metrics/latest`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatestBody {
    pub time: String,
    pub nodes: Vec<LatestNode>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatestNode {
    pub node: String,
    pub node_id: String,
    /// Host time of the values.
    pub time: String,
    pub devices: Vec<DeviceBody>,
}

/// `GET /api/v1/metrics?metric=..&from=..&to=..&step=..&node=..&gpu=..`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesBody {
    pub metric: String,
    pub unit: String,
    pub from: String,
    pub to: String,
    pub step_ms: i64,
    pub series: Vec<SeriesRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesRow {
    pub node: String,
    pub device: String,
    pub scope: String,
    pub index: u32,
    pub points: Vec<SeriesPoint>,
}

/// One step: lowest, mean and highest value in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesPoint {
    pub time: String,
    pub min: f64,
    pub avg: f64,
    pub max: f64,
}

/// `GET /api/v1/metrics/catalogue`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CatalogueBody {
    pub metrics: Vec<MetricBody>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MetricBody {
    pub name: String,
    pub scope: String,
    pub kind: String,
    pub unit: String,
    pub extra: bool,
    pub legacy: Option<String>,
    pub prometheus: String,
    pub dcgm: Option<String>,
    pub help: String,
}
