//! `gswarm bench ingest`: its ledger, and what it does not do to others.

use std::fs;

use serde_json::Value;

use crate::site::Site;

#[track_caller]
fn whole(text: &str) -> Value {
    let report: Value = serde_json::from_str(text).unwrap();
    let audit = &report["audit"];
    for trouble in ["missing", "repeated", "strange", "gaps"] {
        assert_eq!(audit[trouble], 0, "{report}");
    }
    assert_eq!(audit["records"], report["sampled"], "{report}");
    assert!(report["sampled"].as_u64().unwrap() > 20, "{report}");
    report
}

#[test]
fn the_ledger_survives_what_happens_to_the_host() {
    let site = Site::new();
    for (scenario, kills) in [("steady", 0), ("host-kill", 3), ("sessions", 0)] {
        let said = site.run(&format!(
            "gswarm bench ingest --json --nodes 5 --freq 200 --duration 2s --scenario {scenario}"
        ));
        let report = whole(&said.worked());
        assert_eq!(report["host_kills"], kills, "{report}");
        assert!(report["host_cpu_seconds"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(fs::read_dir(site.work()).unwrap().next().is_none(), "something was left behind");
}

#[test]
fn a_burst_is_ten_times_the_rate() {
    let site = Site::new();
    let said = site.run(
        "gswarm bench ingest --json --nodes 4 --freq 1000 --duration 6s --scenario burst --dir .",
    );
    let report = whole(&said.worked());
    // 24 at the rate of once a second; a second of the burst brings 36 more.
    assert!(report["records_in_window"].as_u64().unwrap() > 45, "{report}");
}

#[test]
fn only_hosts_of_simulated_devices_are_loaded() {
    let site = Site::new();
    let _host =
        site.host_in("gswarm host start --port 8090 --single-port", &site.home().join("data"));
    site.run("gswarm bench ingest --host localhost:8090 --nodes 1 --duration 1s")
        .failed(7, "the host records real devices");
    site.run("gswarm bench ingest --host localhost:8090 --scenario storm")
        .failed(2, "leave out --host");
    site.run("gswarm bench ingest --nodes 0").failed(2, "0 is not in 1..=50000");
    site.run("gswarm bench ingest --dir /nowhere/at/all --nodes 1 --duration 1s --freq 5")
        .failed(2, "5");
}
