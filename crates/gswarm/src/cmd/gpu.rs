//! GPUs with their latest values, in one table for every command that shows them.

use gswarm_api::body::DeviceBody;

use crate::output::Table;
use crate::units;

/// One row for each GPU, with the name of its node where there is one to show.
pub(super) fn table<'a>(rows: impl Iterator<Item = (&'a str, &'a DeviceBody)>) -> Table {
    let mut table = Table::new([
        "NODE",
        "GPU>",
        "NAME",
        "UTIL>",
        "MEMORY>",
        "OF>",
        "TEMP>",
        "POWER>",
        "SM>",
        "TENSOR>",
        "PCIE IN>",
        "PCIE OUT>",
        "NVLINK IN>",
        "NVLINK OUT>",
    ]);
    for (node, device) in rows.filter(|(_, device)| device.scope == "gpu") {
        let value = |name: &str| device.values.get(name).copied().flatten();
        let percent = |name: &str| units::or_dash(value(name), |share| format!("{share:.0} %"));
        let rate = |name: &str| units::or_dash(value(name), units::rate);
        table.row([
            node.to_owned(),
            device.index.to_string(),
            labelled(device),
            percent("gpu_utilization"),
            units::or_dash(value("memory_used_bytes"), units::memory),
            units::or_dash(value("memory_total_bytes"), units::memory),
            units::or_dash(value("temperature_celsius"), |celsius| format!("{celsius:.0} °C")),
            units::or_dash(value("power_milliwatts"), |milli| format!("{:.0} W", milli / 1_000.0)),
            percent("sm_activity"),
            percent("tensor_activity"),
            rate("pcie_rx_bytes_per_second"),
            rate("pcie_tx_bytes_per_second"),
            rate("nvlink_rx_bytes_per_second"),
            rate("nvlink_tx_bytes_per_second"),
        ]);
    }
    table.without_empty_columns()
}

/// CPU, memory and disk of each node.
pub(super) fn machines<'a>(rows: impl Iterator<Item = (&'a str, &'a DeviceBody)>) -> Table {
    let mut table = Table::new(["NODE", "CPU>", "LOAD>", "MEMORY>", "OF>", "DISK>", "OF>"]);
    for (node, device) in rows.filter(|(_, device)| device.scope == "node") {
        let value = |name: &str| device.values.get(name).copied().flatten();
        let bytes = |name: &str| units::or_dash(value(name), units::memory);
        table.row([
            node.to_owned(),
            units::or_dash(value("node_cpu_utilization"), |share| format!("{share:.0} %")),
            units::or_dash(value("node_load_1m"), |load| format!("{load:.1}")),
            bytes("node_memory_used_bytes"),
            bytes("node_memory_total_bytes"),
            bytes("node_disk_used_bytes"),
            bytes("node_disk_total_bytes"),
        ]);
    }
    table.without_empty_columns()
}

/// `8 x NVIDIA H100, 1 x NVIDIA L4`; absent until the first values said what there is.
pub(super) fn census(devices: &[DeviceBody]) -> String {
    if devices.is_empty() {
        return units::ABSENT.to_owned();
    }
    let mut kinds: Vec<(String, u32)> = Vec::new();
    for device in devices.iter().filter(|device| device.scope == "gpu") {
        let name = labelled(device);
        match kinds.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, number)) => *number += 1,
            None => kinds.push((name, 1)),
        }
    }
    let kinds: Vec<String> =
        kinds.into_iter().map(|(name, number)| format!("{number} x {name}")).collect();
    if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
}

/// Simulated devices say so wherever they show.
fn labelled(device: &DeviceBody) -> String {
    let says_so = device.name.to_ascii_lowercase().contains("sim");
    if device.simulated && !says_so {
        format!("{} (simulated)", device.name)
    } else {
        device.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(scope: &str, name: &str, simulated: bool) -> DeviceBody {
        DeviceBody {
            id: name.to_owned(),
            scope: scope.to_owned(),
            index: 0,
            name: name.to_owned(),
            simulated,
            values: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn none_is_said_only_when_it_is_known() {
        assert_eq!(census(&[]), "-");
        let machine = device("node", "node1", false);
        assert_eq!(census(std::slice::from_ref(&machine)), "none");
        let gpus = [device("gpu", "H100", true), machine, device("gpu", "H100", true)];
        assert_eq!(census(&gpus), "2 x H100 (simulated)");
    }
}
