//! Configuration through files and variables as users write them.

use std::fs;

use super::*;

const SEED: &str = r#"
cluster:
  host: "master.cluster.local"
  port: 8095

profiling:
  default_frequency: 1000
  enable_bandwidth: true
  enable_nvlink: false

models:
  storage_path: "/data/models"
  cache_size: "100GB"

queue:
  max_concurrent_tasks: 4
  task_timeout: 3600
  retry_count: 3

nodes:
  - name: "node1"
    address: "192.168.1.101"
    capabilities:
      gpus: ["gpu0", "gpu1"]
"#;

fn load<const N: usize>(file: &str, variables: [(&str, &str); N]) -> Settings {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("config.yaml"), file).unwrap();
    let mut environment = Environment::from(variables);
    environment.variables.insert("GSWARM_HOME".to_owned(), home.path().display().to_string());
    Settings::load(&environment, home.path(), None).unwrap()
}

#[track_caller]
fn check_problems(file: &str, expected: &[&str]) {
    let settings = load(file, []);
    let problems: Vec<&str> = settings.problems.iter().map(|p| p.text.as_str()).collect();
    assert_eq!(problems, expected);
}

#[test]
fn the_documented_example_is_accepted() {
    let settings = load(SEED, []);
    assert_eq!(settings.problems, []);
    assert_eq!(settings.target(None).unwrap().to_string(), "master.cluster.local:8095");
    assert_eq!(settings.period("profiling.default_frequency").unwrap().millis(), 1000);
    assert!(settings.switch("profiling.enable_bandwidth"));
    assert_eq!(settings.bytes("models.cache_size"), Some(100_000_000_000));
    assert_eq!(settings.main_port(), 8095);
}

#[test]
fn flag_before_variable_before_file_before_default() {
    let settings = load(
        "cluster: {host: from-file}\nhost: {port: 7000}\nlog: {level: debug}",
        [("GSWARM_HOST", "from-variable:1"), ("GSWARM_HOST__PORT", "7001")],
    );
    assert_eq!(settings.target(Some("from-flag")).unwrap().to_string(), "from-flag:8090");
    assert_eq!(settings.target(None).unwrap().to_string(), "from-variable:1");
    assert_eq!(settings.get("host.port"), Some(7001_u16));
    assert_eq!(settings.text("log.level"), Some("debug"));
    assert_eq!(settings.setting("store.keep").unwrap().origin, Origin::Default);
}

#[test]
fn a_machine_without_configuration_talks_to_itself() {
    assert_eq!(load("", []).target(None).unwrap().to_string(), "127.0.0.1:8090");
    assert_eq!(load("# nothing\n", []).problems, []);
    assert_eq!(load("host: {port: 9}", []).target(None).unwrap().to_string(), "127.0.0.1:9");
    let settings = load("cluster: {host: 'gpu-head:8091'}", []);
    assert_eq!(settings.target(None).unwrap().to_string(), "gpu-head:8091");
}

#[test]
fn what_is_wrong_is_named() {
    check_problems("", &[]);
    check_problems(
        "profiling: {default_freqency: 100}",
        &["unknown key `profiling.default_freqency`; did you mean `profiling.default_frequency`?"],
    );
    check_problems("zzz: 1", &["unknown key `zzz`"]);
    check_problems("host: {port: high}", &["`host.port`: `high` is not a port (0 to 65535)"]);
    check_problems("log: {json: maybe}", &["`log.json`: `maybe` is not true or false"]);
    check_problems(
        "profiling: {default_frequency: 5}",
        &[
            "`profiling.default_frequency`: `5`: a sampling period is between 100 and 3600000 milliseconds, not 5",
        ],
    );
    let settings = load("", [("GSWARM_LOGG__LEVEL", "info")]);
    assert_eq!(
        settings.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "environment variable GSWARM_LOGG__LEVEL: unknown key `logg.level`; did you mean `log.level`?"
        ]
    );
}

#[test]
fn lists_are_lists_or_commas() {
    assert_eq!(
        load("agent: {allow: [probe, models]}", []).text("agent.allow"),
        Some("probe,models")
    );
    assert_eq!(load("agent: {allow: 'probe'}", []).text("agent.allow"), Some("probe"));
}

#[test]
fn broken_files_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.yaml");
    for bad in ["a: [", "- 1\n- 2", "just text", "a: 1\na: 2"] {
        fs::write(&path, bad).unwrap();
        let error =
            Settings::load(&Environment::from([("HOME", "/nonexistent")]), home.path(), None);
        assert!(error.is_err(), "{bad}");
    }
    let missing = home.path().join("missing.yaml");
    Settings::load(&Environment::default(), home.path(), Some(&missing)).unwrap_err();
}

#[test]
fn the_old_file_is_read_with_a_warning() {
    let user = tempfile::tempdir().unwrap();
    let old = "host: {port: 7070, extra: 1}\nclient: {host_url: 'old-head:7070', node_id: n7}";
    fs::write(user.path().join(".gswarm.conf"), old).unwrap();
    let environment = Environment::from([("HOME", user.path().to_str().unwrap())]);
    let settings = Settings::load(&environment, &user.path().join(".gswarm"), None).unwrap();
    assert_eq!(settings.target(None).unwrap().to_string(), "old-head:7070");
    assert_eq!(settings.text("agent.node_id"), Some("n7"));
    assert_eq!(settings.problems.len(), 2);
    assert!(settings.problems.iter().all(|problem| problem.harmless));
}
