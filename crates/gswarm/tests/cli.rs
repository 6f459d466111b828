//! The command lines as users and scripts meet them: transcripts without a real host.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot set itself up has failed"
)]

#[path = "cli/host.rs"]
mod host;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use host::{Answer, FakeHost};
use tempfile::TempDir;

/// One user with an empty home and an empty working directory.
struct User {
    directory: TempDir,
    host: Option<String>,
}

impl User {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("work")).unwrap();
        Self { directory, host: None }
    }

    fn of(host: &FakeHost) -> Self {
        Self { host: Some(host.address.to_string()), ..Self::new() }
    }

    fn work(&self) -> std::path::PathBuf {
        self.directory.path().join("work")
    }

    fn config(&self, text: &str) {
        fs::create_dir_all(self.directory.path().join("home")).unwrap();
        fs::write(self.directory.path().join("home/config.yaml"), text).unwrap();
    }

    fn run(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        let program = match words.next().unwrap() {
            "gswarm" => env!("CARGO_BIN_EXE_gswarm"),
            "gsprof" => env!("CARGO_BIN_EXE_gsprof"),
            other => panic!("{other} is not ours"),
        };
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.work())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("GSWARM_HOME", self.directory.path().join("home"));
        if let Some(host) = &self.host {
            command.env("GSWARM_HOST", host);
        }
        command.output().unwrap()
    }

    /// Commands with what they print, where, and their exit codes.
    fn transcript(&self, lines: &[&str]) -> String {
        let transcript: Vec<String> = lines.iter().map(|line| self.entry(line)).collect();
        transcript.join("\n")
    }

    fn entry(&self, line: &str) -> String {
        let output = self.run(line);
        let stream = |name: &str, bytes: &[u8]| {
            let text = self.steady(str::from_utf8(bytes).unwrap());
            text.lines()
                .map(|line| format!("{name}{line}").trim_end().to_owned() + "\n")
                .collect::<String>()
        };
        format!(
            "$ {line}\n{}{}? {}\n",
            stream("  ", &output.stdout),
            stream("! ", &output.stderr),
            output.status.code().unwrap()
        )
    }

    /// The text without what differs from run to run.
    fn steady(&self, text: &str) -> String {
        let text = text.replace(self.directory.path().to_str().unwrap(), "/user");
        match &self.host {
            Some(host) => text.replace(host.as_str(), "HOST:PORT"),
            None => text,
        }
    }
}

/// Compares with `snapshots/cli__NAME.snap`.
#[track_caller]
fn check_snapshot(name: &str, transcript: &str) {
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(name, transcript);
    });
}

/// An address where nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn help() {
    let user = User::new();
    check_snapshot(
        "help",
        &user.transcript(&[
            "gswarm --help",
            "gswarm host start --help",
            "gswarm join --help",
            "gswarm up --help",
            "gswarm profiler --help",
            "gswarm profiler start --help",
            "gswarm profiler export --help",
            "gsprof --help",
            "gsprof start --help",
            "gsprof recover --help",
            "gsprof stat --help",
        ]),
    );
}

#[test]
fn mistyped() {
    let user = User::new();
    check_snapshot(
        "mistyped",
        &user.transcript(&[
            "gswarm profilr start",
            "gswarm profiler strat", // misspelt on purpose
            "gswarm host start --prot 1",
            "gswarm host start --port 70000",
            "gswarm host start --listen everywhere",
            "gswarm host start --listen 0.0.0.0 --legacy-from 10.0.0.0/40",
            "gswarm host start --host gpu-head",
            "gswarm profiler start --freq 5",
            "gswarm profiler start --interval soon",
            "gswarm profiler start --since yesterday",
            "gswarm profiler start --for 5",
            "gswarm profiler start --name ../../x",
            "gswarm profiler start --name=",
            "gswarm profiler start --job a/b",
            "gswarm profiler stop --name a --session-id b",
            "gswarm profiler stop --session-id 7",
            "gswarm profiler export --name a",
            "gswarm profiler export -o a.json",
            "gswarm profiler export --name a -o a --format xml",
            "gswarm profiler capture --from 5m --to 10m",
            "gswarm profiler analyze --data missing.json",
            "gswarm profiler analyze --data missing.json --plot a.pdf",
            "gswarm join a/b",
            "gswarm join localhost -n ../x",
            "gswarm join localhost --devices tpu",
            "gswarm join localhost --devices sim:9xh9000",
            "gswarm join localhost --extra-metrics nope",
            "gswarm join localhost --allow root",
            "gswarm join gpu-head --token hello",
            "gswarm join gpu-head --token gsw_AAAA",
            "gswarm token create --days 0",
            "gswarm token create --max-uses none",
            "gswarm token revoke",
            "gswarm nodes aprove n1", // misspelt on purpose
            "gswarm login a/b",
            "gswarm logout gpu-head",
            "gswarm up --nodes 3",
            "gswarm up --devices sim:8xh100",
            "gswarm up --sim --devices none",
            "gswarm events --since tomorrow",
            "gsprof http-stat",
        ]),
    );
}

#[test]
fn long_names_are_refused_in_one_short_sentence() {
    let output = User::new().run(&format!("gswarm profiler start --name {}", "x".repeat(4000)));
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "error: a session name has at most 128 characters, this one has 4000\n");
}

#[test]
fn unreachable() {
    let user = User { host: Some(nobody()), ..User::new() };
    check_snapshot(
        "unreachable",
        &user.transcript(&[
            "gswarm",
            "gswarm --json",
            "gswarm status",
            "gswarm nodes --json",
            "gswarm profiler start --name run1",
            "gswarm profiler recover --list",
            "gsprof http-status",
            "gsprof stop --name run1",
            "gsprof exit",
            "gswarm host stop",
            "gswarm client status",
            "gswarm client status --json",
            "gswarm client disconnect -n n1",
            "gswarm version",
            "gswarm version --json",
        ]),
    );
}

#[test]
fn configuration() {
    let user = User::new();
    let mut text = user.transcript(&["gswarm config check", "gswarm config show"]);
    user.config("profiling:\n  default_freqency: 100\nzzz: 1\nhost: {port: high}\n");
    text +=
        &user.transcript(&["gswarm config check", "gswarm config check --json", "gswarm nodes"]);
    user.config("cluster: [");
    text += &user.transcript(&["gswarm config check", "gswarm nodes", "gswarm version"]);
    user.config(&format!("cluster: {{host: '{}'}}\nzzz: 1", nobody()));
    let output = user.run("gswarm nodes");
    assert_eq!(output.status.code(), Some(9));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("warning: "));
    text += &user.transcript(&["gswarm nodes --config missing.yaml"]);
    check_snapshot("configuration", &text);
}

#[test]
fn tables() {
    let host = FakeHost::start([
        ("GET /api/v1/status", Answer::json(&host::status())),
        ("GET /api/v1/nodes", Answer::json(&host::nodes())),
        ("GET /api/v1/nodes/node1", Answer::json(&host::nodes().nodes[0])),
        ("GET /api/v1/nodes/node2", Answer::json(&host::nodes().nodes[1])),
        ("GET /api/v1/health", Answer::json(&host::health())),
        ("GET /api/v1/events", Answer::json(&host::events())),
        ("GET /api/v1/metrics/latest", Answer::json(&host::latest())),
        ("GET /api/v1/retention", Answer::json(&host::retention())),
        ("GET /api/v1/sessions", Answer::json(&host::sessions())),
    ]);
    check_snapshot(
        "tables",
        &User::of(&host).transcript(&[
            "gswarm",
            "gswarm status",
            "gswarm host status",
            "gswarm nodes",
            "gswarm node status node1",
            "gswarm node status node2",
            "gswarm health",
            "gswarm events --since 2h",
            "gswarm profiler read",
            "gswarm profiler read --node other",
            "gswarm retention --dry-run",
            "gswarm profiler sessions",
            "gswarm profiler status",
            "gsprof http-status",
            "gswarm profiler recover",
            "gswarm profiler recover --name run1",
            "gswarm profiler recover --name other",
        ]),
    );
    assert!(host.requests().contains(&"GET /api/v1/events?since=2h ".to_owned()));
}

#[test]
fn sessions() {
    let missing =
        Answer::error(404, "not_found", "SESSION_NOT_FOUND", "there is no session `other`");
    let taken =
        Answer::error(409, "conflict", "SESSION_ACTIVE", "a session `run1` is open already");
    let mut open = host::session("run1");
    open.active = true;
    open.until = None;
    let host = FakeHost::start([
        ("POST /api/v1/sessions", Answer::json(&open)),
        ("POST /api/v1/sessions/run1/stop", Answer::json(&host::stopped("run1"))),
        ("POST /api/v1/sessions/gone/stop", Answer::json(&host::gone("gone"))),
        ("POST /api/v1/sessions/other/stop", missing),
        ("POST /api/v1/sessions/stop", Answer::json(&host::stop_all())),
        ("POST /api/v1/sessions/capture", taken),
        ("PATCH /api/v1/settings", Answer::json(&host::settings())),
    ]);
    let user = User::of(&host);
    check_snapshot(
        "sessions",
        &user.transcript(&[
            "gswarm profiler start --name run1 --since 5m",
            "gsprof profile --name run1 --job 1234",
            "gswarm profiler stop --name run1",
            "gswarm profiler stop --name gone",
            "gsprof stop --name gone",
            "gsprof stop --name gone --json",
            "gswarm profiler stop --name other",
            "gsprof stop --name other",
            "gsprof http-stop",
            "gswarm profiler capture --from 10m --name run1",
            "gswarm profiler enable-bandwidth",
        ]),
    );
    let requests = host.requests().join("\n");
    for part in [
        r#"{"name":"run1","since":"5m","request_id":""#,
        r#"{"name":"run1","job":"1234","request_id":""#,
        r#"PATCH /api/v1/settings {"enable_bandwidth":true}"#,
    ] {
        assert!(requests.contains(part), "{requests}");
    }
}

#[test]
fn json_is_the_body_of_the_host() {
    let host = FakeHost::start([
        ("GET /api/v1/nodes", Answer::json(&host::nodes())),
        ("GET /api/v1/sessions", Answer::json(&host::sessions())),
    ]);
    let user = User::of(&host);
    let body = |line: &str| String::from_utf8(user.run(line).stdout).unwrap();
    assert_eq!(body("gswarm nodes --json"), serde_json::to_string(&host::nodes()).unwrap() + "\n");
    assert_eq!(
        body("gswarm profiler sessions --json"),
        serde_json::to_string(&host::sessions()).unwrap() + "\n"
    );
}

#[test]
fn exports() {
    let route = "GET /api/v1/sessions/run1/export";
    let host = FakeHost::start([
        (route, Answer::bytes("{\"frames\": []}", false)),
        ("GET /api/v1/sessions/cut/export", Answer::bytes("{\"frames\": [", true)),
        ("GET /api/v1/sessions", Answer::json(&host::sessions())),
        (
            "GET /api/v1/sessions/0192d3a0-0000-7000-8000-00000000000b/export",
            Answer::bytes("{\"frames\": []}", false),
        ),
    ]);
    let user = User::of(&host);
    check_snapshot(
        "exports",
        &user.transcript(&[
            "gswarm profiler export --name run1 -o a.json",
            "gswarm profiler export --name run1 -o a.json",
            "gswarm profiler export --name run1 -o a.json --force --json",
            "gswarm profiler export --name run1 -o - --legacy-json",
            "gswarm profiler export --name run1 -o missing/a.json",
            "gswarm profiler export --name cut -o cut.json",
            "gsprof recover --export --name run1",
            "gsprof recover --export --name run1",
            "gsprof recover --export",
        ]),
    );
    assert!(host.requests().iter().any(|request| request.contains("format=legacy-json")));
    let mut files: Vec<String> = fs::read_dir(user.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["a.json", "run1-2.json", "run1.json"]);
}

#[test]
fn strangers_and_taken_ports() {
    // Answers HTTP, but nothing that a gswarm host would say.
    let stranger = FakeHost::start([("GET /api/v1/status", Answer::bytes("<html>", false))]);
    let ours = FakeHost::start([("GET /api/v1/health", Answer::json(&host::health()))]);
    let user = User::of(&stranger);
    let status = user.run("gswarm status");
    assert_eq!(status.status.code(), Some(1));
    check_start(&user, &stranger, "is in use by `");
    check_start(&user, &ours, "is in use by a gswarm host, version 0.1.0");
}

#[track_caller]
fn check_start(user: &User, holder: &FakeHost, part: &str) {
    let port = holder.address.port();
    let output = user.run(&format!("gsprof start --port {port} --http-port 0"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains(&format!("port {port} {part}")), "{text}");
    // `gsprof` does not have the third port, nor the commands of `gswarm`.
    assert!(text.contains("--port and --http-port") && !text.contains("`gswarm "), "{text}");
}

#[test]
fn directories_that_cannot_be_written() {
    let user = User::new();
    let file = user.work().join("file");
    fs::write(&file, "").unwrap();
    let output = user.run("gswarm host start --port 0 --single-port --data-dir file/data");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cannot make the directory"), "{text}");
    assert_ne!(output.status.code(), Some(0));
    assert!(Path::new(&file).is_file());
}

#[test]
fn analysis() {
    let user = User::new();
    let new = r#"{"schema_version": 1, "session_name": "run1", "start_time": "2026-11-15T04:00:00Z",
        "end_time": "2026-11-15T04:10:00Z", "frames": [{}, {}],
        "summary_by_device": {"n1:0:H100": {"gpu_util": {"avg": 50.25, "p95": 99}, "energy_joules": 12}}}"#;
    let old = r#"{"frames": [{"frame_id": 1}],
        "summary_by_device": {"n1:0:H100": {"avg_gpu_util": "0.5", "avg_gpu_memory": "0.25"}}}"#;
    fs::write(user.work().join("new.json"), new).unwrap();
    fs::write(user.work().join("old.json"), old).unwrap();
    fs::write(user.work().join("not.json"), "PAR1").unwrap();
    check_snapshot(
        "analysis",
        &user.transcript(&[
            "gswarm profiler analyze --data new.json",
            "gsprof stat --data old.json",
            "gsprof stat --data old.json --json",
            "gsprof stat --data not.json",
            "gsprof stat --data new.json --plot new.pdf",
        ]),
    );
}

#[test]
fn the_doctor_finds_something_to_say() {
    let user = User::new();
    let output = user.run("gswarm doctor --json");
    let body: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = body["findings"].as_array().unwrap();
    for area in ["config", "port", "clock", "limit", "data", "state", "log", "output"] {
        assert!(findings.iter().any(|finding| finding["area"] == area), "{area}");
    }
    let failed = findings.iter().any(|finding| finding["level"] == "error");
    assert_eq!(output.status.code(), Some(if failed { 7 } else { 0 }));
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let output = User::new().run(&format!("gswarm completions {shell}"));
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8(output.stdout).unwrap().contains("profiler"));
    }
}
