//! What `--devices` accepts and what it opens.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers belong to tests")]

use std::error::Error;
use std::fs;
use std::sync::Arc;

use gswarm_device::{DeviceSpec, Devices, OpenError, OpenOptions, open, parse_extra_metrics};
use gswarm_types::{Micros, Scope};
use tempfile::TempDir;

/// The text, and how it reads with everything spelled out.
#[track_caller]
fn check(text: &str, expected: &str) {
    let spec: DeviceSpec = text.parse().unwrap();
    assert_eq!(spec.to_string(), expected);
    assert_eq!(expected.parse::<DeviceSpec>().unwrap(), spec);
    assert_eq!(spec.is_simulated(), text.contains(':'));
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let error = text.parse::<DeviceSpec>().unwrap_err();
    let message = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    assert!(message.contains(expected), "{message}");
}

#[test]
fn specs() {
    check("auto", "auto");
    check("nvml", "nvml");
    check("none", "none");
    check("sim:8xh100,seed=7", "sim:8xh100,seed=7,scenario=mixed");
    check("sim:4xh100+4xa100", "sim:4xh100+4xa100,seed=1,scenario=mixed");
    check(
        "sim:1xl4+2xrtx4090+3xmi300x+4xh200,links=true,scenario=idle",
        "sim:1xl4+2xrtx4090+3xmi300x+4xh200,seed=1,scenario=idle,links=true",
    );
    check("replay:a,b:c.jsonl", "replay:a,b:c.jsonl");
    check("replay:a.json,node=n1", "replay:a.json,node=n1");
    check("replay:a.json,node=n1,node=", "replay:a.json,node=n1,node=");
    assert_eq!(DeviceSpec::default(), DeviceSpec::Auto);
}

#[test]
fn what_is_no_spec() {
    for text in ["", "cuda", "sim", "replay", "auto:1", "SIM:8xh100"] {
        check_error(text, "known are auto, nvml, none, sim:8xh100,seed=7 and replay:FILE");
    }
    check_error("replay:", "names no file to replay");
    check_error(
        "sim:8xh900",
        "unknown GPU model `h900`: known are h100, a100, h200, l4, rtx4090, mi300x",
    );
    check_error("sim:", "is not COUNTxMODEL");
    check_error("sim:h100", "is not COUNTxMODEL");
    check_error("sim:8xh100+", "is not COUNTxMODEL");
    for count in ["0", "65", "40xl4+25", "99999999999"] {
        check_error(&format!("sim:{count}xh100"), "has 1 to 64 GPUs");
    }
    check_error("sim:1xl4,speed=3", "unknown option `speed=3`: known are seed=N");
    check_error("sim:1xl4,seed=-1", "`-1` is not a seed");
    check_error("sim:1xl4,scenario=busy", "known are steady, training, inference, idle, mixed");
    check_error("sim:1xl4,links=yes", "links is true or false");
}

#[test]
fn extra_metrics() {
    let names = |list| -> Vec<&str> {
        parse_extra_metrics(list).unwrap().iter().map(|metric| metric.name).collect()
    };
    assert_eq!(names(""), [""; 0]);
    assert_eq!(
        names("fan_percent, encoder_utilization,fan_percent"),
        ["fan_percent", "encoder_utilization"]
    );
    assert_eq!(names("gpu_utilization"), [""; 0]);
    let error = parse_extra_metrics("fan_percent,fan_speed").unwrap_err().to_string();
    assert!(error.contains("unknown metric `fan_speed`"), "{error}");
    assert!(error.contains("encoder_utilization, decoder_utilization, fan_percent"), "{error}");
}

/// An empty machine, on which NVML cannot be loaded.
fn bare(root: &TempDir) -> OpenOptions {
    OpenOptions {
        nvml_library: Some(root.path().join("libnvidia-ml.so.1")),
        proc_root: root.path().join("proc"),
        sys_root: root.path().join("sys"),
        ..OpenOptions::default()
    }
}

fn scopes(devices: &mut dyn Devices) -> Vec<Scope> {
    let sample = devices.sample(Micros::ZERO);
    assert_eq!(sample.cells.len(), sample.table.columns.len());
    sample.table.devices.iter().map(|device| device.scope).collect()
}

#[test]
fn gpus_stand_before_the_machine() {
    let root = TempDir::new().unwrap();
    let spec = "sim:2xh100".parse().unwrap();
    let mut devices = open(&spec, bare(&root)).unwrap();
    assert_eq!(scopes(devices.as_mut()), [Scope::Gpu, Scope::Gpu, Scope::Node]);
    let one = devices.sample(Micros::from_secs(1));
    let two = devices.sample(Micros::from_secs(2));
    assert!(Arc::ptr_eq(&one.table, &two.table));
    let mut alone = open(&spec, OpenOptions { host_metrics: false, ..bare(&root) }).unwrap();
    assert_eq!(scopes(alone.as_mut()), [Scope::Gpu, Scope::Gpu]);
}

#[test]
fn a_machine_without_gpus_is_a_node() {
    let root = TempDir::new().unwrap();
    for spec in [DeviceSpec::Auto, DeviceSpec::None] {
        let mut devices = open(&spec, bare(&root)).unwrap();
        assert_eq!(scopes(devices.as_mut()), [Scope::Node]);
    }
    assert!(matches!(open(&DeviceSpec::Nvml, bare(&root)), Err(OpenError::Nvml { .. })));
}

#[test]
fn a_gpu_that_cannot_be_used_is_an_error() {
    let root = TempDir::new().unwrap();
    let device = root.path().join("sys/bus/pci/devices/0000:17:00.0");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("vendor"), "0x10de\n").unwrap();
    fs::write(device.join("class"), "0x030200\n").unwrap();
    fs::write(device.join("device"), "0x2330\n").unwrap();
    let error = open(&DeviceSpec::Auto, bare(&root)).unwrap_err();
    assert!(error.to_string().contains("0000:17:00.0"), "{error}");
    assert!(error.to_string().contains("--devices none"), "{error}");
    open(&DeviceSpec::None, bare(&root)).unwrap();
}

#[test]
fn a_file_that_cannot_be_replayed_is_an_error() {
    let root = TempDir::new().unwrap();
    let spec = format!("replay:{}", root.path().join("missing.jsonl").display());
    let error = open(&spec.parse().unwrap(), bare(&root)).unwrap_err();
    let source = error.source().unwrap().to_string();
    assert!(source.contains("missing.jsonl"), "{source}");
}

#[test]
fn a_recording_is_replayed() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("session.json");
    let frame = r#"{"time": "2025-07-01T12:00:00", "gpu_id": ["gpu-a:0:NVIDIA A100-SXM4-80GB"],
        "gpu_util": ["0.43"]}"#;
    fs::write(&path, format!("{{\"frames\": [{frame}]}}")).unwrap();
    let spec = format!("replay:{},node=gpu-a", path.display());
    let mut devices = open(&spec.parse().unwrap(), bare(&root)).unwrap();
    let sample = devices.sample(Micros::ZERO);
    assert_eq!(sample.table.devices[0].name, "NVIDIA A100-SXM4-80GB");
    assert_eq!(sample.cells[0], Some(43.0));
}
