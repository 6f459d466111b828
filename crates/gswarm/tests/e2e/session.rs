//! Windows into the past, windows that close by themselves, filters, and every shape of export.

use std::collections::BTreeSet;
use std::fs;

use gswarm_api::timestamp::parse_rfc3339;
use serde_json::Value;

use crate::file::{Frames, Records, strings};
use crate::process::Process;
use crate::site::{GPUS, Site};

/// A host, two agents, and some seconds of recording.
struct Cluster {
    _processes: [Process; 3],
    site: Site,
}

impl Cluster {
    #[track_caller]
    fn start() -> Self {
        Self::with(|_| String::new())
    }

    /// One whose GPUs are all in use, all the time.
    #[track_caller]
    fn busy() -> Self {
        Self::with(|number| format!("--devices sim:{GPUS}xh100,seed={number},scenario=steady"))
    }

    #[track_caller]
    fn with(flags: impl Fn(usize) -> String) -> Self {
        let site = Site::simulated();
        let host = site.host("gswarm host start --port 8090 --single-port --freq 200");
        let agents = [1, 2].map(|number| {
            site.agent(&format!("gswarm join localhost:8090 {}", flags(number)), number)
        });
        let [first, second] = agents;
        site.until("some seconds of recording", || {
            let nodes = site.connected(2);
            nodes.iter().all(|node| node.records_stored >= 8).then_some(())
        });
        Self { site, _processes: [host, first, second] }
    }

    /// Records a session with these flags; gives its file.
    #[track_caller]
    fn record(&self, name: &str, flags: &str) -> Frames {
        self.site.run(&format!("gswarm profiler start --name {name} {flags}")).worked();
        self.site.frames(name, 3);
        let said = self.site.run(&format!("gswarm profiler stop --name {name}")).worked();
        let path = self.site.work().join(format!("{name}.json"));
        assert_eq!(said.lines().last(), path.to_str());
        Frames::read(&path)
    }
}

#[track_caller]
fn micros(time: &str) -> i64 {
    parse_rfc3339(time).unwrap().0
}

#[test]
fn windows_in_time() {
    let cluster = Cluster::start();
    let site = &cluster.site;
    // `--since`: what was measured before the command was typed.
    let late = cluster.record("late", "--since 5s");
    let session = site.ask(async |host| host.session("late").await).unwrap();
    let reach = micros(&session.created) - micros(&session.from);
    assert!((4_900_000..=5_100_000).contains(&reach), "{reach} us");
    assert_eq!(late.time("start_time"), session.from);
    late.check(2 * GPUS);
    let has_numbers = |frame: &&Value| frame["gpu_util"][0].is_number();
    let before = |frame: &&Value| frame["time"].as_str().unwrap() < &*session.created;
    assert!(late.frames().iter().filter(before).filter(has_numbers).count() >= 5);

    // `--for`: it stops by itself, after exactly that span.
    site.run("gswarm profiler start --name short --for 2s").worked();
    let short = site.until("the session to stop by itself", || {
        let session = site.ask(async |host| host.session("short").await).unwrap();
        (!session.active && session.output_file.is_some()).then_some(session)
    });
    let until = short.until.unwrap();
    assert_eq!(micros(&until) - micros(&short.from), 2_000_000);
    let path = site.work().join("short.json");
    assert_eq!(short.output_file.as_deref(), path.to_str());
    let file = Frames::read(&path);
    file.check(2 * GPUS);
    assert_eq!(file.time("end_time"), until);
    assert_eq!(file.frames().len(), 10);

    // `capture`: a session that is already over.
    let said = site.run("gswarm profiler capture --from 4s --to 1s --name past").worked();
    let path = site.work().join("past.json");
    assert_eq!(said.lines().last(), path.to_str());
    let past = Frames::read(&path);
    past.check(2 * GPUS);
    assert_eq!(micros(past.time("end_time")) - micros(past.time("start_time")), 3_000_000);
    site.run("gswarm profiler capture --from 1s --to 4s").failed(2, "end before it begins");
}

#[test]
fn selections_and_columns() {
    let cluster = Cluster::start();
    let site = &cluster.site;
    let one = cluster.record("one_node", "--nodes node2");
    one.check(GPUS);
    assert_eq!(one.nodes(), BTreeSet::from(["node2"]));
    let some = cluster.record("some_gpus", "--nodes node1,node2 --gpus 0,5");
    some.check(4);
    let ids = strings(&some.frames()[0]["gpu_id"]).join(" ");
    for part in ["node1:0:", "node1:5:", "node2:0:", "node2:5:"] {
        assert!(ids.contains(part), "{ids}");
    }
    // What frames show follows the settings at the time of the start.
    let shows = |name: &str, flags: &str| -> (bool, bool) {
        let file = cluster.record(name, flags);
        file.check(2 * GPUS);
        let is_number = |cell: &Value| cell.is_number();
        let bandwidth = file.frames().iter().any(|frame| is_number(&frame["dram_bandwidth"][0]));
        let link = |frame: &Value| is_number(&frame["gpu_bandwidth"][0]["rx"]);
        (bandwidth, file.frames().iter().any(link))
    };
    assert_eq!(shows("neither", ""), (false, false));
    site.run("gswarm profiler enable-bandwidth").worked();
    assert_eq!(shows("bandwidth", ""), (true, false));
    site.run("gswarm profiler enable-nvlink").worked();
    assert_eq!(shows("both", ""), (true, true));
    site.run("gswarm profiler disable-bandwidth").worked();
    assert_eq!(shows("links", ""), (false, true));
    site.run("gswarm profiler disable-nvlink").worked();
    assert_eq!(shows("asked", "--enable-bandwidth"), (true, false));
    let extra = cluster.record("extra", "-r sm_activity --tag nightly --note warm");
    assert_eq!(extra.json["tags"][0], "nightly");
    assert_eq!(extra.json["note"], "warm");
    let cells = &extra.frames()[0]["extra_metrics"]["sm_activity"];
    assert_eq!(cells.as_array().map(Vec::len), Some(2 * GPUS));
}

#[test]
fn selection_by_job() {
    let cluster = Cluster::busy();
    let site = &cluster.site;
    let process = |node: &str| {
        let body = site.ask(async |host| host.node(node).await).unwrap();
        body.processes.into_iter().next().unwrap()
    };
    let [first, second] = ["node1", "node2"].map(process);
    let (job, other) = (first.job.unwrap(), second.job.unwrap());
    assert_ne!(job, other);
    let said = site.run("gswarm node status node1").worked();
    assert!(said.contains("USER") && said.contains(" JOB ") && said.contains(&job), "{said}");

    // Processes are told every ten seconds: the window reaches back far enough to have some.
    let mine = cluster.record("mine", &format!("--job {job} --since 30s"));
    mine.check(GPUS);
    let ids = strings(&mine.frames()[0]["gpu_id"]);
    assert!(ids.iter().all(|id| id.starts_with("node1:")), "{ids:?}");
    let summary = mine.json["summary_by_device"].as_object().unwrap();
    assert_eq!(
        summary.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        ids.into_iter().collect()
    );
    let session = site.ask(async |host| host.session("mine").await).unwrap();
    assert_eq!((session.job.as_deref(), session.user), (Some(&*job), None));

    // One process must be of both.
    let user = first.user.unwrap();
    cluster.record("both", &format!("--job {job} --user {user} --since 30s")).check(GPUS);
    cluster.record("neither", &format!("--job {job} --user nobody --since 30s")).check(0);
    cluster.record("unknown", "--job 1 --since 30s").check(0);

    // Cut out of the past over HTTP.
    let body = format!(r#"{{"name": "cut", "from": "30s", "job": "{other}"}}"#);
    let line = "curl -X POST http://localhost:8090/api/v1/sessions/capture";
    let (status, answer) = site.curl(&format!("{line} -d '{body}'"));
    assert_eq!((status, &answer["session"]["job"]), (201, &Value::from(other)));
    let cut = Frames::read(&site.work().join("cut.json"));
    cut.check(GPUS);
    assert!(strings(&cut.frames()[0]["gpu_id"]).iter().all(|id| id.starts_with("node2:")));
}

#[test]
fn every_shape_of_export() {
    let cluster = Cluster::start();
    let site = &cluster.site;
    let stopped = cluster.record("run1", "");
    let export = |format: &str, file: &str| {
        let line = format!("gswarm profiler export --name run1 --format {format} -o {file}");
        site.run(&line).worked();
        fs::read(site.work().join(file)).unwrap()
    };
    export("json", "again.json");
    let again = Frames::read(&site.work().join("again.json"));
    again.check(2 * GPUS);
    assert_eq!(again.json["frames"], stopped.json["frames"]);

    let legacy: Value = serde_json::from_slice(&export("legacy-json", "legacy.json")).unwrap();
    let frames = legacy["frames"].as_array().unwrap();
    assert_eq!(frames.len(), stopped.frames().len());
    assert!(frames.iter().all(|frame| strings(&frame["gpu_id"]).len() == 2 * GPUS));
    assert_eq!(legacy["summary_by_device"].as_object().map(serde_json::Map::len), Some(2 * GPUS));

    export("jsonl", "run1.jsonl");
    let records = Records::read(&site.work().join("run1.jsonl"));
    records.check_unbroken();
    assert_eq!(records.incarnations.len(), 2);
    assert!(records.rows().filter(|row| row.kind == "values").count() >= 6);

    let parquet = export("parquet", "run1.parquet");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1") && parquet.len() > 1_000);

    // To standard output, never over a file, and over it when told so.
    let line = "gswarm profiler export --name run1 --format jsonl";
    let piped = site.run(&format!("{line} -o -")).worked();
    assert!(piped == fs::read_to_string(site.work().join("run1.jsonl")).unwrap());
    site.run(&format!("{line} -o again.json")).failed(6, "`again.json` exists");
    site.run(&format!("{line} -o again.json --force")).worked();
    assert!(piped == fs::read_to_string(site.work().join("again.json")).unwrap());
    for file in site.files() {
        assert!(!file.contains("part"), "{file}");
    }
    let said = site.run("gswarm profiler analyze --data run1.json").worked();
    assert!(said.contains("node2:7:"), "{said}");

    // Whoever moves the file is not sent to where it was.
    let stop = "gswarm profiler stop --name run1";
    assert!(site.run(stop).worked().ends_with("/run1.json\n"));
    fs::rename(site.work().join("run1.json"), site.work().join("moved.json")).unwrap();
    let said = site.run(stop).worked();
    let again = "gswarm profiler export --name run1 -o run1.json";
    let note = format!("file no longer there: export it again with `{again}`");
    assert_eq!(said.lines().last(), Some(&*note));
    site.run(again).worked();
}
