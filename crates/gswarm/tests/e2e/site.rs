//! One machine with a home, a working directory and ports that no other test uses.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gswarm_api::body::{NodeBody, SessionBody};
use gswarm_api::{Client, ClientError, Credentials, Target};
use gswarm_tls::Secret;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::process::{self, DEADLINE, Process, Said};
use crate::spool::records_in;

/// Below the ports that the kernel gives away: nobody gets one of these while its host is down.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// The GPUs of each simulated node.
pub(crate) const GPUS: usize = 8;

/// Where one test lives.
pub(crate) struct Site {
    directory: TempDir,
    ports: [Port; 2],
    pub(crate) runtime: Runtime,
}

/// A TCP port of 127.0.0.1 that stays ours: every test takes the UDP port of that number first.
struct Port {
    number: u16,
    _claim: UdpSocket,
}

impl Port {
    fn claim() -> Self {
        let claimed = (0..1_000).find_map(|_| {
            let number = rand::random_range(PORTS);
            let claim = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            Some(Self { number, _claim: claim })
        });
        claimed.unwrap()
    }
}

impl Site {
    /// A machine whose configuration says that its host takes simulated devices.
    pub(crate) fn simulated() -> Self {
        let site = Self::new();
        fs::write(site.home().join("config.yaml"), "host: {sim: true}\n").unwrap();
        site
    }

    /// A machine as it comes.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["work", ".gswarm", "logs"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { directory, ports: [Port::claim(), Port::claim()], runtime }
    }

    /// The directory that everybody on this machine shares as `$HOME`.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root().join(".gswarm")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home().join("data-sim")
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports[0].number
    }

    pub(crate) fn http_port(&self) -> u16 {
        self.ports[1].number
    }

    /// The line with this machine in the place of the one that the manuals talk about.
    fn here(&self, line: &str) -> String {
        line.replace("master-node", "localhost")
            // Both at once: a port may hold the digits of the other.
            .replace("8090", "{main}")
            .replace("8091", "{http}")
            .replace("{main}", &self.port().to_string())
            .replace("{http}", &self.http_port().to_string())
    }

    fn command(&self, line: &str) -> Command {
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
            .env("HOME", self.root())
            .env("GSWARM_HOME", self.home())
            .env("GSWARM_HOST", format!("127.0.0.1:{}", self.port()));
        command
    }

    /// Runs a command to its end; `8090`, `8091` and `master-node` stand for this machine.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> Said {
        let line = self.here(line);
        process::run(&line, self.command(&line))
    }

    /// Starts a host and waits until it is ready.
    #[track_caller]
    pub(crate) fn host(&self, line: &str) -> Process {
        self.host_in(line, &self.data())
    }

    /// Starts a host that records into `data`, and waits until it is ready.
    #[track_caller]
    pub(crate) fn host_in(&self, line: &str, data: &Path) -> Process {
        let mut host = self.start(line, &[]);
        self.ready(&mut host, data);
        host
    }

    /// Starts a process without waiting for it.
    pub(crate) fn start(&self, line: &str, environment: &[(&str, &str)]) -> Process {
        let line = self.here(line);
        let mut command = self.command(&line);
        command.envs(environment.iter().copied());
        let number = fs::read_dir(self.root().join("logs")).unwrap().count();
        Process::start(&line, command, &self.root().join(format!("logs/{number}")))
    }

    /// Starts the agent of a node with simulated GPUs, as its own machine would have it configured.
    pub(crate) fn agent(&self, line: &str, number: usize) -> Process {
        let node = format!("node{number}");
        let devices = format!("sim:{GPUS}xh100,seed={number}");
        let environment = [("GSWARM_AGENT__NODE_ID", &*node), ("GSWARM_AGENT__DEVICES", &*devices)];
        self.start(line, &environment)
    }

    /// Waits until a process says in `directory` that it is ready.
    #[track_caller]
    pub(crate) fn ready(&self, process: &mut Process, directory: &Path) {
        let what = format!("process {} to be ready", process.pid());
        self.until(&what, || {
            process.check_running();
            (run_file(directory)?["pid"] == process.pid()).then_some(())
        });
    }

    /// The state directory of the agent of this name.
    pub(crate) fn state(&self, node: &str) -> PathBuf {
        let folder = self.home().join("state-sim");
        let machine = self.until("state of this machine", || fs::read_dir(&folder).ok()?.next());
        machine.unwrap().path().join(node)
    }

    /// Waits until the spool of every one of these nodes has taken some more records.
    #[track_caller]
    pub(crate) fn spooled(&self, nodes: &[&str]) {
        let spools: Vec<PathBuf> =
            nodes.iter().map(|node| self.state(node).join("spool")).collect();
        let before: Vec<usize> = spools.iter().map(|spool| records_in(spool)).collect();
        let grown = |(spool, before): (&PathBuf, &usize)| records_in(spool) >= before + 4;
        self.until("records in the spools", || spools.iter().zip(&before).all(grown).then_some(()));
    }

    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, ask: impl FnMut() -> Option<T>) -> T {
        process::until(&self.runtime, what, ask)
    }

    /// Waits this many times as long as usual.
    #[track_caller]
    pub(crate) fn until_within<T>(
        &self,
        times: u32,
        what: &str,
        ask: impl FnMut() -> Option<T>,
    ) -> T {
        process::until_within(&self.runtime, DEADLINE * times, what, ask)
    }

    /// Waits until this many nodes are connected and have delivered; gives them.
    #[track_caller]
    pub(crate) fn connected(&self, count: usize) -> Vec<NodeBody> {
        self.until(&format!("{count} connected nodes"), || {
            let nodes = self.ask(async |host| host.nodes().await).ok()?.nodes;
            let fresh = |node: &&NodeBody| node.connected && !node.devices.is_empty();
            (nodes.iter().filter(fresh).count() == count).then_some(nodes)
        })
    }

    /// Waits until a session has this many frames.
    #[track_caller]
    pub(crate) fn frames(&self, session: &str, count: u64) -> SessionBody {
        self.until(&format!("{count} frames of `{session}`"), || {
            let session = self.ask(async |host| host.session(session).await).ok()?;
            (session.frame_count >= count).then_some(session)
        })
    }

    /// As the commands of the user who started the host do it.
    fn client(&self, target: Target) -> Client {
        let file = self.home().join("hosts").join(format!("{}.json", self.port()));
        let told: Option<Value> =
            fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let bearer = told.and_then(|told| Some(Secret::new(told["token"].as_str()?)));
        Client::new(target, Credentials { trust: None, bearer }).unwrap()
    }

    /// One question to the host, over a connection of its own.
    pub(crate) fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let target = format!("127.0.0.1:{}", self.port()).parse().unwrap();
        self.runtime.block_on(question(&self.client(target)))
    }

    /// What `curl` would get: the status and the JSON of the answer.
    #[track_caller]
    pub(crate) fn curl(&self, line: &str) -> (u16, Value) {
        let line = self.here(line);
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap();
        let (authority, path) = url.split_once('/').unwrap();
        let method = if line.contains("-X POST") { "POST" } else { "GET" };
        let body = line.split_once("-d '").map_or("", |(_, rest)| rest.strip_suffix('\'').unwrap());
        let mut request = format!("{method} /{path} HTTP/1.1\r\nHost: {authority}\r\n");
        write!(request, "Content-Length: {}\r\n", body.len()).unwrap();
        write!(request, "Content-Type: application/json\r\nConnection: close\r\n\r\n{body}")
            .unwrap();
        let mut stream = TcpStream::connect(authority).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, json) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(json).unwrap())
    }

    /// Lets everybody run for a while.
    pub(crate) fn pause(&self, span: Duration) {
        process::pause(&self.runtime, span);
    }

    /// The JSON files of the working directory, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.work()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What a process says about itself; `None` where there is none.
pub(crate) fn run_file(directory: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(directory.join("run.json")).ok()?).ok()
}
