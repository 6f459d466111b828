//! Small recordings by hand and the exact files they become.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gswarm_core::Hole;
use gswarm_types::{
    Body, DeviceId, DeviceInfo, GapReason, Incarnation, JobId, PeerKind, PeerLink, ProcessKind,
    ProcessRow, Scope, Selection, Table,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

use super::*;
use crate::disk::SimDisk;
use crate::entry::Entry;
use crate::fixture::{self, SECOND, Tables, gpu, record, values};
use crate::journal::{Journal, JournalConfig, SegmentLimits};

const HALF: i64 = SECOND / 2;

fn machine() -> DeviceInfo {
    DeviceInfo { id: DeviceId("node".to_owned()), scope: Scope::Node, ..gpu(0) }
}

fn utils(gpus: &[u32]) -> Table {
    fixture::table(gpus.iter().copied().map(gpu).collect(), &["gpu_utilization"])
}

/// A recording of the entries; the tables are those of both nodes' incarnation 7.
fn reader(entries: &[Entry], tables: &[&Table]) -> Reader {
    let disk: Arc<dyn crate::Disk> = Arc::new(SimDisk::new());
    let config = JournalConfig {
        dir: "/j".into(),
        disk_reserve_bytes: 0,
        segments: SegmentLimits::default(),
        new_storage: fixture::storage(),
    };
    let mut journal = Journal::open(disk.clone(), config).unwrap().journal;
    let mut known = Tables::default();
    for table in tables {
        known.add(fixture::node(1), Incarnation(7), table);
        known.add(fixture::node(2), Incarnation(7), table);
    }
    for batch in entries.chunks(3) {
        journal.commit(batch, &known).unwrap();
    }
    Reader::new(disk, Path::new("/j"), journal.catalog().clone())
}

/// A window of so many seconds, and the instant at their end, with a frame each second.
fn input(seconds: i64) -> ExportInput {
    ExportInput {
        spec: fixture::session(1, 0, Some(seconds * SECOND + 1)),
        now: Micros(0),
        hold: Micros(SECOND + HALF),
        names: [(fixture::node(1), "a".to_owned()), (fixture::node(2), "b".to_owned())].into(),
        nvlinks: BTreeMap::new(),
        holes: Vec::new(),
        expired_until: None,
        simulated: false,
        scratch: "/scratch".into(),
    }
}

fn text(reader: &Reader, input: &ExportInput, format: ExportFormat) -> String {
    let mut out = Vec::new();
    export(reader, input, format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(reader: &Reader, input: &ExportInput) -> Value {
    serde_json::from_str(&text(reader, input, ExportFormat::Json)).unwrap()
}

/// One column of all frames, as text.
fn column(out: &Value, key: &str) -> String {
    let frames = out["frames"].as_array().unwrap();
    frames.iter().map(|frame| frame[key].to_string()).collect::<Vec<_>>().join(" ")
}

/// `(seq, time, node, value of each GPU)` against the utilisation in all frames.
#[track_caller]
fn check(rows: &[(u64, i64, u8, &[Option<f64>])], input: &ExportInput, expected: &str) {
    let table = utils(&[0, 1]);
    let entries: Vec<Entry> = rows
        .iter()
        .map(|(seq, time, node, cells)| {
            record(fixture::node(*node), 7, *seq, *time, values(&table, cells))
        })
        .collect();
    assert_eq!(column(&json(&reader(&entries, &[&table]), input), "gpu_util"), expected);
}

#[test]
fn a_cell_holds_the_last_value_for_one_and_a_half_periods() {
    let rows: [(u64, i64, u8, &[_]); 3] = [
        (1, SECOND, 1, &[Some(10.0), Some(1.0)]),
        (2, 2 * SECOND + 1, 1, &[Some(20.0), None]),
        (3, 3 * SECOND, 1, &[Some(30.0), None]),
    ];
    // At 4.5 s the value of 3 s would be just old enough; at 5 s it is not.
    check(&rows, &input(5), "[10.0,1.0] [10.0,1.0] [30.0,null] [30.0,null] [null,null]");
}

#[test]
fn a_late_record_stands_at_its_own_time() {
    let rows: [(u64, i64, u8, &[_]); 3] = [
        (1, SECOND, 1, &[Some(10.0), None]),
        (3, 3 * SECOND, 1, &[Some(30.0), None]),
        (2, 2 * SECOND, 1, &[Some(20.0), None]),
    ];
    check(&rows, &input(3), "[10.0,null] [20.0,null] [30.0,null]");
}

#[test]
fn filters_choose_nodes_and_gpus() {
    let rows: [(u64, i64, u8, &[_]); 2] =
        [(1, SECOND, 1, &[Some(10.0), Some(11.0)]), (1, SECOND, 2, &[Some(20.0), Some(21.0)])];
    check(&rows, &input(1), "[10.0,11.0,20.0,21.0]");
    let mut some = input(1);
    some.spec.selection = Selection { nodes: Some(vec![fixture::node(2)]), ..Selection::default() };
    check(&rows, &some, "[20.0,21.0]");
    some.spec.selection.gpus = Some(vec![1]);
    check(&rows, &some, "[21.0]");
    some.spec.selection.nodes = None;
    check(&rows, &some, "[11.0,21.0]");
}

#[test]
fn the_window_takes_its_start_and_leaves_its_end() {
    let times = [-1, 0, SECOND, SECOND + 1];
    let marks = times
        .iter()
        .zip(1..)
        .map(|(time, seq)| record(fixture::node(1), 7, seq, *time, fixture::mark("m")));
    let reader = reader(&marks.collect::<Vec<_>>(), &[]);
    let facts = export(&reader, &input(1), ExportFormat::Jsonl, &mut Vec::new()).unwrap();
    assert_eq!(facts.records, 2);
}

#[test]
fn a_gpu_that_joins_late_has_its_place_from_the_start() {
    let (one, two) = (utils(&[1]), utils(&[0, 1]));
    let entries = [
        record(fixture::node(1), 7, 1, SECOND, values(&one, &[Some(5.0)])),
        record(fixture::node(1), 7, 2, 2 * SECOND, values(&two, &[Some(6.0), Some(7.0)])),
    ];
    let out = json(&reader(&entries, &[&one, &two]), &input(2));
    assert_eq!(column(&out, "gpu_util"), "[null,5.0] [6.0,7.0]");
    assert_eq!(column(&out, "gpu_id"), r#"["a:0:H200","a:1:H200"] ["a:0:H200","a:1:H200"]"#);
}

fn process(device: u32, user: &str, job: Option<&str>) -> ProcessRow {
    ProcessRow {
        device,
        pid: 1,
        name: None,
        user: Some(user.to_owned()),
        job: job.map(str::to_owned),
        memory_bytes: None,
        kind: ProcessKind::Compute,
    }
}

#[test]
fn whose_gpus_follows_the_table_of_the_moment() {
    let row = |device| process(device, "eve", None);
    // Position 1 is GPU 1 first; after GPU 0 is lost, position 0 is.
    let (two, one) = (utils(&[0, 1]), utils(&[1]));
    let entries = [
        record(fixture::node(1), 7, 1, 1, Body::Processes(vec![row(1)])),
        record(fixture::node(1), 7, 2, SECOND, values(&two, &[Some(1.0), Some(2.0)])),
        record(fixture::node(1), 7, 3, 2 * SECOND, values(&one, &[Some(3.0)])),
        record(fixture::node(1), 7, 4, 2 * SECOND, Body::Processes(vec![row(0)])),
    ];
    let mut eve = input(2);
    eve.spec.selection.user = Some("eve".to_owned());
    let out = json(&reader(&entries, &[&two, &one]), &eve);
    assert_eq!(column(&out, "gpu_util"), "[2.0] [3.0]");
}

/// The GPUs that sessions of this user and job show, of those that four processes hold.
#[track_caller]
fn check_held(user: Option<&str>, job: Option<&str>, expected: &str) {
    let gpus = utils(&[0, 1, 2, 3]);
    let rows = vec![
        process(0, "eve", Some("12")),
        process(1, "eve", Some("34")),
        process(2, "bob", Some("12")),
        process(3, "eve", None),
        // Neither process of this GPU is of eve and of job 56.
        process(3, "bob", Some("56")),
    ];
    let cells = [0.0, 1.0, 2.0, 3.0].map(Some);
    let entries = [
        record(fixture::node(1), 7, 1, SECOND, values(&gpus, &cells)),
        record(fixture::node(1), 7, 2, SECOND, Body::Processes(rows)),
    ];
    let mut held = input(1);
    held.spec.selection.user = user.map(str::to_owned);
    held.spec.selection.job = job.map(|job| JobId::new(job).unwrap());
    let out = json(&reader(&entries, &[&gpus]), &held);
    assert_eq!(column(&out, "gpu_util"), expected);
    let devices = out["summary_by_device"].as_object().unwrap();
    assert_eq!(devices.len(), out["devices"].as_array().unwrap().len());
}

#[test]
fn who_held_a_gpu_when_the_session_began_counts() {
    let gpus = utils(&[0, 1]);
    let cells = [0.0, 1.0].map(Some);
    let list = |seq, time, device| {
        record(fixture::node(1), 7, seq, time, Body::Processes(vec![process(device, "eve", None)]))
    };
    // Lists come every few seconds; the one before the window still holds.
    let entries = [
        record(fixture::node(1), 7, 1, -9 * SECOND, values(&gpus, &cells)),
        list(2, -8 * SECOND, 0),
        list(3, -3 * SECOND, 1),
        record(fixture::node(1), 7, 4, SECOND, values(&gpus, &cells)),
    ];
    let mut eve = input(2);
    eve.spec.selection.user = Some("eve".to_owned());
    let out = json(&reader(&entries, &[&gpus]), &eve);
    assert_eq!(column(&out, "gpu_util"), "[1.0] [1.0]");
    // An old one does not.
    let entries = [
        record(fixture::node(1), 7, 1, -99 * SECOND, values(&gpus, &cells)),
        list(2, -60 * SECOND, 0),
        record(fixture::node(1), 7, 3, SECOND, values(&gpus, &cells)),
    ];
    let out = json(&reader(&entries, &[&gpus]), &eve);
    assert_eq!(column(&out, "gpu_util"), "[] []");
}

#[test]
fn a_user_and_a_job_must_be_those_of_one_process() {
    check_held(None, None, "[0.0,1.0,2.0,3.0]");
    check_held(None, Some("12"), "[0.0,2.0]");
    check_held(None, Some("34"), "[1.0]");
    check_held(None, Some("1"), "[]");
    check_held(Some("eve"), None, "[0.0,1.0,3.0]");
    check_held(Some("eve"), Some("12"), "[0.0]");
    check_held(Some("bob"), Some("12"), "[2.0]");
    check_held(Some("eve"), Some("56"), "[]");
}

#[test]
fn nvlinks_name_their_other_end() {
    let table = fixture::table(vec![gpu(0), gpu(1)], &["nvlink_rx_bytes_per_second"]);
    let link = |device, remote| PeerLink {
        device,
        remote,
        kind: PeerKind::Nvlink,
        links: 4,
        bytes_per_second_max: None,
    };
    let topology = Body::Topology(vec![link(0, Some(1)), link(1, None)]);
    let entries = [
        record(fixture::node(1), 7, 1, -SECOND, topology),
        record(fixture::node(1), 7, 2, SECOND, values(&table, &[Some(2e9), Some(3e9)])),
    ];
    let mut linked = input(1);
    linked.spec.nvlink = true;
    let out = json(&reader(&entries, &[&table]), &linked);
    assert_eq!(
        column(&out, "gpu_bandwidth"),
        r#"[{"id1":"a:0:H200","id2":"a:1:H200","rx":2.0,"tx":null},{"id1":"a:1:H200","id2":"nvswitch","rx":3.0,"tx":null}]"#
    );
    // Told long before everything that is read here.
    linked.nvlinks = BTreeMap::from([(fixture::node(1), Nvlink::of(&table, &[link(1, Some(0))]))]);
    let out = json(&reader(&entries[1..], &[&table]), &linked);
    assert_eq!(
        column(&out, "gpu_bandwidth"),
        r#"[{"id1":"a:0:H200","id2":"nvlink","rx":2.0,"tx":null},{"id1":"a:1:H200","id2":"a:0:H200","rx":3.0,"tx":null}]"#
    );
}

#[test]
fn links_and_extra_metrics_of_the_old_shape() {
    let metrics = &["nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second", "sm_activity"];
    let table = fixture::table(vec![gpu(0)], metrics);
    let link = PeerLink {
        device: 0,
        remote: None,
        kind: PeerKind::Nvlink,
        links: 4,
        bytes_per_second_max: None,
    };
    let entries = [
        record(fixture::node(1), 7, 1, SECOND, Body::Topology(vec![link])),
        record(fixture::node(1), 7, 2, SECOND, values(&table, &[Some(2e9), Some(1e9), Some(50.0)])),
    ];
    let mut linked = input(1);
    linked.spec.nvlink = true;
    linked.spec.extra_metrics = vec!["sm_activity".to_owned()];
    let out = text(&reader(&entries, &[&table]), &linked, ExportFormat::LegacyJson);
    let expected = r#""gpu_bandwidth":[{"id1":"a:0:H200","id2":"nvswitch","utilization":"3.0000"}],"extra_metrics":[{"sm_activity":"50.0000"}]}"#;
    assert!(out.contains(expected), "{out}");
}

#[test]
fn gaps_and_what_retention_took_are_named() {
    let hole = |first, last, from, to| Hole {
        incarnation: Incarnation(7),
        first,
        last: Some(last),
        reason: GapReason::SpoolOverflow,
        is_final: true,
        from: Some(Micros(from)),
        to: Some(Micros(to)),
    };
    let mut given = input(4);
    given.holes = vec![
        (fixture::node(1), hole(2, 4, SECOND, 2 * SECOND)),
        (fixture::node(1), hole(9, 9, 5 * SECOND, 6 * SECOND)),
    ];
    given.expired_until = Some(Micros(2 * SECOND));
    let table = utils(&[0]);
    let entries = [record(fixture::node(1), 7, 5, 3 * SECOND, values(&table, &[Some(1.0)]))];
    let out = json(&reader(&entries, &[&table]), &given);
    let gaps = out["gaps"].as_array().unwrap().iter().map(|gap| {
        format!(
            "{} {} {} {} {}",
            gap["node"], gap["reason"], gap["records"], gap["from"], gap["to"]
        )
    });
    assert_eq!(
        gaps.collect::<Vec<_>>(),
        [
            r#"null "expired" null "1970-01-01T00:00:00.000000Z" "1970-01-01T00:00:02.000000Z""#,
            r#""a" "spool_overflow" 3 "1970-01-01T00:00:01.000000Z" "1970-01-01T00:00:02.000000Z""#,
        ]
    );
    assert_eq!(out["covered_from"], "1970-01-01T00:00:02.000000Z");
    assert_eq!(column(&out, "gpu_util"), "[1.0] [1.0]", "no frames before that");
}

#[test]
fn events_stand_in_the_order_of_time_even_without_records() {
    let entries = [fixture::host_event(2), fixture::host_event(1), fixture::host_event(3)];
    let out = json(&reader(&entries, &[]), &input(1));
    let codes: Vec<&Value> = out["events"].as_array().unwrap().iter().map(|e| &e["code"]).collect();
    assert_eq!(codes, [1, 2, 3]);
}

/// One node with a GPU and its own memory, two ticks.
fn small() -> (Reader, ExportInput) {
    let mut table = fixture::table(vec![gpu(0)], &["gpu_utilization", "power_milliwatts"]);
    let node =
        fixture::table(vec![machine()], &["node_memory_used_bytes", "node_memory_total_bytes"]);
    table.devices.extend(node.devices);
    table.columns.extend(node.columns.into_iter().map(|mut column| {
        column.device = 1;
        column
    }));
    let cells = |util, used| [Some(util), Some(500_000.0), Some(used), Some(8e9)];
    let entries = [
        record(fixture::node(1), 7, 1, SECOND, values(&table, &cells(10.0, 2e9))),
        record(fixture::node(1), 7, 2, 2 * SECOND, values(&table, &cells(90.0, 4e9))),
        record(fixture::node(1), 7, 3, 2 * SECOND, fixture::mark("done")),
    ];
    (reader(&entries, &[&table]), input(2))
}

#[test]
fn the_whole_json() {
    let (reader, input) = small();
    let out = json(&reader, &input);
    let expected = r#"{"a:0:H200":{"avg_gpu_memory":null,"avg_gpu_util":50.0,"energy_joules":500.0,"idle_share":0.0,"max_gpu_memory":null,"max_gpu_util":90.0,"min_gpu_memory":null,"min_gpu_util":10.0,"p50_gpu_util":10.0,"p95_gpu_util":90.0,"p99_gpu_util":90.0,"samples":2}}"#;
    assert_eq!(out["summary_by_device"].to_string(), expected);
    assert_eq!(
        out["summary_by_client"].to_string(),
        r#"{"a":{"avg_disk_util":null,"avg_dram_util":37.5,"max_dram_util":50.0}}"#
    );
    let frame = r#"{"client_available":[true],"disk_util":[null],"dram_util":[25.0],"frame_id":0,"gpu_id":["a:0:H200"],"gpu_memory":[null],"gpu_util":[10.0],"time":"1970-01-01T00:00:01.000000Z"}"#;
    assert_eq!(out["frames"][0].to_string(), frame);
    assert_eq!(
        out["nodes"][0]["available"].to_string(),
        r#"[["1970-01-01T00:00:01.000000Z","1970-01-01T00:00:02.000000Z"]]"#
    );
}

#[test]
fn the_whole_legacy_json() {
    let (reader, input) = small();
    let expected = r#"{"frames":[
{"frame_id":0,"time":"1970-01-01 00:00:01.000000","gpu_id":["a:0:H200"],"gpu_util":["0.1000"],"gpu_memory":["nan"],"dram_util":["0.2500"],"disk_util":["nan"]},
{"frame_id":1,"time":"1970-01-01 00:00:02.000000","gpu_id":["a:0:H200"],"gpu_util":["0.9000"],"gpu_memory":["nan"],"dram_util":["0.5000"],"disk_util":["nan"]}
],"summary_by_device":{"a:0:H200":{"avg_gpu_util":"0.5000","avg_gpu_memory":"nan"}},"summary_by_client":{"a":{"avg_dram_util":"0.3750","avg_disk_util":"nan"}},"request_time_info":{}}
"#;
    assert_eq!(text(&reader, &input, ExportFormat::LegacyJson), expected);
}

#[test]
fn records_stand_once_in_the_order_of_their_source() {
    let table = utils(&[0]);
    let entries = [
        record(fixture::node(2), 7, 1, 3, values(&table, &[Some(1.0)])),
        record(fixture::node(1), 7, 2, 2, fixture::mark("two")),
        record(fixture::node(1), 7, 1, 5, values(&table, &[Some(2.5)])),
    ];
    let out = text(&reader(&entries, &[&table]), &input(1), ExportFormat::Jsonl);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds = lines.iter().map(|line| match line.as_object().unwrap().iter().next() {
        Some((kind, body)) if kind == "record" => format!("{}:{}", body["node"], body["s"]),
        Some((kind, _)) => kind.clone(),
        None => String::new(),
    });
    assert_eq!(kinds.collect::<Vec<_>>().join(" "), r#"export table "a":1 "a":2 table "b":1"#);
    let first = r#"{"record":{"node":"a","time":"1970-01-01T00:00:00.000005Z","node_time":"1970-01-01T00:00:00.000000Z","offset_us":5,"n":"00000000-0000-7000-8000-000000000001","t":5,"r":5,"c":1,"i":"0000000000000007","s":1,"m":5,"w":0,"b":{"values":{"d":"#;
    assert!(out.lines().nth(2).unwrap().starts_with(first), "{out}");
}

#[test]
fn parquet_reads_back() {
    let (reader, input) = small();
    let mut out = Vec::new();
    let facts = export(&reader, &input, ExportFormat::Parquet, &mut out).unwrap();
    assert_eq!(facts.records, 3);
    let file = SerializedFileReader::new(bytes::Bytes::from(out)).unwrap();
    let rows: Vec<String> = file
        .get_row_iter(None)
        .unwrap()
        .map(|row| {
            let columns: Vec<String> =
                row.unwrap().get_column_iter().skip(5).map(|(_, f)| f.to_string()).collect();
            columns.join(" ")
        })
        .collect();
    assert_eq!(rows.len(), 9, "{rows:#?}");
    let run = r#""0000000000000007""#;
    assert_eq!(
        rows[0],
        format!(r#"{run} 1 "values" "gpu" 0 "GPU-0" "H200" "gpu_utilization" 10.0 null"#)
    );
    assert_eq!(
        rows[7],
        format!(
            r#"{run} 2 "values" "node" 0 "node" "H200" "node_memory_total_bytes" 8000000000.0 null"#
        )
    );
    let end = r#"3 "mark" null null null null null null "{"mark":{"name":"done"}}""#;
    assert_eq!(rows[8], format!("{run} {end}"));
    // Only one GPU: its cells and those of the node; no record is left out.
    let mut one = input;
    one.spec.selection.gpus = Some(vec![7]);
    let mut out = Vec::new();
    export(&reader, &one, ExportFormat::Parquet, &mut out).unwrap();
    let file = SerializedFileReader::new(bytes::Bytes::from(out)).unwrap();
    assert!(file.get_row_iter(None).unwrap().count() < 9);
}

#[test]
fn runs_on_disk_change_nothing_and_are_cleared_away() {
    let table = utils(&[0]);
    let row = |seq: u64| {
        let time = i64::try_from(seq * 7 % 60).unwrap() * SECOND + 1;
        record(
            fixture::node(1),
            7,
            seq,
            time,
            values(&table, &[Some(f64::from(u32::try_from(seq).unwrap()))]),
        )
    };
    let mut entries: Vec<Entry> = (1..=59).map(row).collect();
    let one_way = reader(&entries, &[&table]);
    entries.reverse();
    let other_way = reader(&entries, &[&table]);
    for format in [ExportFormat::Json, ExportFormat::Jsonl, ExportFormat::LegacyJson] {
        assert_eq!(text(&one_way, &input(60), format), text(&other_way, &input(60), format));
    }
    // Two exports of one session beside each other.
    let scratch = Path::new("/scratch");
    let mut first = collect::collect(&one_way, &input(60), collect::Order::Time).unwrap();
    let mut second = collect::collect(&one_way, &input(60), collect::Order::Time).unwrap();
    assert!(one_way.disk().list(scratch).unwrap().len() > 4, "sorted in runs");
    for _ in 1..=59 {
        let pair = (first.merge.next().unwrap(), second.merge.next().unwrap());
        assert!(pair.0.is_some() && pair.0 == pair.1);
    }
    drop((first, second));
    assert_eq!(one_way.disk().list(scratch).unwrap(), Vec::<String>::new());
}

#[test]
fn an_empty_window_is_still_a_file() {
    let reader = reader(&[], &[]);
    assert_eq!(column(&json(&reader, &input(2)), "gpu_util"), "[] []");
    let mut out = Vec::new();
    export(&reader, &input(2), ExportFormat::Parquet, &mut out).unwrap();
    assert_eq!(SerializedFileReader::new(bytes::Bytes::from(out)).unwrap().num_row_groups(), 0);
}
