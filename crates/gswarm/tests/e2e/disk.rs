//! Disks that are full, fail or take their time, under real processes.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gswarm_api::body::{HealthBody, HealthStatus, NodeHealth, StartRequest};
use gswarm_trial::{Trial, rounds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use crate::fleet::{Fleet, HOST};
use crate::proxy::Proxy;
use crate::site::Site;

const NODES: usize = 2;
const MIB: usize = 1024 * 1024;
/// A small disk. Of it the host leaves a twentieth alone.
const MOUNT_MIB: usize = 16;
/// Times that streams are cut while a commit is under way.
const RETURNS: usize = 3;
/// What a question may take while the disk does not answer for two seconds.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// A file system of its own in memory, gone with the value.
struct Mount {
    path: PathBuf,
}

impl Mount {
    /// `None` where tests may not mount.
    fn new(path: PathBuf) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let size = format!("size={MOUNT_MIB}m");
        let options = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let output = Command::new("mount").args(options).arg(&path).output().ok()?;
        if output.status.success() {
            return Some(Self { path });
        }
        println!("{}", String::from_utf8_lossy(&output.stderr));
        None
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.path).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Writes until no more than `leave_bytes` are free.
    fn fill(&self, leave_bytes: u64) {
        let mut file = File::create(self.ballast()).unwrap();
        while self.free_bytes() > leave_bytes && file.write_all(&[7; 4096]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a process that is about to end may still have a file open.
        let _gone = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}

/// Waits until the host says that it takes no records; gives the reason.
#[track_caller]
fn unavailable(site: &Site) -> String {
    health(site, HealthStatus::Unavailable)
}

/// Waits until the journal is in this state; gives what the host says of it.
#[track_caller]
fn health(site: &Site, wanted: HealthStatus) -> String {
    site.until(&format!("a journal that is {wanted:?}"), || {
        let health: HealthBody = site.ask(async |host| host.health().await).ok()?;
        let journal = health.checks.into_iter().find(|check| check.name == "journal")?;
        (journal.status == wanted).then_some(journal.message)
    })
}

/// Nothing more counts as stored, though the agents go on; all that was stored can be read.
#[track_caller]
fn check_reads_only(fleet: &Fleet) {
    let stored = fleet.stored();
    fleet.agents_go_on();
    assert_eq!(fleet.stored(), stored, "stored on a disk that takes nothing");
    let site = &fleet.site;
    assert_eq!(site.ask(async |host| host.nodes().await).unwrap().nodes.len(), NODES);
    let sessions = site.ask(async |host| host.sessions().await).unwrap().sessions;
    assert!(sessions.iter().any(|session| session.name == "all"));
    let (status, answer) = site.curl("curl http://127.0.0.1:8090/api/v1/health");
    assert_eq!((status, &answer["status"]), (503, &"unavailable".into()));
    let export = "gswarm profiler export --name early --format jsonl --force -o";
    site.run(&format!("{export} again.jsonl")).worked();
    let read = |name: &str| fs::read(site.work().join(name)).unwrap();
    assert!(read("early.jsonl") == read("again.jsonl"), "an old session reads differently");
}

/// A session that is over before anything goes wrong.
fn record_early(fleet: &Fleet) {
    let site = &fleet.site;
    site.run("gswarm profiler start --name early").worked();
    site.frames("early", 5);
    site.run("gswarm profiler stop --name early").worked();
    site.run("gswarm profiler export --name early --format jsonl -o early.jsonl").worked();
}

/// Waits until every agent has its stream, also on a host that stored nothing since its start.
#[track_caller]
fn linked(site: &Site) {
    site.until("connected agents", || {
        let nodes = site.ask(async |host| host.nodes().await).ok()?.nodes;
        (nodes.iter().filter(|node| node.connected).count() == NODES).then_some(())
    });
}

#[track_caller]
fn event(site: &Site, kind: &str) -> String {
    site.until(kind, || {
        let events = site.ask(async |host| host.events(None).await).ok()?.events;
        Some(events.into_iter().rfind(|event| event.kind == kind)?.message)
    })
}

#[test]
fn a_full_disk_stops_acks_not_reads_and_is_left_by_itself() {
    let mut trial = Trial::new("a small mount that fills up, on a host that runs, dies and starts");
    let site = Site::simulated();
    let Some(mount) = Mount::new(site.root().join("small")) else {
        trial.what = "SKIPPED: a small mount that fills up (needs root and mount)";
        println!("SKIPPED: this test needs to mount a file system, and may not");
        return;
    };
    let data = mount.path.join("data");
    let line = format!("{HOST} --budget 8MB --data-dir {}", data.display());
    let mut fleet = Fleet::with_host(site, line, Vec::new(), data);
    fleet.join(NODES);
    record_early(&fleet);
    let reserve = (MOUNT_MIB * MIB / 20) as u64;
    for round in 0..rounds(3, 60) {
        match round % 3 {
            0 => fill_to_the_reserve(&mut fleet, &mount, reserve),
            1 => {
                mount.fill(0);
                unavailable(&fleet.site);
                check_reads_only(&fleet);
            },
            _ => start_on_a_full_disk(&mut fleet, &mount),
        }
        mount.empty();
        health(&fleet.site, HealthStatus::Ok);
        fleet.stores(10);
        event(&fleet.site, "store_recovered");
        trial.rounds += 1;
        trial.faults += 1;
    }
    fleet.settle();
    fleet.finish(&mut trial);
}

/// The rest is for sessions: they begin while records wait.
fn fill_to_the_reserve(fleet: &mut Fleet, mount: &Mount, reserve: u64) {
    mount.fill(reserve - 64 * 1024);
    let reason = unavailable(&fleet.site);
    assert!(reason.contains("are kept in reserve"), "{reason}");
    assert!(event(&fleet.site, "store_full").contains("are kept in reserve"));
    check_reads_only(fleet);
    let request = StartRequest { duration: Some("1s".to_owned()), ..StartRequest::default() };
    let site = &fleet.site;
    let session = site.ask(async |host| host.start_session(&request).await).unwrap();
    // Its file is written: it outlives the host.
    fleet.kill_host();
    fleet.start_host();
    let site = &fleet.site;
    let same =
        site.until("the session", || site.ask(async |host| host.session(&session.id).await).ok());
    assert_eq!(same.from, session.from);
    linked(site);
}

fn start_on_a_full_disk(fleet: &mut Fleet, mount: &Mount) {
    mount.fill(0);
    unavailable(&fleet.site);
    fleet.kill_host();
    fleet.start_host();
    fleet.ready();
    let site = &fleet.site;
    linked(site);
    unavailable(site);
    check_reads_only(fleet);
}

/// The library in `sync_fault.c`, and the directory of its orders.
struct SyncFault {
    library: PathBuf,
    control: PathBuf,
}

impl SyncFault {
    fn build(site: &Site) -> Self {
        let control = site.root().join("control");
        fs::create_dir(&control).unwrap();
        let library = site.root().join("sync_fault.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/sync_fault.c");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        let output = compile.arg(source).arg("-ldl").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { library, control }
    }

    /// A host over this disk.
    fn fleet(&self, site: Site) -> Fleet {
        let data = site.data();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let environment = vec![
            ("LD_PRELOAD", text(&self.library)),
            ("SYNC_FAULT_CONTROL", text(&self.control)),
            ("SYNC_FAULT_UNDER", text(&data.join("journal"))),
        ];
        Fleet::with_host(site, HOST.to_owned(), environment, data)
    }

    fn order(&self, name: &str) {
        fs::write(self.control.join(name), []).unwrap();
    }

    fn recall(&self, name: &str) {
        fs::remove_file(self.control.join(name)).unwrap();
    }

    /// How many syncs failed or were slow.
    fn injected(&self) -> u64 {
        fs::metadata(self.control.join("injected")).map_or(0, |file| file.len())
    }
}

/// The number of the newest file of the journal.
fn newest_segment(journal: &Path) -> String {
    let entries = fs::read_dir(journal).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".jsonl")).max().unwrap()
}

#[test]
fn what_could_not_be_synced_is_not_acknowledged() {
    let mut trial =
        Trial::new("syncs that fail and lose what was written, with and without kill -9");
    let seed = rand::random();
    println!("seed {seed}");
    trial.seeds = 1;
    let mut random = StdRng::seed_from_u64(seed);
    let site = Site::simulated();
    let fault = SyncFault::build(&site);
    let mut fleet = fault.fleet(site);
    fleet.join(NODES);
    record_early(&fleet);
    let journal = fleet.site.data().join("journal");
    for round in 0..rounds(6, 150) {
        let moment = Duration::from_millis(random.random_range(0..300));
        fleet.site.pause(moment);
        if round % 3 == 0 {
            let before = newest_segment(&journal);
            fault.order("fail_once");
            fleet.site.until("a new segment", || (newest_segment(&journal) > before).then_some(()));
        } else {
            fault.order("fail");
            let reason = unavailable(&fleet.site);
            assert!(reason.contains("cannot write to the journal"), "{reason}");
            assert!(event(&fleet.site, "store_full").contains("cannot write to the journal"));
            check_reads_only(&fleet);
            if round % 3 == 1 {
                fault.recall("fail");
            } else {
                // What the host still held in memory is gone: only the spools have it.
                fleet.kill_host();
                fault.recall("fail");
                fleet.start_host();
                fleet.ready();
            }
        }
        health(&fleet.site, HealthStatus::Ok);
        fleet.site.connected(NODES);
        fleet.stores(5);
        trial.rounds += 1;
        trial.faults = fault.injected();
    }
    fleet.settle();
    fleet.finish(&mut trial);
    assert!(trial.faults >= trial.rounds, "{} faults", trial.faults);
}

#[test]
fn a_slow_disk_delays_acks_and_nothing_else_nor_doubles_anything() {
    let mut trial = Trial::new(
        "syncs of two seconds each while records and questions come, and streams are cut",
    );
    let site = Site::simulated();
    let fault = SyncFault::build(&site);
    let mut fleet = fault.fleet(site);
    let ways: Vec<Proxy> = (0..NODES).map(|_| Proxy::start(fleet.site.port(), 0, 0)).collect();
    fleet.agents =
        ways.iter().zip(1..).map(|(way, number)| way.agent(&fleet.site, number)).collect();
    fleet.site.connected(NODES);
    record_early(&fleet);
    let commits =
        |fleet: &Fleet| fleet.site.ask(async |host| host.status().await).unwrap().ingest.commits;
    fault.order("slow");
    let slow = rounds(3, 30);
    fleet.site.until("slow syncs", || (fault.injected() > 0).then_some(()));
    let (began, before) = (Instant::now(), commits(&fleet));
    while fault.injected() < slow {
        let asked = Instant::now();
        let nodes = fleet.site.ask(async |host| host.nodes().await).unwrap().nodes;
        assert!(nodes.iter().all(|node| node.connected && node.health == NodeHealth::Healthy));
        fleet.site.ask(async |host| host.session("early").await).unwrap();
        assert!(asked.elapsed() < ANSWER_MAX, "an answer took {:?}", asked.elapsed());
        fleet.site.pause(Duration::from_millis(50));
        assert!(began.elapsed() < Duration::from_secs(10 * slow), "no commit ended");
    }
    // Nothing counted before its sync was over.
    let possible = began.elapsed().as_secs() / 2 + 1;
    assert!(commits(&fleet) - before <= possible, "{} commits", commits(&fleet) - before);
    fleet.agents_go_on();
    for _ in 0..RETURNS {
        // Right after a commit the next one begins, with all that came meanwhile: an agent that
        // comes back within its two seconds sends that again, and it counts once.
        fleet.stores(1);
        ways.iter().for_each(Proxy::cut);
        linked(&fleet.site);
    }
    fault.recall("slow");
    trial.rounds = slow;
    trial.faults = fault.injected() + ways.iter().map(Proxy::cuts).sum::<u64>();
    fleet.stores(20);
    fleet.settle();
    let twice = fleet.site.ask(async |host| host.status().await).unwrap().ingest.records_duplicate;
    fleet.finish(&mut trial);
    assert!(twice > 0, "nothing was sent twice");
}
