//! A TCP proxy between agents and their host that cuts connections or lets them hang.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::process::{DEADLINE, Process};
use crate::site::Site;

/// Once the host has said so much, the two have greeted each other and it acknowledges.
const GREETING_BYTES: usize = 400;

/// How long a thread of the proxy waits before it looks whether all is still as it was.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The way of one agent. Its threads end with their connections.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    host: u16,
    random: Mutex<StdRng>,
    /// Connections still to be cut.
    cuts_left: AtomicI64,
    cuts: AtomicU64,
    accepted: AtomicU64,
    connections: Mutex<Vec<Arc<Connection>>>,
}

/// Both sockets of one connection of the agent.
struct Connection {
    agent: TcpStream,
    host: TcpStream,
    /// Nothing is read or forwarded any more, and nothing is closed.
    hangs: AtomicBool,
    /// Bytes that the host has said.
    heard: AtomicUsize,
}

/// How much of one direction goes through.
#[derive(Clone, Copy)]
enum Life {
    Whole,
    Bytes(usize),
    /// So many bytes after the greeting.
    Late(usize),
}

impl Proxy {
    /// Cuts so many connections of an agent, each at a random byte.
    pub(crate) fn start(host: u16, cuts: i64, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            host,
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            cuts_left: AtomicI64::new(cuts),
            cuts: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            connections: Mutex::new(Vec::new()),
        });
        let own = shared.clone();
        thread::spawn(move || {
            for agent in listener.incoming() {
                own.connect(agent.unwrap());
            }
        });
        Self { port, shared }
    }

    /// Connections that were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Connections that the agent made.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Cuts the connections there are.
    pub(crate) fn cut(&self) {
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            self.shared.cuts.fetch_add(1, Ordering::SeqCst);
            connection.close();
        }
    }

    /// An agent that reaches its host this way.
    pub(crate) fn agent(&self, site: &Site, number: usize) -> Process {
        let (node, devices) = (format!("node{number}"), format!("sim:2xh100,seed={number}"));
        let environment = [("GSWARM_AGENT__NODE_ID", &*node), ("GSWARM_AGENT__DEVICES", &*devices)];
        site.start(&format!("gswarm join localhost:{}", self.port), &environment)
    }

    /// Lets the connections there are hang, as when a cable is pulled.
    pub(crate) fn hang(&self) {
        for connection in self.shared.connections.lock().unwrap().iter() {
            connection.hangs.store(true, Ordering::SeqCst);
        }
    }

    /// True once the host has closed every connection that hangs.
    pub(crate) fn host_let_go(&self) -> bool {
        let connections = self.shared.connections.lock().unwrap();
        let mut hanging = connections.iter().filter(|one| one.hangs.load(Ordering::SeqCst));
        hanging.all(|connection| is_closed(&connection.host))
    }
}

/// Reads what is there; true at the end or when the other side reset the connection.
fn is_closed(mut socket: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {},
            Err(error) => return !is_timeout(&error),
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

// === impl Connection ===

impl Connection {
    fn close(&self) {
        for socket in [&self.agent, &self.host] {
            let _closed_already = socket.shutdown(Shutdown::Both);
        }
    }
}

// === impl Life ===

impl Life {
    /// How many of the bytes go through, when the host has said `heard` before.
    fn pass(&mut self, bytes: usize, heard: usize) -> usize {
        match self {
            Self::Whole => bytes,
            Self::Late(_) if heard < GREETING_BYTES => bytes,
            Self::Bytes(left) | Self::Late(left) => {
                let passes = bytes.min(*left);
                *left -= passes;
                passes
            },
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Bytes(0) | Self::Late(0))
    }
}

// === impl Shared ===

impl Shared {
    fn connect(self: &Arc<Self>, agent: TcpStream) {
        // A host that is down refuses, and so does its proxy.
        let Ok(host) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.host)) else { return };
        for socket in [&agent, &host] {
            socket.set_nodelay(true).unwrap();
            socket.set_read_timeout(Some(LOOK_EVERY)).unwrap();
            socket.set_write_timeout(Some(DEADLINE)).unwrap();
        }
        self.accepted.fetch_add(1, Ordering::SeqCst);
        let connection = Arc::new(Connection {
            agent,
            host,
            hangs: AtomicBool::new(false),
            heard: AtomicUsize::new(0),
        });
        self.connections.lock().unwrap().push(connection.clone());
        let (up, down) = self.lives();
        for (is_up, bytes) in [(true, up), (false, down)] {
            let (shared, connection) = (self.clone(), connection.clone());
            thread::spawn(move || shared.pump(&connection, is_up, bytes));
        }
    }

    /// What goes through from the agent and from the host before the cut. Most streams live long
    /// enough to deliver: an agent that gets no answer waits longer and longer.
    fn lives(&self) -> (Life, Life) {
        if self.cuts_left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return (Life::Whole, Life::Whole);
        }
        let mut random = self.random.lock().unwrap();
        match random.random_range(0..16) {
            0 => (Life::Bytes(random.random_range(1..4_000)), Life::Whole),
            1 => (Life::Whole, Life::Bytes(random.random_range(1..GREETING_BYTES))),
            2..=7 => (Life::Whole, Life::Late(random.random_range(1..150))),
            _ => (Life::Late(random.random_range(1..2_500)), Life::Whole),
        }
    }

    /// Forwards one direction until either side ends it, its bytes are used up, or it hangs.
    fn pump(&self, connection: &Arc<Connection>, is_up: bool, life: Life) {
        let (mut from, mut to) = if is_up {
            (&connection.agent, &connection.host)
        } else {
            (&connection.host, &connection.agent)
        };
        let mut left = life;
        let mut buffer = [0; 4096];
        loop {
            if connection.hangs.load(Ordering::SeqCst) {
                return;
            }
            let read = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if is_timeout(&error) => continue,
                Err(_) => break,
            };
            let passes = left.pass(read, connection.heard.load(Ordering::SeqCst));
            if to.write_all(&buffer[..passes]).is_err() || left.is_over() {
                break;
            }
            if !is_up {
                connection.heard.fetch_add(read, Ordering::SeqCst);
            }
        }
        if left.is_over() {
            self.cuts.fetch_add(1, Ordering::SeqCst);
        } else if !matches!(life, Life::Whole) {
            // It ended by itself: the cut is still to come.
            self.cuts_left.fetch_add(1, Ordering::SeqCst);
        }
        connection.close();
        // Sockets of a thousand connections are more than a process may have open.
        self.connections.lock().unwrap().retain(|other| !Arc::ptr_eq(other, connection));
    }
}
