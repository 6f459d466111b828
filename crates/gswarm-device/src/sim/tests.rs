//! Simulated GPUs: the same seed tells the same story, and the story is believable.

use std::collections::BTreeSet;

use gswarm_types::PeerKind;
use gswarm_types::metric::Storage;
use proptest::prelude::*;

use super::fault::SimFaultKind;
use super::model::GpuModel;
use super::*;

fn devices(spec: &str) -> SimDevices {
    SimDevices::new(&spec.parse().unwrap(), 0, &[])
}

/// One metric of one GPU; `None` where the column or the value is absent.
fn cell(sample: &Sample, gpu: usize, metric: &str) -> Option<f64> {
    sample.cells[sample.table.position(gpu, metric)?]
}

/// Everything that must hold for every row of every simulation.
fn plausible(sample: &Sample) {
    assert!(sample.table.is_consistent());
    assert_eq!(sample.table.columns.len(), sample.cells.len());
    for (column, cell) in sample.table.columns.iter().zip(&sample.cells) {
        let Some(value) = *cell else { continue };
        let metric = column.metric.known().unwrap();
        assert!(value.is_finite() && value >= 0.0, "{metric:?} is {value}");
        if metric.unit == "percent" {
            assert!(value <= 100.0, "{metric:?} is {value}");
        }
        if metric.storage == Storage::Integer {
            assert!(value.fract().abs() < f64::EPSILON, "{metric:?} is {value}");
        }
    }
    for (gpu, _) in sample.table.devices_of(Scope::Gpu) {
        let Some(total) = cell(sample, gpu, "memory_total_bytes") else {
            continue;
        };
        assert!(cell(sample, gpu, "memory_used_bytes").unwrap() <= total);
        let limit = cell(sample, gpu, "power_limit_milliwatts").unwrap();
        assert!(cell(sample, gpu, "power_milliwatts").unwrap() <= limit * 1.02);
        assert!(cell(sample, gpu, "temperature_celsius").unwrap() < 100.0);
        assert!(cell(sample, gpu, "clock_sm_mhz").unwrap() % 15.0 < 0.1);
    }
}

fn a_spec() -> impl Strategy<Value = SimSpec> {
    let model = proptest::sample::select(GpuModel::ALL.to_vec());
    let group = (1_u32..9, model).prop_map(|(count, model)| spec::SimGroup { count, model });
    let scenario = proptest::sample::select(Scenario::ALL.to_vec());
    let groups = proptest::collection::vec(group, 1..4);
    (groups, any::<u64>(), scenario, any::<bool>()).prop_map(|(groups, seed, scenario, links)| {
        let mut spec = SimSpec::new(groups).unwrap();
        (spec.seed, spec.scenario, spec.links) = (seed, scenario, links);
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_same_times_give_the_same_rows(
        spec in a_spec(),
        node_seed: u64,
        start in -1_000_000_000_i64..100_000_000_000_000,
        gaps in proptest::collection::vec(-200_000_i64..20_000_000, 1..30),
    ) {
        let mut one = SimDevices::new(&spec, node_seed, &[]);
        let mut other = SimDevices::new(&spec, node_seed, &[]);
        let mut now = Micros(start);
        for gap in gaps {
            now = now + Micros(gap);
            let sample = one.sample(now);
            plausible(&sample);
            prop_assert_eq!(sample, other.sample(now));
        }
    }

    #[test]
    fn specs_survive_their_text(spec in a_spec()) {
        let text = spec.to_string();
        prop_assert_eq!(text.parse::<SimSpec>(), Ok(spec));
    }

    #[test]
    fn faults_stay_plausible(
        kinds in proptest::collection::vec((0_u32..3, 0_usize..6, 0_i64..60), 0..12),
    ) {
        let faults = kinds.iter().map(|(gpu, kind, second)| SimFault {
            at: Micros::from_secs(1_000 + second),
            gpu: *gpu,
            kind: [
                SimFaultKind::Hang,
                SimFaultKind::Lost,
                SimFaultKind::Xid(48),
                SimFaultKind::Straggler,
                SimFaultKind::Thermal,
                SimFaultKind::Recover,
            ][*kind],
        });
        let mut sim = devices("2xh100,scenario=steady").with_faults(faults.collect());
        for second in 1_000..1_080 {
            plausible(&sim.sample(Micros::from_secs(second)));
        }
    }
}

#[test]
fn reading_more_often_changes_only_averages() {
    let mut often = devices("4xh100,scenario=training");
    let mut seldom = devices("4xh100,scenario=training");
    let start = 7_000_000_000;
    let mut last = None;
    for step in 0..=300 {
        last = Some(often.sample(Micros(start + step * 100_000)));
        if step % 30 == 0 {
            let sample = seldom.sample(Micros(start + step * 100_000));
            for metric in ["gpu_utilization", "power_milliwatts", "energy_millijoules"] {
                assert_eq!(cell(&sample, 3, metric), cell(last.as_ref().unwrap(), 3, metric));
            }
        }
    }
    // Time that goes back, or stands still, changes nothing.
    assert_eq!(often.sample(Micros(start)).cells, last.unwrap().cells);
}

#[test]
fn nodes_differ_and_ids_last() {
    let spec: SimSpec = "8xh100,seed=7".parse().unwrap();
    let ids = |node_seed| -> BTreeSet<String> {
        let sim = SimDevices::new(&spec, node_seed, &[]);
        sim.table.devices.iter().map(|device| device.id.to_string()).collect()
    };
    assert_eq!(ids(1), ids(1));
    assert!(ids(1).is_disjoint(&ids(2)));
    assert_eq!(ids(1).len(), 8);
    assert!(ids(1).iter().all(|id| id.len() == 44 && id.starts_with("GPU-sim-")));
}

/// How many columns a GPU of a model has, and whether it has some telling ones.
#[track_caller]
fn check_model(spec: &str, product: &str, present: &str, absent: &str) {
    let sample = devices(spec).sample(Micros::ZERO);
    let device = &sample.table.devices[0];
    assert_eq!((device.name.as_str(), device.simulated), (product, true));
    for metric in present.split(' ') {
        assert!(sample.table.position(0, metric).is_some(), "{metric} is missing");
    }
    for metric in absent.split(' ') {
        assert!(sample.table.position(0, metric).is_none(), "{metric} is there");
    }
}

#[test]
fn models_report_what_their_drivers_do() {
    let (gpm, link) = ("sm_activity tensor_activity", "nvlink_rx_bytes_per_second");
    check_model(
        "8xh100",
        "NVIDIA H100 80GB HBM3",
        &format!("{gpm} {link} xid_last"),
        "fan_percent",
    );
    check_model("8xh200", "NVIDIA H200", &format!("{gpm} {link}"), "fan_percent");
    check_model("8xa100", "NVIDIA A100-SXM4-80GB", link, gpm);
    check_model("2xh100", "NVIDIA H100 80GB HBM3", gpm, link);
    check_model("8xl4", "NVIDIA L4", "ecc_corrected", &format!("{gpm} {link}"));
    let bare = format!("{gpm} {link} ecc_corrected");
    check_model("8xrtx4090", "NVIDIA GeForce RTX 4090", "clock_event_reasons", &bare);
    let foreign = format!("{gpm} {link} clock_event_reasons xid_last");
    check_model("8xmi300x", "AMD Instinct MI300X", "gpu_utilization", &foreign);
}

#[test]
fn extras_are_there_when_asked_for() {
    let extra = [Metric::find("fan_percent").unwrap(), Metric::find("performance_state").unwrap()];
    let spec = "1xrtx4090+1xh100".parse().unwrap();
    let sample = SimDevices::new(&spec, 0, &extra).sample(Micros::ZERO);
    assert!(cell(&sample, 0, "fan_percent").is_some());
    assert!(cell(&sample, 1, "fan_percent").is_none());
    assert!(cell(&sample, 1, "performance_state").is_some());
    assert!(cell(&sample, 1, "encoder_utilization").is_none());
}

#[test]
fn links_are_devices_when_asked_for() {
    let sample = devices("8xa100+1xl4,links=true").sample(Micros::ZERO);
    assert_eq!(sample.table.devices_of(Scope::Link).count(), 8 * 12);
    let (position, last) = sample.table.devices_of(Scope::Link).last().unwrap();
    assert_eq!((last.index, last.parent), (95, Some(7)));
    assert_eq!(cell(&sample, position, "link_up"), Some(1.0));
    plausible(&sample);
}

/// How the first GPU reaches the others: `kind` by remote, `switch` for no remote.
#[track_caller]
fn check_topology(spec: &str, expected: &str) {
    let mut sim = devices(spec);
    let links = sim.sample(Micros::ZERO).topology.unwrap();
    assert_eq!(sim.sample(Micros::from_secs(1)).topology, None);
    let text: Vec<String> = links
        .iter()
        .filter(|link| link.device == 0)
        .map(|link| match link.remote {
            None => format!("switch:{}x{}", link.kind.as_str(), link.links),
            Some(remote) => format!("{remote}:{}", link.kind.as_str()),
        })
        .collect();
    assert_eq!(text.join(" "), expected);
    assert!(links.iter().all(|link| (link.kind == PeerKind::Nvlink) == (link.links > 0)));
}

#[test]
fn topologies() {
    check_topology("1xh100", "");
    check_topology("8xh100", "switch:nvlinkx18");
    check_topology("4xl4", "1:pcie_switch 2:cross_socket 3:cross_socket");
    check_topology(
        "8xrtx4090",
        "1:pcie_switch 2:pcie_host_bridge 3:pcie_host_bridge 4:cross_socket 5:cross_socket \
         6:cross_socket 7:cross_socket",
    );
    check_topology("8xa100+1xl4", "switch:nvlinkx12 8:cross_socket");
}

/// Runs a scenario for ten minutes and gives lowest and highest of one metric of GPU 0.
fn range(sim: &mut SimDevices, metric: &str) -> (f64, f64) {
    let mut range = (f64::MAX, f64::MIN);
    for second in 0..600 {
        let sample = sim.sample(Micros::from_secs(90_000 + second));
        plausible(&sample);
        if let Some(value) = cell(&sample, 0, metric) {
            range = (range.0.min(value), range.1.max(value));
        }
    }
    range
}

#[test]
fn loads_look_like_what_they_are() {
    let (low, high) = range(&mut devices("8xh100,scenario=training"), "gpu_utilization");
    assert!(low < 20.0 && high > 98.0, "training has stalls: {low} to {high}");
    let (low, high) = range(&mut devices("8xh100,scenario=training"), "clock_sm_mhz");
    assert!(low < 1_800.0 && high > 1_900.0, "the power limit lowers clocks: {low} to {high}");
    let (low, high) = range(&mut devices("8xh100,scenario=idle"), "power_milliwatts");
    assert!(low > 60_000.0 && high < 90_000.0, "idle GPUs rest: {low} to {high}");
    let (low, high) = range(&mut devices("8xh100,scenario=steady"), "sm_activity");
    assert!(high - low < 5.0 && low > 70.0, "steady is steady: {low} to {high}");
    let (low, high) = range(&mut devices("8xh200,scenario=inference"), "device_memory_activity");
    assert!(low < 20.0 && high > 60.0, "requests come in waves: {low} to {high}");
}

#[test]
fn processes_follow_the_job() {
    let mut sim = devices("2xh100,scenario=steady");
    let rows = sim.sample(Micros::from_secs(50)).processes.unwrap();
    assert_eq!(rows.iter().map(|row| row.device).collect::<Vec<_>>(), [0, 1]);
    assert_ne!(rows[0].pid, rows[1].pid);
    assert!(rows[0].memory_bytes > Some(1 << 30));
    // One job on all its GPUs, the same each time, and another one on other nodes.
    assert!(rows[0].job.is_some());
    assert_eq!(rows[0].job, rows[1].job);
    let job =
        |spec: &str| devices(spec).sample(Micros::from_secs(50)).processes.unwrap()[0].job.clone();
    assert_eq!(job("2xh100,scenario=steady"), rows[0].job);
    assert_ne!(job("2xh100,scenario=steady,seed=8"), rows[0].job);
    assert_eq!(sim.sample(Micros::from_secs(51)).processes, None);
    assert!(sim.sample(Micros::from_secs(60)).processes.is_some());
    let mut idle = devices("2xh100,scenario=idle");
    assert_eq!(idle.sample(Micros::ZERO).processes, Some(Vec::new()));
}

/// A fault of GPU 1 at 1000 s: what GPUs 0 and 1 show ten minutes later, and which events came.
fn after_fault(kind: SimFaultKind) -> (SimDevices, Sample, Vec<String>) {
    let at = Micros::from_secs(1_000);
    let mut sim = devices("2xh100,scenario=training")
        .with_faults(vec![SimFault { at, gpu: 1, kind }, SimFault { at, gpu: 9, kind }]);
    let mut events = Vec::new();
    let mut last = None;
    for second in 990..1_600 {
        let sample = sim.sample(Micros::from_secs(second));
        plausible(&sample);
        events.extend(sample.events.iter().map(|event| event.kind.as_str().to_owned()));
        last = Some(sample);
    }
    (sim, last.unwrap(), events)
}

#[test]
fn a_hung_gpu_is_silent_and_the_others_wait() {
    let (mut sim, sample, events) = after_fault(SimFaultKind::Hang);
    assert_eq!(events, ["gpu_unresponsive"]);
    assert_eq!(cell(&sample, 1, "unresponsive"), Some(1.0));
    assert_eq!(cell(&sample, 1, "power_milliwatts"), None);
    assert_eq!(cell(&sample, 0, "unresponsive"), Some(0.0));
    // The signature of a hang: busy by the driver's measure, and nothing happens.
    assert!(cell(&sample, 0, "gpu_utilization").unwrap() > 98.0);
    assert!(cell(&sample, 0, "sm_activity").unwrap() < 6.0);
    let at = Micros::from_secs(1_601);
    sim = sim.with_faults(vec![SimFault { at, gpu: 1, kind: SimFaultKind::Recover }]);
    let sample = sim.sample(at);
    assert_eq!(sample.events[0].kind.as_str(), "gpu_responsive");
    assert!(cell(&sample, 1, "power_milliwatts").is_some());
}

#[test]
fn faults_leave_their_traces() {
    let (_, sample, events) = after_fault(SimFaultKind::Lost);
    assert_eq!(events, ["xid", "gpu_lost"]);
    assert_eq!(cell(&sample, 1, "gpu_utilization"), None);
    let (_, sample, events) = after_fault(SimFaultKind::Xid(48));
    assert_eq!(events, ["xid", "ecc_uncorrected"]);
    assert_eq!(cell(&sample, 1, "xid_last"), Some(48.0));
    assert_eq!(cell(&sample, 1, "ecc_uncorrected"), Some(1.0));
    assert_eq!(cell(&sample, 0, "xid_last"), None);
    let (_, sample, events) = after_fault(SimFaultKind::Straggler);
    assert_eq!(events, [""; 0]);
    let clocks = [0, 1].map(|gpu| cell(&sample, gpu, "clock_sm_mhz").unwrap());
    assert!(clocks[1] < clocks[0] * 0.7, "{clocks:?}");
    let (_, sample, _) = after_fault(SimFaultKind::Thermal);
    assert!(cell(&sample, 1, "throttle_thermal_nanoseconds").unwrap() > 1e9);
    assert_eq!(cell(&sample, 0, "throttle_thermal_nanoseconds"), Some(0.0));
}

#[test]
fn errors_come_by_themselves_but_seldom() {
    let codes: Vec<u32> =
        (0..20_000).filter_map(|hour| gpu::SpontaneousFault::of(1, hour).xid).collect();
    assert!((20..100).contains(&codes.len()), "{} in 20000 hours", codes.len());
    // Some window has one: live through exactly that hour.
    let sim = devices("1xl4,scenario=steady");
    let seed = mix(sim.seed, 1_000);
    let hour = (1..).find(|hour| gpu::SpontaneousFault::of(seed, *hour).xid.is_some()).unwrap();
    let mut sim = sim;
    let samples = (0..=60).map(|minute| sim.sample(Micros::from_secs(hour * 3_600 + minute * 60)));
    let events: Vec<Event> = samples.flat_map(|sample| sample.events).collect();
    assert_eq!(events[0].kind.as_str(), "xid");
    assert_eq!(events[0].device.as_ref(), Some(&sim.table.devices[0].id));
}
