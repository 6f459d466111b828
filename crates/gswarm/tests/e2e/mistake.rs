//! What cannot be done is refused in one clear sentence, and nothing else happens.

use std::fs;

use crate::process::until;
use crate::site::Site;

const HOST: &str = "gswarm host start --port 8090 --single-port";
const JOIN: &str = "gswarm join localhost:8090";

#[test]
fn sessions_that_cannot_be() {
    let site = Site::simulated();
    let _host = site.host(HOST);
    let _agent = site.agent(JOIN, 1);
    site.connected(1);
    for name in ["one", "two"] {
        site.run(&format!("gswarm profiler start --name {name}")).worked();
    }
    let long = "x".repeat(4_000);
    for tool in ["gswarm profiler start", "gswarm profiler stop", "gsprof profile", "gsprof stop"] {
        let line = |name: &str| format!("{tool} --name={name}");
        site.run(&line("../../x")).failed(2, "is not a session name");
        site.run(&line("a/b")).failed(2, "is not a session name");
        site.run(&line("")).failed(2, "empty");
        let said = site.run(&line(&long)).failed(2, "at most 128 characters");
        assert!(said.len() < 200, "{said}");
    }
    for (line, code, part) in [
        ("gswarm profiler stop --name three", 5, "no session is called `three`"),
        (
            "gsprof http-stop localhost:8090 --name three",
            5,
            "`three`: `gsprof recover --list` lists",
        ),
        ("gswarm profiler export --name three -o a.json", 5, "no session is called `three`"),
        ("gswarm profiler recover --export --name three", 5, "there is no session `three`"),
        ("gswarm profiler start --name one", 6, "`one`"),
        ("gsprof profile localhost:8090 --name one", 6, "`one`"),
        ("gswarm profiler start --name three --nodes nobody", 5, "nobody"),
        ("gswarm profiler start --name three -r nonsense", 2, "nonsense"),
        ("gswarm profiler start --name three --job a/b", 2, "`a/b` is not a job id"),
        ("gswarm profiler start --name three --job=", 2, "a job id cannot be empty"),
        ("gsprof profile localhost:8090 --name three --job ../x", 2, "is not a job id"),
        ("gswarm node status nobody", 5, "nobody"),
    ] {
        site.run(line).failed(code, part);
    }
    // The names go to the host unchecked by old scripts.
    for name in ["../../x", "", &long] {
        let body = format!(r#"{{"name": "{name}"}}"#);
        for verb in ["start", "stop"] {
            let line = format!("curl -X POST http://localhost:8090/profiling/{verb} -d '{body}'");
            let (status, answer) = site.curl(&line);
            assert_eq!(status, 400, "{verb} {answer}");
            assert_eq!(answer["success"], false);
        }
    }
    let many = "x".repeat(65);
    for job in ["a/b", "", &many] {
        for (path, from) in [("", ""), ("/capture", r#""from": "1s", "#)] {
            let body = format!(r#"{{"name": "three", {from}"job": "{job}"}}"#);
            let line =
                format!("curl -X POST http://localhost:8090/api/v1/sessions{path} -d '{body}'");
            let (status, answer) = site.curl(&line);
            assert_eq!((status, &answer["error"]["code"]), (400, &"invalid_argument".into()));
            assert!(answer["error"]["message"].as_str().unwrap().contains("job id"), "{answer}");
        }
    }
    let sessions = site.ask(async |host| host.sessions().await).unwrap().sessions;
    let open: Vec<(&str, bool)> =
        sessions.iter().map(|session| (&*session.name, session.active)).collect();
    assert_eq!(open, [("one", true), ("two", true)]);
    assert!(site.files().is_empty(), "{:?}", site.files());
}

#[test]
fn processes_that_cannot_start() {
    let site = Site::simulated();
    fs::write(site.work().join("file"), "").unwrap();
    for (line, code, part) in [
        ("gswarm profiler recover --list", 5, "no host answers and there is no recording"),
        ("gswarm profiler recover --list --data-dir missing", 5, "no recording in `missing`"),
        ("gswarm join localhost:8090 --devices tpu", 2, "unknown devices `tpu`"),
        ("gswarm join localhost:8090 --devices sim:0xh100", 2, "sim:0xh100"),
        ("gswarm join localhost:8090 --devices sim:8xh9000", 2, "h9000"),
        ("gswarm join localhost:8090 --devices replay:missing.jsonl", 7, "missing.jsonl"),
        ("gswarm join localhost:8090 --state-dir file/state", 1, "cannot make the directory"),
        ("gswarm host start --port 8090 --single-port --data-dir file/data", 1, "cannot make"),
        ("gswarm host start --port 8090 --single-port --output-dir file/out", 1, "cannot make"),
        ("gswarm host start --port 8090 --single-port --data-dir /proc/gswarm", 5, "/proc/gswarm"),
        ("gswarm status", 9, "no gswarm host answers at 127.0.0.1:"),
        ("gswarm profiler start --name one", 9, "no gswarm host answers"),
        ("gsprof status localhost:8091", 9, "no gswarm host answers"),
        ("gsprof http-stop localhost:8091", 9, "no gswarm host answers"),
    ] {
        site.run(line).failed(code, part);
    }
    assert_eq!(site.files(), ["file"]);
    // A host that could not start recorded nothing, and nothing looks as if it had.
    assert!(!site.data().try_exists().unwrap());
    site.run("gswarm profiler recover --list").failed(5, "there is no recording");
}

#[test]
fn simulated_and_real_never_mix() {
    let site = Site::new();
    let real = site.home().join("data");
    let host = site.host_in(HOST, &real);
    let mut agent = site.agent(JOIN, 1);
    let said = until(&site.runtime, "the refusal", || {
        agent.check_running();
        agent.log().lines().find(|line| line.contains("refuses: ")).map(str::to_owned)
    });
    assert!(said.contains("--sim"), "{said}");
    agent.interrupt(&site.runtime);
    host.interrupt(&site.runtime);
    // Nor do their recordings.
    let mixed = format!("{HOST} --sim --data-dir {}", real.display());
    site.run(&mixed).failed(7, "holds real devices");
    // And the other way round.
    let _host = site.host_in(&format!("{HOST} --sim"), &site.data());
    let mut agent = site.start(&format!("{JOIN} --devices none -n real"), &[]);
    let said = until(&site.runtime, "the refusal", || {
        agent.check_running();
        agent.log().lines().find(|line| line.contains("refuses: ")).map(str::to_owned)
    });
    assert!(said.contains("simulated"), "{said}");
    assert!(site.ask(async |host| host.nodes().await).unwrap().nodes.is_empty());
}
