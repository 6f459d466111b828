//! Whether ports are free, and who has them if not.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use gswarm_api::{Client, Credentials, Target};

use crate::fault::Fault;

/// How long a process that has a port may take to say whether it is a gswarm host.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// `TCP_LISTEN` in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// A process that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    pub(crate) program: String,
}

/// Who has a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    Gswarm { owner: Option<Owner>, version: String },
    Other { owner: Option<Owner> },
}

/// Refuses ports that cannot be listened on, naming who has them.
pub(crate) async fn require_free(listen: IpAddr, ports: &[u16]) -> anyhow::Result<()> {
    for port in ports.iter().copied().filter(|port| *port != 0) {
        let address = SocketAddr::new(listen, port);
        match TcpListener::bind(address) {
            Ok(_) => {},
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(taken(listen, port, &holder(listen, port).await).into());
            },
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                let message = format!("this machine has no address {listen} to listen on");
                return Err(Fault::invalid(message).hint("`ip address` lists those it has").into());
            },
            Err(error) => {
                return Err(error).with_context(|| format!("cannot listen on {address}"));
            },
        }
    }
    Ok(())
}

/// Finds out who has a port of this machine.
pub(crate) async fn holder(listen: IpAddr, port: u16) -> Holder {
    let owner = owner(listen, port);
    if owner.is_none() && TcpListener::bind(SocketAddr::new(listen, port)).is_ok() {
        return Holder::Nobody;
    }
    let target = Target::new(reachable(listen).to_string(), port);
    let Ok(client) = Client::new(target, Credentials::default()) else {
        return Holder::Other { owner };
    };
    match tokio::time::timeout(ASK_TIMEOUT, client.health()).await {
        Ok(Ok(health)) => Holder::Gswarm { owner, version: health.version },
        _ => Holder::Other { owner },
    }
}

/// The address at which this machine reaches such a listener.
const fn reachable(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
    }
}

fn taken(listen: IpAddr, port: u16, holder: &Holder) -> Fault {
    match holder {
        Holder::Gswarm { owner, version } => {
            let who =
                owner.as_ref().map(|owner| format!(" (pid {})", owner.pid)).unwrap_or_default();
            Fault::conflict(format!(
                "port {port} is in use by a gswarm host, version {version}{who}"
            ))
            .hint(format!(
                "use it with `gswarm status --host {}`, stop it with `gswarm host stop`, or start \
                 another with --port, --http-port and --model-port",
                SocketAddr::new(reachable(listen), port)
            ))
        },
        Holder::Other { owner: Some(owner) } => Fault::conflict(format!(
            "port {port} is in use by `{}` (pid {})",
            owner.program, owner.pid
        ))
        .hint("choose others with --port, --http-port and --model-port (0 turns the last two off)"),
        Holder::Other { owner: None } | Holder::Nobody => {
            Fault::conflict(format!("port {port} is in use by a process of another user")).hint(
                "choose others with --port, --http-port and --model-port (0 turns the last two \
                 off); `sudo ss -ltnp` names the owner",
            )
        },
    }
}

/// The process whose listener is in the way of `listen`, where we may see it.
pub(crate) fn owner(listen: IpAddr, port: u16) -> Option<Owner> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, listen, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        holds(&entry.path(), &wanted).then(|| Owner { pid, program: program(&entry.path()) })
    })
}

fn listening_inodes(table: &str, listen: IpAddr, port: u16) -> Vec<String> {
    let is_in_the_way = |fields: &[&str]| {
        let local = fields.get(1).and_then(|local| local_address(local));
        fields.get(3) == Some(&LISTENING)
            && local.is_some_and(|local| local.port() == port && collides(local.ip(), listen))
    };
    table
        .lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|fields| is_in_the_way(fields))
        .filter_map(|fields| fields.get(9).map(|inode| (*inode).to_owned()))
        .collect()
}

/// `0100007F:1F9A`: the address as the machine holds its 32-bit words, then the port.
fn local_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    let address = match address.len() {
        8 => IpAddr::from(word(address)?),
        32 => {
            let mut octets = [0; 16];
            for (place, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(address.get(place * 8..place * 8 + 8)?)?);
            }
            IpAddr::from(octets)
        },
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// True when two listeners cannot have these addresses at the same port.
fn collides(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    // `::` takes the port of IPv4 too, unless it was told not to, which the table does not say.
    let covers =
        |a: IpAddr, b: IpAddr| a.is_unspecified() && (a.is_ipv6() || a.is_ipv4() == b.is_ipv4());
    one == other || covers(one, other) || covers(other, one)
}

fn holds(process: &Path, wanted: &[String]) -> bool {
    fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|descriptor| {
        fs::read_link(descriptor.path())
            .is_ok_and(|link| link.to_str().is_some_and(|link| wanted.iter().any(|w| w == link)))
    })
}

fn program(process: &Path) -> String {
    fs::read_to_string(process.join("comm")).map(|name| name.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_found(listen: &str, port: u16, expected: &[&str]) {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F9A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 55 1 0 100 0 0 10 0\n\
            1: 0100007F:1F9A 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 56 1 0 100 0 0 10 0\n\
            2: 0200007F:1F9A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 57 1 0 100 0 0 10 0\n\
            3: 00000000:1F9B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 58 1 0 100 0 0 10 0\n\
            4: 00000000000000000000000001000000:1F9A 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 59 1 0 100 0 0 10 0\n\
            5: 00000000000000000000000000000000:1F9C 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 60 1 0 100 0 0 10 0\n";
        // The kernel prints words as the machine holds them; these lines are little-endian.
        if cfg!(target_endian = "little") {
            assert_eq!(listening_inodes(table, listen.parse().unwrap(), port), expected);
        }
    }

    #[test]
    fn listeners_that_are_in_the_way_are_found_in_the_kernel_table() {
        check_found("127.0.0.1", 8090, &["55"]);
        check_found("127.0.0.2", 8090, &["57"]);
        check_found("127.0.0.3", 8090, &[]);
        check_found("0.0.0.0", 8090, &["55", "57"]);
        check_found("::1", 8090, &["59"]);
        check_found("::", 8090, &["55", "57", "59"]);
        check_found("127.0.0.1", 8091, &["58"]);
        check_found("::1", 8091, &[]);
        check_found("127.0.0.1", 8092, &["60"]);
        check_found("127.0.0.1", 8093, &[]);
    }

    #[tokio::test]
    async fn a_taken_port_names_its_owner() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let pid = |listen: [u8; 4]| owner(listen.into(), port).map(|owner| owner.pid);
        assert_eq!(pid([127, 0, 0, 1]), Some(std::process::id()));
        // Who has it on another address is not to blame.
        assert_eq!(pid([127, 0, 0, 2]), None);
        require_free([127, 0, 0, 2].into(), &[port]).await.unwrap();
        let owner = Owner { pid: 7, program: "nginx".to_owned() };
        let listen = Ipv4Addr::LOCALHOST.into();
        let fault = taken(listen, port, &Holder::Other { owner: Some(owner) });
        assert_eq!(fault.to_string(), format!("port {port} is in use by `nginx` (pid 7)"));
        drop(listener);
        require_free(Ipv4Addr::LOCALHOST.into(), &[port, 0]).await.unwrap();
    }
}
