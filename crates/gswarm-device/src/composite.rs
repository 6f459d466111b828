//! Several sets of devices as one.

use std::sync::Arc;

use gswarm_types::{Column, Micros, PeerLink, ProcessRow, Table};

use crate::{Devices, Sample};

/// Devices side by side: tables are joined, and positions that point at devices are shifted.
#[derive(Debug)]
pub struct Composite {
    parts: Vec<Part>,
    table: Arc<Table>,
}

#[derive(Debug)]
struct Part {
    devices: Box<dyn Devices>,
    /// As the part gave it; `None` before the first sample.
    table: Option<Arc<Table>>,
    /// How many devices stand before this part's in the joined table.
    offset: u32,
    /// The latest ones, positions as the part counts: another part's news repeats them.
    processes: Option<Vec<ProcessRow>>,
    topology: Option<Vec<PeerLink>>,
}

impl Composite {
    /// GPUs first, so that disks and interfaces that come and go do not move them.
    pub fn new(parts: Vec<Box<dyn Devices>>) -> Self {
        let parts = parts
            .into_iter()
            .map(|devices| Part {
                devices,
                table: None,
                offset: 0,
                processes: None,
                topology: None,
            })
            .collect();
        Self { parts, table: Arc::default() }
    }

    /// Joins the parts' tables again and says whether a position of an earlier sample moved.
    fn join_tables(&mut self) -> bool {
        let mut joined = Table::default();
        let mut moved = false;
        for part in &mut self.parts {
            let offset = u32::try_from(joined.devices.len()).unwrap_or(u32::MAX);
            moved |= offset != part.offset;
            part.offset = offset;
            let Some(table) = &part.table else { continue };
            joined.devices.extend_from_slice(&table.devices);
            joined.columns.extend(table.columns.iter().map(|column| Column {
                device: column.device + offset,
                metric: column.metric.clone(),
            }));
        }
        self.table = Arc::new(joined);
        moved
    }

    fn joined_processes(&self) -> Option<Vec<ProcessRow>> {
        let mut rows = None;
        for part in &self.parts {
            let Some(processes) = &part.processes else {
                continue;
            };
            rows.get_or_insert_with(Vec::new).extend(
                processes
                    .iter()
                    .map(|row| ProcessRow { device: row.device + part.offset, ..row.clone() }),
            );
        }
        rows
    }

    fn joined_topology(&self) -> Option<Vec<PeerLink>> {
        let mut links = None;
        for part in &self.parts {
            let Some(topology) = &part.topology else {
                continue;
            };
            links.get_or_insert_with(Vec::new).extend(topology.iter().map(|link| PeerLink {
                device: link.device + part.offset,
                remote: link.remote.map(|remote| remote + part.offset),
                ..link.clone()
            }));
        }
        links
    }
}

impl Devices for Composite {
    fn sample(&mut self, now: Micros) -> Sample {
        let mut cells = Vec::with_capacity(self.table.columns.len());
        let mut events = Vec::new();
        let mut table_changed = false;
        let mut processes_read = false;
        let mut topology_changed = false;
        for part in &mut self.parts {
            let mut sample = part.devices.sample(now);
            // A part that breaks the contract must not shift the cells of its neighbours.
            debug_assert_eq!(sample.cells.len(), sample.table.columns.len());
            sample.cells.resize(sample.table.columns.len(), None);
            cells.append(&mut sample.cells);
            events.append(&mut sample.events);
            if part.table.as_ref().is_none_or(|table| !Arc::ptr_eq(table, &sample.table)) {
                table_changed |= part.table.as_ref() != Some(&sample.table);
                part.table = Some(sample.table);
            }
            processes_read |= sample.processes.is_some();
            part.processes = sample.processes.or_else(|| part.processes.take());
            topology_changed |= sample.topology.is_some();
            part.topology = sample.topology.or_else(|| part.topology.take());
        }
        let moved = table_changed && self.join_tables();
        Sample {
            table: Arc::clone(&self.table),
            cells,
            events,
            processes: if processes_read || moved { self.joined_processes() } else { None },
            topology: if topology_changed || moved { self.joined_topology() } else { None },
        }
    }

    fn driver_time(&self) -> Micros {
        self.parts.iter().fold(Micros::ZERO, |sum, part| sum + part.devices.driver_time())
    }
}

#[cfg(test)]
mod tests {
    use gswarm_types::{DeviceId, DeviceInfo, MetricName, PeerKind, ProcessKind, Scope};

    use super::*;

    /// Plays samples from a list, the last one for ever.
    #[derive(Debug)]
    struct Script(Vec<Sample>);

    impl Devices for Script {
        fn sample(&mut self, _now: Micros) -> Sample {
            if self.0.len() > 1 { self.0.remove(0) } else { self.0[0].clone() }
        }

        fn driver_time(&self) -> Micros {
            Micros(5)
        }
    }

    fn table(names: &[&str]) -> Arc<Table> {
        let mut table = Table::default();
        for (device, name) in (0..).zip(names) {
            table.devices.push(DeviceInfo {
                id: DeviceId((*name).to_owned()),
                scope: Scope::Gpu,
                index: device,
                name: (*name).to_owned(),
                parent: None,
                simulated: false,
            });
            table.columns.push(Column { device, metric: MetricName::new("gpu_utilization") });
        }
        Arc::new(table)
    }

    fn plain(table: &Arc<Table>, cells: &[f64]) -> Sample {
        Sample {
            table: Arc::clone(table),
            cells: cells.iter().copied().map(Some).collect(),
            events: Vec::new(),
            processes: None,
            topology: None,
        }
    }

    /// Adds a process on the last device and a link from it to the first.
    fn peopled(mut sample: Sample) -> Sample {
        let device = u32::try_from(sample.table.devices.len()).unwrap() - 1;
        let kind = ProcessKind::Compute;
        let row = ProcessRow {
            device,
            pid: 7,
            name: None,
            user: None,
            job: None,
            memory_bytes: None,
            kind,
        };
        sample.processes = Some(vec![row]);
        let kind = PeerKind::Nvlink;
        let link = PeerLink { device, remote: Some(0), kind, links: 4, bytes_per_second_max: None };
        sample.topology = Some(vec![link]);
        sample
    }

    /// Every sample as `columns=cells processes links`, with `!` where the table is a new one.
    #[track_caller]
    fn check(parts: Vec<Vec<Sample>>, expected: &[&str]) {
        let parts = parts.into_iter().map(|part| -> Box<dyn Devices> { Box::new(Script(part)) });
        let mut composite = Composite::new(parts.collect());
        let mut before = None;
        for expected in expected {
            let sample = composite.sample(Micros::ZERO);
            assert!(sample.table.is_consistent());
            let mut text = String::new();
            if before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &sample.table)) {
                text.push('!');
            }
            for (column, cell) in sample.table.columns.iter().zip(&sample.cells) {
                let device = sample.table.device_of(column).unwrap();
                text += &format!("{}={} ", device.name, cell.unwrap());
            }
            for row in sample.processes.iter().flatten() {
                text += &format!("p{} ", row.device);
            }
            for link in sample.topology.iter().flatten() {
                text += &format!("{}-{} ", link.device, link.remote.unwrap());
            }
            assert_eq!(text.trim_end(), *expected);
            before = Some(sample.table);
        }
    }

    #[test]
    fn tables_are_joined_and_shared_while_nothing_changes() {
        let (gpus, disks) = (table(&["a", "b"]), table(&["c"]));
        check(
            vec![vec![plain(&gpus, &[1.0, 2.0])], vec![plain(&disks, &[3.0])]],
            &["!a=1 b=2 c=3", "a=1 b=2 c=3"],
        );
        // An equal table in another Arc is not a change either.
        let again = table(&["c"]);
        check(vec![vec![plain(&disks, &[3.0]), plain(&again, &[4.0])]], &["!c=3", "c=4"]);
    }

    #[test]
    fn positions_are_shifted() {
        let (gpus, others) = (table(&["a", "b"]), table(&["c", "d"]));
        check(
            vec![
                vec![plain(&gpus, &[1.0, 2.0])],
                vec![peopled(plain(&others, &[3.0, 4.0])), plain(&others, &[5.0, 6.0])],
            ],
            &["!a=1 b=2 c=3 d=4 p3 3-2", "a=1 b=2 c=5 d=6"],
        );
    }

    #[test]
    fn what_moved_is_told_again() {
        let (one, two, other) = (table(&["a"]), table(&["a", "b"]), table(&["c"]));
        check(
            vec![
                vec![plain(&one, &[1.0]), plain(&two, &[1.0, 2.0])],
                vec![peopled(plain(&other, &[3.0])), plain(&other, &[4.0])],
            ],
            &["!a=1 c=3 p1 1-1", "!a=1 b=2 c=4 p2 2-2", "a=1 b=2 c=4"],
        );
    }

    #[test]
    fn driver_time_is_the_sum() {
        let part = || -> Box<dyn Devices> { Box::new(Script(vec![plain(&table(&["a"]), &[1.0])])) };
        assert_eq!(Composite::new(vec![part(), part()]).driver_time(), Micros(10));
        assert_eq!(Composite::new(Vec::new()).sample(Micros::ZERO).cells, []);
    }
}
