//! Whether ports are free, and who has them if not.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use gswarm_api::{Client, Target};

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
                return Err(taken(port, &holder(listen, port).await).into());
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
    let owner = owner(port);
    if owner.is_none() && TcpListener::bind(SocketAddr::new(listen, port)).is_ok() {
        return Holder::Nobody;
    }
    let host = if listen.is_unspecified() { loopback(listen) } else { listen };
    let client = Client::new(Target::new(host.to_string(), port));
    match tokio::time::timeout(ASK_TIMEOUT, client.health()).await {
        Ok(Ok(health)) => Holder::Gswarm { owner, version: health.version },
        _ => Holder::Other { owner },
    }
}

const fn loopback(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

fn taken(port: u16, holder: &Holder) -> Fault {
    match holder {
        Holder::Gswarm { owner, version } => {
            let who =
                owner.as_ref().map(|owner| format!(" (pid {})", owner.pid)).unwrap_or_default();
            Fault::conflict(format!(
                "port {port} is in use by a gswarm host, version {version}{who}"
            ))
            .hint(format!(
                "use it with `gswarm status --host 127.0.0.1:{port}`, stop it with `gswarm host \
                     stop`, or start another with --port, --http-port and --model-port"
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

/// The process that listens on a port, where we may see it.
pub(crate) fn owner(port: u16) -> Option<Owner> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, port))
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

fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let is_listener = |fields: &[&str]| {
        let local_port = fields.get(1).and_then(|local| local.rsplit(':').next());
        let local_port = local_port.and_then(|text| u16::from_str_radix(text, 16).ok());
        local_port == Some(port) && fields.get(3) == Some(&LISTENING)
    };
    table
        .lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|fields| is_listener(fields))
        .filter_map(|fields| fields.get(9).map(|inode| (*inode).to_owned()))
        .collect()
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

    #[test]
    fn listeners_are_found_in_the_kernel_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F9A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 55 1 0 100 0 0 10 0\n\
            1: 0100007F:1F9A 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 56 1 0 100 0 0 10 0\n";
        assert_eq!(listening_inodes(table, 8090), ["55"]);
        assert_eq!(listening_inodes(table, 8091), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_taken_port_names_its_owner() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(owner(port).map(|owner| owner.pid), Some(std::process::id()));
        let owner = Owner { pid: 7, program: "nginx".to_owned() };
        let fault = taken(port, &Holder::Other { owner: Some(owner) });
        assert_eq!(fault.to_string(), format!("port {port} is in use by `nginx` (pid 7)"));
        drop(listener);
        require_free(Ipv4Addr::LOCALHOST.into(), &[port, 0]).await.unwrap();
    }
}
