//! Hosts and agents come, go, come back, and are stopped one by one.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use gswarm_api::body::NodeHealth;
use gswarm_trial::Trial;
use serde_json::Value;

use crate::file::{Frames, Records};
use crate::process::{Detached, is_alive};
use crate::site::{GPUS, Site, run_file};
use crate::spool::{Ledger, Writer, records_in};

const HOST: &str = "gswarm host start --port 8090 --single-port";
const JOIN: &str = "gswarm join localhost:8090";

#[test]
fn an_agent_may_come_before_its_host() {
    let site = Site::simulated();
    let agent = site.agent(JOIN, 1);
    site.until("the agent to say that it waits", || {
        agent.log().contains("no host at localhost:").then_some(())
    });
    site.spooled(&["node1"]);
    let _host = site.host(HOST);
    site.connected(1);
    let begin = site.ask(async |host| host.status().await).unwrap();
    agent.interrupt(&site.runtime);
    site.run("gswarm profiler capture --from 5m --name early").worked();
    site.run("gswarm profiler export --name early --format jsonl -o early.jsonl").worked();
    let records = Records::read(&site.work().join("early.jsonl"));
    records.check_whole();
    assert_eq!(records.incarnations.len(), 1);
    // What was measured before there was a host stands at its own time.
    let started = gswarm_api::timestamp::parse_rfc3339(&begin.started_at).unwrap().0;
    let early = records.rows().filter(|row| row.time_us < started).count();
    assert!(early >= 4, "{early} records before {}", begin.started_at);
    assert!(records.rows().any(|row| row.time_us > started));
    assert_eq!(records.rows().last().map(|row| &*row.kind), Some("end"));
}

#[test]
fn a_host_comes_back_on_its_ports() {
    let site = Site::simulated();
    let line = "gswarm host start --port 8090 --http-port 8091 --model-port 0 --freq 200";
    let host = site.host(line);
    let mut agents = [site.agent(JOIN, 1), site.agent(JOIN, 2)];
    let before = site.connected(2);
    site.run("gswarm profiler start --name goes_on").worked();
    site.frames("goes_on", 2);
    host.interrupt(&site.runtime);
    assert_eq!(run_file(&site.data()), None);
    site.run("gswarm status").failed(9, "no gswarm host answers");
    let _host = site.host(line);
    let after = site.connected(2);
    let ids = |nodes: &[gswarm_api::body::NodeBody]| -> Vec<(String, String)> {
        nodes.iter().map(|node| (node.name.clone(), node.node_id.clone())).collect()
    };
    assert_eq!(ids(&before), ids(&after));
    let session = site.ask(async |host| host.session("goes_on").await).unwrap();
    assert!(session.active);
    site.frames("goes_on", session.frame_count + 2);
    agents.iter_mut().for_each(crate::process::Process::check_running);
    site.run("gswarm profiler stop --name goes_on").worked();
    site.run("gswarm profiler export --name goes_on --format jsonl -o all.jsonl").worked();
    let records = Records::read(&site.work().join("all.jsonl"));
    records.check_unbroken();
    assert_eq!(records.incarnations.len(), 2);
}

#[test]
fn a_data_directory_has_one_host() {
    let site = Site::simulated();
    let mut host = site.host(HOST);
    let second = site.run("gswarm host start --port 0 --single-port");
    let said = second.failed(6, "a host already records into");
    assert!(said.contains(&format!("pid {}", host.pid())), "{said}");
    assert!(said.contains(&site.port().to_string()), "{said}");
    // Also for a host that does not see the run file of the first one.
    let run = fs::read(site.data().join("run.json")).unwrap();
    fs::remove_file(site.data().join("run.json")).unwrap();
    let said = site.run("gswarm host start --port 0 --single-port").failed(6, "data-sim");
    assert!(said.contains(&host.pid().to_string()), "{said}");
    fs::write(site.data().join("run.json"), run).unwrap();
    host.check_running();
    // Nor does an agent share its state.
    let mut agent = site.agent(JOIN, 1);
    site.connected(1);
    let other = site.agent(JOIN, 1);
    let pid = format!("pid {}", agent.pid());
    let (status, said) = other.ended(&site.runtime);
    assert_eq!(status.code(), Some(6), "{said}");
    assert!(said.contains("`node1` already runs here") && said.contains(&pid), "{said}");
    agent.check_running();
}

#[test]
fn a_port_in_use_names_its_owner() {
    let site = Site::simulated();
    let host = site.host(HOST);
    let elsewhere = "gswarm host start --port 8090 --single-port --data-dir other";
    let said = site.run(elsewhere).failed(6, "is in use by a gswarm host, version ");
    assert!(said.contains(&format!("(pid {})", host.pid())), "{said}");
    let _stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, site.http_port())).unwrap();
    let line = "gswarm host start --port 8091 --single-port --data-dir other";
    let said = site.run(line).failed(6, &format!("port {} is in use by `", site.http_port()));
    assert!(said.contains(&format!("(pid {})", std::process::id())), "{said}");
    // Whoever could not start leaves no directory that looks like a recording.
    assert!(site.files().is_empty(), "{:?}", site.files());
}

#[test]
fn only_what_is_meant_is_stopped() {
    let site = Site::simulated();
    let mine = site.root().join("mine");
    let theirs = site.root().join("theirs");
    let (mine_text, theirs_text) = (mine.display(), theirs.display());
    let first = site.host_in(&format!("{HOST} --data-dir {mine_text}"), &mine);
    let line = format!("gswarm host start --port 8091 --single-port --data-dir {theirs_text}");
    let mut second = site.host_in(&line, &theirs);
    let agent = site.agent(JOIN, 1);
    let mut stays = site.agent(JOIN, 2);
    site.connected(2);

    site.run("gswarm host stop").failed(5, "no host runs in");
    site.run("gswarm client disconnect").failed(2, "several agents run here: node1, node2");
    site.run("gswarm client disconnect -n node3").failed(5, "no agent `node3` runs");
    site.run("gswarm client disconnect -n node1").worked();
    let (status, _) = agent.ended(&site.runtime);
    assert!(status.success());
    stays.check_running();
    let health = |name: &str| site.ask(async |host| host.node(name).await).unwrap().health;
    site.until("node1 to be known as stopped", || {
        (health("node1") == NodeHealth::Stopped).then_some(())
    });
    assert_eq!(health("node2"), NodeHealth::Healthy);

    let said = site.run(&format!("gswarm host stop --data-dir {mine_text}")).worked();
    assert_eq!(said, format!("host stopped (process {})\n", first.pid()));
    let (status, _) = first.ended(&site.runtime);
    assert!(status.success());
    second.check_running();
    stays.check_running();
    site.run(&format!("gswarm host stop --data-dir {mine_text}")).failed(5, "no host runs in");
    // What a killed host left behind names nobody.
    second.kill();
    assert!(run_file(&theirs).is_some());
    site.run(&format!("gswarm host stop --data-dir {theirs_text}")).failed(5, "no host runs in");
    stays.check_running();
}

#[test]
fn gsprof_exit_stops_the_head() {
    let site = Site::simulated();
    let host = site.host("gsprof start --port 8090 --http-port 8091");
    site.run("gsprof exit localhost:8091").worked();
    assert!(host.ended(&site.runtime).0.success());
}

#[test]
fn in_the_background() {
    let site = Site::simulated();
    let detached = |line: &str| {
        let said = site.run(&format!("{line} --json")).worked();
        let body: Value = serde_json::from_str(&said).unwrap();
        let pid = u32::try_from(body["pid"].as_u64().unwrap()).unwrap();
        Detached::new(pid, site.root())
    };
    let host = detached("gswarm host start --port 8090 --single-port --background");
    let status = site.run("gswarm host status").worked();
    assert!(status.contains(&site.port().to_string()), "{status}");
    site.run("gswarm host start --port 0 --single-port --background")
        .failed(6, &format!("pid {}", host.pid));
    let agent = detached(&format!("{JOIN} -n node1 --devices sim:8xh100,seed=1 --background"));
    site.connected(1);
    let status = site.run("gswarm client status").worked();
    assert!(status.contains("node1") && status.contains(&agent.pid.to_string()), "{status}");
    site.run("gswarm profiler start --name logged").worked();
    site.run("gswarm profiler stop --name logged").worked();
    site.run("gswarm client disconnect").worked();
    assert!(!is_alive(agent.pid));
    assert!(is_alive(host.pid));
    site.run("gswarm host stop").worked();
    assert!(!is_alive(host.pid));
    let log = |name: &str| fs::read_to_string(site.home().join("logs").join(name)).unwrap();
    assert!(
        log("profiler.log").contains("session started session=logged"),
        "{}",
        log("profiler.log")
    );
    assert!(log("host.log").contains("session stopped"), "{}", log("host.log"));
    assert!(log("client-node1.log").contains("connected"), "{}", log("client-node1.log"));
    // What goes wrong in the background is said in the foreground.
    let _stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, site.port())).unwrap();
    site.run("gswarm host start --port 8090 --single-port --background")
        .failed(6, &format!("port {} is in use", site.port()));
}

#[test]
fn up_with_any_port() {
    let site = Site::simulated();
    let line = "gswarm up --sim --nodes 3 --port 0 --single-port";
    let up = site.host(line);
    let run = run_file(&site.data()).unwrap();
    let address = run["addresses"][0].as_str().unwrap();
    assert_eq!(run["addresses"].as_array().map(Vec::len), Some(1));
    assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
    site.until("24 GPUs", || {
        let said = site.run(&format!("gswarm status --host {address} --json")).worked();
        let status: Value = serde_json::from_str(&said).unwrap();
        (status["gpus_total"] == 24).then_some(())
    });
    site.run(&format!("gswarm profiler start --host {address} --name first --for 1s")).worked();
    up.interrupt(&site.runtime);
}

#[test]
fn a_node_that_comes_back_completes_the_file() {
    let site = Site::simulated();
    let line = format!("{HOST} --freq 200");
    let host = site.host(&line);
    let agents = [site.agent(JOIN, 1), site.agent(JOIN, 2)];
    site.connected(2);
    site.run("gswarm profiler start --name run1").worked();
    site.frames("run1", 2);
    host.kill();
    // Both go on without a host, and one of them dies with records that nobody else has.
    site.spooled(&["node1"]);
    let [first, _second] = agents;
    first.kill();
    let _host = site.host(&line);
    site.connected(1);
    let said = site.run("gswarm profiler stop --name run1").worked();
    assert!(said.contains("records of node1 are still to come"), "{said}");
    let path = site.work().join("run1.json");
    let early = Frames::read(&path);
    assert_eq!(early.json["revision"], 1);
    assert_eq!(early.json["incomplete_nodes"], serde_json::json!(["node1"]));
    let _first = site.agent(JOIN, 1);
    let late = site.until("the whole file", || {
        let file = Frames::read(&path);
        (file.json["revision"] == 2).then_some(file)
    });
    late.check(2 * GPUS);
    assert_eq!(late.json["incomplete_nodes"], serde_json::json!([]));
    assert_eq!(late.json["end_time"], early.json["end_time"]);
    assert_eq!(site.files(), ["run1.json"]);
    // What the dead agent had measured without a host is there now, at its own time.
    let numbers = |file: &Frames| {
        file.frames().iter().filter(|frame| frame["gpu_util"][0].is_number()).count()
    };
    assert!(numbers(&late) > numbers(&early), "{} and {}", numbers(&late), numbers(&early));
    site.run("gswarm profiler export --name run1 --format jsonl -o run1.jsonl").worked();
    Records::read(&site.work().join("run1.jsonl")).check_unbroken();
}

#[test]
fn half_written_files_of_sessions_go_with_the_next_start() {
    let site = Site::simulated();
    let host = site.host(HOST);
    site.run("gswarm profiler start --name run1").worked();
    site.run("gswarm profiler stop --name run1").worked();
    let id = site.ask(async |host| host.session("run1").await).unwrap().id;
    host.kill();
    // As a host leaves it that dies while it writes a later revision; the other is not its own.
    let foreign = ".run1.01a1deda-af88-7107-b763-ad86b1978255.tmp";
    for name in [format!(".run1.{id}.tmp"), foreign.to_owned()] {
        fs::write(site.work().join(name), "half").unwrap();
    }
    let _host = site.host(HOST);
    assert_eq!(site.files(), [foreign, "run1.json"]);
}

#[test]
fn an_agent_that_does_not_wait_ends_with_its_host() {
    let site = Site::simulated();
    let host = site.host(HOST);
    let agent = site.agent(&format!("{JOIN} --no-resilient"), 1);
    let mut stays = site.agent(JOIN, 2);
    site.connected(2);
    host.kill();
    let (status, said) = agent.ended(&site.runtime);
    assert_eq!(status.code(), Some(9), "{said}");
    assert!(said.contains("hint: without --no-resilient"), "{said}");
    stays.check_running();
}

#[test]
fn machines_of_one_name_coexist() {
    let site = Site::simulated();
    let _host = site.host(HOST);
    let agent = |state: &str| {
        let line = format!("{JOIN} --state-dir {}", site.root().join(state).display());
        let agent = site.agent(&line, 1);
        site.until("its connection", || agent.log().contains("connected to").then_some(()));
        agent
    };
    let first = agent("one");
    let second = agent("two");
    let renamed = "as `node1-2`: the host knows another machine as `node1`";
    assert!(second.log().contains(renamed), "{}", second.log());
    let nodes = site.connected(2);
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["node1", "node1-2"]);
    assert_ne!(nodes[0].node_id, nodes[1].node_id);
    // Each keeps the name that it got.
    first.interrupt(&site.runtime);
    second.kill();
    let _second = agent("two");
    let _first = agent("one");
    let names: Vec<String> = site.connected(2).into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["node1", "node1-2"]);
}

#[test]
fn of_two_agents_with_one_identity_the_first_stays() {
    let site = Site::simulated();
    let _host = site.host(HOST);
    let [own, copy] = ["own", "copy"].map(|name| site.root().join(name));
    let agent = |state: &Path| site.agent(&format!("{JOIN} --state-dir {}", state.display()), 1);
    let earlier = agent(&own);
    site.connected(1);
    earlier.interrupt(&site.runtime);
    copy_directory(&own, &copy);
    let mut first = agent(&own);
    let id = site.connected(1)[0].node_id.clone();
    site.run("gswarm profiler start --name both --freq 200").worked();

    let mut second = agent(&copy);
    let refusal = "asks to wait: another live agent already is `node1`";
    site.until("the refusal", || second.log().contains(refusal).then_some(()));
    let conflict = site.until("an event of it", || {
        let events = site.ask(async |host| host.events(None).await).unwrap().events;
        events.into_iter().find(|event| event.kind == "node_conflict")
    });
    assert_eq!(conflict.node.as_deref(), Some("node1"));
    assert!(conflict.message.contains("`node1`"), "{}", conflict.message);
    // The one that was there delivers on, as the one node that it is.
    let frames = site.ask(async |host| host.session("both").await).unwrap().frame_count;
    site.frames("both", frames + 5);
    first.check_running();
    second.check_running();
    let nodes = site.connected(1);
    assert_eq!((nodes.len(), &nodes[0].node_id), (1, &id));
    assert!(!second.log().contains("connected to"), "{}", second.log());

    // Once the first is gone, the second takes its place with all that it recorded meanwhile.
    first.interrupt(&site.runtime);
    site.until("its turn", || second.log().contains("connected to").then_some(()));
    second.interrupt(&site.runtime);
    site.run("gswarm profiler capture --from 5m --name all").worked();
    site.run("gswarm profiler export --name all --format jsonl -o all.jsonl").worked();
    let records = Records::read(&site.work().join("all.jsonl"));
    records.check_whole();
    assert_eq!(records.incarnations.len(), 3);
    for rows in records.incarnations.values() {
        assert_eq!(rows.last().map(|row| &*row.kind), Some("end"));
    }
}

#[test]
fn a_cloned_machine_is_a_node_of_its_own_and_sends_nothing_twice() {
    let mut trial = Trial::new("a state directory cloned to another machine while its agent runs");
    let site = Site::simulated();
    let line = format!("{HOST} --freq 100 --base-freq 100");
    let host = site.host(&line);
    site.run("gswarm profiler start --name all").worked();
    let [own, copy] = ["own", "copy"].map(|name| site.root().join(name));
    let agent = |state: &Path| site.agent(&format!("{JOIN} --state-dir {}", state.display()), 1);
    let first = agent(&own);
    let id = site.connected(1)[0].node_id.clone();
    // From now on the spool has what nobody else has.
    host.kill();
    let held = records_in(&own.join("spool"));
    site.until("records", || (records_in(&own.join("spool")) > held + 10).then_some(()));
    copy_directory(&own, &copy);
    let cloned = records_in(&copy.join("spool"));
    // To its new owner the directory comes from a machine with another id.
    let node = copy.join("node.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&node).unwrap()).unwrap();
    json["machine_id"] = "0123456789abcdef0123456789abcdef".into();
    fs::write(&node, json.to_string()).unwrap();
    // And names a process that does not run there.
    fs::remove_file(copy.join("run.json")).unwrap();
    let second = agent(&copy);
    let _host = site.host(&line);
    let nodes = site.connected(2);
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["node1", "node1-2"]);
    assert_eq!(nodes[0].node_id, id);
    assert_ne!(nodes[1].node_id, id);
    assert!(second.log().contains("copied from another machine"), "{}", second.log());
    assert_eq!(
        records_in(&copy.join("spool-cloned-1")),
        cloned,
        "the copied spool is not as it was"
    );
    first.interrupt(&site.runtime);
    second.interrupt(&site.runtime);
    site.run("gswarm profiler stop --name all").worked();
    site.run("gswarm profiler export --name all --format jsonl -o all.jsonl").worked();
    let mut ledger = Ledger::default();
    for spool in [own.join("spool"), copy.join("spool")] {
        ledger.enter(&spool, Writer::Dead);
    }
    // The same records once more: they are another's, who has delivered them.
    ledger.enter(&copy.join("spool-cloned-1"), Writer::Alive);
    assert_eq!(ledger.incarnations(), 2);
    (trial.rounds, trial.faults) = (1, 1);
    ledger.check(&Records::read(&site.work().join("all.jsonl")), &mut trial);
}

/// As somebody does who clones a machine.
fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn only_an_open_host_is_called_insecure() {
    let site = Site::simulated();
    for (flags, insecure) in
        [("", false), ("--insecure", false), ("--listen 0.0.0.0 --insecure", true)]
    {
        let host = site.host(&format!("{HOST} {flags}"));
        let status = site.ask(async |host| host.status().await).unwrap();
        assert_eq!(status.insecure, insecure, "{flags}");
        let said = site.run("gswarm status").worked();
        assert_eq!(said.contains("INSECURE: open to everyone"), insecure, "{said}");
        site.until("its first words", || host.log().contains("next").then_some(()));
        assert_eq!(host.log().contains("!! INSECURE"), insecure, "{}", host.log());
        assert_eq!(host.log().contains("access: INSECURE"), insecure, "{}", host.log());
        host.interrupt(&site.runtime);
    }
}
