//! Recorded files through the front door.

use std::error::Error;
use std::fmt::Write;
use std::fs;

use tempfile::TempDir;

use super::*;

const TABLE: &str = r#"{"table":{"n":"node-1","i":"0000000000000001","d":"00000000000000aa","devices":[
    {"id":"node","scope":"node","index":0,"name":"node"},
    {"id":"GPU-1","scope":"gpu","index":0,"name":"NVIDIA H200"},
    {"id":"GPU-1/0","scope":"link","index":0,"name":"NVLink 0","parent":0}],
    "columns":[{"d":0,"m":"node_load_1m"},{"d":1,"m":"gpu_utilization"},{"d":2,"m":"link_up"},
    {"d":1,"m":"from_the_future"}]}}"#;

fn table(node: &str) -> String {
    TABLE.replace("\n", "").replace("node-1", node)
}

fn record(node: &str, time: i64, cells: &str) -> String {
    format!(
        r#"{{"crc":"1","record":{{"n":"{node}","t":{time},"i":"0000000000000001","s":1,"m":1,"w":1,"b":{{"values":{{"d":"00000000000000aa","v":[{cells}]}}}}}}}}"#
    )
}

fn open(text: &str, node: Option<&str>) -> Result<ReplayDevices, ReplayError> {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, text).unwrap();
    ReplayDevices::open(&ReplaySpec { path, node: node.map(str::to_owned) })
}

/// What each second of the replay shows, as `device.metric=value`.
#[track_caller]
fn check(text: &str, node: Option<&str>, seconds: &[i64], expected: &[&str]) {
    let mut devices = open(text, node).unwrap();
    for (second, expected) in seconds.iter().zip(expected) {
        // The machine has been up for a while.
        let sample = devices.sample(Micros::from_secs(5_000 + second));
        assert!(sample.table.is_consistent());
        assert!(sample.table.devices.iter().all(|device| device.simulated));
        let mut text = String::new();
        for (column, cell) in sample.table.columns.iter().zip(&sample.cells) {
            let device = sample.table.device_of(column).unwrap();
            let cell = cell.map_or_else(|| "-".to_owned(), |cell| cell.to_string());
            write!(text, "{}.{}={cell} ", device.id, column.metric).unwrap();
        }
        assert_eq!(text.trim_end(), *expected, "at {second} s");
    }
}

#[track_caller]
fn check_error(text: &str, node: Option<&str>, expected: &str) {
    let error = open(text, node).unwrap_err();
    let mut message = error.to_string();
    if let Some(source) = error.source() {
        write!(message, ": {source}").unwrap();
    }
    assert!(message.contains(expected), "{message}");
}

#[test]
fn records_are_played_in_a_loop() {
    let file = [
        r#"{"header":{"format":1}}"#.to_owned(),
        table("node-1"),
        record("node-1", 3_000_000, "9,30,1,null"),
        record("node-1", 1_000_000, "9,10,1,0.5"),
        r#"{"record":{"n":"node-1","t":2,"i":"0000000000000001","s":2,"m":1,"w":1,"b":"end"}}"#.to_owned(),
        r#"{"record":{"n":"node-1","t":2,"i":"0000000000000001","s":2,"m":1,"w":1,"b":{"new":[1]}}}"#.to_owned(),
        String::new(),
        record("node-1", 2_000_000, "9,20"),
        record("node-1", 2_500_000, "9,99,1,1").replace("aa\"", "bb\""),
    ]
    .join("\n");
    let shows = |util: &str, up: &str, other: &str| {
        format!("GPU-1.gpu_utilization={util} GPU-1/0.link_up={up} GPU-1.from_the_future={other}")
    };
    let [one, two, three] = [shows("10", "1", "0.5"), shows("20", "-", "-"), shows("30", "1", "-")];
    check(&file, None, &[0, 1, 2, 3, 4, 300, 301], &[&one, &two, &three, &one, &two, &one, &two]);
    check(&file, Some("node-1"), &[0], &[&one]);
}

#[test]
fn one_node_of_several() {
    let file = [
        table("node-1"),
        record("node-1", 1, "0,10,1,1"),
        table("node-2"),
        record("node-2", 1, "0,20,1,1"),
    ]
    .join("\n");
    check(
        &file,
        Some("node-2"),
        &[0],
        &["GPU-1.gpu_utilization=20 GPU-1/0.link_up=1 GPU-1.from_the_future=1"],
    );
    check_error(&file, None, "several nodes, choose one with node=NAME: node-1, node-2");
    check_error(&file, Some("node-3"), "does not hold the node `node-3`: it holds node-1, node-2");
}

#[test]
fn sessions_are_played() {
    let file = r#"{"schema_version": 2, "name": "x", "frames": [
        {"frame_id": 1, "time": "2026-01-02T03:04:05Z", "gpu_id": ["a:0:NVIDIA H100 80GB HBM3"],
         "gpu_util": [50.4], "gpu_memory": [50], "dram_bandwidth_rx": null, "other": {"a": [1]}},
        {"time": "2026-01-02T03:04:07.5+00:00",
         "gpu_id": ["a:0:NVIDIA H100 80GB HBM3", "a:1:Some GPU 16GB"],
         "gpu_util": [null, 7], "gpu_memory": [25, 100], "dram_bandwidth_rx": [1.5, 2]}]}"#;
    let total = "GPU-replay-a-0.memory_total_bytes=85520809984";
    let first = format!(
        "GPU-replay-a-0.gpu_utilization=50 GPU-replay-a-0.memory_used_bytes=42760404992 {total} \
         GPU-replay-a-0.pcie_rx_bytes_per_second=- GPU-replay-a-1.gpu_utilization=- \
         GPU-replay-a-1.memory_used_bytes=- GPU-replay-a-1.memory_total_bytes=- \
         GPU-replay-a-1.pcie_rx_bytes_per_second=-"
    );
    let second = format!(
        "GPU-replay-a-0.gpu_utilization=- GPU-replay-a-0.memory_used_bytes=21380202496 {total} \
         GPU-replay-a-0.pcie_rx_bytes_per_second=1500000000 GPU-replay-a-1.gpu_utilization=7 \
         GPU-replay-a-1.memory_used_bytes=17179869184 GPU-replay-a-1.memory_total_bytes=17179869184 \
         GPU-replay-a-1.pcie_rx_bytes_per_second=2000000000"
    );
    check(file, None, &[0, 2, 3, 5], &[&first, &first, &second, &first]);
}

#[test]
fn sessions_of_the_old_tool_are_played() {
    let file = r#"{"frames": [
        {"time": "2025-07-01 12:00:00.250000", "gpu_id": ["h:1:2:Unknown", "b:0:Unknown"],
         "gpu_util": ["0.43", "0.1"], "gpu_memory": ["0.5", "0.5"], "dram_util": ["0.2"],
         "dram_bandwidth_tx": ["0.25", "N/A"]},
        {"time": 1751371201.25, "gpu_id": ["h:1:2:Unknown"], "gpu_util": ["1.0"]}],
        "summary_by_device": {}}"#;
    // The index is the first number between colons.
    check(
        file,
        Some("h"),
        &[0, 1],
        &[
            "GPU-replay-h-1.gpu_utilization=43 GPU-replay-h-1.pcie_tx_bytes_per_second=250000000",
            "GPU-replay-h-1.gpu_utilization=100 GPU-replay-h-1.pcie_tx_bytes_per_second=-",
        ],
    );
    check_error(file, None, "several nodes, choose one with node=NAME: h, b");
}

#[test]
fn what_cannot_be_played_is_named() {
    let good = table("node-1");
    check_error("", None, "neither a record export nor a session");
    check_error("not json\n", None, "neither a record export nor a session");
    check_error(r#"{"frames": []}"#, None, "holds no values of a GPU");
    check_error("{\"frames\": [\n{\"gpu_id\": []}]}", None, "missing field `time` at line 2");
    check_error("{\"frames\": [\n{\"time\": \"soon\"}]}", None, "a frame has no usable time");
    check_error(&good, None, "holds no values of a GPU");
    check_error(&format!("{good}\n{{oops\n"), None, "line 2 of");
    check_error(
        &good.replace("\"d\":2,", "\"d\":9,"),
        None,
        "column of a device that it does not name",
    );
    let long = format!("{good}\n{}", " ".repeat(usize::try_from(LINE_BYTES_MAX).unwrap() + 1));
    check_error(&long, None, "is longer than 4194304 bytes");
    let missing = ReplaySpec { path: PathBuf::from("/no/such/file"), node: None };
    assert!(matches!(ReplayDevices::open(&missing), Err(ReplayError::Read { .. })));
}

#[test]
fn recordings_have_limits() {
    let mut builder = recording::RecordingBuilder::default();
    let table = builder.add_table(gswarm_types::Table::default());
    for row in 0..ROWS_MAX {
        let time = Micros(i64::try_from(row).unwrap());
        builder.add_row(time, table, std::iter::empty()).unwrap();
    }
    assert!(builder.add_row(Micros::ZERO, table, std::iter::empty()).is_err());
}
