//! What the agent reports of itself, appended to the columns of its devices.

use std::sync::Arc;

use gswarm_types::{Column, DeviceId, DeviceInfo, MetricName, Micros, Scope, Table, TableDigest};

/// How many columns the agent adds.
pub(super) const OWN_COLUMNS: usize = 3;
const METRICS: [&str; OWN_COLUMNS] =
    ["spool_records", "spool_dropped", "agent_driver_microseconds"];

/// The agent's numbers of one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnValues {
    pub(super) spool_records: usize,
    pub(super) spool_dropped: u64,
    pub(super) driver: Micros,
}

impl OwnValues {
    #[expect(clippy::cast_precision_loss, reason = "counts and microseconds stay below 2^53")]
    pub(super) fn cells(self) -> [Option<f64>; OWN_COLUMNS] {
        [
            Some(self.spool_records as f64),
            Some(self.spool_dropped as f64),
            Some(self.driver.0 as f64),
        ]
    }
}

/// The devices' table and what became of it, kept while it does not change.
#[derive(Debug, Default)]
pub(super) struct OwnColumns {
    simulated: bool,
    known: Option<(Arc<Table>, TableDigest, Arc<Table>)>,
}

impl OwnColumns {
    pub(super) fn new(simulated: bool) -> Self {
        Self { simulated, known: None }
    }

    /// The table with the agent's own columns behind those of the devices.
    pub(super) fn extend(&mut self, base: &Arc<Table>) -> (TableDigest, Arc<Table>) {
        if let Some((known, digest, extended)) = &mut self.known {
            if Arc::ptr_eq(known, base) {
                return (*digest, Arc::clone(extended));
            }
            if known == base {
                *known = Arc::clone(base);
                return (*digest, Arc::clone(extended));
            }
        }
        let extended = Arc::new(self.build(base));
        let digest = extended.digest();
        self.known = Some((Arc::clone(base), digest, Arc::clone(&extended)));
        (digest, extended)
    }

    fn build(&self, base: &Table) -> Table {
        let mut table = base.clone();
        let count = |devices: usize| u32::try_from(devices).unwrap_or(u32::MAX);
        // They describe the node: they stand with its other numbers where it has any.
        let device = base.devices_of(Scope::Node).next().map_or_else(
            || {
                table.devices.push(DeviceInfo {
                    id: DeviceId("agent".to_owned()),
                    scope: Scope::Node,
                    index: 0,
                    name: "agent".to_owned(),
                    parent: None,
                    simulated: self.simulated,
                });
                count(base.devices.len())
            },
            |(position, _)| count(position),
        );
        let columns = METRICS.map(|metric| Column { device, metric: MetricName::new(metric) });
        table.columns.extend(columns);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_shared_while_it_does_not_change() {
        let mut own = OwnColumns::new(true);
        let base = Arc::new(Table::default());
        let (digest, table) = own.extend(&base);
        assert_eq!(digest, table.digest());
        assert!(table.is_consistent());
        assert_eq!(table.columns.len(), METRICS.len());
        assert!(table.columns.iter().all(|column| column.metric.known().is_some()));
        let (_, again) = own.extend(&Arc::new(Table::default()));
        assert!(Arc::ptr_eq(&table, &again));
        let gpu = DeviceInfo { scope: Scope::Gpu, ..table.devices[0].clone() };
        let with_gpu = Table { devices: vec![gpu.clone()], ..Table::default() };
        let (changed, table) = own.extend(&Arc::new(with_gpu));
        assert_ne!(changed, digest);
        assert_eq!((table.devices.len(), table.columns[0].device), (2, 1));
        let node = DeviceInfo { scope: Scope::Node, ..gpu.clone() };
        let with_node = Table { devices: vec![gpu, node], ..Table::default() };
        let (_, table) = own.extend(&Arc::new(with_node));
        assert_eq!((table.devices.len(), table.columns[0].device), (2, 1), "beside the node's own");
    }
}
