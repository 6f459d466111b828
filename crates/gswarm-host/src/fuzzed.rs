//! Doors to parsers inside this crate for `gswarm-fuzz`; nobody else calls them.

use axum::Router;
use gswarm_types::{Cells, PeerLink, Table};
use gswarm_wire::legacy::MetricsUpdate;

use crate::Host;

/// What one message of an old client becomes.
pub fn from_legacy(update: &MetricsUpdate) -> (Table, Cells, Vec<PeerLink>) {
    let (table, cells) = crate::legacy::convert::values(update);
    (table, cells, crate::legacy::convert::links(update))
}

/// Everything that a connection can ask for, without a connection.
pub fn router(host: &Host) -> Router {
    crate::http::router(host.handle())
}
