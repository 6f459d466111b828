//! The machine's numbers over trees of fixture files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

const STAT: &str = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 100 0 100 700 100 0 0 0 0 0\nintr 5\n";
const STAT_LATER: &str = "cpu  150 0 125 710 115 0 0 0 0 0\n";
const MEMINFO: &str = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  250 kB\nSwapTotal: 64 kB\n\
                       SwapFree: 16 kB\nDirty: 3 kB\n";
const DISKSTATS: &str = "   8       0 sda 10 0 1000 5 20 0 2000 6 0 300 11\n   \
                         8       1 sda1 10 0 1000 5 20 0 2000 6 0 300 11\n   \
                         7       0 loop0 1 0 8 0 0 0 0 0 0 0 0\n";
const NET_DEV: &str = "Inter-|   Receive    |  Transmit\n face |bytes packets|bytes\n    \
                       lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  \
                       eth0: 5000 1 0 0 0 0 0 0 7000 1 0 0 0 0 0 0\n \
                       bond0: 1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n";

struct Machine {
    root: TempDir,
    host: HostDevices,
}

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = TempDir::new().unwrap();
        for (path, text) in files {
            write(root.path(), path, text);
        }
        let host = HostDevices::new(HostOptions {
            proc_root: root.path().join("proc"),
            sys_root: root.path().join("sys"),
            disk_path: root.path().join("no such path"),
        });
        Self { root, host }
    }

    fn usual() -> Self {
        Self::new(&[
            ("proc/cpuinfo", "processor : 0\nmodel name\t: Fixture CPU @ 2 GHz\n"),
            ("proc/stat", STAT),
            ("proc/loadavg", "0.75 0.50 0.25 2/345 6789\n"),
            ("proc/meminfo", MEMINFO),
            ("proc/self/statm", "765 443 414 5 0 123 0\n"),
            ("proc/diskstats", DISKSTATS),
            ("proc/net/dev", NET_DEV),
            ("sys/block/sda/device/vendor", ""),
            ("sys/block/loop0/loop", ""),
            ("sys/class/net/eth0/device/vendor", ""),
            ("sys/class/net/bond0/bonding/mode", ""),
            ("sys/class/net/lo/mtu", ""),
        ])
    }

    fn write(&self, path: &str, text: &str) {
        write(self.root.path(), path, text);
    }

    /// `device.metric=value` of everything that is there but the agent's own numbers, which are
    /// real, and `!` in front when the table is a new one.
    #[track_caller]
    fn check(&mut self, seconds: i64, expected: &str) {
        let before = Arc::clone(&self.host.table);
        let sample = self.host.sample(Micros::from_secs(seconds));
        assert!(sample.table.is_consistent());
        assert_eq!(sample.table.columns.len(), sample.cells.len());
        let mut text = String::new();
        if !Arc::ptr_eq(&before, &sample.table) {
            text.push_str("! ");
        }
        for (column, cell) in sample.table.columns.iter().zip(&sample.cells) {
            let device = sample.table.device_of(column).unwrap();
            let metric = column.metric.as_str();
            if let Some(cell) = cell.filter(|_| !metric.starts_with("agent_")) {
                let short = metric.trim_start_matches("node_").trim_end_matches("_per_second");
                write!(text, "{}.{short}={cell} ", device.id).unwrap();
            }
        }
        assert_eq!(text.trim_end(), expected);
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn rates_begin_with_the_second_sample() {
    let mut machine = Machine::usual();
    let still = "node.load_1m=0.75 node.memory_total_bytes=1024000 node.memory_used_bytes=768000 \
                 node.swap_used_bytes=49152";
    machine.check(10, &format!("! {still}"));
    assert_eq!(machine.host.table.devices[0].name, "Fixture CPU @ 2 GHz");
    machine.write("proc/stat", STAT_LATER);
    machine.write("proc/diskstats", &DISKSTATS.replace("sda 10 0 1000", "sda 12 0 1400"));
    machine.write("proc/net/dev", &NET_DEV.replace("eth0: 5000", "eth0: 6000"));
    let rates = "sda.disk_read_bytes=102400 sda.disk_write_bytes=0 sda.disk_busy_percent=0 \
                 eth0.nic_rx_bytes=500 eth0.nic_tx_bytes=0 bond0.nic_rx_bytes=0 bond0.nic_tx_bytes=0";
    machine.check(12, &format!("node.cpu_utilization=75 {still} {rates}"));
    // Time that stands still gives no rates, and neither do ticks that stand still.
    machine.check(12, still);
}

#[test]
fn between_quick_ticks_values_are_held() {
    let mut machine = Machine::usual();
    machine.host.sample(Micros::from_secs(10));
    machine.host.sample(Micros::from_secs(11));
    machine.write("proc/loadavg", "9.50 0.50 0.25 1/100 1234\n");
    let load = |machine: &mut Machine, millis: i64| {
        let sample = machine.host.sample(Micros::from_millis(millis));
        sample.cells[sample.table.position(0, "node_load_1m").unwrap()]
    };
    assert_eq!(load(&mut machine, 11_100), Some(0.75));
    assert_eq!(load(&mut machine, 11_400), Some(0.75));
    assert_eq!(load(&mut machine, 11_499), Some(9.5));
}

#[test]
fn disks_and_interfaces_come_and_go() {
    let mut machine = Machine::new(&[
        ("proc/diskstats", DISKSTATS),
        ("proc/net/dev", NET_DEV),
        ("sys/block/sda/device/vendor", ""),
        ("sys/block/nvme0n1/device/vendor", ""),
        ("sys/class/net/eth0/device/vendor", ""),
    ]);
    let sda = "sda.disk_read_bytes=0 sda.disk_write_bytes=0 sda.disk_busy_percent=0";
    let eth = "eth0.nic_rx_bytes=0 eth0.nic_tx_bytes=0";
    machine.check(0, "!");
    machine.check(1, &format!("{sda} {eth}"));
    // A container starts: its interface is not ours, and the table stays.
    let veth = "veth1: 1 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n";
    machine.write("proc/net/dev", &NET_DEV.replace("  eth0", &format!("{veth}  eth0")));
    machine.check(2, &format!("{sda} {eth}"));
    machine.write("proc/net/dev", NET_DEV);
    machine.check(3, &format!("{sda} {eth}"));
    let nvme = " 259 0 nvme0n1 0 0 0 0 0 0 0 0 0 0 0\n";
    machine.write("proc/diskstats", &format!("{nvme}{DISKSTATS}"));
    machine.check(4, &format!("! {sda} {eth}"));
    machine.write("proc/diskstats", &DISKSTATS.replace("sda ", "sdb "));
    machine.check(5, &format!("! {eth}"));
}

#[test]
fn a_counter_that_falls_gives_no_rate() {
    let mut machine =
        Machine::new(&[("proc/net/dev", NET_DEV), ("sys/class/net/eth0/device/vendor", "")]);
    machine.check(0, "!");
    machine.write("proc/net/dev", &NET_DEV.replace("eth0: 5000", "eth0: 10"));
    machine.check(1, "eth0.nic_tx_bytes=0");
    machine.check(2, "eth0.nic_rx_bytes=0 eth0.nic_tx_bytes=0");
}

#[test]
fn missing_and_odd_files_are_absent() {
    Machine::new(&[]).check(0, "");
    let mut odd = Machine::new(&[
        ("proc/stat", "garbage"),
        ("proc/loadavg", "inf"),
        ("proc/meminfo", "MemTotal: many kB\nMemAvailable 5\nSwapTotal:\n\u{7f}\n"),
        ("proc/self/statm", "5"),
        ("proc/diskstats", "8 0\n8 0 sda x y z\n\n"),
        ("proc/net/dev", "eth0:\n:::\neth1: 1 2 3\n"),
    ]);
    odd.check(0, "");
    odd.check(1, "");
}

#[test]
fn without_sysfs_names_decide() {
    let diskstats: String =
        ["sda", "sda1", "vdb", "nvme0n1", "nvme0n1p2", "mmcblk0", "dm-0", "xvda"]
            .iter()
            .map(|name| format!("8 0 {name} 0 0 0 0 0 0 0 0 0 0 0\n"))
            .collect();
    let mut machine = Machine::new(&[("proc/diskstats", &diskstats), ("proc/net/dev", NET_DEV)]);
    machine.check(0, "!");
    let names: Vec<&str> =
        machine.host.table.devices.iter().skip(1).map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["sda", "vdb", "nvme0n1", "mmcblk0", "xvda", "eth0", "bond0"]);
}

#[test]
fn this_machine_can_be_read() {
    let mut host = HostDevices::new(HostOptions::default());
    host.sample(Micros::ZERO);
    let sample = host.sample(Micros::from_secs(1));
    for metric in ["node_memory_total_bytes", "node_disk_total_bytes", "agent_cpu_percent"] {
        let position = sample.table.position(0, metric).unwrap();
        assert!(sample.cells[position].is_some_and(|value| value >= 0.0), "{metric}");
    }
}
