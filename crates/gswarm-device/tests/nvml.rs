//! NVML end to end over the fake library: every value, every fault, nothing left behind.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gswarm_device::nvml::{NvmlDevices, NvmlOpenError, NvmlOptions, gpus_on_pci_bus, inspect};
use gswarm_device::{Devices, Sample};
use gswarm_types::metric::Metric;
use gswarm_types::{Event, EventKind, Micros, PeerLink, ProcessKind, Scope, Severity};
use tempfile::TempDir;

/// Long enough for a loaded machine; only a tick with a hung GPU waits for it, and only once.
const DEADLINE: Duration = Duration::from_secs(2);
/// How often a condition is looked at before a test gives up: about twenty seconds.
const LOOKS_MAX: u32 = 10_000;
const MEBIBYTE: f64 = 1_048_576.0;

/// A library of its own for each test, since a library has one control file.
struct Fake {
    directory: TempDir,
}

impl Fake {
    fn new(control: &str) -> Self {
        Self::with_defines(&[], control)
    }

    /// `defines` are options of the C compiler.
    fn with_defines(defines: &[&str], control: &str) -> Self {
        let fake = Self { directory: tempfile::tempdir().unwrap() };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml/nvml.c");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O0", "-o"])
            .arg(fake.library())
            .args(defines)
            .arg(source)
            .arg("-lm")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fake.control(control);
        fake
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join("libnvidia-ml.so.1")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Replaces the control file in one step.
    fn control(&self, lines: &str) {
        let next = self.directory.path().join("control.next");
        fs::write(&next, lines.replace("; ", "\n") + "\n").unwrap();
        fs::rename(next, self.directory.path().join("control")).unwrap();
    }

    fn options(&self) -> NvmlOptions {
        NvmlOptions { library: Some(self.library()), deadline: DEADLINE, ..NvmlOptions::default() }
    }

    #[track_caller]
    fn open(&self) -> NvmlDevices {
        NvmlDevices::open(self.options()).unwrap()
    }

    /// Calls so far as `(thread, function)`.
    fn calls(&self) -> BTreeSet<(String, String)> {
        let text = fs::read_to_string(self.log()).unwrap();
        let words = text.lines().map(|line| line.split(' ').map(str::to_owned));
        words.map(|mut words| (words.next().unwrap(), words.next().unwrap())).collect()
    }
}

#[track_caller]
fn position(sample: &Sample, gpu: usize, metric: &str) -> usize {
    assert_eq!(sample.cells.len(), sample.table.columns.len());
    let position = sample.table.position(gpu, metric);
    position.unwrap_or_else(|| panic!("no column {metric} of device {gpu}"))
}

#[track_caller]
fn cell(sample: &Sample, gpu: usize, metric: &str) -> Option<f64> {
    sample.cells[position(sample, gpu, metric)]
}

fn has(sample: &Sample, gpu: usize, metric: &str) -> bool {
    sample.table.position(gpu, metric).is_some()
}

fn words(events: &[Event]) -> Vec<String> {
    let word = |event: &Event| {
        let device = event.device.as_ref().map_or("-", |id| &id.0);
        format!("{} {}", event.kind.as_str(), device.trim_start_matches("GPU-0-"))
    };
    events.iter().map(word).collect()
}

/// Samples at the same instant until the condition holds.
#[track_caller]
fn until(
    devices: &mut NvmlDevices,
    now: Micros,
    mut condition: impl FnMut(&Sample) -> bool,
) -> Sample {
    for _ in 0..LOOKS_MAX {
        let sample = devices.sample(now);
        if condition(&sample) {
            return sample;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    panic!("the condition did not come true");
}

fn uuid(gpu: usize) -> String {
    format!("GPU-00000000-0000-0000-0000-{gpu:012}")
}

fn secs(seconds: i64) -> Micros {
    Micros::from_secs(seconds)
}

/// Checks values of GPU 1; words of the input are lines of the control file.
#[track_caller]
fn check_values(control: &str, expected: &[(&str, f64)]) {
    let fake = Fake::new(control);
    let mut devices = fake.open();
    let sample = devices.sample(secs(100));
    for (metric, value) in expected {
        let found = cell(&sample, 1, metric);
        let close = found.is_some_and(|found| (found - value).abs() <= value.abs() * 1e-9);
        assert!(close, "{metric} is {found:?}, not {value}");
    }
}

#[test]
fn values_are_the_right_way_round_and_in_the_right_unit() {
    check_values(
        "set gpus * 2; set utilization 1 97; set memory_utilization 1 41; set temperature 1 66; \
         set power 1 654321; set clock_sm 1 1755; set energy 1 123456789; set replays 1 7; \
         set ecc_corrected 1 3; set ecc_uncorrected 1 2; set throttle_power 1 5000; \
         set throttle_thermal 1 6000; set remapped_corrected 1 1; set remapped_uncorrected 1 2; \
         set remapped_pending 1 1; set event_reasons 1 132",
        &[
            ("gpu_utilization", 97.0),
            ("memory_controller_utilization", 41.0),
            ("memory_used_bytes", 2.0 * 1024.0 * MEBIBYTE),
            ("memory_total_bytes", 141.0 * 1024.0 * MEBIBYTE),
            ("temperature_celsius", 66.0),
            ("power_milliwatts", 654_321.0),
            ("power_limit_milliwatts", 700_000.0),
            ("energy_millijoules", 123_456_789.0),
            ("clock_sm_mhz", 1755.0),
            ("clock_memory_mhz", 3201.0),
            ("clock_event_reasons", 132.0),
            ("throttle_power_nanoseconds", 5000.0),
            ("throttle_thermal_nanoseconds", 6000.0),
            ("pcie_generation", 5.0),
            ("pcie_width", 16.0),
            ("pcie_replays", 7.0),
            ("ecc_corrected", 3.0),
            ("ecc_uncorrected", 2.0),
            ("remapped_rows_corrected", 1.0),
            ("remapped_rows_uncorrected", 2.0),
            ("remapped_rows_pending", 1.0),
            ("remapped_rows_failed", 0.0),
            ("process_count", 0.0),
            ("unresponsive", 0.0),
        ],
    );
}

#[test]
fn without_gpm_pcie_comes_from_the_slow_thread() {
    check_values(
        "set gpus * 2; set gpm * 0; set pcie_rx 1 250; set pcie_tx 1 40",
        &[("pcie_rx_bytes_per_second", 250_000.0), ("pcie_tx_bytes_per_second", 40_000.0)],
    );
}

#[test]
fn gpm_values_are_held_while_the_counters_stand_still() {
    let control = "set gpus * 2; set links * 2";
    let at = |ms: i64| format!("{control}; set clock_ms * {ms}");
    let fake = Fake::new(&at(1000));
    let mut devices = fake.open();
    // The FP64 metric of the fake is the number of steps between the two samples.
    let mut check = |ms: i64, steps: Option<f64>| {
        fake.control(&at(ms));
        let sample = devices.sample(Micros::from_millis(ms));
        assert_eq!(cell(&sample, 0, "fp64_activity"), steps, "at {ms} ms");
        assert_eq!(cell(&sample, 0, "device_memory_activity").is_some(), steps.is_some());
        sample
    };
    check(1000, None);
    check(1050, None);
    let sample = check(1100, Some(1.0));
    assert_eq!(cell(&sample, 0, "pcie_rx_bytes_per_second"), Some(2000.0 * MEBIBYTE));
    assert_eq!(cell(&sample, 0, "pcie_tx_bytes_per_second"), Some(1000.0 * MEBIBYTE));
    assert_eq!(cell(&sample, 0, "nvlink_rx_bytes_per_second"), Some(200.0 * MEBIBYTE));
    assert_eq!(cell(&sample, 0, "nvlink_tx_bytes_per_second"), Some(400.0 * MEBIBYTE));
    let bandwidth = cell(&sample, 0, "device_memory_bandwidth_bytes_per_second").unwrap();
    assert!((bandwidth / 1e9 - 0.6 * 4814.3).abs() < 0.1, "{bandwidth}");
    check(1130, Some(1.0));
    check(1190, Some(1.0));
    // The sample of 1100 was kept, so nothing between is lost.
    check(1390, Some(2.0));
    check(2500, Some(12.0));
    fake.control(&format!("{}; error nvmlGpmSampleGet 0 999", at(2600)));
    for (ms, expected) in [(2600, Some(12.0)), (2700, None)] {
        let sample = devices.sample(Micros::from_millis(ms));
        assert_eq!(cell(&sample, 0, "fp64_activity"), expected, "at {ms} ms");
    }
}

#[test]
fn what_the_gpu_does_not_offer_has_no_column() {
    let fake = Fake::new(
        "set gpus * 2; set gpm 0 0; set nvlink * 0; error nvmlDeviceGetRemappedRows * 3; \
         error nvmlDeviceGetTotalEccErrors * 3; error nvmlDeviceGetComputeRunningProcesses_v3 * 3",
    );
    let sample = fake.open().sample(secs(1));
    for metric in ["sm_activity", "tensor_activity", "device_memory_bandwidth_bytes_per_second"] {
        assert!(!has(&sample, 0, metric) && has(&sample, 1, metric), "{metric}");
    }
    for metric in ["remapped_rows_failed", "ecc_corrected", "process_count", "fan_percent"] {
        assert!(!has(&sample, 0, metric), "{metric}");
    }
    assert!(!has(&sample, 0, "nvlink_rx_bytes_per_second"));
    assert_eq!(sample.table.devices_of(Scope::Link).count(), 0);
    assert_eq!(cell(&sample, 0, "unresponsive"), Some(0.0));
}

#[test]
fn missing_functions_cost_only_their_own_columns() {
    let fake = Fake::with_defines(
        &[
            "-DnvmlDeviceGetPowerUsage=absent1",
            "-DnvmlDeviceGetMemoryInfo_v2=absent2",
            "-DnvmlGpmMetricsGet=absent3",
            "-DnvmlEventSetCreate=absent4",
            "-DnvmlDeviceGetRemappedRows=absent5",
        ],
        "set gpus * 1; set temperature 0 50",
    );
    let sample = fake.open().sample(secs(1));
    for metric in ["power_milliwatts", "sm_activity", "xid_last", "remapped_rows_pending"] {
        assert!(!has(&sample, 0, metric), "{metric}");
    }
    assert_eq!(cell(&sample, 0, "temperature_celsius"), Some(50.0));
    // The old call counts what the driver reserves as used.
    assert_eq!(cell(&sample, 0, "memory_used_bytes"), Some(1624.0 * MEBIBYTE));
    assert!(cell(&sample, 0, "pcie_rx_bytes_per_second").is_some());
}

#[test]
fn a_failing_call_gives_none_and_comes_back() {
    let fake = Fake::new("set gpus * 2; set temperature * 50");
    let mut devices = fake.open();
    let table = devices.sample(secs(1)).table;
    fake.control("set gpus * 2; set temperature * 51; error nvmlDeviceGetTemperature 1 999");
    let sample = devices.sample(secs(2));
    assert_eq!(cell(&sample, 0, "temperature_celsius"), Some(51.0));
    assert_eq!(cell(&sample, 1, "temperature_celsius"), None);
    assert_eq!(cell(&sample, 1, "power_limit_milliwatts"), Some(700_000.0));
    assert_eq!(cell(&sample, 1, "unresponsive"), Some(0.0));
    assert_eq!(words(&sample.events), [""; 0]);
    fake.control("set gpus * 2; set temperature * 52");
    let sample = devices.sample(secs(3));
    assert_eq!(cell(&sample, 1, "temperature_celsius"), Some(52.0));
    assert_eq!(sample.table, table);
}

#[test]
fn extra_metrics_are_read_when_asked_for() {
    let fake = Fake::new("set gpus * 1");
    let values = [
        ("encoder_utilization", 11.0),
        ("decoder_utilization", 22.0),
        ("fan_percent", 33.0),
        ("performance_state", 0.0),
        ("memory_temperature_celsius", 45.0),
    ];
    let extra_metrics = values.iter().map(|(name, _)| Metric::find(name).unwrap()).collect();
    let options = NvmlOptions { extra_metrics, ..fake.options() };
    let sample = NvmlDevices::open(options).unwrap().sample(secs(1));
    for (metric, value) in values {
        assert_eq!(cell(&sample, 0, metric), Some(value), "{metric}");
    }
}

#[test]
fn a_hung_gpu_is_unresponsive_while_the_others_go_on() {
    let fake = Fake::new("set gpus * 3; set temperature * 40");
    let mut devices = fake.open();
    let table = devices.sample(secs(1)).table;
    fake.control("set gpus * 3; set temperature * 41; hang nvmlDeviceGetTemperature 1");
    let mut events = Vec::new();
    for second in 2..6 {
        let sample = devices.sample(secs(second));
        events.extend(words(&sample.events));
        assert_eq!(cell(&sample, 0, "temperature_celsius"), Some(41.0));
        assert_eq!(cell(&sample, 2, "temperature_celsius"), Some(41.0));
        assert_eq!(cell(&sample, 1, "unresponsive"), Some(1.0));
        for (column, cell) in sample.table.columns.iter().zip(&sample.cells) {
            let of_hung = column.device == 1
                || sample.table.device_of(column).is_some_and(|device| device.parent == Some(1));
            assert!(!of_hung || cell.is_none() || column.metric.as_str() == "unresponsive");
        }
        assert_eq!(sample.table, table);
    }
    fake.control("set gpus * 3; set temperature * 42");
    let sample = until(&mut devices, secs(7), |sample| {
        events.extend(words(&sample.events));
        cell(sample, 1, "unresponsive") == Some(0.0)
    });
    assert_eq!(cell(&sample, 1, "temperature_celsius"), Some(42.0));
    let expected = ["gpu_unresponsive", "gpu_responsive"].map(|e| format!("{e} {}", uuid(1)));
    assert_eq!(events, expected);
}

#[test]
fn a_gpu_that_hangs_at_the_start_is_there_and_completed_later() {
    let fake = Fake::new("set gpus * 2; hang nvmlDeviceGetUUID 0");
    let options = NvmlOptions { open_deadline: Duration::from_millis(300), ..fake.options() };
    let mut devices = NvmlDevices::open(options).unwrap();
    let sample = devices.sample(secs(1));
    assert_eq!(words(&sample.events), ["gpu_unresponsive nvml:0"]);
    assert_eq!(cell(&sample, 0, "unresponsive"), Some(1.0));
    assert_eq!(cell(&sample, 1, "unresponsive"), Some(0.0));
    assert!(!has(&sample, 0, "temperature_celsius"));
    fake.control("set gpus * 2; set temperature * 44");
    let sample =
        until(&mut devices, secs(2), |sample| cell(sample, 0, "unresponsive") == Some(0.0));
    assert_eq!(sample.table.devices[0].id.0, uuid(0));
    assert_eq!(cell(&sample, 0, "temperature_celsius"), Some(44.0));
}

#[test]
fn a_lost_gpu_is_reported_once_and_stays_in_the_table() {
    let fake = Fake::new("set gpus * 2; set temperature * 40");
    let mut devices = fake.open();
    let table = devices.sample(secs(1)).table;
    fake.control("set gpus * 2; set temperature * 40; lost 1");
    let mut events = Vec::new();
    for second in 2..5 {
        let sample = devices.sample(secs(second));
        events.extend(words(&sample.events));
        assert_eq!(sample.table, table);
        assert_eq!(cell(&sample, 0, "temperature_celsius"), Some(40.0));
        assert_eq!(cell(&sample, 1, "temperature_celsius"), None);
        assert_eq!(cell(&sample, 1, "energy_millijoules"), None);
        assert_eq!(cell(&sample, 1, "unresponsive"), Some(1.0));
    }
    assert_eq!(events, [format!("gpu_lost {}", uuid(1))]);
    fake.control("set gpus * 2; set temperature * 40");
    let sample = devices.sample(secs(5));
    assert_eq!(words(&sample.events), [format!("gpu_found {}", uuid(1))]);
    assert_eq!(cell(&sample, 1, "temperature_celsius"), Some(40.0));
}

/// The message and the fix of a library that does not open.
#[track_caller]
fn check_open_error(control: &str, message: &str, fix: &str) {
    let fake = Fake::new(control);
    let error = NvmlDevices::open(fake.options()).unwrap_err();
    let text = error.to_string().replace(&fake.library().display().to_string(), "LIB");
    assert_eq!(text, message);
    assert!(error.fix().contains(fix), "{}", error.fix());
    let problem = inspect(Some(&fake.library())).problem;
    assert_eq!(problem.is_some(), !matches!(error, NvmlOpenError::NoGpu));
}

#[test]
fn a_library_that_does_not_open_says_why_and_what_to_do() {
    check_open_error(
        "init 18",
        "`LIB` and the loaded NVIDIA kernel module are of different versions",
        "reboot",
    );
    check_open_error(
        "init 9",
        "the NVIDIA driver is not loaded (`LIB` found no kernel module)",
        "modprobe nvidia",
    );
    check_open_error(
        "init 4",
        "no permission to talk to the NVIDIA driver through `LIB`",
        "/dev/nvidiactl",
    );
    check_open_error("init 999", "`LIB` does not start", "dmesg");
    check_open_error("set gpus * 0", "the NVIDIA driver sees no GPU", "nvidia-smi");
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libnvidia-ml.so.1");
    fs::write(&library, "not a library").unwrap();
    let options = NvmlOptions { library: Some(library.clone()), ..NvmlOptions::default() };
    let error = NvmlDevices::open(options).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot load `{}`", library.display()));
    assert!(error.source().is_some());
    let problem = inspect(Some(&library)).problem.unwrap();
    assert!(problem.message.contains("file too short"), "{}", problem.message);
}

#[test]
fn faults_become_events() {
    let healthy = "set gpus * 2; set ecc_uncorrected 1 1; set remapped_corrected 1 1";
    let fake = Fake::new(healthy);
    let mut devices = fake.open();
    let sample = devices.sample(secs(1));
    assert_eq!(words(&sample.events), [""; 0]);
    assert_eq!(cell(&sample, 1, "xid_last"), None);
    fake.control(
        "set gpus * 2; set ecc_uncorrected 1 3; set remapped_corrected 1 1; \
         set remapped_pending 1 1; xid 1 79 1; xid 0 31 2",
    );
    let mut events = Vec::new();
    until(&mut devices, secs(20), |sample| {
        events.extend(sample.events.clone());
        events.len() >= 4
    });
    let found: BTreeMap<_, _> = events.iter().map(|e| (e.code, e)).collect();
    let kinds: BTreeSet<_> = words(&events).into_iter().collect();
    let expected = [(0, "xid"), (1, "xid"), (1, "ecc_uncorrected"), (1, "row_remap")];
    assert_eq!(kinds, expected.map(|(gpu, word)| format!("{word} {}", uuid(gpu))).into());
    assert_eq!(found[&Some(79)].severity, Severity::Error);
    assert_eq!(found[&Some(79)].message, "XID 79: the GPU has fallen off the bus");
    assert_eq!(found[&Some(31)].severity, Severity::Warning);
    assert_eq!(found[&Some(2)].kind, EventKind::EccUncorrected);
    let sample = devices.sample(secs(21));
    assert_eq!(words(&sample.events), [""; 0]);
    assert_eq!(cell(&sample, 1, "xid_last"), Some(79.0));
}

#[test]
fn processes_have_a_user_and_a_name() {
    let me = std::process::id();
    let fake = Fake::new(&format!(
        "set gpus * 2; process 1 compute {me} 1048576; process 1 graphics {me} 5; \
         process 1 graphics 4194305 -1"
    ));
    let mut devices = fake.open();
    let sample = devices.sample(secs(1));
    let rows = sample.processes.clone().unwrap();
    let shown: Vec<_> =
        rows.iter().map(|row| (row.device, row.pid, row.memory_bytes, row.kind)).collect();
    let expected =
        [(1, me, Some(1 << 20), ProcessKind::Compute), (1, 4_194_305, None, ProcessKind::Graphics)];
    assert_eq!(shown, expected);
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(rows[0].name.as_deref(), Some(name.trim_end()));
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    assert_eq!(rows[0].user.as_deref(), Some(String::from_utf8(user).unwrap().trim_end()));
    assert_eq!((rows[1].name.as_ref(), rows[1].user.as_ref()), (None, None));
    assert_eq!(cell(&sample, 1, "process_count"), Some(2.0));
    fake.control("set gpus * 2");
    let sample = until(&mut devices, secs(7), |sample| {
        sample.processes.as_ref().is_some_and(|rows| rows.is_empty())
    });
    assert_eq!(cell(&sample, 0, "process_count"), Some(0.0));
}

#[test]
fn processes_have_the_job_they_were_started_in() {
    let mut child = Command::new("sleep").arg("60").env("SLURM_JOB_ID", "4711").spawn().unwrap();
    let pid = child.id();
    let fake = Fake::new(&format!("set gpus * 1; process 0 compute {pid} 1048576"));
    let rows = fake.open().sample(secs(1)).processes.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(rows[0].name.as_deref(), Some("sleep"));
    assert_eq!(rows[0].job.as_deref(), Some("4711"));
}

/// Peers as `device-remote:kind:links`.
#[track_caller]
fn check_topology(topology: Option<Vec<PeerLink>>, expected: &str) {
    let show = |peer: &PeerLink| {
        let remote = peer.remote.map_or_else(|| "switch".to_owned(), |remote| remote.to_string());
        format!("{}-{remote}:{}:{}", peer.device, peer.kind.as_str(), peer.links)
    };
    let shown: Vec<_> = topology.unwrap().iter().map(show).collect();
    assert_eq!(shown.join(" "), expected);
}

#[test]
fn switched_links_name_no_pairs() {
    let fake = Fake::new("set gpus * 2; set links * 3");
    let mut devices = fake.open();
    let sample = devices.sample(secs(1));
    let speeds: Vec<_> =
        sample.topology.iter().flatten().map(|peer| peer.bytes_per_second_max).collect();
    assert_eq!(speeds, [Some(3 * 26_562_000_000); 2]);
    check_topology(sample.topology, "0-switch:nvlink:3 1-switch:nvlink:3");
    let links: Vec<_> = sample.table.devices_of(Scope::Link).map(|(_, link)| link).collect();
    assert_eq!(links.len(), 6);
    assert_eq!((links[4].parent, links[4].index, &*links[4].name), (Some(1), 4, "NVLink 1"));
    assert_eq!(links[4].id.0, format!("{}/nvlink1", uuid(1)));
    assert_eq!(devices.sample(secs(2)).topology, None);
    // One link of one GPU goes down: the table stays, the topology is told again.
    fake.control("set gpus * 2; set links * 3; set link2 1 0");
    let changed = until(&mut devices, secs(20), |sample| sample.topology.is_some());
    check_topology(changed.topology.clone(), "0-switch:nvlink:3 1-switch:nvlink:2");
    assert_eq!(changed.table, sample.table);
    let down = sample.table.devices.iter().position(|device| device.id.0.ends_with("1/nvlink2"));
    assert_eq!(cell(&changed, down.unwrap(), "link_up"), Some(0.0));
}

#[test]
fn a_link_that_comes_up_later_gets_its_columns() {
    let fake = Fake::new("set gpus * 1; set links * 2; set link1 * 0");
    let mut devices = fake.open();
    assert_eq!(devices.sample(secs(1)).table.devices_of(Scope::Link).count(), 1);
    fake.control("set gpus * 1; set links * 2");
    let sample =
        until(&mut devices, secs(20), |sample| sample.table.devices_of(Scope::Link).count() == 2);
    assert_eq!(cell(&sample, 2, "link_up"), Some(1.0));
    assert!(has(&sample, 2, "link_rx_bytes_per_second"));
}

#[test]
fn direct_links_name_their_pair_and_the_rest_goes_over_pcie() {
    let fake = Fake::new("set gpus * 3; set nvlink * 1; set nvlink 2 0; set links * 4");
    let sample = fake.open().sample(secs(1));
    check_topology(
        sample.topology,
        "0-1:nvlink:4 0-2:same_socket:0 1-0:nvlink:4 1-2:same_socket:0 \
         2-0:same_socket:0 2-1:same_socket:0",
    );
}

#[test]
fn without_gpm_link_traffic_comes_from_counters() {
    let control = "set gpus * 1; set gpm * 0; set links * 2";
    let fake = Fake::new(&format!("{control}; set clock_ms * 10000"));
    let mut devices = fake.open();
    let mut sample = devices.sample(secs(1));
    assert_eq!(cell(&sample, 0, "nvlink_rx_bytes_per_second"), None);
    for second in 2..i64::from(LOOKS_MAX) {
        // Counters and their timestamps follow the clock, so the rate is exact whenever it is read.
        fake.control(&format!("{control}; set clock_ms * {}", 10_000 + 1000 * second));
        sample = devices.sample(secs(second));
        if cell(&sample, 0, "nvlink_rx_bytes_per_second").is_some() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let kibibytes = |gpu, metric| cell(&sample, gpu, metric).map(|bytes| bytes / 1024.0);
    assert_eq!(kibibytes(0, "nvlink_rx_bytes_per_second"), Some(3000.0));
    assert_eq!(kibibytes(0, "nvlink_tx_bytes_per_second"), Some(6000.0));
    assert_eq!(kibibytes(2, "link_rx_bytes_per_second"), Some(2000.0));
    assert_eq!(kibibytes(2, "link_tx_bytes_per_second"), Some(4000.0));
}

#[test]
fn slow_calls_are_never_made_in_the_tick() {
    let fake = Fake::with_defines(&["-DSLOW_CALLS"], "");
    let control = format!("set gpus * 2; set gpm 0 0; log {}", fake.log().display());
    fake.control(&control);
    let mut devices = fake.open();
    let slow = [
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetPcieReplayCounter",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetNvLinkState",
    ];
    devices.sample(secs(1));
    fs::remove_file(fake.log()).unwrap();
    // Everything is due again in this tick.
    until(&mut devices, secs(60), |_| {
        let calls = fake.calls();
        let called = |name: &str| calls.iter().any(|(_, function)| function == name);
        slow.iter().all(|name| called(name) || *name == "nvmlDeviceGetMaxClockInfo")
    });
    for (thread, function) in fake.calls() {
        let in_tick = thread == "gpu0" || thread == "gpu1";
        assert!(!(in_tick && slow.contains(&&*function)), "{function} on {thread}");
        assert!(in_tick || thread.ends_with("-slow") || thread == "gpu-events", "{thread}");
    }
    assert!(devices.driver_time() > Micros::ZERO);
}

#[test]
fn what_changes_slowly_is_held_between_quick_ticks() {
    let fake = Fake::with_defines(&[], "");
    fake.control(&format!("set gpus * 1; log {}", fake.log().display()));
    let mut devices = fake.open();
    devices.sample(Micros::from_millis(10_000));
    fs::remove_file(fake.log()).unwrap();
    for tick in 1..=20 {
        // Ticks are a little late, now this much and now that.
        let sample = devices.sample(Micros::from_millis(10_000 + 100 * tick + tick * 7 % 5));
        assert!(sample.cells.iter().any(Option::is_some));
    }
    let log = fs::read_to_string(fake.log()).unwrap();
    let count = |name: &str| log.lines().filter(|line| line.contains(name)).count();
    assert_eq!(count("nvmlDeviceGetPowerUsage"), 20);
    assert_eq!(count("nvmlDeviceGetTemperature"), 4);
    assert_eq!(count("nvmlDeviceGetEnforcedPowerLimit"), 2);
}

#[test]
fn a_slow_driver_is_asked_less_often() {
    let fake = Fake::with_defines(&[], "");
    let control = format!("set gpus * 1; set gpm 0 0; log {}", fake.log().display());
    fake.control(&control);
    let mut devices = fake.open();
    devices.sample(Micros::from_millis(10_000));
    fs::remove_file(fake.log()).unwrap();
    fake.control(&format!("{control}; set delay_us 0 3000"));
    let mut events = Vec::new();
    for tick in 1..=40 {
        let sample = devices.sample(Micros::from_millis(10_000 + 100 * tick));
        assert!(cell(&sample, 0, "power_milliwatts").is_some(), "held, not absent");
        events.extend(sample.events.into_iter().map(|event| event.kind));
    }
    assert_eq!(events, [EventKind::DriverSlow]);
    let log = fs::read_to_string(fake.log()).unwrap();
    let rows = log.lines().filter(|line| line.contains("nvmlDeviceGetPowerUsage")).count();
    // 4 s earn 80 ms, 50 are in hand; a row of five calls or more takes at least 15.
    assert!((4..=10).contains(&rows), "{rows} rows");
}

#[test]
fn gpm_is_never_entered_by_two_threads() {
    let fake = Fake::with_defines(&["-DSLOW_CALLS"], "");
    fake.control(&format!("set gpus * 8; log {}", fake.log().display()));
    let mut devices = fake.open();
    // A second look at the same library, as `doctor` inside an agent takes it.
    assert_eq!(inspect(Some(&fake.library())).problem, None);
    for tick in 1..20 {
        devices.sample(Micros::from_millis(100 * tick));
    }
    let calls = fake.calls();
    let called = |name: &str| calls.iter().filter(|(_, function)| function == name).count();
    assert_eq!(called("overlap"), 0);
    assert!(called("nvmlGpmSampleGet") >= 8);
}

#[test]
fn a_gpu_that_hangs_in_gpm_costs_the_others_only_gpm() {
    let control = "set gpus * 2; set temperature * 40; set gpm2 * 50";
    let at = |ms: i64| format!("{control}; set clock_ms * {ms}");
    let fake = Fake::new(&at(1000));
    let mut devices = fake.open();
    fake.control(&at(1100));
    let sample = devices.sample(secs(1));
    assert_eq!(cell(&sample, 1, "sm_activity"), Some(50.0));
    fake.control(&format!("{}; hang nvmlGpmSampleGet 0", at(2100)));
    for second in 2..6 {
        let sample = devices.sample(secs(second));
        assert_eq!(cell(&sample, 0, "unresponsive"), Some(1.0));
        assert_eq!(cell(&sample, 1, "unresponsive"), Some(0.0));
        assert_eq!(cell(&sample, 1, "temperature_celsius"), Some(40.0));
    }
    assert_eq!(cell(&devices.sample(secs(6)), 1, "sm_activity"), None);
    fake.control(&at(12_000));
    until(&mut devices, secs(11), |sample| cell(sample, 0, "sm_activity") == Some(50.0));
    until(&mut devices, secs(12), |sample| cell(sample, 1, "sm_activity") == Some(50.0));
}

#[test]
fn slow_values_that_grow_old_are_dropped() {
    let fake = Fake::new("set gpus * 2; set energy * 1000");
    let mut devices = fake.open();
    assert_eq!(cell(&devices.sample(secs(1)), 0, "energy_millijoules"), Some(1000.0));
    let hung = "set gpus * 2; set energy * 2000; hang nvmlDeviceGetTotalEnergyConsumption 0";
    fake.control(hung);
    let sample = until(&mut devices, secs(20), |sample| {
        cell(sample, 1, "energy_millijoules") == Some(2000.0)
    });
    assert_eq!(cell(&sample, 0, "energy_millijoules"), Some(1000.0));
    let sample = until(&mut devices, secs(60), |sample| {
        cell(sample, 1, "energy_millijoules") == Some(2000.0)
    });
    assert_eq!(cell(&sample, 0, "energy_millijoules"), None);
    assert_eq!(cell(&sample, 0, "unresponsive"), Some(0.0));
    fake.control("set gpus * 2; set energy * 3000");
    until(&mut devices, secs(61), |sample| cell(sample, 0, "energy_millijoules") == Some(3000.0));
}

#[test]
fn nothing_is_left_behind() {
    let fake = Fake::new("");
    fake.control(&format!("set gpus * 8; log {}", fake.log().display()));
    let mut devices = fake.open();
    assert_eq!(devices.sample(secs(1)).table.devices_of(Scope::Gpu).count(), 8);
    drop(devices);
    // The last thread that lets go of the library shuts it down, so this says that all have ended.
    let shutdown = |(_, function): &(String, String)| function == "nvmlShutdown";
    assert_eq!(fake.calls().iter().filter(|call| shutdown(call)).count(), 1);
}

#[test]
fn an_inspection_shows_what_there_is() {
    let fake = Fake::new("set gpus * 3; set gpm 1 0; lost 2");
    let inspection = inspect(Some(&fake.library()));
    assert_eq!(inspection.library, Some(fake.library()));
    assert_eq!(inspection.driver_version.as_deref(), Some("580.00.fake"));
    assert_eq!(inspection.nvml_version.as_deref(), Some("13.580.00"));
    assert_eq!(inspection.cuda_version.as_deref(), Some("13.2"));
    assert_eq!(inspection.problem, None);
    let gpms: Vec<_> = inspection.gpus.iter().map(|gpu| gpu.gpm).collect();
    assert_eq!(gpms, [Some(true), Some(false), None]);
    assert_eq!(inspection.gpus[1].pci.as_deref(), Some("00000000:11:00.0"));
    assert_eq!(inspection.gpus[1].uuid, Some(uuid(1)));
    assert_eq!(inspection.gpus[2].problem.as_ref().unwrap().message, "the GPU is lost");
}

#[test]
fn gpus_are_found_on_the_bus_without_a_driver() {
    let sys = tempfile::tempdir().unwrap();
    for (address, vendor, class) in [
        ("0000:1b:00.0", "0x10de", "0x030200"),
        ("0000:05:00.0", "0x10de", "0x030000"),
        ("0000:1b:00.1", "0x10de", "0x040300"),
        ("0000:00:02.0", "0x8086", "0x030000"),
    ] {
        let directory = sys.path().join("bus/pci/devices").join(address);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(directory.join("class"), format!("{class}\n")).unwrap();
    }
    assert_eq!(gpus_on_pci_bus(sys.path()), ["0000:05:00.0", "0000:1b:00.0"]);
    assert_eq!(gpus_on_pci_bus(&sys.path().join("nowhere")), [""; 0]);
}
