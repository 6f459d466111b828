//! Retention that takes segments while others seal, capture and export them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::TcpStream;

use gswarm_api::body::{CaptureRequest, StoreBody};
use gswarm_trial::{Trial, rounds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::file::Records;
use crate::fleet::{Fleet, HOST};
use crate::process::DEADLINE;
use crate::site::Site;

const NODES: usize = 3;
/// Everything older than this goes, one second of it at a time.
const KEEP: &str = "4s";
/// Reaches back beyond what is kept.
const BACK: &str = "10s";

/// What captures have shown so far: the host time of each record, by incarnation and seq.
#[derive(Default)]
struct Seen {
    times: BTreeMap<(String, u64), i64>,
    /// Captures from whose front retention had taken something.
    expired: u64,
}

impl Seen {
    /// Nothing is missing inside a capture, and what is missing in front of it is a named gap.
    /// Gives how many records are lost without a name.
    fn take(&mut self, records: &Records) -> u64 {
        let mut lost = 0;
        let expired: Vec<&serde_json::Value> = records.gaps.iter().collect();
        assert!(expired.iter().all(|gap| gap["reason"] == "expired"), "{expired:#?}");
        assert!(expired.len() <= 1, "{expired:#?}");
        let covered = expired.first().map(|gap| micros(&gap["to"]));
        self.expired += u64::from(covered.is_some());
        for (incarnation, rows) in &records.incarnations {
            for (row, expected) in rows.iter().zip(rows[0].seq..) {
                lost += u64::from(row.seq != expected);
                let time = self.times.entry((incarnation.clone(), row.seq)).or_insert(row.time_us);
                assert_eq!(*time, row.time_us, "the time of a record changed");
            }
            // The gap ends with the last record that went.
            let in_window = |time: i64| time > covered.unwrap_or(records.from_us - 1);
            let before = (incarnation.clone(), 0)..(incarnation.clone(), rows[0].seq);
            lost += self.times.range(before).filter(|(_, time)| in_window(**time)).count() as u64;
            // Nobody has seen the one in front of the first: it may be older than the window.
            let is_named = covered.is_some() || rows[0].time_us - records.from_us < 1_000_000;
            assert!(is_named || rows[0].seq == 1, "{incarnation} begins with {}", rows[0].seq);
        }
        lost
    }
}

fn micros(time: &serde_json::Value) -> i64 {
    gswarm_api::timestamp::parse_rfc3339(time.as_str().unwrap()).unwrap().0
}

/// Cuts the last seconds out of the recording.
fn capture(site: &Site, name: &str) {
    let (name, from) = (Some(name.to_owned()), BACK.to_owned());
    let request = CaptureRequest { name, from, ..CaptureRequest::default() };
    site.ask(async |host| host.capture(&request).await).unwrap();
}

fn export(site: &Site, name: &str) -> String {
    let file = format!("{name}.jsonl");
    site.run(&format!("gswarm profiler export --name {name} --format jsonl --force -o {file}"))
        .worked();
    fs::read_to_string(site.work().join(file)).unwrap()
}

/// An export that was asked for and of which only the head was read so far.
fn begin_export(site: &Site, name: &str) -> TcpStream {
    use std::io::Write as _;
    let mut stream = TcpStream::connect(("127.0.0.1", site.port())).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let path = format!("/api/v1/sessions/{name}/export?format=jsonl");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.0 200");
    stream
}

fn store(site: &Site) -> StoreBody {
    site.ask(async |host| host.status().await).unwrap().store
}

/// An export goes on although its session is deleted and retention takes what it needed. Gives how
/// many segments were sealed by then.
#[track_caller]
fn check_deleted_while_read(site: &Site, name: &str, whole: &str) -> u64 {
    let mut reading = begin_export(site, name);
    site.ask(async |host| host.delete_session(name).await).unwrap();
    let before = store(site);
    site.until("retention", || (store(site).oldest > before.oldest).then_some(()));
    let mut rest = String::new();
    reading.read_to_string(&mut rest).unwrap();
    let (_, body) = rest.split_once("\r\n\r\n").unwrap();
    assert!(body == whole, "{} bytes instead of {}", body.len(), whole.len());
    before.segments_sealed
}

#[test]
fn what_retention_takes_is_named_and_what_is_being_read_stays() {
    let mut trial =
        Trial::new("retention of seconds beside capture, seal, export, delete, kill -9");
    let seed = rand::random();
    println!("seed {seed}");
    trial.seeds = 1;
    let mut random = StdRng::seed_from_u64(seed);
    let site = Site::simulated();
    let config = "host: {sim: true}\nstore: {segment_age: 1s}\n";
    fs::write(site.home().join("config.yaml"), config).unwrap();
    let data = site.data();
    let mut fleet = Fleet::with_host(site, format!("{HOST} --keep {KEEP}"), Vec::new(), data);
    fleet.join(NODES);
    // Without it nothing is pinned.
    fleet.site.run("gswarm profiler stop --name all").worked();
    fleet.site.run("gswarm profiler delete --name all").worked();
    let mut seen = Seen::default();
    let mut sealed = 0;
    for round in 0..rounds(6, 300) {
        let name = format!("c{round}");
        capture(&fleet.site, &name);
        let text = export(&fleet.site, &name);
        let records = Records::parse(&text);
        trial.lost += seen.take(&records);
        trial.records += records.rows().count() as u64;
        assert_eq!(trial.lost, 0, "lost without a name in {name}");
        fleet.stores(10 * NODES as u64);
        // A session keeps what it had: the same bytes, whatever goes around it.
        assert!(export(&fleet.site, &name) == text, "{name} changed");
        sealed += check_deleted_while_read(&fleet.site, &name, &text);
        if random.random_range(0..3) == 0 {
            fleet.kill_host();
            fleet.start_host();
            fleet.ready();
            fleet.site.connected(NODES);
            trial.faults += 1;
        }
        trial.rounds += 1;
    }
    assert!(seen.expired * 2 >= trial.rounds, "retention took from {} only", seen.expired);
    assert!(sealed > 0, "nothing was ever sealed");
    assert_eq!(store(&fleet.site).quarantined_files, 0);
}
