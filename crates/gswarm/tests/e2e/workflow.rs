//! The workflows of the manual, word for word, as `gsprof` and as `gswarm profiler`.

use std::collections::BTreeSet;
use std::fs;

use gswarm_api::timestamp::parse_rfc3339;
use serde_json::Value;

use crate::file::{Frames, Records, Row};
use crate::process::{Process, Said};
use crate::site::{GPUS, Site};

const NODES: usize = 3;

/// Whose words are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Gsprof,
    Gswarm,
}

/// How each command of the manual is called in `gswarm`; `HEAD` is the address that follows.
const IN_GSWARM: &[(&str, &str)] = &[
    // The old tool has no third port.
    ("gsprof start", "gswarm host start --model-port 0"),
    ("gsprof connect", "gswarm client connect"),
    ("gsprof http-profile HEAD", "gswarm profiler start --host HEAD"),
    ("gsprof profile HEAD", "gswarm profiler start --host HEAD"),
    ("gsprof http-status HEAD", "gswarm profiler status --host HEAD"),
    ("gsprof status HEAD", "gswarm profiler status --host HEAD"),
    ("gsprof http-stop HEAD", "gswarm profiler stop --host HEAD"),
    ("gsprof stop HEAD", "gswarm profiler stop --host HEAD"),
    ("gsprof recover", "gswarm profiler recover"),
    ("gsprof stat", "gswarm profiler analyze"),
];

impl Tool {
    fn say(self, line: &str) -> String {
        if self == Self::Gsprof {
            return line.to_owned();
        }
        let head = line.split(' ').nth(2).unwrap_or_default();
        let translated = IN_GSWARM.iter().find_map(|(old, new)| {
            let rest = line.strip_prefix(&*old.replace("HEAD", head))?;
            let whole_word = rest.is_empty() || rest.starts_with(' ');
            whole_word.then(|| format!("{}{rest}", new.replace("HEAD", head)))
        });
        translated.unwrap()
    }
}

/// A head node and three machines that share one `$HOME`.
struct Cluster {
    tool: Tool,
    head: Option<Process>,
    agents: Vec<Process>,
    site: Site,
}

impl Cluster {
    #[track_caller]
    fn start(tool: Tool, start: &str) -> Self {
        let site = Site::simulated();
        let head = site.host(&tool.say(start));
        let connect = tool.say("gsprof connect master-node:8090 --resilient");
        let agents = (1..=NODES).map(|number| site.agent(&connect, number)).collect();
        let cluster = Self { site, tool, head: Some(head), agents };
        let nodes = cluster.site.connected(NODES);
        let ids: BTreeSet<&str> = nodes.iter().map(|node| &*node.node_id).collect();
        assert_eq!(ids.len(), NODES, "{ids:?}");
        let names: BTreeSet<&str> = nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, BTreeSet::from(["node1", "node2", "node3"]));
        cluster
    }

    #[track_caller]
    fn run(&self, line: &str) -> Said {
        self.site.run(&self.tool.say(line))
    }

    /// Stops a session; the last line that it prints is the path of the file.
    #[track_caller]
    fn stop(&self, line: &str, file: &str) -> Frames {
        let said = self.run(line).worked();
        let path = self.site.work().join(file);
        assert_eq!(said.lines().last(), path.to_str(), "{said}");
        let frames = Frames::read(&path);
        frames.check(NODES * GPUS);
        frames
    }
}

#[test]
fn basic_profiling_as_gsprof() {
    basic_profiling(Tool::Gsprof);
}

#[test]
fn basic_profiling_as_gswarm() {
    basic_profiling(Tool::Gswarm);
}

fn basic_profiling(tool: Tool) {
    let cluster = Cluster::start(
        tool,
        "gsprof start --port 8090 --http-port 8091 --enable-bandwidth --freq 1000",
    );
    cluster.run("gsprof http-profile master-node:8091 --name training_run_1").worked();
    let status = cluster.run("gsprof http-status master-node:8091").worked();
    assert!(status.contains("training_run_1") && status.contains("24 GPUs"), "{status}");
    cluster.site.frames("training_run_1", 2);
    let stop = "gsprof http-stop master-node:8091 --name training_run_1";
    let file = cluster.stop(stop, "training_run_1.json");
    assert_eq!(file.json["freq"], 1000);
    assert_eq!(file.json["session_name"], "training_run_1");
    assert_eq!(file.nodes(), BTreeSet::from(["node1", "node2", "node3"]));
    for list in ["dram_bandwidth", "dram_bandwidth_rx", "dram_bandwidth_tx"] {
        assert_eq!(file.frames()[0][list].as_array().map(Vec::len), Some(NODES * GPUS), "{list}");
    }
    let numbers = cluster.run("gsprof stat --data training_run_1.json").worked();
    assert!(numbers.contains("node3:7:"), "{numbers}");
    // A second run of that name leaves the first file alone; so does stopping it once more.
    let first = fs::read(cluster.site.work().join("training_run_1.json")).unwrap();
    cluster.run("gsprof profile master-node:8090 --name training_run_1").worked();
    cluster.site.frames("training_run_1", 1);
    let again =
        cluster.stop("gsprof stop master-node:8090 --name training_run_1", "training_run_1-2.json");
    assert_ne!(again.json["session_id"], file.json["session_id"]);
    cluster.stop(stop, "training_run_1-2.json");
    assert_eq!(cluster.site.files(), ["training_run_1-2.json", "training_run_1.json"]);
    assert!(fs::read(cluster.site.work().join("training_run_1.json")).unwrap() == first);
}

#[test]
fn multiple_sessions_as_gsprof() {
    multiple_sessions(Tool::Gsprof);
}

#[test]
fn multiple_sessions_as_gswarm() {
    multiple_sessions(Tool::Gswarm);
}

fn multiple_sessions(tool: Tool) {
    let cluster = Cluster::start(tool, "gsprof start --port 8090 --http-port 8091 --freq 500");
    cluster.run("gsprof http-profile master-node:8091 --name full_training").worked();
    cluster.run("gsprof http-profile master-node:8091 --name data_loading_phase").worked();
    cluster.site.frames("data_loading_phase", 2);
    let loading = cluster.stop(
        "gsprof http-stop master-node:8091 --name data_loading_phase",
        "data_loading_phase.json",
    );
    cluster.run("gsprof http-profile master-node:8091 --name training_phase").worked();
    cluster.site.frames("training_phase", 2);
    let training = cluster
        .stop("gsprof http-stop master-node:8091 --name training_phase", "training_phase.json");
    let full = cluster
        .stop("gsprof http-stop master-node:8091 --name full_training", "full_training.json");
    let moments = [
        full.time("start_time"),
        loading.time("start_time"),
        loading.time("end_time"),
        training.time("start_time"),
        training.time("end_time"),
        full.time("end_time"),
    ];
    assert!(moments.is_sorted(), "{moments:?}");
    assert!(full.frames().len() >= loading.frames().len() + training.frames().len());
    assert_eq!(
        cluster.site.files(),
        ["data_loading_phase.json", "full_training.json", "training_phase.json"]
    );
    // All that are left at once, and then nothing.
    for name in ["training_epoch_1", "memory_analysis", "gpu_utilization_test"] {
        cluster.run(&format!("gsprof http-profile localhost:8091 --name {name}")).worked();
    }
    cluster.site.frames("gpu_utilization_test", 1);
    cluster.run("gsprof http-stop localhost:8091 --name training_epoch_1").worked();
    let said = cluster.run("gsprof http-stop localhost:8091").worked();
    for name in ["memory_analysis", "gpu_utilization_test"] {
        assert!(said.contains(&format!("session `{name}` stopped")), "{said}");
        Frames::read(&cluster.site.work().join(format!("{name}.json"))).check(NODES * GPUS);
    }
    assert!(!said.contains("training_epoch_1"), "{said}");
    assert_eq!(cluster.run("gsprof stop localhost:8090").worked(), "no session was open\n");
}

#[test]
fn fault_tolerance_as_gsprof() {
    fault_tolerance(Tool::Gsprof);
}

#[test]
fn fault_tolerance_as_gswarm() {
    fault_tolerance(Tool::Gswarm);
}

fn fault_tolerance(tool: Tool) {
    let start = "gsprof start --port 8090 --http-port 8091 --enable-bandwidth";
    let mut cluster = Cluster::start(tool, start);
    cluster.run("gsprof http-profile master-node:8091 --name week_long_training").worked();
    let before = cluster.site.frames("week_long_training", 3);
    let mut files = Files::default();
    cluster.head.take().unwrap().kill();
    cluster.site.spooled(&["node1", "node2", "node3"]);

    // The recording is read where it lies, as often as one likes.
    for _ in 0..2 {
        let list = cluster.run("gsprof recover --list").worked();
        assert!(list.contains("week_long_training") && list.contains("open"), "{list}");
        let one = cluster.run("gsprof recover --name week_long_training").worked();
        assert!(one.contains("goes on by itself when the host starts again"), "{one}");
        let by_id = cluster.run(&format!("gsprof recover --session-id {}", before.id)).worked();
        assert!(by_id.contains("week_long_training"), "{by_id}");
        cluster.run("gsprof recover --export --name week_long_training").worked();
        let file = files.added(&cluster.site);
        file.check(NODES * GPUS);
        assert!(file.frames().len() >= 3);
        assert_eq!(file.json["session_id"], *before.id);
    }

    cluster.head = Some(cluster.site.host(&tool.say(start)));
    let nodes = cluster.site.connected(NODES);
    let spooled = nodes.iter().map(|node| node.gaps.len()).sum::<usize>();
    assert_eq!(spooled, 0, "{nodes:#?}");
    for _ in 0..2 {
        let list = cluster.run("gsprof recover --list").worked();
        assert!(list.contains("week_long_training") && list.contains("open"), "{list}");
        let one = cluster.run("gsprof recover --name week_long_training").worked();
        assert!(one.contains("it is open and recording; nothing was lost"), "{one}");
        cluster.run("gsprof recover --export --name week_long_training").worked();
        files.added(&cluster.site).check(NODES * GPUS);
    }

    let frames = cluster.site.frames("week_long_training", 0).frame_count;
    cluster.site.frames("week_long_training", frames + 2);
    cluster.run("gsprof http-stop master-node:8091 --name week_long_training").worked();
    let file = files.added(&cluster.site);
    file.check(NODES * GPUS);
    assert_eq!(file.json["gaps"], Value::Array(Vec::new()), "nothing was lost");
    assert_eq!(file.json["session_id"], *before.id);
    assert_eq!(file.json["start_time"], *before.from);
    check_outage_is_filled(&cluster.site);
    for agent in &mut cluster.agents {
        agent.check_running();
    }
}

/// What the agents kept while the head was down is in the recording at its own time.
#[track_caller]
fn check_outage_is_filled(site: &Site) {
    let name = "week_long_training";
    site.run(&format!("gswarm profiler export --name {name} --format jsonl -o ../all.jsonl"))
        .worked();
    let records = Records::read(&site.root().join("all.jsonl"));
    records.check_unbroken();
    assert_eq!(records.incarnations.len(), NODES);
    let status = site.ask(async |host| host.status().await).unwrap();
    let back = parse_rfc3339(&status.started_at).unwrap().0;
    for rows in records.incarnations.values() {
        let is_late = |row: &&Row| row.time_us < back && row.receipt_us >= back;
        let late = rows.iter().filter(is_late).count();
        assert!(late >= 4, "{late} records of {} from the outage", rows[0].node);
    }
}

/// The files of the working directory, none of which may ever change.
#[derive(Default)]
struct Files {
    known: Vec<(String, Vec<u8>)>,
}

impl Files {
    /// Exactly one more file is there; gives it.
    #[track_caller]
    fn added(&mut self, site: &Site) -> Frames {
        for (name, bytes) in &self.known {
            assert!(fs::read(site.work().join(name)).unwrap() == *bytes, "{name} was changed");
        }
        let is_new = |name: &String| self.known.iter().all(|(known, _)| known != name);
        let added: Vec<String> = site.files().into_iter().filter(is_new).collect();
        let expected = match self.known.len() + 1 {
            1 => "week_long_training.json".to_owned(),
            number => format!("week_long_training-{number}.json"),
        };
        assert_eq!(added, [&*expected]);
        let path = site.work().join(&expected);
        self.known.push((expected, fs::read(&path).unwrap()));
        Frames::read(&path)
    }
}

#[test]
fn direct_requests() {
    let cluster = Cluster::start(Tool::Gsprof, "gsprof start --port 8090 --http-port 8091");
    let site = &cluster.site;
    let (status, body) = site.curl("curl http://localhost:8091/status");
    assert_eq!((status, &body["total_gpus"]), (200, &(NODES * GPUS).into()));
    assert_eq!(body["is_profiling"], false);
    let start = r#"curl -X POST http://localhost:8091/profiling/start -H "Content-Type: application/json" -d '{"name": "my_experiment"}'"#;
    let (status, body) = site.curl(start);
    assert_eq!((status, &body["success"]), (200, &true.into()), "{body}");
    let (status, body) = site.curl(start);
    assert_eq!((status, &body["success"]), (409, &false.into()), "{body}");
    let (status, body) = site.curl(&start.replace("my_experiment", "other"));
    assert_eq!((status, &body["success"]), (200, &true.into()), "{body}");
    site.frames("other", 2);
    let (_, body) = site.curl("curl http://localhost:8091/status");
    assert_eq!(body["is_profiling"], true);
    assert_eq!(body["active_sessions"].as_array().map(Vec::len), Some(2));
    let (_, body) = site.curl("curl http://localhost:8091/clients");
    assert_eq!(body["total_clients"], NODES);
    assert!(body["clients"].as_array().unwrap().iter().all(|client| client["gpu_count"] == GPUS));
    let (_, body) = site.curl("curl http://localhost:8091/metrics/latest");
    let latest = body["client_data"].as_object().unwrap();
    assert_eq!(latest.len(), NODES);
    for data in latest.values() {
        let gpus = data["gpus_metrics"].as_array().unwrap();
        assert!(gpus.len() == GPUS && gpus.iter().all(|gpu| gpu["gpu_util"].is_number()), "{data}");
    }
    let stop = r#"curl -X POST http://localhost:8091/profiling/stop -H "Content-Type: application/json" -d '{"name": "my_experiment"}'"#;
    let (status, body) = site.curl(&stop.replace("my_experiment", "unknown"));
    assert_eq!((status, &body["success"]), (404, &false.into()), "{body}");
    let (_, body) = site.curl("curl http://localhost:8091/profiling/sessions");
    assert_eq!((&body["total_sessions"], &body["active_sessions"]), (&2.into(), &2.into()));
    let (status, body) = site.curl(stop);
    assert_eq!((status, &body["success"]), (200, &true.into()), "{body}");
    let file = site.work().join("my_experiment.json");
    assert_eq!(body["output_file"], file.to_str().unwrap());
    Frames::read(&file).check(NODES * GPUS);
    let stop_all = r#"curl -X POST http://localhost:8091/profiling/stop -H "Content-Type: application/json" -d '{}'"#;
    let (status, body) = site.curl(stop_all);
    assert_eq!((status, &body["success"]), (200, &true.into()), "{body}");
    Frames::read(&site.work().join("other.json")).check(NODES * GPUS);
    let (_, body) = site.curl("curl http://localhost:8091/profiling/sessions");
    assert_eq!((&body["total_sessions"], &body["active_sessions"]), (&2.into(), &0.into()));
    let (status, body) = site.curl("curl http://localhost:8091/");
    assert!(status == 200 && body.is_object(), "{body}");
    // Every port serves everything.
    assert_eq!(site.curl("curl http://localhost:8090/status").0, 200);
}
